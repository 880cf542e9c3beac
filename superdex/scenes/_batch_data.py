"""Derived fields of a batch, for each simulation what its own `MjData` would hold.

`mujoco.batch.Batch` copies derived fields out after each call, for the simulations and the fields
that the call is about. Three things are left to do, so that a hook which is written for arrays
reads what it would read of one simulation:

- A simulation that comes from a scene (it was reset there, say) brings along what the scene held.
- A field that is asked for after a step, for the first time, is that of the step: it is repeated.
- Fields that `mj_step` does not compute hold whatever a thread computed last for some simulation;
  they stay what they were when the simulation came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import DATA_FIELDS, Batch
from numpy.typing import NDArray

from superdex.scenes._memory import DataMemory
from superdex.scenes._saved_state import SIGNATURE

__all__ = ["BatchData", "NotInBatchError"]

_SENTINEL = -725_000_077  # no quantity of a simulation

Reader = Callable[[int, str], Any]
"""(simulation, field) → what the field holds in the scene that the simulation came from."""


class NotInBatchError(AttributeError):
    """A field of `MjData` that a batch does not have, or not for each simulation."""


class BatchData(Batch):  # type: ignore[misc]  # MuJoCo is not typed
    """A batch of simulations, with the fields of `MjData` and a leading axis.

    Args:
        model: The model.
        count: Number of simulations.
        num_threads: Native threads that step them.
    """

    def __init__(self, model: mujoco.MjModel, count: int, num_threads: int) -> None:
        super().__init__(model, count, num_threads)
        self._before: NDArray[np.float64] = np.zeros_like(self.state)
        self._num_substeps = 1
        # Not stepped since it came from its scene.
        self._is_fresh: NDArray[np.bool_] = np.ones(count, np.bool_)
        self._read: Reader = _nothing
        self._untouched: dict[str, NDArray[Any]] = {}
        self._unwritten: tuple[frozenset[str], frozenset[str]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in DATA_FIELDS and not name.startswith("_") and hasattr(mujoco.MjData, name):
            raise NotInBatchError(
                f"data.{name} is not in a batch of simulations: contacts and constraints (contact, "
                "efc_…) differ in number from one to the next, and functions take one MjData. "
                "Measure contacts with a touch or contact sensor, or let the class have "
                "array_hooks = False"
            )
        return super().__getattr__(name)

    def read_from(self, read: Reader) -> None:
        """Have derived fields of simulations that come from a scene read by a function."""
        self._read = read

    def bind(self, name: str) -> NDArray[Any]:
        """Return the live array of a field, (simulations, …).

        Raises:
            NotInBatchError: `mj_step` computes parts of it only.
            ValueError: There is no such field.
        """
        is_new = name not in self._bound
        field: NDArray[Any] = super().bind(name)
        if is_new and name in self._bound:
            self._complete(name, field)
        return field

    def step(self, ids: Any = None, nstep: int = 1, stage: int = 0) -> None:
        """Advance simulations by a number of substeps; see `mujoco.batch.Batch.step`."""
        rows = slice(None) if ids is None else ids
        self._before[rows] = self.state[rows]
        self._num_substeps = nstep
        super().step(ids, nstep, stage)
        self._is_fresh[rows] = False
        self._put_untouched_back(rows)

    def take(self, row: int) -> None:
        """Take over the derived fields of a simulation whose state came from its scene."""
        self._is_fresh[row] = True
        for name, field in self._bound.items():
            self._take_field(row, name, field)

    def origin_of(self, row: int) -> tuple[NDArray[np.float64], int] | None:
        """Return the state before the last step of a simulation, and its substeps.

        None where it was not stepped since it came from its scene.
        """
        return None if self._is_fresh[row] else (self._before[row], self._num_substeps)

    def _complete(self, name: str, field: NDArray[Any]) -> None:
        """Give a field that was just bound what it would hold had it been bound all along."""
        never, partly = self._probe()
        if name in partly:
            del self._bound[name]
            raise NotInBatchError(
                f"data.{name} is not in a batch of simulations: a step computes parts of it only. "
                "Let the class have array_hooks = False"
            )
        if name in never:
            self._untouched[name] = np.zeros_like(field)
        rows = np.flatnonzero(~self._is_fresh).astype(np.int32)
        if rows.size and name not in never:
            self._repeat(rows)
        for row in range(self.nsim) if name in never else np.flatnonzero(self._is_fresh):
            self._take_field(int(row), name, field)

    def _take_field(self, row: int, name: str, field: NDArray[Any]) -> None:
        value = self._read(row, name)
        if value is not None and field.size:
            with _writable(field):
                field[row] = value
            if name in self._untouched:
                self._untouched[name][row] = value

    def _repeat(self, rows: NDArray[np.int32]) -> None:
        """Make the last step of some simulations again, for what is copied out after it."""
        present, warnings = self.state.copy(), self.warning.copy()
        self.state[rows] = self._before[rows]
        super().step(rows, self._num_substeps)
        self.state[:], self.warning[:] = present, warnings
        self._put_untouched_back(rows)

    def _put_untouched_back(self, rows: Any) -> None:
        for name, values in self._untouched.items():
            field = self._bound[name]
            with _writable(field):
                field[rows] = values[rows]

    def _probe(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return which arrays `mj_step` leaves alone in this model, and which it writes in part."""
        if self._unwritten is None:
            self._unwritten = _unwritten(self.model)
        return self._unwritten


def _unwritten(model: mujoco.MjModel) -> tuple[frozenset[str], frozenset[str]]:
    data = mujoco.MjData(model)
    names = [n for n in DataMemory(data).arrays if n in DATA_FIELDS]
    state = np.empty(mujoco.mj_stateSize(model, SIGNATURE))
    rng = np.random.default_rng(0)
    left: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in names}
    for _ in range(3):
        mujoco.mj_getState(model, data, state, SIGNATURE)
        for name in names:
            getattr(data, name)[...] = _SENTINEL
        mujoco.mj_setState(model, data, state, SIGNATURE)
        mujoco.mj_step(model, data)
        for name in names:
            left[name].append(getattr(data, name) == _SENTINEL)
        mujoco.mj_resetData(model, data)
        data.qvel[:] = rng.uniform(-1, 1, model.nv)
        data.ctrl[:] = rng.uniform(-1, 1, model.nu)
    never = frozenset(name for name, masks in left.items() if np.all(masks))
    partly = frozenset(name for name, masks in left.items() if np.any(masks)) - never
    # Of the same length as `wrap_xpos`, but of integers, where no sentinel can be put.
    return never, partly | ({"wrap_obj"} if "wrap_xpos" in partly else frozenset())


@contextmanager
def _writable(field: NDArray[Any]) -> Iterator[None]:
    """Inside, an array that is read-only for those who read it can be written."""
    field.flags.writeable = True
    try:
        yield
    finally:
        field.flags.writeable = False


def _nothing(row: int, name: str) -> None:
    """Stand in for a reader: no simulation has come from a scene."""
