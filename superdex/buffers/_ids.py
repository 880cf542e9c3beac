"""Ids of positions and episodes, which are unique and never come back.

::

    bit   63  62 ────────── 44  43 ─────────────────────────── 0
         ┌───┬────────────────┬─────────────────────────────────┐
         │ 0 │ nonce          │ count                           │
         └───┴────────────────┴─────────────────────────────────┘

The nonce tells vector environments apart: it starts at a random number in each process and goes up
by one with each of them. It is never 0, so that zeros are no id; and the highest bit is free, so
that ids also fit an int64. The count of an episode id is divided once more: its upper bits are the
row, the lower ones the number of the episode in that row.

A full step gives every row a new state id and yet costs an addition: only the count of row 0 is
kept, and the arrays are made when somebody asks. After a partial step each row has its own.
"""

from __future__ import annotations

import itertools
import os
import random
from typing import Any, Protocol

import numpy as np

from superdex.errors import StaleStateError

__all__ = ["IdSource", "Ids", "compare_state_ids", "first_id"]

_COUNT_BITS = 44
_COUNTS = 1 << _COUNT_BITS
_NONCES = (1 << 19) - 1

_nonces = itertools.count(random.SystemRandom().randrange(_NONCES))


def _begin_elsewhere() -> None:
    """Have a forked process give other nonces than the one that it was forked from."""
    global _nonces
    _nonces = itertools.count(random.SystemRandom().randrange(_NONCES))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_elsewhere)


def _next_nonce() -> int:
    """Return a number from 1 to 2¹⁹ − 1 that no other vector environment of this process has."""
    return next(_nonces) % _NONCES + 1


def first_id() -> int:
    """Return the first id of a vector environment that numbers its positions itself."""
    return _next_nonce() << _COUNT_BITS


