"""The calls that fill the caller's arrays, compare ids and move parts of a batch.

One class has all the rules, over a few primitives that say what a batch is and move it::

    lifecycle → env_ids → actions → state ids → buffers → move → write
    └──────────── refused: nothing has changed ────────┘

Everything is looked at before anything moves, in that order. Actions are copied before anything is
written, so they may be a view of an array that is written to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from superdex.buffers._bound import BoundBuffers
from superdex.buffers._checks import check_buffers
from superdex.buffers._primitives import Buffers
from superdex.buffers._slot_steps import SlotSteps

__all__ = ["BufferedSteps"]


class BufferedSteps(SlotSteps):
    """Gives a class with a few primitives all calls with buffers, ids and slots.

    The primitives are the abstract methods, and an attribute `_ids`. `HybridVectorEnv` and
    `VectorGameEnv` are such classes.

    Attributes:
        num_envs: N.

    Example:
        >>> import gymnasium
        >>> from superdex.buffers import allocate
        >>> from superdex.vector import HybridVectorEnv
        >>> env_fns = [lambda: gymnasium.make("Pendulum-v1")] * 4
        >>> with HybridVectorEnv(env_fns, num_workers=2) as envs:
        ...     buffers = allocate(envs.batch_spec())
        ...     info = envs.reset_into(buffers, seed=1)
        ...     info = envs.step_into(np.zeros((4, 1), np.float32), buffers)
        >>> buffers["observation"].shape, buffers["action_valid"]
        ((4, 3), array([ True,  True,  True,  True]))
    """

    @property
    def state_ids(self) -> np.ndarray:
        """The ids of the present positions, (num_envs,) uint64, a copy.

        They change with every step and reset, of the rows that it is for, and never come back.
        """
        self._check_can("state_ids")
        return self._ids.state()

    @property
    def episode_ids(self) -> np.ndarray:
        """The ids of the episodes that the last observations are of, (num_envs,) uint64, a copy."""
        self._check_can("episode_ids")
        return self._ids.episode()

    def reset_into(self, buffers: Buffers, *, seed: Any = None, options: Any = None) -> Any:
        """Reset all environments and write the first observations to buffers.

        Rewards and flags are written too: zeros, and False for `action_valid` too, since
        there was no action. So is `action`, with zeros, unless it is missing.

        Args:
            buffers: Arrays as `batch_spec` says; no reference to them is kept.
            seed: As in `reset`.
            options: As in `reset`.

        Returns:
            The info, as `reset` returns it.

        Raises:
            ValueError: If buffers, seeds or options are not as expected; nothing was reset then.
        """
        self._check_can("reset_into")
        check_buffers(buffers, self.batch_spec())
        return self._reset_to(None, buffers, seed, options)

    def step_into(self, actions: np.ndarray, buffers: Buffers) -> Any:
        """Step all environments once and write the results to buffers.

        Args:
            actions: As in `step`. They are copied first, and may be a view of a buffer.
            buffers: Arrays as `batch_spec` says; no reference to them is kept. `action` may be
                missing; where it is not, it gets the actions as they were applied. Rows of
                `final_observation` are written where an episode ended; others keep what they held.

        Returns:
            The info, as `step` returns it.

        Raises:
            ValueError: If actions or buffers are not as expected; nothing was stepped then.
        """
        return self._step_all("step_into", actions, buffers)

    def step_checked(self, actions: np.ndarray, state_ids: np.ndarray) -> Any:
        """Step all environments once, if these actions are for where they are now.

        Args:
            actions: As in `step`.
            state_ids: (num_envs,) uint64, the ids of the positions that the actions are for.

        Returns:
            The result of `step`.

        Raises:
            StaleStateError: If a row has moved on; it names the rows, and nothing was stepped.
            ValueError: If the arguments are not as above; nothing was stepped then.
        """
        self._check_step("step_checked", actions)
        self._ids.check(state_ids)
        return self._step_all_checked(actions, state_ids)

    def step_into_checked(
        self, actions: np.ndarray, state_ids: np.ndarray, buffers: Buffers
    ) -> Any:
        """Do as `step_into`, if these actions are for where the environments are now.

        Raises:
            StaleStateError: If a row has moved on; it names the rows, and nothing was stepped or
                written.
            ValueError: If the arguments are not as in `step_into`; nothing was stepped then.
        """
        return self._step_all("step_into_checked", actions, buffers, state_ids)

    def _step_all(self, call: str, actions: Any, buffers: Any, *state_ids: Any) -> Any:
        self._check_step(call, actions)
        for ids in state_ids:  # one or none
            self._ids.check(ids)
        check_buffers(buffers, self.batch_spec())
        return self._step_to(None, buffers, actions, *state_ids)

    def bind(self, buffers: Buffers) -> BoundBuffers:
        """Check buffers once and return a handle whose `step` writes to them without looking again.

        Args:
            buffers: Arrays as `batch_spec` says. The handle holds them; keep them as they are.
                `env_id`, which never changes, is written now.

        Raises:
            ValueError: If they are not as expected.
        """
        self._check_can("bind")
        check_buffers(buffers, self.batch_spec())
        buffers["env_id"][:] = np.arange(self.num_envs)
        return self._bound(dict(buffers))

    def _bound(self, buffers: dict[str, np.ndarray]) -> BoundBuffers:
        """Return the handle for buffers that were checked."""
        return BoundBuffers(self, buffers)
