"""Ids are unique, never come back, and are told apart from those of others."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.buffers import Ids
from superdex.buffers import _ids as module
from superdex.errors import StaleStateError
from tests.buffers.arrays import run_python

LIMIT = 2**44


def make(num_envs: int = 4) -> Ids:
    return Ids(np.zeros(num_envs, np.int64))


moves = st.lists(st.one_of(st.none(), st.sets(st.integers(0, 4), max_size=5)), max_size=30)


@given(moves)
def test_state_ids_are_unique_and_never_come_back(moved):
    """Whatever moves, exactly its rows get new ids, which no row ever had."""
    ids = make(5)
    seen = set(ids.state().tolist())
    assert len(seen) == 5
    for rows in moved:
        before = ids.state()
        ids.advance(None if rows is None else np.array(sorted(rows), np.intp))
        after = ids.state()
        changed = set(np.flatnonzero(before != after).tolist())
        assert changed == (set(range(5)) if rows is None else rows)
        new = {int(after[row]) for row in changed}
        assert len(new) == len(changed)
        assert not new & seen
        seen |= new


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=20))
def test_episode_ids_are_unique_and_never_come_back(begun):
    """A row's id changes exactly when it begins an episode."""
    episodes = np.zeros(5, np.int64)
    ids = Ids(episodes)
    seen = {*ids.episode().tolist()}
    for row, count in begun:
        before = ids.episode()
        episodes[row] += count
        after = ids.episode()
        assert np.flatnonzero(before != after).tolist() == [row]
        assert int(after[row]) not in seen
        seen.add(int(after[row]))


def test_rows_are_written_in_the_order_asked_for():
    """Of both kinds, before and after a partial step."""
    episodes = np.arange(4)
    ids = Ids(episodes)
    for _ in range(2):
        rows = np.array([2, 0])
        assert ids.state(rows).tolist() == ids.state()[rows].tolist()
        assert ids.episode(rows).tolist() == ids.episode()[rows].tolist()
        ids.advance(np.array([2, 3]))


def test_ids_are_uint64_that_fit_an_int64_and_are_not_zero():
    """So that a tensor of int64 can carry them, and a new buffer holds none."""
    for ids in (make().state(), make().episode()):
        assert ids.dtype == np.uint64
        assert int(ids.min()) > 0
        assert int(ids.max()) < 2**63


def test_two_of_a_process_share_no_id():
    """They have consecutive nonces, even at the end of the numbers."""
    nonces = {int(make().state()[0]) >> 44 for _ in range(1000)}
    assert len(nonces) == 1000


def test_nonces_go_round_without_zero(monkeypatch):
    """After the last comes the first, which is 1."""
    monkeypatch.setattr(module, "_nonces", iter([2**19 - 2, 2**19 - 1]))
    assert [int(make().state()[0]) >> 44 for _ in range(2)] == [2**19 - 1, 1]


def test_two_processes_begin_at_different_nonces():
    """By chance, one in half a million aside."""
    program = "from superdex.buffers._ids import _next_nonce; raise SystemExit(_next_nonce() % 251)"
    codes = {run_python(program).returncode for _ in range(3)}
    assert len(codes) > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_nonces_of_its_own():
    """What it makes next shares no id with what the process that it came from makes next."""
    program = """
import os
from superdex.buffers._ids import _next_nonce
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, str(_next_nonce()).encode())
    os._exit(0)
os.waitpid(child, 0)
raise SystemExit(int(os.read(reader, 9)) == _next_nonce())
"""
    assert run_python(program).returncode == 0


# ── comparing ───────────────────────────────────────────────────────────────────────────────────


def test_present_ids_pass():
    """As they are, as int64, as a list, and of some rows in any order."""
    ids = make()
    ids.check(ids.state())
    ids.check(ids.state().astype(np.int64))
    ids.check(ids.state().tolist())
    rows = np.array([3, 1])
    ids.check(ids.state(rows), rows)


def test_stale_ids_name_the_rows():
    """With what was expected and what came; the first few in words."""
    ids = make(20)
    old = ids.state()
    ids.advance(np.arange(3, 12))
    with pytest.raises(StaleStateError, match=r"environments 3, 4, 5, 6, 7 and 4 more") as caught:
        ids.check(old)
    assert caught.value.rows == tuple(range(3, 12))
    assert caught.value.got == tuple(old[3:12].tolist())
    assert caught.value.expected == tuple(ids.state()[3:12].tolist())
    assert caught.value.foreign == ()


def test_stale_ids_of_a_slot_name_the_environments():
    """Not the positions in the slot."""
    ids = make()
    rows = np.array([3, 1])
    old = ids.state(rows)
    ids.advance(np.array([1]))
    with pytest.raises(StaleStateError, match="for environment 1 is of a position that has passed"):
        ids.check(old, rows)


def test_foreign_ids_have_a_message_of_their_own():
    """Another vector's, zeros and −1 belong to nobody here."""
    ids = make()
    for foreign in (make().state(), np.zeros(4, np.uint64), np.full(4, -1)):
        with pytest.raises(StaleStateError, match="belongs to another vector") as caught:
            ids.check(foreign)
        assert caught.value.foreign == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("state_ids", "message"),
    [
        (np.zeros(4), "dtype float64"),
        (np.zeros(4, np.bool_), "dtype bool"),
        (None, "dtype object"),
        (np.zeros(3, np.uint64), r"shape \(4,\).*got \(3,\)"),
        (np.zeros((4, 1), np.uint64), r"got \(4, 1\)"),
    ],
)
def test_what_is_no_array_of_ids_is_refused(state_ids, message):
    """Floats lose the lower digits; they are never taken for ids."""
    with pytest.raises(ValueError, match=message) as caught:
        make().check(state_ids)
    assert type(caught.value) is ValueError


# ── the end of the numbers ──────────────────────────────────────────────────────────────────────


def test_state_ids_run_out_before_they_repeat():
    """OverflowError, and nothing has changed."""
    ids = make()
    ids._count = LIMIT - 10
    before = ids.state()
    ids.advance(np.array([0]))
    assert int(ids.state()[0]) >> 44 == int(before[0]) >> 44
    before = ids.state()
    for rows in (None, np.arange(4)):
        ids._count = LIMIT - 8
        with pytest.raises(OverflowError, match="no more state ids"):
            ids.advance(rows)
    assert ids.state().tolist() == before.tolist()


def test_episode_ids_run_out_before_they_repeat():
    """Looked at often enough, however the rows take turns."""
    episodes = np.zeros(4, np.int64)
    ids = Ids(episodes)
    ids.episode()
    episodes[2] = 2**42 - 2
    ids._count += 2**42
    assert len(set(ids.episode().tolist())) == 4
    episodes[2] += 1
    ids.advance()
    with pytest.raises(OverflowError, match="no more episode ids"):
        ids.episode()
