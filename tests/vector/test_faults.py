"""`FaultPolicy` and `RestartBudget`: pure, with the time given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from superdex.vector._faults import FaultPolicy, RestartBudget


def test_faults_are_raised_unless_told_otherwise():
    """The default contains nothing."""
    policy = FaultPolicy()
    assert not policy.restarts_workers
    assert not policy.truncates_episodes


def test_each_kind_of_fault_has_its_own_choice():
    """One can be contained without the other."""
    assert FaultPolicy(on_worker_failure="restart").restarts_workers
    assert not FaultPolicy(on_worker_failure="restart").truncates_episodes
    assert FaultPolicy(on_env_error="truncate").truncates_episodes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_worker_failure": "truncate"}, "on_worker_failure must be 'raise' or 'restart', got"),
        ({"on_env_error": "restart"}, "on_env_error must be 'raise' or 'truncate', got 'restart'"),
        ({"on_env_error": None}, "on_env_error must be .* got None"),
        ({"max_restarts": -1}, "max_restarts must be an integer of at least 0, got -1"),
        ({"max_restarts": 1.5}, "got 1.5"),
        ({"max_restarts": True}, "got True"),
        ({"restart_window": 0}, "restart_window must be a positive number of seconds, got 0"),
        ({"restart_window": math.nan}, "got nan"),
        ({"restart_window": "1h"}, "got '1h'"),
    ],
    ids=str,
)
def test_other_values_are_refused(settings, message):
    """With what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        FaultPolicy(**settings)


def test_numpy_numbers_are_numbers():
    """Settings may come out of arrays."""
    FaultPolicy(max_restarts=np.int64(3), restart_window=np.float32(2))


def test_the_limit_is_told_in_words():
    """Without a window where there is none."""
    assert FaultPolicy(max_restarts=3, restart_window=60).limit == "max_restarts=3 within 60 s"
    assert FaultPolicy(max_restarts=3, restart_window=math.inf).limit == "max_restarts=3"


def test_a_budget_allows_so_many_restarts_and_no_more():
    """A refused one is not counted."""
    budget = RestartBudget(FaultPolicy(max_restarts=2, restart_window=10))
    assert [budget.spend(0, now) for now in (0, 1, 2, 3)] == [True, True, False, False]


def test_each_key_has_a_budget_of_its_own():
    """One worker's deaths don't use up another's."""
    budget = RestartBudget(FaultPolicy(max_restarts=1))
    assert [budget.spend(key, 0.0) for key in (0, 1, 0, 1)] == [True, True, False, False]


def test_restarts_are_forgotten_after_the_window():
    """Each one so many seconds after it happened: the window slides."""
    budget = RestartBudget(FaultPolicy(max_restarts=2, restart_window=10))
    assert [budget.spend(0, now) for now in (0, 6, 9.9, 10, 15, 16)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


def test_a_budget_of_none_allows_none():
    """max_restarts=0 raises at the first fault."""
    assert not RestartBudget(FaultPolicy(max_restarts=0)).spend(0, 0.0)


def test_a_budget_keeps_no_more_than_it_needs():
    """A run of years doesn't grow it."""
    budget = RestartBudget(FaultPolicy(max_restarts=5, restart_window=10))
    for now in range(1000):
        budget.spend(0, float(now))
    assert len(budget._times[0]) <= 5
