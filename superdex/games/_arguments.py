"""What callers of `VectorGameEnv` pass, checked before anything moves; nothing is ever wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["as_actions", "check_actions", "check_count", "check_seed", "normalize_seeds"]

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


def check_seed(seed: Any, num_envs: int) -> int:
    """Return the seed of environment 0, where environment i has seed + i.

    Raises:
        ValueError: If it is no integer, or one of those seeds needs more than 64 bits.
    """
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed <= _SEEDS - num_envs:
        raise ValueError(
            f"seed must be an integer from 0 to 2**64 - {num_envs}, so that seed + i has 64 bits "
            f"for every environment i, got {seed!r}. {_NOTHING}"
        )
    return int(seed)


def normalize_seeds(
    seeds: Any, rows: np.ndarray, num_envs: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return which of the rows have a seed, and those seeds.

    Args:
        seeds: None, an int, or one int or None for each row.
        rows: The rows that are reset.
        num_envs: How many environments there are.

    Returns:
        None if no row has one; else (rows,) bool, and (rows with one,) uint64.

    Raises:
        ValueError: If they are no such thing.
    """
    if seeds is None:
        return None
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
    if not has_one.any():
        return None
    numbers = [check_seed(seed, 1) for seed in given if seed is not None]
    return has_one, np.array(numbers, np.uint64)
