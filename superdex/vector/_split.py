"""Which worker holds which environments.

The batch is flat outside and (worker, slot) inside; rows of one worker are contiguous. All of it is
pure but `suggest_split`, which asks how many CPUs there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from superdex._limits import usable_cpus

__all__ = ["Split", "SuggestedSplit", "split_envs", "suggest_split"]


@dataclass(frozen=True)
class Split:
    """How environments are dealt out to workers.

    Attributes:
        ranges: The global indices of each worker's environments, in order.
    """

    ranges: tuple[range, ...]

    @property
    def num_envs(self) -> int:
        """All environments, N."""
        return self.ranges[-1].stop

    @property
    def num_workers(self) -> int:
        """All workers, W."""
        return len(self.ranges)

    def in_words(self) -> str:
        """Return workers × environments: 2 × 64, or 3 × 5–6 where it is uneven."""
        most, fewest = len(self.ranges[0]), len(self.ranges[-1])
        return f"{self.num_workers} × {fewest if fewest == most else f'{fewest}–{most}'}"

    def locate(self, index: int) -> tuple[int, int]:
        """Return the worker of an environment and its slot there."""
        worker = bisect_right(self.ranges, index, key=lambda rows: rows.start) - 1
        return worker, index - self.ranges[worker].start

    def by_worker(self, rows: Sequence[int]) -> dict[int, list[int]]:
        """Return positions in `rows` for each worker that has any of them, workers in order."""
        positions: dict[int, list[int]] = {}
        for position, index in enumerate(rows):
            positions.setdefault(self.locate(index)[0], []).append(position)
        return dict(sorted(positions.items()))


def split_envs(
    num_envs: int, num_envs_per_worker: int = 1, num_workers: int | None = None
) -> Split:
    """Return how environments are dealt out to workers.

    Args:
        num_envs: All environments, N.
        num_envs_per_worker: Environments in each worker; must divide N.
        num_workers: Workers instead, W; the first N mod W of them hold one environment more.

    Raises:
        ValueError: If the split is impossible, or both numbers are given.
    """
    check_count("num_envs_per_worker", num_envs_per_worker)
    if num_envs == 0:
        raise ValueError("env_fns is empty: expected one function per environment, got none.")
    if num_workers is None:
        if num_envs % num_envs_per_worker != 0:
            raise ValueError(
                "The total number of environments must be divisible by the number of environments "
                f"per process. Got {num_envs} environments and num_envs_per_worker="
                f"{num_envs_per_worker}; num_workers= allows an uneven split."
            )
        num_workers = num_envs // num_envs_per_worker
    else:
        check_count("num_workers", num_workers)
        if num_envs_per_worker != 1:
            raise ValueError(
                "Give num_envs_per_worker or num_workers, not both. "
                f"Got num_envs_per_worker={num_envs_per_worker} and num_workers={num_workers}."
            )
        if num_workers > num_envs:
            raise ValueError(
                "Every worker needs an environment: expected num_workers of at most "
                f"{num_envs} (the number of environments), got {num_workers}."
            )
    size, larger = divmod(num_envs, num_workers)
    sizes = [size + (worker < larger) for worker in range(num_workers)]
    return Split(tuple(range(a, b) for a, b in pairwise(accumulate(sizes, initial=0))))


class SuggestedSplit(NamedTuple):
    """Workers × environments, for `HybridVectorEnv`; see `suggest_split`.

    Attributes:
        num_workers: Workers, W.
        num_envs_per_worker: Environments in the worker that has most of them.
    """

    num_workers: int
    num_envs_per_worker: int


def suggest_split(num_envs: int, *, reserve: int = 0) -> SuggestedSplit:
    """Suggest one worker for each CPU that this process may use.

    CPUs are counted by the process's affinity and by the CPU quota of its container, so the
    suggestion holds in a container or a batch job too. It is a start: `superdex bench` measures.

    Pass `num_workers` alone. It allows an uneven split, in which `num_envs_per_worker` environments
    are in the first workers and one less in the others.

    Args:
        num_envs: All environments, N.
        reserve: CPUs to leave to others, for instance to a learner that runs at the same time.
            There is one worker at least.

    Raises:
        ValueError: If `num_envs` is no integer of at least 1, or `reserve` none of at least 0.

    Example:
        >>> import gymnasium
        >>> from superdex.vector import HybridVectorEnv, suggest_split
        >>> env_fns = [lambda: gymnasium.make("Pendulum-v1")] * 17
        >>> split = suggest_split(len(env_fns), reserve=1)
        >>> with HybridVectorEnv(env_fns, num_workers=split.num_workers) as envs:
        ...     envs.num_envs_per_worker == split.num_envs_per_worker
        True
    """
    check_count("num_envs", num_envs)
    check_count("reserve", reserve, at_least=0)
    num_workers = min(int(num_envs), max(1, usable_cpus() - int(reserve)))
    return SuggestedSplit(num_workers, -(-int(num_envs) // num_workers))


def check_count(name: str, count: object, at_least: int = 1) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {count!r}.")
