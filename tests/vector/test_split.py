"""Which worker holds which environments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import superdex.vector._split
from superdex.vector import SuggestedSplit, suggest_split
from superdex.vector._split import split_envs


@pytest.fixture
def eight_cpus(monkeypatch):
    """Let this process use eight CPUs."""
    monkeypatch.setattr(superdex.vector._split, "usable_cpus", lambda: 8)


def test_environments_are_dealt_out_in_order():
    """Environment i is slot i % K of worker i // K."""
    split = split_envs(6, num_envs_per_worker=2)
    assert split.ranges == (range(2), range(2, 4), range(4, 6))
    assert [split.locate(i) for i in range(6)] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_first_workers_hold_one_more_where_the_split_is_uneven():
    """17 over 6: five workers of three, one of two."""
    split = split_envs(17, num_workers=6)
    assert [len(rows) for rows in split.ranges] == [3, 3, 3, 3, 3, 2]
    assert split.ranges[-1] == range(15, 17)


def test_one_environment_per_worker_is_the_default():
    """Without either number every environment has its own worker."""
    assert split_envs(3).num_workers == 3


def test_as_many_workers_as_environments_is_allowed():
    """num_workers may equal N."""
    assert split_envs(4, num_workers=4).ranges == tuple(range(i, i + 1) for i in range(4))


def test_numpy_integers_are_counts():
    """Numbers that come out of NumPy are accepted."""
    assert split_envs(6, num_envs_per_worker=np.int64(3)).num_workers == 2
    assert split_envs(6, num_workers=np.int32(2)).num_workers == 2


def test_positions_are_grouped_by_worker():
    """Positions of rows asked for in any order are found for each worker, workers in order."""
    split = split_envs(6, num_envs_per_worker=2)
    assert split.by_worker([5, 0, 4, 1]) == {0: [1, 3], 2: [0, 2]}
    assert list(split.by_worker([5, 0])) == [0, 2]
    assert split.by_worker([]) == {}


def test_indivisible_number_is_refused():
    """The message is the documented one, and points to num_workers."""
    with pytest.raises(
        ValueError,
        match="The total number of environments must be divisible by the number of environments "
        "per process",
    ) as caught:
        split_envs(5, num_envs_per_worker=2)
    assert "num_workers" in str(caught.value)


def test_more_workers_than_environments_are_refused():
    """A worker without an environment makes no sense."""
    with pytest.raises(ValueError, match=r"at most 2 .* got 3"):
        split_envs(2, num_workers=3)


def test_both_numbers_are_refused():
    """num_workers and num_envs_per_worker contradict each other, even where they agree."""
    with pytest.raises(ValueError, match="not both"):
        split_envs(6, num_envs_per_worker=2, num_workers=3)


def test_one_environment_per_worker_beside_num_workers_is_the_default():
    """num_envs_per_worker=1 can't be told from the default, so num_workers decides."""
    assert split_envs(6, num_envs_per_worker=1, num_workers=2).num_workers == 2


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2", None])
def test_odd_group_sizes_are_refused(count):
    """num_envs_per_worker is an integer of at least 1."""
    with pytest.raises(ValueError, match="num_envs_per_worker must be an integer of at least 1"):
        split_envs(4, num_envs_per_worker=count)


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2"])
def test_odd_worker_numbers_are_refused(count):
    """num_workers is an integer of at least 1."""
    with pytest.raises(ValueError, match="num_workers must be an integer of at least 1"):
        split_envs(4, num_workers=count)


def test_no_environments_are_refused():
    """An empty batch is an error, not a vector of length zero."""
    with pytest.raises(ValueError, match="env_fns is empty"):
        split_envs(0)


@given(st.integers(1, 200), st.data())
def test_every_split_is_a_partition(num_envs, data):
    """All environments are held once, in order, and sizes differ by one at most."""
    num_workers = data.draw(st.integers(1, num_envs))
    split = split_envs(num_envs, num_workers=num_workers)
    assert [i for rows in split.ranges for i in rows] == list(range(num_envs))
    sizes = [len(rows) for rows in split.ranges]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    assert (split.num_envs, split.num_workers) == (num_envs, num_workers)
    for index in range(num_envs):
        worker, slot = split.locate(index)
        assert split.ranges[worker][slot] == index


@pytest.mark.parametrize(
    ("num_envs", "reserve", "expected"),
    [
        (64, 0, (8, 8)),
        (17, 0, (8, 3)),
        (8, 0, (8, 1)),
        (3, 0, (3, 1)),
        (1, 0, (1, 1)),
        (64, 1, (7, 10)),
        (3, 1, (3, 1)),
        (64, 7, (1, 64)),
        (64, 8, (1, 64)),
        (64, 100, (1, 64)),
    ],
)
def test_suggestion_is_a_worker_for_each_cpu_that_is_not_reserved(
    eight_cpus, num_envs, reserve, expected
):
    """One worker at least, and none without an environment."""
    assert suggest_split(num_envs, reserve=reserve) == expected


@given(st.integers(1, 500), st.integers(0, 12))
def test_suggestion_is_a_possible_split(num_envs, reserve):
    """It can be passed on as it is, and tells the size of the largest worker."""
    split = suggest_split(num_envs, reserve=reserve)
    sizes = [len(rows) for rows in split_envs(num_envs, num_workers=split.num_workers).ranges]
    assert max(sizes) == split.num_envs_per_worker


def test_suggestion_takes_numbers_of_numpy_and_gives_plain_ones(eight_cpus):
    """The result has names."""
    split = suggest_split(np.int64(64), reserve=np.int32(2))
    assert split == SuggestedSplit(num_workers=6, num_envs_per_worker=11)
    assert [type(number) for number in split] == [int, int]


def test_suggestion_heeds_the_limits_of_the_process(monkeypatch):
    """CPUs are counted as everywhere else."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3}, raising=False)
    assert suggest_split(10) == (1, 10)


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2", None])
def test_odd_numbers_of_environments_have_no_suggestion(count):
    """num_envs is an integer of at least 1."""
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1, got"):
        suggest_split(count)


@pytest.mark.parametrize("reserve", [-1, 1.0, True, "2", None])
def test_odd_reserves_are_refused(reserve):
    """Reserve is an integer of at least 0."""
    with pytest.raises(ValueError, match="reserve must be an integer of at least 0, got"):
        suggest_split(4, reserve=reserve)
