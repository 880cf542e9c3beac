"""Requests: calls for some environments, several of which may be in flight at once.

::

    caller ── submit ──► queue of each worker, request signal ──► worker: one after the other
           ◄── collect ── counters of the queues ◄──────────────  writes its rows in place
           ◄── wait ────── bell ◄───────────────────────────────  where the caller sleeps

Each request goes to one worker and names some of its environments. Its worker does the requests of
its queue in order, so a caller has the workers busy with one part of the batch while it thinks
about another. What is done is *collected* as soon as the caller looks, whatever it waits for, and
noted down before anything else happens: a worker that dies later must go on from there.

A worker that died is restarted, where that is wanted, and its successor does all requests of the
queue that were not done. The block holds them still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from superdex.errors import CallTimeout, ClosedError
from superdex.vector import _remote
from superdex.vector._process import ctrl_c_held_back
from superdex.vector._protocol import COMMAND_NAMES, NOTHING, Reply, RowsPayload, Status
from superdex.vector._queue import Request, RequestQueue
from superdex.vector._startup import ASKS_AFTER, GRACE_SECONDS, raise_all
from superdex.vector._warnings import warn_caller
from superdex.vector._worker import load_reply

if TYPE_CHECKING:
    from superdex.vector._pool import WorkerPool

__all__ = ["Books", "Part", "WorkerRequests"]

_UNREAD_BYTES = 32768
"""Payloads that may wait in a worker's pipe. More could fill it, while the worker itself waits for
the caller to read a reply."""


@dataclass(eq=False)
class Part:
    """A request to one worker.

    Attributes:
        worker: The worker.
        command: STEP_ROWS or RESET_ROWS.
        rows: Its environments, by their indices in the batch, sorted.
        payload: What goes over the pipe, or None.
        columns: The info columns that its worker writes.
        owner: Who asked.
        message: The payload, pickled.
        number: In the worker's queue.
        is_done: Whether it was collected.
        touched: A bit for each info column that was written.
        reply: What did not fit the block.
    """

    worker: int
    command: int
    rows: np.ndarray
    payload: RowsPayload | None
    columns: Sequence[Any]
    owner: Any
    message: bytes = b""
    number: int = -1
    is_done: bool = False
    touched: int = 0
    reply: Reply = field(default_factory=lambda: NOTHING)

    def tell(self, columns: Sequence[Any], told: Sequence[Any] | None) -> None:
        """Pickle the payload, with the info columns if the worker was not told of them.

        Args:
            columns: The info columns.
            told: Those that the worker was told of, the same object if they are the same.

        Raises:
            TypeError: If seeds or options can't be pickled.
        """
        self.columns = columns
        if told is not columns and (columns or told):
            payload = self.payload or RowsPayload()
            self.payload = RowsPayload(columns, payload.seeds, payload.options)
        if self.payload is not None:
            self.message = _remote.dump_requests([self.payload], "options of reset")[0]


class Books:
    """What is noted of requests, by who keeps the books."""

    def note_done(self, part: Part) -> None:
        """A part was collected."""

    def current_columns(self) -> Sequence[Any]:
        """Return the info columns that a restarted worker is told of."""
        return []

    def note_redone(self, part: Part) -> None:
        """A part is to be done by a restarted worker."""


class WorkerRequests:
    """The requests to worker processes.

    Args:
        pool: The workers.

    Attributes:
        books: Told of what happens.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self.books = Books()
        self._pool = pool
        self._starts = [rows.start for rows in pool.ranges]
        self._open: list[deque[Part]] = [deque() for _ in pool.ranges]
        """Parts submitted and not collected, by worker."""
        self._queues: list[RequestQueue] = []
        self._told: list[Any] = [None] * len(pool.ranges)
        """The info columns that each worker was told of by a request."""

    def attach(self, arrays: dict[str, np.ndarray]) -> None:
        """Use the block."""
        memory = zip(*(arrays[name] for name in ("counters", "headers", "rows")), strict=True)
        self._queues = [RequestQueue(*each) for each in memory]

    def release(self) -> None:
        """Let go of the block."""
        for queue in self._queues:
            queue.release()
        self._queues = []
        self._open = []
        self.books = Books()

    @property
    def in_flight(self) -> bool:
        """Whether a worker may be at one."""
        return any(self._open)

    def is_busy(self, worker: int) -> bool:
        """Whether a worker is at a request right now."""
        return self._queues[worker].is_busy

    # ── there ───────────────────────────────────────────────────────────────────────────────────

    def prepare(self, parts: Sequence[Part]) -> None:
        """Pickle what goes over the pipes.

        Raises:
            TypeError: If something can't be pickled.
        """
        for part in parts:
            part.tell(self.books.current_columns(), self._told[part.worker])

    def make_room(self, parts: Sequence[Part], call: str) -> None:
        """Wait until requests can be submitted without waiting for a pipe.

        Raises:
            WorkerDied: If a worker died meanwhile.
        """
        for part in parts:
            waiting = self._open[part.worker]
            unread = sum(len(other.message) for other in waiting)
            if part.message and waiting and unread + len(part.message) > _UNREAD_BYTES:
                self._wait_for_all_of(part.worker, call)

    def submit(self, parts: Sequence[Part]) -> None:
        """Send requests to their workers, at most one to each. Ctrl-C is to be held back."""
        for part in parts:
            self._open[part.worker].append(part)
            self._told[part.worker] = part.columns
            part.number = self._queues[part.worker].submit(self._request(part))
            self._pool.wake_for_requests(part.worker, [part.message] if part.message else [])

    def _request(self, part: Part) -> Request:
        rows = part.rows - self._starts[part.worker]
        return Request(part.command, rows, bool(part.message), perf_counter_ns())

    def _wait_for_all_of(self, worker: int, call: str) -> None:
        self.wait(call, {worker}, lambda: not self._open[worker])

    def resume(self, worker: int) -> None:
        """Have a restarted worker do what the one before it left undone."""
        columns = self.books.current_columns()
        self._told[worker] = None
        messages = []
        for part in self._open[worker]:
            self.books.note_redone(part)
            payload = part.payload or RowsPayload()
            part.payload = RowsPayload(None, payload.seeds, payload.options)
            # what the messages before said of columns, the first one says
            part.tell(columns, self._told[worker])
            self._told[worker] = columns
            self._queues[worker].expect_payload(part.number)
            messages.append(part.message)
        if messages:
            self._pool.wake_for_requests(worker, messages)

    # ── and back ────────────────────────────────────────────────────────────────────────────────

    def collect(self) -> None:
        """Take what is done, in the order in which it was."""
        if not self._is_anything_done():
            return
        with ctrl_c_held_back():
            done: list[tuple[int, Part]] = []
            for worker, parts in enumerate(self._open):
                completed = self._queues[worker].completed
                for part in parts:
                    if part.number >= completed:
                        break
                    if not self._take(part):
                        break
                    done.append((self._queues[worker].outcome(part.number).done_at, part))
            for _, part in sorted(done, key=lambda pair: pair[0]):
                self._open[part.worker].remove(part)
                part.is_done = True
                self._pool.forget_attempts(part.worker)
                self.books.note_done(part)

    def _is_anything_done(self) -> bool:
        for parts, queue in zip(self._open, self._queues, strict=True):
            if parts and parts[0].number < queue.completed:
                return True
        return False

    def _take(self, part: Part) -> bool:
        """Take the outcome of a part; return whether it could be had."""
        queue = self._queues[part.worker]
        outcome = queue.outcome(part.number)
        part.touched = outcome.touched
        if not outcome.status & Status.HAS_REPLY:
            return True
        message = self._pool.receive(part.worker)
        if message is None:  # the worker died over its reply: it did not do it to the end
            queue.reopen(part.number)
            return False
        part.reply = load_reply(message)
        return True

    def wait(
        self,
        call: str,
        concerned: set[int],
        is_enough: Callable[[], bool],
        failures: Callable[[], Sequence[Exception]] = tuple,
        timeout: float | None = None,
    ) -> None:
        """Wait for requests.

        Args:
            call: The name of the call, for errors.
            concerned: The workers whose deaths end the wait, and who are named where it is long.
            is_enough: Whether to go on, asked after each look.
            failures: What went wrong in what was collected and is waited for. If something did,
                it returns, once what else goes wrong at about the same time is known too.
            timeout: In seconds.

        Raises:
            CallTimeout: When the time is up; nothing is lost.
            ClosedError: If it is closed meanwhile.
            WorkerDied: If one of those workers died and is not restarted, or an `ExceptionGroup`.
        """
        started = perf_counter()
        deadline = inf if timeout is None else started + float(timeout)
        ends = {"timeout": deadline, "slow": started + self._pool.slow_after}
        if self._pool.watcher.dead:
            self._pool.watcher.trouble = True
        try:
            while True:
                self.collect()
                if is_enough():
                    return
                if self._pool.watcher.trouble:
                    timing = None if timeout is None else (call, timeout, deadline)
                    self._look_into_trouble(call, concerned, failures, timing)
                    continue
                if failures():
                    ends.setdefault("grace", perf_counter() + GRACE_SECONDS)
                    if not concerned.intersection(self._behind()):
                        return
                first = min(ends, key=lambda end: ends[end])
                if self._pool.bell.wait(self._has_news, ends[first]):
                    continue
                self.collect()
                if is_enough() or first == "grace":
                    return
                behind = sorted(concerned.intersection(self._behind()))
                if first == "slow":
                    ends["slow"] = inf
                    self._report_slow(call, behind, perf_counter() - started)
                    continue
                assert timeout is not None
                places = self._places(behind) if timeout >= ASKS_AFTER else []
                raise CallTimeout(call, timeout, behind, places)
        finally:
            nanoseconds = int((perf_counter() - started) * 1e9)
            self._pool.note_waited(sorted(concerned), nanoseconds)

    def _has_news(self) -> bool:
        return self._pool.watcher.trouble or self._is_anything_done()

    def _report_slow(self, call: str, behind: Sequence[int], seconds: float) -> None:
        warn_caller(
            f"{call} has been under way for {seconds:.1f} s: "
            f"{'; '.join(self._places(behind))}. It is waited for. (slow_after= sets "
            "when this warning comes.)",
            RuntimeWarning,
        )

    def _places(self, behind: Sequence[int]) -> list[str]:
        """Return in words what some workers are busy with; of many, the first ones."""
        doing = COMMAND_NAMES[self._open[behind[0]][0].command] if behind else ""
        return self._pool.places(behind, doing)

    def _look_into_trouble(
        self,
        call: str,
        concerned: set[int],
        failures: Callable[[], Sequence[Exception]],
        timing: tuple[str, float, float] | None,
    ) -> None:
        """Look which workers have died, and restart them or raise."""
        pool = self._pool
        if pool.is_closed:
            raise ClosedError(f"close() was called while {call} was in flight.")
        pool.watcher.trouble = False  # before looking, or trouble in between would be missed
        dead = set(pool.watcher.dead)
        self.collect()  # what a worker did before it died is done, and its pipe goes with it
        died = [worker for worker in self._behind() if worker in dead]
        if died and pool.restarts_workers:
            pool.restart(died, call, timing)
        elif concerned.intersection(died):
            pool.bell.wait(
                lambda: not concerned.intersection(self._behind(but=self._died())),
                perf_counter() + GRACE_SECONDS,
            )
            self.collect()
            deaths = [pool.death(w, call) for w in sorted(concerned.intersection(self._died()))]
            raise_all([*failures(), *deaths])

    def _behind(self, but: Sequence[int] = ()) -> list[int]:
        """Return the workers that have something to do, leaving some out."""
        return [
            worker
            for worker, (parts, queue) in enumerate(zip(self._open, self._queues, strict=True))
            if parts and parts[-1].number >= queue.completed and worker not in but
        ]

    def _died(self) -> list[int]:
        """Return the workers that died over a request."""
        return [worker for worker in self._behind() if worker in self._pool.watcher.dead]
