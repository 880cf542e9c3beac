"""`EnvClock`: how long each environment takes, by counts and sums."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from superdex.vector import _timing
from superdex.vector._timing import EnvClock, Record


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time on the clock, in seconds; a list of one number."""
    time = [0.0]
    monkeypatch.setattr(_timing, "perf_counter", lambda: time[0])
    return time


def taking(now: list[float], seconds: list[float], action: Any) -> Any:
    """Pretend to take the next of these times."""
    now[0] += seconds.pop(0)
    return action


def test_timed_steps_are_summed_and_the_longest_is_kept(now):
    """For each environment by itself; what the step returns is passed on."""
    clock = EnvClock([partial(taking, now, [0.5, 0.25]), partial(taking, now, [0.125])])
    records = np.zeros((2, Record.LENGTH))
    clock.record_to(records)
    assert clock.steps[0]("action") == "action"
    clock.steps[0](None)
    clock.steps[1](None)
    assert records[:, Record.STEP_SECONDS].tolist() == [0.75, 0.125]
    assert records[:, Record.STEPS].tolist() == [2, 1]
    assert records[:, Record.LONGEST_STEP].tolist() == [0.5, 0.125]


def test_resets_are_always_recorded():
    """Sum, number and the longest."""
    clock = EnvClock([print, print])
    records = np.zeros((2, Record.LENGTH))
    clock.record_to(records)
    for seconds in (0.5, 2.0, 1.0):
        clock.note_reset(1, seconds)
    assert records[1, Record.RESET_SECONDS :].tolist() == [3.5, 3, 2.0]
    assert not records[0].any()


def test_recording_goes_on_where_it_stood():
    """What a worker before wrote there stays."""
    records = np.ones((1, Record.LENGTH))
    clock = EnvClock([print])
    clock.record_to(records)
    clock.note_reset(0, 0.5)
    assert records[0].tolist() == [1, 1, 1, 1.5, 2, 1]


def test_a_replaced_step_is_timed_too(now):
    """The clock follows the list that it was given."""
    steps: list[Any] = [partial(taking, now, [1.0])]
    clock = EnvClock(steps)
    records = np.zeros((1, Record.LENGTH))
    clock.record_to(records)
    steps[0] = partial(taking, now, [4.0])
    clock.steps[0](None)
    assert records[0, Record.STEP_SECONDS] == 4.0


def test_a_step_that_raises_is_not_counted(now):
    """It has no length."""
    clock = EnvClock([partial(taking, now, [])])
    records = np.zeros((1, Record.LENGTH))
    clock.record_to(records)
    with pytest.raises(IndexError):
        clock.steps[0](None)
    assert not records.any()


def test_long_steps_are_timed_always():
    """Those of more than 20 µs on average."""
    clock = EnvClock([print] * 4)
    assert clock.due
    for _ in range(40):
        clock.plan(4 * 21_000)
        assert clock.due


def test_short_steps_are_timed_now_and_then():
    """One in so many, to cost nothing."""
    clock = EnvClock([print] * 4)
    due = []
    interval = _timing._INTERVAL
    for _ in range(3 * interval):
        clock.plan(4 * 19_000)
        due.append(clock.due)
    assert [number for number, timed in enumerate(due, 1) if timed] == [
        interval,
        2 * interval,
        3 * interval,
    ]


def test_a_group_of_no_environments_is_timed_by_nobody():
    """As where another class holds them."""
    clock = EnvClock(())
    clock.plan(1_000_000_000)
    assert clock.steps == []
