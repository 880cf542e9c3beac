"""What environments that can be stepped together and those who step them say to each other.

An environment whose class has `make_batch(envs, num_threads)` may be stepped with its siblings at
once. The vectorizer knows no physics, and the environments know no vectorizer: this module is all
that they share.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["EnvBatch", "NotBatchable", "RowError", "Transitions"]


class NotBatchable(Exception):
    """Environments can't be stepped together; the message says why."""


class RowError(Exception):
    """Raised for one environment of a batch, before any has moved; `__cause__` says what is wrong.

    Attributes:
        row: The environment.
    """

    def __init__(self, row: int) -> None:
        self.row = row
        super().__init__(row)


@dataclass
class Transitions:
    """What a step of a batch gives beside observations and rewards.

    Attributes:
        terminated: (K,) bool.
        truncated: (K,) bool.
        info: (K, …) arrays by key.
        reasons: Row → why its episode ended, as infos.
    """

    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    info: dict[str, NDArray[Any]]
    reasons: dict[int, dict[str, str]]


class EnvBatch(Protocol):
    """K environments that are stepped at once."""

    def step(
        self,
        actions: NDArray[Any],
        observation: NDArray[Any],
        reward: NDArray[np.float64],
        rows: NDArray[np.int32] | None = None,
    ) -> Transitions:
        """Step environments once.

        Args:
            actions: (K, …), of the action space's dtype; may be changed.
            observation: (K, …), written in full; rows that were not stepped hold no meaning.
            reward: (K,), likewise.
            rows: Which environments, sorted; all if None. What is left of others
                is undefined outside of `others_at_rest`.

        Raises:
            RowError: If one can't be stepped.
        """
        ...

    def others_at_rest(self, rows: NDArray[np.int32]) -> AbstractContextManager[None]:
        """Inside, a step of `rows` may write to others, which are as before after it."""
        ...

    def adopt(self, row: int) -> None:
        """Go on from where the environment of a row is, which was reset or used by itself.

        Raises:
            NotBatchable: If it remembers what the batch can't.
        """
        ...

    def hand_back(self, row: int) -> None:
        """Bring the environment of a row to where the batch is, before it is used by itself."""
        ...
