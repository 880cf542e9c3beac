"""How a process that we spawned comes to its end with the one that spawned it."""

from __future__ import annotations

import contextlib
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
    threading.Thread(
        target=_watch_parent,
        args=(inquiry, answer),
        name="superdex-parent-watch",
        daemon=True,
    ).start()


def _watch_parent(inquiry: Connection | None, answer: Callable[[], bytes] | None) -> None:
    parent = parent_process()
    assert parent is not None
    assert parent.pid is not None
    # The sentinel is a pipe, which stays open in every process that the parent ever forked.
    ends: list[Any] = [parent.sentinel]
    if hasattr(os, "pidfd_open"):
        ends = []
        with contextlib.suppress(ProcessLookupError):
            ends = [os.pidfd_open(parent.pid)]
    inquiries = [] if inquiry is None else [inquiry]
    while ends and not set(ends) & set(wait([*ends, *inquiries])):
        assert inquiry is not None
        assert answer is not None
        try:
            inquiry.recv_bytes()
            inquiry.send_bytes(answer())
        except (EOFError, OSError):  # the parent closed it, or is gone
            inquiries = []
    os.killpg(0, signal.SIGKILL)
