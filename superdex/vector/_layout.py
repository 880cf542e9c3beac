"""Where every number of the batch lies in one block of bytes.

Pure: no process, pipe or shared memory is needed to compute a layout. The block is one run of
bytes, cut into named arrays::

    control      (W, 24)         int64   one cache line or more a worker: commands, replies, counts
    action       (N, …)                  written by the parent, read by the workers
    observation  (2, N, …)               ┐
    reward       (2, N)          float64 │ written by the workers; two buffers that alternate from
    terminated   (2, N)          bool    │ call to call, so that the arrays of the last call stay
    truncated    (2, N)          bool    │ whole while the next one is under way
    autoreset    (2, N)          bool    ┘
    final_observation (2, N, …)          with SAME_STEP only
    timing       (N, 6)          float64 how long each environment takes, by the workers
    info_mask    (2, C, N)       bool    presence of the learned info columns
    info_data    (2, B · N)      bytes   their values, each column one (N, …) array

Rows of one worker are contiguous, so that a worker writes one slice of each array.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import DTypeLike

from superdex.vector._timing import Record

__all__ = ["INFO_BYTES_PER_ENV", "MAX_INFO_COLUMNS", "Field", "Layout", "batch_layout"]

ALIGNMENT = 64
"""Bytes: a cache line, so that no two workers write to one."""

MAX_INFO_COLUMNS = 62
"""Columns that one control word can flag as written."""

INFO_BYTES_PER_ENV = 1024
"""Room for the learned info columns of one environment, in one of the two buffers."""

CONTROL_WORDS = 24


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
    observation: Box,
    action: Box,
    *,
    final_observation: bool = False,
) -> Layout:
    """Return the layout of a batch; observation and action are the spaces of one environment."""
    n = num_envs
    arrays: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
        "control": ((num_workers, CONTROL_WORDS), np.int64),
        "action": ((n, *action.shape), action.dtype),
        "observation": ((2, n, *observation.shape), observation.dtype),
        "reward": ((2, n), np.float64),
        "terminated": ((2, n), np.bool_),
        "truncated": ((2, n), np.bool_),
        "autoreset": ((2, n), np.bool_),
        "timing": ((n, Record.LENGTH), np.float64),
        "info_mask": ((2, MAX_INFO_COLUMNS, n), np.bool_),
        "info_data": ((2, INFO_BYTES_PER_ENV * n), np.uint8),
    }
    if final_observation:
        arrays["final_observation"] = arrays["observation"]
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
