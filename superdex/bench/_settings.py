"""What a sweep is asked to measure. Pure: nothing here builds or imports an environment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from superdex._limits import usable_cpus

__all__ = ["SweepSettings"]

_USUAL_WORKERS = (1, 2)
_USUAL_PER_WORKER = (1, 5, 25, 125)


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Say which environments, splits and durations a sweep measures.

    Every number of workers is measured with every number of environments per worker, or with
    `num_envs` as many that there are so many in all; and each of these splits with every number of
    threads where the environments of a worker are stepped at once. One environment is always
    measured bare, in a plain loop. A case is stepped until both minimums are met, and stopped as
    soon as either maximum is reached.

    Raises:
        ValueError: If a list is empty, holds something else than distinct whole numbers of at
            least 1, or a minimum exceeds its maximum. If both `num_envs` and `num_envs_per_worker`
            are given, or a number of workers does not divide `num_envs`.

    Example:
        >>> settings = SweepSettings(env="cart_pole", num_workers=(2,), num_envs_per_worker=(1, 8))
        >>> settings.splits
        ((1, 1, 1), (2, 1, 1), (2, 8, 1))
        >>> SweepSettings(env="cart_pole", num_envs=512, num_workers=(1, 4)).splits
        ((1, 1, 1), (1, 512, 1), (4, 128, 1))
    """

    env: str | tuple[str, ...] = field(
        metadata={"help": "environments: short names (cart_pole) or registered Gymnasium ids"}
    )
    # None, where they are left out, is replaced at once: whoever reads them gets a tuple.
    num_workers: tuple[int, ...] = field(
        default=None,  # type: ignore[arg-type]  # see above
        metadata={
            "help": "numbers of worker processes",
            "default": "1,2; with --num_envs powers of two up to the CPUs to use",
        },
    )
    num_envs_per_worker: tuple[int, ...] = field(
        default=None,  # type: ignore[arg-type]  # see above
        metadata={
            "help": "numbers of environments in each worker",
            "default": ",".join(map(str, _USUAL_PER_WORKER)),
        },
    )
    num_envs: int | None = field(
        default=None,
        metadata={
            "help": "environments in all, to compare splits of one number; instead of "
            "--num_envs_per_worker"
        },
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
        self._settle_splits()
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

    def _settle_splits(self) -> None:
        """Check what says how environments are split, and fill in what was left out."""
        total, workers, per_worker = self.num_envs, self.num_workers, self.num_envs_per_worker
        if workers is not None:
            _check_counts("num_workers", workers)
        if per_worker is not None:
            _check_counts("num_envs_per_worker", per_worker)
        if total is None:
            workers = _USUAL_WORKERS if workers is None else workers
            per_worker = _USUAL_PER_WORKER if per_worker is None else per_worker
        else:
            if not _is_count(total) or total < 2:
                raise ValueError(
                    "num_envs must be a whole number of at least 2, as one environment can't be "
                    f"split; got {total!r}."
                )
            # Settings that were settled may be given again, by dataclasses.replace.
            divided = workers and [total // count for count in workers]
            if per_worker is not None and list(per_worker) != divided:
                raise ValueError(
                    "Give num_envs or num_envs_per_worker, not both: num_envs is divided among the "
                    f"workers. Got num_envs={total} and num_envs_per_worker={tuple(per_worker)}."
                )
            workers = _usual_divisors(total) if workers is None else workers
            left_over = [count for count in workers if total % count]
            if left_over:
                fitting = [count for count in range(1, total + 1) if total % count == 0][:8]
                raise ValueError(
                    f"num_envs={total} can't be divided among {_listed(left_over)} workers evenly; "
                    f"give num_workers that divide it, such as {_listed(fitting)}."
                )
            per_worker = tuple(total // count for count in workers)
        object.__setattr__(self, "num_workers", tuple(workers))
        object.__setattr__(self, "num_envs_per_worker", tuple(per_worker))

    @property
    def envs(self) -> tuple[str, ...]:
        """The environments' names, always as a tuple."""
        return (self.env,) if isinstance(self.env, str) else tuple(self.env)

    @property
    def splits(self) -> tuple[tuple[int, int, int], ...]:
        """Every (workers, environments per worker, threads per worker), in the order they run.

        One environment in one worker is stepped bare, by one thread. It comes first where it is not
        among the splits asked for: all others are compared with it.
        """
        if self.num_envs is None:
            pairs = list(itertools.product(self.num_workers, self.num_envs_per_worker))
        else:
            pairs = list(zip(self.num_workers, self.num_envs_per_worker, strict=True))
        splits = (
            (workers, per_worker, 1 if workers == per_worker == 1 else threads)
            for workers, per_worker in pairs
            for threads in self.num_threads_per_worker
        )
        asked = tuple(dict.fromkeys(splits))
        return asked if (1, 1, 1) in asked else ((1, 1, 1), *asked)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for JSON."""
        return {**asdict(self), "env": list(self.envs)}


def _usual_divisors(total: int) -> tuple[int, ...]:
    """Return powers of two, and the CPUs to use, as far as they divide a number of environments."""
    cpus = max(2, usable_cpus())
    counts = {2**power for power in range(cpus.bit_length())} | {cpus}
    return tuple(count for count in sorted(counts) if count <= cpus and total % count == 0)


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


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
