"""Warnings that point at the caller's line, however deep in this library they arise."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = ["warn_caller"]


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn, as if from the innermost line outside of superdex."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("superdex."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
