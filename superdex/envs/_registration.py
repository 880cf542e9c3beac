"""Gymnasium ids of the built-in environments, and their vectorized form.

Entry points are strings, so that registering imports neither MuJoCo nor an environment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from superdex._limits import usable_cpus

if TYPE_CHECKING:
    from superdex.vector import HybridVectorEnv

_CART_POLE, _HALF_CHEETAH, _ANT = "CartPoleEnv", "HalfCheetahEnv", "AntEnv"
# Id → class, keyword arguments, steps until Gymnasium's TimeLimit.
_ENVS: dict[str, tuple[str, dict[str, Any], int]] = {
    "CartPole-v0": (_CART_POLE, {}, 500),
    "CartPoleActuateOnPole-v0": (_CART_POLE, {"actuate_on_pole": True}, 500),
    "HalfCheetah-v0": (_HALF_CHEETAH, {}, 1000),
    "HalfCheetahFullObservation-v0": (_HALF_CHEETAH, {"full_observation": True}, 1000),
    "Ant-v0": (_ANT, {}, 1000),
    "AntFullObservation-v0": (_ANT, {"full_observation": True}, 1000),
    "AntNoContact-v0": (_ANT, {"observe_contacts": False}, 1000),
    "AntRotationVector-v0": (_ANT, {"use_rotation_vector": True}, 1000),
}


def register_envs() -> None:
    """Register the built-in environments as `superdex_gym/…` with Gymnasium; twice is fine."""
    for name, (env_class, kwargs, max_episode_steps) in _ENVS.items():
        env_id = f"superdex_gym/{name}"
        if env_id in gym.registry:
            continue
        gym.register(
            env_id,
            entry_point=f"superdex.envs:{env_class}",
            vector_entry_point=f"superdex.envs._registration:make_vector_{_snake_case(env_class)}",
            max_episode_steps=max_episode_steps,
            kwargs=kwargs,
        )


def make_vector_cart_pole(num_envs: int = 1, **kwargs: Any) -> HybridVectorEnv:
    """Return `num_envs` cart-poles as one vector environment; see `_make_vector`."""
    return _make_vector(_CART_POLE, num_envs, kwargs)


def make_vector_half_cheetah(num_envs: int = 1, **kwargs: Any) -> HybridVectorEnv:
    """Return `num_envs` half-cheetahs as one vector environment; see `_make_vector`."""
    return _make_vector(_HALF_CHEETAH, num_envs, kwargs)


def make_vector_ant(num_envs: int = 1, **kwargs: Any) -> HybridVectorEnv:
    """Return `num_envs` ants as one vector environment; see `_make_vector`."""
    return _make_vector(_ANT, num_envs, kwargs)


def _make_vector(env_class: str, num_envs: int, kwargs: dict[str, Any]) -> HybridVectorEnv:
    """Return a `HybridVectorEnv` of one environment class.

    Args:
        env_class: Its name in `superdex.envs`.
        num_envs: How many environments.
        kwargs: Keywords that `HybridVectorEnv` knows are for it; `max_episode_steps` is the time
            limit of each environment, None for none; the rest is for the environments. Without a
            split there are as many workers as this process may use CPUs.
    """
    from superdex.vector import HybridVectorEnv

    known = set(inspect.signature(HybridVectorEnv).parameters) - {"env_fns"}
    vector_kwargs = {key: value for key, value in kwargs.items() if key in known}
    env_kwargs = {key: value for key, value in kwargs.items() if key not in known}
    max_episode_steps = env_kwargs.pop("max_episode_steps", None)
    if not {"num_workers", "num_envs_per_worker"} & vector_kwargs.keys():
        vector_kwargs["num_workers"] = min(usable_cpus(), num_envs)
    make_env: Callable[[], gym.Env[Any, Any]] = partial(
        _make_env, env_class, max_episode_steps, env_kwargs
    )
    return HybridVectorEnv([make_env] * num_envs, **vector_kwargs)


def _make_env(
    env_class: str, max_episode_steps: int | None, kwargs: dict[str, Any]
) -> gym.Env[Any, Any]:
    """Return one environment; runs in the worker."""
    import superdex.envs

    env: gym.Env[Any, Any] = getattr(superdex.envs, env_class)(**kwargs)
    if max_episode_steps is not None:
        env = gym.wrappers.TimeLimit(env, max_episode_steps)
    return env


def _snake_case(env_class: str) -> str:
    """Return "half_cheetah" for "HalfCheetahEnv"."""
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in env_class.removesuffix("Env"))
    return words.lstrip("_")
