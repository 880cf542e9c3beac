"""Numeric infos in columns of the shared block, the layout learned from what environments give.

A worker first sends infos as they are. The parent merges them, and where a key turned out to be a
number, or an array of one shape, it gives the key a *column*: an array of one value per environment
in the block. All workers are told, and from then on write such values straight into it; nothing is
pickled, and the parent copies one array per key, whatever the number of environments.

A column holds one dtype and shape exactly. A value of another type goes the general way, and the
parent merges both, so that the result never depends on what was learned before: for every step it
equals `merge_infos` over the same infos. (Were a column to accept an int as a float, the dtype of a
step's array would depend on history and split.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import itemgetter
from typing import Any

import numpy as np

from superdex.vector._info import InfoEntry
from superdex.vector._layout import INFO_BYTES_PER_ENV, MAX_INFO_COLUMNS

__all__ = ["Column", "InfoReader", "InfoSchema", "InfoWriter"]

_DTYPE_OF_TYPE: dict[type, np.dtype] = {
    float: np.dtype(np.float64),
    int: np.dtype(np.int64),
    bool: np.dtype(np.bool_),
    **{
        kind: np.dtype(kind)
        for kind in (
            *(np.bool_, np.int8, np.int16, np.int32, np.int64),
            *(np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64),
        )
    },
}
"""The exact scalar types that travel in columns. Their values are immutable."""

_NO_NUMBER = np.dtype(object)

_IMMUTABLE = (str, bytes, int, float, complex, bool, type(None), np.generic)

_MISSES_ALLOWED = 16
"""Steps in which a column's key came with another type before the column is given up."""


@dataclass(frozen=True)
class Column:
    """Where the values of one info key lie.

    Attributes:
        key: The key in the infos.
        dtype: The exact dtype.
        shape: The shape of one environment's value; () for numbers.
        offset: The offset in bytes, per environment.
    """

    key: str
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    def values(self, data: np.ndarray, num_envs: int) -> np.ndarray:
        """Return the (num_envs, …) array of the column as a view of the block's info bytes."""
        start = self.offset * num_envs
        nbytes = self.dtype.itemsize * prod(self.shape) * num_envs
        return data[start : start + nbytes].view(self.dtype).reshape(num_envs, *self.shape)


