"""Thousands of environments as one batch.

`HybridVectorEnv` steps them in worker processes; `EnvGroup` is what runs inside each; `BoxSpaces`
makes environments with other spaces fit; `evaluate` plays a number of episodes in each of them.
"""

from superdex.vector._auto import SplitChoice, SplitTrial
from superdex.vector._box_spaces import BoxSpaces
from superdex.vector._evaluate import Evaluation, evaluate
from superdex.vector._group import EnvGroup
from superdex.vector._hybrid import HybridVectorEnv
from superdex.vector._results import BatchedResetResult, BatchedStepResult
from superdex.vector._slots import Ticket
from superdex.vector._split import SuggestedSplit, suggest_split
from superdex.vector._statistics import EnvTiming, Statistics

__all__ = [
    "BatchedResetResult",
    "BatchedStepResult",
    "BoxSpaces",
    "EnvGroup",
    "EnvTiming",
    "Evaluation",
    "HybridVectorEnv",
    "SplitChoice",
    "SplitTrial",
    "Statistics",
    "SuggestedSplit",
    "Ticket",
    "evaluate",
    "suggest_split",
]
