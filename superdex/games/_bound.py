"""The quickest way to step a batch of games."""

from __future__ import annotations

import numpy as np

from superdex.buffers import BoundBuffers, BufferedSteps
from superdex.games._batch import GameBatch

__all__ = ["BoundGames"]

_INT32 = np.dtype(np.int32)


class BoundGames(BoundBuffers):
    """A handle whose step is one native call on addresses that are known already."""

    def __init__(
        self,
        owner: BufferedSteps,
        buffers: dict[str, np.ndarray],
        batch: GameBatch,
        *,
        auto_reset: bool,
    ) -> None:
        super().__init__(owner, buffers)
        self._shape = (owner.num_envs,)
        self._actions = np.empty(self._shape, np.int32)
        self._run = batch.stepper(
            self._actions, self._place, auto_reset=auto_reset, keep_illegal=True
        )

    def step(self, actions: np.ndarray) -> None:
        """Do as `step_into`."""
        # arrays of int32 share one dtype object; whatever is none is looked at in full
        if (
            type(actions) is not np.ndarray
            or actions.dtype is not _INT32
            or actions.shape != self._shape
        ):
            self._owner._check_step("step_into", actions)
        self._actions[...] = actions
        self._run()
