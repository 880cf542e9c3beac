"""What a sweep is asked to measure. Pure: nothing here builds or imports an environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["SweepSettings"]


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Say which environments, splits and durations a sweep measures.

    Every number of workers is measured with every number of environments per worker, and each of
    these splits with every number of threads where the environments of a worker are stepped at
    once. A case is stepped until both minimums are met, and stopped as soon as either maximum is
    reached.

    Raises:
        ValueError: If a list is empty, holds something else than distinct whole numbers of at
            least 1, or a minimum exceeds its maximum.

    Example:
        >>> settings = SweepSettings(env="cart_pole", num_workers=(2,), num_envs_per_worker=(1, 8))
        >>> settings.splits
        ((2, 1, 1), (2, 8, 1))
    """

    env: str | tuple[str, ...] = field(
        metadata={"help": "environments: short names (cart_pole) or registered Gymnasium ids"}
    )
    num_workers: tuple[int, ...] = field(
        default=(1, 2), metadata={"help": "numbers of worker processes"}
    )
    num_envs_per_worker: tuple[int, ...] = field(
        default=(1, 5, 25, 125), metadata={"help": "numbers of environments in each worker"}
    )
    num_threads_per_worker: tuple[int, ...] = field(
        default=(1,),
        metadata={
            "help": "numbers of native threads in each worker, for environments stepped at once"
        },
    )
    min_time: float = field(
        default=1.0, metadata={"help": "seconds for which each case is stepped at least"}
    )
    max_time: float = field(
        default=10.0, metadata={"help": "seconds after which a case is stopped in any event"}
    )
    min_iterations: int = field(
        default=20, metadata={"help": "calls of step() that each case makes at least"}
    )
    max_iterations: int | None = field(
        default=None, metadata={"help": "calls of step() after which a case is stopped"}
    )

    def __post_init__(self) -> None:
        envs = (self.env,) if isinstance(self.env, str) else tuple(self.env)
        if not envs or not all(isinstance(name, str) and name for name in envs):
            raise ValueError(f"env must name at least one environment; got {self.env!r}.")
        _check_distinct("env", envs)
        _check_counts("num_workers", self.num_workers)
        _check_counts("num_envs_per_worker", self.num_envs_per_worker)
        _check_counts("num_threads_per_worker", self.num_threads_per_worker)
        for name in ("min_time", "max_time"):
            seconds = getattr(self, name)
            if not _is_number(seconds) or not math.isfinite(seconds) or seconds < 0:
                raise ValueError(f"{name} must be a number of seconds, 0 or more; got {seconds!r}.")
        if self.max_time == 0:
            raise ValueError("max_time must be more than 0 seconds; nothing would be stepped.")
        if self.min_time > self.max_time:
            raise ValueError(
                f"min_time must not exceed max_time; got {self.min_time:g} and {self.max_time:g}."
            )
        for name in ("min_iterations", "max_iterations"):
            count = getattr(self, name)
            if count is not None and not _is_count(count):
                raise ValueError(f"{name} must be a whole number of at least 1; got {count!r}.")
        if self.max_iterations is not None and self.min_iterations > self.max_iterations:
            raise ValueError(
                f"min_iterations must not exceed max_iterations; got {self.min_iterations} and "
                f"{self.max_iterations}."
            )

    @property
    def envs(self) -> tuple[str, ...]:
        """The environments' names, always as a tuple."""
        return (self.env,) if isinstance(self.env, str) else tuple(self.env)

    @property
    def splits(self) -> tuple[tuple[int, int, int], ...]:
        """Every (workers, environments per worker, threads per worker), in the order they run.

        One environment in one worker is stepped bare, by one thread.
        """
        splits = (
            (workers, per_worker, 1 if workers == per_worker == 1 else threads)
            for workers in self.num_workers
            for per_worker in self.num_envs_per_worker
            for threads in self.num_threads_per_worker
        )
        return tuple(dict.fromkeys(splits))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for JSON."""
        return {**asdict(self), "env": list(self.envs)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_counts(name: str, counts: Sequence[object]) -> None:
    if isinstance(counts, str) or not isinstance(counts, Sequence) or not counts:
        raise ValueError(f"{name} must be a sequence of at least one number; got {counts!r}.")
    for count in counts:
        if not _is_count(count):
            raise ValueError(f"{name} must hold whole numbers of at least 1; got {count!r}.")
    _check_distinct(name, counts)


def _check_distinct(name: str, values: Sequence[object]) -> None:
    if len(set(values)) != len(values):
        raise ValueError(f"{name} must name each value once; got {tuple(values)!r}.")
