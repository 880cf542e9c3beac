"""The bell: a caller who waits for any of several workers is woken, and only where it sleeps."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from math import inf
from time import perf_counter

import numpy as np
import pytest

from superdex.vector._bell import Bell, Ringer


class Pair:
    """A bell, a worker's side of it, and something to wait for."""

    def __init__(self):
        self.bell = Bell(multiprocessing.get_context("spawn"))
        self.word = np.zeros(8, np.int64)
        self.bell.attach(self.word)
        self.ringer = Ringer(self.word, self.bell.button)
        self.done = False
        self.looks = 0

    def is_over(self):
        self.looks += 1
        return self.done

    def finish(self):
        self.done = True
        self.ringer.ring()

    def is_silent(self):
        """Whether nothing is in the pipe."""
        return not self.bell._pipe.poll()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.bell.release()


def test_what_is_over_is_not_waited_for(pair):
    """One look, no sleep."""
    pair.finish()
    assert pair.bell.wait(pair.is_over, inf)
    assert pair.looks == 1
    assert pair.is_silent(), "nobody slept"


def test_a_sleeper_is_woken(pair):
    """Long before it would look by itself."""
    timer = threading.Timer(0.2, pair.finish)
    timer.start()
    assert pair.bell.wait(pair.is_over, perf_counter() + 10)
    timer.join()
    assert pair.done
    assert not pair.word.any(), "it sleeps no more"


def test_a_deadline_ends_the_wait(pair):
    """At about that time, and the next wait goes on as ever."""
    started = perf_counter()
    assert not pair.bell.wait(pair.is_over, started + 0.15)
    assert 0.14 < perf_counter() - started < 1.0
    assert not pair.bell.wait(pair.is_over, started)
    assert not pair.word.any()
    pair.finish()
    assert pair.bell.wait(pair.is_over, inf)


def test_a_ring_that_came_too_early_does_no_harm(pair):
    """The caller looks, and sleeps again."""
    for _ in range(3):
        pair.bell.ring()
    assert not pair.bell.wait(pair.is_over, perf_counter() + 0.05)
    assert pair.is_silent()


def test_a_wake_up_that_got_lost_costs_a_moment(pair):
    """The sleep is bounded: what is over is seen without a ring."""
    timer = threading.Timer(0.05, lambda: setattr(pair, "done", True))
    timer.start()
    started = time.monotonic()
    assert pair.bell.wait(pair.is_over, inf)
    assert time.monotonic() - started < 2.0
    timer.join()
