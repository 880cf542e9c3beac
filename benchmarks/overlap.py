"""Measure what slots in flight and partial batches save.

    python benchmarks/overlap.py
    python benchmarks/overlap.py --rounds 3 --seconds 1 --json overlap.json

Two questions, each answered by the median over rounds of a ratio that is taken within a round:

*Slots.* A policy that takes as long as a step, on another device: waiting stands for it. A loop
that steps all environments and then waits is compared with one that keeps two slots in flight and
waits for the one while the other is stepped. Each slot has half of every worker's environments, and
its policy waits half as long. Half the time is the best that can be, where half of the environments
take half as long to step: Gymnasium's half-cheetahs do, one by one; ours, stepped at once, take
a little more.

*Partial batches.* Eight workers with an environment each, which takes 2 ms a step, as a simulator
of its own would. One of them takes 500 ms for each of its resets, every 50 steps. The throughput of
the seven others is compared with a run in which it resets as quickly as they do; sent and received
as they are ready, and, for comparison, stepped all together.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from rich.console import Console
from rich.table import Table

from superdex.bench import describe_commit, describe_machine, describe_versions
from superdex.envs import HalfCheetahEnv
from superdex.vector import HybridVectorEnv

_WARM_UP_STEPS = 100
_STEP_SECONDS = 0.002
_SLOW_RESET_SECONDS = 0.5
_EPISODE_STEPS = 50
_WORKERS = 8
_CHEETAHS: dict[str, Callable[[], gym.Env[Any, Any]]] = {
    "Gymnasium's half-cheetahs, one by one": partial(
        gym.make, "HalfCheetah-v5", disable_env_checker=True
    ),
    "our half-cheetahs, at once": HalfCheetahEnv,
}


class Simulator(gym.Env[np.ndarray, np.ndarray]):
    """Waits in every step, and in resets if told so.

    Args:
        reset_seconds: How long each reset but the first one takes.
    """

    def __init__(self, reset_seconds: float = 0.0) -> None:
        self.observation_space = Box(-1, 1, (4,), np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self._reset_seconds = reset_seconds
        self._observation = np.zeros(4, np.float32)
        self._resets = 0
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        time.sleep(self._reset_seconds if self._resets else 0.0)
        self._resets += 1
        self._steps = 0
        return self._observation, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make a step."""
        time.sleep(_STEP_SECONDS)
        self._steps += 1
        return self._observation, 0.0, False, self._steps >= _EPISODE_STEPS, {}


def no_actions(envs: HybridVectorEnv, count: int) -> np.ndarray:
    """Return actions of zeros."""
    return np.zeros((count, *envs.single_action_space.shape), np.float32)


# ── slots ───────────────────────────────────────────────────────────────────────────────────────


def in_turn(envs: HybridVectorEnv, think: float, seconds: float) -> float:
    """Step all, then wait as the policy; return environment steps per second."""
    actions = no_actions(envs, envs.num_envs)
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        envs.step(actions)
        time.sleep(think)
        steps += envs.num_envs
    return steps / elapsed


def in_two_slots(envs: HybridVectorEnv, think: float, seconds: float) -> float:
    """Wait as the policy for one half while the other is stepped; as `in_turn`."""
    slots = envs.slot_partitions(2, across_workers=True)
    actions = [no_actions(envs, len(slot)) for slot in slots]
    tickets = [envs.submit_slots(slot, a) for slot, a in zip(slots, actions, strict=True)]
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for number, slot in enumerate(slots):
            envs.wait_slots(tickets[number])
            time.sleep(think / 2)
            tickets[number] = envs.submit_slots(slot, actions[number])
            steps += len(slot)
    for ticket in tickets:
        envs.wait_slots(ticket)
    return steps / elapsed


def step_seconds(envs: HybridVectorEnv) -> float:
    """Return how long a step takes, the median of some."""
    actions = no_actions(envs, envs.num_envs)
    times = []
    for _ in range(_WARM_UP_STEPS):
        started = time.perf_counter()
        envs.step(actions)
        times.append(time.perf_counter() - started)
    return median(times)


