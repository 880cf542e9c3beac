"""Buffers that are checked once and written to by many steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from superdex.buffers._steps import BufferedSteps

__all__ = ["BoundBuffers"]


class BoundBuffers:
    """Buffers that were checked once, with the calls that write to them; see `BufferedSteps.bind`.

    Attributes:
        buffers: The arrays by name.

    Example:
        >>> import gymnasium
        >>> from superdex.vector import HybridVectorEnv
        >>> env_fns = [lambda: gymnasium.make("Pendulum-v1")] * 4
        >>> with HybridVectorEnv(env_fns, num_workers=2) as envs:
        ...     handle = envs.bind(envs.allocate_buffers(1)[0])
        ...     info = handle.reset(seed=1)
        ...     info = handle.step(np.zeros((4, 1), np.float32))
        >>> handle.buffers["reward"].shape
        (4,)
    """

    def __init__(self, owner: BufferedSteps, buffers: dict[str, np.ndarray]) -> None:
        self.buffers = buffers
        self._written = {name: array for name, array in buffers.items() if name != "env_id"}
        self._owner = owner
        self._place = owner._place_of(self._written, None)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Do as `reset_into`."""
        owner = self._owner
        owner._check_can("reset_into")
        info = owner._reset_rows(None, seed, options, self._place)
        owner._write_rows(None, self._written, self._place)
        return info

    def step(self, actions: np.ndarray) -> Any:
        """Do as `step_into`."""
        owner = self._owner
        owner._check_step("step_into", actions)
        info = owner._step_rows(None, actions, self._place)
        owner._write_rows(None, self._written, self._place)
        return info

    def step_checked(self, actions: np.ndarray, state_ids: np.ndarray) -> Any:
        """Do as `step_into_checked`."""
        owner = self._owner
        owner._check_step("step_into_checked", actions)
        owner._ids.check(state_ids)
        info = owner._step_rows_checked(None, actions, state_ids, self._place)
        owner._write_rows(None, self._written, self._place)
        return info
