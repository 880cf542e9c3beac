"""Seeds and reset options: what a caller may pass, as one entry per environment.

The global index alone decides the seed, never the split into workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "Options",
    "Seed",
    "derived_seed",
    "drawn_seed",
    "normalize_options",
    "normalize_seeds",
    "select_rows",
]

Seed: TypeAlias = int | np.integer | Sequence[int | None] | np.ndarray | None
Options: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None


def normalize_seeds(seed: Seed, indices: Sequence[int]) -> list[int | None]:
    """Return one seed for each of `indices`: `None`, s + index, or the sequence's own entries.

    Raises:
        ValueError: If it is none of None, a non-negative integer, or a list, tuple or 1-D integer
            array with one non-negative integer or None for each environment.
    """
    if seed is None:
        return [None] * len(indices)
    if _is_integer(seed):
        first = _checked(seed, "seed")
        return [first + index for index in indices]
    if isinstance(seed, np.ndarray):
        if seed.ndim != 1 or seed.dtype.kind not in "iu":
            raise ValueError(
                f"seed must be a 1-D integer array, got shape {seed.shape} and dtype {seed.dtype}."
            )
    elif not isinstance(seed, list | tuple):
        raise ValueError(
            "seed must be None, a non-negative int, or a list, tuple or integer array of one seed "
            f"per environment, got {seed!r}."
        )
    if len(seed) != len(indices):
        raise ValueError(
            f"seed must hold one seed per environment: expected {len(indices)}, got {len(seed)}."
        )
    return [
        None if entry is None else _checked(entry, f"seed[{position}]")
        for position, entry in enumerate(seed)
    ]


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _checked(value: Any, name: str) -> int:
    if not _is_integer(value) or value < 0:
        raise ValueError(f"{name} must be None or a non-negative integer, got {value!r}.")
    return int(value)


def drawn_seed() -> int:
    """Return a fresh seed of 32 bits from the system's entropy."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def derived_seed(seed: int, episode: int) -> int:
    """Return the seed of a later episode, by `numpy.random.SeedSequence` over both numbers."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


def normalize_options(options: Options, count: int) -> list[dict[str, Any] | None]:
    """Return one options dict (a copy) or None for each of `count` environments.

    Raises:
        ValueError: If it is neither a dict nor a sequence of `count` dicts or Nones.
    """
    if options is None:
        return [None] * count
    if isinstance(options, Mapping):
        return [dict(options) for _ in range(count)]
    if not isinstance(options, list | tuple) or len(options) != count:
        got = f"{len(options)} of them" if isinstance(options, list | tuple) else repr(options)
        raise ValueError(f"options must be a dict, or a list of {count} dicts, got {got}.")
    for position, entry in enumerate(options):
        if entry is not None and not isinstance(entry, Mapping):
            raise ValueError(f"options[{position}] must be a dict or None, got {entry!r}.")
    return [None if entry is None else dict(entry) for entry in options]


def select_rows(indices_or_mask: Sequence[int] | np.ndarray, num_envs: int) -> list[int]:
    """Return the global indices that a list of indices or a boolean mask names, in their order.

    Raises:
        ValueError: On a mask of another length, on an index that is no integer, negative, out of
            range or named twice.
    """
    array = np.asarray(indices_or_mask)
    if array.dtype == np.bool_:
        if array.shape != (num_envs,):
            raise ValueError(f"A mask must have shape ({num_envs},), got {array.shape}.")
        return [int(index) for index in np.flatnonzero(array)]
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            "indices must be a list or 1-D array of integers, or a boolean mask, "
            f"got {indices_or_mask!r}."
        )
    rows = [int(index) for index in array]
    for index in rows:
        if not 0 <= index < num_envs:
            raise ValueError(f"Index {index} is out of range: expected 0 to {num_envs - 1}.")
    if len(set(rows)) != len(rows):
        twice = next(index for index in rows if rows.count(index) > 1)
        raise ValueError(f"Index {twice} is named twice; each environment may be named once.")
    return rows
