"""Numeric infos in learned columns give what merging gives, whatever was learned before."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from superdex.vector._collector import Collector
from superdex.vector._columns import InfoWriter
from superdex.vector._info import merge_infos
from superdex.vector._layout import INFO_BYTES_PER_ENV, MAX_INFO_COLUMNS, batch_layout
from superdex.vector._protocol import Reply
from superdex.vector._split import split_envs

Info = dict[Any, Any]


class Workers:
    """Writers, reader and collector on one block, without processes."""

    def __init__(self, num_envs=4, num_workers=2, *, copy=True):
        self.ranges = split_envs(num_envs, num_workers=num_workers).ranges
        space = Box(-1, 1, (1,), np.float32)
        layout = batch_layout(num_workers, num_envs, space, space)
        arrays = layout.views(memoryview(bytearray(layout.nbytes)))
        for array in arrays.values():
            array.view(np.uint8)[...] = 255  # nothing may rely on what was there before
        self.collector = Collector(arrays, self.ranges, copy=copy)
        self.writers = [
            InfoWriter(r, arrays["info_data"], arrays["info_mask"]) for r in self.ranges
        ]

    def step(self, infos: list[Info], order: list[int] | None = None) -> Any:
        """Return what the caller gets for these infos; also how much of it came the general way."""
        news = self.collector.news_for_workers()
        target = self.collector.next_target()
        touched, replies = [], []
        for number, (writer, rows) in enumerate(zip(self.writers, self.ranges, strict=True)):
            if news is not None:
                writer.follow(news)
            for index in order if order is not None else rows:
                if index in rows and infos[index]:
                    writer.add(index - rows.start, infos[index])
            bits, entries = writer.finish(target[1])
            touched.append(bits)
            if entries:
                replies.append((number, Reply(entries=entries)))
        self.collector.note_told()
        self.general = [entry for _, reply in replies for entry in reply.entries]
        self.collector.note(target)
        return self.collector.infos(target, touched, replies)


def merged(infos: list[Info]) -> Info:
    entries = [(row, info) for row, info in enumerate(infos) if info]
    return merge_infos(entries, len(infos), lambda message: None)


def assert_same(got: Any, expected: Any) -> None:
    """Compare dtypes, values, and the types of objects."""
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if expected.dtype == object:
            for a, b in zip(got, expected, strict=True):
                assert_same(a, b)
        else:
            np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected


def check(workers: Workers, infos: list[Info]) -> None:
    assert_same(workers.step(infos), merged(infos))


def test_numbers_come_the_general_way_once_then_in_columns():
    """From the second step on nothing is pickled."""
    workers = Workers()
    for step in range(4):
        infos: list[Info] = [{"a": step + i, "b": 0.5 * i, "c": i > 1} for i in range(4)]
        check(workers, infos)
        assert bool(workers.general) == (step == 0)


@pytest.mark.parametrize(
    "value",
    [
        7,
        -0.5,
        True,
        np.float32(0.1),
        np.uint8(200),
        np.int64(2**62),
        np.bool_(True),
        np.uint64(2**64 - 1),
        np.arange(3),
        np.zeros((2, 2), np.float32),
        np.array([True]),
    ],
    ids=repr,
)
def test_each_numeric_type_gets_a_column(value):
    """Python's and NumPy's numbers, and arrays of one shape."""
    workers = Workers()
    for _ in range(3):
        check(workers, [{"a": value}] * 4)
    assert not workers.general


@pytest.mark.parametrize(
    "value", ["word", None, 2**70, 1j, [1], (1,), {"d": 1}, np.array("x"), np.float64, object]
)
def test_what_is_no_real_number_stays_general(value):
    """It arrives whole, step after step."""
    workers = Workers()
    for _ in range(3):
        check(workers, [{"a": value}] * 4)
    assert len(workers.general) == 4


def test_other_keys_than_strings_stay_general():
    """A key 1 is not a key "1"."""
    workers = Workers()
    for step in range(3):
        check(workers, [{1: step, ("a",): 2}] * 4)
    assert workers.general


def test_a_missing_value_is_zero_after_it_was_there():
    """No value of an earlier step shines through."""
    workers = Workers()
    for _ in range(3):
        check(workers, [{"a": 5, "b": 1}] * 4)
    for present in ({0}, {3}, {1, 2}, set(), {0, 1, 2, 3}, {2}):
        check(workers, [{"a": 6} if i in present else {} for i in range(4)])
        check(workers, [{"b": 6} if i in present else {"a": 1} for i in range(4)])


def test_another_type_in_between_changes_nothing_later():
    """A float among ints makes that step's array float, and only that one."""
    workers = Workers()
    for _ in range(2):
        check(workers, [{"a": i} for i in range(4)])
    check(workers, [{"a": 0.5}, {"a": 1}, {"a": 2}, {"a": 3}])
    check(workers, [{"a": None}, {"a": 1}, {"a": "x"}, {"a": np.arange(2)}])
    check(workers, [{"a": {"n": 1}}, {"a": 1}, {"a": 2}, {}])
    check(workers, [{"a": i} for i in range(4)])