def measure_slots(
    env_fn: Callable[[], gym.Env[Any, Any]],
    num_envs: int,
    num_workers: int,
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    """Return, per round, the throughput with and without slots, and the share of time."""
    ratios: list[float] = []
    plain: list[float] = []
    piped: list[float] = []
    thinking: list[float] = []
    with HybridVectorEnv([env_fn] * num_envs, num_workers=num_workers) as envs:
        envs.reset(seed=0)
        step_seconds(envs)
        for number in range(rounds):
            think = step_seconds(envs)
            turns: list[tuple[Callable[..., float], list[float]]] = [
                (in_turn, plain),
                (in_two_slots, piped),
            ]
            for run, rates in turns if number % 2 else reversed(turns):
                rates.append(run(envs, think, seconds))
            ratios.append(plain[-1] / piped[-1])
            thinking.append(think)
    return {
        "num_envs": num_envs,
        "num_workers": num_workers,
        "policy_seconds": thinking,
        "env_steps_per_second": {"in turn": plain, "two slots": piped},
        "share_of_time": ratios,
    }


# ── partial batches ─────────────────────────────────────────────────────────────────────────────


def received(envs: HybridVectorEnv, seconds: float) -> float:
    """Send and receive; return the steps per second of all environments but the first."""
    actions = no_actions(envs, envs.num_envs)
    envs.send(actions, range(envs.num_envs))
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        batch = envs.recv()
        steps += int(np.count_nonzero(batch.env_id))
        envs.send(actions[: len(batch.env_id)], batch.env_id)
    envs.recv(len(envs.in_flight))
    return steps / elapsed


def stepped(envs: HybridVectorEnv, seconds: float) -> float:
    """Step all together; as `received`."""
    actions = no_actions(envs, envs.num_envs)
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        envs.step(actions)
        steps += envs.num_envs - 1
    return steps / elapsed


def measure_partial(rounds: int, seconds: float) -> dict[str, Any]:
    """Return, per round, the throughput of the others with and without a slow one, and its share.

    All get the same rounds; the vector with the slow one and that without take turns.
    """
    others = [Simulator] * (_WORKERS - 1)
    slow = partial(Simulator, _SLOW_RESET_SECONDS)
    result: dict[str, Any] = {}
    with (
        HybridVectorEnv([Simulator, *others], num_workers=_WORKERS) as without,
        HybridVectorEnv([slow, *others], num_workers=_WORKERS) as with_slow,
    ):
        for envs in (without, with_slow):
            envs.reset(seed=0)
            received(envs, min(seconds, 1.0))
        for name, run in (("send and recv", received), ("step", stepped)):
            rates: dict[str, list[float]] = {"without": [], "with": []}
            for number in range(rounds):
                pair = [("without", without), ("with", with_slow)]
                for key, envs in pair if number % 2 else reversed(pair):
                    rates[key].append(run(envs, seconds))
            kept = [a / b for a, b in zip(rates["with"], rates["without"], strict=True)]
            result[name] = {"steps_per_second": rates, "kept": kept}
    return result


# ── the report ──────────────────────────────────────────────────────────────────────────────────


def show(console: Console, slots: dict[str, Any], partial_batches: dict[str, Any]) -> None:
    """Print both answers as tables."""
    table = Table(title="A policy that waits as long as a step takes, in env-steps/s")
    for heading in ("environments", "workers", "step, then policy", "two slots", "share of time"):
        table.add_column(heading, justify="left" if heading == "environments" else "right")
    for name, each in slots.items():
        rates = each["env_steps_per_second"]
        table.add_row(
            f"{each['num_envs']} of {name}",
            f"{each['num_workers']}",
            f"{median(rates['in turn']):,.0f}",
            f"{median(rates['two slots']):,.0f}",
            f"{median(each['share_of_time']):.2f}",
        )
    console.print(table)
    table = Table(title=f"{_WORKERS} environments, one of which resets in 500 ms")
    for heading in ("calls", "steps/s of others without", "with", "kept"):
        table.add_column(heading, justify="left" if heading == "calls" else "right")
    for name, each in partial_batches.items():
        rates = each["steps_per_second"]
        table.add_row(
            name,
            f"{median(rates['without']):,.0f}",
            f"{median(rates['with']):,.0f}",
            f"{median(each['kept']):.0%}",
        )
    console.print(table)


def main() -> None:
    """Measure, print tables, and write a file if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=256, help="cheetahs (default: 256)")
    parser.add_argument("--num_workers", type=int, default=2, help="their workers (default: 2)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each (default: 7)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn (default: 2)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    size = arguments.num_envs, arguments.num_workers
    slots = {
        name: measure_slots(env_fn, *size, arguments.rounds, arguments.seconds)
        for name, env_fn in _CHEETAHS.items()
    }
    partial_batches = measure_partial(arguments.rounds, arguments.seconds)
    show(Console(), slots, partial_batches)
    if arguments.json is not None:
        report = {
            "machine": describe_machine(),
            "versions": describe_versions(),
            "commit": describe_commit(),
            "slots": slots,
            "partial_batches": partial_batches,
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
