"""Gymnasium's MuJoCo environments, stepped at once: the same spaces, rewards, infos and seeds.

Each class is Gymnasium's of that name, version 5, on Gymnasium's own model file, with the same
keywords and the same results to the bit. All environments of a process share one scene, and a
`HybridVectorEnv` steps those that read no contact forces by one native call. The ids are
`superdex/HalfCheetah-v5` and so on, for `gymnasium.make` and `gymnasium.make_vec`.

Importing this package imports no MuJoCo: that happens when a class is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from superdex._lazy import lazy_attribute

if TYPE_CHECKING:
    from superdex.envs.mujoco._ant import AntEnv
    from superdex.envs.mujoco._arms import PusherEnv, ReacherEnv
    from superdex.envs.mujoco._half_cheetah import HalfCheetahEnv
    from superdex.envs.mujoco._hopper import HopperEnv, Walker2dEnv
    from superdex.envs.mujoco._humanoids import HumanoidEnv, HumanoidStandupEnv
    from superdex.envs.mujoco._mujoco_env import MujocoEnv
    from superdex.envs.mujoco._pendulums import InvertedDoublePendulumEnv, InvertedPendulumEnv
    from superdex.envs.mujoco._swimmer import SwimmerEnv

__all__ = [
    "AntEnv",
    "HalfCheetahEnv",
    "HopperEnv",
    "HumanoidEnv",
    "HumanoidStandupEnv",
    "InvertedDoublePendulumEnv",
    "InvertedPendulumEnv",
    "MujocoEnv",
    "PusherEnv",
    "ReacherEnv",
    "SwimmerEnv",
    "Walker2dEnv",
]

_HOMES = {
    "AntEnv": "_ant",
    "HalfCheetahEnv": "_half_cheetah",
    "HopperEnv": "_hopper",
    "HumanoidEnv": "_humanoids",
    "HumanoidStandupEnv": "_humanoids",
    "InvertedDoublePendulumEnv": "_pendulums",
    "InvertedPendulumEnv": "_pendulums",
    "MujocoEnv": "_mujoco_env",
    "PusherEnv": "_arms",
    "ReacherEnv": "_arms",
    "SwimmerEnv": "_swimmer",
    "Walker2dEnv": "_hopper",
}


def __getattr__(name: str) -> Any:
    return lazy_attribute(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
