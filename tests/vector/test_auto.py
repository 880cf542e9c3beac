"""Trying splits: which ones, which one is taken, and that the vector is made of it."""

from __future__ import annotations

import pytest

from superdex.vector import HybridVectorEnv, SplitChoice, SplitTrial
from superdex.vector._auto import best_trial, candidate_splits
from tests.vector.envs import walks


@pytest.mark.parametrize(
    ("num_envs", "cpus", "at_once", "splits"),
    [
        (64, 1, False, [(1, 1), (2, 1)]),
        (64, 2, False, [(1, 1), (2, 1), (4, 1)]),
        (64, 8, False, [(1, 1), (4, 1), (8, 1), (16, 1)]),
        (3, 8, False, [(1, 1)]),
        (64, 2, True, [(1, 1), (1, 2), (2, 1)]),
        (64, 8, True, [(1, 1), (1, 8), (4, 1), (8, 1), (2, 4), (4, 2)]),
        (1, 8, True, [(1, 1), (1, 8)]),
    ],
)
def test_splits_are_tried_that_fit_the_processors(num_envs, cpus, at_once, splits):
    """Threads only where environments are stepped at once; the first split is the cheapest."""
    assert candidate_splits(num_envs, cpus, at_once=at_once) == splits


def trials(*rates):
    return [SplitTrial(n, 1, rate, 0.5) for n, rate in enumerate(rates, 1)]


@pytest.mark.parametrize(
    ("rates", "workers"),
    [((100.0, 104.0), 1), ((100.0, 106.0), 2), ((50.0, 100.0, 103.0, 90.0), 2), ((7.0,), 1)],
)
def test_more_processes_must_be_worth_it(rates, workers):
    """The first that is about as fast as the fastest is taken."""
    assert best_trial(trials(*rates)).num_workers == workers


def test_a_choice_tells_what_was_tried_and_why():
    """A line for each split, then the arguments and the reason."""
    tried = trials(100.0, 103.0, 50.0)
    text = str(SplitChoice(tuple(tried), tried[0])).splitlines()
    assert len(text) == 4
    assert "103 env-steps/s (103% of the choice)" in text[1]
    assert text[-1] == (
        "chosen: num_workers=1, num_threads_per_worker=1, less than 5% slower than the fastest, "
        "with fewer processes"
    )
    assert str(SplitChoice(tuple(tried), tried[1])).endswith("the fastest")


def test_the_vector_is_made_of_the_choice():
    """It was never stepped, and takes the other arguments of the constructor."""
    with HybridVectorEnv.auto(walks(4), seconds=0.02, autoreset_mode="SameStep") as envs:
        choice = envs.split_choice
        assert choice is not None
        assert (envs.num_envs, envs.num_workers) == (4, choice.best.num_workers)
        assert choice.best in choice.trials
        assert all(trial.env_steps_per_second > 0 for trial in choice.trials)
        assert envs.metadata["autoreset_mode"].value == "SameStep"
        assert envs.statistics().steps == 0
        envs.reset(seed=0)


@pytest.mark.parametrize("argument", ["num_workers", "num_envs_per_worker"])
def test_a_split_beside_it_is_refused(argument):
    """There would be nothing to choose."""
    with pytest.raises(ValueError, match="auto chooses the split itself"):
        HybridVectorEnv.auto(walks(2), **{argument: 2})
