"""Trying a few splits briefly, to find the one that is fastest here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from superdex._limits import usable_cpus

if TYPE_CHECKING:
    from superdex.vector._hybrid import HybridVectorEnv

__all__ = ["SplitChoice", "SplitTrial", "candidate_splits", "choose_split"]

_WARM_UP_STEPS = 3
_ROUNDS = 5

_WORTH_IT = 1.05
"""A split with more processes must be that much faster: they cost memory and start-up time."""


@dataclass(frozen=True)
class SplitTrial:
    """How fast a split was.

    Attributes:
        num_workers: Worker processes.
        num_threads_per_worker: Native threads in each.
        env_steps_per_second: Steps of single environments per second, the median of some rounds.
        seconds_to_start: To start the workers, build all environments and reset them.
    """

    num_workers: int
    num_threads_per_worker: int
    env_steps_per_second: float
    seconds_to_start: float


@dataclass(frozen=True)
class SplitChoice:
    """Which split was taken, and why; as text it tells both.

    Attributes:
        trials: All splits that were tried, in that order.
        best: The one that was taken.
    """

    trials: tuple[SplitTrial, ...]
    best: SplitTrial

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `HybridVectorEnv` that make it."""
        return {
            "num_workers": self.best.num_workers,
            "num_threads_per_worker": self.best.num_threads_per_worker,
        }

    def __str__(self) -> str:
        lines = []
        for trial in self.trials:
            share = trial.env_steps_per_second / self.best.env_steps_per_second
            lines.append(
                f"{trial.num_workers:>4} workers x {trial.num_threads_per_worker} threads: "
                f"{trial.env_steps_per_second:>12,.0f} env-steps/s ({share:4.0%} of the choice), "
                f"ready in {trial.seconds_to_start:.1f} s"
            )
        fastest = max(self.trials, key=lambda trial: trial.env_steps_per_second)
        why = "the fastest"
        if fastest is not self.best:
            why = f"less than {_WORTH_IT - 1:.0%} slower than the fastest, with fewer processes"
        made = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return "\n".join([*lines, f"chosen: {made}, {why}"])


def candidate_splits(num_envs: int, cpus: int, *, at_once: bool) -> list[tuple[int, int]]:
    """Return (num_workers, num_threads_per_worker) pairs that are worth a try, few workers first.

    Args:
        num_envs: All environments.
        cpus: CPUs that may be used.
        at_once: Whether environments are stepped at once, by native threads.
    """
    splits = [(1, 1)]
    if at_once and cpus > 1:
        splits += [(1, cpus)]
    workers = {cpus // 2, cpus, 2 * cpus} if not at_once else {cpus // 2, cpus}
    splits += [(count, 1) for count in sorted(workers) if 1 < count <= num_envs]
    if at_once:
        splits += [(n, cpus // n) for n in (2, 4) if n < min(cpus, num_envs + 1) and cpus // n > 1]
    return list(dict.fromkeys(splits))


def choose_split(
    make: Callable[..., HybridVectorEnv], num_envs: int, seconds: float, seed: int | None
) -> SplitChoice:
    """Return the split that is fastest with random actions.

    Args:
        make: Makes a vector environment of a split.
        num_envs: All environments.
        seconds: For how long each split is stepped.
        seed: Of its reset.
    """
    first, at_once = _try(make, (1, 1), seconds, seed)
    others = candidate_splits(num_envs, usable_cpus(), at_once=at_once)[1:]
    trials = [first, *(_try(make, split, seconds, seed)[0] for split in others)]
    return SplitChoice(tuple(trials), best_trial(trials))


def best_trial(trials: Sequence[SplitTrial]) -> SplitTrial:
    """Return the first that is about as fast as the fastest; they come in order of their cost."""
    fastest = max(trial.env_steps_per_second for trial in trials)
    return next(t for t in trials if t.env_steps_per_second * _WORTH_IT >= fastest)


def _try(
    make: Callable[..., HybridVectorEnv], split: tuple[int, int], seconds: float, seed: int | None
) -> tuple[SplitTrial, bool]:
    """Return how fast a split is, and whether its environments are stepped at once."""
    started = perf_counter()
    workers, threads = split
    with make(num_workers=workers, num_threads_per_worker=threads) as envs:
        envs.action_space.seed(seed)
        actions: Any = envs.action_space.sample()
        envs.reset(seed=seed)
        ready = perf_counter() - started
        for _ in range(_WARM_UP_STEPS):
            envs.step(actions)
        rates = []
        for _ in range(_ROUNDS):
            steps, began = 0, perf_counter()
            while (elapsed := perf_counter() - began) < seconds / _ROUNDS or steps == 0:
                envs.step(actions)
                steps += 1
            rates.append(steps * envs.num_envs / elapsed)
        at_once = all(envs.statistics().steps_at_once)
    return SplitTrial(workers, threads, median(rates), ready), at_once
