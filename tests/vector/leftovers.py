"""What vector environments could leave behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

import psutil


class Leftovers(NamedTuple):
    """Processes, descriptors, names in /dev/shm and threads of this process."""

    children: set[int]
    descriptors: set[str]
    names: set[str]
    threads: set[str]


def remains() -> Leftovers:
    """Return what there is of them now."""
    return Leftovers(
        {child.pid for child in psutil.Process().children(recursive=True)},
        {link.name for link in Path("/proc/self/fd").iterdir() if link.exists()},
        {path.name for path in Path("/dev/shm").glob(f"*-{os.getpid()}-*")},
        {thread.name for thread in threading.enumerate()},
    )
