"""Spaces of single environments checked, described for the parent, and batched there."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from superdex.vector._spaces import batch_boxes, report_spaces

UNIT = Box(-1, 1, (2,), np.float32)


class Spaces(gym.Env):
    def __init__(self, observation_space=UNIT, action_space=UNIT):
        self.observation_space, self.action_space = observation_space, action_space


def batched(*groups: list[Box]) -> Box:
    """Return the batched observation space of workers with such spaces."""
    reports, ranges, start = [], [], 0
    for group in groups:
        report = report_spaces([Spaces(box) for box in group], start)
        reports.append(report.observation)
        ranges.append(range(start, start + len(group)))
        start += len(group)
    return batch_boxes(reports, ranges, "observation")


def test_equal_spaces_are_batched_as_gymnasium_does():
    """One more axis, the same bounds in each row."""
    assert batched([UNIT, UNIT], [UNIT]) == gym.vector.utils.batch_space(UNIT, 3)


def test_scalar_spaces_are_batched():
    """A Box of shape () becomes one of shape (N,)."""
    assert batched([Box(0, 1, ())] * 3).shape == (3,)


def test_bounds_may_differ_within_a_worker():
    """They appear in low and high, row by row."""
    space = batched([Box(-1, 1, (2,)), Box(-2, 3, (2,))], [Box(-1, 1, (2,))])
    assert space.low.tolist() == [[-1, -1], [-2, -2], [-1, -1]]
    assert space.high.tolist() == [[1, 1], [3, 3], [1, 1]]
    assert space.dtype == np.float32


def test_bounds_may_differ_between_workers():
    """Each worker's own are equal, and still each row has its own."""
    space = batched([Box(0, 1, (1,))] * 2, [Box(0, 9, (1,), np.float32)])
    assert space.high.tolist() == [[1], [1], [9]]


def test_infinite_bounds_may_stand_beside_finite_ones():
    """Both are kept."""
    space = batched([Box(-np.inf, np.inf, (1,)), Box(0, 1, (1,))])
    assert space.low.tolist() == [[-np.inf], [0]]
    assert space.high.tolist() == [[np.inf], [1]]


@pytest.mark.parametrize(
    "other", [Box(-1, 1, (3,)), Box(-1, 1, (2, 1)), Box(-1, 1, (2,), np.float64)]
)
def test_shapes_and_dtypes_must_agree_within_a_worker(other):
    """Both environments, shapes and dtypes are named."""
    with pytest.raises(ValueError, match=r"environment 4 has \(2,\) float32, environment 5 has"):
        report_spaces([Spaces(UNIT), Spaces(other)], 4)


@pytest.mark.parametrize("other", [Box(-1, 1, (3,)), Box(-1, 1, (2,), np.float64)])
def test_shapes_and_dtypes_must_agree_between_workers(other):
    """As within one."""
    with pytest.raises(ValueError, match=r"observation spaces .* environment 0 .* environment 2"):
        batched([UNIT, UNIT], [other])


@pytest.mark.parametrize(
    "space", [Discrete(3), Dict({"a": UNIT}), Tuple([UNIT]), MultiBinary(2)], ids=repr
)
@pytest.mark.parametrize("role", ["observation", "action"])
def test_other_spaces_are_refused_with_the_wrapper_that_helps(space, role):
    """The error names environment, kind and space, and BoxSpaces."""
    with pytest.raises(TypeError) as caught:
        report_spaces([Spaces(), Spaces(**{f"{role}_space": space})], 7)
    message = str(caught.value)
    assert message.startswith(f"Environment 8 has a {type(space).__name__} {role} space")
    assert str(space) in message
    assert "superdex.vector.BoxSpaces" in message


def test_metadata_and_render_mode_are_the_first_environments():
    """They are reported beside the spaces."""
    first = Spaces()
    first.metadata = {"render_fps": 9}
    first.render_mode = "ansi"
    report = report_spaces([first, Spaces()], 0)
    assert report.metadata == {"render_fps": 9}
    assert report.render_mode == "ansi"
