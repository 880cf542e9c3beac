"""The tests of an environment of your own, in a few lines."""

import pytest

from examples.custom_env import BallEnv
from superdex.testing import check_equivalence, check_scene_env, check_scene_name


def test_environments_on_one_scene_do_not_disturb_each_other() -> None:
    """What one does leaves no trace in its siblings."""
    check_scene_env(BallEnv)


def test_scene_names_tell_constructions_apart() -> None:
    """One name stands for one construction."""
    check_scene_name(BallEnv, [{"damping": value} for value in (0.1, 0.5, 1.0)])


@pytest.mark.parametrize("split", [(1, 4), (2, 2)])
def test_batches_give_what_a_plain_loop_gives(split: tuple[int, int]) -> None:
    """The split changes no number."""
    check_equivalence([BallEnv] * 4, splits=[split], num_steps=50)
