"""The plain loop, by examples worked out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from superdex.testing import PlainLoop, Transition, row_info


class Script(gym.Env):
    """Plays two steps an episode: observation 10·episode + step, reward the step's number."""

    def __init__(self, *, truncates=False):
        self.observation_space = Box(0, 99, (1,), np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.truncates = truncates
        self.episode = -1
        self.seen: list[Any] = []
        self.memory = np.zeros(1)

    def reset(self, *, seed=None, options=None):
        self.seen.append((seed, options))
        self.episode += 1
        self.steps = 0
        return self.observe(), {"first": self.episode}

    def step(self, action):
        self.steps += 1
        self.seen.append(float(action[0]))
        ended = self.steps == 2
        info = {"n": self.steps}
        return (
            self.observe(),
            np.float32(self.steps),
            ended and not self.truncates,
            ended and self.truncates,
            info,
        )

    def observe(self):
        self.memory[:] = 10 * self.episode + self.steps
        return self.memory


def played(mode: AutoresetMode, steps: int, **kwargs: Any) -> list[Transition]:
    loop = PlainLoop(Script(**kwargs), mode)
    return [loop.reset(seed=1), *(loop.step(np.array([0.5], np.float32)) for _ in range(steps))]


def table(transitions: list[Transition]) -> list[tuple[Any, ...]]:
    return [
        (float(t.observation[0]), t.reward, t.terminated, t.truncated, t.info) for t in transitions
    ]


def test_next_step_resets_in_the_step_after_an_end():
    """Whose action is ignored."""
    assert table(played(AutoresetMode.NEXT_STEP, 4)) == [
        (0, 0, False, False, {"first": 0}),
        (1, 1, False, False, {"n": 1}),
        (2, 2, True, False, {"n": 2}),
        (10, 0, False, False, {"first": 1}),
        (11, 1, False, False, {"n": 1}),
    ]


def test_same_step_resets_at_once():
    """With the last observation and info kept aside."""
    transitions = played(AutoresetMode.SAME_STEP, 3, truncates=True)
    assert table(transitions) == [
        (0, 0, False, False, {"first": 0}),
        (1, 1, False, False, {"n": 1}),
        (10, 2, False, True, {"first": 1}),
        (11, 1, False, False, {"n": 1}),
    ]
    finals = [t.final_observation for t in transitions]
    assert finals[2] is not None
    assert finals[2].tolist() == [2]
    assert [finals[0], finals[1], finals[3]] == [None] * 3
    assert [t.final_info for t in transitions] == [None, None, {"n": 2}, None]


def test_disabled_steps_on():
    """The caller resets."""
    assert table(played(AutoresetMode.DISABLED, 3))[2:] == [
        (2, 2, True, False, {"n": 2}),
        (3, 3, False, False, {"n": 3}),
    ]


def test_seeds_and_options_are_passed_on():
    """Autoresets have none, and the ignored action reaches nobody."""
    env = Script()
    loop = PlainLoop(env, AutoresetMode.NEXT_STEP)
    loop.reset(seed=3, options={"a": 1})
    for number in (0.25, 0.5, 0.75):
        loop.step(np.array([number], np.float32))
    assert env.seen == [(3, {"a": 1}), 0.25, 0.5, (None, None)]


def test_a_reset_by_the_caller_replaces_the_pending_one():
    """The next step is a step."""
    loop = PlainLoop(Script(), AutoresetMode.NEXT_STEP)
    loop.reset()
    for _ in range(2):
        loop.step(np.zeros(1, np.float32))
    loop.reset()
    assert loop.step(np.zeros(1, np.float32)).observation.tolist() == [11]


def test_what_it_returns_is_its_own():
    """In the space's dtype, though the environment writes to its memory again."""
    transitions = played(AutoresetMode.NEXT_STEP, 2)
    assert [float(t.observation[0]) for t in transitions] == [0, 1, 2]
    assert transitions[0].observation.dtype == np.float32
    assert type(transitions[1].reward) is float


BATCHED = {
    "n": np.array([1, 0]),
    "_n": np.array([True, False]),
    "nested": {"x": np.array([0.5, 0]), "_x": np.array([True, False])},
    "_nested": np.array([True, True]),
    7: np.array(["a", None], object),
    "_7": np.array([True, False]),
}


@pytest.mark.parametrize(
    ("row", "expected"), [(0, {"n": 1, "nested": {"x": 0.5}, 7: "a"}), (1, {"nested": {}})]
)
def test_a_row_is_read_back_by_masks(row, expected):
    """What was not given is not there."""
    assert row_info(BATCHED, row) == expected
