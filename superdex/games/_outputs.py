"""The arrays that a call on a batch of games writes: their shapes, and those of a caller."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from superdex.games._interface import Outputs

if TYPE_CHECKING:
    from superdex.games._library import GameDescription

__all__ = ["ArraySpecs", "BoundOutputs", "output_spec"]

ArraySpecs = dict[str, tuple[tuple[int, ...], np.dtype]]
"""Shape and dtype by name."""


def output_spec(about: GameDescription, n: int, max_actions: int, event_history: int) -> ArraySpecs:
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
    return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in shapes.items()}


class BoundOutputs:
    """Arrays of the caller that a batch writes into: checked once, used by many calls.

    Attributes:
        arrays: The arrays by name; held, so that they live as long as this does.
        rows: How many rows a call has to name to be written here.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], spec: ArraySpecs, rows: int) -> None:
        for name, array in arrays.items():
            if name not in spec:
                raise ValueError(f"No output is called {name!r}; expected some of {list(spec)}.")
            shape, dtype = spec[name]
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                got = getattr(array, "dtype", type(array).__name__)
                raise TypeError(f"Output {name} must be an array of {dtype}, got {got}.")
            if array.shape != shape:
                raise ValueError(f"Output {name} must have shape {shape}, got {array.shape}.")
            if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
                raise ValueError(f"Output {name} must be C-contiguous, aligned and writable.")
        self.arrays = dict(arrays)
        self.rows = rows
        addresses = {name: array.ctypes.data for name, array in self.arrays.items() if array.size}
        self._struct = Outputs(size=ctypes.sizeof(Outputs), **addresses)
        self.address = ctypes.c_void_p(ctypes.addressof(self._struct))
