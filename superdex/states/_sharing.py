"""Which parts of a tree are one object, or lie in one piece of memory.

An environment that keeps `self.position = self.buffer[:2]`, or one list under two names, writes to
both by one. Its state must bring that back.
"""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

__all__ = ["Sharing", "bounds_of", "memory_of", "sharing_in"]


@dataclass(frozen=True)
class Sharing:
    """What a tree holds more than once; valid while the tree lives.

    Attributes:
        twice: Ids of lists, dicts, sets and deques that are held in several places.
        roots: By the id of an array that overlaps another one: the array whose memory both show.
    """

    twice: frozenset[int]
    roots: dict[int, np.ndarray]


def sharing_in(tree: Any) -> Sharing:
    """Return what a tree holds more than once."""
    seen: set[int] = set()
    twice: set[int] = set()
    families: dict[int, list[np.ndarray]] = {}
    todo = [tree]
    while todo:
        value = todo.pop()
        kind = type(value)
        if kind is np.ndarray:
            families.setdefault(id(_root_of(value)), []).append(value)
        elif kind is tuple:
            todo.extend(value)
        elif kind in (list, dict, set, deque):
            if id(value) in seen:
                twice.add(id(value))
                continue
            seen.add(id(value))
            if kind is not set:  # which holds nothing that changes
                todo.extend(value.values() if kind is dict else value)
    roots = {}
    for family in families.values():
        if _overlap(family):
            root = _root_of(family[0])
            roots.update({id(array): root for array in family})
    return Sharing(frozenset(twice), roots)


def bounds_of(array: np.ndarray) -> tuple[int, int]:
    """Return the first address of an array and the one after its last."""
    first = array.__array_interface__["data"][0]
    if array.size == 0:
        return first, first
    spans = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    low = first + sum(span for span in spans if span < 0)
    return low, first + sum(span for span in spans if span > 0) + array.itemsize


def memory_of(root: np.ndarray) -> bytes:
    """Return the bytes that lie between the bounds of an array."""
    low, high = bounds_of(root)
    return ctypes.string_at(low, high - low)


def _root_of(array: np.ndarray) -> np.ndarray:
    """Return the array that the memory of a view belongs to."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _overlap(family: list[np.ndarray]) -> bool:
    """Return whether any two lie in the same place, as far as their bounds tell."""
    if len(family) == 1:
        return False
    spans = sorted(bounds_of(array) for array in family if array.size)
    return any(after[0] < before[1] for before, after in pairwise(spans))
