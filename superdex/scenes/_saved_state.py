"""The state of one simulation, saved with what derives from it, in memory or as plain numbers.

In memory a saved state is put back into the `MjData` that it was taken of, in microseconds. As
plain numbers it fits the data of any equal model, in any process. Numbers that come from a file
are only values of arrays, never sizes or pointers. So contacts and constraints, whose number
changes from step to step, are computed again: MuJoCo repeats the substeps that left them, from
their origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from superdex.scenes._memory import STATE_FIELDS, DataMemory, Snapshot

__all__ = ["SIGNATURE", "Origin", "SavedState", "StateSaver"]

SIGNATURE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
"""Why not less: see `_mujoco`."""


class Origin(NamedTuple):
    """Where derived quantities come from.

    Attributes:
        state: Bytes of the state before the last substeps; they are never written to.
        num_substeps: How many they were.
    """

    state: NDArray[np.uint8]
    num_substeps: int


class SavedState:
    """What `StateSaver.save` took.

    Attributes:
        numbers: The `mjSTATE_INTEGRATION`; of a snapshot it counts once `StateSaver.numbers_of`
            was asked for it.
        fields: Copies of the fields that are saved by name.
        snapshot: Everything that the data held; None where only fields are saved.
        has_numbers: Whether `numbers` count, and may have been changed since.
        origin: What the data held can be computed from it again; None where it can't be.
    """

    __slots__ = ("fields", "has_numbers", "numbers", "origin", "snapshot")

    def __init__(self, size: int, fields: Iterable[NDArray[Any]]) -> None:
        self.numbers: NDArray[np.float64] = np.empty(size)
        self.fields = tuple(map(np.empty_like, fields))
        self.snapshot: Snapshot | None = None
        self.has_numbers = False
        self.origin: Origin | None = None


class StateSaver:
    """Saves the state of one `MjData`, and puts it back.

    Args:
        model: The model.
        data: Its data.
        fields: Fields that are saved by name, if not everything is.
        everything: Save everything that the data hold.

    Attributes:
        everything: As given; it may be set later.
        fields: Live views of the named fields.
        origin: Of the last `step`; None where something else was computed since.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        fields: Sequence[str] = (),
        *,
        everything: bool = True,
    ) -> None:
        self._model = model
        self._data = data
        self._names = tuple(fields)
        self.fields = tuple(_field_view(data, name) for name in fields)
        self.everything = everything
        self._size = mujoco.mj_stateSize(model, SIGNATURE)
        self._memory: DataMemory | None = None
        self.origin: Origin | None = None

    @property
    def memory(self) -> DataMemory:
        """The memory of the data.

        Raises:
            StateCaptureUnsupported: It is laid out in a way that is not understood.
        """
        if self._memory is None:
            self._memory = DataMemory(self._data)
        return self._memory

    def save(self, into: SavedState | None = None) -> SavedState:
        """Return what the data hold now.

        Args:
            into: What was saved before and is no longer needed, whose memory serves again.

        Raises:
            StateCaptureUnsupported: See `memory`.
        """
        saved = SavedState(self._size, self.fields) if into is None else into
        if self.everything:
            # Not the numbers: they are in the snapshot, and MuJoCo's call costs as much again.
            saved.snapshot = self.memory.save(saved.snapshot)
            saved.has_numbers = False
            saved.origin = self.origin
            return saved
        mujoco.mj_getState(self._model, self._data, saved.numbers, SIGNATURE)
        saved.has_numbers = True
        for place, view in zip(saved.fields, self.fields, strict=True):
            place[...] = view
        return saved

    def numbers_of(self, saved: SavedState) -> NDArray[np.float64]:
        """Return the `mjSTATE_INTEGRATION` of what was saved; writing to it changes the state."""
        if not saved.has_numbers:
            assert saved.snapshot is not None, "it has the one or the other"
            present = self.memory.save()
            self.memory.load(saved.snapshot)
            mujoco.mj_getState(self._model, self._data, saved.numbers, SIGNATURE)
            self.memory.load(present)
            saved.has_numbers = True
        return saved.numbers

    def load(self, saved: SavedState) -> None:
        """Put back what was saved of these data."""
        if self.everything:
            self.origin = saved.origin
            if saved.snapshot is not None:
                self.memory.load(saved.snapshot)
                if not saved.has_numbers:
                    return
            else:  # it was saved when named fields were enough
                self._set(saved.numbers)
                mujoco.mj_forward(self._model, self._data)
        self._set(saved.numbers)
        if saved.snapshot is None:
            for place, view in zip(saved.fields, self.fields, strict=True):
                view[...] = place

    def step(self, count: int) -> None:
        """Make substeps, and remember the state before them."""
        state = self.memory.save_state()
        mujoco.mj_step(self._model, self._data, count)
        self.origin = Origin(state, count)

    @contextmanager
    def stepped_by_others(self, count: int) -> Iterator[None]:
        """Inside, somebody else makes substeps; the state before them is remembered."""
        state = self.memory.save_state() if self.everything else None
        yield
        self.origin = None if state is None else Origin(state, count)

    def repeat(self, before: NDArray[np.float64], count: int, after: NDArray[np.float64]) -> None:
        """Leave in the data what substeps left there that were made elsewhere.

        Args:
            before: The state before them.
            count: How many.
            after: The present state, in which controls may have been changed since.
        """
        self._set(before)
        self.step(count)
        self._set(after)

    def put_derived_back(self, before: SavedState, looked: SavedState) -> None:
        """End a look at the data: derived quantities are as before it, unless they were computed.

        Args:
            before: What was saved before derived quantities were computed for the look.
            looked: What was saved right after.
        """
        if looked.snapshot is None:
            for place, view in zip(before.fields, self.fields, strict=True):
                view[...] = place
            return
        present = self.save()
        self.memory.load_state(self.memory.state_in(looked.snapshot))
        if self.memory.holds(looked.snapshot):
            numbers = self.numbers_of(present)
            self.load(before)
            self._set(numbers)
        else:
            self.load(present)

    # ── as plain numbers ────────────────────────────────────────────────────────────────────────

    def export(self, saved: SavedState, derived: SavedState | None = None) -> dict[str, Any]:
        """Return what was saved as plain arrays, copied.

        Args:
            saved: The state.
            derived: Where derived quantities are taken from instead.
        """
        source = saved if derived is None else derived
        fields = {n: f.copy() for n, f in zip(self._names, source.fields, strict=True)}
        if source.snapshot is not None:
            snapshot = source.snapshot
            fields |= {name: self.memory.read(snapshot, name).copy() for name in self._derived()}
        numbers = {"integration": self.numbers_of(saved).copy(), "fields": fields}
        if source.origin is not None:
            numbers["origin"] = self._numbers_at(source.origin)
            numbers["num_substeps"] = source.origin.num_substeps
        return numbers

    def _numbers_at(self, origin: Origin) -> NDArray[np.float64]:
        present = self.memory.save()
        self.memory.load_state(origin.state)
        numbers = np.empty(self._size)
        mujoco.mj_getState(self._model, self._data, numbers, SIGNATURE)
        self.memory.load(present)
        return numbers

    def check(self, numbers: Any, required: Sequence[str] | None = None) -> None:
        """Check that plain numbers are a state of this model.

        Args:
            numbers: As `export` returned them.
            required: The fields that must be among them; all that are saved here if None.

        Raises:
            ValueError: They are not, or lack a field.
        """
        for name in ("integration", "origin") if "origin" in numbers else ("integration",):
            state = numbers[name]
            if state.shape != (self._size,) or state.dtype != np.float64:
                raise ValueError(
                    f"The state is of another model: expected {self._size} numbers, got shape "
                    f"{state.shape} of {state.dtype}."
                )
        saved = numbers["fields"]
        required = self._needed() if required is None else required
        for name in self._needed():
            if name not in saved:
                if name not in required:
                    continue
                raise ValueError(
                    f"The state lacks the field {name!r}, which environments may read before a "
                    f"step here: expected {len(required)} fields, got {sorted(saved) or 'none'}."
                )
            view = getattr(self._data, name)
            if saved[name].shape != view.shape or saved[name].dtype != view.dtype:
                raise ValueError(
                    f"The state is of another model: expected {name} of shape {view.shape}, got "
                    f"{saved[name].shape}."
                )

    def load_numbers(self, numbers: dict[str, Any]) -> None:
        """Put plain numbers that were checked into the data, with all that derives from them.

        Where they hold more than the named fields, something else is read before a step, so
        everything is saved from then on.
        """
        if not self.everything and set(self._derived()) <= set(numbers["fields"]):
            self.everything = True
        state, fields, origin = numbers["integration"], numbers["fields"], numbers.get("origin")
        if origin is not None:
            self.repeat(origin, numbers["num_substeps"], state)
        if origin is None or not self._agrees(fields):
            self.origin = None
            self._set(state)
            mujoco.mj_forward(self._model, self._data)
        for name in self._needed():
            if name in fields:
                getattr(self._data, name)[...] = fields[name]
        self._set(state)  # mj_forward changes the warm start

    def _agrees(self, fields: dict[str, NDArray[Any]]) -> bool:
        """Return whether what the last substeps left is what was saved.

        It is not where a hook has called `mj_forward` or the like since.
        """
        names = [name for name in ("xpos", "cvel", "qacc") if name in fields]
        return all(np.array_equal(getattr(self._data, n), fields[n], equal_nan=True) for n in names)

    def _needed(self) -> tuple[str, ...]:
        """Return the names of the fields that a state must have."""
        return self._derived() if self.everything else self._names

    def _derived(self) -> tuple[str, ...]:
        return tuple(name for name in self.memory.arrays if name not in STATE_FIELDS)

    def _set(self, state: NDArray[np.float64]) -> None:
        mujoco.mj_setState(self._model, self._data, state, SIGNATURE)


def _field_view(data: mujoco.MjData, name: str) -> NDArray[Any]:
    """Return the live view of one `MjData` array field."""
    view: Any = getattr(data, name, None)
    if isinstance(view, np.ndarray) and view.size == 0:
        # Empty in this model, or in the arena, whose arrays come and go with each step.
        from mujoco.batch import DATA_FIELDS

        view = view if name in DATA_FIELDS else None
    if not isinstance(view, np.ndarray):
        raise ValueError(
            f"fields must name array fields of MjData that exist between steps, got {name!r}"
        )
    return view
