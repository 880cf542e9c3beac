"""The workers of a vector environment in the caller's own process, for a debugger.

The same calls as a `WorkerPool`, on the same group code; each worker does its part as soon as it is
told to, one after the other.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any

import numpy as np

from superdex.vector import _remote
from superdex.vector._group import EnvGroup, check_new
from superdex.vector._layout import Layout
from superdex.vector._protocol import (
    ANYWHERE,
    NOTHING,
    Command,
    Construction,
    Reply,
    RowsPayload,
    Status,
    Target,
    Word,
)
from superdex.vector._queue import Request
from superdex.vector._remote import EnvFailure, Failure
from superdex.vector._requests import Books, Part
from superdex.vector._worker import Worker

__all__ = ["LocalPool"]


class LocalRequests:
    """The requests to workers in this process, which do each as soon as it is submitted.

    Args:
        pool: The workers.
    """

    def __init__(self, pool: LocalPool) -> None:
        self.books = Books()
        self._pool = pool
        self._told: list[Any] = [None] * len(pool.nanoseconds_waiting)

    def make_room(self, parts: Sequence[Part], call: str) -> None:
        """Do nothing: there are no pipes."""

    def prepare(self, parts: Sequence[Part]) -> None:
        """Pickle what a worker is told, so that it has its own; as `WorkerRequests.prepare`."""
        for part in parts:
            part.tell(self.books.current_columns(), self._told[part.worker])

    def submit(self, parts: Sequence[Part]) -> None:
        """Have the workers do these requests now, one after the other."""
        for part in parts:
            payload = _remote.loads(part.message) if part.message else None
            self._told[part.worker] = part.columns
            self._pool.do_rows(part, payload)
            part.is_done = True
            self.books.note_done(part)

    def wait(
        self,
        call: str,
        concerned: set[int],
        is_enough: Callable[[], bool],
        failures: Callable[[], Sequence[Exception]] = tuple,
        timeout: float | None = None,
    ) -> None:
        """Return at once: `submit` did the work."""


class LocalPool:
    """W workers in this process.

    Args:
        env_fns: One function per environment.
        constructions: One for each worker.
    """

    pids: tuple[int, ...] = ()
    affinity: tuple[frozenset[int], ...] | None = None

    in_one_go = nullcontext
    """What a call is started in: to start it is to do it, and an environment may be interrupted."""

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], constructions: Sequence[Construction]
    ) -> None:
        self.messages = 0
        self.nanoseconds_waiting = [0] * len(constructions)
        self.nanoseconds_returning = [0] * len(constructions)
        self.restarts = [0] * len(constructions)
        self.requests = LocalRequests(self)
        self._workers: list[Worker] = []
        self._replies: dict[int, Reply] = {}
        self._closed = False
        self._segments: dict[int, dict[str, np.ndarray]] = {}
        self._prepared: tuple[int, Target, Sequence[bytes], Sequence[int]] = (0, ANYWHERE, (), ())
        self.status = Status.OK
        try:
            for number, construction in enumerate(constructions):
                rows = construction.indices
                try:
                    self._workers.append(Worker(env_fns[rows.start : rows.stop], construction))
                except EnvFailure as failure:
                    raise Failure.of(failure, "construct").to_error(number) from failure.__cause__
                self._check_new(self._workers[-1])
        except BaseException:
            self.close()
            raise
        self.spaces = [worker.group.spaces for worker in self._workers]

    def _check_new(self, worker: Worker) -> None:
        """Raise `TypeError` if another worker holds one of its environments."""
        groups = [other.group for other in self._workers if other is not worker]
        others = {id(env) for group in groups if isinstance(group, EnvGroup) for env in group.envs}
        if isinstance(worker.group, EnvGroup):
            for index, env in zip(worker.index_range, worker.group.envs, strict=True):
                check_new(env, others, index)

    def attach(self, layout: Layout) -> dict[str, np.ndarray]:
        """Make the arrays, have every worker use them, and return them."""
        arrays = layout.views(memoryview(bytearray(layout.nbytes)))
        for number, worker in enumerate(self._workers):
            worker.attach(arrays, number)
        return arrays

    def add_outputs(self, number: int, layout: Layout) -> dict[str, np.ndarray]:
        """Make one more buffer of outputs and return its arrays; ATTACH has workers use them."""
        # anonymous memory is aligned to pages, which a bytearray is not
        arrays = layout.views(memoryview(mmap.mmap(-1, layout.nbytes)))
        self._segments[number] = arrays
        return arrays

    def remove_outputs(self, number: int) -> None:
        """Give a further buffer of outputs back; DETACH has workers forget it."""
        self._segments.pop(number, None)

    def raise_if_dead(self, call: str) -> None:
        """Do nothing: these workers live as long as the caller."""

    def restart_dead(self, call: str) -> None:
        """Do nothing, for the same reason."""

    def prepare(
        self,
        command: int,
        target: Target = ANYWHERE,
        payloads: Sequence[bytes] = (),
        workers: Sequence[int] | None = None,
    ) -> None:
        """Note what is to be done; as `WorkerPool.prepare`."""
        chosen = range(len(self._workers)) if workers is None else workers
        self._prepared = (command, target, payloads, chosen)

    def wake(self) -> None:
        """Have the workers do it now, one after the other."""
        command, target, payloads, chosen = self._prepared
        self._replies = {}
        self.status = Status.OK
        for position, number in enumerate(chosen):
            payload: Any = _remote.loads(payloads[position]) if payloads else None
            if command == Command.ATTACH:
                payload = payload[0], self._segments[payload[0]]
            started = perf_counter_ns()
            worker = self._workers[number]
            reply = worker.handle(command, target, payload)
            nanoseconds = perf_counter_ns() - started
            self.nanoseconds_waiting[number] += nanoseconds
            worker.words[Word.BUSY_NS] += nanoseconds
            if command == Command.STEP:
                worker.group.clock.plan(nanoseconds)
            if reply is not NOTHING:
                self._replies[number] = reply
                self.status |= Status.FAILED if reply.failures else Status.HAS_REPLY

    def do_rows(self, part: Part, payload: RowsPayload | None) -> None:
        """Have a worker do a request."""
        worker = self._workers[part.worker]
        rows, started = part.rows - worker.index_range.start, perf_counter_ns()
        request = Request(part.command, rows, payload is not None, started)
        part.reply, part.touched = worker.handle_rows(request, payload)
        nanoseconds = perf_counter_ns() - started
        self.nanoseconds_waiting[part.worker] += nanoseconds
        worker.words[Word.BUSY_NS] += nanoseconds
        if part.command == Command.STEP_ROWS:
            worker.group.clock.plan(nanoseconds * len(worker.index_range) // len(rows))

    def wait(self, call: str, timeout: float | None = None, *, all_replies: bool = False) -> None:
        """Return at once: `wake` did the work."""

    def replies(self) -> list[tuple[int, Reply]]:
        """Return the replies of the last call, of those workers that have one."""
        return list(self._replies.items())

    def words(self, word: int) -> list[int]:
        """Return one control word of each worker."""
        return [worker.words[word] for worker in self._workers]

    def close(self, timeout: float = 5.0) -> list[Exception]:
        """Close all environments; return what they raised."""
        if self._closed:
            return []
        self._closed = True
        self._segments = {}
        failures: list[Exception] = []
        for number, worker in enumerate(self._workers):
            failures += [Failure.of(f, "close").to_error(number) for f in worker.group.close()]
        return failures
