"""What callers pass, checked before anything moves; nothing is ever wrapped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

__all__ = [
    "as_actions",
    "as_integers",
    "as_mask",
    "check_actions",
    "check_count",
    "check_seed",
    "hint",
    "normalize_seeds",
]

_NOTHING = "Nothing has changed."
_INT32 = np.iinfo(np.int32)
_SEEDS = 2**64


def check_count(name: str, value: Any, least: int, most: int = int(_INT32.max)) -> int:
    """Return a number of things as an int.

    Raises:
        ValueError: If it is no integer from `least` to `most`, by default what an int32 can hold.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}.")
    return int(value)


def hint(name: object, known: Iterable[str]) -> str:
    """Return a sentence with the known name that is nearest; empty where none is near."""
    close = get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_actions(actions: Any, count: int) -> None:
    """Raise `ValueError` unless these are `count` action ids that an int32 can hold.

    Ids that no action has are fine here: to play one is illegal in the game, and no error.
    """
    if not isinstance(actions, np.ndarray):
        raise ValueError(
            f"actions must be an array of int32 of shape ({count},), got {type(actions)}. "
            f"{_NOTHING}"
        )
    if actions.shape != (count,):
        raise ValueError(
            f"actions must have the shape ({count},), one id for each game that is stepped, got "
            f"{actions.shape}. {_NOTHING}"
        )
    if actions.dtype == np.int32:
        return
    if actions.dtype.kind not in "iu":
        raise ValueError(
            f"actions must be integers, best int32 as batch['action_id'] is, got the dtype "
            f"{actions.dtype}. {_NOTHING}"
        )
    # compared in their own dtype, so that no large number is wrapped to a small one
    outside = (actions < _INT32.min) | (actions > _INT32.max)
    if outside.any():
        raise ValueError(
            f"actions must be ids that an int32 can hold, got {actions[outside][0]}. {_NOTHING}"
        )


def as_actions(actions: np.ndarray) -> np.ndarray:
    """Return actions that were checked as int32, C-contiguous."""
    return np.ascontiguousarray(actions, np.int32)


def as_integers(values: Any, dtype: Any, what: str, count: int | None) -> np.ndarray:
    """Return a contiguous copy of the values as dtype; nothing is rounded and nothing wraps."""
    given = np.asarray(values)
    if given.ndim != 1 or (count is not None and len(given) != count):
        shape = "(rows,)" if count is None else f"({count},)"
        raise ValueError(f"{what} must have shape {shape}, got {given.shape}.")
    if given.dtype == dtype:
        return given.copy()
    # Python's integers that fit no dtype come as objects: out of range, not of another kind.
    huge = given.dtype == object and all(type(value) is int for value in given)
    if given.dtype.kind not in "iu" and len(given) and not huge:
        raise TypeError(f"{what} must be integers, got {given.dtype}.")
    bounds = np.iinfo(dtype)
    if len(given) and (int(given.min()) < bounds.min or int(given.max()) > bounds.max):
        raise ValueError(f"{what} must lie in {bounds.min} to {bounds.max}, got {given}.")
    return given.astype(dtype)


def as_mask(values: Any, what: str, count: int) -> np.ndarray | None:
    """Return booleans in C order, or None for None."""
    if values is None:
        return None
    given = np.asarray(values, order="C")
    if given.dtype != np.bool_ or given.shape != (count,):
        raise ValueError(
            f"{what} must be booleans of shape ({count},), got {given.dtype} of {given.shape}."
        )
    return given


def check_seed(seed: Any, num_envs: int) -> int:
    """Return the seed of environment 0, where environment i has seed + i.

    Raises:
        ValueError: If it is no integer, or one of those seeds needs more than 64 bits.
    """
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed <= _SEEDS - num_envs:
        raise ValueError(
            f"seed must be an integer from 0 to 2**64 - {num_envs}, so that seed + i has 64 bits "
            f"for every environment i, or a list or 1-D integer array of one for each environment, "
            f"or None; got {seed!r}. {_NOTHING}"
        )
    return int(seed)


def normalize_seeds(seeds: Any, rows: np.ndarray, num_envs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the rows have a seed, and those seeds.

    Args:
        seeds: None, an int, or one int or None for each row.
        rows: The rows that are reset.
        num_envs: How many environments there are.

    Returns:
        (rows,) bool, and (rows,) uint64 with zeros where there is no seed.

    Raises:
        ValueError: If they are no such thing.
    """
    if seeds is None:
        return np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.uint64)
    if isinstance(seeds, np.ndarray) and seeds.ndim == 1 and seeds.dtype.kind in "iu":
        given: list[Any] = seeds.tolist()
    elif isinstance(seeds, Sequence) and not isinstance(seeds, str | bytes):
        given = list(seeds)
    else:
        first = check_seed(seeds, num_envs)
        given = [first + row for row in rows.tolist()]
    if len(given) != len(rows):
        raise ValueError(
            f"seed must be one integer, or one integer or None for each of the {len(rows)} "
            f"environments that are reset, got {len(given)} of them. {_NOTHING}"
        )
    has_one = np.array([seed is not None for seed in given], np.bool_)
    numbers = [0 if seed is None else check_seed(seed, 1) for seed in given]
    return has_one, np.array(numbers, np.uint64)
