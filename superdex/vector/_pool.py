"""Worker processes: started together, woken and waited for, and ended within bounds.

::

    caller ── wake ─────► words, request signals ──► W workers
           ◄── wait ────── reply signals, words ◄────
                 ▲
    watcher thread: sentinels of the processes and an alarm pipe; wakes the caller at a failure

The caller blocks on one reply signal at a time, which is quick but blind to everything else. So a
thread waits on the process sentinels and on a pipe that workers write to when an environment
raises; it sets `trouble` and wakes the caller, who then looks. Deaths are noticed by the kernel's
word, never by silence: a slow environment is waited for.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from superdex.errors import CallTimeout, StartupError, WorkerDied, WorkerRaised
from superdex.vector import _remote
from superdex.vector._block import Block
from superdex.vector._layout import Layout
from superdex.vector._process import (
    KILL_SECONDS,
    MAIN_GUARD_EXIT_CODE,
    MAIN_GUARD_HINT,
    WorkerProcess,
    ctrl_c_held_back,
    worker_environment,
)
from superdex.vector._protocol import COMMAND_NAMES, Command, Construction, Reply, Status, Word
from superdex.vector._remote import Failure
from superdex.vector._signal import Signal
from superdex.vector._spaces import SpaceReport
from superdex.vector._worker import load_reply, run

__all__ = ["WorkerPool", "failures_of", "raise_all"]

_TICK = 0.01
"""Seconds between two looks at whether to go on waiting, in close."""

_GRACE_SECONDS = 0.05
"""For how long further failures are gathered after the first."""


class WorkerPool:
    """W worker processes.

    Args:
        constructions: One for each worker.

    Raises:
        WorkerRaised, WorkerDied, StartupError: If a worker can't be started. All are ended first.
    """

    def __init__(self, constructions: Sequence[Construction]) -> None:
        context = multiprocessing.get_context("spawn")
        self.ranges = [construction.indices for construction in constructions]
        self.messages = 0
        self.seconds_waiting = [0.0] * len(constructions)
        self._owner = os.getpid()
        self._sequence = 0
        self._all = range(len(constructions))
        self._waiting: Sequence[int] = ()
        self._taken: tuple[int, list[tuple[int, Reply]]] = (0, [])
        self.status = Status.OK
        """The status bits of the last call's workers, all together."""
        self._payloads: Sequence[bytes] = ()
        self._asleep = False
        """Whether workers of the prepared command may still have to be woken."""
        self._trouble = False
        self._closed = False
        self._dead: set[int] = set()
        self._block: Block | None = None
        self._words: list[memoryview] = []
        self._processes: list[WorkerProcess] = []
        self._connections: list[Connection] = []
        self._requests: list[Signal] = []
        self._replies: list[Signal] = []
        self._alarm, alarm = context.Pipe(duplex=False)
        self._end_watch, self._watch_end = context.Pipe(duplex=False)
        self._watcher: threading.Thread | None = None
        try:
            with worker_environment():
                for worker in range(len(constructions)):
                    self._start(context, worker, alarm)
            alarm.close()
            for worker, construction in enumerate(constructions):
                self._send(worker, _remote.dumps(construction))
            self._gather("start")
            self.spaces: list[SpaceReport] = self._gather_spaces()
        except BaseException:
            alarm.close()
            self.close(timeout=1.0)
            raise

    def _start(self, context: Any, worker: int, alarm: Connection) -> None:
        ours, theirs = context.Pipe()
        request, reply = Signal(), Signal()
        self._connections.append(ours)
        self._requests.append(request)
        self._replies.append(reply)
        process = context.Process(
            target=run,
            args=(worker, theirs, alarm, request, reply),
            name=f"{_remote.WORKER_NAME}{worker}",
            daemon=False,  # environments may start processes of their own
        )
        try:
            process.start()
        finally:
            theirs.close()
        self._processes.append(WorkerProcess(process))

    # ── start-up, over the pipes ────────────────────────────────────────────────────────────────

    def _gather_spaces(self) -> list[SpaceReport]:
        for end in (*self._requests, *self._replies):
            end.unlink()
        answers = self._gather("construct")
        for _, answer in sorted(answers.items()):
            if isinstance(answer, Exception):
                raise answer
        raise_all(
            [
                answer.to_error(worker)
                for worker, answer in sorted(answers.items())
                if isinstance(answer, Failure)
            ]
        )
        return [answers[worker] for worker in self._all]

    def _gather(self, call: str) -> dict[int, Any]:
        """Return one message from each worker, or soon after the first failure what came so far.

        Raises:
            WorkerDied, StartupError: If one of them died.
        """
        answers: dict[int, Any] = {}
        numbers: dict[Any, int] = {c: worker for worker, c in enumerate(self._connections)}
        numbers |= {process.exit_notice: w for w, process in enumerate(self._processes)}
        deadline: float | None = None
        while len(answers) < len(self._connections):
            ready = wait(
                [key for key, worker in numbers.items() if worker not in answers],
                None if deadline is None else max(0.0, deadline - monotonic()),
            )
            if not ready:
                break
            for worker in {numbers[key] for key in ready}:
                connection = self._connections[worker]
                try:
                    # a message outranks the death of the worker that sent it
                    answer = _remote.loads(connection.recv_bytes()) if connection.poll() else None
                except (EOFError, ConnectionError):
                    answer = None
                if answer is None:
                    self._raise_dead_at_start(call)
                answers[worker] = answer
                if isinstance(answer, Failure | Exception) and deadline is None:
                    deadline = monotonic() + _GRACE_SECONDS
        return answers

    def _raise_dead_at_start(self, call: str) -> None:
        deadline = monotonic() + _GRACE_SECONDS
        exits = {w: p.wait(deadline - monotonic()) for w, p in enumerate(self._processes)}
        dead = [worker for worker, exitcode in exits.items() if exitcode is not None]
        if MAIN_GUARD_EXIT_CODE in exits.values():
            raise StartupError(MAIN_GUARD_HINT)
        hint = (
            ". It did not get as far as building environments: importing the main module or one of "
            "its imports may have failed, as shown above"
            if call == "start"
            else ""
        )
        raise_all([self._death(worker, call, hint) for worker in dead])
        raise StartupError("A worker closed its pipe without a word.")

    def attach(self, layout: Layout) -> dict[str, np.ndarray]:
        """Make the block, have every worker map it, and return its arrays; then calls may come.

        Raises:
            MemoryError: If the block doesn't fit in memory.
            WorkerDied: If a worker died meanwhile.
        """
        self._block = Block(layout)
        control = self._block.arrays["control"]
        self._words = [memoryview(row) for row in control]
        try:
            for worker, connection in enumerate(self._connections):
                connection.send_bytes(_remote.dumps(layout))
                send_handle(connection, self._block.fd, self._processes[worker].pid)
        except ConnectionError:
            self._raise_dead_at_start("construct")
        self._gather("construct")
        self._watcher = threading.Thread(target=self._watch, name="superdex-watcher", daemon=True)
        self._watcher.start()
        return self._block.arrays

    # ── calls ───────────────────────────────────────────────────────────────────────────────────

    def raise_if_dead(self, call: str) -> None:
        """Raise `WorkerDied` if a worker has died since the last call."""
        if self._dead:
            raise_all([self._death(worker, call) for worker in sorted(self._dead)])

    def prepare(
        self,
        command: int,
        buffer: int = 0,
        payloads: Sequence[bytes] = (),
        workers: Sequence[int] | None = None,
    ) -> None:
        """Write down what workers are to do, in the order: `prepare`, `wake`, `wait`, `replies`.

        Args:
            command: A `Command`.
            buffer: Which of the two buffers to write.
            payloads: A message for each of them, or none at all.
            workers: Which; all of them if None.
        """
        self._sequence += 1
        sequence = self._sequence
        chosen = self._all if workers is None else workers
        for worker in chosen:
            words = self._words[worker]
            words[Word.COMMAND] = command
            words[Word.BUFFER] = buffer
            words[Word.HAS_PAYLOAD] = bool(payloads)
            words[Word.SEQUENCE] = sequence
        self._waiting, self._payloads = chosen, payloads
        self._asleep = True

    def wake(self) -> None:
        """Wake the workers of the prepared command, and send each its payload, if any.

        An interrupt may come between any two of them. Woken again they do the command once.
        """
        for worker in self._waiting:
            self._requests[worker].release()
        if self._payloads:
            with ctrl_c_held_back():
                for worker, payload in zip(self._waiting, self._payloads, strict=True):
                    self._send(worker, payload)
                self._payloads = ()
        self._asleep = False

    def _send(self, worker: int, message: bytes) -> None:
        self.messages += 1
        with contextlib.suppress(ConnectionError):  # its death is noticed elsewhere
            self._connections[worker].send_bytes(message)

    def wait(self, call: str, timeout: float | None = None, *, all_replies: bool = False) -> None:
        """Wait until every worker asked has replied.

        Args:
            call: The name of the call, for errors.
            timeout: In seconds. The call stays in flight when it runs out.
            all_replies: Wait for the others even if one fails, so that the pool stays usable.

        Raises:
            CallTimeout: When the time is up; waiting again goes on.
            WorkerDied: If a worker died before it replied, or an `ExceptionGroup` of several
                failures. What environments raised is in the replies.
        """
        deadline = None if timeout is None else perf_counter() + timeout
        sequence = self._sequence
        if self._asleep:
            self.wake()
        status = Status.OK
        started = perf_counter()
        for worker in self._waiting:
            words, reply = self._words[worker], self._replies[worker]
            while words[Word.DONE] != sequence:
                if self._trouble and self._gather_trouble(call, all_replies=all_replies):
                    self.status = Status.HAS_REPLY | Status.FAILED
                    return
                if not reply.wait(deadline) and words[Word.DONE] != sequence:
                    assert timeout is not None
                    raise CallTimeout(
                        call, timeout, [w for w in self._waiting if not self._is_done(w)]
                    )
            status |= words[Word.STATUS]
            now = perf_counter()
            self.seconds_waiting[worker] += now - started
            started = now
        self.status = status

    def _gather_trouble(self, call: str, *, all_replies: bool) -> bool:
        """Look whether a worker of this call failed; return whether to stop waiting for others."""
        self._trouble = False  # before looking, or trouble in between would be missed
        waiting = self._waiting
        if not self._died(waiting) and (all_replies or not self._failed(waiting)):
            return False  # it was in an earlier call, or after its reply in this one
        deadline = monotonic() + _GRACE_SECONDS
        for worker in waiting:
            while not (self._is_done(worker) or worker in self._dead) and monotonic() < deadline:
                self._replies[worker].wait(perf_counter() + deadline - monotonic())
        if died := self._died(waiting):
            raise_all([*failures_of(self.replies()), *(self._death(w, call) for w in died)])
        return True

    def _is_done(self, worker: int) -> bool:
        return bool(self._words[worker][Word.DONE] == self._sequence)

    def _died(self, workers: Sequence[int]) -> list[int]:
        return [w for w in workers if w in self._dead and not self._is_done(w)]

    def _failed(self, workers: Sequence[int]) -> list[int]:
        return [
            w for w in workers if self._is_done(w) and self._words[w][Word.STATUS] & Status.FAILED
        ]

    def replies(self) -> list[tuple[int, Reply]]:
        """Return the replies of the last call, of those workers that sent one.

        Asked again, the same: so a call that was interrupted at this point can still be finished.
        """
        sequence, taken = self._taken
        if sequence != self._sequence:
            with ctrl_c_held_back():
                taken = [
                    (worker, self._receive(worker))
                    for worker in self._waiting
                    if self._is_done(worker) and self._words[worker][Word.STATUS] & Status.HAS_REPLY
                ]
                self._taken = (self._sequence, taken)
        return taken

    def _receive(self, worker: int) -> Reply:
        try:
            message = self._connections[worker].recv_bytes()
        except (EOFError, OSError):
            raise self._death(worker, "its reply") from None
        self.messages += 1
        return load_reply(message)

    def words(self, word: int) -> list[int]:
        """Return one control word of each worker."""
        return [words[word] for words in self._words]

    def _death(self, worker: int, call: str, hint: str = "") -> WorkerDied:
        exitcode = self._processes[worker].wait(KILL_SECONDS)
        return WorkerDied(worker, self.ranges[worker], exitcode, call, hint)

    # ── the watcher thread ──────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        notices: dict[Any, int] = {
            process.exit_notice: w for w, process in enumerate(self._processes)
        }
        watched: list[Any] = [self._end_watch, self._alarm, *notices]
        while True:
            for key in wait(watched):
                if key is self._end_watch:
                    return
                if key is self._alarm:
                    try:
                        self._alarm.recv_bytes()
                    except (EOFError, OSError):
                        watched.remove(key)
                        continue
                else:
                    watched.remove(key)
                    self._dead.add(notices[key])
                    # what it started would keep its pipe open, and a reader of it waiting
                    self._processes[notices[key]].kill_group()
                self._trouble = True
                for reply in self._replies:
                    reply.release()

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def close(self, timeout: float = 5.0) -> list[Exception]:
        """End all workers: ask, then terminate, then kill; return what environments raised.

        Args:
            timeout: Seconds for asking; terminating takes one more at most.
        """
        if self._closed or os.getpid() != self._owner:  # a fork of the owner owns nothing
            return []
        with ctrl_c_held_back() as held:  # it cuts the asking short, and is raised at the end
            self._closed = True
            return self._close(monotonic() + timeout, held)

    def _close(self, deadline: float, held: Sequence[Any]) -> list[Exception]:
        failures: list[Exception] = []
        try:
            if self._watcher is not None:
                failures = self._ask_to_close(deadline, held)
            self._stop_watching()
            for connection in self._connections:
                connection.close()  # a worker that waits for its block reads the end and leaves
            for process in self._processes:
                while not held and monotonic() < deadline and process.wait(_TICK) is None:
                    continue
        finally:
            deadline = monotonic() + KILL_SECONDS
            for process in self._processes:
                process.end(deadline)
                process.close()
            self._release()
        return failures

    def _ask_to_close(self, deadline: float, held: Sequence[Any]) -> list[Exception]:
        alive = [w for w in range(len(self._processes)) if w not in self._dead]
        self.prepare(Command.CLOSE, workers=alive)
        self.wake()
        failures: list[Exception] = []
        for worker in alive:
            while not self._is_done(worker) and worker not in self._dead:
                # a reply that nobody took may be too large for the pipe and hold the worker up
                failures += self._drain(worker, 0.0)
                if held or monotonic() > deadline:
                    break
                self._replies[worker].wait(perf_counter() + _TICK)
            if self._is_done(worker) and self._words[worker][Word.STATUS] & Status.FAILED:
                failures += self._drain(worker, deadline - monotonic())
        return failures

    def _drain(self, worker: int, timeout: float) -> list[Exception]:
        """Read what the worker's pipe holds; return what environments raised in close."""
        failures: list[Exception] = []
        connection = self._connections[worker]
        with contextlib.suppress(EOFError, OSError):
            while not failures and connection.poll(max(0.0, timeout)):
                failures += [
                    failure.to_error(worker)
                    for failure in load_reply(connection.recv_bytes()).failures
                    if failure.call == COMMAND_NAMES[Command.CLOSE]
                ]
        return failures

    def _stop_watching(self) -> None:
        if self._watcher is not None:
            # a message, since the end of the pipe may be open in a process that the caller forked
            self._watch_end.send_bytes(b"end")
            self._watcher.join(KILL_SECONDS)

    def _release(self) -> None:
        for end in (*self._requests, *self._replies):
            end.unlink()
        for connection in (*self._connections, self._alarm, self._end_watch, self._watch_end):
            connection.close()
        self._words = []
        if self._block is not None:
            self._block.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the workers."""
        return tuple(process.pid for process in self._processes)


def failures_of(replies: Sequence[tuple[int, Reply]]) -> list[WorkerRaised]:
    """Return the errors to raise for what environments raised."""
    return [failure.to_error(worker) for worker, reply in replies for failure in reply.failures]


def raise_all(failures: Sequence[Exception]) -> None:
    """Raise the only failure as it is, several as an `ExceptionGroup`, and nothing for none."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        first = str(failures[0]).partition("\n")[0]
        raise ExceptionGroup(
            f"{len(failures)} failures in workers; the first: {first}", list(failures)
        )
