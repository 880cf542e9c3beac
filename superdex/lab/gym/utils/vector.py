"""Documented import path of the vector environment; its home is `superdex.vector`."""

from superdex.vector import BatchedResetResult, BatchedStepResult, HybridVectorEnv

__all__ = ["BatchedResetResult", "BatchedStepResult", "HybridVectorEnv"]
