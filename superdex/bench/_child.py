"""Run one function in a fresh process, so that its memory and its crashes are its own.

What that process and its own children print goes to a file: environments and engines are chatty,
and the terminal belongs to tables and progress. It is shown where the process died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle

from superdex._parent_process import end_with_parent
from superdex.errors import WorkerRaised

__all__ = ["ChildFailed", "run_in_child"]

# How long a child may take to close its environments after Ctrl-C, and to end after its answer.
_GRACE_SECONDS = 10.0
_LINES_SHOWN = 10
_HELD_SIGNALS = {signal.SIGINT, signal.SIGTERM}


class ChildFailed(Exception):
    """The function raised in its process, or the process ended before it answered.

    Attributes:
        traceback: The traceback as text, or None where the process ended without an answer.
    """

    def __init__(self, summary: str, traceback: str | None = None) -> None:
        super().__init__(summary)
        self.traceback = traceback


def run_in_child(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function(*args)` in a spawned process and return its result.

    That process and its group end with this one, however this one ends.

    Args:
        function: A module-level function; it travels by cloudpickle, and so do its arguments.
        *args: Its arguments.

    Raises:
        ChildFailed: If the function raised, or its process ended without an answer. The message
            has the exception's type and text, or the exit code or signal and what was printed last.
        KeyboardInterrupt: On Ctrl-C, once the process has ended.
    """
    with tempfile.TemporaryDirectory(prefix="superdex-", ignore_cleanup_errors=True) as folder:
        return _run(cloudpickle.dumps((function, args)), Path(folder, "printed"))


def _run(call: bytes, printed: Path) -> Any:
    receiver, sender = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=_serve, args=(sender, call, printed))
    try:
        # Within the `try`: what was held back is raised at the end of the `with`.
        with _interrupts_held():
            process.start()
        sender.close()
        connection.wait([receiver, process.sentinel])
        answer = receiver.recv() if receiver.poll() else None
    except EOFError:
        answer = None
    except BaseException:
        _interrupt(process)
        raise
    finally:
        receiver.close()
    process.join(_GRACE_SECONDS)
    _kill(process)
    if answer is None:
        raise ChildFailed(_describe_end(process.exitcode) + _last_lines(printed))
    result, problem = answer
    if problem is not None:
        raise ChildFailed(*problem)
    return result


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while a process starts.

    The child inherits the block and lifts it in `_serve`: interrupted while it still imports, it
    would print a traceback of no use to anyone.
    """
    if sys.platform == "win32":
        yield
        return
    # Started later, the tracker would lift the block before the child is there.
    resource_tracker.ensure_running()
    held: list[tuple[int, FrameType | None]] = []
    before = {}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_SIGNALS)
    if threading.current_thread() is threading.main_thread():
        # The block is this thread's alone: a numeric library's thread may take the signal, and
        # Python would then raise here, half-way through the start.
        handlers = {signum: signal.getsignal(signum) for signum in _HELD_SIGNALS}
        before = {signum: handler for signum, handler in handlers.items() if callable(handler)}
        for signum in before:
            signal.signal(signum, lambda *arguments: held.append(arguments))
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if held:
            before[signal.Signals(held[0][0])](*held[0])


def _serve(sender: connection.Connection, call: bytes, printed: Path) -> None:
    """Answer with (result, None) or (None, (summary, traceback))."""
    signal.signal(signal.SIGINT, _interrupt_once)
    answer: tuple[Any, tuple[str, str] | None]
    try:
        if sys.platform != "win32":
            end_with_parent()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_SIGNALS)
        _print_to(printed)
        function, args = cloudpickle.loads(call)
        answer = (function(*args), None)
    except KeyboardInterrupt:
        return
    except BaseException as error:
        answer = (None, (_describe(error), "".join(traceback.format_exception(error))))
    with contextlib.suppress(BrokenPipeError):
        sender.send(answer)


def _print_to(path: Path) -> None:
    """Send what this process and its children print to a file, the native code's too."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)


def _last_lines(path: Path) -> str:
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "".join(f"\n    {line}" for line in lines[-_LINES_SHOWN:])


def _interrupt_once(signum: int, _frame: FrameType | None) -> None:
    """Raise for the first Ctrl-C only: a second must not cut the clean-up short."""
    signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


def _interrupt(process: BaseProcess) -> None:
    """Have the process close what it holds, and end it in any event."""
    try:
        if sys.platform != "win32" and process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGINT)
            process.join(_GRACE_SECONDS)
    finally:
        _kill(process)


def _kill(process: BaseProcess) -> None:
    """End the process if it still runs, and what is left of its group in any event."""
    if process.is_alive():
        process.kill()
        process.join()
    if sys.platform != "win32" and process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _describe(error: BaseException) -> str:
    """Return type and message in short: what follows a blank line is left to the traceback."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(_describe(each) for each in error.exceptions)
    kind = type(error).__name__
    try:
        message = str(error).strip().partition("\n\n")[0]
    except Exception:
        return kind
    if isinstance(error, WorkerRaised):
        return message  # it has the environment's index and its exception's type
    return f"{kind}: {message}" if message else kind


def _describe_end(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"The process was ended by {signal.Signals(-exitcode).name}."
    return (
        f"The process ended with exit code {exitcode} before it answered. Started from a script, "
        "a sweep belongs under `if __name__ == '__main__':`, because its processes import the "
        "script again."
    )
