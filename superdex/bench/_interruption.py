"""SIGTERM as Ctrl-C: what stops a command lets it keep what it has, whichever of the two it is."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["exit_code", "terminated_like_interrupted"]


class _Terminated(KeyboardInterrupt):
    """Raised for SIGTERM, to be handled wherever Ctrl-C is."""


def exit_code(interruption: KeyboardInterrupt) -> int:
    """Return the exit code of a command that was ended so: 128 and the signal's number."""
    ended_by = signal.SIGTERM if isinstance(interruption, _Terminated) else signal.SIGINT
    return 128 + ended_by


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Raise a `KeyboardInterrupt` for SIGTERM inside; `exit_code` tells it from Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate_once(signum: int, _frame: FrameType | None) -> None:
    """Raise for the first SIGTERM only: a second must not cut short what the first set off."""
    signal.signal(signum, signal.SIG_IGN)
    raise _Terminated
