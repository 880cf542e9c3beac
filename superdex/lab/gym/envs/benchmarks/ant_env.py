"""An ant that walks."""

from superdex.envs import AntEnv, AntEnvCfg

__all__ = ["AntEnv", "AntEnvCfg"]
