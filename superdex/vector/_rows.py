"""The rows of the block that one group writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from superdex.vector._layout import OUTPUTS

__all__ = ["GroupArrays", "LastResults"]


@dataclass
class GroupArrays:
    """The rows of one group in one buffer of outputs.

    Attributes:
        final_observation: With SAME_STEP only.
        last: The last results of every row, whichever buffer they are in.
        flagged: Whether `terminated`, `truncated` or `autoreset` may hold a True, or `action_valid`
            a False; where not, a step leaves their cache lines, which a neighbouring worker may be
            writing, alone.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    autoreset: np.ndarray
    action_valid: np.ndarray
    final_observation: np.ndarray | None = None
    last: LastResults | None = field(default=None, init=False)
    flagged: bool = field(default=True, init=False)
    _cleared: list[tuple[memoryview, bytes]] = field(default_factory=list, init=False)

    def clear_flags(self, rows: np.ndarray | None = None) -> None:
        """Set the flags of some rows to False, and `action_valid` to True; of all if None."""
        if rows is not None:
            self.terminated[rows] = False
            self.truncated[rows] = False
            self.autoreset[rows] = False
            self.action_valid[rows] = True
        elif self.flagged:
            self.terminated.fill(False)
            self.truncated.fill(False)
            self.autoreset.fill(False)
            self.action_valid.fill(True)
            self.flagged = False
        else:
            for view, values in self._cleared:
                view[:] = values

    def share(self) -> None:
        """Clear flags every time from now on, since the caller may write to them as well.

        It is done by bytes, which takes half the time of `fill`.
        """
        for array, value in ((self.terminated, 0), (self.truncated, 0), (self.action_valid, 1)):
            self._cleared.append((array.view(np.uint8).data, bytes([value]) * len(array)))

    def clear_results(self, rows: np.ndarray | None = None) -> None:
        """Set rewards and flags to what they are after a reset: of some rows, or of all."""
        which = slice(None) if rows is None else rows
        self.reward[which] = 0.0
        self.clear_flags(rows)
        self.action_valid[which] = False  # there was none
        self.flagged = True

    def scratch(self) -> GroupArrays:
        """Return arrays of the same form, with the same last results."""
        arrays = (getattr(self, name) for name in OUTPUTS)
        scratch = GroupArrays(*(None if a is None else a.copy() for a in arrays))  # type: ignore[arg-type]  # only the last may be None
        scratch.last = self.last
        return scratch

    def take(self, other: GroupArrays) -> None:
        """Become what the other one is."""
        for name in OUTPUTS:
            if (array := getattr(self, name)) is not None:
                array[:] = getattr(other, name)

    def last_observation(self, row: int) -> np.ndarray:
        """Return the last observation of a row that the caller was given, as a view."""
        assert self.last is not None, "there is none before the first reset"
        return self.last.observation(row)


@dataclass
class LastResults:
    """Where the last results of each row are that the caller was given.

    Attributes:
        home: (K,) the number of the buffer of each row.
        buffers: All buffers by number; None where there is none any more.
    """

    home: np.ndarray
    buffers: Sequence[GroupArrays | None]

    def observation(self, row: int) -> np.ndarray:
        """Return the last observation of a row, as a view."""
        out = self.buffers[self.home[row]]
        assert out is not None, "a buffer is kept for as long as it is some row's home"
        return np.asarray(out.observation[row])
