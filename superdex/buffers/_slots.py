"""Parts of a batch: which rows, and what they gave."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["SlotBatch", "slot_partitions"]


class SlotBatch(NamedTuple):
    """The rows of a slot, in the caller's order; all arrays are the caller's own.

    Attributes:
        env_id: (rows,) int32, the environments' indices.
        observation: (rows, …).
        reward: (rows,) float64.
        terminated: (rows,) bool.
        truncated: (rows,) bool.
        action_valid: (rows,) bool; False where the row was reset, in the place of the action or
            by a call: it is no transition then.
        state_id: (rows,) uint64, to be given with the next action.
        episode_id: (rows,) uint64, of the episode that the observation is of.
        final_observation: (rows, …), of use where an episode ended; None unless the autoreset mode
            is SAME_STEP.
        info: Arrays over the rows by key, each with its presence mask `_key`.
    """

    env_id: np.ndarray
    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    action_valid: np.ndarray
    state_id: np.ndarray
    episode_id: np.ndarray
    final_observation: np.ndarray | None
    info: dict[Any, Any]


def slot_partitions(num_envs: int, n: int) -> tuple[np.ndarray, ...]:
    """Return n balanced, contiguous slots: (rows,) int32 ids, the larger ones first.

    Raises:
        ValueError: If n is no integer from 1 to `num_envs`.

    Example:
        >>> slot_partitions(5, 2)
        (array([0, 1, 2], dtype=int32), array([3, 4], dtype=int32))
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= num_envs:
        raise ValueError(
            f"n must be an integer from 1 to {num_envs}, the number of environments, got {n!r}."
        )
    return tuple(np.array_split(np.arange(num_envs, dtype=np.int32), n))
