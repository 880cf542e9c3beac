"""How a process that we spawned comes to its end with the one that spawned it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

__all__ = ["end_with_parent"]


def end_with_parent(
    inquiry: Connection | None = None, answer: Callable[[], bytes] | None = None
) -> None:
    """Make this process lead a group of its own, which is killed once the parent is gone.

    Processes that environments start belong to the group and end with it. A terminal's Ctrl-C goes
    to the parent's group only.

    Args:
        inquiry: Where the parent may ask a question while the main thread is busy.
        answer: Returns the answer; called on a thread of its own.
    """
    os.setpgid(0, 0)
    parent = parent_process()
    assert parent is not None
    assert parent.pid is not None
    _have_the_system_kill(parent.sentinel)
    threading.Thread(
        target=_watch_parent,
        args=(parent.pid, parent.sentinel, inquiry, answer),
        name="superdex-parent-watch",
        daemon=True,
    ).start()


def _have_the_system_kill(sentinel: int) -> None:
    """Have the kernel kill this process's group when the parent's end of a pipe closes.

    No thread of ours runs while native code holds the GIL, maybe for ever.
    """
    if hasattr(fcntl, "F_SETSIG"):
        with contextlib.suppress(OSError):  # some sandboxes don't know it
            fcntl.fcntl(sentinel, fcntl.F_SETOWN, -os.getpid())
            fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
            flags = fcntl.fcntl(sentinel, fcntl.F_GETFL)
            fcntl.fcntl(sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)


def _watch_parent(
    parent_pid: int,
    sentinel: int,
    inquiry: Connection | None,
    answer: Callable[[], bytes] | None,
) -> None:
    # The sentinel is a pipe, which stays open in every process that the parent ever forked.
    ends: list[Any] = [sentinel]
    if hasattr(os, "pidfd_open"):
        ends = []
        with contextlib.suppress(ProcessLookupError):
            ends = [os.pidfd_open(parent_pid)]
    inquiries = [] if inquiry is None else [inquiry]
    while ends and not set(ends) & set(wait([*ends, *inquiries])):
        assert inquiry is not None
        assert answer is not None
        try:
            inquiry.recv_bytes()
            inquiry.send_bytes(answer())
        except Exception:  # the parent closed it, or is gone; whatever it is, watch on
            inquiries = []
    os.killpg(0, signal.SIGKILL)
