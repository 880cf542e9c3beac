"""Every error that superdex raises on purpose, in one tree.

Each class is also a subclass of the builtin that a caller would catch anyway::

    SuperdexError
    ├── ClosedError               (ValueError)           used after close()
    ├── BrokenError               (RuntimeError)         used after a failure that left it broken
    ├── CallPending               (RuntimeError)         another call is still in flight
    ├── CallTimeout               (TimeoutError)         a wait ran out of time; nothing is lost
    ├── ResetNeeded               (RuntimeError)         stepping where only a reset makes sense
    ├── StartupError              (RuntimeError)         the workers could not be started
    ├── WorkerDied                (RuntimeError)         a worker process ended by itself
    ├── WorkerRaised              (RuntimeError)         an environment raised in its worker
    ├── RemoteError               (Exception)            for an exception that can't travel
    ├── SceneMismatch             (ValueError)           what is shared under a name differs
    ├── StateCaptureUnsupported   (NotImplementedError)  a state that can't be captured in full
    ├── StaleStateError           (ValueError)           an action for a position that has passed
    └── GameLibraryError          (ImportError)          a game engine that can't be used

A message says what happened, what was expected, what came instead and what to do; the same
facts are attributes of the exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from superdex._exceptions import describe_exit, rebuild_exception

__all__ = [
    "BrokenError",
    "CallPending",
    "CallTimeout",
    "ClosedError",
    "GameLibraryError",
    "RemoteError",
    "ResetNeeded",
    "SceneMismatch",
    "StaleStateError",
    "StartupError",
    "StateCaptureUnsupported",
    "SuperdexError",
    "WorkerDied",
    "WorkerRaised",
]


class SuperdexError(Exception):
    """The root: catches whatever superdex raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_exception, (type(self), self.args, self.__dict__)


class ClosedError(SuperdexError, ValueError):
    """The object was used after `close()`."""


class BrokenError(SuperdexError, RuntimeError):
    """The vector environment was used after a failure that left it broken.

    `__cause__` is the first failure. Only `close()` and `statistics()` still work.
    """


class CallPending(SuperdexError, RuntimeError):
    """Another call is in flight: wait for it first."""


class CallTimeout(SuperdexError, TimeoutError):
    """A wait ran out of time; the call is still in flight and waiting again returns its reply.

    Attributes:
        call: The name of the call, such as "step".
        timeout: The limit in seconds.
        workers: The workers that had not replied.
        places: What each of the first of them was busy with, in words; none for short limits.
    """

    def __init__(
        self, call: str, timeout: float, workers: Sequence[int], places: Sequence[str] = ()
    ) -> None:
        self.call = call
        self.timeout = timeout
        self.workers = tuple(workers)
        self.places = tuple(places)
        where = f" ({'; '.join(places)})" if places else ""
        super().__init__(
            f"{call} did not finish within {timeout:g} s: no reply yet from "
            f"{_numbered('worker', self.workers)}{where}. Nothing is lost; wait again for the same "
            "reply."
        )


class ResetNeeded(SuperdexError, RuntimeError):
    """An environment was stepped that has to be reset first."""


class StartupError(SuperdexError, RuntimeError):
    """The worker processes could not be started."""


class RemoteError(SuperdexError):
    """Stands in for an exception of a worker that can't be pickled; its text is the traceback."""


class WorkerDied(SuperdexError, RuntimeError):
    """A worker process ended by itself: killed, crashed, or left with `os._exit`.

    Attributes:
        worker: The worker's number.
        env_indices: The environments it held.
        exitcode: As `multiprocessing.Process.exitcode`: −N for signal N; None where unknown.
        call: The call during which it was noticed.
    """

    def __init__(
        self, worker: int, env_indices: range, exitcode: int | None, call: str, hint: str = ""
    ) -> None:
        self.worker = worker
        self.env_indices = env_indices
        self.exitcode = exitcode
        self.call = call
        super().__init__(
            f"Worker {worker} ({_span(env_indices)}) died during {call}: "
            f"{describe_exit(exitcode)}{hint}"
        )


class WorkerRaised(SuperdexError, RuntimeError):
    """An environment raised an exception in its worker.

    `__cause__` is the environment's own exception where it can be pickled, else a `RemoteError`.

    Attributes:
        worker: The worker's number.
        env_index: The environment's index in the batch; None where no single one is at fault.
        call: What it was doing: "construct", "reset", "step", "close", "call", …
        remote_traceback: The traceback as text, as the worker saw it.
    """

    def __init__(
        self, worker: int, env_index: int | None, call: str, summary: str, remote_traceback: str
    ) -> None:
        self.worker = worker
        self.env_index = env_index
        self.call = call
        self.remote_traceback = remote_traceback
        who = "An environment" if env_index is None else f"Environment {env_index}"
        super().__init__(
            f"{who} (worker {worker}) raised in {call}: {summary}\n\n"
            f"Traceback in the worker:\n{remote_traceback.rstrip()}"
        )


class StateCaptureUnsupported(SuperdexError, NotImplementedError):
    """A scene, an environment or a wrapper holds state that can't be captured.

    Such a scene can't be shared; such an environment has no part in `capture_states`.
    """


class SceneMismatch(SuperdexError, ValueError):
    """A scene name stands for another construction than the one asked for.

    Also raised where an environment changed the model of a scene that others share.
    """


class StaleStateError(SuperdexError, ValueError):
    """An action was meant for a position that has passed. Nothing was stepped.

    Attributes:
        rows: The environments whose state id is another.
        expected: The state id of each of them.
        got: What came instead.
        foreign: Those of them whose id belongs to another vector environment, or to none.
    """

    def __init__(
        self,
        rows: Sequence[int],
        expected: Sequence[int],
        got: Sequence[int],
        *,
        foreign: Sequence[int] = (),
    ) -> None:
        self.rows = tuple(rows)
        self.expected = tuple(expected)
        self.got = tuple(got)
        self.foreign = tuple(foreign)
        if self.foreign:
            which, why = self.foreign, "belongs to another vector environment, or is no id at all"
            advice = "Give the ids that came with the observations of this one."
        else:
            which, why = self.rows, "is of a position that has passed"
            advice = "Drop that action and choose one for the present position."
        noun = "environment" if len(which) == 1 else "environments"
        first = self.rows.index(which[0])
        super().__init__(
            f"The state id for {noun} {_few(which)} {why}: expected {self.expected[first]} for "
            f"environment {which[0]}, got {self.got[first]}. Nothing was stepped. {advice}"
        )


class GameLibraryError(SuperdexError, ImportError):
    """A library of games is missing, can't be opened, or has another version of the interface."""


def _span(indices: range) -> str:
    """Return "environment 3" or "environments 3 to 5"."""
    if len(indices) == 1:
        return f"environment {indices[0]}"
    return f"environments {indices[0]} to {indices[-1]}"


def _few(numbers: Sequence[int]) -> str:
    """Return the first few of some numbers, in words."""
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    """Return "worker 3" or "workers 3, 5"."""
    return f"{noun}{'s' if len(numbers) != 1 else ''} {', '.join(map(str, numbers))}"
