"""A machine that calls a vector environment at random and compares it with its model."""

from __future__ import annotations

import copy
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from superdex.errors import (
    BrokenError,
    CallPending,
    CallTimeout,
    ClosedError,
    ResetNeeded,
    WorkerDied,
    WorkerRaised,
)
from superdex.vector import HybridVectorEnv
from tests.vector.model import Model, Outcome, batched
from tests.vector.puppets import Code, Config
from tests.vector.slot_steps import WAYS

GENEROUS = 60.0
"""Seconds; no call takes as long, so that a hang is a failure."""

MOST_ENVS = 6

ENDS = st.sampled_from([Code.TERMINATE, Code.TRUNCATE])
ROWS = st.integers(0, MOST_ENVS - 1)
RANDOM = st.integers(0, 2**16)
RARE = st.integers(0, 9)
"""For what breaks a vector environment, which is done at one of these numbers."""
SEEDS = st.one_of(
    st.none(),
    st.integers(0, 1000),
    st.integers(0, 1000).map(np.int64),
    st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=MOST_ENVS, max_size=MOST_ENVS),
    st.lists(st.integers(0, 1000), min_size=MOST_ENVS, max_size=MOST_ENVS).map(np.array),
)
TOLD = st.one_of(st.none(), st.fixed_dictionaries({"shift": st.integers(0, 9)}))
OPTIONS = st.one_of(TOLD, st.lists(TOLD, min_size=MOST_ENVS, max_size=MOST_ENVS))
CODES = st.dictionaries(ROWS, ENDS, max_size=2)
SLOTS = st.permutations(range(MOST_ENVS)).flatmap(
    lambda rows: st.lists(st.integers(0, MOST_ENVS), max_size=4).map(
        lambda cuts: [rows[a:b] for a, b in pairwise(sorted({0, *cuts})) if a < b]
    )
)
"""Rows in any order, cut in up to four slots; those after the last cut are left out."""
SOME = st.lists(ROWS, unique=True, max_size=MOST_ENVS)

# ── comparing ───────────────────────────────────────────────────────────────────────────────────


