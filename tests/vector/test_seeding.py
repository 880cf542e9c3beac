"""Seeds, reset options and chosen rows, as one entry per environment."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.vector._seeding import derived_seed, normalize_options, normalize_seeds, select_rows


def test_no_seed_is_none_for_all():
    """None leaves every environment's generator alone."""
    assert normalize_seeds(None, range(3)) == [None, None, None]


@pytest.mark.parametrize("seed", [7, np.int64(7), np.uint8(7)])
def test_an_int_is_counted_on_by_global_index(seed):
    """Environment i gets s + i, and any integer type will do."""
    assert normalize_seeds(seed, range(3)) == [7, 8, 9]
    assert normalize_seeds(seed, [5, 2]) == [12, 9]


def test_a_small_integer_type_does_not_overflow():
    """255 as a uint8 is followed by 256."""
    assert normalize_seeds(np.uint8(255), range(2)) == [255, 256]


@pytest.mark.parametrize(
    "seeds", [[3, 1, 2], (3, 1, 2), np.array([3, 1, 2]), np.array([3, 1, 2], np.uint16)]
)
def test_a_sequence_gives_each_environment_its_own(seeds):
    """Lists, tuples and integer arrays of N."""
    normalized = normalize_seeds(seeds, range(3))
    assert normalized == [3, 1, 2]
    assert all(type(seed) is int for seed in normalized)


def test_a_sequence_may_hold_none():
    """Those environments keep their generators."""
    assert normalize_seeds([3, None, np.int32(4)], range(3)) == [3, None, 4]


def test_the_callers_sequence_is_not_changed():
    """What comes back is a new list."""
    seeds = [3, None]
    normalized = normalize_seeds(seeds, range(2))
    normalized[0] = 9
    assert seeds == [3, None]


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "must be None or a non-negative integer, got -1"),
        (True, "got True"),
        (1.0, "got 1.0"),
        (np.float64(1), "got np.float64"),
        ("1", "got '1'"),
        ({1, 2, 3}, "got {1, 2, 3}"),
        (range(3), r"got range\(0, 3\)"),
        ([1, 2], "expected 3, got 2"),
        ([1, 2, 3, 4], "expected 3, got 4"),
        ([1, -2, 3], r"seed\[1\] must be .* got -2"),
        ([1, True, 3], r"seed\[1\] .* got True"),
        ([1, 2.0, 3], r"seed\[1\] .* got 2.0"),
        (np.array([1, -2, 3]), r"seed\[1\] .*-2"),
        (np.array([1.0, 2.0, 3.0]), "dtype float64"),
        (np.array([True, False, True]), "dtype bool"),
        (np.array([[1, 2, 3]]), r"shape \(1, 3\)"),
        (np.array(3), r"shape \(\)"),
        (np.array([1, None, 3], object), "dtype object"),
    ],
    ids=repr,
)
def test_anything_else_is_refused(seed, message):
    """The message has expected and got."""
    with pytest.raises(ValueError, match=message):
        normalize_seeds(seed, range(3))


def test_a_derived_seed_is_that_of_numpys_seed_sequence():
    """The documented formula."""
    assert derived_seed(12, 3) == int(np.random.SeedSequence([12, 3]).generate_state(1)[0])


def test_derived_seeds_differ_between_episodes_and_environments():
    """No stream is met twice by neighbours."""
    seeds = {derived_seed(seed, episode) for seed in range(20) for episode in range(1, 20)}
    assert len(seeds) == 20 * 19


def test_no_options_are_none_for_all():
    """None is passed on as None."""
    assert normalize_options(None, 2) == [None, None]


def test_one_dict_is_copied_for_each():
    """No two environments, nor the caller, share a dict that one of them may change."""
    options = {"a": 1}
    first, second = normalize_options(options, 2)
    assert first == second == options
    assert first is not None
    first["a"] = 2
    assert second == options == {"a": 1}


def test_any_mapping_is_one_dict_for_all():
    """A read-only view of a dict too."""
    assert normalize_options(MappingProxyType({"a": 1}), 2) == [{"a": 1}, {"a": 1}]


def test_a_list_gives_each_environment_its_own_options():
    """Dicts and Nones, in order."""
    assert normalize_options([{"a": 1}, None], 2) == [{"a": 1}, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([{}], "a list of 2 dicts, got 1 of them"),
        ([{}, {}, {}], "got 3 of them"),
        ([{}, 3], r"options\[1\] must be a dict or None, got 3"),
        ("ab", "got 'ab'"),
        (3, "got 3"),
    ],
)
def test_odd_options_are_refused(options, message):
    """The message has expected and got."""
    with pytest.raises(ValueError, match=message):
        normalize_options(options, 2)


@pytest.mark.parametrize(
    ("chosen", "rows"),
    [
        ([2, 0], [2, 0]),
        ((1,), [1]),
        (np.array([3, 1], np.uint8), [3, 1]),
        (range(1, 3), [1, 2]),
        ([], []),
        (np.array([], int), []),
        ([True, False, False, True], [0, 3]),
        (np.array([False, True, False, False]), [1]),
        (np.zeros(4, bool), []),
    ],
    ids=repr,
)
def test_rows_are_named_by_indices_or_a_mask(chosen, rows):
    """Indices keep their order; a mask goes by index."""
    assert select_rows(chosen, 4) == rows


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([4], "Index 4 is out of range: expected 0 to 3"),
        ([-1], "Index -1 is out of range"),
        ([1, 2, 1], "Index 1 is named twice"),
        ([1.0], "must be a list or 1-D array of integers"),
        (["1"], "must be a list or 1-D array of integers"),
        (2, "must be a list or 1-D array of integers"),
        ([[1, 2]], "must be a list or 1-D array of integers"),
        ([True, False], r"must have shape \(4,\), got \(2,\)"),
        (np.ones((4, 1), bool), r"must have shape \(4,\), got \(4, 1\)"),
    ],
    ids=repr,
)
def test_odd_rows_are_refused(chosen, message):
    """The message has expected and got."""
    with pytest.raises(ValueError, match=message):
        select_rows(chosen, 4)


@given(st.integers(0, 2**63), st.integers(1, 30), st.data())
def test_the_split_has_no_say_in_seeds(seed, num_envs, data):
    """Seeds of any part of the rows are that part of the seeds of all."""
    rows = data.draw(st.lists(st.integers(0, num_envs - 1), unique=True))
    everyone = normalize_seeds(seed, range(num_envs))
    assert normalize_seeds(seed, rows) == [everyone[row] for row in rows]
