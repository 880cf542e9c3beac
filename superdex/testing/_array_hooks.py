"""The promise of array hooks: one environment's results do not depend on those beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from superdex.testing._equivalence import check_equivalence
from superdex.vector import EnvGroup

__all__ = ["check_array_hooks"]


def check_array_hooks(
    factory: Callable[[], gym.Env[Any, Any]],
    *,
    num_envs: int = 5,
    num_steps: int = 200,
    seed: int = 0,
) -> None:
    """Check that environments stepped at once give what each gives alone, bit for bit.

    Environments of the factory are stepped as one batch, with random actions, through ends and
    resets in every autoreset mode, and beside that each one alone in a plain loop. A hook that
    reads or writes another environment's numbers, sums over the wrong axis, or needs an attribute
    that `array_fields` leaves out makes a difference.

    Args:
        factory: Builds an environment, the same with each call. Give it episodes short enough to
            end within `num_steps`.
        num_envs: Environments in the batch; at least 4, since fewer are stepped one by one.
        num_steps: Steps of each.
        seed: Of the reset and of the random actions.

    Raises:
        AssertionError: If the environments can't be stepped at once; the message says why. Or at
            the first difference, with mode, step, environment and value.
        ValueError: If `num_envs` is less than 4.

    Example:
        >>> from superdex.envs import CartPoleEnv
        >>> from superdex.testing import check_array_hooks
        >>> check_array_hooks(lambda: CartPoleEnv(steps_per_episode=20), num_steps=30)
    """
    if num_envs < 4:
        raise ValueError(f"num_envs must be at least 4, got {num_envs}")
    env_fns = [factory] * num_envs
    group = EnvGroup(env_fns, range(num_envs))
    try:
        why = "; ".join(message for _, message in group.notices.pending)
        name = type(group.envs[0].unwrapped).__name__
        assert group.steps_at_once, (
            f"{name} is stepped one by one: {why or 'it does not declare array_hooks'}"
        )
    finally:
        group.close()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*are stepped one by one", UserWarning)
        try:
            check_equivalence(
                env_fns, [(1, num_envs)], num_steps=num_steps, seed=seed, in_process=True
            )
        except UserWarning as warning:
            raise AssertionError(str(warning)) from warning
