"""Where every number of the batch lies: environments to workers, arrays to bytes.

Pure: no process, pipe or shared memory is needed to compute a split or a layout. The block is
one run of bytes, cut into named arrays::

    control      (W, 16)         int64   one cache line or more a worker: commands, replies, counts
    action       (N, …)                  written by the parent, read by the workers
    observation  (2, N, …)               ┐
    reward       (2, N)          float64 │ written by the workers; two buffers that alternate from
    terminated   (2, N)          bool    │ call to call, so that the arrays of the last call stay
    truncated    (2, N)          bool    │ whole while the next one is under way
    autoreset    (2, N)          bool    ┘
    final_observation (2, N, …)          with SAME_STEP only
    info_mask    (2, C, N)       bool    presence of the learned info columns
    info_data    (2, B · N)      bytes   their values, each column one (N, …) array

Rows of one worker are contiguous, so that a worker writes one slice of each array.
"""

from __future__ import annotations


from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "INFO_BYTES_PER_ENV",
    "MAX_INFO_COLUMNS",
    "Field",
    "Layout",
    "batch_layout",
    "split_envs",
]

ALIGNMENT = 64
"""Bytes: a cache line, so that no two workers write to one."""

MAX_INFO_COLUMNS = 62
"""Columns that one control word can flag as written."""

INFO_BYTES_PER_ENV = 1024
"""Room for the learned info columns of one environment, in one of the two buffers."""

CONTROL_WORDS = 16


def split_envs(
    num_envs: int, num_envs_per_worker: int = 1, num_workers: int | None = None
) -> tuple[range, ...]:
    """Return the environments of each worker, as ranges of global indices.

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
    return tuple(range(a, b) for a, b in pairwise(accumulate(sizes, initial=0)))


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {count!r}.")


@dataclass(frozen=True)
class Field:
    """One array of the block: its dtype, shape and offset in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes that the array takes."""
        return self.dtype.itemsize * prod(self.shape)

    def view(self, buffer: memoryview) -> np.ndarray:
        """Return the array as a view of the block's bytes."""
        return np.ndarray(self.shape, self.dtype, buffer=buffer, offset=self.offset)


@dataclass(frozen=True)
class Layout:
    """All arrays of a block by name, and the bytes they take together."""

    fields: dict[str, Field]
    nbytes: int

    def views(self, buffer: memoryview) -> dict[str, np.ndarray]:
        """Return every array as a view of `buffer`, which has at least `nbytes` bytes."""
        return {name: field.view(buffer) for name, field in self.fields.items()}


def batch_layout(
    num_workers: int,
    num_envs: int,
    observation: tuple[tuple[int, ...], DTypeLike],
    action: tuple[tuple[int, ...], DTypeLike],
    *,
    final_observation: bool = False,
) -> Layout:
    """Return the layout of a batch; observation and action are (shape, dtype) of one environment."""
    n, (obs_shape, obs_dtype), (action_shape, action_dtype) = num_envs, observation, action
    arrays: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
        "control": ((num_workers, CONTROL_WORDS), np.int64),
        "action": ((n, *action_shape), action_dtype),
        "observation": ((2, n, *obs_shape), obs_dtype),
        "reward": ((2, n), np.float64),
        "terminated": ((2, n), np.bool_),
        "truncated": ((2, n), np.bool_),
        "autoreset": ((2, n), np.bool_),
        "info_mask": ((2, MAX_INFO_COLUMNS, n), np.bool_),
        "info_data": ((2, INFO_BYTES_PER_ENV * n), np.uint8),
    }
    if final_observation:
        arrays["final_observation"] = ((2, n, *obs_shape), obs_dtype)
    return Layout(*_pack(arrays))


def _pack(
    arrays: dict[str, tuple[tuple[int, ...], DTypeLike]],
) -> tuple[dict[str, Field], int]:
    fields: dict[str, Field] = {}
    end = 0
    for name, (shape, dtype) in arrays.items():
        field = Field(np.dtype(dtype), tuple(shape), end)
        fields[name] = field
        end = _align(end + field.nbytes)
    return fields, max(end, ALIGNMENT)


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
