"""Whether a batch fits into memory: found out before it is taken, not when it has run out."""

from __future__ import annotations

import psutil

from superdex._limits import available_memory, container_memory

__all__ = ["check_memory", "mebibytes"]


def check_memory(nbytes: int) -> None:
    """Raise `MemoryError` if there is less memory than that; its message has both numbers."""
    available = available_memory()
    if nbytes <= available:
        return
    container = container_memory()
    if container is not None and container < psutil.virtual_memory().available:
        room = f"the memory limit of its container (cgroup) leaves {mebibytes(available)}"
        advice = "Raise the limit, or use fewer environments or smaller observations."
    else:
        room = f"the machine has {mebibytes(available)} available"
        advice = "Use fewer environments or smaller observations."
    raise MemoryError(f"The batch needs a block of {mebibytes(nbytes)} and {room}. {advice}")


def mebibytes(nbytes: int) -> str:
    """Return a size as it stands in messages."""
    return f"{nbytes / 2**20:,.0f} MiB"
