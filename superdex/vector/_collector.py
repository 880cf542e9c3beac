"""From the buffers of the block to what the caller gets: copies or views, and infos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from superdex.vector._columns import Column, InfoReader, InfoSchema
from superdex.vector._info import InfoEntry, mask_in_the_way, merge_infos
from superdex.vector._layout import SLOT_BUFFER
from superdex.vector._notices import NoticeBoard
from superdex.vector._outputs import FIRST_ALLOCATED, Outputs
from superdex.vector._protocol import Reply, Target
from superdex.vector._results import BatchedResetResult, BatchedStepResult

__all__ = ["Collector"]

_BATCHED = ("observation", "reward", "terminated", "truncated")


class Collector:
    """Collects the results of a call out of the block.

    Args:
        arrays: The arrays of the block.
        ranges: The rows of each worker.
        copy: Whether the caller gets copies, or read-only views that are valid until the next but
            one call.
    """

    def __init__(
        self, arrays: dict[str, np.ndarray], ranges: tuple[range, ...], *, copy: bool
    ) -> None:
        self.outputs = Outputs(arrays)
        """What workers wrote of each row, apart from infos."""
        self.copies = 0
        self.bytes_copied = 0
        self.target: Target = (0, 0)
        """The two of those that take turns, for outputs and infos, that were written last."""
        self._copy = copy
        self._num_envs = ranges[-1].stop
        self._buffers: dict[int, list[np.ndarray]] = {}
        self._views: dict[int, list[np.ndarray]] = {}
        for number in range(FIRST_ALLOCATED):
            self._look_at(number)
        self._batch_bytes = sum(array.nbytes for array in self._buffers[0])
        self._same_step = "final_observation" in arrays
        self._schema = InfoSchema()
        self.columns: list[Column | None] = []
        """The info columns that workers were told of."""
        self._told = self.columns
        """Those that all workers were told of by a step or reset."""
        self._schema_changed = False
        self._reader = InfoReader(arrays["info_data"], arrays["info_mask"], ranges)
        self.board = NoticeBoard()
        """Where workers' notices become warnings."""

    # ── where calls write ───────────────────────────────────────────────────────────────────────

    def add(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Have one more buffer of outputs."""
        self.outputs.add(number, arrays)
        self._look_at(number)

    def remove(self, number: int) -> None:
        """Have that buffer of outputs no more."""
        self.outputs.remove(number)
        self._buffers.pop(number, None)
        self._views.pop(number, None)

    def _look_at(self, number: int) -> None:
        self._buffers[number] = [self.outputs[number][name] for name in _BATCHED]
        self._views[number] = [_read_only(array) for array in self._buffers[number]]

    def next_target(self, place: int | None = None, *, keep_observation: bool = False) -> Target:
        """Return what the next call for all rows writes.

        Args:
            place: The number of its buffer of outputs; None for the next one of the two.
            keep_observation: Have the last observations in it first.
        """
        buffer, info_buffer = self.target
        target = 1 - buffer if place is None else place, 1 - info_buffer
        if keep_observation:
            self.outputs.write_last_observations(self._buffers[target[0]][0])
        return target

    def last_observations(self) -> BatchedResetResult:
        """Return the last observation of each row, (num_envs, …), in an array of its own."""
        observation = np.empty_like(self._buffers[0][0])
        self.outputs.write_last_observations(observation)
        if not self._copy:
            observation.flags.writeable = False
        return BatchedResetResult(observation, {})

    def keep_last_observations(self, place: int) -> None:
        """Have the last observations elsewhere than in a buffer that is about to be written.

        A worker that dies while it writes leaves parts of two steps there, and the last observation
        of the episodes that are lost with it is needed.
        """
        if place in self.outputs.in_use():
            spare = 1 - self.target[0]  # views of it are no longer valid
            self.outputs.write_last_observations(self._buffers[spare][0])
            self.outputs.note(spare)
            self.copies += 1
            self.bytes_copied += self._buffers[spare][0].nbytes

    def note(self, target: Target) -> None:
        """A call for all rows that wrote `target` has come to its end."""
        number, info_buffer = target
        self.target = number if number < SLOT_BUFFER else self.target[0], info_buffer
        self.outputs.note(number)

    # ── results ─────────────────────────────────────────────────────────────────────────────────

    def news_for_workers(self) -> Any:
        """Return the info columns if a call for all rows has to tell them, else None."""
        columns = self.current_columns()
        return None if columns is self._told else columns

    def note_told(self) -> None:
        """All workers are told of the current info columns, with the call that is now sent."""
        columns = self.current_columns()
        if columns is not self._told:
            self._told = columns
            self._reader.follow(self._schema)

    def current_columns(self) -> list[Column | None]:
        """Return the info columns, the same list until they change."""
        if self._schema_changed:
            self._schema_changed = False
            self.columns = list(self._schema.columns)
        return self.columns

    def step_result(self, target: Target, info: dict[Any, Any]) -> BatchedStepResult:
        """Return the result of a step that wrote `target`, with the info of that."""
        buffer = target[0]
        if self._same_step:
            self._add_final_observations(buffer, info)
        if not self._copy:
            observation, reward, terminated, truncated = self._views[buffer]
            return BatchedStepResult(observation, reward, terminated, truncated, info)
        observation, reward, terminated, truncated = self._buffers[buffer]
        self.copies += 4
        self.bytes_copied += self._batch_bytes
        return BatchedStepResult(
            observation.copy(), reward.copy(), terminated.copy(), truncated.copy(), info
        )

    def reset_result(self, target: Target, info: dict[Any, Any]) -> BatchedResetResult:
        """Return the result of a reset that wrote `target`, with the info of that."""
        return BatchedResetResult(self._taken(self._buffers[target[0]][0]), info)

    def _taken(self, array: np.ndarray) -> np.ndarray:
        """Return an array of the block as the caller gets it."""
        if not self._copy:
            return _read_only(array)
        self.copies += 1
        self.bytes_copied += array.nbytes
        return array.copy()

    def _add_final_observations(self, buffer: int, info: dict[Any, Any]) -> None:
        ended = self.outputs.ended(buffer)
        if ended.any():
            written = self.outputs[buffer]["final_observation"]
            final = np.zeros_like(written)
            final[ended] = written[ended]
            info["final_obs"], info["_final_obs"] = final, ended
            if not self._copy:
                _freeze({"final_obs": final, "_final_obs": ended})
            self.copies += 1
            self.bytes_copied += final.nbytes

    # ── infos ───────────────────────────────────────────────────────────────────────────────────

    def infos(
        self, target: Target, touched: list[int], replies: Sequence[tuple[int, Reply]]
    ) -> dict[Any, Any]:
        """Return the infos of a call for all rows that wrote `target`.

        Args:
            target: The buffers.
            touched: The columns that each worker wrote, a bit for each.
            replies: Of the workers that have one.
        """
        if not (replies or any(touched)):
            return {}
        buffer = target[1]
        columns = self._reader.read(buffer, touched) if any(touched) else {}
        entries: list[InfoEntry] = []
        for _, reply in replies:
            entries += reply.entries
            self.board.tell(reply.notices)
        info = self.merge(entries, columns, self._num_envs, self._taken)
        if not self._copy:
            _freeze(info)
        return info

    def read_rows(
        self, columns: Sequence[Column | None], touched: int, rows: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield the info columns that a call for some rows wrote; see `InfoReader.read_rows`."""
        return self._reader.read_rows(SLOT_BUFFER, columns, touched, rows)

    def merge(
        self,
        entries: Sequence[InfoEntry],
        columns: dict[str, tuple[np.ndarray, np.ndarray]],
        count: int,
        taken: Callable[[np.ndarray], np.ndarray],
    ) -> dict[Any, Any]:
        """Return the infos of some rows, of what came the general way and what came in columns.

        Args:
            entries: The former, their rows counted from 0.
            columns: The latter, values and mask (count, …) by key.
            count: How many rows.
            taken: Returns an array of `columns` as the caller gets it.
        """
        info = self._merge(entries, columns, count) if entries else {}
        for key, (values, mask) in columns.items():
            if f"_{key}" in info:
                self._notice_mask(mask_in_the_way(key))
            info[key], info[f"_{key}"] = taken(values), taken(mask)
        return info

    def _merge(
        self,
        entries: Sequence[InfoEntry],
        columns: dict[str, tuple[np.ndarray, np.ndarray]],
        count: int,
    ) -> dict[Any, Any]:
        """Merge what came the general way, together with columns of the same keys."""
        merged = merge_infos(entries, count, self._notice_mask)
        self._schema_changed |= self._schema.learn(merged)
        for key in merged.keys() & columns.keys():
            values, mask = columns.pop(key)
            both: list[InfoEntry] = [
                (int(i), {key: values[i].copy()}) for i in np.flatnonzero(mask)
            ]
            both += [(row, {key: info[key]}) for row, info in entries if key in info]
            merged.update(merge_infos(both, count, self._notice_mask))
        return merged

    def _notice_mask(self, message: str) -> None:
        self.board.tell([("mask", message)])


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _freeze(info: dict[Any, Any]) -> None:
    """Make the arrays of an info read-only, nested ones too."""
    for value in info.values():
        if isinstance(value, dict):
            _freeze(value)
        else:
            value.flags.writeable = False
