"""The state of one simulation, saved with what derives from it, in memory or as plain numbers.

In memory a saved state is put back into the `MjData` that it was taken of, in microseconds. As plain
numbers it fits the data of any equal model, in any process. Numbers that come from a file are only
values of arrays, never sizes or pointers. So contacts and constraints, whose number changes from
step to step, are computed again: MuJoCo repeats the substep that left them, from the state before
it, the *origin*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from superdex.scenes._memory import DataMemory, Snapshot

__all__ = ["SIGNATURE", "SavedState", "StateSaver"]

SIGNATURE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
"""Why not less: see `_mujoco`."""

_IN_STATE = frozenset(
    "qpos qvel act history plastic qacc_warmstart plugin_state ctrl qfrc_applied xfrc_applied "
    "eq_active mocap_pos mocap_quat userdata".split()
)


class SavedState:
    """What `StateSaver.save` took.

    Attributes:
        numbers: The `mjSTATE_INTEGRATION`.
        fields: Copies of the fields that are saved by name.
        snapshot: Everything that the data held; None where only fields are saved.
        origin: The state before the last substep.
        has_origin: Whether repeating that substep gives what the data held.
    """

    __slots__ = ("fields", "has_origin", "numbers", "origin", "snapshot")

    def __init__(self, size: int, fields: Iterable[NDArray[Any]]) -> None:
        self.numbers: NDArray[np.float64] = np.empty(size)
        self.fields = tuple(map(np.empty_like, fields))
        self.snapshot: Snapshot | None = None
        self.origin: NDArray[np.float64] = np.empty(0)
        self.has_origin = False


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
        has_origin: Whether the derived quantities are those that the last substep of `step` left.
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
        self._origin = np.empty(self._size)
        self.has_origin = False

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
        mujoco.mj_getState(self._model, self._data, saved.numbers, SIGNATURE)
        for place, view in zip(saved.fields, self.fields, strict=True):
            place[...] = view
        if self.everything:
            saved.snapshot = self.memory.save(saved.snapshot)
            saved.has_origin = self.has_origin
            if self.has_origin:
                if not saved.origin.size:
                    saved.origin = np.empty(self._size)
                saved.origin[:] = self._origin
        return saved

    def load(self, saved: SavedState) -> None:
        """Put back what was saved of these data; its `numbers` may have been changed since."""
        if self.everything:
            self.has_origin = saved.has_origin
            if saved.snapshot is not None:
                self.memory.load(saved.snapshot)
                if saved.has_origin:
                    self._origin[:] = saved.origin
            else:  # it was saved when named fields were enough
                self._set(saved.numbers)
                mujoco.mj_forward(self._model, self._data)
        self._set(saved.numbers)
        for place, view in zip(saved.fields, self.fields, strict=True):
            view[...] = place

    def step(self, count: int) -> None:
        """Make substeps, and remember the state before the last one."""
        if count > 1:
            mujoco.mj_step(self._model, self._data, count - 1)
        mujoco.mj_getState(self._model, self._data, self._origin, SIGNATURE)
        mujoco.mj_step(self._model, self._data, 1)
        self.has_origin = True

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
        if self.everything:
            assert before.snapshot is not None and looked.snapshot is not None
            present = np.empty(self._size)
            mujoco.mj_getState(self._model, self._data, present, SIGNATURE)
            self._set(looked.numbers)
            if self.memory.holds(looked.snapshot):
                self.load(before)
            self._set(present)
        for place, view in zip(before.fields, self.fields, strict=True):
            view[...] = place

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
        numbers = {"integration": saved.numbers.copy(), "fields": fields}
        if source.has_origin:
            numbers["origin"] = source.origin.copy()
        return numbers

    def check(self, numbers: Any, required: Sequence[str] | None = None) -> None:
        """Check that plain numbers are a state of this model.

        Args:
            numbers: As `export` returned them.
            required: The fields that must be among them; all that are saved here if None.

        Raises:
            ValueError: They are not, or lack a field.
        """
        for name in ("integration", "origin"):
            state = numbers.get(name)
            if state is None and name == "origin":
                continue
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
            self.repeat(origin, 1, state)
            self.has_origin = self._agrees(fields)
        else:
            self.has_origin = False
        if not self.has_origin:
            self._set(state)
            mujoco.mj_forward(self._model, self._data)
        for name in self._needed():
            if name in fields:
                getattr(self._data, name)[...] = fields[name]
        self._set(state)  # mj_forward changes the warm start

    def _agrees(self, fields: dict[str, NDArray[Any]]) -> bool:
        """Return whether what derives from the last substep is what was saved.

        It is not where a hook has called `mj_forward` or the like since.
        """
        names = [name for name in ("xpos", "cvel", "qacc") if name in fields]
        return all(np.array_equal(getattr(self._data, n), fields[n], equal_nan=True) for n in names)

    def _needed(self) -> tuple[str, ...]:
        """Return the names of the fields that a state must have."""
        return self._derived() if self.everything else self._names

    def _derived(self) -> tuple[str, ...]:
        return tuple(name for name in self.memory.arrays if name not in _IN_STATE)

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
