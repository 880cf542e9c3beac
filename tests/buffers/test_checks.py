"""What callers pass is checked in one order, before anything moves."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise

import numpy as np
import pytest

from superdex.buffers import ArraySpec, allocate, check_buffers, check_env_ids
from tests.buffers.arrays import FAULTS, WORDS, with_fault

SPEC = {
    "observation": ArraySpec((4, 3), np.dtype(np.float32)),
    "action": ArraySpec((4, 2), np.dtype(np.float32)),
    "reward": ArraySpec((4,), np.dtype(np.float64)),
    "terminated": ArraySpec((4,), np.dtype(np.bool_)),
    "final_observation": ArraySpec((4, 3), np.dtype(np.float32)),
    "env_id": ArraySpec((4,), np.dtype(np.int32)),
    "state_id": ArraySpec((4,), np.dtype(np.uint64)),
}


def faults_of(name: str) -> list[str]:
    """Return the faults that an array of that name can have: bytes are always aligned."""
    return [f for f in FAULTS if f != "aligned" or SPEC[name].dtype.itemsize > 1]


@pytest.mark.parametrize("name", SPEC)
def test_every_fault_of_a_key_is_found_in_order(name):
    """Each is reported though the array has all the later ones too; with key, expected and got."""
    for fault in faults_of(name):
        buffers = allocate(SPEC)
        if fault != "missing":
            buffers[name] = with_fault(SPEC[name], fault)
        elif name == "action":
            continue
        else:
            del buffers[name]
        expected = re.escape(f"buffers[{name!r}] must be {SPEC[name]}, got ")
        word = "V3" if fault == "dtype" else WORDS[fault]
        with pytest.raises(ValueError, match=rf"^{expected}.*{word}.* Nothing has changed\.$"):
            check_buffers(buffers, SPEC)


def test_keys_are_looked_at_in_the_order_of_the_spec():
    """The last fault of an early key comes before the first one of a late key."""
    names = [*SPEC]
    for early, late in pairwise(names):
        buffers = allocate(SPEC)
        buffers[early] = with_fault(SPEC[early], faults_of(early)[-1])
        buffers[late] = with_fault(SPEC[late], "kind")
        with pytest.raises(ValueError, match=re.escape(f"buffers[{early!r}]")):
            check_buffers(buffers, SPEC)


def test_good_buffers_pass():
    """In any order of keys, with others beside them, and without those that are optional."""
    buffers = {"note": "mine", **dict(reversed(allocate(SPEC).items()))}
    check_buffers(buffers, SPEC)
    del buffers["action"]
    check_buffers(buffers, SPEC)
    with pytest.raises(ValueError, match="action"):
        check_buffers(buffers, SPEC, optional=())


def test_an_optional_key_that_is_there_is_checked():
    """None is no array either."""
    with pytest.raises(ValueError, match=r"buffers\['action'\] .*NoneType"):
        check_buffers({**allocate(SPEC), "action": None}, SPEC)


def test_what_is_no_dict_is_refused():
    """A list of arrays has no names."""
    with pytest.raises(ValueError, match="dict of arrays by name, got <class 'list'>"):
        check_buffers([*allocate(SPEC).values()], SPEC)


def test_several_dicts_are_refused_with_advice():
    """One of them is meant; what is empty, or no dicts, gets no such advice."""
    one = allocate(SPEC)
    advice = (
        r"got <class 'tuple'>\. Nothing has changed\. Pass one of its dicts, such as buffers\[0\]\."
    )
    with pytest.raises(ValueError, match=advice):
        check_buffers((one, one), SPEC)
    with pytest.raises(ValueError, match=r"Nothing has changed\.$"):
        check_buffers((), SPEC)


def test_a_near_miss_is_suggested():
    """A typing error is named, and what was probably meant."""
    buffers = allocate(SPEC)
    buffers["rewards"] = buffers.pop("reward")
    with pytest.raises(ValueError, match=r"no such key \(.*\); the nearest is 'rewards'\. Nothing"):
        check_buffers(buffers, SPEC)


def test_another_byte_order_is_another_dtype():
    """It would not be the same bytes."""
    buffers = {**allocate(SPEC), "reward": np.zeros(4, ">f8")}
    with pytest.raises(ValueError, match="got the dtype >f8"):
        check_buffers(buffers, SPEC)


def test_equal_dtypes_are_equal_whatever_their_identity():
    """An array that was pickled has a dtype object of its own."""
    buffers = pickle.loads(pickle.dumps(allocate(SPEC)))
    spec = pickle.loads(pickle.dumps(SPEC))
    structured = np.dtype(np.float64, metadata={"unit": "m"})
    check_buffers({**buffers, "reward": np.zeros(4, structured)}, spec)


def test_any_two_that_overlap_are_refused():
    """Both are named, whichever two they are and however little they share."""
    memory = np.zeros(1024, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :]
    names = [name for name in SPEC if name != "terminated"]
    for one in names:
        for other in names:
            if one == other:
                continue
            nbytes = allocate(SPEC)[one].nbytes
            buffers = allocate(SPEC)
            buffers[one] = memory[:nbytes].view(SPEC[one].dtype).reshape(SPEC[one].shape)
            spec = SPEC[other]
            start = nbytes - 8
            size = buffers[other].nbytes
            buffers[other] = memory[start : start + size].view(spec.dtype).reshape(spec.shape)
            with pytest.raises(ValueError, match=f"'{one}'.* and .*'{other}'.* overlap"):
                check_buffers(buffers, SPEC)


def test_arrays_side_by_side_do_not_overlap():
    """The end of one may be the start of the next; empty ones share nothing."""
    memory = np.zeros(64)
    spec = {"a": ArraySpec((8,), memory.dtype), "b": ArraySpec((8,), memory.dtype)}
    check_buffers({"a": memory[:8], "b": memory[8:16]}, spec)
    empty = {"a": ArraySpec((0,), memory.dtype), "b": ArraySpec((0,), memory.dtype)}
    check_buffers({"a": memory[:0], "b": memory[:0]}, empty)


# ── ids of environments ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "env_ids",
    [[2, 0], (2, 0), np.array([2, 0], np.uint8), np.array([2, 0], ">i4"), range(2, -1, -2)],
)
def test_integers_of_any_kind_are_ids(env_ids):
    """They come back in their order, in an array of its own."""
    rows = check_env_ids(env_ids, 3)
    assert rows.tolist() == [2, 0]
    assert rows.dtype == np.intp
    rows[:] = 0
    assert list(env_ids) == [2, 0]


def test_no_ids_are_ids_too():
    """The empty slot."""
    assert check_env_ids([], 3).tolist() == []


@pytest.mark.parametrize(
    ("env_ids", "message"),
    [
        ([1.0], "got 1.0"),
        (np.array([], np.float64), "dtype float64"),
        ([True, False], "got True; np.flatnonzero"),
        ([2, True], "got True; np.flatnonzero"),
        ([2, np.True_], "True.*; np.flatnonzero"),
        (np.array([True, False, False]), "dtype bool; np.flatnonzero"),
        (["1"], "got '1'"),
        ([2**70], "dtype object"),
        ("12", "a sequence or an array"),
        (1, "a sequence or an array"),
        (None, "a sequence or an array"),
        (np.array(1), "one dimension, got 0"),
        (np.array([[1, 2]]), "one dimension, got 2"),
        ([[1], [1, 2]], r"got \[1\]"),
        ([0, 3], "between 0 and 2, got 3"),
        ([-1], "got -1"),
        ([2**32 + 1], "got 4294967297"),
        (np.array([2**64 - 1], np.uint64), "got 18446744073709551615"),
        ([0, 1, 0], "once, got 0 more than once"),
        ([5, 5], "between"),
    ],
)
def test_what_is_no_id_is_refused(env_ids, message):
    """Nothing is rounded, wrapped or taken for a mask."""
    with pytest.raises(ValueError, match=rf"env_ids must .*{message}"):
        check_env_ids(env_ids, 3)
