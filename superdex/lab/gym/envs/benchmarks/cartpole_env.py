"""A pole balanced on a cart."""

from superdex.envs import CartPoleEnv, CartPoleEnvCfg

__all__ = ["CartPoleEnv", "CartPoleEnvCfg"]
