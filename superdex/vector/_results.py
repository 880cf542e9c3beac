"""What `reset` and `step` return, by name."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["BatchedResetResult", "BatchedStepResult"]


class BatchedResetResult(NamedTuple):
    """The result of `reset`: a tuple of two, as Gymnasium's.

    Attributes:
        observation: (num_envs, …), of the space's dtype.
        info: Arrays over all environments by key, each with its presence mask `_key`.
    """

    observation: np.ndarray
    info: dict[Any, Any]


class BatchedStepResult(NamedTuple):
    """The result of `step`: a tuple of five, as Gymnasium's.

    Attributes:
        observation: (num_envs, …), of the space's dtype.
        reward: (num_envs,) float64.
        terminated: (num_envs,) bool.
        truncated: (num_envs,) bool.
        info: Arrays over all environments by key, each with its presence mask `_key`.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: dict[Any, Any]
