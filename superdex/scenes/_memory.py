"""Everything that a simulation holds, saved and put back as three spans of memory.

`mjSTATE_INTEGRATION` is all that decides how a simulation moves on. A controller reads more: bias
forces, body and site poses, Jacobians, sensors, contacts, by name or through functions of MuJoCo
that take the `MjData`. After `mj_step` these describe the moment before its last substep, so they
can't be computed from the state. They lie in three places::

    mjData    solver counts … number of contacts, energy … pointers      a few kilobytes
    buffer    every array whose size the model decides                   7 to 40 KiB for a robot
    arena     contacts and constraints, as far as it is in use           0 to some 100 KiB

Copying them takes a microsecond or two; copying 150 arrays one by one takes fifty. A snapshot fits
the `MjData` that it was taken of and no other, because it holds pointers into it.

Where the members of `mjData` lie is worked out from MuJoCo's own description of the structure
(`mujoco.introspect`), and compared with the addresses of the arrays that the bindings give. What
stays out: statistics of solver iterations, and the largest use of memory so far.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from superdex.errors import StateCaptureUnsupported

__all__ = ["STATE_FIELDS", "DataMemory", "Snapshot"]

STATE_FIELDS = frozenset(
    "qpos qvel act history plastic qacc_warmstart plugin_state ctrl qfrc_applied xfrc_applied "
    "eq_active mocap_pos mocap_quat userdata".split()
)
"""The arrays of `mjSTATE_INTEGRATION`; the time is no array."""

_FIRST = "solver_niter"
"""The first member that is saved; before it lie sizes, which stay, and solver statistics."""

_ALIGNMENT = 64
_TYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "uintptr_t": ctypes.c_void_p,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "mjtSize": ctypes.c_int64,
    "mjtNum": ctypes.c_double,
    "mjtBool": ctypes.c_uint8,
    "mjtByte": ctypes.c_uint8,
}


class Snapshot:
    """What `DataMemory.save` took.

    Attributes:
        fixed: The structure's members, then the buffer, as bytes.
        arena: Bytes of the arena; the first `used` of them count.
        used: Bytes of the arena in use.
    """

    __slots__ = ("arena", "fixed", "used")

    def __init__(self, size: int) -> None:
        self.fixed: NDArray[np.uint8] = np.empty(size, np.uint8)
        self.arena: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.used = 0


class DataMemory:
    """Saves and puts back everything that one `MjData` holds.

    Args:
        data: The data; it must not be used after `data` was freed.

    Attributes:
        arrays: The names of all arrays of quantities that have a fixed size and are not empty;
            those of indices and flags are not among them.

    Raises:
        StateCaptureUnsupported: The structure is laid out in a way that is not understood.
    """

    def __init__(self, data: mujoco.MjData) -> None:
        structure = _structure()
        _check(structure, data)
        self._data = data
        start = data._address
        first = getattr(structure, _FIRST).offset
        members = _bytes_at(start + first, ctypes.sizeof(structure) - first)
        raw = structure.from_address(start)
        self._spans = (members, _bytes_at(raw.buffer or start, raw.nbuffer))
        # The buffer begins where its arrays are aligned.
        self._begin = -(-members.size // _ALIGNMENT) * _ALIGNMENT
        self._arena = _bytes_at(raw.arena or start, raw.narena)
        self._used = np.frombuffer(_bytes_at(start + structure.parena.offset, 8), np.int64)
        self._places = self._find_places(structure, raw)
        # The state's arrays are the first of the buffer; between them lie some that don't matter.
        ends = [self._end_of(name) for name in STATE_FIELDS if name in self._places]
        self._state = self._spans[1][: max([self._begin, *ends]) - self._begin]
        self._time_offset = structure.time.offset - first
        self._time = np.frombuffer(_bytes_at(start + structure.time.offset, 8), np.uint8)
        self.arrays = tuple(
            name
            for name, (_, dtype, shape) in self._places.items()
            if (dtype.kind == "f" or name.startswith("solver_")) and shape and 0 not in shape
        )

    def save(self, into: Snapshot | None = None) -> Snapshot:
        """Return everything that the data hold now.

        Args:
            into: A snapshot that is no longer needed, whose memory serves again.
        """
        members, buffer = self._spans
        snapshot = Snapshot(self._begin + buffer.size) if into is None else into
        snapshot.fixed[: members.size] = members
        snapshot.fixed[self._begin :] = buffer
        snapshot.used = used = int(self._used[0])
        if used > snapshot.arena.size:
            snapshot.arena = np.empty(used, np.uint8)
        snapshot.arena[:used] = self._arena[:used]
        return snapshot

    def load(self, snapshot: Snapshot) -> None:
        """Put back what was saved of this data."""
        members, buffer = self._spans
        members[:] = snapshot.fixed[: members.size]
        buffer[:] = snapshot.fixed[self._begin :]
        used = snapshot.used
        self._used[0] = used
        self._arena[:used] = snapshot.arena[:used]

    def save_state(self) -> NDArray[np.uint8]:
        """Return what `mj_step` starts from, as bytes that `load_state` puts back."""
        return np.concatenate((self._time, self._state))

    def state_in(self, snapshot: Snapshot) -> NDArray[np.uint8]:
        """Return what `save_state` would have returned when a snapshot was taken."""
        fixed, begin = snapshot.fixed, self._begin
        time = fixed[self._time_offset : self._time_offset + 8]
        return np.concatenate((time, fixed[begin : begin + self._state.size]))

    def load_state(self, state: NDArray[np.uint8]) -> None:
        """Put back what `mj_step` starts from; what derives from it is left as it is."""
        self._time[:] = state[:8]
        self._state[:] = state[8:]

    def holds(self, snapshot: Snapshot) -> bool:
        """Return whether the data hold just what was saved of them."""
        members, buffer = self._spans
        used = snapshot.used
        return (
            int(self._used[0]) == used
            and np.array_equal(members, snapshot.fixed[: members.size])
            and np.array_equal(buffer, snapshot.fixed[self._begin :])
            and np.array_equal(self._arena[:used], snapshot.arena[:used])
        )

    def read(self, snapshot: Snapshot, name: str) -> NDArray[Any]:
        """Return a view of one array of fixed size, or of one number, in a snapshot.

        Raises:
            KeyError: There is no such array or number in it.
        """
        offset, dtype, shape = self._places[name]
        return snapshot.fixed[offset : self._end_of(name)].view(dtype).reshape(shape)

    def _end_of(self, name: str) -> int:
        offset, dtype, shape = self._places[name]
        return offset + dtype.itemsize * int(np.prod(shape, dtype=np.int64))

    def _find_places(
        self, structure: type[ctypes.Structure], raw: Any
    ) -> dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]]:
        """Return where in a snapshot each array and number is: offset, dtype, shape."""
        places: dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]] = {}
        buffer = self._spans[1]
        first = getattr(structure, _FIRST).offset
        for name, kind in _members(structure):
            value = getattr(self._data, name, None)
            offset = getattr(structure, name).offset - first
            if isinstance(value, np.ndarray):
                if kind is ctypes.c_void_p:
                    within = (getattr(raw, name) or 0) - (raw.buffer or 0)
                    if not 0 <= within < max(buffer.size, 1):
                        continue  # in the arena, or empty
                    offset = self._begin + within
                if offset >= 0:
                    places[name] = offset, value.dtype, value.shape
            elif kind is ctypes.c_int and isinstance(value, int) and offset >= 0:
                places[name] = offset, np.dtype(np.int32), ()
        return places


@cache
def _structure() -> type[ctypes.Structure]:
    """Return MuJoCo's `mjData` as a structure of ctypes.

    Raises:
        StateCaptureUnsupported: Its description has members of an unknown type.
    """
    try:
        from mujoco.introspect.structs import STRUCTS

        return _structure_of(STRUCTS, "mjData")
    except (ImportError, KeyError, AttributeError, ValueError) as error:
        raise _not_understood(repr(error)) from error


def _structure_of(structs: Any, name: str) -> type[ctypes.Structure]:
    members = [(f.name, _type_of(structs, str(f.type))) for f in structs[name].fields]
    return type(name, (ctypes.Structure,), {"_fields_": members})


def _type_of(structs: Any, text: str) -> Any:
    if text.endswith("*"):
        return ctypes.c_void_p
    array = re.fullmatch(r"(\w+) ((?:\[\d+\])+)", text)
    if array is None:
        return _TYPES[text] if text in _TYPES else _structure_of(structs, text)
    kind = _type_of(structs, array[1])
    for count in re.findall(r"\d+", array[2]):
        kind = kind * int(count)
    return kind


def _members(structure: type[ctypes.Structure]) -> list[tuple[str, Any]]:
    return list(structure._fields_)  # type: ignore[arg-type]  # pairs, none of bits


def _check(structure: type[ctypes.Structure], data: mujoco.MjData) -> None:
    """Compare where the members of `mjData` are taken to be with what the bindings say.

    Raises:
        StateCaptureUnsupported: They are elsewhere.
    """
    start = data._address
    raw: Any = structure.from_address(start)
    compared = 0
    for name, kind in _members(structure):
        value = getattr(data, name, None)
        if isinstance(value, np.ndarray) and value.size and not value.flags.owndata:
            found = start + getattr(structure, name).offset
            if kind is ctypes.c_void_p:
                found = getattr(raw, name) or 0
            expected = value.__array_interface__["data"][0]
            compared += 1
        elif kind is ctypes.c_int and isinstance(value, int):
            found, expected = getattr(raw, name), value
        else:
            continue
        if found != expected:
            raise _not_understood(f"{name} is not where it should be")
    if not compared or not raw.nbuffer == data.nbuffer or not raw.narena == data.narena:
        raise _not_understood("its sizes are not where they should be")


def _not_understood(why: str) -> StateCaptureUnsupported:
    return StateCaptureUnsupported(
        "State capture is not supported for scenes with derived quantities in this version of "
        f"MuJoCo, {mujoco.mj_versionString()}, whose mjData is laid out in an unknown way ({why}). "
        "Give each environment a scene of its own (use_shared_scenes=False), or save named fields "
        "alone (MujocoScene(…, fields=…, only_fields=True))."
    )


def _bytes_at(address: int, size: int) -> NDArray[np.uint8]:
    """Return memory that somebody else owns as an array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
