"""One call in flight at a time: the lifecycle and the workers, kept in step.

`start` and `finish` are the only two ways to the workers. Whatever happens between them, a timeout,
an interrupt, a failure, the lifecycle says what is possible next, and replies are taken whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from superdex.errors import CallTimeout
from superdex.vector._lifecycle import Lifecycle, State
from superdex.vector._local import LocalPool
from superdex.vector._pool import WorkerPool, failures_of
from superdex.vector._protocol import ANYWHERE, Reply, Target
from superdex.vector._startup import raise_all

__all__ = ["Flight"]


class Flight:
    """The call in flight, if any.

    Args:
        pool: The workers.

    Attributes:
        lifecycle: What is legal now.
        target: Where the last call was told to write.
    """

    def __init__(self, pool: WorkerPool | LocalPool) -> None:
        self.lifecycle = Lifecycle()
        self.target = ANYWHERE
        self._pool = pool

    def check_alive(self, call: str, *, restart: bool = False) -> None:
        """Look whether a worker died since the last call.

        Args:
            call: The name of the call, for errors.
            restart: Restart it now, if that is wanted, and not while waiting for the call.

        Raises:
            WorkerDied: If it is not to be restarted; everything is broken then.
        """
        try:
            self._pool.raise_if_dead(call)
            if restart:
                self._pool.restart_dead(call)
        except Warning:  # that the user made an error of; the next call goes on from there
            raise
        except Exception as failure:
            self.lifecycle.break_down(failure)
            raise

    def start(
        self,
        call: str,
        command: int,
        target: Target = ANYWHERE,
        payloads: Sequence[bytes] = (),
        workers: Sequence[int] | None = None,
    ) -> None:
        """Send a command to workers, with a payload for each or none at all.

        Args:
            call: As the lifecycle knows it: "step", "reset" or "call".
            command: A `Command`.
            target: The buffers to write.
            payloads: One for each worker.
            workers: Which; all if None.
        """
        self._pool.prepare(command, target, payloads, workers)
        self.target = target
        try:
            # from here on the call is in flight, however far an interrupt lets it come
            self.lifecycle.begin(call)
            self._pool.wake()
        except KeyboardInterrupt:
            self.interrupt()
            raise

    def finish(
        self, call: str, timeout: float | None = None, *, name: str | None = None
    ) -> list[tuple[int, Reply]]:
        """Wait for the call in flight, take its replies whole and raise its failures.

        Args:
            call: As in `start`.
            timeout: In seconds.
            name: Of the call, for errors, where it is another.

        Raises:
            CallTimeout: When the time is up; the call stays in flight. So it does where the user
                made errors of warnings.
            ClosedError: If `close` was called meanwhile, by another thread or a signal's handler.
            WorkerRaised, WorkerDied, ExceptionGroup: After a failure in a step or reset everything
                is broken; an environment that raised in another call leaves it usable.
        """
        all_replies = call == "call"
        try:
            replies = self._replies(name or call, timeout, all_replies=all_replies)
        except CallTimeout:
            raise
        except (KeyboardInterrupt, Warning):  # a warning that the user made an error of
            self.interrupt()
            raise
        except BaseException as failure:
            self.lifecycle.break_down(failure)
            # closed meanwhile, whatever is missing is missing for that reason, which `finish` gives
            if self.lifecycle.state is not State.CLOSED or not isinstance(failure, Exception):
                raise
        self.lifecycle.finish()
        if not replies:
            return replies
        try:
            raise_all(failures_of(replies))
        except Exception as failure:
            if not all_replies:
                self.lifecycle.break_down(failure)
            raise
        return replies

    def _replies(
        self, name: str, timeout: float | None, *, all_replies: bool
    ) -> list[tuple[int, Reply]]:
        started = perf_counter()
        while True:
            self._pool.wait(name, timeout, all_replies=all_replies)
            replies = self._pool.replies() if self._pool.status else []
            if replies is not None:
                return replies
            # a worker died over its reply: it is restarted and waited for, in the time left
            if timeout is not None:
                timeout = max(0.0, timeout + started - perf_counter())

    def drain(self, timeout: float | None = None) -> str | None:
        """Wait for a call that was interrupted, if there is one, and drop its result.

        Returns:
            Its name, as in `start`.

        Raises:
            CallTimeout: When the time is up; the call stays in flight.
        """
        if not self.lifecycle.interrupted:
            return None
        call = self.lifecycle.state.value
        self.finish(call, timeout)
        return call

    def interrupt(self) -> None:
        """Ctrl-C came before the call in flight was finished, if one is: `reset` may drain it."""
        if not self.lifecycle.in_flight:
            return
        if isinstance(self._pool, LocalPool):  # an environment was left in the middle of it
            self.lifecycle.break_down(KeyboardInterrupt("in the middle of a call"))
        else:
            self.lifecycle.interrupted = True
            self._pool.abandoned = True
