"""Calls for some rows: who asked for what, which rows are in flight, and what they gave.

::

    a slot's rows ──► one part for each worker that holds some ──► its queue
                 ◄── pieces, wherever a caller takes them ◄─────── collected parts

A row is *in flight* from the call that asks for it until its results are taken, so that nobody asks
for it twice and nothing writes over what was not taken. Its results lie in the buffer for slots and
are written there in place. A *piece* is what one call takes of a part: all of it for a slot that is
waited for, or some of its rows where the caller receives no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from superdex.errors import CallPending, CallTimeout
from superdex.vector._collector import Collector
from superdex.vector._columns import snapshot
from superdex.vector._episodes import Ledger
from superdex.vector._flight import Flight
from superdex.vector._info import InfoEntry
from superdex.vector._layout import SLOT_BUFFER
from superdex.vector._local import LocalPool
from superdex.vector._pool import WorkerPool, failures_of
from superdex.vector._process import ctrl_c_held_back
from superdex.vector._protocol import Command, RowsPayload
from superdex.vector._requests import Books, Part
from superdex.vector._split import Split
from superdex.vector._startup import raise_all

__all__ = ["Piece", "RowCalls", "Slot"]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of a part.

    Attributes:
        part: The part.
        chosen: Which of its rows.
        positions: Where they go in what the caller gets.
    """

    part: Part
    chosen: slice
    positions: Any

    @property
    def rows(self) -> np.ndarray:
        """Their indices in the batch."""
        return self.part.rows[self.chosen]


@dataclass(eq=False)
class Slot:
    """Rows that were asked for together and are taken together.

    Attributes:
        rows: In the caller's order.
        pieces: What they consist of.
    """

    rows: np.ndarray
    pieces: list[Piece]


class _RowBooks(Books):
    """Keeps the books: where each row's results are, and where a successor has to go on from.

    The workers' requests hold this object, so it must not hold the vector environment.
    """

    def __init__(self, collector: Collector, ledger: Ledger | None) -> None:
        self.ready: deque[Piece] = deque()
        """What was sent and is done, in that order."""
        self._collector = collector
        self._results = collector.outputs[SLOT_BUFFER]
        self._ledger = ledger
        self._kept: dict[Part, np.ndarray] = {}

    def release(self) -> None:
        """Let go of the block."""
        self.ready.clear()
        self._kept.clear()
        del self._collector, self._results

    def note_sent(self, part: Part) -> None:
        """A part is about to be sent: a worker that dies over it may leave half of its results."""
        if self._ledger is not None:
            self._kept[part] = self._results["observation"][part.rows]

    def note_done(self, part: Part) -> None:
        self._kept.pop(part, None)
        if part.owner is None:
            self.ready.append(Piece(part, slice(None), None))
        if part.reply.failures:
            return
        rows, results = part.rows, self._results
        self._collector.outputs.note_rows(rows)
        if self._ledger is None:
            return
        if part.command == Command.STEP_ROWS:
            ended = results["terminated"][rows] | results["truncated"][rows]
            self._ledger.note_step(ended, results["autoreset"][rows], rows)
        elif part.payload is not None:
            self._ledger.note_reset(rows.tolist(), part.payload.seeds, part.payload.options)

    def current_columns(self) -> Sequence[Any]:
        return self._collector.current_columns()

    def note_redone(self, part: Part) -> None:
        self._results["observation"][part.rows] = self._kept[part]


