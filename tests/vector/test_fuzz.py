"""Random sequences of calls and faults, and a model that says how each of them ends.

Everything that a vector environment returns, raises and warns of is compared with the model: a
plain loop over the same environments. `FUZZ_EXAMPLES=1000` runs so many sequences of each kind,
other ones each time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from superdex.errors import CallTimeout
from tests.vector.machine import (
    CODES,
    GENEROUS,
    MOST_ENVS,
    RANDOM,
    RARE,
    ROWS,
    SEEDS,
    SLOTS,
    Machine,
    Stable,
)
from tests.vector.puppets import Code, Config, options_by_number
from tests.vector.slot_steps import WAYS

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
HOLDING = st.lists(ROWS, min_size=1, max_size=2)
WAITS = st.lists(st.sampled_from([0, 0.001, 0.02]), min_size=1, max_size=3)
WORKERS = st.sets(st.integers(0, 2), max_size=2)

MODES = [*AutoresetMode]
IN_PROCESS = st.builds(
    lambda num_envs, num_workers, **rest: Config(
        num_envs, min(num_envs, num_workers), in_process=True, **rest
    ),
    st.integers(1, MOST_ENVS),
    st.integers(1, 3),
    mode=st.sampled_from(MODES),
    copy=st.booleans(),
    truncate=st.booleans(),
    max_restarts=st.sampled_from([10**6, 10**6, 0, 2]),
    episode_seeds=st.booleans(),
    autoreset_options=st.sampled_from([None, "last", options_by_number]),
    reset_masks=st.booleans(),
)
NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
IN_WORKERS = [
    Config(5, 3, NEXT, restart=True, truncate=True, reset_masks=True),
    Config(4, 2, SAME, restart=True, truncate=True, copy=False, autoreset_options="last"),
    Config(3, 2, DISABLED, restart=True, truncate=True, episode_seeds=True),
    Config(3, 3, NEXT, restart=True, copy=False, autoreset_options=options_by_number),
    Config(5, 2, SAME, restart=True, reset_masks=True, episode_seeds=True),
    Config(4, 3, DISABLED, restart=True, copy=False),
    Config(2, 1, NEXT, restart=True, truncate=True, max_restarts=1, autoreset_options="last"),
    Config(4, 2, NEXT, truncate=True, copy=False, episode_seeds=True),
    Config(3, 3, SAME, truncate=True),
    Config(5, 3, NEXT, autoreset_options="last"),
]


@pytest.fixture
def stable(tmp_path: Path) -> Iterator[Stable]:
    """Vector environments, closed in the end."""
    kept = Stable(tmp_path, most=1)
    yield kept
    kept.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Stable:
    """Keeps none, so that a sequence can be repeated and shrunk."""
    return Stable(tmp_path, most=0)


class InProcessMachine(Machine):
    """Everything but what needs processes."""

    @initialize(config=IN_PROCESS, late=st.booleans())
    def choose(self, config: Config, late: bool) -> None:
        self.begin(config, late=late)


class WorkersMachine(Machine):
    """With workers that die, and calls that are waited for in vain."""

    @initialize(late=st.booleans())
    def choose(self, late: bool) -> None:
        self.begin(self.stable.turn(IN_WORKERS), late=late)

    @rule(random=RANDOM, codes=CODES, row=ROWS, rare=RARE)
    def step_leaving(self, random: int, codes: dict[int, Code], row: int, rare: int) -> None:
        if self.config.restart or rare == 3:
            self.step(self.actions(random, {**codes, row: Code.LEAVE}), "async")

    @rule(random=RANDOM, slots=SLOTS, row=ROWS, way=st.sampled_from([*WAYS]), rare=RARE)
    def slots_leaving(
        self, random: int, slots: list[list[int]], row: int, way: str, rare: int
    ) -> None:
        if self.config.restart or rare == 3:
            self.step_slots(self.actions(random, {row: Code.LEAVE}), self.within(slots), way)

    @rule(row=ROWS, seed=SEEDS, rare=RARE)
    def reset_leaving(self, row: int, seed: Any, rare: int) -> None:
        if self.config.restart or rare == 3:
            self.reset_told(row, seed, {"leave": True}, "async")

    @rule(row=ROWS, rare=RARE)
    def call_leaving(self, row: int, rare: int) -> None:
        if not self.model.dead and (self.config.restart or rare == 3):
            self.call_some("leave", [row % self.config.num_envs])

    @rule(random=RANDOM, codes=CODES, rows=HOLDING, waits=WAITS, workers=WORKERS, rare=RARE)
    def step_holding(
        self,
        random: int,
        codes: dict[int, Code],
        rows: list[int],
        waits: list[float],
        workers: set[int],
        rare: int,
    ) -> None:
        held = dict.fromkeys(rows, Code.HOLD)
        self.step(self.actions(random, {**codes, **held}), "held")
        self.meddle(waits, workers, rare)

    @rule(row=ROWS, seed=SEEDS, waits=WAITS, workers=WORKERS, rare=RARE)
    def reset_holding(
        self, row: int, seed: Any, waits: list[float], workers: set[int], rare: int
    ) -> None:
        self.reset_told(row, seed, {"hold": True}, "held")
        self.meddle(waits, workers, rare)

    def meddle(self, waits: list[float], workers: set[int], rare: int) -> None:
        """Wait in vain, kill workers, wait again; perhaps to the end."""
        for number, timeout in enumerate(waits):
            if self.flight is not None:
                self.wait(timeout)
            if number == 0 and (self.config.restart or rare == 3):
                self.kill_in_flight(workers)
        if self.flight is not None and rare % 2:
            self.wait(GENEROUS)

    @rule(workers=WORKERS, rare=RARE)
    def kill_idle(self, workers: set[int], rare: int) -> None:
        if self.state in ("new", "idle") and (self.config.restart or rare == 3):
            chosen = {w for w in workers if w < self.config.num_workers} - self.model.dead
            self.kill(chosen)
            self.model.dead |= chosen

    def kill_in_flight(self, workers: set[int]) -> None:
        """Some hold and die on the way; others have replied, and their death comes later."""
        flight = self.flight
        if flight is None or not flight.held or flight.killed or flight.killed_later:
            return
        deadline = time.monotonic() + GENEROUS
        while True:  # until nobody but those that hold is at work
            with pytest.raises(CallTimeout) as caught:
                self.wait_once()
            if set(caught.value.workers) == flight.held:
                break
            assert time.monotonic() < deadline, caught.value
        time.sleep(0.05)  # a worker says that it is done before it sends its message
        chosen = {w for w in workers if w < self.config.num_workers}
        flight.killed, flight.killed_later = chosen & flight.held, chosen - flight.held
        self.kill(chosen)

    def wait_once(self) -> None:
        wait = self.envs.step_wait if self.state == "step" else self.envs.reset_wait
        self.watched(wait, timeout=0.01)

    def kill(self, workers: set[int]) -> None:
        """Kill workers, and return when they are gone."""
        self.note("kill", workers)
        processes = [psutil.Process(self.envs.worker_pids[w]) for w in workers]
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + GENEROUS
        for process in processes:
            while is_alive(process):
                assert time.monotonic() < deadline
                time.sleep(0.001)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def run(machine: Callable[[], Machine], examples: int, phases: list[Phase]) -> None:
    """Run so many sequences, the same ones each time unless more are asked for."""
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]  # it is called, and need be no class
        settings=settings(
            max_examples=EXAMPLES or examples,
            stateful_step_count=20,
            deadline=None,
            derandomize=not EXAMPLES,
            database=None,
            phases=phases,
            verbosity=Verbosity.normal,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.timeout(300 + EXAMPLES)
def test_any_sequence_in_this_process_ends_as_the_model_says(fresh):
    """All modes and policies, exceptions at every point; a mismatch is shrunk."""
    run(lambda: InProcessMachine(fresh), 300, [Phase.generate, Phase.shrink])


@pytest.mark.timeout(300 + 5 * EXAMPLES)
def test_any_sequence_with_workers_ends_as_the_model_says(stable):
    """Kills, exits, exceptions and timeouts too; no hang, no mismatch, nothing shifted."""
    run(lambda: WorkersMachine(stable), 40, [Phase.generate])  # to shrink takes too long
