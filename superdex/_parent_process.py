"""How a process that we spawned comes to its end with the one that spawned it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait

__all__ = ["end_with_parent"]


def end_with_parent() -> None:
    """Make this process lead a group of its own, which is killed once the parent is gone.

    Processes that environments start belong to the group and end with it. A terminal's Ctrl-C goes
    to the parent's group only.
    """
    os.setpgid(0, 0)
    threading.Thread(target=_watch_parent, name="superdex-parent-watch", daemon=True).start()


def _watch_parent() -> None:
    parent = parent_process()
    assert parent is not None
    assert parent.pid is not None
    if hasattr(os, "pidfd_open"):
        # not parent.join(): its pipe stays open in every process that the parent ever forked
        with contextlib.suppress(ProcessLookupError):
            wait([os.pidfd_open(parent.pid)])
    else:
        parent.join()
    os.killpg(0, signal.SIGKILL)
