"""The memory of a MuJoCo model, compared and written in place.

An `MjModel` begins with its sizes and flags, which lie before its options and can't all be set from
Python; its arrays lie in one allocation. A copy of a piece of either is `bytes`: comparing and
putting it back takes less than a microsecond, where NumPy takes several.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache

import mujoco
import numpy as np

__all__ = ["Place", "is_as", "place_of", "put", "sizes_and_flags", "taken"]

Place = tuple[int, int]
"""Address and number of bytes."""

# Sizes and flags, with room for a few more than there are.
_LONGEST = 4096

# PyDLL: letting other threads run meanwhile would take longer than the call.
_compare = ctypes.PyDLL(None).memcmp
_move = ctypes.PyDLL(None).memmove
_compare.argtypes = _move.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_move.restype = None


def place_of(array: np.ndarray) -> Place:
    """Return where the numbers of a contiguous array lie."""
    return array.__array_interface__["data"][0], array.nbytes


def taken(place: Place) -> bytes:
    """Return a copy of what lies there."""
    return ctypes.string_at(*place)


def is_as(address: int, memory: bytes) -> bool:
    """Return whether the same bytes lie there; compared in place."""
    return not _compare(address, memory, len(memory))


def put(address: int, memory: bytes) -> None:
    """Put a copy back."""
    _move(address, memory, len(memory))


def sizes_and_flags(model: mujoco.MjModel) -> Place | None:
    """Return where a model's sizes and flags lie; None if they lie otherwise than known.

    `mj_setConst` writes some, such as `ngravcomp`, by which a step knows what it may leave out.
    """
    size = _size_of_sizes_and_flags()
    return (model._address, size) if size else None


@cache
def _size_of_sizes_and_flags() -> int:
    """Return how many bytes they take, found in a model made for it; 0 where they are not there."""
    timestep = 0.0123456789
    model = mujoco.MjModel.from_xml_string(f"<mujoco><option timestep='{timestep}'/></mujoco>")
    start = getattr(model, "_address", 0)
    # The first array of the options, which begin with the timestep.
    length = place_of(model.opt.gravity)[0] - start
    if not start or not 0 < length <= _LONGEST:
        return 0
    before = taken((start, length))
    size = before.find(struct.pack("d", timestep))
    sizes = np.asarray(model._sizes, np.int64).tobytes()
    if size < len(sizes) or before[: len(sizes)] != sizes:
        return 0
    for name in set(mujoco.MjModel._setconst_scalars) - set(mujoco.MjModel._size_fields):
        setattr(model, name, not getattr(model, name))
        present = taken((start, size))
        if present == before[:size]:
            return 0
        before = present
    return size