class IdSource(Protocol):
    """Whoever numbers positions and episodes."""

    def state(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the state ids of rows, all if None: (rows,) uint64, the caller's own."""

    def episode(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the episode ids of rows, all if None: (rows,) uint64, the caller's own."""

    def check(self, state_ids: Any, rows: np.ndarray | None = None) -> None:
        """Raise unless these are the state ids of rows, all if None; see `compare_state_ids`."""


def compare_state_ids(
    state_ids: Any, expected: np.ndarray, rows: np.ndarray | None, first: int
) -> None:
    """Raise unless state ids are those expected.

    Args:
        state_ids: (rows,) integers, best uint64.
        expected: (rows,) uint64.
        rows: Which rows they are of, for the message; all if None.
        first: Any id of this vector environment: ids of others have other upper bits.

    Raises:
        ValueError: If they are no such array.
        StaleStateError: If one of them is another; it names the rows.
    """
    got = _as_ids(state_ids, expected.shape)
    differ = got != expected
    if not differ.any():
        return
    where = np.arange(len(expected)) if rows is None else rows
    foreign = differ & (got >> np.uint64(_COUNT_BITS) != first >> _COUNT_BITS)
    raise StaleStateError(
        where[differ].tolist(),
        expected[differ].tolist(),
        got[differ].tolist(),
        foreign=where[foreign].tolist(),
    )


class Ids:
    """The state ids and episode ids of the rows of one vector environment.

    They are identifiers and nothing else: compare them for equality, and don't learn from them.

    Args:
        episodes: (num_envs,) int64, how many episodes each row has begun, ever. It is only read.

    Example:
        >>> ids = Ids(np.zeros(3, np.int64))
        >>> before = ids.state()
        >>> ids.advance()
        >>> bool((ids.state() == before).any())
        False
    """

    def __init__(self, episodes: np.ndarray) -> None:
        self._episodes = episodes.view(np.uint64)  # a sum with int64 would be float64
        self._num_envs = len(episodes)
        self._base = _next_nonce() << _COUNT_BITS
        self._rows = np.arange(self._num_envs, dtype=np.uint64)
        self._first = np.zeros((), np.uint64)
        self._count = 0
        """Of row 0; the other rows follow. The next one of all where each row has its own."""
        self._own: np.ndarray | None = None
        """The state id of each row, after some of them moved."""
        bits = _COUNT_BITS - (self._num_envs - 1).bit_length()
        self._episodes_of_a_row = 1 << bits
        self._first_episodes = (self._rows << np.uint64(bits)) + np.uint64(self._base)
        self._looks_at = 0
        """The count at which episodes are looked at again: until then there are numbers left."""

    def advance(self, rows: np.ndarray | None = None) -> None:
        """Give new state ids to rows that are about to move; all if None.

        Raises:
            OverflowError: If there are no more, after 17 trillion of them; nothing changed then.
        """
        count = self._num_envs if rows is None else len(rows)
        if self._count + count >= _COUNTS - self._num_envs:
            raise self._exhausted("state ids")
        if rows is None:
            self._own = None
        else:
            if self._own is None:
                self._own = self.state()
            first = self._base + self._count + self._num_envs
            self._own[rows] = self._rows[:count] + np.uint64(first)
        self._count += count

    # ── states ──────────────────────────────────────────────────────────────────────────────────

    def state(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the state ids of rows, all if None: (rows,) uint64, the caller's own."""
        ids = np.empty(self._num_envs if rows is None else len(rows), np.uint64)
        self.write_state(ids, rows)
        return ids

    def write_state(self, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Write the state ids of rows, all if None, to `out`, (rows,) uint64."""
        if self._own is not None:
            out[:] = self._own if rows is None else self._own[rows]
        else:
            # an array without dimensions is added twice as fast as a scalar
            self._first[()] = self._base + self._count
            np.add(self._rows if rows is None else self._rows[rows], self._first, out)

    def check(self, state_ids: Any, rows: np.ndarray | None = None) -> None:
        """Compare state ids with those of rows, all if None.

        Args:
            state_ids: (rows,) integers, best uint64.
            rows: The rows.

        Raises:
            ValueError: If they are no such array.
            StaleStateError: If one of them is not the row's state id; it names the rows.
        """
        compare_state_ids(state_ids, self.state(rows), rows, self._base)

    # ── episodes ────────────────────────────────────────────────────────────────────────────────

    def has_begun(self, row: int) -> bool:
        """Return whether a row has begun an episode, ever."""
        return bool(self._episodes[row] > 0)

    def episode(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the episode ids of rows, all if None: (rows,) uint64, the caller's own."""
        ids = np.empty(self._num_envs if rows is None else len(rows), np.uint64)
        self.write_episode(ids, rows)
        return ids

    def write_episode(self, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Write the episode ids of rows, all if None, to `out`, (rows,) uint64.

        Raises:
            OverflowError: If there are no more.
        """
        if self._count >= self._looks_at:
            self._look_at_episodes()
        if rows is None:
            np.add(self._first_episodes, self._episodes, out)
        else:
            np.add(self._first_episodes[rows], self._episodes[rows], out)

    def _look_at_episodes(self) -> None:
        """Find out for how long there are numbers left."""
        left = self._episodes_of_a_row - int(self._episodes.max()) - 1
        if left <= 0:
            raise self._exhausted("episode ids")
        # a row begins one episode for each new state id at most, but for those of a worker that
        # died over them; an eighth is far on the safe side
        self._looks_at = self._count + left // 8 + 1

    def _exhausted(self, what: str) -> OverflowError:
        return OverflowError(
            f"There are no more {what}: expected fewer than 2**{_COUNT_BITS} in the life of a "
            "vector environment, got more. Make a new one."
        )


def _as_ids(state_ids: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return state ids as uint64, none of them wrapped."""
    array = np.asarray(state_ids)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(
            f"state_ids must be uint64, as state_ids and buffers['state_id'] have them, got the "
            f"dtype {array.dtype}. Nothing was stepped."
        )
    if array.shape != shape:
        raise ValueError(
            f"state_ids must have the shape {shape}, one for each row that is stepped, got "
            f"{array.shape}. Nothing was stepped."
        )
    if array.dtype.kind == "i":
        array = np.where(array < 0, 0, array)  # zero is no id
    return array.astype(np.uint64)
