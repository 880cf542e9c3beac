"""Semaphores that wake the other process."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path
from time import perf_counter

from superdex.vector._signal import Signal


def names() -> set[Path]:
    """Return the semaphores of this process that have a name."""
    return set(Path("/dev/shm").glob(f"*-{os.getpid()}-*"))


def answer(request: Signal, reply: Signal) -> None:
    """Wake once for each time woken, twice."""
    for _ in range(2):
        request.wait()
        reply.release()


def test_a_release_before_the_wait_is_not_lost():
    """Wake-ups are counted."""
    signal = Signal()
    signal.release()
    signal.release()
    now = perf_counter()
    assert signal.wait(now)
    assert signal.wait(now)
    assert not signal.wait(now)
    signal.unlink()


def test_a_wait_ends_at_its_deadline():
    """Without a wake-up a wait returns False, not before the deadline."""
    signal = Signal()
    deadline = perf_counter() + 0.02
    assert not signal.wait(deadline)
    assert perf_counter() >= deadline
    signal.unlink()


def test_a_deadline_in_the_past_is_no_error():
    """It only looks."""
    signal = Signal()
    assert not signal.wait(perf_counter() - 5)
    signal.unlink()


def test_a_release_wakes_a_blocked_wait():
    """A wait that blocks, long after its spin, ends when it is woken."""
    signal = Signal()
    timer = threading.Timer(0.05, signal.release)
    timer.start()
    assert signal.wait(perf_counter() + 10)
    timer.join()
    signal.unlink()


def test_a_spawned_process_gets_the_same_semaphore():
    """Wake-ups cross the process boundary, after the name is given up too."""
    context = multiprocessing.get_context("spawn")
    request, reply = Signal(), Signal()
    process = context.Process(target=answer, args=(request, reply))
    process.start()
    request.release()
    assert reply.wait(perf_counter() + 30)
    request.unlink()
    reply.unlink()
    request.release()
    assert reply.wait(perf_counter() + 30)
    process.join(10)
    assert process.exitcode == 0
    process.close()


def test_unlinking_removes_the_name():
    """Nothing of it is left in /dev/shm, and unlinking twice does nothing."""
    before = names()
    signal = Signal()
    assert len(names() - before) == 1
    signal.unlink()
    signal.unlink()
    assert names() == before


def test_waiting_leaves_the_processor_alone():
    """A blocked wait costs next to no processor time."""
    signal = Signal()
    started = time.thread_time()
    signal.wait(perf_counter() + 0.2)
    assert time.thread_time() - started < 0.1
    signal.unlink()
