"""Bytes with a name, a version and a checksum, and files of them that are whole or not there.

::

    magic  16 bytes     what it is
    version  4 bytes    of the format
    length   8 bytes    of the body
    checksum 32 bytes   SHA-256 of version, length and body
    body
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
from os import PathLike
from pathlib import Path

__all__ = ["seal", "unseal", "write_whole"]

_HEAD = struct.Struct("<16sIQ32s")


def seal(magic: bytes, version: int, body: bytes) -> bytes:
    """Return the body with its head before it."""
    return _HEAD.pack(magic, version, len(body), _checksum(version, body)) + body


def unseal(magic: bytes, version: int, data: bytes, what: str) -> bytes:
    """Return the body.

    Args:
        magic: What it must be.
        version: The newest version that can be read.
        data: What `seal` returned, or anything else.
        what: In words, for errors.

    Raises:
        TypeError: If `data` are no bytes.
        ValueError: If it is something else, of a newer version, cut short or damaged.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{what} must be bytes, got {type(data).__name__}.")
    data = bytes(data)
    if data[: len(magic)] != magic[: len(data)] or not data:
        raise ValueError(
            f"This is no {what}: expected bytes that begin with {magic.rstrip(bytes(1))!r}, got "
            f"{data[:16]!r}."
        )
    if len(data) < _HEAD.size:
        raise ValueError(
            f"The {what} is cut short: expected a head of {_HEAD.size} bytes, got {len(data)}."
        )
    _, found, length, checksum = _HEAD.unpack_from(data)
    if found > version:
        raise ValueError(
            f"The {what} has format {found}, written by a newer version of superdex; this one "
            f"reads formats up to {version}. Update superdex."
        )
    body = data[_HEAD.size :]
    if len(body) < length:
        raise ValueError(
            f"The {what} is cut short: expected {length} bytes after its head, got {len(body)}."
        )
    if len(body) > length or _checksum(found, body) != checksum:
        raise ValueError(f"The {what} is damaged: its bytes are not those that were written.")
    return body


def write_whole(path: str | PathLike[str], data: bytes) -> None:
    """Write a file so that whoever reads it finds all of it, or what was there before.

    It is written beside its place, flushed to the disk, and then put there in one step. A process
    that is killed in between leaves the old file as it was. A link stays one: what it leads to is
    written.
    """
    target = Path(path).resolve()
    # a name may be as long as the system allows already
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name[:32]}.", suffix=".tmp", dir=target.parent
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Have the folder's entry on the disk too, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    """Return the process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _checksum(version: int, body: bytes) -> bytes:
    return hashlib.sha256(struct.pack("<IQ", version, len(body)) + body).digest()
