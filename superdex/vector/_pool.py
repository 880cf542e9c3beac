"""Worker processes: woken and waited for, restarted where that is wanted, ended within bounds.

::

    caller ── wake ─────► words, request signals ──► W workers
           ◄── wait ────── reply signals, words ◄────
                 ▲
    watcher thread: sentinels of the processes and an alarm pipe; wakes the caller at a failure

The caller blocks on one reply signal at a time, which is quick but blind to everything else. So a
thread waits on the process sentinels and on a pipe that workers write to when an environment
raises; it sets `trouble` and wakes the caller, who then looks. Deaths are noticed by the kernel's
word, never by silence: a slow environment is waited for, and named after a while.

A worker that died may be restarted, right there in the wait: the others go on with what they were
told, and the new one is told the same. The words of the block hold the command still.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic, perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from superdex.errors import CallTimeout, ClosedError, WorkerDied, WorkerRaised
from superdex.vector._affinity import running_on
from superdex.vector._bell import Bell
from superdex.vector._block import Block
from superdex.vector._episodes import Revival
from superdex.vector._faults import FaultPolicy, RestartBudget
from superdex.vector._layout import Layout
from superdex.vector._link import Stage, WorkerLink, place_of
from superdex.vector._process import (
    KILL_SECONDS,
    LONGEST_POLL,
    ctrl_c_held_back,
    worker_environment,
)
from superdex.vector._protocol import (
    ANYWHERE,
    COMMAND_NAMES,
    Command,
    Construction,
    Death,
    Reply,
    Status,
    Target,
    Word,
)
from superdex.vector._remote import Failure
from superdex.vector._requests import WorkerRequests
from superdex.vector._spaces import SpaceReport
from superdex.vector._startup import ASKS_AFTER, GRACE_SECONDS, PATIENCE, StartUp, raise_all
from superdex.vector._warnings import warn_caller
from superdex.vector._watcher import Watcher
from superdex.vector._worker import load_reply, run

__all__ = ["WorkerPool", "failures_of"]

_TICK = 0.01
"""Seconds between two looks at whether to go on waiting, in close."""

_ABANDONED_SECONDS = 0.5
"""How long close waits for a worker that is busy with what nobody waits for any more."""

_ATTEMPTS = 3
"""How often a worker is restarted in one call."""


class WorkerPool:
    """W worker processes.

    Args:
        constructions: One for each worker.
        affinity: The CPUs of each worker, or None.
        slow_after: Seconds after which a call or a start that takes long is reported.

    Attributes:
        nanoseconds_waiting: Per worker, the time waited for its replies.
        nanoseconds_returning: Per worker, how long its replies took to be noticed.
        restarts: Per worker, how often it was restarted.
        revival: Returns what a restarted worker goes on from.

    Raises:
        WorkerRaised, WorkerDied, StartupError: If a worker can't be started. All are ended first.
    """

    in_one_go = ctrl_c_held_back
    """What a call is started in, where what is told and what is noted must agree."""

    def __init__(
        self,
        constructions: Sequence[Construction],
        affinity: Sequence[frozenset[int]] | None = None,
        slow_after: float = inf,
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        count = len(constructions)
        self.ranges = [construction.indices for construction in constructions]
        self._messages = 0
        self.nanoseconds_waiting = [0] * count
        self.nanoseconds_returning = [0] * count
        self.restarts = [0] * count
        self.status = Status.OK
        """The status bits of the last call's workers, all together."""
        self._affinity = affinity
        self.slow_after = slow_after = float(slow_after)
        self._faults: FaultPolicy = constructions[0].settings.faults
        self._budget = RestartBudget(self._faults)
        self._attempts: dict[int, int] = {}
        """How often workers were restarted in the call in flight."""
        self._deaths: dict[int, WorkerDied] = {}
        """The last death of each of those."""
        self.revival: Callable[[int], Revival | None] = _no_revival
        self._owner = os.getpid()
        self._sequence = 0
        self._sent_at = 0
        self._slow_at = inf
        self._all = range(count)
        self._waiting: Sequence[int] = ()
        self._replied: dict[int, Reply] = {}
        self._command = 0
        self._payloads: Sequence[bytes] = ()
        self.abandoned = False
        """Whether the call in flight was interrupted, or failed in one worker while others may be
        busy with it for long."""
        self._asleep = False
        """Whether workers of the prepared command may still have to be woken."""
        self.is_closed = False
        self._block: Block | None = None
        self._words: list[memoryview] = []
        self._links: list[WorkerLink] = []
        self.bell = Bell(self._context)
        self.watcher = Watcher(self._context, self._links, self.bell)
        self.requests = WorkerRequests(self)
        self._start_up = StartUp(self._links, constructions, slow_after)
        try:
            with worker_environment():
                for worker in self._all:
                    self._links.append(self._start(worker))
            self._start_up.drive(self._all, Stage.PRESENT, self.revival)
            self._start_up.build()
            self._start_up.drive(self._all, Stage.BUILT, self.revival)
        except BaseException:
            self.close(timeout=1.0)
            raise

    def _start(self, worker: int) -> WorkerLink:
        with running_on(None if self._affinity is None else self._affinity[worker]):
            return WorkerLink(self._context, worker, run, self.watcher.alarm, self.bell.button)

    @property
    def messages(self) -> int:
        """Messages over the pipes, both ways."""
        return self._messages + self._start_up.messages

    @property
    def spaces(self) -> list[SpaceReport]:
        """What each worker said of its spaces."""
        return [self._start_up.spaces[worker] for worker in self._all]

    def attach(self, layout: Layout) -> dict[str, np.ndarray]:
        """Make the block, have every worker map it, and return its arrays; then calls may come.

        Raises:
            MemoryError: If the block doesn't fit in memory.
            WorkerDied: If a worker died meanwhile.
        """
        self._block = Block(layout)
        self._words = [memoryview(row) for row in self._block.arrays["control"]]
        self.bell.attach(self._block.arrays["bell"])
        self.requests.attach(self._block.arrays)
        self._start_up.attach(layout, self._block)
        self._start_up.drive(self._all, Stage.READY, self.revival)
        self._adopt_signals()
        self.watcher.start()
        return self._block.arrays

    def add_outputs(self, number: int, layout: Layout) -> dict[str, np.ndarray]:
        """Make one more buffer of outputs and return its arrays; ATTACH has workers map it.

        Raises:
            MemoryError: If it doesn't fit in memory.
            OSError: If there are no descriptors left.
        """
        block = Block(layout)
        self._start_up.segments[number] = layout, block
        os.close(os.dup(block.fd))  # to send it takes one more: if there is none it fails here
        return block.arrays

    def remove_outputs(self, number: int) -> None:
        """Give a further buffer of outputs back; DETACH has workers forget it."""
        if number in self._start_up.segments:
            self._start_up.segments.pop(number)[1].close()

    def _adopt_signals(self) -> None:
        """Keep what the hot path needs of the links at hand."""
        self._requests = [link.request for link in self._links]
        self._replies = [link.reply for link in self._links]

    # ── calls ───────────────────────────────────────────────────────────────────────────────────

    def raise_if_dead(self, call: str) -> None:
        """Raise `WorkerDied` if a worker has died since the last call and is not restarted."""
        if self.watcher.dead and not self._faults.restarts_workers:
            raise_all([self.death(worker, call) for worker in sorted(self.watcher.dead)])

    def restart_dead(self, call: str) -> None:
        """Restart workers that have died since the last call; without this, `wait` does it."""
        if self.watcher.dead and self._faults.restarts_workers:
            self._deaths = {}
            self._attempts = {}
            self.restart(sorted(self.watcher.dead), call, None)

    def prepare(
        self,
        command: int,
        target: Target = ANYWHERE,
        payloads: Sequence[bytes] = (),
        workers: Sequence[int] | None = None,
    ) -> None:
        """Write down what workers are to do, in the order: `prepare`, `wake`, `wait`, `replies`.

        Args:
            command: A `Command`.
            target: The buffers to write.
            payloads: A message for each of them, or none at all.
            workers: Which; all of them if None.
        """
        self._sequence += 1
        self._sent_at = sent_at = perf_counter_ns()
        chosen = self._all if workers is None else workers
        has_payload = bool(payloads)
        buffer, info_buffer = target
        for worker in chosen:
            words = self._words[worker]
            words[Word.COMMAND] = command
            words[Word.BUFFER] = buffer
            words[Word.INFO_BUFFER] = info_buffer
            words[Word.HAS_PAYLOAD] = has_payload
            words[Word.SENT_AT] = sent_at
        self._waiting, self._payloads, self._command = chosen, payloads, command
        self._asleep = True
        self.abandoned = False
        self._slow_at = sent_at * 1e-9 + self.slow_after
        if self._attempts or self._replied:
            self._attempts, self._deaths, self._replied = {}, {}, {}

    def wake(self) -> None:
        """Wake the workers of the prepared command, and send each its payload, if any.

        An interrupt may come between any two of them. Woken again they do the command once. One
        that came before this has told nobody of the command, which is then as if it never was.
        """
        sequence = self._sequence
        for worker in self._waiting:
            self._words[worker][Word.SEQUENCE] = sequence
            self._requests[worker].release()
        if self._payloads:
            with ctrl_c_held_back():
                for worker, payload in zip(self._waiting, self._payloads, strict=True):
                    self._send(worker, payload)
                    if self._command == Command.ATTACH:  # the newest segment
                        newest = next(reversed(self._start_up.segments))
                        self._start_up.send_segment(worker, newest)
                self._asleep = False
        self._asleep = False

    def wake_for_requests(self, worker: int, messages: Sequence[bytes]) -> None:
        """Wake a worker for what is in its queue, and send it what belongs to that."""
        self._requests[worker].release()
        for message in messages:
            self._send(worker, message)

    def _send(self, worker: int, message: bytes) -> None:
        self._messages += 1
        self._links[worker].send(message)

    def wait(self, call: str, timeout: float | None = None, *, all_replies: bool = False) -> None:
        """Wait until every worker asked has replied.

        Args:
            call: The name of the call, for errors.
            timeout: In seconds. The call stays in flight when it runs out.
            all_replies: Wait for the others even if one fails, so that the pool stays usable.

        Raises:
            CallTimeout: When the time is up; waiting again goes on.
            ClosedError: If it is closed meanwhile, by another thread or a signal's handler.
            WorkerDied: If a worker died before it replied and is not restarted, or an
                `ExceptionGroup` of several failures. What environments raised is in the replies.
        """
        deadline = inf if timeout is None else perf_counter() + float(timeout)
        limit = min(deadline, self._slow_at)
        sequence = self._sequence
        if self._asleep:
            self.wake()
        if self.watcher.dead:
            self.watcher.trouble = True
        status = Status.OK
        waited, returning = self.nanoseconds_waiting, self.nanoseconds_returning
        started = perf_counter_ns()
        for worker in self._waiting:
            words, reply = self._words[worker], self._replies[worker]
            try:
                while words[Word.DONE] != sequence:
                    if self.watcher.trouble:
                        timing = None if timeout is None else (call, timeout, deadline)
                        if self._gather_trouble(call, timing, all_replies=all_replies):
                            self.status = Status.HAS_REPLY | Status.FAILED
                            return
                        reply = self._replies[worker]
                        continue  # it may be done now
                    if not reply.wait(limit) and words[Word.DONE] != sequence:
                        limit = self._out_of_time(call, timeout, deadline)
            except BaseException:  # the time is up, a failure, Ctrl-C
                waited[worker] += perf_counter_ns() - started
                del words  # in the traceback it would keep the block for as long as the error
                raise
            status |= words[Word.STATUS]
            now, done_at = perf_counter_ns(), words[Word.DONE_AT]
            waited[worker] += now - started
            returning[worker] += now - max(started, done_at)
            started = now
        self.status = status

    def _out_of_time(self, call: str, timeout: float | None, deadline: float) -> float:
        """Raise if the deadline is over, or report what is slow; return until when to wait on."""
        behind = [w for w in self._waiting if not self._is_done(w)]
        if perf_counter() >= deadline:
            assert timeout is not None
            places = self.places(behind, call) if timeout >= ASKS_AFTER else []
            raise CallTimeout(call, timeout, behind, places)
        if perf_counter() >= self._slow_at and behind:
            self._slow_at = inf
            seconds = (perf_counter_ns() - self._sent_at) * 1e-9
            warn_caller(
                f"{call} has been under way for {seconds:.1f} s: "
                f"{'; '.join(self.places(behind, call))}. It is waited for. (slow_after= sets "
                "when this warning comes.)",
                RuntimeWarning,
            )
        return min(deadline, self._slow_at)

    def places(self, workers: Sequence[int], call: str) -> list[str]:
        """Return in words what some workers are busy with; of many, the first ones."""
        places = [
            place_of(w, self.ranges[w], self._links[w].ask_whereabouts(PATIENCE), call)
            for w in workers[:3]
        ]
        return [*places, f"and {len(workers) - 3} more workers"] if len(workers) > 3 else places

    def _gather_trouble(
        self, call: str, timing: tuple[str, float, float] | None, *, all_replies: bool
    ) -> bool:
        """Look whether a worker of this call failed; return whether to stop waiting for others.

        A worker that died is restarted here, if that is wanted.
        """
        if self.is_closed:
            raise ClosedError(f"close() was called while {call} was in flight.")
        self.watcher.trouble = False  # before looking, or trouble in between would be missed
        waiting = self._waiting
        died = self._died(waiting)
        if died and self._faults.restarts_workers:
            self.restart(died, call, timing)
            died = []
        if not died and (all_replies or not self._failed(waiting)):
            return False  # it was in an earlier call, or after its reply in this one
        self.abandoned = True
        deadline = perf_counter() + GRACE_SECONDS
        for worker in waiting:
            while not (self._is_done(worker) or worker in self.watcher.dead):
                if not self._replies[worker].wait(deadline) and perf_counter() >= deadline:
                    break
        if (died := self._died(waiting)) and not self._faults.restarts_workers:
            failures: list[Exception] = [*failures_of(sorted(self._take_replies().items()))]
            raise_all(failures + [self.death(worker, call) for worker in died])
        return True

    def _is_done(self, worker: int) -> bool:
        return bool(self._words[worker][Word.DONE] == self._sequence)

    def _died(self, workers: Sequence[int]) -> list[int]:
        return [w for w in workers if w in self.watcher.dead and not self._is_done(w)]

    def _failed(self, workers: Sequence[int]) -> list[int]:
        return [
            w for w in workers if self._is_done(w) and self._words[w][Word.STATUS] & Status.FAILED
        ]

    def replies(self) -> list[tuple[int, Reply]] | None:
        """Return the replies of the last call, of those workers that sent one.

        Asked again, the same: so a call that was interrupted at this point can still be finished.
        None means that a worker died over its reply and is to be waited for once more.
        """
        replies = self._take_replies()
        return None if self._died(self._waiting) else sorted(replies.items())

    def _take_replies(self) -> dict[int, Reply]:
        with ctrl_c_held_back():
            for worker in self._waiting:
                has_reply = self._words[worker][Word.STATUS] & Status.HAS_REPLY
                if self._is_done(worker) and has_reply and worker not in self._replied:
                    self._receive(worker)
        return self._replied

    def _receive(self, worker: int) -> None:
        message = self.receive(worker)
        if message is not None:
            self._replied[worker] = load_reply(message)
        elif self._faults.restarts_workers:
            self._words[worker][Word.DONE] = 0  # it did not do it to the end
        else:
            raise self.death(worker, "its reply")

    def receive(self, worker: int) -> bytes | None:
        """Return the next message of a worker, or None if it died over it."""
        try:
            message: bytes = self._links[worker].connection.recv_bytes()
        except (EOFError, OSError):
            self._notice_death(worker)
            return None
        self._messages += 1
        return message

    def _notice_death(self, worker: int) -> None:
        """Wait until the watcher has seen a death that we know of."""
        deadline = monotonic() + KILL_SECONDS
        while worker not in self.watcher.dead and monotonic() < deadline:
            self._replies[worker].wait(perf_counter() + _TICK)

    def note_waited(self, workers: Sequence[int], nanoseconds: int) -> None:
        """Note a wait for whichever of some workers was done first: a share for each."""
        for worker in workers:
            self.nanoseconds_waiting[worker] += nanoseconds // len(workers)

    def forget_attempts(self, worker: int) -> None:
        """A worker got on: it did not die again and again."""
        self._attempts.pop(worker, None)

    @property
    def restarts_workers(self) -> bool:
        """Whether workers that die are restarted."""
        return self._faults.restarts_workers

    def words(self, word: int) -> list[int]:
        """Return one control word of each worker."""
        return [words[word] for words in self._words]

    def death(self, worker: int, call: str, hint: str = "") -> WorkerDied:
        exitcode = self._links[worker].process.wait(KILL_SECONDS)
        return WorkerDied(worker, self.ranges[worker], exitcode, call, hint)

    # ── restarts ────────────────────────────────────────────────────────────────────────────────

    def restart(
        self, workers: Sequence[int], call: str, timing: tuple[str, float, float] | None
    ) -> None:
        """Bring up new processes in the place of those that died, and tell them what to do.

        Cut short by a timeout or Ctrl-C, it is taken up again by the next call.

        Raises:
            CallTimeout: When the time is up.
            WorkerDied: If one dies too often.
        """
        for worker in workers:
            link = self._links[worker]
            # one that is ready and alive came up in the call before, which had no time for others
            if link.stage is Stage.READY and link.process.has_ended():
                self._replace(worker, call, self.death(worker, call))
        while True:
            try:
                self._start_up.drive(workers, Stage.READY, self.revival, timing)
                break
            except WorkerDied as death:
                self._replace(death.worker, call, death)
            except ExceptionGroup as deaths:
                for other in deaths.exceptions:
                    if not isinstance(other, WorkerDied):
                        raise
                    self._replace(other.worker, call, other)
        with ctrl_c_held_back():
            self._adopt_signals()
            self.watcher.refresh(list(workers))
            for worker in workers:
                self._resume(worker)

    def _replace(self, worker: int, call: str, death: WorkerDied) -> None:
        """Start a new process in the place of one that died, or raise if that is too much."""
        self._attempts[worker] = self._attempts.get(worker, 0) + 1
        self._deaths[worker] = death
        if self._attempts[worker] > _ATTEMPTS:
            hint = (
                f". It was restarted {_ATTEMPTS} times in this call and died again: what its "
                "environments do there kills it each time"
            )
        elif not self._budget.spend(worker, monotonic()):
            hint = (
                f". It was restarted as often as allowed ({self._faults.limit}). Find out what "
                "kills it, or raise the limit"
            )
        else:
            hint = ""
        if hint:
            raise WorkerDied(worker, self.ranges[worker], death.exitcode, call, hint)
        with ctrl_c_held_back():
            old = self._links[worker]
            with worker_environment():
                self._links[worker] = self._start(worker)  # where it can't be, the old one is kept
            old.end(monotonic() + KILL_SECONDS)
            self.restarts[worker] += 1
        # last, since the user may have made errors of warnings
        warn_caller(f"{death}. It is restarted, and its episodes are truncated.", RuntimeWarning)

    def _resume(self, worker: int) -> None:
        """Give a restarted worker the command or the requests in flight, if there are any."""
        self.requests.resume(worker)
        words = self._words[worker]
        if self._is_done(worker) or words[Word.SEQUENCE] != self._sequence:
            return
        if self._command in (Command.STEP, Command.RESET):
            self._requests[worker].release()
            if self._payloads:
                self._send(worker, self._payloads[self._waiting.index(worker)])
            return
        if self._command in (Command.ATTACH, Command.DETACH):
            words[Word.STATUS] = Status.OK  # it came up with the segments that there are now
            words[Word.DONE] = self._sequence
            return
        # what killed it once may do so again: that call failed
        words[Word.STATUS] = Status.HAS_REPLY | Status.FAILED
        words[Word.DONE_AT] = perf_counter_ns()
        words[Word.DONE] = self._sequence
        self._replied[worker] = Reply(failures=[Death(self._deaths[worker])])

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def close(self, timeout: float = 5.0) -> list[Exception]:
        """End all workers: ask, then terminate, then kill; return what environments raised.

        Args:
            timeout: Seconds for asking; terminating takes one more at most. A worker that is busy
                with a call that was interrupted or failed elsewhere gets half a second.
        """
        if self.is_closed or os.getpid() != self._owner:  # a fork of the owner owns nothing
            return []
        with ctrl_c_held_back() as held:  # it cuts the asking short, and is raised at the end
            self.is_closed = True
            return self._close(monotonic() + timeout, held)

    def _close(self, deadline: float, held: Sequence[Any]) -> list[Exception]:
        failures: list[Exception] = []
        try:
            if self.watcher.is_watching:
                failures = self._ask_to_close(deadline, held)
            self.watcher.stop()
            for link in self._links:
                link.connection.close()  # a worker that waits for its block reads that and leaves
            for link in self._links:
                while not (held or monotonic() > deadline or link.process.has_ended(_TICK)):
                    continue
        finally:
            deadline = monotonic() + KILL_SECONDS
            for link in self._links:
                link.end(deadline)
            self._release()
        return failures

    def _ask_to_close(self, deadline: float, held: Sequence[Any]) -> list[Exception]:
        alive = [w for w in self._all if w not in self.watcher.dead]
        calls = {w: self._words[w][Word.SEQUENCE] for w in alive}
        given_up = self.abandoned or self.requests.in_flight
        busy_until = monotonic() + _ABANDONED_SECONDS if given_up else inf
        self.prepare(Command.CLOSE, workers=alive)
        self.wake()
        failures: list[Exception] = []
        for worker in alive:
            while not self._is_done(worker) and worker not in self.watcher.dead:
                # a reply that nobody took may be too large for the pipe and hold the worker up
                failures += self._drain(worker, 0.0)
                if held or monotonic() > deadline:
                    break
                is_busy = self._words[worker][Word.DONE] != calls[worker]
                is_busy |= self.requests.is_busy(worker)
                if is_busy and monotonic() > busy_until:
                    self._links[worker].process.end(monotonic() + _TICK)
                    break
                self._replies[worker].wait(perf_counter() + _TICK)
            if self._is_done(worker) and self._words[worker][Word.STATUS] & Status.FAILED:
                failures += self._drain(worker, deadline - monotonic())
        return failures

    def _drain(self, worker: int, timeout: float) -> list[Exception]:
        """Read what the worker's pipe holds; return what environments raised in close."""
        failures: list[Exception] = []
        connection = self._links[worker].connection
        with contextlib.suppress(EOFError, OSError):
            while not failures and connection.poll(min(max(0.0, timeout), LONGEST_POLL)):
                failures += [
                    failure.to_error(worker)
                    for failure in load_reply(connection.recv_bytes()).failures
                    if isinstance(failure, Failure) and failure.call == COMMAND_NAMES[Command.CLOSE]
                ]
        return failures

    def _release(self) -> None:
        # who waits for a call while another thread or a signal's handler closes would wait for ever
        self.watcher.trouble = True
        self.watcher.wake_caller()
        self.watcher.release()
        self.bell.release()
        self._words = []
        self.revival = _no_revival  # it holds the block
        self.requests.release()
        for _, segment in self._start_up.segments.values():
            segment.close()
        if self._block is not None:
            self._block.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the workers."""
        return tuple(link.process.pid for link in self._links)

    @property
    def affinity(self) -> tuple[frozenset[int], ...] | None:
        """The CPUs that each worker may run on, as the system says; None if it doesn't."""
        if self.is_closed or not hasattr(os, "sched_getaffinity"):
            return None
        with contextlib.suppress(ProcessLookupError):
            return tuple(frozenset(os.sched_getaffinity(pid)) for pid in self.pids)
        return None


def failures_of(replies: Sequence[tuple[int, Reply]]) -> list[WorkerRaised | WorkerDied]:
    """Return the errors to raise for what environments raised."""
    return [failure.to_error(worker) for worker, reply in replies for failure in reply.failures]


def _no_revival(worker: int) -> None:
    """A worker that starts for the first time goes on from nothing."""
