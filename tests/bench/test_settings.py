"""What a sweep accepts."""

from dataclasses import replace
from typing import Any

import pytest

from superdex.bench import SweepSettings


def test_splits_are_all_pairs_in_order():
    """Every number of workers meets every number of environments, workers first."""
    settings = SweepSettings(env="x", num_workers=(2, 1), num_envs_per_worker=(1, 5))
    assert settings.splits == ((2, 1, 1), (2, 5, 1), (1, 1, 1), (1, 5, 1))


@pytest.mark.parametrize(
    "asked",
    [
        {"num_workers": (2, 4), "num_envs_per_worker": (1, 5)},
        {"num_workers": (1, 2), "num_envs_per_worker": (8,)},
        {"num_workers": (1, 2), "num_envs_per_worker": (8,), "num_threads_per_worker": (2, 4)},
        {"num_envs": 64, "num_workers": (1, 2)},
    ],
)
def test_the_bare_environment_is_measured_whatever_is_asked_for(asked: dict[str, Any]):
    """Once, and first where it is not among the splits."""
    splits = SweepSettings(env="x", **asked).splits
    assert splits[0] == (1, 1, 1)
    assert splits.count((1, 1, 1)) == 1


def test_splits_of_one_number_have_that_many_environments():
    """Each number of workers has its share; threads vary fastest."""
    settings = SweepSettings(
        env="x", num_envs=12, num_workers=(1, 3, 4), num_threads_per_worker=(1, 2)
    )
    assert settings.num_envs_per_worker == (12, 4, 3)
    assert settings.splits[1:] == (
        *((1, 12, 1), (1, 12, 2), (3, 4, 1), (3, 4, 2), (4, 3, 1), (4, 3, 2)),
    )


def test_left_out_workers_divide_the_number_and_fit_the_cpus(monkeypatch):
    """Powers of two and all CPUs to use; one and two on a single one."""
    for cpus, num_envs, workers in [
        (1, 512, (1, 2)),
        (6, 512, (1, 2, 4)),
        (6, 60, (1, 2, 4, 6)),
        (8, 512, (1, 2, 4, 8)),
        (8, 7, (1,)),
    ]:
        monkeypatch.setattr("superdex.bench._settings.usable_cpus", lambda cpus=cpus: cpus)
        assert SweepSettings(env="x", num_envs=num_envs).num_workers == workers


def test_settings_of_one_number_can_be_replaced():
    """What was filled in is taken back."""
    settings = SweepSettings(env="x", num_envs=12, num_workers=(1, 3))
    assert replace(settings, min_time=0.5).splits == settings.splits


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
        ({"num_envs": 1}, "num_envs must be a whole number of at least 2, as one environment"),
        ({"num_envs": 2.0}, "num_envs must be a whole number of at least 2"),
        ({"num_envs": True}, "num_envs must be a whole number of at least 2"),
        (
            {"num_envs": 8, "num_envs_per_worker": (4,)},
            r"Give num_envs or num_envs_per_worker, not both.*num_envs=8 and .*\(4,\)",
        ),
        (
            {"num_envs": 512, "num_workers": (2, 3, 7)},
            "num_envs=512 can't be divided among 3, 7 workers evenly.*such as 1, 2, 4, 8",
        ),
        ({"num_envs": 4, "num_workers": (8,)}, "can't be divided among 8 workers"),
        ({"num_envs": 4, "num_workers": ()}, "num_workers must be a sequence of at least one"),
    ],
)
def test_bad_settings_are_refused_by_name(wrong: dict[str, Any], message: str):
    """A value that can't be meant is a ValueError that names the field."""
    with pytest.raises(ValueError, match=message):
        SweepSettings(**{"env": "x", **wrong})
