"""What hooks return, made fit for the caller."""

from __future__ import annotations

from typing import Any

import numpy as np


def owned(value: dict[str, Any]) -> dict[str, Any]:
    """Return an info whose arrays are copies: those of the scene change with the next step.

    Arrays without an axis, which hooks written for arrays give for one environment, become numbers.
    """
    return {name: _own_entry(entry) for name, entry in value.items()}


def _own_entry(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy() if value.ndim else value[()]
    if isinstance(value, dict):
        return owned(value)
    if type(value) in (list, tuple):
        return type(value)(map(_own_entry, value))
    return value


def as_number(name: str, term: Any) -> Any:
    """Return a reward term, where it is an array the one number in it.

    Raises:
        ValueError: It holds none or several.
    """
    if not isinstance(term, np.ndarray):
        return term
    if term.size != 1:
        raise ValueError(f"The reward term {name!r} must be one number, got shape {term.shape}")
    return term.item()


def in_words(reason: Any, plain: str) -> str:
    """Return a reason, a plain one where it is empty.

    Raises:
        TypeError: It is no string.
    """
    if not isinstance(reason, str):
        raise TypeError(f"A stop reason must be a string, or None to go on, got {reason!r}")
    return reason or plain
