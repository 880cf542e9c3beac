"""The calls with buffers and ids, as a vector environment does them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.buffers import BatchSpec, BufferedSteps, Ids
from superdex.buffers._primitives import Buffers
from superdex.errors import ResetNeeded
from superdex.vector._allocated import AllocatedBuffers
from superdex.vector._arguments import check_actions
from superdex.vector._calls import EnvCalls
from superdex.vector._collector import Collector
from superdex.vector._flight import Flight
from superdex.vector._layout import segment_layout
from superdex.vector._lifecycle import State
from superdex.vector._local import LocalPool
from superdex.vector._pool import WorkerPool
from superdex.vector._protocol import Command
from superdex.vector._row_calls import RowCalls
from superdex.vector._split import check_count

__all__ = ["BufferCalls", "ChosenResets"]

ChosenResets: TypeAlias = tuple[
    Sequence[int], Sequence[int | None], Sequence[dict[str, Any] | None]
]
"""Rows to reset, and for each of them its seed and its options."""

_ROWS_OF_THE_TABLE = {
    "state_ids": "call",
    "episode_ids": "call",
    "bind": "call",
    "allocate_buffers": "call",
    "reset": "reset",
    "reset_into": "reset",
    **dict.fromkeys(("step_slots", "step_slots_into", "step_slots_checked"), "step_rows"),
    **dict.fromkeys(("step_slots_into_checked", "submit_slots", "send"), "step_rows"),
    **dict.fromkeys(("reset_slots", "reset_slots_into"), "reset_rows"),
    **dict.fromkeys(("observe_slots", "observe_slots_into"), "observe_rows"),
    **dict.fromkeys(("wait_slots", "open_tickets", "recv", "in_flight"), "take_rows"),
}
"""As what the lifecycle knows a call; the others it knows as "step"."""


class Place(NamedTuple):
    """A buffer that workers write to themselves.

    Attributes:
        number: Among all buffers of outputs.
        buffers: The caller's arrays.
    """

    number: int
    buffers: Buffers


class BufferCalls(BufferedSteps):
    """The primitives of `BufferedSteps`, and buffers that workers write to; a part of the whole."""

    _pool: WorkerPool | LocalPool
    _flight: Flight
    _mode: AutoresetMode
    _calls: EnvCalls
    _collector: Collector
    _allocated: AllocatedBuffers
    _ids: Ids
    _action: np.ndarray
    _env_ids: np.ndarray
    _unready: np.ndarray | None
    _spec: BatchSpec
    _steps: int
    _timeout: float | None
    _row_calls: RowCalls
    _steps_whole_workers: bool
    """Whether an inner class steps all environments of a worker together."""

    def batch_spec(self) -> BatchSpec:
        """Return the arrays of a batch, for `allocate`, `step_into` and the like.

        Returns:
            By name, a shape and a dtype: `observation`, `action`, `reward`, `terminated`,
            `truncated`, `final_observation` (with SAME_STEP only), `action_valid`, `env_id`,
            `state_id` and `episode_id`.
        """
        self._flight.lifecycle.check_usable("batch_spec")
        return dict(self._spec)

    # ── what is legal ───────────────────────────────────────────────────────────────────────────

    def _check_can(self, call: str) -> None:
        lifecycle = self._flight.lifecycle
        is_drained = lifecycle.interrupted or lifecycle.state is State.SLOTS
        if is_drained and call in ("reset", "reset_into"):
            return  # they wait for what was interrupted or is in flight, and drop it
        lifecycle.check(_ROWS_OF_THE_TABLE.get(call, "step"), call)

    def _check_rows(self, call: str, rows: np.ndarray | None) -> None:
        table_row = _ROWS_OF_THE_TABLE.get(call, "step")
        if rows is not None:
            self._row_calls.check_free(call, rows)
            if self._steps_whole_workers and table_row == "step_rows":
                self._row_calls.check_whole_workers(call, rows)
        if self._unready is None or table_row not in ("step", "step_rows"):
            return
        unready = self._unready if rows is None else self._unready[rows]
        if unready.any():
            first = int(np.flatnonzero(unready)[0])
            first = first if rows is None else int(rows[first])
            why = "has finished its episode and autoreset is disabled"
            if not self._ids.has_begun(first):
                why = "was never reset"
            elif self._mode is not AutoresetMode.DISABLED:
                why = "was not restored to the end"
            raise ResetNeeded(
                f"Environment {first} {why}: reset it first, with reset_envs or reset. "
                "Nothing was stepped."
            )

    def _check_actions(self, actions: Any, rows: np.ndarray | None) -> None:
        shape, dtype = self._action.shape, self._action.dtype
        check_actions(actions, shape if rows is None else (len(rows), *shape[1:]), dtype)

    def _check_step(self, call: str, actions: Any) -> None:
        # as in `BufferedSteps`, in fewer calls: this is the hot path
        self._flight.lifecycle.check("step", call)
        if self._unready is not None:
            self._check_rows(call, None)
        check_actions(actions, self._action.shape, self._action.dtype)

    # ── moving ──────────────────────────────────────────────────────────────────────────────────

    def _step_rows(self, rows: np.ndarray | None, actions: np.ndarray, place: Any) -> Any:
        if rows is not None:
            return self._step_some(rows, actions)
        try:
            self._start_step(actions, None if place is None else place.number)
            if place is not None:
                self._write_known(None, place.buffers)  # while the workers are busy
            return self._finish("step", self._timeout)
        except KeyboardInterrupt:
            self._flight.interrupt()
            raise

    def _reset_rows(self, rows: np.ndarray | None, seeds: Any, options: Any, place: Any) -> Any:
        if rows is not None:
            return self._reset_some(rows, seeds, options)
        try:
            chosen = self._chosen_resets(seeds, options)
            left = self._drain(self._timeout)
            self._flight.lifecycle.check("reset")
            self._start_reset(*chosen, None if place is None else place.number)
            if place is not None:
                self._write_known(None, place.buffers)
            return self._finish("reset", left)
        except KeyboardInterrupt:
            self._flight.interrupt()
            raise

    def _write_rows(self, rows: np.ndarray | None, buffers: Buffers, place: Any) -> None:
        if place is None:
            if rows is not None:
                self._collector.outputs.make_room(buffers, self._row_calls.busy)
            self._collector.outputs.write(rows, buffers)
            self._write_known(rows, buffers)
        self._ids.write_episode(buffers["episode_id"], rows)

    def _write_known(self, rows: np.ndarray | None, buffers: Buffers) -> None:
        """Write what is known before there are results."""
        if "action" in buffers:
            buffers["action"][...] = self._action if rows is None else self._action[rows]
        if "env_id" in buffers:
            buffers["env_id"][...] = self._env_ids if rows is None else rows
        self._ids.write_state(buffers["state_id"], rows)

    def _place_of(self, buffers: Buffers, rows: np.ndarray | None) -> Place | None:
        number = self._allocated.find(buffers) if rows is None else None
        return None if number is None else Place(number, buffers)

    # ── buffers that workers write to ───────────────────────────────────────────────────────────

    def allocate_buffers(self, count: int = 2) -> tuple[dict[str, np.ndarray], ...]:
        """Return buffers that the workers write to themselves, so that no result is copied.

        Infos are no part of them; they are copied unless `copy=False`. `statistics().copies` shows
        whether anything is.

        They are recognised wherever buffers are expected, as long as all arrays of one dict that
        `step` writes are passed together. Each dict lies in one run of shared memory, its arrays at
        multiples of 64 bytes. Its memory is given back after the caller dropped the arrays; those
        that are still held when the vector environment is closed stay valid.

        Step two or more of them in turn where workers are restarted: they need the last observation
        of the episodes that are lost with one, so if you step into the buffer that holds it, it is
        copied first.

        What you write to one is yours, with one exception: it is also where the last results are
        kept, which `observe_slots` and `capture_states` read, and whose observations are shown by
        rows that are not reset and by rows whose episode is lost. Parts of one may be the buffers
        of a slot: last results that lie there are moved first.

        Args:
            count: How many.

        Returns:
            `count` dicts as `batch_spec` says, filled with zeros.

        Raises:
            MemoryError: If they don't fit in memory.
            OSError: If there are no descriptors left, of which each takes two; raise the limit
                (ulimit -n), or allocate fewer.
        """
        self._check_can("allocate_buffers")
        check_count("count", count)
        self._flight.check_alive("allocate_buffers", restart=True)
        self._give_back()
        return tuple(self._allocate() for _ in range(count))

    def _allocate(self) -> dict[str, np.ndarray]:
        layout = segment_layout(self._spec)
        number = self._allocated.new_number()
        try:
            arrays = self._pool.add_outputs(number, layout)
            self._calls.tell_all("allocate_buffers", Command.ATTACH, number, layout)
        except BaseException:
            self._allocated.dropped.append(number)
            raise
        self._collector.add(number, arrays)
        # other objects than those kept here, so that it shows when the caller drops them
        buffers = {name: arrays[name].view() for name in self._spec}
        self._allocated.add(number, buffers)
        return buffers

    def _give_back(self) -> None:
        """Have workers forget the buffers that were dropped, unless last results are in them."""
        numbers = self._allocated.forget_dropped(self._collector.outputs.in_use())
        if numbers:
            for number in numbers:
                self._collector.remove(number)
                self._pool.remove_outputs(number)
            self._calls.tell_all("allocate_buffers", Command.DETACH, numbers)

    # ── done elsewhere ──────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _start_step(self, actions: np.ndarray, place: int | None) -> None:
        """Start a step that writes to a buffer of that number, or to the next one."""

    @abstractmethod
    def _chosen_resets(self, seed: Any, options: Any) -> ChosenResets:
        """Return what a reset of all rows, or those of its mask, is to do; nothing moves.

        Raises:
            ValueError: If seeds or options are not as `reset` has them.
        """

    @abstractmethod
    def _start_reset(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
        place: int | None = None,
    ) -> None:
        """Start a reset that writes to a buffer of that number, or to the next one."""

    @abstractmethod
    def _finish(self, call: str, timeout: float | None) -> dict[Any, Any]:
        """Wait for the call in flight and return its info."""

    @abstractmethod
    def _drain(self, timeout: float | None) -> float | None:
        """Wait for what was interrupted or is in flight, and drop it; return the time left.

        Raises:
            CallTimeout: When the time is up; it stays in flight.
        """

    @abstractmethod
    def _step_some(self, rows: np.ndarray, actions: np.ndarray) -> Any:
        """Step some rows, wait, and return their info."""

    @abstractmethod
    def _reset_some(self, rows: np.ndarray, seeds: Any, options: Any) -> Any:
        """Reset some rows, wait, and return their info."""