def check_same(actual: Any, expected: Any, where: str) -> None:
    """Fail unless two infos or arrays are the same, bit for bit and in their types."""
    if isinstance(expected, dict):
        assert isinstance(actual, dict), f"{where} is {actual!r}"
        assert actual.keys() == expected.keys(), f"{where} has other keys"
        for key, value in expected.items():
            check_same(actual[key], value, f"{where}[{key!r}]")
        return
    assert isinstance(actual, np.ndarray), f"{where} is {actual!r}"
    same = (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if same and expected.dtype == object:
        pairs = zip(actual, expected, strict=True)
        same = all(type(a) is type(b) and np.array_equal(a, b) for a, b in pairs)
    elif same:
        same = actual.tobytes() == expected.tobytes()
    assert same, f"{where}: got {actual!r}, expected {expected!r}"


def failures_of(error: Exception) -> set[tuple[type[Exception], int]]:
    """Return the classes and workers of what was raised, in a group or alone."""
    errors = error.exceptions if isinstance(error, ExceptionGroup) else [error]
    assert all(type(e) in (WorkerDied, WorkerRaised) for e in errors), errors
    return {(type(e), e.worker) for e in errors}  # type: ignore[union-attr]


# ── the vector environments under test, which are kept from one sequence to the next ────────────


class Subject:
    """A vector environment with its model.

    Args:
        config: What it is.
        folder: Where its gate is.

    Attributes:
        gate: See `Puppet`.
        log: What was done with it, over all sequences.
    """

    def __init__(self, config: Config, folder: Path):
        self.config = config
        self.gate = folder / f"gate-{id(self)}"
        self.log: list[str] = []
        self.model = Model(config)
        self.envs = HybridVectorEnv(config.env_fns(str(self.gate)), **config.arguments())

    def close(self) -> None:
        self.gate.unlink(missing_ok=True)
        self.envs.close()


class Stable:
    """Keeps a few vector environments that are still healthy, since making one takes time."""

    def __init__(self, folder: Path, most: int):
        self._folder, self._most = folder, most
        self._kept: OrderedDict[Config, Subject] = OrderedDict()
        self.turns = 0
        self.end: BaseException | None = None
        """A hang that was ended. To repeat it would be to hang again."""

    def turn(self, configs: list[Config]) -> Config:
        """Return the next one to try: each several times, since that costs no new processes.

        To draw it would try the first ones most.
        """
        return configs[self.turns // 4 % len(configs)]

    def take(self, config: Config) -> Subject:
        return self._kept.pop(config, None) or Subject(config, self._folder)

    def put(self, subject: Subject) -> None:
        self._kept[subject.config] = subject
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)[1].close()

    def close(self) -> None:
        for subject in self._kept.values():
            subject.close()


# ── the machine ─────────────────────────────────────────────────────────────────────────────────


@dataclass
class Flight:
    """A call in flight.

    Attributes:
        kind: "step" or "reset".
        outcome: How it ends, given the workers that are killed on the way.
        held: The workers that it holds up while the gate is shut; None if that can't be known.
        killed: Workers killed on the way, before they replied.
        killed_later: Workers killed after they replied, which the next call notices.
        refused: How often another call was refused meanwhile.
    """

    kind: str
    outcome: Callable[[Model, set[int]], Outcome]
    held: set[int] | None = None
    killed: set[int] = field(default_factory=set)
    killed_later: set[int] = field(default_factory=set)
    refused: int = 0


class Machine(RuleBasedStateMachine):
    """Draws sequences of calls and faults."""

    def __init__(self, stable: Stable):
        super().__init__()
        self.stable = stable
        self.subject: Subject | None = None
        self.flight: Flight | None = None
        self.state = "new"  # idle, step, reset (those two in flight), broken, closed
        self.warned: list[str] = []
        self.kept: list[tuple[Any, Any]] = []

    def begin(self, config: Config, *, late: bool) -> None:
        """Start with a vector environment, and with a reset unless that is to come late."""
        if self.stable.end is not None:
            raise self.stable.end
        self.subject = self.stable.take(config)
        self.config, self.envs, self.model = config, self.subject.envs, self.subject.model
        known = any(row.number >= 0 for row in self.model.rows)
        self.state = "idle" if known else "new"
        self.flight, self.warned, self.kept = None, [], []
        if known or not late:
            self.set_attr([*range(config.num_envs)], 1.5)  # not as it is built
            self.reset(7, None, "sync", None)

    def teardown(self) -> None:
        if self.subject is None:
            return
        failure = sys.exc_info()[1]
        healthy = failure is None
        if failure is not None:
            if isinstance(failure, pytest.fail.Exception) and "Timeout" in str(failure):
                self.stable.end = failure
            failure.add_note("\n".join([repr(self.config), *self.subject.log[-50:]]))
        try:
            if healthy and self.flight is not None:
                healthy = False
                self.subject.gate.unlink(missing_ok=True)
                self.wait_for_flight(GENEROUS)
                healthy = True
            if healthy and self.state == "idle" and self.config.restart and self.model.dead:
                healthy = False
                self.reset(1, None, "sync", None)
                healthy = True
            if healthy:
                self.stable.turns += 1
        finally:
            if healthy and self.state in ("new", "idle") and not self.model.dead:
                self.stable.put(self.subject)
            else:
                self.subject.close()

    def note(self, what: str, *details: Any) -> None:
        """Write down what is done, for the failure's message."""
        assert self.subject is not None
        self.subject.log.append(f"{self.state}: {what} {', '.join(map(repr, details))}")

    # ── calling and comparing ───────────────────────────────────────────────────────────────────

    def watched(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function and keep its warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return function(*args, **kwargs)
            finally:
                assert all(warning.category is RuntimeWarning for warning in caught), caught
                self.warned += [str(warning.message) for warning in caught]

    def check_warnings(self, outcome: Outcome) -> None:
        """Each fault that was contained was warned of, and nothing else."""
        warned, self.warned = self.warned, []
        assert sum("It is restarted" in message for message in warned) == outcome.restarts, warned
        assert sum("It is built anew" in message for message in warned) == outcome.errors, warned
        assert len(warned) == outcome.restarts + outcome.errors, warned

    def start(self, flight: Flight, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Begin a call; return what `function` does."""
        self.flight = flight
        try:
            self.watched(function, *args, **kwargs)
        except (WorkerDied, ExceptionGroup) as deaths:  # known before anything was sent
            assert self.model.dead
            assert not self.config.restart
            self.finish_with(deaths)
        else:
            self.state = flight.kind

    def wait_for_flight(self, timeout: float | None) -> None:
        """Wait for the call in flight, which may be in vain if there is little time."""
        assert self.flight is not None
        self.note("wait", timeout)
        wait = self.envs.step_wait if self.flight.kind == "step" else self.envs.reset_wait
        self.run(wait, timeout=timeout)

    def run(self, function: Callable[..., Any], *args: Any, timeout: float | None) -> None:
        """Call what waits for the flight, and compare how it ends."""
        assert self.flight is not None
        assert self.subject is not None
        flight = self.flight
        try:
            result = self.watched(function, *args, timeout=timeout)
        except CallTimeout:
            if self.config.in_process or timeout is None or timeout >= GENEROUS:
                raise  # nothing takes that long
            self.state = flight.kind
        except (WorkerDied, WorkerRaised, ExceptionGroup) as error:
            self.finish_with(error)
        else:
            shut = self.subject.gate.exists()
            held = flight.held if flight.kind == "reset" else (flight.held or set()) - flight.killed
            assert not (shut and held), "a worker did not hold"
            self.finish(result)

    def finish_with(self, error: Exception) -> None:
        """The call in flight raised this: it is broken."""
        assert self.flight is not None
        flight, self.flight = self.flight, None
        outcome = flight.outcome(self.model, flight.killed)
        raised = failures_of(error)
        assert raised <= outcome.failures, f"{raised} of {outcome.failures}"
        self.state = "broken"

    def finish(self, result: Any) -> None:
        """The call in flight returned this."""
        assert self.flight is not None
        flight, self.flight = self.flight, None
        outcome = flight.outcome(self.model, flight.killed)
        assert not outcome.failures, f"expected {outcome.failures}, got a result"
        self.state = "idle"
        self.model.dead |= flight.killed_later
        self.check_warnings(outcome)
        count = self.config.num_envs
        shown = outcome.shown
        expected: dict[str, Any] = {
            "observation": np.stack([row.observation for row in self.model.rows]),
            "info": batched({i: s.info for i, s in shown.items()}, count),
        }
        autoreset = np.zeros(count, np.bool_)
        if flight.kind == "step":
            rows = [shown[i] for i in range(count)]
            expected["reward"] = np.array([s.reward for s in rows])
            expected["terminated"] = np.array([s.terminated for s in rows])
            expected["truncated"] = np.array([s.truncated for s in rows])
            autoreset = np.array([s.autoreset for s in rows])
            ended = expected["terminated"] | expected["truncated"]
            if self.config.mode is AutoresetMode.SAME_STEP and ended.any():
                finals = [s.final_observation for s in rows]
                zero = np.zeros(4, np.float32)
                expected["info"]["final_obs"] = np.stack([zero if f is None else f for f in finals])
                expected["info"]["_final_obs"] = ended
        actual = result._asdict()
        check_same(actual, expected, flight.kind)
        check_same(self.envs.autoreset_mask, autoreset, "autoreset_mask")
        self.check_statistics()
        for before, then in self.kept:  # what was returned before is as it was
            check_same(before, then, "an earlier result")
        if not self.config.copy:
            assert not any(v.flags.writeable for k, v in actual.items() if k != "info")
        self.kept = [*self.kept, (actual, copy.deepcopy(actual))][-3 if self.config.copy else -1 :]

    def actions(self, random: int, codes: dict[int, Code]) -> np.ndarray:
        count = self.config.num_envs
        actions = np.zeros((count, 2), np.float32)
        actions[:, 0] = np.random.default_rng(random).uniform(-1, 1, count)
        for row, code in codes.items():
            actions[row % count, 1] = code
        return actions

    def step(self, actions: np.ndarray, how: str) -> None:
        """Step, at once or in two calls, if that is possible now."""
        if self.refuses("step"):
            return
        flight = Flight("step", lambda model, killed: model.step(actions, killed))
        self.note(f"step {how}", actions.tolist())
        sent = actions.copy()
        if how == "sync":
            self.flight = flight
            self.run(self.envs.step, sent, timeout=GENEROUS)
            return
        if how == "held":
            self.hold(flight)
        self.start(flight, self.envs.step_async, sent)
        sent.fill(9)  # it was copied

    def step_slots(self, actions: np.ndarray, slots: list[list[int]], way: str) -> None:
        """Step slot by slot, if that is possible now; no slots are no call."""
        if not slots or self.refuses("step"):
            return
        self.note(f"slots {way}", slots, actions.tolist())
        told = [{row: actions[row] for row in slot} for slot in slots]
        try:
            batches = self.watched(WAYS[way], self.envs, slots, actions)
        except (WorkerDied, WorkerRaised, ExceptionGroup) as error:
            raised = failures_of(error)
            outcome = self.model.step_slots(told)
            assert raised <= outcome.failures, f"{raised} of {outcome.failures}"
            self.state = "broken"
            return
        outcome = self.model.step_slots(told)
        assert not outcome.failures, f"expected {outcome.failures}, got a result"
        self.check_warnings(outcome)
        rows = [row for batch in batches for row in batch.env_id.tolist()]
        assert sorted(rows) == sorted(outcome.shown), "each row comes once"
        autoreset = self.envs.autoreset_mask
        for batch in batches:
            shown = [outcome.shown[row] for row in batch.env_id.tolist()]
            where = f"slot {batch.env_id.tolist()}"
            for name in ("observation", "reward", "terminated", "truncated"):
                expected = np.array([getattr(each, name) for each in shown])
                check_same(getattr(batch, name), expected, f"{where}, {name}")
            infos = {at: each.info for at, each in enumerate(shown)}
            check_same(batch.info, batched(infos, len(shown)), f"{where}, info")
            for at, each in enumerate(shown):
                assert autoreset[batch.env_id[at]] == each.autoreset
                if each.final_observation is not None:
                    check_same(batch.final_observation[at], each.final_observation, where)
        self.check_statistics()
        for before, then in self.kept:
            check_same(before, then, "an earlier result")

    def hold(self, flight: Flight) -> None:
        """Shut the gate."""
        assert self.subject is not None
        flight.held = self.model.held(lambda model: flight.outcome(model, set()))
        self.subject.gate.touch()

    def reset(self, seed: Any, options: Any, how: str, some: list[int] | None) -> None:
        """Reset all environments, or some, in one of the ways there are."""
        if self.refuses("reset"):
            return
        count = self.config.num_envs
        rows = [*range(count)] if some is None else [row for row in some if row < count]
        masked = how == "mask" and self.config.reset_masks and bool(rows)
        named = rows if some is not None and not masked else [*range(count)]
        if isinstance(seed, list | np.ndarray):
            seed = seed[: len(named)]
        unseeded = any(self.model.rows[row].seed is None for row in rows)
        if unseeded and not isinstance(seed, int | np.integer | np.ndarray):
            seed = 3
        if isinstance(options, list):
            options = None if masked else options[: len(named)]
        seeds = normalized(seed, named)
        told = options if isinstance(options, list) else [options] * len(named)
        if masked:
            rows = sorted(rows)
            seeds, told = [seeds[row] for row in rows], [told[row] for row in rows]
        if self.config.reset_masks and not masked and how == "mask":
            how = "sync"
        self.note(f"reset {how}", rows, seeds, told)
        flight = Flight("reset", lambda model, killed: model.reset(rows, seeds, told, killed))
        if some is not None and not masked:
            self.flight = flight
            self.run(
                lambda timeout: self.envs.reset_envs(
                    rows, seed=seed, options=options, timeout=timeout
                ),
                timeout=GENEROUS,
            )
            return
        if masked:
            mask = np.isin(np.arange(count), rows)
            options = {**(options or {}), "reset_mask": mask}
        if how in ("async", "held"):
            if how == "held":
                self.hold(flight)
            self.start(flight, lambda: self.envs.reset_async(seed=seed, options=options))
            return
        self.flight = flight
        self.run(
            lambda timeout: self.envs.reset(seed=seed, options=options, timeout=timeout),
            timeout=GENEROUS,
        )

    # ── what is legal ───────────────────────────────────────────────────────────────────────────

    def refusal(self, call: str) -> type[Exception] | None:
        """Return what a call raises in this state, if it is not legal; as the lifecycle says."""
        if self.state == "closed":
            return ClosedError
        if self.state == "broken":
            return BrokenError
        if self.state in ("step", "reset"):
            return None if call == f"{self.state}_wait" else CallPending
        if call.endswith("_wait"):
            return RuntimeError
        if call == "step" and (self.state == "new" or self.model.unready):
            return ResetNeeded
        return None

    def refuses(self, call: str) -> bool:
        """Whether a call is illegal now; if so, everything illegal is tried and refused.

        Then the way is made free, sooner or later, for sequences to get somewhere.
        """
        if self.refusal(call) is None:
            return False
        self.try_illegal_calls()
        if self.state == "idle" and not self.model.dead:
            self.reset(None, None, "sync", self.model.unready)
        elif self.flight is not None and self.flight.held is None:
            self.flight.refused += 1
            if self.flight.refused > 1:
                self.wait(GENEROUS)
        elif self.state in ("broken", "closed") and self.subject is not None:
            self.subject.close()
            self.state = "closed"
            self.try_illegal_calls()
            self.begin(self.config, late=False)
        return True

    def try_illegal_calls(self) -> None:
        actions = self.actions(0, {})
        calls: dict[str, list[Callable[[], Any]]] = {
            "step": [lambda: self.envs.step(actions), lambda: self.envs.step_async(actions)],
            "reset": [
                self.envs.reset,
                lambda: self.envs.reset_async(seed=1),
                lambda: self.envs.reset_envs([0], seed=1),
            ],
            "call": [
                lambda: self.envs.call("tell"),
                lambda: self.envs.get_attr("weight"),
                lambda: self.envs.set_attr("weight", 5.0),
                self.envs.render,
                lambda: self.envs.autoreset_mask,
            ],
            "step_wait": [lambda: self.envs.step_wait(0)],
            "reset_wait": [lambda: self.envs.reset_wait(0)],
        }
        for name, functions in calls.items():
            if (refusal := self.refusal(name)) is None:
                continue
            for function in functions:
                with pytest.raises(refusal) as caught:
                    function()
                assert type(caught.value) is refusal, f"{name} in {self.state}"

    def check_statistics(self) -> None:
        model, numbers = self.model, self.envs.statistics()
        assert numbers.steps == model.steps
        assert numbers.env_steps == sum(model.env_steps)
        assert numbers.env_errors == sum(model.env_errors)
        assert numbers.worker_restarts == tuple(model.restarts)
        for seconds in (numbers.seconds_in_envs, numbers.seconds_idle, numbers.seconds_waiting):
            assert len(seconds) == self.config.num_workers
            assert min(seconds) >= 0

    # ── rules without faults ────────────────────────────────────────────────────────────────────

    @rule(count=st.integers(1, 8), random=RANDOM, codes=CODES)
    def steps(self, count: int, random: int, codes: dict[int, Code]) -> None:
        for number in range(count):
            self.step(self.actions(random + number, codes if number == 0 else {}), "sync")
            if self.state != "idle":
                return

    @rule(random=RANDOM, codes=CODES, slots=SLOTS, way=st.sampled_from([*WAYS]))
    def steps_of_slots(
        self, random: int, codes: dict[int, Code], slots: list[list[int]], way: str
    ) -> None:
        """Step slots, each row once at most, and some not at all."""
        self.step_slots(self.actions(random, codes), self.within(slots), way)

    def within(self, slots: list[list[int]]) -> list[list[int]]:
        """Return the rows of slots that there are, without slots that are empty then."""
        count = self.config.num_envs
        return [rows for slot in slots if (rows := [row for row in slot if row < count])]

    @rule(random=RANDOM, slots=SLOTS, row=ROWS, way=st.sampled_from([*WAYS]), rare=RARE)
    def slots_raising(
        self, random: int, slots: list[list[int]], row: int, way: str, rare: int
    ) -> None:
        if self.config.truncate or rare == 3:
            self.step_slots(self.actions(random, {row: Code.RAISE}), self.within(slots), way)

    @rule(random=RANDOM, codes=CODES)
    def begin_step(self, random: int, codes: dict[int, Code]) -> None:
        self.step(self.actions(random, codes), "async")

    @rule(seed=SEEDS, options=OPTIONS, how=st.sampled_from(["sync", "async"]))
    def reset_all(self, seed: Any, options: Any, how: str) -> None:
        self.reset(seed, options, how, None)

    @rule(
        seed=SEEDS, options=OPTIONS, how=st.sampled_from(["sync", "mask"]), some=SOME, codes=CODES
    )
    def reset_some(
        self, seed: Any, options: Any, how: str, some: list[int], codes: dict[int, Code]
    ) -> None:
        """Reset some, while others have just come to an end."""
        if codes:
            self.step(self.actions(0, codes), "sync")
        self.reset(seed, options, how, some)

    @rule(timeout=st.sampled_from([0, 0.001, 0.02, GENEROUS]))
    def wait_again(self, timeout: float) -> None:
        self.try_illegal_calls()
        if self.flight is not None:
            self.wait(timeout)

    def wait(self, timeout: float) -> None:
        if timeout == GENEROUS and self.subject is not None:
            self.subject.gate.unlink(missing_ok=True)
        self.wait_for_flight(timeout)

    @rule(some=SOME, name=st.sampled_from(["tell", "render", "fail", "unpicklable", "weight"]))
    def call(self, some: list[int], name: str) -> None:
        self.call_some(name, some)

    @rule(some=SOME, weight=st.sampled_from([0.5, 2.0, -1.0]))
    def set_weight(self, some: list[int], weight: float) -> None:
        if weight < 0:
            self.set_wrong(some)
        else:
            self.set_attr([row for row in some if row < self.config.num_envs], weight)

    @rule(which=st.integers(0, 99))
    def ask_for_nonsense(self, which: int) -> None:
        """A call with wrong arguments is refused, and nothing has happened."""
        if self.refuses("call"):
            return
        envs, count = self.envs, self.config.num_envs
        actions = self.actions(0, {})
        indices: list[Any] = [[count], [-1], [0, 0], [0.5], np.ones(count + 1, np.bool_), [[0]]]
        wrong_seeds: list[Any] = [-1, 1.0, True, "1", np.ones(count), [1] * (count + 1)]
        calls: list[Callable[[], Any]] = [
            *(partial(envs.reset_envs, i) for i in indices),
            *(partial(envs.call, "tell", indices=i) for i in indices),
            *(partial(envs.set_attr, "weight", 3.0, indices=i) for i in indices),
            *(partial(envs.reset, seed=seed) for seed in wrong_seeds),
            lambda: envs.reset(options=[{}] * (count + 1)),
            lambda: envs.reset(options=3),  # type: ignore[arg-type]
            lambda: envs.reset(timeout=np.nan),
            lambda: envs.reset_envs([0], seed=[1, 2]),
            lambda: envs.set_attr("weight", [3.0] * (count + 1)),
            lambda: envs.call("step", actions[0]),
            lambda: envs.step(actions, timeout="1"),  # type: ignore[arg-type]
        ]
        if not self.config.reset_masks:
            mask = {"reset_mask": np.ones(count, np.bool_)}
            calls += [lambda: envs.reset(options=mask)]
        if self.refusal("step") is None:
            wrong: list[Any] = [actions[:-1], actions[None], actions.tolist(), actions + 0j, None]
            calls += [partial(envs.step, a) for a in wrong]
        with pytest.raises(ValueError):  # noqa: PT011  # the messages have tests of their own
            calls[which % len(calls)]()

    @rule(when=st.integers(0, 19))
    def close(self, when: int) -> None:
        """Close now and then, in whatever state."""
        if when == 7 and self.subject is not None:
            self.subject.close()
            self.state, self.flight = "closed", None
            self.envs.close()
            assert self.envs.statistics().steps >= self.model.steps
            self.refuses("call")

    # ── rules with faults ───────────────────────────────────────────────────────────────────────

    @rule(random=RANDOM, codes=CODES, row=ROWS, rare=RARE)
    def step_raising(self, random: int, codes: dict[int, Code], row: int, rare: int) -> None:
        if self.config.truncate or rare == 3:
            self.step(self.actions(random, {**codes, row: Code.RAISE}), "sync")

    @rule(row=ROWS, seed=SEEDS, rare=RARE, twice=RARE)
    def reset_raising(self, row: int, seed: Any, rare: int, twice: int) -> None:
        if self.config.truncate or rare == 3:
            self.reset_told(row, seed, {"raise": "always" if twice == 3 else "once"}, "sync")

    def reset_told(self, row: int, seed: Any, told: dict[str, Any], how: str) -> None:
        count = self.config.num_envs
        options: list[Any] = [None] * count
        options[row % count] = told
        self.reset(seed, options, how, None)

    def set_attr(self, rows: list[int], weight: float) -> None:
        if self.refuses("call"):
            return
        rows = [*range(self.config.num_envs)] if self.model.dead else rows
        self.note("set_attr", rows, weight)
        try:
            self.watched(self.envs.set_attr, "weight", weight, indices=rows)
        except (WorkerDied, ExceptionGroup) as deaths:
            if not self.found_dead(deaths, []):
                return
            self.watched(self.envs.set_attr, "weight", weight, indices=rows)
        before = sum(self.model.restarts)
        self.model.set_attr("weight", dict.fromkeys(rows, weight))
        self.check_warnings(Outcome(restarts=sum(self.model.restarts) - before))

    def set_wrong(self, some: list[int]) -> None:
        """A value that an environment refuses."""
        if self.refuses("call") or self.model.dead:
            return
        rows = [row for row in some if row < self.config.num_envs]
        if not rows:
            return
        self.note("set_attr", rows, -1.0)
        firsts = [next((row for row in rows if row in r), None) for r in self.model.ranges]
        with pytest.raises((WorkerRaised, ExceptionGroup)) as caught:
            self.envs.set_attr("weight", -1.0, indices=rows)
        failed = {(WorkerRaised, w) for w, row in enumerate(firsts) if row is not None}
        assert failures_of(caught.value) == failed
        for first in firsts:
            if first is not None:
                self.model.settle(first)

    def found_dead(self, error: Exception, rows: list[int]) -> bool:
        """A call noticed a death of before, which is that call's failure; whether to go on.

        The other workers have read an attribute of those of `rows` that they hold.
        """
        died = {worker for _, worker in failures_of(error)}
        assert died <= self.model.dead, f"{died} of {self.model.dead}"
        gone = {row for worker in died for row in self.model.ranges[worker]}
        outcome = self.model.call("weight", indices=[row for row in rows if row not in gone])
        if self.model.broken:
            self.state = "broken"
            return False
        self.check_warnings(outcome)
        return True

    def call_some(self, name: str, some: list[int]) -> None:
        if self.refuses("call"):
            return
        count = self.config.num_envs
        rows = [row for row in some if row < count]
        if self.model.dead:  # it is noticed by then, whichever environments are asked
            rows, name = [*range(count)], "weight"
        args = (3,) if name == "tell" else ()
        self.note(f"call {name}", rows, self.model.dead)
        raised: set[Any] = set()
        results: tuple[Any, ...] = ()
        try:
            results = self.watched(self.envs.call, name, *args, indices=rows)
        except (WorkerDied, WorkerRaised, ExceptionGroup) as error:
            if self.model.dead:
                self.found_dead(error, rows)
                return
            raised = failures_of(error)
        outcome = self.model.call(name, *args, indices=rows)
        assert raised == outcome.failures
        if self.model.broken:
            self.state = "broken"
            return
        if not raised:
            assert len(results) == len(rows)
            for row, result in zip(rows, results, strict=True):
                same = np.array_equal(result, outcome.shown[row])
                assert same or result == outcome.shown[row], (result, outcome.shown[row])
        self.check_warnings(outcome)


def normalized(seed: Any, rows: list[int]) -> list[int | None]:
    """Return one seed for each row."""
    if seed is None:
        return [None] * len(rows)
    if isinstance(seed, int | np.integer):
        return [int(seed) + row for row in rows]
    return [None if one is None else int(one) for one in seed]
