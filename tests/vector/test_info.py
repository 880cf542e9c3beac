"""Infos of single environments as arrays by key, each with its presence mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.testing import row_info
from superdex.vector._info import merge_infos


def merge(*infos: dict[Any, Any] | None, notices: list[str] | None = None) -> dict[Any, Any]:
    """Merge one info per environment; None where it gave none."""
    seen: list[str] = [] if notices is None else notices
    entries = [(row, info) for row, info in enumerate(infos) if info is not None]
    merged = merge_infos(entries, len(infos), seen.append)
    assert notices is not None or not seen
    return merged


def test_numbers_become_an_array_with_a_mask():
    """One row per environment, zero and False where there was none."""
    merged = merge({"a": 3}, None, {"a": 4})
    assert merged.keys() == {"a", "_a"}
    np.testing.assert_array_equal(merged["a"], [3, 0, 4])
    assert merged["a"].dtype == np.int64
    np.testing.assert_array_equal(merged["_a"], [True, False, True])
    assert merged["_a"].dtype == np.bool_


def test_nothing_gives_nothing():
    """Without infos there are no arrays."""
    assert merge(None, {}, None) == {}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], np.int64),
        ([1.5, 2.5], np.float64),
        ([True, False], np.bool_),
        ([1, 0.75], np.float64),
        ([True, 3], np.int64),
        ([np.float32(0.1), np.float32(0.2)], np.float32),
        ([np.float32(0.1), 0.1], np.float64),
        ([np.uint8(1), np.int8(-1)], np.int16),
        ([2**63, -1], np.float64),
        ([1 + 2j, 1], np.complex128),
        ([2**53, 0.5], np.float64),
    ],
    ids=repr,
)
def test_a_dtype_is_promoted_to_one_that_holds_all(values, dtype):
    """Int 1 beside 0.75 is float; every value is still what it was."""
    merged = merge(*({"a": value} for value in values))["a"]
    assert merged.dtype == dtype
    assert merged.tolist() == values


@pytest.mark.parametrize(
    "values",
    [
        [2**53 + 1, 0.5],
        [2**64 - 1, 0.5],
        [2**63 - 1, 0.5],
        [2**64 - 1, -1],
        [2**70, 1],
        [2**70, 0.5],
        [np.int64(2**62 + 1), np.float32(0.5)],
        [2**62 + 1, 1j],
    ],
    ids=repr,
)
def test_values_that_no_dtype_holds_stay_objects(values):
    """No digit is lost to a float."""
    merged = merge(*({"a": value} for value in values))["a"]
    assert merged.dtype == object
    assert list(merged) == values


def test_nan_and_infinity_stay():
    """They are floats like others."""
    merged = merge({"a": np.nan}, {"a": 1}, {"a": -np.inf})["a"]
    assert merged.dtype == np.float64
    np.testing.assert_array_equal(merged, [np.nan, 1, -np.inf])


def test_negative_zero_stays():
    """The sign of a zero is kept."""
    assert np.signbit(merge({"a": -0.0}, {"a": 1})["a"][0])


@pytest.mark.parametrize("value", [np.timedelta64(5, "ns"), np.timedelta64(5, "s")], ids=repr)
def test_durations_keep_their_unit(value):
    """They are no numbers, though NumPy counts them among those."""
    kept = merge({"a": value}, {"a": 1})["a"][0]
    assert (kept, kept.dtype) == (value, value.dtype)


def test_strings_stay_whole():
    """A short first string does not cut a longer one; a missing string is None."""
    merged = merge({"a": "x"}, None, {"a": "longer"})["a"]
    assert merged.dtype == object
    assert merged.tolist() == ["x", None, "longer"]


def test_none_makes_objects():
    """A None that was given is told from a missing one by the mask."""
    merged = merge({"a": None}, {"a": 1}, None)
    assert merged["a"].tolist() == [None, 1, None]
    assert merged["_a"].tolist() == [True, True, False]


def test_arrays_of_one_shape_are_stacked():
    """A missing one is zero."""
    merged = merge({"a": np.array([1, 2])}, None, {"a": np.array([0.5, 4])})["a"]
    assert merged.dtype == np.float64
    assert merged.tolist() == [[1, 2], [0, 0], [0.5, 4]]


def test_ragged_arrays_stay_objects():
    """Arrays of several shapes are kept as they are."""
    short, long = np.ones(1), np.ones(2)
    merged = merge({"a": short}, {"a": long})["a"]
    assert merged.dtype == object
    assert merged[0] is short
    assert merged[1] is long


def test_arrays_of_strings_stay_objects():
    """They have no zero to fill gaps with."""
    words = np.array(["a", "bc"])
    merged = merge({"a": words}, None)["a"]
    assert merged.dtype == object
    assert merged[0] is words


def test_lists_and_tuples_are_kept_as_they_are():
    """They could be arrays, but that would be a guess."""
    merged = merge({"a": [1, 2]}, {"a": (3, 4)})["a"]
    assert merged.dtype == object
    assert merged.tolist() == [[1, 2], (3, 4)]


def test_a_number_beside_a_string_is_an_object():
    """1 is not "1"."""
    assert merge({"a": 1}, {"a": "1"})["a"].tolist() == [1, "1"]


def test_dicts_merge_into_a_dict_with_masks_of_its_own():
    """Nested alike, on every level."""
    merged = merge({"d": {"a": 1, "e": {"b": 2}}}, None, {"d": {"a": 3}})
    assert merged["_d"].tolist() == [True, False, True]
    assert merged["d"]["a"].tolist() == [1, 0, 3]
    assert merged["d"]["_a"].tolist() == [True, False, True]
    assert merged["d"]["_e"].tolist() == [True, False, False]
    assert merged["d"]["e"]["b"].tolist() == [2, 0, 0]
    assert merged["d"]["e"]["_b"].tolist() == [True, False, False]


def test_an_empty_dict_is_told_from_a_missing_one():
    """By the mask."""
    merged = merge({"d": {}}, None)
    assert merged["d"] == {}
    assert merged["_d"].tolist() == [True, False]


def test_a_dict_beside_a_number_is_an_object():
    """No guess is made of what was meant."""
    merged = merge({"d": {"a": 1}}, {"d": 2})
    assert merged["d"].dtype == object
    assert merged["d"].tolist() == [{"a": 1}, 2]


def test_other_keys_than_strings_keep_their_type():
    """Their masks have the name that Gymnasium's rule gives."""
    merged = merge({5: 1, ("a", 2): 2}, {None: 3})
    assert merged[5].tolist() == [1, 0]
    assert merged["_5"].tolist() == [True, False]
    assert merged[("a", 2)].tolist() == [2, 0]
    assert merged["_('a', 2)"].tolist() == [True, False]
    assert merged[None].tolist() == [0, 3]


