"""A planar cheetah that runs."""

from superdex.envs import HalfCheetahEnv, HalfCheetahEnvCfg

__all__ = ["HalfCheetahEnv", "HalfCheetahEnvCfg"]
