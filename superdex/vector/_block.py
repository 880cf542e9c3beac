"""One block of memory that the parent and its workers map.

The block never has a name that could be left behind: on Linux it is a `memfd`, elsewhere a
temporary file that is unlinked as soon as it is open. Its descriptor travels to the workers over
their pipes. So nothing needs cleaning up when a process is killed, and the size of `/dev/shm`,
64 MB in many containers, does not matter.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from types import TracebackType

import psutil

from superdex.vector._layout import Layout

__all__ = ["Block"]


class Block:
    """A block laid out as `layout`; `arrays` are NumPy views of it.

    Args:
        layout: The arrays of the block.
        fd: The descriptor of a block that another process made; None makes a new one, zeroed.
            The block owns the descriptor.

    Raises:
        MemoryError: If the machine has less memory available than the block takes.
    """

    def __init__(self, layout: Layout, fd: int | None = None) -> None:
        self.fd = _reserve(layout.nbytes) if fd is None else fd
        self.arrays = layout.views(memoryview(mmap.mmap(self.fd, layout.nbytes)))

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


def _reserve(nbytes: int) -> int:
    """Return the descriptor of a new nameless file of that size, its room checked beforehand."""
    available = psutil.virtual_memory().available
    if nbytes > available:
        raise MemoryError(
            f"The batch needs a block of {nbytes / 2**20:,.0f} MiB and the machine has "
            f"{available / 2**20:,.0f} MiB available. Use fewer environments or smaller "
            "observations."
        )
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("superdex", os.MFD_CLOEXEC)
    else:
        fd, path = tempfile.mkstemp(prefix="superdex-")
        Path(path).unlink()
    try:
        os.ftruncate(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise
    return fd