class InfoSchema:
    """The columns learned so far; owned by the parent, which teaches the workers."""

    def __init__(self) -> None:
        self.columns: list[Column | None] = []
        """By slot; None where a column was given up."""
        self._slots: dict[str, int] = {}
        self._misses: dict[str, int] = {}
        self._end = 0

    def learn(self, merged: Mapping[Any, Any]) -> bool:
        """Learn from infos that came the general way, merged; return whether columns changed."""
        changed = False
        for key, values in merged.items():
            if type(key) is not str or key.startswith("_") or not isinstance(values, np.ndarray):
                continue
            if key in self._slots:
                changed |= self._miss(key)
            elif values.dtype.kind in "biuf" and key not in self._misses:
                changed |= self._add(key, values)
        return changed

    def _add(self, key: str, values: np.ndarray) -> bool:
        size = -(-values.dtype.itemsize * prod(values.shape[1:]) // 8) * 8
        full = len(self.columns) >= MAX_INFO_COLUMNS or self._end + size > INFO_BYTES_PER_ENV
        if full or size == 0 or values.dtype not in _DTYPE_OF_TYPE.values():
            return False
        self._slots[key] = len(self.columns)
        self.columns.append(Column(key, values.dtype, values.shape[1:], self._end))
        self._end += size
        return True

    def _miss(self, key: str) -> bool:
        self._misses[key] = self._misses.get(key, 0) + 1
        if self._misses[key] <= _MISSES_ALLOWED:
            return False
        self.columns[self._slots.pop(key)] = None
        return True


class InfoReader:
    """The parent's side: columns that workers wrote, as arrays over all environments.

    Args:
        data: (buffers, bytes) view of the block.
        masks: (buffers, columns, num_envs) view of the block.
        ranges: The rows of each worker.
    """

    def __init__(self, data: np.ndarray, masks: np.ndarray, ranges: tuple[range, ...]) -> None:
        self._num_envs = masks.shape[2]
        self._data = data
        self._masks = masks
        self._slices = [slice(rows.start, rows.stop) for rows in ranges]
        self._columns: list[tuple[int, str, list[np.ndarray], list[np.ndarray]]] = []

    def follow(self, schema: InfoSchema) -> None:
        """Read the columns of `schema` from now on."""
        self._columns = [
            (
                1 << slot,
                column.key,
                [column.values(data, self._num_envs) for data in self._data],
                [mask[slot] for mask in self._masks],
            )
            for slot, column in enumerate(schema.columns)
            if column is not None
        ]

    def read(self, buffer: int, touched: list[int]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return {key: (values, mask)}, views of the block, of the columns written in this call.

        Args:
            buffer: Which of the buffers.
            touched: One bit per column for each worker that wrote it; the rows of a worker that
                did not are cleared here.
        """
        anyone = 0
        for bits in touched:
            anyone |= bits
        result = {}
        for bit, key, values, masks in self._columns:
            if not anyone & bit:
                continue
            value, mask = values[buffer], masks[buffer]
            for rows, bits in zip(self._slices, touched, strict=True):
                if not bits & bit:
                    value[rows] = 0
                    mask[rows] = False
            result[key] = (value, mask)
        return result

    def read_rows(
        self, buffer: int, columns: Sequence[Column | None], touched: int, rows: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield (key, values, mask), copies for some rows, of the columns written for them.

        Args:
            buffer: Which of the buffers.
            columns: Those that the worker knew when it wrote.
            touched: One bit for each column that it wrote.
            rows: The rows, all of that worker.
        """
        for slot, column in enumerate(columns):
            if column is not None and touched >> slot & 1:
                mask = self._masks[buffer, slot, rows]
                if mask.any():
                    values = column.values(self._data[buffer], self._num_envs)
                    yield column.key, values[rows], mask


class InfoWriter:
    """The worker's side: takes each environment's info right after its step.

    Values are taken at once, arrays by copy: the next environment may share the memory they are in.

    Args:
        rows: The global indices of this group's environments.
        data: (buffers, bytes) view of the block, over all environments.
        masks: (buffers, columns, num_envs) view of the block.
    """

    def __init__(self, rows: range, data: np.ndarray, masks: np.ndarray) -> None:
        self._start, self._count = rows.start, len(rows)
        self._all_rows = list(range(len(rows)))
        self._data, self._masks = data, masks
        self._columns: dict[str, tuple[int, Column]] = {}
        self._views: list[list[tuple[np.ndarray, np.ndarray]]] = []
        self._forget_pattern()
        self._clear()

    def follow(self, columns: list[Column | None]) -> None:
        """Write to these columns from now on."""
        rows = slice(self._start, self._start + self._count)
        num_envs = self._masks.shape[2]
        self._columns = {c.key: (slot, c) for slot, c in enumerate(columns) if c is not None}
        self._views = [
            [
                (c.values(data, num_envs)[rows], masks[slot, rows])
                if c is not None
                else (np.empty(0), np.empty(0))
                for slot, c in enumerate(columns)
            ]
            for data, masks in zip(self._data, self._masks, strict=True)
        ]
        self._forget_pattern()

    def _forget_pattern(self) -> None:
        self._pattern_length = -1
        self._pattern_slots: tuple[int, ...] = ()
        self._pattern_types: list[type] = []
        self._pattern_values: Any = itemgetter(0)

    def _clear(self) -> None:
        self._pattern_rows: list[int] = []
        self._pattern_taken: list[tuple[Any, ...]] = []
        self._sparse: dict[int, tuple[list[int], list[Any]]] = {}
        self._entries: list[InfoEntry] = []
        self._dense: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def add(self, row: int, info: dict[Any, Any]) -> None:
        """Take the info of the environment at `row` of this group.

        The common case, an info with just the keys and types of the one before, all of them numbers
        with a column, takes three C calls.
        """
        if len(info) == self._pattern_length:
            try:
                values = self._pattern_values(info)
            except KeyError:
                pass
            else:
                if [*map(type, values)] == self._pattern_types:
                    self._pattern_rows.append(row)
                    self._pattern_taken.append(values)
                    return
        self._add_general(row, info)

    def add_rows(self, info: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
        """Take arrays (K, …) of infos, of the environments in a mask (K,).

        It comes before `add`, and leads to what `add` of each one's values would.
        """
        if not rows.any():
            return  # or its columns would be there, with nothing in them
        rest = {}
        for key, values in info.items():
            slot, column = self._columns.get(key, (-1, None))
            if column is None or values.dtype != column.dtype or values.shape[1:] != column.shape:
                rest[key] = values
            else:
                self._dense[slot] = values, rows
        if rest:
            for row in np.flatnonzero(rows).tolist():
                entry = {key: values[row] for key, values in rest.items()}
                self._entries.append((self._start + row, entry))

    def _add_general(self, row: int, info: dict[Any, Any]) -> None:
        rest = {}
        numbers_only = True
        for key, value in info.items():
            slot, column = self._columns.get(key, (-1, None)) if type(key) is str else (-1, None)
            # not None, which NumPy takes for float64 in a comparison
            dtype = _DTYPE_OF_TYPE.get(type(value), _NO_NUMBER)
            if column is None:
                rest[key] = snapshot(value)
            elif dtype == column.dtype and not column.shape:
                self._put(slot, row, value)
            elif (
                type(value) is np.ndarray
                and value.dtype == column.dtype
                and value.shape == column.shape
            ):
                self._put(slot, row, value.copy())
                numbers_only = False
            else:
                rest[key] = snapshot(value)
        if rest:
            self._entries.append((self._start + row, rest))
        elif numbers_only:
            self._learn_pattern(info)

    def _put(self, slot: int, row: int, value: Any) -> None:
        rows, values = self._sparse.setdefault(slot, ([], []))
        rows.append(row)
        values.append(value)

    def _learn_pattern(self, info: dict[str, Any]) -> None:
        """From here on, infos with these keys and types are the common case."""
        self._spread_pattern()
        keys = tuple(info)
        self._pattern_length = len(keys)
        self._pattern_slots = tuple(self._columns[key][0] for key in keys)
        self._pattern_types = [*map(type, info.values())]
        # itemgetter of one key would return the bare value
        self._pattern_values = itemgetter(*keys) if len(keys) > 1 else itemgetter(keys[0], keys[0])
        if len(keys) == 1:
            self._pattern_slots *= 2
            self._pattern_types *= 2

    def _spread_pattern(self) -> None:
        """Move what was taken the common way to the sparse columns."""
        columns = dict(
            zip(self._pattern_slots, zip(*self._pattern_taken, strict=True), strict=False)
        )
        for slot, values in columns.items():
            rows, taken = self._sparse.setdefault(slot, ([], []))
            rows += self._pattern_rows
            taken += values
        self._pattern_rows, self._pattern_taken = [], []

    def finish(self, buffer: int, rows: np.ndarray | None = None) -> tuple[int, list[InfoEntry]]:
        """Write the columns; return a bit for each one written, and what has no column.

        Args:
            buffer: Which buffer.
            rows: The environments whose infos were taken, sorted; what a column holds of others is
                left as it is. All if None.
        """
        touched = 0
        where: Any = slice(None) if rows is None else rows
        if self._pattern_rows:
            asked = self._all_rows if rows is None else rows.tolist()
            # a reset may come in any order of rows, and of some of them only
            if self._sparse or self._dense or self._pattern_rows != asked:
                self._spread_pattern()
            else:
                touched |= self._write_dense(self._views[buffer], where)
        for slot, (array, present) in self._dense.items():
            data, mask = self._views[buffer][slot]
            data[where] = array[where]
            data[~present if rows is None else rows[~present[rows]]] = 0
            mask[where] = present[where]
            touched |= 1 << slot
        for slot, (chosen, values) in self._sparse.items():
            touched |= self._write_sparse(self._views[buffer][slot], slot, chosen, values, where)
        entries = self._entries
        if touched or entries or self._pattern_rows:
            self._clear()
        return touched, entries

    def discard(self) -> None:
        """Forget what was taken: the call failed."""
        self._clear()

    def _write_dense(self, views: list[tuple[np.ndarray, np.ndarray]], where: Any) -> int:
        touched = 0
        for slot, values in zip(
            self._pattern_slots, zip(*self._pattern_taken, strict=True), strict=True
        ):
            data, mask = views[slot]
            try:
                data[where] = values
            except OverflowError:
                self._hand_over(slot, self._pattern_rows, values)
                continue
            mask[where] = True
            touched |= 1 << slot
        return touched

    def _write_sparse(
        self,
        view: tuple[np.ndarray, np.ndarray],
        slot: int,
        rows: list[int],
        values: list[Any],
        where: Any,
    ) -> int:
        data, mask = view
        if slot not in self._dense:
            data[where] = 0
            mask[where] = False
        try:
            data[rows] = values
        except OverflowError:
            self._hand_over(slot, rows, values)
            return 0
        mask[rows] = True
        return 1 << slot

    def _hand_over(self, slot: int, rows: Any, values: Any) -> None:
        """An int too large for the column: the whole column goes the general way this time."""
        key = next(key for key, (at, _) in self._columns.items() if at == slot)
        known = {row for row, info in self._entries if key in info}
        self._entries.extend(
            (self._start + row, {key: value})
            for row, value in zip(rows, values, strict=True)
            if self._start + row not in known
        )


def snapshot(value: Any) -> Any:
    """Return the value as it is now: itself if nothing can change it, else a deep copy.

    What can't be copied is kept as it is.
    """
    if isinstance(value, _IMMUTABLE) and not isinstance(value, np.void):  # a view of its array
        return value
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
