"""The arrays that a call on a batch of games writes: their shapes, and those of a caller."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from superdex.buffers import ArraySpec, BatchSpec, check_buffers
from superdex.games._interface import Outputs

if TYPE_CHECKING:
    from superdex.games._description import GameDescription

__all__ = ["BoundOutputs", "check_outputs", "output_spec"]


def output_spec(about: GameDescription, n: int, max_actions: int, event_history: int) -> BatchSpec:
    """Return shape and dtype of every output for n rows, as `sdg_outputs` has them."""
    acts, events = (n, max_actions), (n, event_history)
    state, board = (n, len(about.state_fields)), (n, *about.board_shape)
    affected = (*events, about.num_affected)
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        "board": (board, about.board_dtype),
        "state": (state, np.int32),
        "action_id": (acts, np.int32),
        "action_features": ((*acts, len(about.action_features)), np.int32),
        "action_arg_mask": ((*acts, len(about.action_args)), np.uint8),
        "action_mask": (acts, np.uint8),
        "legal_action_count": ((n,), np.int32),
        "total_legal_action_count": ((n,), np.int32),
        "action_truncated": ((n,), np.uint8),
        "event_features": ((*events, len(about.event_features)), np.int32),
        "event_sequence": (events, np.uint64),
        "event_action_sequence": (events, np.uint64),
        "event_mask": (events, np.uint8),
        "event_affected": ((*affected, len(about.affected_features)), np.int32),
        "event_affected_mask": (affected, np.uint8),
        "reward": ((n,), np.float32),
        "seat_reward": ((n, about.num_seats), np.float32),
        "acting_seat": ((n,), np.int32),
        "terminated": ((n,), np.uint8),
        "truncated": ((n,), np.uint8),
        "action_valid": ((n,), np.uint8),
        "plies": ((n,), np.int32),
        "seat": ((n,), np.int32),
        "over": ((n,), np.uint8),
        "scores": ((n, about.num_seats), np.float32),
        "env_id": ((n,), np.int32),
        "state_id": ((n,), np.uint64),
        "episode_id": ((n,), np.uint64),
        "final_board": (board, about.board_dtype),
        "final_state": (state, np.int32),
    }
    return {name: ArraySpec(shape, np.dtype(dtype)) for name, (shape, dtype) in shapes.items()}


def check_outputs(arrays: Mapping[str, np.ndarray], spec: BatchSpec) -> None:
    """Raise `ValueError` unless results can be written to these arrays, some of those of `spec`."""
    for name in arrays:
        if name not in spec:
            raise ValueError(f"No output is called {name!r}; expected some of {list(spec)}.")
    check_buffers(arrays, {name: spec[name] for name in arrays})


class BoundOutputs:
    """Arrays of the caller that a batch writes into: checked before, used by many calls.

    Attributes:
        arrays: The arrays by name; held, so that they live as long as this does.
        rows: How many rows a call has to name to be written here.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], rows: int) -> None:
        self.arrays = dict(arrays)
        self.rows = rows
        addresses = {
            name: array.__array_interface__["data"][0]
            for name, array in self.arrays.items()
            if array.size
        }
        self._struct = Outputs(size=ctypes.sizeof(Outputs), **addresses)
        self.address = ctypes.c_void_p(ctypes.addressof(self._struct))
