"""Notices libraries that are cut short, as after a full disk: opening one would end the process."""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["is_cut_short"]

_LOADED = 1  # PT_LOAD


def is_cut_short(path: Path) -> bool:
    """Return whether a shared library lacks bytes that the system's loader would map.

    The loader maps what the program header names, and touching a page past the end of the file
    raises SIGBUS. False for files that are no ELF or can't be read: those it refuses by itself.
    The layout is that of the System V ABI, "Object Files", 64 bits.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            header = file.read(64)
            if len(header) < 64 or header[:5] != b"\x7fELF\x02" or header[5] not in (1, 2):
                return False
            order = "<" if header[5] == 1 else ">"
            (table,) = struct.unpack_from(f"{order}Q", header, 32)
            entry, count = struct.unpack_from(f"{order}HH", header, 54)
            if table + entry * count > size:
                return True
            file.seek(table)
            entries = file.read(entry * count)
    except OSError:
        return False
    if entry < 56:
        return False
    for start in range(0, entry * count, entry):
        (kind,) = struct.unpack_from(f"{order}I", entries, start)
        (offset,) = struct.unpack_from(f"{order}Q", entries, start + 8)
        (length,) = struct.unpack_from(f"{order}Q", entries, start + 32)
        if kind == _LOADED and offset + length > size:
            return True
    return False
