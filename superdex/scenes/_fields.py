"""Configuration values: copies that later changes don't reach, and equality of any type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def own_copy(value: Any) -> Any:
    """Return a value with every array, dict, list and set in it copied."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: own_copy(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [own_copy(entry) for entry in value]
    if type(value) is tuple:
        return tuple(own_copy(entry) for entry in value)
    if isinstance(value, set):
        return set(value)
    return value


def is_same(a: Any, b: Any) -> bool:
    """Return whether two values say the same.

    Arrays compare by value, sequences by what is in them; nan equals nan, and a bool no number.
    What can't be compared is not the same.
    """
    if isinstance(a, np.ndarray | np.generic):
        a = a.tolist()
    if isinstance(b, np.ndarray | np.generic):
        b = b.tolist()
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, float) and isinstance(b, float) and a != a and b != b:
        return True
    try:
        return a is b or bool(a == b)
    except (TypeError, ValueError):
        return False
