"""Which worker holds which environments.

Pure. The batch is flat outside and (worker, slot) inside; rows of one worker are contiguous.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

__all__ = ["Split", "split_envs"]


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
    _check_count("num_envs_per_worker", num_envs_per_worker)
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
        _check_count("num_workers", num_workers)
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


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {count!r}.")
