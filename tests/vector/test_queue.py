"""The queue of requests: order, outcomes, and rings that go round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.vector._queue import COUNTERS, HEADER_WORDS, Outcome, Request, RequestQueue


def sides(capacity: int) -> tuple[RequestQueue, RequestQueue]:
    """Return the caller's and the worker's side of one queue."""
    memory = (
        np.zeros(COUNTERS, np.int64),
        np.zeros((capacity, HEADER_WORDS), np.int64),
        np.zeros(capacity, np.int32),
    )
    return RequestQueue(*memory), RequestQueue(*memory)


def request(rows, command=1, has_payload=False, sent_at=5):
    return Request(command, np.array(rows, np.intp), has_payload, sent_at)


def test_an_empty_queue_has_nothing_next():
    """A worker that is woken for nothing finds nothing."""
    caller, worker = sides(3)
    assert worker.next() is None
    assert (caller.submitted, caller.completed) == (0, 0)


def test_a_request_arrives_whole():
    """Command, rows, payload and time come out as they went in."""
    caller, worker = sides(4)
    assert caller.submit(request([0, 3], command=7, has_payload=True, sent_at=2**40)) == 0
    command, rows, has_payload, sent_at = worker.next()
    assert (command, rows.tolist(), has_payload, sent_at) == (7, [0, 3], True, 2**40)
    assert rows.dtype == np.intp


def test_the_next_request_stays_until_it_is_completed():
    """A worker that dies over a request leaves it to its successor."""
    caller, worker = sides(4)
    caller.submit(request([1]))
    caller.submit(request([2]))
    assert worker.next().rows.tolist() == worker.next().rows.tolist() == [1]
    worker.complete(Outcome(0, 0, 0))
    assert worker.next().rows.tolist() == [2]


def test_a_worker_is_busy_from_start_to_completion():
    """What waits in the queue does not make a worker busy."""
    caller, worker = sides(2)
    caller.submit(request([0]))
    assert not caller.is_busy
    worker.next()
    assert caller.is_busy
    worker.complete(Outcome(0, 0, 0))
    assert not caller.is_busy


def test_an_outcome_is_read_by_number():
    """Status, columns and time of each request are kept until its place is taken."""
    caller, worker = sides(2)
    for number in range(5):
        assert caller.submit(request([0])) == number
        worker.complete(Outcome(number % 4, 1 << 61, 10 + number))
        assert caller.completed == number + 1
        assert caller.outcome(number) == (number % 4, 1 << 61, 10 + number)


def test_a_reopened_request_comes_again():
    """What a worker did and could not tell is done by its successor, and what came after it too."""
    caller, worker = sides(3)
    for row in range(3):
        caller.submit(request([row]))
    for _ in range(3):
        worker.complete(Outcome(0, 0, 0))
    caller.reopen(1)
    assert worker.next().rows.tolist() == [1]
    worker.complete(Outcome(0, 0, 0))
    assert worker.next().rows.tolist() == [2]


def test_a_successor_is_sent_a_message_where_there_was_none():
    """Whether a message belongs to a request can be said until it is done."""
    caller, worker = sides(2)
    caller.expect_payload(caller.submit(request([0])))
    assert worker.next().has_payload is True


def test_an_overrun_is_refused():
    """More requests than rows would be a row in flight twice."""
    caller, _ = sides(1)
    caller.submit(request([0]))
    with pytest.raises(AssertionError):
        caller.submit(request([0]))


@given(st.integers(1, 9), st.data())
def test_requests_come_out_in_order_however_the_rings_go_round(capacity, data):
    """Whatever is submitted and completed in turn, each request comes out once, in order."""
    caller, worker = sides(capacity)
    free, expected = set(range(capacity)), []
    for _ in range(30):
        if free and (not expected or data.draw(st.booleans())):
            rows = sorted(data.draw(st.sets(st.sampled_from(sorted(free)), min_size=1)))
            caller.submit(request(rows))
            expected.append(rows)
            free -= set(rows)
        else:
            rows = expected.pop(0)
            assert worker.next().rows.tolist() == rows
            worker.complete(Outcome(0, 0, 0))
            free |= set(rows)
    assert caller.submitted - caller.completed == len(expected)