def test_objects_beside_a_column_are_what_environments_gave():
    """A Python int beside None is that int, wherever it travelled."""
    workers = Workers()
    for value in (3, True, 0.5, np.arange(2)):
        for _ in range(2):
            check(workers, [{f"{type(value)}": value}] * 4)
        check(workers, [{f"{type(value)}": v} for v in (value, None, value, "word")])


def test_an_int_too_large_for_its_column_arrives_whole():
    """Dense or sparse, with the rows that share its column."""
    workers = Workers()
    for _ in range(3):
        check(workers, [{"a": i, "b": 1.5} for i in range(4)])
    check(workers, [{"a": 2**70, "b": 1.5}, {"a": 1, "b": 1.5}, {"a": 2, "b": 0.5}, {"a": 3}])
    check(workers, [{"a": 2**63}, {"a": -(2**63)}, {}, {"a": -(2**63) - 1}])
    check(workers, [{"a": i, "b": 1.5} for i in range(4)])
    assert not workers.general


def test_environments_may_give_different_keys():
    """Each worker's and each environment's own set."""
    workers = Workers()
    for step in range(5):
        check(workers, [{"a": step}, {"b": 0.5}, {"a": 1, "b": 2.5}, {"c": True}])
    assert not workers.general


def test_rows_may_be_taken_in_any_order():
    """As a reset of some environments, in the caller's order, does."""
    workers = Workers()
    infos: list[Info] = [{"a": i, "b": i / 2} for i in range(4)]
    for _ in range(3):
        assert_same(workers.step(infos, order=[1, 0, 3, 2]), merged(infos))
    some: list[Info] = [{}, {"a": 7, "b": 1.5}, {}, {"a": 8, "b": 2.5}]
    assert_same(workers.step(some, order=[3, 1]), merged(some))


def test_a_value_is_taken_when_it_is_given():
    """An environment may write into the same array again."""
    workers = Workers(num_envs=2, num_workers=1)
    shared = np.zeros(2)
    for _ in range(3):
        for writer in workers.writers:
            news = workers.collector.news_for_workers()
            if news is not None:
                writer.follow(news)
                workers.collector.note_told()
            for row in range(2):
                shared[:] = row + 1
                writer.add(row, {"a": shared, "l": [shared]})
            touched, entries = writer.finish(0)
        replies = [(0, Reply(entries=entries))] if entries else []
        info = workers.collector.infos((0, 0), [touched], replies)
        assert info["a"].tolist() == [[1, 1], [2, 2]]
        assert [inner[0][0] for inner in info["l"]] == [1, 2]


def test_more_keys_than_columns_arrive_all():
    """Those without a column stay general."""
    workers = Workers()
    infos: list[Info] = [{f"k{n}": n + i for n in range(MAX_INFO_COLUMNS + 5)} for i in range(4)]
    for _ in range(3):
        check(workers, infos)
    assert len(workers.general) == 4


