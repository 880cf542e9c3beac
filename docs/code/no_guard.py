"""A program without a main guard, which ends with an explanation."""

from superdex.envs import CartPoleEnv
from superdex.vector import HybridVectorEnv

envs = HybridVectorEnv([CartPoleEnv] * 4, num_envs_per_worker=2)
