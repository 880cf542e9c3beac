"""Ordinary Gymnasium MuJoCo environments on one model and data per process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gymnasium as gym

EnvFactory: TypeAlias = Callable[[], gym.Env[Any, Any]]


def share_mujoco(
    factory: EnvFactory, *, fields: Sequence[str] = ()
) -> Callable[[], gym.Env[Any, Any]]:
    """Return a factory whose environments share one `MjModel` and one `MjData` per process.

    Each keeps its own state, a few kilobytes instead of a megabyte, which is in the data whenever
    it steps, resets, renders, or `env.unwrapped.data` is asked for. Observations, rewards, flags
    and infos are bit-equal to those without sharing. Environments share where class, model files,
    picture size and what their constructors make of the model are the same; where something
    differs, there is another model and data for each difference.

    The last environment to close frees model and data. Each one's renderer is its own.

    Args:
        factory: Builds an environment whose `unwrapped` is a `gymnasium.envs.mujoco.MujocoEnv`, by
            `gymnasium.make` or otherwise, in wrappers or bare.
        fields: `MjData` array fields that the environment, or a wrapper, reads before it steps.
            It is a hint, which nobody needs to give. With Gymnasium's own classes, whose reads are
            known, it adds to what is saved with a state; with any other class or wrapper
            everything is saved that the data hold, 10 to 100 KiB.

    Returns:
        A function without arguments. It can be pickled wherever cloudpickle can pickle `factory`.
        It raises `TypeError` where `factory` returns something else, and
        `superdex.errors.StateCaptureUnsupported` where a model has engine plugins, lets bodies
        sleep, or MuJoCo callbacks are set.

    Raises:
        TypeError: `factory` can't be called.

    Example:
        >>> import gymnasium
        >>> from superdex.scenes import share_mujoco
        >>> make = share_mujoco(lambda: gymnasium.make("InvertedPendulum-v5"))
        >>> envs = [make() for _ in range(3)]
        >>> envs[0].unwrapped.data is envs[1].unwrapped.data
        True
        >>> for seed, env in enumerate(envs):
        ...     observation, info = env.reset(seed=seed)
        >>> [round(float(env.unwrapped.data.qpos[0]), 4) for env in envs]
        [0.0027, 0.0002, -0.0048]
        >>> for env in envs:
        ...     env.close()
    """
    if isinstance(factory, _SharingFactory):
        return factory
    if not callable(factory):
        raise TypeError(
            "share_mujoco needs a function that builds an environment, such as "
            f'lambda: gymnasium.make("HalfCheetah-v5"); got {factory!r}'
        )
    return _SharingFactory(factory, tuple(fields))


class _SharingFactory:
    """Calls a factory so that what it builds shares; importing it imports no MuJoCo."""

    def __init__(self, factory: EnvFactory, fields: tuple[str, ...]) -> None:
        self._factory = factory
        self._fields = fields

    def __call__(self) -> gym.Env[Any, Any]:
        from superdex.scenes._construction import build_shared

        return build_shared(self._factory, self._fields)

    def __repr__(self) -> str:
        return f"share_mujoco({self._factory!r}, fields={self._fields!r})"
