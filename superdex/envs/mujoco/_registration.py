"""Gymnasium ids of the environments, and their vectorized form.

Entry points are strings, so that registering imports neither MuJoCo nor an environment.
"""

from __future__ import annotations

import pkgutil
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from superdex._limits import usable_cpus
from superdex.envs._registration import has_split, make_vector, snake_case, sort_keywords

if TYPE_CHECKING:
    from superdex.vector import HybridVectorEnv

__all__ = ["register_mujoco_envs"]

_PACKAGE = "superdex.envs.mujoco"
_FOR_WORKERS = {"timeout", "on_worker_failure", "worker_affinity"}
"""Keywords of `HybridVectorEnv` that mean something for worker processes only."""

# Name → steps until Gymnasium's TimeLimit, and the reward at which Gymnasium holds it for solved.
_ENVS: dict[str, tuple[int, float | None]] = {
    "Ant": (1000, 6000.0),
    "HalfCheetah": (1000, 4800.0),
    "Hopper": (1000, 3800.0),
    "Humanoid": (1000, None),
    "HumanoidStandup": (1000, None),
    "InvertedDoublePendulum": (1000, 9100.0),
    "InvertedPendulum": (1000, 950.0),
    "Pusher": (100, 0.0),
    "Reacher": (50, -3.75),
    "Swimmer": (1000, 360.0),
    "Walker2d": (1000, None),
}


def register_mujoco_envs() -> None:
    """Register Gymnasium's MuJoCo environments as `superdex/…-v5`; twice is fine."""
    for name, (max_episode_steps, reward_threshold) in _ENVS.items():
        env_id = f"superdex/{name}-v5"
        if env_id not in gym.registry:
            gym.register(
                env_id,
                entry_point=f"{_PACKAGE}:{name}Env",
                vector_entry_point=f"{_PACKAGE}._registration:make_vector_{snake_case(name)}",
                max_episode_steps=max_episode_steps,
                reward_threshold=reward_threshold,
            )


def _make_vector(env_class: str, num_envs: int = 1, **kwargs: Any) -> HybridVectorEnv:
    """Return `num_envs` environments of a class as one vector environment.

    Without a split, environments that can be stepped at once run in this process, with as many
    native threads as it may use CPUs: no process is started, and no main guard is needed. Others
    are dealt out to as many workers.
    """
    vector_kwargs, env_kwargs = sort_keywords(kwargs)
    if not has_split(vector_kwargs) and _is_stepped_at_once(env_class, env_kwargs):
        vector_kwargs = {
            "in_process": not _FOR_WORKERS & vector_kwargs.keys(),
            "num_workers": 1,
            "num_threads_per_worker": min(usable_cpus(), num_envs),
            **vector_kwargs,
        }
    return make_vector(f"{_PACKAGE}:{env_class}", num_envs, vector_kwargs, env_kwargs)


def _is_stepped_at_once(env_class: str, env_kwargs: dict[str, Any]) -> bool:
    """Return whether environments with these keywords have array hooks."""
    kwargs = {key: value for key, value in env_kwargs.items() if key != "max_episode_steps"}
    with pkgutil.resolve_name(f"{_PACKAGE}:{env_class}")(**kwargs) as env:
        return bool(env.array_hooks)


make_vector_ant = partial(_make_vector, "AntEnv")
make_vector_half_cheetah = partial(_make_vector, "HalfCheetahEnv")
make_vector_hopper = partial(_make_vector, "HopperEnv")
make_vector_humanoid = partial(_make_vector, "HumanoidEnv")
make_vector_humanoid_standup = partial(_make_vector, "HumanoidStandupEnv")
make_vector_inverted_double_pendulum = partial(_make_vector, "InvertedDoublePendulumEnv")
make_vector_inverted_pendulum = partial(_make_vector, "InvertedPendulumEnv")
make_vector_pusher = partial(_make_vector, "PusherEnv")
make_vector_reacher = partial(_make_vector, "ReacherEnv")
make_vector_swimmer = partial(_make_vector, "SwimmerEnv")
make_vector_walker2d = partial(_make_vector, "Walker2dEnv")
