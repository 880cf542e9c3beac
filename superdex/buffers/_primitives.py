"""What the calls on a batch stand on: its primitives, and moving and writing by means of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from superdex.buffers._ids import IdSource
from superdex.buffers._spec import BatchSpec

__all__ = ["BatchPrimitives", "Buffers"]

Buffers = Mapping[str, np.ndarray]
"""Arrays by name, as a batch spec has them. They are written to."""


class BatchPrimitives:
    """The abstract methods say what a batch is and move it; a part of `BufferedSteps`."""

    num_envs: int
    _ids: IdSource

    @abstractmethod
    def batch_spec(self) -> BatchSpec:
        """Return the arrays of a batch: their shapes and dtypes by name."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> Any:
        """Step all environments once."""

    @abstractmethod
    def _check_can(self, call: str) -> None:
        """Raise if `call`, the name of a public method, is illegal now."""

    @abstractmethod
    def _check_rows(self, call: str, rows: np.ndarray | None) -> None:
        """Raise if one of these rows, all if None, can't do that now."""

    @abstractmethod
    def _check_actions(self, actions: Any, rows: np.ndarray | None) -> None:
        """Raise `ValueError` unless these are actions for rows, (rows, …), all if None."""

    @abstractmethod
    def _step_rows(self, rows: np.ndarray | None, actions: np.ndarray, place: Any) -> Any:
        """Step rows, all if None, wait, and return their info.

        It gives the rows new state ids and takes a copy of the actions before it writes anything.
        `place` is what `_place_of` returned.
        """

    @abstractmethod
    def _reset_rows(self, rows: np.ndarray | None, seeds: Any, options: Any, place: Any) -> Any:
        """Reset rows, all if None, wait, and return their info; else as `_step_rows`."""

    @abstractmethod
    def _write_rows(self, rows: np.ndarray | None, buffers: Buffers, place: Any) -> None:
        """Write the last results of rows, all if None, to buffers (rows, …).

        Results that lie in `place` are there already. `action` and `env_id` may be missing.
        """

    def _check_step(self, call: str, actions: Any) -> None:
        """Raise unless all rows can be stepped now, with these actions."""
        self._check_can(call)
        self._check_rows(call, None)
        self._check_actions(actions, None)

    def _place_of(self, buffers: Buffers, rows: np.ndarray | None) -> Any:
        """Return where results of rows, all if None, can be written straight away; None: nowhere.

        The buffers were checked, or were made as the spec says.
        """
        return None

    def _step_rows_checked(
        self, rows: np.ndarray | None, actions: np.ndarray, state_ids: np.ndarray, place: Any
    ) -> Any:
        """Do as `_step_rows`, for state ids that were compared with the rows' own.

        Where several threads may step, they are compared once more, at the moment of the step.
        """
        return self._step_rows(rows, actions, place)

    def _step_all_checked(self, actions: np.ndarray, state_ids: np.ndarray) -> Any:
        """Do as `step`, for state ids that were compared; else as `_step_rows_checked`."""
        return self.step(actions)

    def _step_to(
        self, rows: np.ndarray | None, buffers: Buffers, actions: np.ndarray, *state_ids: Any
    ) -> Any:
        """Step rows, all if None, and write their results; everything was checked."""
        place = self._place_of(buffers, rows)
        if state_ids:
            info = self._step_rows_checked(rows, actions, state_ids[0], place)
        else:
            info = self._step_rows(rows, actions, place)
        self._write_rows(rows, buffers, place)
        return info

    def _reset_to(self, rows: np.ndarray | None, buffers: Buffers, seeds: Any, options: Any) -> Any:
        """Reset rows, all if None, and write their results; everything but seeds was checked."""
        place = self._place_of(buffers, rows)
        info = self._reset_rows(rows, seeds, options, place)
        self._write_rows(rows, buffers, place)
        return info
