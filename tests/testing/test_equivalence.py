"""`check_equivalence` passes what keeps to itself and finds each kind of what does not."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.envs import CartPoleEnv
from superdex.testing import check_equivalence
from tests.vector.envs import OddInfos, Walk

SPLITS = [(1, 4), (2, 2), (4, 1)]
check = partial(check_equivalence, splits=SPLITS, num_steps=30, in_process=True)

steps_of_all = itertools.count()
shared_memory = np.zeros(1)


class SharesState(Walk):
    """Keeps its position in a class attribute, so that siblings move each other."""

    place = 0.0

    def step(self, action):
        type(self).place += float(action.sum())
        observation, _, terminated, truncated, info = super().step(action)
        observation[0] = type(self).place
        return observation, 0.0, terminated, truncated, info

    def reset(self, **kwargs):
        type(self).place = 0.0
        return super().reset(**kwargs)


class CountsAll(Walk):
    """Its reward depends on a counter of the whole module."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return (observation, float(next(steps_of_all)), *rest)


class OwnRandomness(Walk):
    """Draws from the process's generator instead of its own."""

    def reset(self, **kwargs):
        observation, info = super().reset(**kwargs)
        return observation, {**info, "noise": float(np.random.random())}  # noqa: NPY002


class LeaksInfo(Walk):
    """Remembers its siblings in an info."""

    built = itertools.count()

    def __init__(self):
        super().__init__()
        self.number = next(self.built)

    def step(self, action):
        *rest, info = super().step(action)
        return (*rest, {**info, "number": self.number})


class ForgetsItsSeed(Walk):
    """A reset with a seed depends on what happened before it."""

    resets = itertools.count()

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=next(self.resets), options=options)


@pytest.mark.parametrize("env_class", [Walk, OddInfos])
def test_environments_that_keep_to_themselves_pass(env_class):
    """In all modes and splits."""
    check([env_class] * 4)


def test_they_pass_in_workers_too():
    """Where splits are processes."""
    check_equivalence([Walk] * 4, [(2, 2)], num_steps=20)


@pytest.mark.parametrize(
    ("env_class", "what"),
    [
        (SharesState, r"1 x 4, NEXT_STEP, step \d+, environment \d: observation differs"),
        (CountsAll, r"1 x 4, NEXT_STEP, step 1, environment 0: reward differs"),
        (OwnRandomness, r"1 x 4, NEXT_STEP, reset, environment 0: info differs in \['noise'\]"),
        (LeaksInfo, r"environment 0: info differs in \['number'\] \(\d, expected \d\)"),
        (ForgetsItsSeed, r"1 x 4, NEXT_STEP, reset, environment 0: observation differs"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_leaks_between_environments_is_found(env_class, what):
    """The message names split, mode, step, environment, and both values."""
    with pytest.raises(AssertionError, match=what) as caught:
        check([env_class] * 4)
    assert "got:" in str(caught.value)
    assert "expected:" in str(caught.value)


def test_a_leak_between_siblings_passes_where_each_has_a_process():
    """That is why splits matter: the same class alone in its worker keeps its promise."""
    check_equivalence([SharesState] * 2, [(2, 1)], num_steps=20)


def test_given_actions_are_used():
    """In place of random ones, (steps, environments, …)."""
    seen = set()

    class Noting(Walk):
        def step(self, action):
            seen.add(tuple(action))
            return super().step(action)

    actions = np.full((5, 2, 2), 0.25, np.float32)
    check_equivalence([Noting] * 2, [(1, 2)], actions=actions, in_process=True)
    assert seen == {(0.25, 0.25)}


def test_only_the_modes_asked_for_are_checked():
    """By default all three."""
    with pytest.raises(AssertionError, match="1 x 4, SAME_STEP"):
        check([CountsAll] * 4, autoreset_modes=[AutoresetMode.SAME_STEP])


@pytest.mark.parametrize("split", [(2, 3), (3, 1), (1, 5)])
def test_a_split_that_does_not_fit_is_refused(split):
    """Before anything runs."""
    with pytest.raises(ValueError, match=rf"\({split[0]}, {split[1]}\) does not hold 4"):
        check_equivalence([Walk] * 4, [split])


def test_uneven_splits_have_the_number_of_the_largest_worker():
    """Four over three is (3, 2)."""
    check_equivalence([Walk] * 4, [(3, 2)], num_steps=10, in_process=True)


@pytest.mark.parametrize(("num_envs", "splits"), [(0, [(1, 0)]), (2, [])])
def test_nothing_to_compare_is_refused(num_envs, splits):
    """No environment or no split is no proof."""
    with pytest.raises(ValueError, match="needs at least one environment, one split"):
        check_equivalence([CartPoleEnv] * num_envs, splits)
