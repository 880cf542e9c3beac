"""Environments on shared scenes: the base to write your own, and three benchmarks.

`SceneEnv` and `SceneEnvCfg` are what an environment of your own derives from; `CartPoleEnv`,
`HalfCheetahEnv` and `AntEnv` are written on them. `superdex.envs.mujoco` has Gymnasium's MuJoCo
environments. Importing this package registers the ids of both with Gymnasium
(`superdex_gym/CartPole-v0`, `superdex/Ant-v5` and so on) and imports neither MuJoCo nor an
environment: that happens when a class is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from superdex._lazy import lazy_attribute
from superdex.envs._registration import register_envs

if TYPE_CHECKING:
    from superdex.envs._ant import AntEnv, AntEnvCfg
    from superdex.envs._cartpole import CartPoleEnv, CartPoleEnvCfg
    from superdex.envs._config import SceneEnvCfg
    from superdex.envs._half_cheetah import HalfCheetahEnv, HalfCheetahEnvCfg
    from superdex.envs._scene_env import (
        Action,
        Info,
        Observation,
        RewardTerms,
        SceneEnv,
        StopReasons,
        StructuredAction,
        StructuredObservation,
    )
    from superdex.envs._share import SceneBuilder
    from superdex.envs._timing import PhaseTiming

__all__ = [
    "Action",
    "AntEnv",
    "AntEnvCfg",
    "CartPoleEnv",
    "CartPoleEnvCfg",
    "HalfCheetahEnv",
    "HalfCheetahEnvCfg",
    "Info",
    "Observation",
    "PhaseTiming",
    "RewardTerms",
    "SceneBuilder",
    "SceneEnv",
    "SceneEnvCfg",
    "StopReasons",
    "StructuredAction",
    "StructuredObservation",
    "register_envs",
]

_HOMES = {
    "Action": "_scene_env",
    "AntEnv": "_ant",
    "AntEnvCfg": "_ant",
    "CartPoleEnv": "_cartpole",
    "CartPoleEnvCfg": "_cartpole",
    "HalfCheetahEnv": "_half_cheetah",
    "HalfCheetahEnvCfg": "_half_cheetah",
    "Info": "_scene_env",
    "Observation": "_scene_env",
    "PhaseTiming": "_timing",
    "RewardTerms": "_scene_env",
    "SceneBuilder": "_share",
    "SceneEnv": "_scene_env",
    "SceneEnvCfg": "_config",
    "StopReasons": "_scene_env",
    "StructuredAction": "_scene_env",
    "StructuredObservation": "_scene_env",
}

register_envs()


def __getattr__(name: str) -> Any:
    return lazy_attribute(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
