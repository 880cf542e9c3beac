"""A memory of how a model was built, by which a change to it is found and undone.

The model of a shared scene belongs to every environment on it: a change made for one of them
changes the physics of all, and nothing would say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import mujoco
import numpy as np

from superdex.scenes._model_fields import is_picture, names_of
from superdex.scenes._model_memory import Place, is_as, place_of, put, sizes_and_flags, taken

# Larger textures take longer to compare than a reset may, and move nothing. Meshes and height
# fields are compared whatever their size: 0.03 ms per megabyte.
LARGE = 1 << 16
_SIZES = "sizes and flags"


class ModelGuard:
    """Remembers the arrays of a model, its sizes and flags, its options and its statistics.

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
        self._places: dict[str, Place] = {}
        self._numbers: list[_Numbers] = []
        self._spans: list[tuple[int, bytes, bool]] = []
        self._sizes: dict[str, int] = {}
        owners = [("", model), ("opt.", model.opt), ("stat.", model.stat)]
        if pictures:
            vis = model.vis
            owners = [(f"vis.{name}.", getattr(vis, name)) for name in names_of(type(vis))]
        else:
            self._sizes = self._read_sizes()
        for prefix, owner in owners:
            members = {prefix + name: getattr(owner, name) for name in names_of(type(owner))}
            # An array that owns its memory is a copy, not the model's own.
            places = {
                name: place_of(value)
                for name, value in members.items()
                if isinstance(value, np.ndarray) and value.size and not value.flags.owndata
            }
            # They lie before the options: one comparison for both.
            header = sizes_and_flags(model) if prefix == "opt." else None
            if header is not None:
                places[_SIZES] = header
            self._places |= places
            self._spans += [
                (place[0], taken(place), is_large_picture)
                for place, is_large_picture in _spans(places)
            ]
            if prefix:
                self._numbers.append(_Numbers(prefix, owner))

    def undo_changes(self, *, thorough: bool) -> list[str]:
        """Put back what is no longer as it was built, and return the names of it.

        Args:
            thorough: Look at large textures too.
        """
        changed = []
        # Before the spans: some numbers lie between two arrays, and go back with them.
        for numbers in self._numbers:
            changed += numbers.undo_changes()
        for start, memory, is_large_picture in self._spans:
            if (is_large_picture and not thorough) or is_as(start, memory):
                continue
            for name, (address, size) in self._places.items():
                offset = address - start
                if 0 <= offset < len(memory) and not is_as(address, memory[offset : offset + size]):
                    changed += self._changed_sizes() if name == _SIZES else [name]
            put(start, memory)
        return changed

    def _changed_sizes(self) -> list[str]:
        present = self._read_sizes()
        return [name for name, built in self._sizes.items() if present[name] != built]

    def _read_sizes(self) -> dict[str, int]:
        names = (*self._model._size_fields, *self._model._setconst_scalars)
        return {name: getattr(self._model, name) for name in names}


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


def _spans(places: dict[str, Place]) -> Iterator[tuple[Place, bool]]:
    """Yield places that hold them all: each large picture, marked, and all between."""
    start = stop = 0
    for name, (address, size) in _in_memory(places.items()):
        if size < LARGE or not is_picture(name):
            start, stop = start or address, address + size
            continue
        if start:
            yield (start, stop - start), False
        yield (address, size), True
        start = 0
    if start:
        yield (start, stop - start), False


def _in_memory(places: Iterable[tuple[str, Place]]) -> list[tuple[str, Place]]:
    return sorted(places, key=lambda named: named[1])
