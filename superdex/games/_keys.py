"""The arrays of a batch as `VectorGameEnv` calls them, and ids as the engine numbers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from superdex.buffers import BatchSpec
from superdex.buffers._ids import compare_state_ids
from superdex.games._batch import GameBatch
from superdex.games._outputs import BoundOutputs

__all__ = ["FINAL_KEYS", "GameIds", "bind_outputs", "game_batch_spec"]

_OUTPUT_OF = {
    "board_tokens": "board",
    "state": "state",
    "action_id": "action_id",
    "action_features": "action_features",
    "action_arg_mask": "action_arg_mask",
    "action_mask": "action_mask",
    "legal_action_count": "legal_action_count",
    "total_legal_action_count": "total_legal_action_count",
    "action_truncated": "action_truncated",
    "visible_event_features": "event_features",
    "visible_event_sequence": "event_sequence",
    "visible_event_action_sequence": "event_action_sequence",
    "visible_event_mask": "event_mask",
    "visible_event_affected": "event_affected",
    "visible_event_affected_mask": "event_affected_mask",
    "reward": "reward",
    "seat_reward": "seat_reward",
    "acting_seat": "acting_seat",
    "seat": "seat",
    "terminated": "terminated",
    "truncated": "truncated",
    "action_valid": "action_valid",
    "env_id": "env_id",
    "state_id": "state_id",
    "episode_id": "episode_id",
    "final_board_tokens": "final_board",
    "final_state": "final_state",
}
"""Each key of a batch, in order, with the engine's name of that array."""

FINAL_KEYS = ("final_board_tokens", "final_state")
"""Those that are only there where they were asked for."""


def game_batch_spec(spec: BatchSpec, *, final_observation: bool) -> BatchSpec:
    """Return shapes and dtypes by key, in order, from those of the engine's outputs."""
    return {
        key: spec[name]
        for key, name in _OUTPUT_OF.items()
        if final_observation or key not in FINAL_KEYS
    }


def bind_outputs(buffers: Mapping[str, np.ndarray], rows: int) -> BoundOutputs:
    """Return the arrays, which were checked, as outputs of the engine; other keys are left out."""
    return BoundOutputs(
        {_OUTPUT_OF[key]: array for key, array in buffers.items() if key in _OUTPUT_OF}, rows
    )


class GameIds:
    """The ids of a batch of games, which the engine numbers itself.

    Args:
        batch: The games.
        first: The first id it was given.
    """

    def __init__(self, batch: GameBatch, first: int) -> None:
        self._batch = batch
        self._first = first

    def state(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the state ids of rows, all if None: (rows,) uint64, the caller's own."""
        return self._read("state_id", rows)

    def episode(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the episode ids of rows, all if None: (rows,) uint64, the caller's own."""
        return self._read("episode_id", rows)

    def check(self, state_ids: Any, rows: np.ndarray | None = None) -> None:
        """Raise unless these are the state ids of rows, all if None."""
        compare_state_ids(state_ids, self.state(rows), rows, self._first)

    def _read(self, name: str, rows: np.ndarray | None) -> np.ndarray:
        outputs = self._batch.allocate(None if rows is None else len(rows), [name])
        self._batch.observe(outputs, rows=rows)
        return outputs.arrays[name]
