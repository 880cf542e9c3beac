"""What differs between two results, told by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

__all__ = ["differing_entries", "differing_terms", "equal", "observation_labels"]

_MOST_NAMED = 3
_TERM = "reward_"


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are the same; NaN equals NaN, and 0.0 does not equal −0.0."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, np.ndarray | np.generic | float) or isinstance(b, np.ndarray | np.generic):
        left, right = np.asarray(a), np.asarray(b)
        if left.dtype.kind not in "biufc" or right.dtype.kind not in "biufc":
            return left.shape == right.shape and bool(np.all(left == right))
        same = np.array_equal(left, right, equal_nan=True)
        both_real = left.dtype.kind == right.dtype.kind == "f"
        return same and (not both_real or np.array_equal(np.signbit(left), np.signbit(right)))
    return bool(a == b)


def observation_labels(env: gym.Env[Any, Any]) -> list[str] | None:
    """Return a name for each entry of an environment's observation, where it declares names."""
    layout = getattr(env.unwrapped, "_observation_layout", None)
    if layout is None or env.observation_space.shape != (layout.size,):
        return None
    labels: list[str] = layout.labels()
    return labels


def differing_entries(got: Any, expected: Any, labels: Sequence[str] | None = None) -> str:
    """Return which entries differ, with both values; empty where that says no more than the whole.

    Args:
        got: An array, or a mapping.
        expected: Likewise.
        labels: Names of an array's entries.
    """
    if isinstance(got, Mapping) and isinstance(expected, Mapping):
        return _in_words(
            (f"[{key!r}]", got.get(key, "nothing"), expected.get(key, "nothing"))
            for key in [*expected, *(key for key in got if key not in expected)]
            if key not in got or key not in expected or not equal(got[key], expected[key])
        )
    if not isinstance(got, np.ndarray) or not isinstance(expected, np.ndarray):
        return ""
    if got.shape != expected.shape:
        return f"the shape ({got.shape}, expected {expected.shape})"
    pairs = zip(np.ndindex(got.shape), got.flat, expected.flat, strict=True)
    return _in_words(
        (
            labels[place[0]] if labels is not None and len(place) == 1 else str(list(place)),
            one,
            other,
        )
        for place, one, other in pairs
        if not equal(one, other)
    )


def differing_terms(got: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    """Return which terms of the reward differ, with both values, as infos hold them."""
    one, other = (
        {key: value for key, value in info.items() if str(key).startswith(_TERM)}
        for info in (got, expected)
    )
    return differing_entries(one, other)


def _in_words(differences: Any) -> str:
    told = [f"{name} ({one}, expected {other})" for name, one, other in differences]
    more = len(told) - _MOST_NAMED
    return ", ".join(told[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
