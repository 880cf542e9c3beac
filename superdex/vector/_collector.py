"""From the buffers of the block to what the caller gets: copies or views, and infos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from superdex.vector._columns import Column, InfoReader, InfoSchema
from superdex.vector._info import InfoEntry, mask_in_the_way, merge_infos
from superdex.vector._notices import NoticeBoard
from superdex.vector._protocol import Reply, Target
from superdex.vector._results import BatchedResetResult, BatchedStepResult

__all__ = ["Collector"]

_BATCHED = ("observation", "reward", "terminated", "truncated")

_IN_PLACE = 2
"""The buffer whose rows are written one by one."""


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
        self.copies = 0
        self.bytes_copied = 0
        self.target: Target = (0, 0)
        """The two of those that alternate, for outputs and infos, that were written last."""
        self.home = arrays["home"]
        """(num_envs,) the buffer with each row's last results."""
        self._copy = copy
        self._num_envs = ranges[-1].stop
        self._buffers = [[arrays[k][b] for k in _BATCHED] for b in range(len(arrays["reward"]))]
        self._views = [[_read_only(array) for array in buffer] for buffer in self._buffers]
        self._batch_bytes = sum(array.nbytes for array in self._buffers[0])
        self.autoreset = arrays["autoreset"]
        self._results = {k: arrays[k] for k in (*_BATCHED, "autoreset", "action_valid")}
        self._final_observation = arrays.get("final_observation")
        self._schema = InfoSchema()
        self.columns: list[Column | None] = []
        """The info columns that workers were told of."""
        self._schema_changed = False
        self._reader = InfoReader(arrays["info_data"], arrays["info_mask"], ranges)
        self.board = NoticeBoard()
        """Where workers' notices become warnings."""

    def next_target(self, *, keep_observation: bool = False) -> Target:
        """Return what the next call writes; with the last observations in it if asked."""
        buffer, info_buffer = self.target
        target = 1 - buffer, 1 - info_buffer
        if keep_observation:
            self.write_last_observations(self._buffers[target[0]][0])
        return target

    def write_last_observations(self, out: np.ndarray) -> None:
        """Write the last observation of each row to `out`, (num_envs, …)."""
        for buffer in np.unique(self.home).tolist():
            np.copyto(out, self._buffers[buffer][0], where=_broadcast(self.home == buffer, out))

    def last_observations(self) -> BatchedResetResult:
        """Return the last observation of each row, (num_envs, …), in an array of its own."""
        observation = np.empty_like(self._buffers[0][0])
        self.write_last_observations(observation)
        if not self._copy:
            observation.flags.writeable = False
        return BatchedResetResult(observation, {})

    def last_results(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """Return what rows showed last, (rows, …) arrays by name, copies."""
        at = np.asarray(rows, np.intp)
        return {name: array[self.home[at], at] for name, array in self._results.items()}

    def put_results(self, rows: Sequence[int], results: Mapping[str, np.ndarray]) -> None:
        """Have rows show what they showed elsewhere, in the buffer that is written in place."""
        at = np.asarray(rows, np.intp)
        for name, array in self._results.items():
            array[_IN_PLACE][at] = results[name]
        self.home[at] = _IN_PLACE

    def note(self, target: Target) -> None:
        """A call for all rows that wrote `target` has come to its end."""
        self.target = target
        self.home.fill(target[0])

    def news_for_workers(self) -> Any:
        """Return the info columns if they changed since the last time, else None."""
        if not self._schema_changed:
            return None
        self._schema_changed = False
        self._reader.follow(self._schema)
        self.columns = list(self._schema.columns)
        return self.columns

    def step_result(
        self, target: Target, touched: list[int], replies: Sequence[tuple[int, Reply]]
    ) -> BatchedStepResult:
        """Return the result of a step that wrote `target`."""
        buffer, info_buffer = target
        info = self._infos(info_buffer, touched, replies)
        if self._final_observation is not None:
            self._add_final_observations(buffer, info)
        if not self._copy:
            _freeze(info)
            observation, reward, terminated, truncated = self._views[buffer]
            return BatchedStepResult(observation, reward, terminated, truncated, info)
        observation, reward, terminated, truncated = self._buffers[buffer]
        self.copies += 4
        self.bytes_copied += self._batch_bytes
        return BatchedStepResult(
            observation.copy(), reward.copy(), terminated.copy(), truncated.copy(), info
        )

    def reset_result(
        self, target: Target, touched: list[int], replies: Sequence[tuple[int, Reply]]
    ) -> BatchedResetResult:
        """Return the result of a reset that wrote `target`."""
        buffer, info_buffer = target
        info = self._infos(info_buffer, touched, replies)
        if not self._copy:
            _freeze(info)
        return BatchedResetResult(self._taken(self._buffers[buffer][0]), info)

    def autoreset_mask(self) -> np.ndarray:
        """Return which rows their last call reset, a copy."""
        return np.array(self.autoreset[self.home, np.arange(self._num_envs)])

    def ended(self, buffer: int) -> np.ndarray:
        """Return which environments' episodes ended in the step that wrote `buffer`."""
        _, _, terminated, truncated = self._buffers[buffer]
        return np.asarray(terminated | truncated)

    def _taken(self, array: np.ndarray) -> np.ndarray:
        """Return an array of the block as the caller gets it."""
        if not self._copy:
            return _read_only(array)
        self.copies += 1
        self.bytes_copied += array.nbytes
        return array.copy()

    def _add_final_observations(self, buffer: int, info: dict[Any, Any]) -> None:
        assert self._final_observation is not None
        ended = self.ended(buffer)
        if ended.any():
            final = np.zeros_like(self._final_observation[buffer])
            final[ended] = self._final_observation[buffer][ended]
            info["final_obs"], info["_final_obs"] = final, ended
            self.copies += 1
            self.bytes_copied += final.nbytes

    # ── infos ───────────────────────────────────────────────────────────────────────────────────

    def _infos(
        self, buffer: int, touched: list[int], replies: Sequence[tuple[int, Reply]]
    ) -> dict[Any, Any]:
        columns = self._reader.read(buffer, touched) if any(touched) else {}
        entries: list[InfoEntry] = []
        for _, reply in replies:
            entries += reply.entries
            self.board.tell(reply.notices)
        info = self._merge(entries, columns) if entries else {}
        for key, (values, mask) in columns.items():
            if f"_{key}" in info:
                self._notice_mask(mask_in_the_way(key))
            info[key], info[f"_{key}"] = self._taken(values), self._taken(mask)
        return info

    def _merge(
        self, entries: list[InfoEntry], columns: dict[str, tuple[np.ndarray, np.ndarray]]
    ) -> dict[Any, Any]:
        """Merge what came the general way, together with columns of the same keys."""
        merged = merge_infos(entries, self._num_envs, self._notice_mask)
        self._schema_changed |= self._schema.learn(merged)
        for key in merged.keys() & columns.keys():
            values, mask = columns.pop(key)
            both: list[InfoEntry] = [
                (int(i), {key: values[i].copy()}) for i in np.flatnonzero(mask)
            ]
            both += [(row, {key: info[key]}) for row, info in entries if key in info]
            merged.update(merge_infos(both, self._num_envs, self._notice_mask))
        return merged

    def _notice_mask(self, message: str) -> None:
        self.board.tell([("mask", message)])


def _broadcast(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return a mask of rows (N,) with as many dimensions as `like` (N, …)."""
    return rows.reshape(-1, *[1] * (like.ndim - 1))


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
