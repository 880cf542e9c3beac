"""What a sweep accepts."""

from typing import Any

import pytest

from superdex.bench import SweepSettings


def test_splits_are_all_pairs_in_order():
    """Every number of workers meets every number of environments, workers first."""
    settings = SweepSettings(env="x", num_workers=(2, 1), num_envs_per_worker=(1, 5))
    assert settings.splits == ((2, 1, 1), (2, 5, 1), (1, 1, 1), (1, 5, 1))


def test_every_split_meets_every_number_of_threads():
    """Threads vary fastest; the bare environment is there once, with one thread."""
    settings = SweepSettings(
        env="x", num_workers=(1, 2), num_envs_per_worker=(1, 5), num_threads_per_worker=(2, 1)
    )
    assert settings.splits == (
        *((1, 1, 1), (1, 5, 2), (1, 5, 1)),
        *((2, 1, 2), (2, 1, 1), (2, 5, 2), (2, 5, 1)),
    )


def test_one_name_is_a_tuple_of_one():
    """A single name and a tuple of names are the same to whoever reads them."""
    assert SweepSettings(env="x").envs == ("x",)
    assert SweepSettings(env=("x", "y")).envs == ("x", "y")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"env": ()}, "at least one environment"),
        ({"env": ("x", "")}, "at least one environment"),
        ({"env": ("x", "x")}, "env must name each value once"),
        ({"num_workers": ()}, "num_workers must be a sequence of at least one number"),
        ({"num_workers": 2}, "num_workers must be a sequence"),
        ({"num_workers": "12"}, "num_workers must be a sequence"),
        ({"num_workers": (0,)}, "num_workers must hold whole numbers of at least 1; got 0"),
        ({"num_workers": (True,)}, "num_workers must hold whole numbers"),
        ({"num_workers": (1.5,)}, "num_workers must hold whole numbers"),
        ({"num_workers": (1, 1)}, "num_workers must name each value once"),
        ({"num_envs_per_worker": (-1,)}, "num_envs_per_worker must hold whole numbers"),
        ({"num_threads_per_worker": (0,)}, "num_threads_per_worker must hold whole numbers"),
        ({"min_time": -1.0}, "min_time must be a number of seconds"),
        ({"max_time": float("nan")}, "max_time must be a number of seconds"),
        ({"min_time": 0, "max_time": 0}, "max_time must be more than 0"),
        ({"min_time": 3.0, "max_time": 2.0}, "min_time must not exceed max_time; got 3 and 2"),
        ({"min_iterations": 0}, "min_iterations must be a whole number of at least 1"),
        ({"max_iterations": 1.5}, "max_iterations must be a whole number"),
        ({"min_iterations": 5, "max_iterations": 4}, "min_iterations must not exceed"),
    ],
)
def test_bad_settings_are_refused_by_name(wrong: dict[str, Any], message: str):
    """A value that can't be meant is a ValueError that names the field."""
    with pytest.raises(ValueError, match=message):
        SweepSettings(**{"env": "x", **wrong})
