"""`BoxSpaces` turns other spaces into a Box, and actions back."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from superdex.vector import BoxSpaces, HybridVectorEnv


class Echo(gym.Env):
    """Takes any action and remembers it; observes a sample of its space."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.actions: list[Any] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(action)
        return self.observation_space.sample(), 1.0, False, False, {}


BOX = spaces.Box(-1, 1, (2,), np.float32)
NESTED = spaces.Dict(
    {
        "choice": spaces.Discrete(3, start=5),
        "part": spaces.Tuple([spaces.Box(0, 1, (2, 2)), spaces.MultiBinary(3)]),
        "many": spaces.MultiDiscrete([2, 3]),
    }
)


def wrapped(action_space=BOX, observation_space=BOX):
    return BoxSpaces(Echo(observation_space, action_space))


def taken(action_space, flat):
    """Return the action that the environment got for a flat one."""
    env = wrapped(action_space)
    env.reset()
    env.step(np.array(flat, np.float32))
    return env.unwrapped.actions[0]


def test_boxes_stay_as_they_are():
    """The wrapper does nothing where nothing is needed."""
    env = wrapped()
    assert env.observation_space is BOX
    assert env.action_space is BOX


def test_observations_are_flattened_as_by_gymnasium():
    """One-hot for choices, all parts in one array."""
    env = wrapped(observation_space=NESTED)
    observation, _ = env.reset(seed=3)
    plain = Echo(NESTED, BOX).reset(seed=3)[0]
    np.testing.assert_array_equal(observation, spaces.flatten(NESTED, plain))
    assert env.observation_space.contains(observation)


def test_the_largest_entry_chooses():
    """In a Discrete, counted from its start."""
    action = taken(spaces.Discrete(3, start=5), [0.1, -2, 0.4])
    assert action == 7


def test_each_part_of_a_multi_discrete_is_chosen():
    """By the largest of its own entries."""
    assert taken(spaces.MultiDiscrete([2, 3]), [1, 2, 5, 4, 3]).tolist() == [1, 0]


def test_a_multi_discrete_may_have_a_start_and_a_shape():
    """Both are kept."""
    space = spaces.MultiDiscrete([[2], [2]], start=[[1], [-1]])
    assert taken(space, [0, 1, 1, 0]).tolist() == [[2], [-1]]


def test_a_binary_entry_is_on_from_a_half():
    """Below it is off."""
    assert taken(spaces.MultiBinary(3), [0.49, 0.5, 2]).tolist() == [0, 1, 1]


def test_a_box_in_a_dict_is_clipped():
    """So that any flat action is an action."""
    action = taken(spaces.Dict({"a": BOX}), [-3, 0.5])
    np.testing.assert_array_equal(action["a"], np.float32([-1, 0.5]))
    assert action["a"].dtype == np.float32


def test_a_box_action_space_is_passed_on_untouched():
    """Clipping there is the environment's own affair."""
    env = wrapped(observation_space=spaces.Discrete(2))
    env.reset()
    action = np.float32([0.5, -0.5])
    env.step(action)
    assert env.unwrapped.actions[0] is action


@given(st.integers(0, 1000))
def test_what_gymnasium_flattens_is_read_back(seed):
    """Flattening an action and reading it gives that action."""
    NESTED.seed(seed)
    action = NESTED.sample()
    env = wrapped(NESTED)
    env.reset()
    env.step(spaces.flatten(NESTED, action))
    got = env.unwrapped.actions[0]
    assert got["choice"] == action["choice"]
    np.testing.assert_array_equal(got["part"][0], action["part"][0])
    np.testing.assert_array_equal(got["part"][1], action["part"][1])
    np.testing.assert_array_equal(got["many"], action["many"])


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=15, max_size=15))
def test_any_point_is_an_action(flat):
    """The environment only ever gets what its space contains."""
    env = wrapped(NESTED)
    env.reset()
    env.step(np.array(flat, np.float32))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict({"a": spaces.Text(3)}),
        spaces.Tuple([spaces.Sequence(spaces.Discrete(2))]),
    ],
    ids=repr,
)
def test_what_has_no_flat_form_to_act_in_is_refused(space):
    """By name."""
    with pytest.raises(TypeError, match="can't become a Box"):
        wrapped(space)


def test_observations_without_a_fixed_size_are_refused():
    """By name."""
    space = spaces.Sequence(spaces.Discrete(2))
    with pytest.raises(TypeError, match="has no fixed flat size"):
        wrapped(observation_space=space)


def test_a_spec_remembers_the_wrapper():
    """Gymnasium can make the wrapped environment again from its spec."""
    again = gym.make(BoxSpaces(gym.make("CartPole-v1")).spec)
    assert isinstance(again, BoxSpaces)
    assert again.action_space.shape == (2,)


def test_a_vector_takes_wrapped_environments():
    """A Discrete action becomes a row of one number per choice."""
    env_fns = [lambda: BoxSpaces(gym.make("CartPole-v1"))] * 2
    with HybridVectorEnv(env_fns, 2, in_process=True) as envs:
        envs.reset(seed=0)
        assert envs.action_space.shape == (2, 2)
        result = envs.step(np.array([[1, 0], [0, 1]]))
        assert result.reward.tolist() == [1, 1]
        velocity = result.observation[:, 1]
        assert velocity[0] < 0 < velocity[1]
