"""Infos of single environments as arrays by key, each with its presence mask.

This is the general path: pure, exact, for whatever environments put into their infos. The fast
path of `_columns` gives the same result for the numeric keys that it has learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["InfoEntry", "mask_in_the_way", "merge_infos"]

InfoEntry: TypeAlias = tuple[int, Mapping[Any, Any]]
"""The row of an environment and what it gave."""

_SCALARS = (bool, int, float, complex, np.bool_, np.number)
_NUMERIC_KINDS = "biufc"


def merge_infos(
    entries: Iterable[InfoEntry],
    num_envs: int,
    notice: Callable[[str], None],
) -> dict[Any, Any]:
    """Return `{key: array, f"_{key}": mask}` over all environments.

    A key's dtype is promoted to one that holds every value exactly, else the array is of objects;
    strings, None, ragged and odd values make an object array too, in which numbers are Python's. A
    missing entry is zero, False or None. Dicts merge into a dict of the same form; a dict beside
    anything else makes an object array.

    Args:
        entries: (row, info) pairs; a row may come several times with different keys.
        num_envs: The length of every array.
        notice: Called with a message where an environment's own key is in the way of a mask.
    """
    columns: dict[Any, tuple[list[int], list[Any]]] = {}
    for row, info in entries:
        for key, value in info.items():
            column = columns.get(key)
            if column is None:
                columns[key] = column = ([], [])
            column[0].append(row)
            column[1].append(value)
    merged: dict[Any, Any] = {}
    masks: dict[str, np.ndarray] = {}
    for key, (rows, values) in columns.items():
        merged[key] = _merge_values(rows, values, num_envs, notice)
        name = f"_{key}"
        if name in masks:
            notice(
                f"Environments give two infos whose presence mask is named {name!r}: rename one."
            )
        masks[name] = mask = np.zeros(num_envs, np.bool_)
        mask[rows] = True
    for name in masks.keys() & merged.keys():
        notice(mask_in_the_way(name[1:]))
    merged.update(masks)
    return merged


def mask_in_the_way(key: str) -> str:
    """Return the notice for an environment's own info under the name of a mask."""
    return (
        f"An environment gives an info named {'_' + key!r}, which is also the presence mask of "
        f"{key!r}; the mask is kept. Rename the info."
    )


def _merge_values(
    rows: Sequence[int], values: Sequence[Any], num_envs: int, notice: Callable[[str], None]
) -> Any:
    if all(isinstance(value, dict) for value in values):
        return merge_infos(zip(rows, values, strict=True), num_envs, notice)
    numbers = _as_numbers(values)
    if numbers is not None:
        merged = np.zeros((num_envs, *numbers.shape[1:]), numbers.dtype)
        merged[rows] = numbers
        return merged
    objects = np.full(num_envs, None, dtype=object)
    for row, value in zip(rows, values, strict=True):
        objects[row] = _as_object(value)
    return objects


def _as_object(value: Any) -> Any:
    """Return a value for an object array: a number as Python's own.

    NumPy's type of a number says no more than its value, and is lost where it went through an
    array; so the type is the same on every way.
    """
    if isinstance(value, np.timedelta64):  # a number to NumPy, but not without its unit
        return value
    if isinstance(value, np.bool_ | np.number):
        return value.item()
    if type(value) is np.ndarray and value.shape == () and value.dtype.kind in _NUMERIC_KINDS:
        return value.item()
    return value


def _as_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """Return the values stacked in a dtype that holds each exactly, or None where there is none."""
    if set(map(type, values)) == {float}:
        return np.array(values)
    arrays = []
    for value in values:
        if not isinstance(value, (*_SCALARS, np.ndarray)) or isinstance(value, np.ma.MaskedArray):
            return None
        array = np.asarray(value)
        if array.dtype.kind not in _NUMERIC_KINDS:
            return None
        arrays.append(array)
    if any(array.shape != arrays[0].shape for array in arrays):
        return None
    dtype = np.result_type(*{array.dtype for array in arrays})
    if any(array.dtype != dtype and not _holds_exactly(dtype, array) for array in arrays):
        return None
    return np.stack([array.astype(dtype, copy=False) for array in arrays])


def _holds_exactly(dtype: np.dtype, array: np.ndarray) -> bool:
    """Return whether the dtype that `array` is promoted to holds each of its values.

    Only integers that become floats can lose digits; Python compares the two exactly.
    """
    if array.dtype.kind not in "iu" or dtype.kind not in "fc":
        return True
    return bool(array.astype(dtype).real.tolist() == array.tolist())
