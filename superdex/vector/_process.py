"""A worker's process: what it inherits, how its end is noticed, and how it is ended.

Also the two ways in which a process and Ctrl-C or a missing main guard get on with each other.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Any

from superdex._limits import usable_cpus

__all__ = [
    "KILL_SECONDS",
    "LONGEST_POLL",
    "MAIN_GUARD_EXIT_CODE",
    "MAIN_GUARD_HINT",
    "WorkerProcess",
    "ctrl_c_held_back",
    "refuse_in_unguarded_main",
    "warn_of_crowd",
    "worker_environment",
]

MAIN_GUARD_EXIT_CODE = 87
"""With which a worker ends that was started by a main module without a guard."""

_UNKNOWN = 255
"""The exit code of a process that has ended and whose exit code another one has taken."""

KILL_SECONDS = 1.0
"""How long a process gets to end after a signal."""

LONGEST_POLL = 1e6
"""The longest wait on descriptors, in seconds: the system counts milliseconds in 32 bits."""

MAIN_GUARD_HINT = """\
The workers could not start, because the script makes its vector environment as it is imported, and
every worker imports the script. Make it inside a function that is called under a guard:

    def main():
        with HybridVectorEnv(env_fns, num_envs_per_worker=...) as env:
            ...

    if __name__ == "__main__":
        main()
"""

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_environment_lock = threading.Lock()


class WorkerProcess:
    """A started worker process and the descriptor that tells of its end.

    A pidfd where there is one: `multiprocessing`'s sentinel is a pipe, which processes forked by an
    environment hold open as well, so that it may outlive the worker.
    """

    def __init__(self, process: SpawnProcess) -> None:
        assert process.pid is not None
        self._process: Any = process
        self.pid = process.pid
        self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        self.exit_notice: int = process.sentinel if self._pidfd is None else self._pidfd
        """Readable once the process has ended."""

    def wait(self, timeout: float) -> int | None:
        """Return the exit code, or None if the process still runs after that time.

        Also None where another part of the program took the exit code, as `os.waitpid(-1, 0)` does.
        """
        wait([self.exit_notice], max(0.0, timeout))
        exitcode: int | None = self._process.exitcode
        return exitcode

    def has_ended(self, timeout: float = 0.0) -> bool:
        """Return whether the process ends within that time, whoever took its exit code."""
        return bool(wait([self.exit_notice], max(0.0, timeout))) or self.wait(0.0) is not None

    def end(self, deadline: float) -> None:
        """Terminate what still runs, kill it at the deadline, and the processes it started too."""
        if not self.has_ended():
            self._process.terminate()
        if not self.has_ended(deadline - monotonic()):
            self._process.kill()
        self.kill_group()
        self.wait(KILL_SECONDS)

    def kill_group(self) -> None:
        """Kill what is left of the group that the worker leads, which may outlive it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptors back."""
        if self.has_ended() and self._process.exitcode is None:
            self._process._popen.returncode = _UNKNOWN  # or it would count as running for ever
        if self._pidfd is not None:
            os.close(self._pidfd)
        with contextlib.suppress(ValueError):  # still running: stuck in the kernel
            self._process.close()


def refuse_in_unguarded_main() -> None:
    """End this process if it is a worker that is still importing the main module.

    The parent then explains the missing guard; a traceback from every worker would bury that.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(MAIN_GUARD_EXIT_CODE)


def warn_of_crowd(num_workers: int) -> None:
    """Warn where there are far more workers than processors to run them."""
    cpus = usable_cpus()
    if num_workers > max(16, 4 * cpus):
        warnings.warn(
            f"{num_workers} workers on {cpus} CPUs: each takes start-up time and memory, and they "
            f"wait for each other. num_workers={cpus} is usually faster.",
            RuntimeWarning,
            stacklevel=3,
        )


@contextlib.contextmanager
def worker_environment() -> Iterator[None]:
    """Give processes started inside one thread for numeric libraries, and Ctrl-C blocked.

    Those variables are read when a library is first imported, which in a spawned process is before
    any of our code runs; so they must be in the environment that it inherits. What the user set
    stays. Ctrl-C is unblocked by the worker once it is settled.
    """
    # it unblocks Ctrl-C when it starts
    resource_tracker.ensure_running()
    # The block is this thread's alone: where a numeric library's thread takes the signal, Python
    # raises in the main thread all the same, half-way through a start, unless it is held back too.
    with ctrl_c_held_back(), _environment_lock:
        added = [name for name in _THREAD_VARIABLES if name not in os.environ]
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        os.environ.update(dict.fromkeys(added, "1"))
        try:
            yield
        finally:
            for name in added:
                os.environ.pop(name, None)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class ctrl_c_held_back:  # noqa: N801  # reads as a statement about its block
    """Holds Ctrl-C back, and raises it at the end: half a message would garble a pipe.

    In the block it gives what was held back so far, for those who want to hurry then. It is a class
    and calls the system's module itself since it is entered in every call: so it takes 2 µs, and
    with `signal.signal`, which wraps its results, and a generator 10.
    """

    __slots__ = ("_held", "_previous")

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._previous: Any = None

    def __enter__(self) -> Sequence[Any]:
        previous = _signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            _signal.signal(signal.SIGINT, self._note)
            self._previous = previous
        return self._held

    def _note(self, *arguments: Any) -> None:
        self._held.append(arguments)

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            _signal.signal(signal.SIGINT, self._previous)
            if self._held:
                self._previous(*self._held[0])
