"""What callers pass, checked before anything moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import numpy as np

from superdex.buffers._spec import ArraySpec

__all__ = ["check_buffers", "check_env_ids", "check_rows"]

_NOTHING = "Nothing has changed."
_MASK = "; np.flatnonzero(mask) gives those of a mask"


def check_buffers(
    buffers: Any, spec: Mapping[str, ArraySpec], *, optional: Collection[str] = ("action",)
) -> None:
    """Raise `ValueError` unless results can be written to these buffers as they are.

    Keys are looked at in the order of `spec`, and each of them in this order: whether it is there,
    is an array, has the dtype, as many dimensions, the shape, is C-contiguous, can be written to,
    and is aligned. Last comes whether any two of them overlap.

    Args:
        buffers: Arrays by name. Names that are not in `spec` are ignored.
        spec: What is expected. Dtypes are compared by value.
        optional: Names that may be missing.

    Raises:
        ValueError: With the key, what was expected and what came instead.

    Example:
        >>> spec = {"reward": ArraySpec((4,), np.dtype(np.float64))}
        >>> check_buffers({"reward": np.zeros(4)}, spec)
        >>> check_buffers({"reward": np.zeros(3)}, spec)
        Traceback (most recent call last):
        ValueError: buffers['reward'] must be float64 of shape (4,), got the shape (3,). Nothing ...
    """
    if not isinstance(buffers, Mapping):
        several = isinstance(buffers, list | tuple) and {*map(type, buffers)} == {dict}
        hint = " Pass one of its dicts, such as buffers[0]." if several else ""
        raise ValueError(
            f"buffers must be a dict of arrays by name, got {type(buffers)}. {_NOTHING}{hint}"
        )
    bounds: list[tuple[int, int, str]] = []
    for name, expected in spec.items():
        array: Any = buffers.get(name)
        if array is None and name in optional and name not in buffers:
            continue
        got = _difference(array, expected)
        if got is not None:
            if name not in buffers:
                got = _missing(name, buffers)
            raise ValueError(f"buffers[{name!r}] must be {expected}, got {got}. {_NOTHING}")
        if array.size:
            start = array.__array_interface__["data"][0]
            bounds.append((start, start + array.nbytes, name))
    bounds.sort()
    for (_, end, one), (start, _, other) in pairwise(bounds):
        if start < end:
            raise ValueError(
                f"buffers[{one!r}] and buffers[{other!r}] must be apart from each other, got two "
                f"arrays that overlap in memory. {_NOTHING}"
            )


def _difference(array: Any, expected: ArraySpec) -> str | None:
    """Return what an array is that it should not be; None if it is as expected."""
    if not isinstance(array, np.ndarray):
        return f"{type(array)}"
    flags = array.flags
    if array.dtype != expected.dtype:
        return f"the dtype {array.dtype}"
    if array.ndim != len(expected.shape):
        return f"{array.ndim} dimensions, of shape {array.shape}"
    if array.shape != expected.shape:
        return f"the shape {array.shape}"
    if not flags.c_contiguous:
        return f"an array that is not C-contiguous, with strides {array.strides}"
    if not flags.writeable:
        return "a read-only array"
    if not flags.aligned:
        return "an array that is not aligned in memory"
    return None


def _missing(name: str, buffers: Mapping[Any, Any]) -> str:
    near = get_close_matches(name, [key for key in buffers if isinstance(key, str)], n=1)
    hint = f"; the nearest is {near[0]!r}" if near else ""
    return f"no such key ({', '.join(map(repr, buffers)) or 'none at all'}){hint}"


def check_env_ids(env_ids: Any, num_envs: int) -> np.ndarray:
    """Return the ids of environments as an array of its own, in their order.

    Args:
        env_ids: A sequence or a one-dimensional array of integers, none of them twice.
        num_envs: How many environments there are.

    Returns:
        (rows,) intp.

    Raises:
        ValueError: If they are no integers (bools and floats are none), out of range, or if one of
            them comes twice.

    Example:
        >>> check_env_ids([2, 0], num_envs=3)
        array([2, 0])
    """
    ids = _as_integers(env_ids)
    if ids.ndim != 1:
        raise ValueError(
            f"env_ids must have one dimension, got {ids.ndim}, of shape {ids.shape}. {_NOTHING}"
        )
    # compared in their own dtype, so that no large number is wrapped to a small one
    outside = (ids < 0) | (ids >= num_envs)
    if outside.any():
        raise ValueError(
            f"env_ids must lie between 0 and {num_envs - 1}, got {_first(ids[outside])}. {_NOTHING}"
        )
    rows = ids.astype(np.intp)  # a copy
    counts = np.bincount(rows, minlength=num_envs)
    if (counts > 1).any():
        raise ValueError(
            f"env_ids must name each environment once, got {_first(np.flatnonzero(counts > 1))} "
            f"more than once. {_NOTHING}"
        )
    return rows


def check_rows(rows: Any, num_envs: int) -> None:
    """Raise `ValueError` unless a slot can have that many rows."""
    is_integer = isinstance(rows, int | np.integer) and not isinstance(rows, bool)
    if not is_integer or not 0 <= rows <= num_envs:
        raise ValueError(
            f"rows must be an integer from 0 to {num_envs}, the number of environments, got "
            f"{rows!r}."
        )


def _as_integers(env_ids: Any) -> np.ndarray:
    if isinstance(env_ids, np.ndarray):
        ids = env_ids
    elif isinstance(env_ids, Sequence) and not isinstance(env_ids, str | bytes):
        for env_id in env_ids:
            if isinstance(env_id, bool | np.bool_) or not isinstance(env_id, int | np.integer):
                hint = _MASK if isinstance(env_id, bool | np.bool_) else ""
                raise ValueError(f"env_ids must be integers, got {env_id!r}{hint}. {_NOTHING}")
        ids = np.asarray(env_ids) if len(env_ids) else np.empty(0, np.intp)
    else:
        raise ValueError(
            f"env_ids must be a sequence or an array of integers, got {type(env_ids)}. {_NOTHING}"
        )
    if ids.dtype.kind not in "iu":
        hint = _MASK if ids.dtype.kind == "b" else ""
        raise ValueError(f"env_ids must be integers, got the dtype {ids.dtype}{hint}. {_NOTHING}")
    return ids


def _first(values: np.ndarray) -> str:
    """Return the first few of some numbers, in words."""
    shown = ", ".join(map(str, values[:5].tolist()))
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
