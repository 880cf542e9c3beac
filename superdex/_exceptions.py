"""Exceptions rebuilt on the other side of a pickle, and exit codes in words."""

from __future__ import annotations

import signal
from typing import Any, TypeVar

__all__ = ["describe_exit", "rebuild_exception"]

E = TypeVar("E", bound=BaseException)


def rebuild_exception(cls: type[E], args: tuple[Any, ...], state: dict[str, Any]) -> E:
    """Return an exception as it was, without running an `__init__` of its own.

    The builtin it derives from takes any arguments, so this also rebuilds classes whose `__init__`
    takes others than those kept in `args`, at which pickle's own way fails.
    """
    error = cls.__new__(cls, *args)
    builtin: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    builtin.__init__(error, *args)  # it keeps facts outside of `args`, such as SystemExit.code
    error.args = args
    error.__dict__.update(state)
    return error


_LIKELY_CAUSES = {
    "SIGKILL": "killed; where nobody did that, the machine probably ran out of memory",
    "SIGSEGV": "a segmentation fault in native code; run with PYTHONFAULTHANDLER=1 to see where",
    "SIGBUS": "a bus error; shared memory or a mapped file may have run out of space",
    "SIGABRT": "native code aborted",
    "SIGTERM": "it was asked to terminate",
}


def describe_exit(exitcode: int | None) -> str:
    """Return an exit code in words, with the likely cause where a signal has one."""
    if exitcode is None:
        return "its exit code is unknown"
    if exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        return f"signal {-exitcode}"
    cause = _LIKELY_CAUSES.get(name)
    return f"signal {name}" + (f" ({cause})" if cause else "")
