"""The queue of one worker's requests: steps and resets of some of its environments.

Pure: memory and numbers, no process. A request is a *header* and a run of *rows*, both in rings of
the shared block, and two counters say how far each side has come::

    counters   submitted ──► written by the caller alone
               completed ──► written by the worker alone, the request's outcome first
    headers    request n in place n mod capacity
    rows       the rows of all requests one after the other, round and round

A row that is in flight can't be asked for again, so requests and rows in flight are never more than
the worker has environments, and neither ring can overrun.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

__all__ = ["COUNTERS", "HEADER_WORDS", "Outcome", "Request", "RequestQueue"]

COUNTERS: Final = 16
"""Words of the counters of one worker; the two sides write to cache lines of their own."""

HEADER_WORDS: Final = 16

_SUBMITTED: Final = 0
_COMPLETED: Final = 8
_STARTED: Final = 9

_COMMAND: Final = 0
_COUNT: Final = 1
_START: Final = 2
_HAS_PAYLOAD: Final = 3
_SENT_AT: Final = 4
_STATUS: Final = 8
_TOUCHED: Final = 9
_DONE_AT: Final = 10


class Request(NamedTuple):
    """What a worker is asked to do.

    Attributes:
        command: A `Command` for some rows.
        rows: Its environments, sorted, intp.
        has_payload: Whether a message on the worker's pipe belongs to it.
        sent_at: In nanoseconds of the monotonic clock.
    """

    command: int
    rows: np.ndarray
    has_payload: bool
    sent_at: int


class Outcome(NamedTuple):
    """How a request went.

    Attributes:
        status: `Status` bits.
        touched: One bit for each info column that was written.
        done_at: In nanoseconds of the monotonic clock.
    """

    status: int
    touched: int
    done_at: int


class RequestQueue:
    """The requests of one worker; each side makes its own of the same memory.

    Args:
        counters: (`COUNTERS`,) int64.
        headers: (capacity, `HEADER_WORDS`) int64.
        rows: (capacity, or more,) int32.
    """

    def __init__(self, counters: np.ndarray, headers: np.ndarray, rows: np.ndarray) -> None:
        self._counters = counters.data
        self._headers = [header.data for header in headers]
        self._rows = rows
        self._end = 0
        """Where the rows of the next request go; the caller's alone."""

    def release(self) -> None:
        """Let go of the memory; to be used no more, not even by an error that holds a frame."""
        self._counters, self._headers, self._rows = memoryview(b""), [], np.empty(0, np.int32)

    @property
    def submitted(self) -> int:
        """How many requests were ever submitted."""
        return int(self._counters[_SUBMITTED])

    @property
    def completed(self) -> int:
        """How many of them the worker has completed."""
        return int(self._counters[_COMPLETED])

    @property
    def is_busy(self) -> bool:
        """Whether the worker has started a request that it has not completed."""
        return bool(self._counters[_STARTED] > self._counters[_COMPLETED])

    # ── the caller's side ───────────────────────────────────────────────────────────────────────

    def submit(self, request: Request) -> int:
        """Write a request down; return its number, counted from 0."""
        number = self._counters[_SUBMITTED]
        header, count, size = self._header(number), len(request.rows), len(self._rows)
        assert 0 < count <= size, "a request has rows, each of them once"
        assert number - self._counters[_COMPLETED] < len(self._headers), "the queue overruns"
        start = self._end
        room = size - start
        self._rows[start : start + count] = request.rows[:room]
        if count > room:
            self._rows[: count - room] = request.rows[room:]
        self._end = (start + count) % size
        header[_COMMAND] = request.command
        header[_COUNT] = count
        header[_START] = start
        header[_HAS_PAYLOAD] = request.has_payload
        header[_SENT_AT] = request.sent_at
        self._counters[_SUBMITTED] = number + 1  # last, since it is what the worker looks at
        return int(number)

    def outcome(self, number: int) -> Outcome:
        """Return how a request went that is completed and whose place nobody has taken since."""
        header = self._header(number)
        return Outcome(header[_STATUS], header[_TOUCHED], header[_DONE_AT])

    def reopen(self, number: int) -> None:
        """Make a request, and those after it, requests to be done: the worker is dead."""
        self._counters[_COMPLETED] = number

    def expect_payload(self, number: int) -> None:
        """Say that a message belongs to a request after all: the worker is dead.

        Messages to it are lost, so that its successor is sent others.
        """
        self._header(number)[_HAS_PAYLOAD] = True

    # ── the worker's side ───────────────────────────────────────────────────────────────────────

    def next(self) -> Request | None:
        """Start and return the next request, the same until it is completed; None for none."""
        number = self._counters[_COMPLETED]
        if number == self._counters[_SUBMITTED]:
            return None
        self._counters[_STARTED] = number + 1
        header = self._header(number)
        start, count, size = header[_START], header[_COUNT], len(self._rows)
        rows = self._rows[start : start + count].astype(np.intp)
        if start + count > size:
            rows = np.concatenate([rows, self._rows[: start + count - size]], dtype=np.intp)
        return Request(header[_COMMAND], rows, bool(header[_HAS_PAYLOAD]), header[_SENT_AT])

    def complete(self, outcome: Outcome) -> None:
        """The next request is done."""
        number = self._counters[_COMPLETED]
        header = self._header(number)
        header[_STATUS] = outcome.status
        header[_TOUCHED] = outcome.touched
        header[_DONE_AT] = outcome.done_at
        self._counters[_COMPLETED] = number + 1

    def _header(self, number: int) -> memoryview:
        header: memoryview = self._headers[number % len(self._headers)]
        return header
