"""A memory of how a model was built, by which a change to it is found and undone.

The model of a shared scene belongs to every environment on it: a change made for one of them
changes the physics of all, and nothing would say so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import mujoco
import numpy as np

# Larger arrays, of meshes, textures and height fields, take longer to compare than a reset may.
LARGE = 1 << 16

_Place = tuple[int, int]

_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t


class ModelGuard:
    """Remembers the arrays of a model, its options and its statistics.

    Settings of pictures (`model.vis`) change no physics, and renderers set some: they are a guard's
    only where it is made for them, and then it watches nothing else.

    All arrays of an `MjModel` lie in one allocation, and those of its options in one structure, so
    that a few spans of memory hold them all and a comparison takes microseconds.

    Args:
        model: The model as it was built.
        pictures: Watch the settings of pictures instead of the physics.
    """

    def __init__(self, model: mujoco.MjModel, *, pictures: bool = False) -> None:
        # Its memory must outlive this.
        self._model = model
        self._places: dict[str, _Place] = {}
        self._numbers: list[_Numbers] = []
        self._spans: list[tuple[int, bytes, bool]] = []
        owners = [("", model), ("opt.", model.opt), ("stat.", model.stat)]
        if pictures:
            vis = model.vis
            owners = [(f"vis.{name}.", getattr(vis, name)) for name in names_of(type(vis))]
        for prefix, owner in owners:
            members = {prefix + name: getattr(owner, name) for name in names_of(type(owner))}
            # An array that owns its memory is a copy, not the model's own.
            places = {
                name: (value.__array_interface__["data"][0], value.nbytes)
                for name, value in members.items()
                if isinstance(value, np.ndarray) and value.size and not value.flags.owndata
            }
            self._places |= places
            self._spans += [
                (start, ctypes.string_at(start, size), large)
                for start, size, large in _spans(sorted(places.values()))
            ]
            # The model's own numbers are sizes, which nobody can set.
            if prefix:
                self._numbers.append(_Numbers(prefix, owner))

    def undo_changes(self, *, thorough: bool) -> list[str]:
        """Put back what is no longer as it was built, and return the names of it.

        Args:
            thorough: Look at large arrays (meshes, textures, height fields) too.
        """
        changed = []
        # Before the spans: some numbers lie between two arrays, and go back with them.
        for numbers in self._numbers:
            changed += numbers.undo_changes()
        for start, memory, large in self._spans:
            # compared in place: a copy of the memory would take longer than comparing it
            if (large and not thorough) or not _compare(start, memory, len(memory)):
                continue
            for name, (address, size) in self._places.items():
                offset = address - start
                if 0 <= offset < len(memory):
                    built = memory[offset : offset + size]
                    if ctypes.string_at(address, size) != built:
                        changed.append(name)
            ctypes.memmove(start, memory, len(memory))
        return changed


class _Numbers:
    """The numbers of one MuJoCo structure as they were when this was made."""

    def __init__(self, prefix: str, owner: Any) -> None:
        self._prefix = prefix
        self._owner = owner
        self._names = [
            n for n in names_of(type(owner)) if isinstance(getattr(owner, n), int | float)
        ]
        self._read = attrgetter(*self._names) if len(self._names) > 1 else self._read_few
        self._built: tuple[float, ...] = self._read(owner)

    def _read_few(self, owner: Any) -> tuple[float, ...]:
        """Read none or one; `attrgetter` returns a tuple from two on."""
        return tuple(getattr(owner, name) for name in self._names)

    def undo_changes(self) -> list[str]:
        """Put back what is no longer as it was, and return the names of it."""
        present = self._read(self._owner)
        if present == self._built:
            return []
        changed = []
        for name, number, built in zip(self._names, present, self._built, strict=True):
            if number != built:
                changed.append(self._prefix + name)
                setattr(self._owner, name, built)
        return changed


def names_of(cls: type) -> list[str]:
    """Return the names of the fields of a MuJoCo structure."""
    return [
        name
        for name in dir(cls)
        if not name.startswith("_") and isinstance(getattr(cls, name), property)
    ]


def _spans(places: list[_Place]) -> Iterator[tuple[int, int, bool]]:
    """Yield start, size and whether it is large: each large array, and all between two of them."""
    start = stop = 0
    for address, size in places:
        if size < LARGE:
            start, stop = start or address, address + size
            continue
        if start:
            yield start, stop - start, False
        yield address, size, True
        start = 0
    if start:
        yield start, stop - start, False