def test_a_mask_wins_over_an_info_of_its_name_with_a_notice():
    """It is said once which info to rename."""
    notices: list[str] = []
    merged = merge({"a": 1, "_a": "own"}, {"a": 2}, {"_a": "own"}, notices=notices)
    assert merged["_a"].tolist() == [True, True, False]
    assert len(notices) == 1
    assert "'_a'" in notices[0]
    assert "'a'" in notices[0]


def test_an_info_with_an_underscore_is_no_mask():
    """It has a mask of its own where nothing clashes."""
    merged = merge({"_a": 1}, None)
    assert merged["_a"].tolist() == [1, 0]
    assert merged["__a"].tolist() == [True, False]


def test_a_row_may_come_twice_with_different_keys():
    """What came on two ways is one info."""
    merged = merge_infos([(1, {"a": 1}), (1, {"b": 2})], 2, [].append)
    assert merged["a"].tolist() == [0, 1]
    assert merged["b"].tolist() == [0, 2]


def test_the_infos_of_environments_are_not_changed():
    """Merging reads only."""
    infos: list[dict[Any, Any]] = [{"a": 1, "d": {"b": 1}}, {"a": "x", "d": {"b": 2.5}}]
    merge(*infos)
    assert infos == [{"a": 1, "d": {"b": 1}}, {"a": "x", "d": {"b": 2.5}}]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text("ab", max_size=5),
    st.builds(np.float32, st.floats(width=32, allow_nan=False)),
    st.builds(np.int16, st.integers(-(2**15), 2**15 - 1)),
    st.builds(np.uint64, st.integers(0, 2**64 - 1)),
    st.complex_numbers(allow_nan=False),
    st.lists(st.integers(0, 3), max_size=2),
    st.builds(np.arange, st.integers(0, 3)),
    st.builds(lambda n: np.full((2, n), 0.5, np.float32), st.integers(1, 2)),
)
KEYS = st.one_of(st.sampled_from(["a", "b", "c"]), st.integers(5, 6), st.just(("t", 1)))
INFOS = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=3),
    lambda infos: st.dictionaries(KEYS, st.one_of(SCALARS, infos), max_size=3),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal as values, arrays included."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.shape(a) == np.shape(b) and bool(np.all(np.equal(a, b)))
    return isinstance(b, str) == isinstance(a, str) and bool(a == b)


@given(st.lists(st.one_of(st.none(), INFOS), min_size=1, max_size=5))
def test_what_each_environment_gave_can_be_read_back(infos):
    """Exactly, whatever its neighbours gave."""
    merged = merge(*infos)
    for row, info in enumerate(infos):
        assert same(row_info(merged, row), info or {})


@given(st.lists(INFOS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_entries_has_no_say(infos, random):
    """Replies may come in any order."""
    entries = list(enumerate(infos))
    random.shuffle(entries)
    merged = merge_infos(entries, len(infos), [].append)
    again = merge(*infos)
    assert merged.keys() == again.keys()
    for key, value in again.items():
        if isinstance(value, np.ndarray):
            assert merged[key].dtype == value.dtype
