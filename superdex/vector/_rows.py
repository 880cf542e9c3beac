"""The rows of the block that one group writes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["GroupArrays"]


@dataclass
class GroupArrays:
    """The rows of one group in one of the two buffers; the group writes them all.

    Attributes:
        final_observation: With SAME_STEP only.
        last_observation: Those of the last call, in the other buffer.
        flagged: Whether `terminated`, `truncated` or `autoreset` may hold a True; where not, a step
            leaves their cache lines, which a neighbouring worker may be writing, alone.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    autoreset: np.ndarray
    final_observation: np.ndarray | None = None
    last_observation: np.ndarray | None = field(default=None, init=False)
    flagged: bool = field(default=True, init=False)

    def clear_flags(self) -> None:
        """Set all flags to False."""
        if self.flagged:
            self.terminated.fill(False)
            self.truncated.fill(False)
            self.autoreset.fill(False)
            self.flagged = False
