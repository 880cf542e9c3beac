"""One worker process, and everything that ties the caller to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Any

from superdex.vector import _remote
from superdex.vector._process import WorkerProcess, ctrl_c_held_back
from superdex.vector._signal import Signal
from superdex.vector._whereabouts import Whereabouts

__all__ = ["Stage", "WorkerLink", "place_of"]


class Stage(IntEnum):
    """How far a worker has come."""

    STARTED = 0
    """A process, which imports the main module and then says that it is there."""
    PRESENT = 1
    """It waits for what it is made from."""
    BUILDING = 2
    """It builds its environments."""
    BUILT = 3
    """It has said what spaces they have, and waits for the block."""
    ATTACHING = 4
    """It maps the block."""
    READY = 5
    """It takes commands."""


class WorkerLink:
    """A worker process with its pipes and signals.

    Args:
        context: Of multiprocessing.
        worker: The worker's number.
        target: What it runs, with its ends of all this.
        alarm: The pipe on which all workers tell of failures.
        bell: The pipe on which all workers wake a caller that waits for several of them.

    Attributes:
        stage: How far it has come.
        process: The process.
        connection: The pipe for messages.
        request: Wakes the worker.
        reply: Wakes the caller.
    """

    def __init__(
        self,
        context: Any,
        worker: int,
        target: Callable[..., None],
        alarm: Connection,
        bell: Connection,
    ) -> None:
        self.stage = Stage.STARTED
        self.connection, theirs = context.Pipe()
        self._inquiry, inquiry = context.Pipe()
        self._inquired = False
        self.request, self.reply = Signal(), Signal()
        process = context.Process(
            target=target,
            args=(worker, theirs, alarm, bell, inquiry, self.request, self.reply),
            name=f"{_remote.WORKER_NAME}{worker}",
            daemon=False,  # environments may start processes of their own
        )
        try:
            process.start()
            self.process = WorkerProcess(process)
        except BaseException:  # too many processes or descriptors
            if process.pid is not None:
                process.kill()
                process.join()
            self.release()
            raise
        finally:
            theirs.close()
            inquiry.close()

    def send(self, message: bytes) -> None:
        """Send a message, unless the worker is gone, which is noticed elsewhere."""
        with contextlib.suppress(ConnectionError):
            self.connection.send_bytes(message)

    def receive(self) -> Any:
        """Return a message that is there, or None if the worker is gone instead."""
        try:
            # a message outranks the death of the worker that sent it
            if self.connection.poll():
                return _remote.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionError):
            pass
        return None

    def ask_whereabouts(self, patience: float) -> Whereabouts | None:
        """Return what the worker is doing, or None if it does not say so within that time."""
        with contextlib.suppress(EOFError, OSError), ctrl_c_held_back():
            if self._inquired and self._inquiry.poll():  # an answer that came too late
                self._take_answer()
            # one question at a time: those that nobody reads would fill the pipe
            if not self._inquired:
                self._inquiry.send_bytes(b"?")
                self._inquired = True
            if self._inquiry.poll(patience):
                return self._take_answer()
        return None

    def _take_answer(self) -> Whereabouts:
        answer: Whereabouts = _remote.loads(self._inquiry.recv_bytes())
        self._inquired = False
        return answer

    def unlink(self) -> None:
        """Give the names of the signals up, which both sides hold by now."""
        self.request.unlink()
        self.reply.unlink()

    def release(self) -> None:
        """Give everything back but the process."""
        self.unlink()
        self.connection.close()
        self._inquiry.close()

    def end(self, deadline: float) -> None:
        """End the process, and what it started, and give everything back."""
        self.process.end(deadline)
        self.process.close()
        self.release()


def place_of(worker: int, indices: range, where: Whereabouts | None, call: str) -> str:
    """Return in words what a worker is busy with.

    Args:
        worker: Its number.
        indices: Its environments.
        where: Its own answer, or None if there was none.
        call: What it was asked to do.
    """
    envs = f"environment{'s' if len(indices) > 1 else ''} {indices[0]}"
    envs += f" to {indices[-1]}" if len(indices) > 1 else ""
    if where is None:
        return f"worker {worker} ({envs}) gives no answer, as in native code that holds the GIL"
    line = f", {where.line}" if where.line else ""
    if where.env_index is None:
        return f"worker {worker} ({envs}){line}"
    return f"environment {where.env_index} (worker {worker}) is in {call}{line}"
