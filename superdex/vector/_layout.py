"""Where every number of the batch lies in one block of bytes.

Pure: no process, pipe or shared memory is needed to compute a layout. The block is one run of
bytes, cut into named arrays::

    control      (W, 24)         int64   one cache line or more a worker: commands, replies, counts
    action       (N, …)                  written by the parent, read by the workers
    counters     (W, 16)         int64   ┐ the queue of each worker's requests, which are calls for
    headers      (W, K, 16)      int64   │ some rows; see `_queue`
    rows         (W, K)          int32   ┘
    bell         (8,)            int64   whether the caller sleeps until one of them is done
    home         (N,)            int16   which buffer holds each row's last results, by the parent
    observation  (3, N, …)               ┐
    reward       (3, N)          float64 │
    terminated   (3, N)          bool    │ written by the workers
    truncated    (3, N)          bool    │
    autoreset    (3, N)          bool    │ rows that were reset within the call
    action_valid (3, N)          bool    ┘ rows whose action was applied
    final_observation (3, N, …)          with SAME_STEP only
    episodes     (N,)            int64   how many episodes each row has begun, ever
    timing       (N, 6)          float64 how long each environment takes, by the workers
    info_mask    (3, C, N)       bool    presence of the learned info columns
    info_data    (3, B · N)      bytes   their values, each column one (N, …) array

Calls for all rows write buffers 0 and 1 in turn, so that the arrays of the last call stay whole
while the next one is under way. Calls for some rows write these rows of buffer 2 in place, so that
they leave both of the others whole; where there are none, it is never touched and takes no memory.

Rows of one worker are contiguous, so that a worker writes one slice of each array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import DTypeLike

from superdex.buffers import ArraySpec, BatchSpec
from superdex.vector._queue import COUNTERS, HEADER_WORDS
from superdex.vector._timing import Record

__all__ = [
    "INFO_BYTES_PER_ENV",
    "MAX_INFO_COLUMNS",
    "OUTPUTS",
    "SLOT_BUFFER",
    "Field",
    "Layout",
    "batch_layout",
    "batch_spec",
    "segment_layout",
]

OUTPUTS = (
    "observation",
    "reward",
    "terminated",
    "truncated",
    "autoreset",
    "action_valid",
    "final_observation",
)
"""What a worker writes of each row; the last one with SAME_STEP only."""

SLOT_BUFFER = 2
"""The buffer that calls for some rows write."""

_BUFFERS = 3

ALIGNMENT = 64
"""Bytes: a cache line, so that no two workers write to one."""

_INTS_PER_LINE = ALIGNMENT // 4

MAX_INFO_COLUMNS = 62
"""Columns that one control word can flag as written."""

INFO_BYTES_PER_ENV = 1024
"""Room for the learned info columns of one environment, in one of the buffers."""

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
    """All arrays of a block by name, and the bytes they take together.

    Attributes:
        fields: The arrays.
        nbytes: The size of the block.
        nbytes_untouched: Of those, bytes that no full step ever touches.
    """

    fields: dict[str, Field]
    nbytes: int
    nbytes_untouched: int = 0

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
    largest = -(-num_envs // num_workers)
    buffered: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
        "observation": ((n, *observation.shape), observation.dtype),
        "reward": ((n,), np.float64),
        "terminated": ((n,), np.bool_),
        "truncated": ((n,), np.bool_),
        "autoreset": ((n,), np.bool_),
        "action_valid": ((n,), np.bool_),
        "info_mask": ((MAX_INFO_COLUMNS, n), np.bool_),
        "info_data": ((INFO_BYTES_PER_ENV * n,), np.uint8),
    }
    if final_observation:
        buffered["final_observation"] = buffered["observation"]
    fields, nbytes = _pack(
        {
            "control": ((num_workers, CONTROL_WORDS), np.int64),
            "action": ((n, *action.shape), action.dtype),
            "counters": ((num_workers, COUNTERS), np.int64),
            "headers": ((num_workers, largest, HEADER_WORDS), np.int64),
            "rows": ((num_workers, -(-largest // _INTS_PER_LINE) * _INTS_PER_LINE), np.int32),
            "bell": ((ALIGNMENT // 8,), np.int64),
            "home": ((n,), np.int16),
            "episodes": ((n,), np.int64),
            "timing": ((n, Record.LENGTH), np.float64),
            **{name: ((_BUFFERS, *shape), dtype) for name, (shape, dtype) in buffered.items()},
        }
    )
    return Layout(fields, nbytes, sum(fields[name].nbytes // _BUFFERS for name in buffered))


def batch_spec(layout: Layout) -> BatchSpec:
    """Return what the caller sees of a batch of this layout."""
    names = "observation action reward terminated truncated final_observation action_valid"
    num_envs = layout.fields["home"].shape[0]
    spec = {}
    for name in names.split():
        if name in layout.fields:
            field = layout.fields[name]
            shape = field.shape if name == "action" else field.shape[1:]
            spec[name] = ArraySpec(shape, field.dtype)
    for name, dtype in (("env_id", np.int32), ("state_id", np.uint64), ("episode_id", np.uint64)):
        spec[name] = ArraySpec((num_envs,), np.dtype(dtype))
    return spec


def segment_layout(spec: Mapping[str, tuple[tuple[int, ...], DTypeLike]]) -> Layout:
    """Return the layout of one more buffer of outputs, in a block of its own.

    Args:
        spec: Name → shape and dtype of the arrays that the caller sees; what workers write besides
            them is added.
    """
    return Layout(*_pack({**spec, "autoreset": spec["terminated"]}))


def _pack(
    arrays: Mapping[str, tuple[tuple[int, ...], DTypeLike]],
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