def test_arrays_larger_than_the_room_arrive_whole():
    """They stay general, and smaller ones still get columns."""
    workers = Workers()
    for step in range(3):
        large = np.full(INFO_BYTES_PER_ENV // 8 + 1, step)
        check(workers, [{"large": large, "small": np.arange(3)}] * 4)
    assert all(info.keys() == {"large"} for _, info in workers.general)


def test_a_column_whose_key_keeps_changing_is_given_up():
    """Its values still arrive whole, before and after."""
    workers = Workers()
    for step in range(40):
        check(
            workers, [{"a": 1, "b": 2} if i != step % 4 else {"a": 0.5, "b": 1} for i in range(4)]
        )
    assert len(workers.general) == 4


def test_arrays_of_no_environment_leave_no_column():
    """As infos that nobody gave."""
    workers = Workers(num_envs=2, num_workers=1)
    workers.step([{"x": 1.0}, {"x": 2.0}])
    workers.step([{"x": 1.0}, {"x": 2.0}])
    (writer,) = workers.writers
    writer.add_rows({"x": np.zeros(2)}, np.zeros(2, np.bool_))
    assert writer.finish(0) == (0, [])
    writer.add_rows({"x": np.zeros(2)}, np.array([False, True]))
    assert writer.finish(0) == (1, [])


def test_a_failed_call_leaves_nothing_behind():
    """Infos taken before the failure are forgotten."""
    workers = Workers(num_envs=2, num_workers=1)
    for _ in range(2):
        check(workers, [{"a": 1}, {"a": 2}])
    workers.writers[0].add(0, {"a": 9, "b": "lost"})
    workers.writers[0].discard()
    check(workers, [{}, {"a": 3}])


def test_a_mask_in_the_way_of_an_info_is_noticed_once():
    """The mask wins, learned or not, with one warning."""
    workers = Workers()
    infos: list[Info] = [{"a": 1, "_a": 5}] * 4
    with pytest.warns(UserWarning, match="Rename the info") as caught:
        results = [workers.step(infos) for _ in range(4)]
    assert len(caught) == 1
    for info in results:
        assert_same(info, merged(infos))


def test_views_are_read_only_and_copies_are_the_callers():
    """copy=False hands out the columns themselves."""
    for copy in (True, False):
        workers = Workers(copy=copy)
        for _ in range(2):
            info = workers.step([{"a": 1}] * 4)
        assert info["a"].flags.writeable == copy
        assert info["_a"].flags.writeable == copy


def test_columns_of_the_last_call_survive_the_next_one():
    """Two buffers alternate."""
    workers = Workers(copy=False)
    for _ in range(2):
        workers.step([{"a": 0}] * 4)
    first = workers.step([{"a": 1}] * 4)
    second = workers.step([{"a": 2}] * 4)
    assert first["a"].tolist() == [1] * 4
    assert second["a"].tolist() == [2] * 4


VALUES = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.5, -0.0]),
    st.booleans(),
    st.none(),
    st.sampled_from(["x", "longer"]),
    st.sampled_from([2**63, 2**70, -(2**64)]),
    st.sampled_from([np.float32(0.1), np.int8(3), np.int64(4), np.float64(0.25), np.uint64(2**63)]),
    st.sampled_from([np.arange(2), np.arange(2) / 2, np.arange(3), np.array(4.0)]),
    st.fixed_dictionaries({}, optional={"n": st.integers(0, 3), "m": st.sampled_from([0.5, "y"])}),
)
USUAL = st.one_of(st.integers(0, 3), st.sampled_from([0.5, 1.5]), st.just(True))
INFO = st.one_of(
    st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.sampled_from([0.25, 0.5])}),
    st.fixed_dictionaries({"a": st.integers(0, 9)}),
    st.dictionaries(st.sampled_from(["a", "b", "c", "_a"]), USUAL, max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "c", "_b", 1]), VALUES, max_size=4),
)


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 3), st.data())
def test_columns_give_what_merging_gives(num_workers, data):
    """For every sequence of infos: whatever was learned before, however rows are split."""
    workers = Workers(4, num_workers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for infos in data.draw(st.lists(st.lists(INFO, min_size=4, max_size=4), max_size=12)):
            check(workers, infos)
