"""Which worker holds which environments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.vector._split import split_envs


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