class RowCalls:
    """The calls for some rows of a vector environment.

    Args:
        pool: The workers.
        flight: The call in flight and what is legal.
        split: Which worker holds which environments.
        collector: Where results are.
        ledger: What is known of episodes, if that is kept.

    Attributes:
        busy: The rows in flight: (num_envs,) bool.
    """

    def __init__(
        self,
        pool: WorkerPool | LocalPool,
        flight: Flight,
        split: Split,
        collector: Collector,
        ledger: Ledger | None,
    ) -> None:
        self._pool, self._flight, self._collector = pool, flight, collector
        self._ledger = ledger
        self._books = pool.requests.books = _RowBooks(collector, ledger)
        self._stops = np.array([rows.stop for rows in split.ranges])
        self._sizes = [len(rows) for rows in split.ranges]
        self._num_envs = split.num_envs
        self.busy = np.zeros(split.num_envs, np.bool_)
        self._sent = np.zeros(split.num_envs, np.bool_)
        """Of those in flight, the rows that were sent, to be received."""
        self._in_one_go = pool.in_one_go
        self._open: list[Part] = []
        """Parts that nobody has taken all of."""

    def release(self) -> None:
        """Let go of the block, which an error that holds a frame would keep."""
        self._books.release()
        del self._books, self._collector

    # ── what is in flight ───────────────────────────────────────────────────────────────────────

    @property
    def sent(self) -> np.ndarray:
        """The rows that were sent and not received, (rows,) int32, sorted."""
        return np.flatnonzero(self._sent).astype(np.int32)

    @property
    def num_sent(self) -> int:
        """How many that are."""
        return int(np.count_nonzero(self._sent))

    @property
    def num_ready(self) -> int:
        """How many of them can be received at once, as far as is known."""
        return sum(len(piece.rows) for piece in self._books.ready)

    def check_free(self, call: str, rows: np.ndarray) -> None:
        """Raise `CallPending` if one of these rows is in flight."""
        busy = self.busy[rows]
        if busy.any():
            first = int(rows[np.flatnonzero(busy)[0]])
            how = "recv() it" if self._sent[first] else "wait_slots() for its slot"
            raise CallPending(
                f"{call} was called for environment {first}, which is in flight: first {how}, or "
                "reset(), which drops all that is in flight. Nothing has changed."
            )

    def check_whole_workers(self, call: str, rows: np.ndarray) -> None:
        """Raise `ValueError` unless these are all rows of each of their workers."""
        workers, counts = np.unique(self._workers_of(rows), return_counts=True)
        for worker, count in zip(workers.tolist(), counts.tolist(), strict=True):
            if count != self._sizes[worker]:
                raise ValueError(
                    f"{call} must name all environments of a worker or none, since an "
                    f"inner_env_cls steps them together: expected {self._sizes[worker]} of worker "
                    f"{worker}, got {count}. Nothing was stepped."
                )

    def _workers_of(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._stops, rows, side="right")

    # ── asking ──────────────────────────────────────────────────────────────────────────────────

    def ask(
        self,
        call: str,
        command: int,
        rows: np.ndarray,
        seeds: Sequence[int | None] = (),
        options: Sequence[dict[str, Any] | None] = (),
        *,
        accept: Callable[[Slot], None],
        send: bool = False,
    ) -> Slot:
        """Send requests for some rows; with `send` they are received, and else taken together.

        Args:
            call: The name of the call, for errors.
            command: STEP_ROWS or RESET_ROWS.
            rows: Free ones, in the caller's order, none twice.
            accept: Called when nothing can be in the way any more. Ctrl-C comes before that, or
                after everything was sent.
            seeds: One for each of them, where they are reset.
            options: Likewise.
            send: Whether they are to be received.
        """
        lifecycle = self._flight.lifecycle
        self._flight.check_alive(call)
        if self._ledger is not None and command == Command.RESET_ROWS:
            seeds = self._ledger.seeds_for(rows.tolist(), seeds)
        slot = Slot(rows, [])
        order = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows[order], self._stops)
        start = 0
        for worker, end in enumerate(ends.tolist()):
            if end > start:
                positions = order[start:end]
                payload = None
                if command == Command.RESET_ROWS:
                    payload = RowsPayload(
                        None,
                        [seeds[at] for at in positions],
                        # the caller may change what it passed
                        [snapshot(options[at]) for at in positions],
                    )
                owner = None if send else slot
                part = Part(worker, command, rows[positions], payload, (), owner)
                slot.pieces.append(Piece(part, slice(None), positions))
            start = end
        if not slot.pieces:
            accept(slot)
            return slot
        parts = [piece.part for piece in slot.pieces]
        requests = self._pool.requests
        requests.prepare(parts)
        with self._guarded():
            requests.make_room(parts, call)
            with self._in_one_go():
                accept(slot)
                for part in parts:
                    self._books.note_sent(part)
                lifecycle.begin("step_rows" if command == Command.STEP_ROWS else "reset_rows")
                self.busy[rows] = True
                self._sent[rows] = send
                self._open += parts
                requests.submit(parts)
        return slot

    # ── taking ──────────────────────────────────────────────────────────────────────────────────

    def wait_for(self, call: str, slot: Slot, timeout: float | None) -> None:
        """Wait until all of a slot is there.

        Raises:
            CallTimeout: When the time is up; nothing is lost.
            WorkerRaised, WorkerDied, ExceptionGroup: After a failure; all is broken then.
        """
        parts = [piece.part for piece in slot.pieces]
        self._wait(call, parts, lambda: all(part.is_done for part in parts), timeout)

    def wait_for_sent(self, call: str, count: int, timeout: float | None) -> None:
        """Wait until that many of the rows that were sent can be received; as `wait_for`."""
        parts = [part for part in self._open if part.owner is None]
        self._wait(call, parts, lambda: self.num_ready >= count, timeout)

    def _wait(
        self, call: str, parts: list[Part], is_enough: Callable[[], bool], timeout: float | None
    ) -> None:
        def failures() -> Sequence[Exception]:
            return failures_of([(p.worker, p.reply) for p in parts if p.is_done])

        def is_over() -> bool:
            return is_enough() and not failures()

        workers = {part.worker for part in parts}
        with self._guarded():
            self._pool.requests.wait(call, workers, is_over, failures, timeout)
            raise_all(failures())

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Inside, a failure leaves everything broken, as the lifecycle says."""
        try:
            yield
        except (CallTimeout, Warning):  # a warning that the user made an error of
            raise
        except KeyboardInterrupt:
            if isinstance(self._pool, LocalPool):  # an environment was left in the middle of it
                self._flight.lifecycle.break_down(KeyboardInterrupt("in the middle of a call"))
            raise
        except Exception as failure:
            self._flight.lifecycle.break_down(failure)
            raise

    def received(self, most: int) -> list[Piece]:
        """Return what is taken of the rows that were sent and are there, in order."""
        pieces: list[Piece] = []
        count = 0
        for piece in self._books.ready:
            start = piece.chosen.start or 0
            taken = min(len(piece.rows), most - count)
            if taken == 0:
                break
            at = np.arange(count, count + taken)
            pieces.append(Piece(piece.part, slice(start, start + taken), at))
            count += taken
        return pieces

    def finish(self, pieces: Sequence[Piece]) -> None:
        """These rows are taken, and out of flight. Ctrl-C is to be held back."""
        ready = self._books.ready
        for piece in pieces:
            part, stop = piece.part, piece.chosen.stop
            if part.owner is None:
                ready.popleft()
            if stop is not None and stop < len(part.rows):
                ready.appendleft(Piece(part, slice(stop, None), None))
            else:
                self._open.remove(part)
            self.busy[piece.rows] = False
            self._sent[piece.rows] = False
        if not self._open:
            self._flight.lifecycle.finish_rows()

    def flush(self, note: Callable[[Sequence[Piece]], None], timeout: float | None) -> None:
        """Wait for all that is in flight and drop its results.

        Args:
            note: Told what that was, before Ctrl-C can come.
            timeout: In seconds.

        Raises:
            CallTimeout: When the time is up; nothing was dropped then.
        """
        parts = list(self._open)
        self._wait("reset", parts, lambda: all(part.is_done for part in parts), timeout)
        with ctrl_c_held_back():
            self._books.ready.clear()
            self._open.clear()
            self.busy.fill(False)
            self._sent.fill(False)
            self._flight.lifecycle.finish_rows()
            note([Piece(part, slice(None), None) for part in parts])

    # ── infos ───────────────────────────────────────────────────────────────────────────────────

    def info(self, pieces: Sequence[Piece], count: int) -> dict[Any, Any]:
        """Return the infos of some pieces, in arrays of their `count` rows together."""
        collector = self._collector
        columns: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        entries: list[InfoEntry] = []
        for piece in pieces:
            self._tell(piece.part)
            rows, positions = piece.rows, piece.positions
            for key, values, mask in collector.read_rows(
                piece.part.columns, piece.part.touched, rows
            ):
                if key not in columns:
                    empty = np.zeros((count, *values.shape[1:]), values.dtype)
                    columns[key] = empty, np.zeros(count, np.bool_)
                columns[key][0][positions], columns[key][1][positions] = values, mask
            if piece.part.reply.entries:
                where = dict(zip(rows.tolist(), positions.tolist(), strict=True))
                entries += [(where[r], i) for r, i in piece.part.reply.entries if r in where]
        return collector.merge(entries, columns, count, lambda array: array)

    def _tell(self, part: Part) -> None:
        """Pass on what a worker has to say, once."""
        if part.reply.notices:
            notices, part.reply.notices = part.reply.notices, []
            self._collector.board.tell(notices)
