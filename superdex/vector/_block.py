"""One block of memory that the parent and its workers map.

The block never has a name that could be left behind: on Linux it is a `memfd`, elsewhere a
temporary file that is unlinked as soon as it is open. Its descriptor travels to the workers over
their pipes. So nothing needs cleaning up when a process is killed, and the size of `/dev/shm`,
64 MB in many containers, does not matter.

A file that outgrows what it lies in ends in a bus error at some later touch. So its size is
compared with the room there is before it is made: in memory, in the container's share of it, and on
the disk of a temporary file.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np

from superdex._memory import check_memory, mebibytes
from superdex.vector._layout import Layout

__all__ = ["Block"]


class Block:
    """A block laid out as `layout`; `arrays` are NumPy views of it.

    Args:
        layout: The arrays of the block.
        fd: The descriptor of a block that another process made; None makes a new one, zeroed.
            The block owns the descriptor.

    Raises:
        MemoryError: If it needs more memory than is available, or may not be mapped.
        OSError: If there is no file to be had for it.
    """

    def __init__(self, layout: Layout, fd: int | None = None) -> None:
        if fd is None:
            check_memory(layout.nbytes - layout.nbytes_untouched)
        self.arrays: dict[str, np.ndarray] = {}
        self.fd = _nameless_file(layout.nbytes) if fd is None else fd
        try:
            if fd is None:
                os.ftruncate(self.fd, layout.nbytes)
            mapped = mmap.mmap(self.fd, layout.nbytes)
        except OSError as error:
            self.close()
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # it wants a descriptor of its own
            raise MemoryError(
                f"The batch needs a block of {mebibytes(layout.nbytes)}, which the system refused "
                f"({error.strerror}). Look for limits of this process (ulimit -v, ulimit -f), or "
                "use fewer environments or smaller observations."
            ) from error
        self.arrays = layout.views(memoryview(mapped))

    def close(self) -> None:
        """Give the descriptor back; memory goes when the last array on it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.arrays = {}

    def __enter__(self) -> Block:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _nameless_file(nbytes: int) -> int:
    """Return the descriptor of a new empty file that has no name, with room for that size."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # some sandboxes forbid it
            return os.memfd_create("superdex", os.MFD_CLOEXEC)
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise MemoryError(
            f"The batch needs a block of {mebibytes(nbytes)} and {folder}, where it is kept on "
            f"this system, has {mebibytes(free)} free. Point TMPDIR to another folder, or use "
            "fewer environments or smaller observations."
        )
    fd, path = tempfile.mkstemp(prefix="superdex-")
    Path(path).unlink()
    return fd
