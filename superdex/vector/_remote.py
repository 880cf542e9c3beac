"""What travels between processes by pickle: functions, results, failures.

cloudpickle carries lambdas, closures and classes of the main module by value. What can't be pickled
is named, and never costs more than the call that it belongs to.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import current_process
from typing import Any

import cloudpickle
import numpy as np

from superdex._exceptions import rebuild_exception
from superdex.errors import RemoteError, WorkerRaised
from superdex.vector._info import InfoEntry

__all__ = [
    "EnvFailure",
    "Failure",
    "dump_env_fns",
    "dump_requests",
    "dumps",
    "dumps_entries",
    "env_failure",
    "loads",
    "summary_of",
    "traceback_of",
]

loads = pickle.loads

WORKER_NAME = "superdex-worker-"
"""How the names of worker processes begin."""


def dumps(value: Any) -> bytes:
    """Return the value pickled: plainly where that does, which is quicker, else by cloudpickle."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return bytes(cloudpickle.dumps(value))


def dumps_entries(entries: list[InfoEntry], notice: Callable[[str], None]) -> bytes:
    """Return infos pickled; a value that can't be arrives as its `repr`, with a notice.

    What pickles but does not come back, such as an exception whose constructor takes other
    arguments, can't be either; values other than plain ones are tried.
    """
    try:
        if all(_is_plain(value) for _, info in entries for value in info.values()):
            return dumps(entries)
        data = dumps(entries)
        loads(data)
        return data
    except BaseException:  # what it runs to come back may also exit
        return dumps([(row, _picklable(info, row, notice)) for row, info in entries])


_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types that surely come back; their subclasses may ask for more than they were pickled with."""


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, np.ndarray | np.generic):
        return not value.dtype.hasobject
    return type(value) in _PLAIN


def _picklable(info: Any, row: int, notice: Callable[[str], None]) -> dict[Any, Any]:
    result = {}
    for key, value in info.items():
        if isinstance(value, dict):
            travelling: Any = _picklable(value, row, notice)
        else:
            travelling = _or_repr(value, f"Environment {row} gives an info {key!r}", notice)
        result[_or_repr(key, f"Environment {row} gives an info with a key", notice)] = travelling
    return result


def _or_repr(value: Any, who: str, notice: Callable[[str], None]) -> Any:
    """Return the value if it comes through pickle, else its `repr`, with a notice."""
    try:
        loads(dumps(value))
    except BaseException as error:
        notice(
            f"{who} of type {type(value).__name__} that can't be pickled ({error}); its repr is "
            "passed on instead."
        )
        try:
            return repr(value)
        except Exception:
            return object.__repr__(value)
    return value


def dump_requests(requests: Iterable[Any], what: str) -> list[bytes]:
    """Return requests to workers pickled.

    Raises:
        TypeError: If one can't be pickled; the message says what it was.
    """
    try:
        return [dumps(request) for request in requests]
    except Exception as error:
        raise TypeError(f"The {what} can't be pickled for the workers: {error}") from error


def dump_env_fns(env_fns: Sequence[Callable[[], Any]], first_index: int) -> bytes:
    """Return one worker's functions pickled.

    Raises:
        TypeError: If one can't be pickled; it is named.
    """
    try:
        return bytes(cloudpickle.dumps(list(env_fns)))
    except Exception:
        for index, env_fn in enumerate(env_fns, first_index):
            try:
                cloudpickle.dumps(env_fn)
            except Exception as error:
                raise TypeError(
                    f"The function for environment {index}, {env_fn!r}, can't be pickled for its "
                    f"worker: {error}. Create what it holds inside the function instead."
                ) from error
        raise


class EnvFailure(Exception):
    """Raised inside a group: the exception `__cause__` came from environment `env_index`."""

    def __init__(self, env_index: int | None, call: str) -> None:
        self.env_index = env_index
        self.call = call
        super().__init__(env_index, call)


def in_worker() -> bool:
    """Return whether this process is a worker, which Ctrl-C does not reach."""
    return current_process().name.startswith(WORKER_NAME)


def env_failure(env_index: int | None, call: str, error: BaseException) -> EnvFailure:
    """Return what to raise, from `error`, for an exception of an environment.

    Whatever it is, it is the environment's, `SystemExit` too; but Ctrl-C in the caller's own
    process is the caller's, and is raised on.
    """
    if isinstance(error, KeyboardInterrupt) and not in_worker():
        raise error
    return EnvFailure(env_index, call)


@dataclass(frozen=True)
class Failure:
    """An exception of an environment on its way to the parent."""

    env_index: int | None
    call: str
    summary: str
    traceback: str
    pickled: bytes | None

    @classmethod
    def of(cls, error: BaseException, call: str) -> Failure:
        """Describe an exception; an `EnvFailure` says where its cause came from."""
        env_index = None
        if isinstance(error, EnvFailure):
            env_index, call = error.env_index, error.call
            error = error.__cause__ or error
        return cls(env_index, call, summary_of(error), traceback_of(error), _dump_exception(error))

    def to_error(self, worker: int) -> WorkerRaised:
        """Return the error to raise in the parent, its cause attached."""
        error = WorkerRaised(worker, self.env_index, self.call, self.summary, self.traceback)
        cause: BaseException = RemoteError(self.traceback)
        if self.pickled is not None:
            try:
                cause = loads(self.pickled)
            except Exception:  # a class that only the worker can import
                cause = RemoteError(self.traceback)
        error.__cause__ = cause
        return error


def summary_of(error: BaseException) -> str:
    """Return an exception in one line or few: its class and what it says."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return an exception with its traceback as text."""
    return "".join(traceback.format_exception(error))


def _dump_exception(error: BaseException) -> bytes | None:
    """Return an exception pickled, or None where it does not come back as it was.

    By its own way where that works, which knows of facts beside `args` (an OSError's filename);
    else by its parts.
    """
    with contextlib.suppress(Exception):  # its constructor may take other arguments than `args`
        data = dumps(error)
        back = loads(data)
        if type(back) is type(error) and str(back) == str(error):
            return data
    with contextlib.suppress(Exception):
        data = dumps(_Parts(error))
        loads(data)
        return data
    return None


class _Parts:
    """Pickles an exception as its parts."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_exception, (type(self._error), self._error.args, self._error.__dict__)
