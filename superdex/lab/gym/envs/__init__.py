"""The environment base under the names `MochiEnv` and `MochiEnvCfg`, and its types."""

from superdex.envs import (
    Action,
    Info,
    Observation,
    RewardTerms,
    SceneBuilder,
    StopReasons,
    StructuredAction,
    StructuredObservation,
)
from superdex.envs import SceneEnv as MochiEnv
from superdex.envs import SceneEnvCfg as MochiEnvCfg

__all__ = [
    "Action",
    "Info",
    "MochiEnv",
    "MochiEnvCfg",
    "Observation",
    "RewardTerms",
    "SceneBuilder",
    "StopReasons",
    "StructuredAction",
    "StructuredObservation",
]
