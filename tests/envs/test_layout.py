"""Named boxes and the flat box, in both directions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from superdex.envs import CartPoleEnv
from superdex.envs._layout import BoxLayout

shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)
boxes = st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), shapes, min_size=1, max_size=5)


def finite_boxes(named_shapes):
    return {
        name: Box(-1.0 - i, 1.0 + i, shape, np.float32)
        for i, (name, shape) in enumerate(named_shapes.items())
    }


@settings(max_examples=40, deadline=None)
@given(named_shapes=boxes, seed=st.integers(0, 9))
def test_it_flattens_as_gymnasium_does(named_shapes, seed):
    """The fast plan gives what gymnasium.spaces.flatten gives for the Dict of the same boxes."""
    space = gym.spaces.Dict(finite_boxes(named_shapes))
    space.seed(seed)
    sample = space.sample()
    layout = BoxLayout.of(finite_boxes(named_shapes))
    flat = layout.flatten(sample)
    assert np.array_equal(flat, gym.spaces.flatten(space, sample))
    assert layout.space() == gym.spaces.flatten_space(space)
    views = layout.views(flat)
    assert list(views) == sorted(named_shapes)
    for name, value in sample.items():
        assert np.array_equal(views[name], value)
        assert np.shares_memory(views[name], flat)


@settings(max_examples=40, deadline=None)
@given(named_shapes=boxes, batch=st.lists(st.integers(1, 3), max_size=2), seed=st.integers(0, 9))
def test_conversion_is_a_round_trip_for_batches_too(named_shapes, batch, seed):
    """(…, size) → names → (…, size), as new arrays."""
    layout = BoxLayout.of(finite_boxes(named_shapes))
    flat = np.random.default_rng(seed).uniform(size=(*batch, layout.size)).astype(np.float32)
    structured = layout.to_structured(flat, "x")
    for name, shape in named_shapes.items():
        assert structured[name].shape == (*batch, *shape)
        assert not np.shares_memory(structured[name], flat)
    assert np.array_equal(layout.to_flat(structured, "x"), flat)


def test_equal_boxes_share_one_layout_and_have_their_own_spaces():
    """The plan is computed once; random generators are each environment's own."""
    first, second = CartPoleEnv(), CartPoleEnv()
    assert first._observation_layout is second._observation_layout
    assert first.observation_space is not second.observation_space
    first.action_space.seed(1)
    second.action_space.seed(2)
    assert first.action_space.sample() != second.action_space.sample()
    first.close()
    second.close()


def test_wrong_names_and_shapes_are_named():
    """A conversion says what it expected and what it got."""
    layout = BoxLayout.of({"a": Box(-1, 1, (2,)), "b": Box(-1, 1, (1,))})
    with pytest.raises(ValueError, match=r"must have the keys \['a', 'b'\], got \['a'\]"):
        layout.to_flat({"a": [1, 2]}, "The action")
    with pytest.raises(ValueError, match=r"'a' must have shape .*got \(3,\)"):
        layout.to_flat({"a": [1, 2, 3], "b": [1]}, "The action")
    with pytest.raises(ValueError, match=r"must have shape \(…, 3\), got \(2,\)"):
        layout.to_structured([1, 2], "The action")


def test_only_boxes_can_be_declared():
    """Another space is an error that names it."""
    with pytest.raises(TypeError, match=r"gripper must be a gymnasium\.spaces\.Box, got Discr"):
        BoxLayout.of({"gripper": gym.spaces.Discrete(2)})
    with pytest.raises(ValueError, match="at least one named Box"):
        BoxLayout.of({})


def test_clipping_keeps_to_the_bounds():
    """Clipping is NumPy's, and makes a new array."""
    layout = BoxLayout.of({"a": Box(-1, 1, (2,)), "b": Box(0, 5, (2,))})
    action = np.array([-3, 0.5, -1, 7], np.float32)
    clipped = layout.clipped(action)
    assert clipped.tolist() == [-1, 0.5, 0, 5]
    assert action.tolist() == [-3, 0.5, -1, 7]
    assert clipped.dtype == np.float32


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_number_that_is_not_finite_is_found_anywhere(value, place):
    """No nan or infinity passes, though infinities could be clipped."""
    layout = BoxLayout.of({"a": Box(-1, 1, (3,))})
    action = np.zeros(3, np.float32)
    action[place] = value
    with pytest.raises(ValueError, match="The action must be finite"):
        layout.clipped(action)


def test_the_largest_finite_numbers_pass():
    """The check for finite numbers does not overflow."""
    layout = BoxLayout.of({"a": Box(-1, 1, (2,))})
    assert layout.clipped(np.full(2, np.finfo(np.float32).max)).tolist() == [1, 1]


@pytest.mark.parametrize("action", [np.zeros(2, complex), ["1", "2"], np.zeros(2, object), None])
def test_what_is_no_real_number_is_refused(action):
    """In words of our own that name the dtype, and never by dropping a part."""
    layout = BoxLayout.of({"a": Box(-1, 1, (2,))})
    with pytest.raises(ValueError, match="The action must hold real numbers, got dtype"):
        layout.clipped(action)


def test_fractions_are_refused_where_a_box_holds_integers():
    """Nothing is rounded silently; integers of another width are fine."""
    layout = BoxLayout.of({"a": Box(-3, 3, (2,), np.int32)})
    assert layout.clipped(np.array([-9, 2], np.int64)).tolist() == [-3, 2]
    with pytest.raises(ValueError, match="must hold integers, got dtype float64"):
        layout.clipped(np.array([0.5, 0.0]))


def test_a_finite_number_too_large_for_the_dtype_is_clipped():
    """1e300 is finite, though not as a float32; without bounds it becomes the largest number."""
    bounded = BoxLayout.of({"a": Box(-1, 1, (2,))})
    assert bounded.clipped(np.array([1e300, -1e300])).tolist() == [1.0, -1.0]
    unbounded = BoxLayout.of({"a": Box(-np.inf, np.inf, (1,))})
    assert unbounded.clipped(np.array([1e300])).tolist() == [float(np.finfo(np.float32).max)]
    with pytest.raises(ValueError, match="must be finite"):
        bounded.clipped(np.array([np.inf, 0.0]))
