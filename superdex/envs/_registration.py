"""Gymnasium ids of the built-in environments, and their vectorized form.

Entry points are strings, so that registering imports neither MuJoCo nor an environment.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from superdex._limits import usable_cpus

if TYPE_CHECKING:
    from superdex.vector import HybridVectorEnv

_PACKAGE = "superdex.envs"
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
    """Register all environments of this package with Gymnasium; twice is fine.

    The built-in ones are `superdex_gym/…`, those of `superdex.envs.mujoco` are `superdex/…`.
    """
    from superdex.envs.mujoco._registration import register_mujoco_envs

    register_mujoco_envs()
    for name, (env_class, kwargs, max_episode_steps) in _ENVS.items():
        env_id = f"superdex_gym/{name}"
        if env_id in gym.registry:
            continue
        gym.register(
            env_id,
            entry_point=f"{_PACKAGE}:{env_class}",
            vector_entry_point=f"{_PACKAGE}._registration:make_vector_{snake_case(env_class)}",
            max_episode_steps=max_episode_steps,
            kwargs=kwargs,
        )


def make_vector_cart_pole(num_envs: int = 1, **kwargs: Any) -> HybridVectorEnv:
    """Return `num_envs` cart-poles as one vector environment; see `make_vector`."""
    return make_vector(f"{_PACKAGE}:{_CART_POLE}", num_envs, *sort_keywords(kwargs))


def make_vector_half_cheetah(num_envs: int = 1, **kwargs: Any) -> HybridVectorEnv:
    """Return `num_envs` half-cheetahs as one vector environment; see `make_vector`."""
    return make_vector(f"{_PACKAGE}:{_HALF_CHEETAH}", num_envs, *sort_keywords(kwargs))


def make_vector_ant(num_envs: int = 1, **kwargs: Any) -> HybridVectorEnv:
    """Return `num_envs` ants as one vector environment; see `make_vector`."""
    return make_vector(f"{_PACKAGE}:{_ANT}", num_envs, *sort_keywords(kwargs))


def sort_keywords(kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords that `HybridVectorEnv` knows, and those that are for environments."""
    from superdex.vector import HybridVectorEnv

    known = set(inspect.signature(HybridVectorEnv).parameters) - {"env_fns"}
    vector_kwargs = {key: value for key, value in kwargs.items() if key in known}
    return vector_kwargs, {key: value for key, value in kwargs.items() if key not in known}


def has_split(vector_kwargs: dict[str, Any]) -> bool:
    """Return whether keywords say how environments are dealt out to workers."""
    return bool({"num_workers", "num_envs_per_worker"} & vector_kwargs.keys())


def make_vector(
    entry_point: str, num_envs: int, vector_kwargs: dict[str, Any], env_kwargs: dict[str, Any]
) -> HybridVectorEnv:
    """Return a `HybridVectorEnv` of one environment class.

    Args:
        entry_point: The class, as "module:name".
        num_envs: How many environments.
        vector_kwargs: Keywords of `HybridVectorEnv`. Without a split there are as many workers as
            this process may use CPUs.
        env_kwargs: Keywords of the environments; `max_episode_steps` among them is the time limit
            of each, None for none.
    """
    from superdex.vector import HybridVectorEnv

    env_kwargs = dict(env_kwargs)
    max_episode_steps = env_kwargs.pop("max_episode_steps", None)
    if not has_split(vector_kwargs):
        vector_kwargs = {**vector_kwargs, "num_workers": min(usable_cpus(), num_envs)}
    make_env: Callable[[], gym.Env[Any, Any]] = partial(
        _make_env, entry_point, max_episode_steps, env_kwargs
    )
    return HybridVectorEnv([make_env] * num_envs, **vector_kwargs)


def _make_env(
    entry_point: str, max_episode_steps: int | None, kwargs: dict[str, Any]
) -> gym.Env[Any, Any]:
    """Return one environment; runs in the worker."""
    env: gym.Env[Any, Any] = pkgutil.resolve_name(entry_point)(**kwargs)
    if max_episode_steps is not None:
        env = gym.wrappers.TimeLimit(env, max_episode_steps)
    return env


def snake_case(env_class: str) -> str:
    """Return "half_cheetah" for "HalfCheetahEnv"."""
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in env_class.removesuffix("Env"))
    return words.lstrip("_")
