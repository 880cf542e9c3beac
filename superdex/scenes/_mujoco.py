"""A MuJoCo model with its data, whose state can be captured and restored exactly.

Why `mjSTATE_INTEGRATION`: positions and velocities alone (`mjSTATE_PHYSICS`), even with time and
plug-in state (`mjSTATE_FULLPHYSICS`), leave out the solver's warm start, controls and applied
forces, and trajectories part at the first contact.

Why some `MjData` fields beside it: after `mj_step`, derived quantities such as `xpos` describe the
moment before the last step. An environment that reads one of them before it steps, say to measure
how far a body moved, would read its sibling's. `mj_forward` after the restore is no cure: it
computes the field at the present state, one step later than a loop without sharing reads it, and
rewards differ by 1e-4. So the fields that are read before a step are saved with the state.
"""

from __future__ import annotations

import errno
import itertools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from superdex.errors import ClosedError, SceneMismatch, StateCaptureUnsupported
from superdex.scenes._exchange import check_numbers, digest_of, numbers_of, put_numbers
from superdex.scenes._guard import ModelGuard
from superdex.scenes._variation import Variation, Variations

if TYPE_CHECKING:
    from superdex.scenes._drawing import Camera, Drawing

_SIGNATURE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
# The warnings after which MuJoCo resets a simulation.
UNSTABLE = slice(mujoco.mjtWarning.mjWARN_BADQPOS.value, mujoco.mjtWarning.mjWARN_BADQACC.value + 1)
# How far dt may be from a whole number of timesteps, as a share: 1/60 is no binary number.
_TIMESTEP_TOLERANCE = 1e-6
_CALM = bytes(4 * (UNSTABLE.stop - UNSTABLE.start))
# One sequence for all scenes of the process: a handle of another scene is never taken for an own.
_next_handle = itertools.count(1).__next__


class MujocoScene:
    """One `MjModel` and `MjData` that environments take turns on.

    Args:
        model: The compiled model.
        data: Data of that model, which the scene takes over; by default it makes its own.
        fields: `MjData` array fields saved beside the state, because an environment reads them
            before it steps. Name `()` where none does: it makes a capture cheaper.

    Example:
        >>> from superdex.scenes import MujocoScene
        >>> ball = "<body><freejoint/><geom size='0.1'/></body>"
        >>> scene = MujocoScene.from_xml_string(
        ...     f"<mujoco><worldbody>{ball}</worldbody></mujoco>"
        ... )
        >>> start = scene.capture_state()
        >>> scene.step(0.5)
        >>> bool(scene.data.qpos[2] < 0)
        True
        >>> scene.restore_state(start)
        >>> scene.data.time, float(scene.data.qpos[2])
        (0.0, 0.0)
        >>> scene.close()
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        *,
        data: mujoco.MjData | None = None,
        fields: Sequence[str] = ("xpos", "xipos"),
    ) -> None:
        self._model: mujoco.MjModel | None = model
        self._data: mujoco.MjData | None = mujoco.MjData(model) if data is None else data
        self._field_names = tuple(fields)
        self._fields = tuple(self._field_view(name) for name in fields)
        self._timestep = float(model.opt.timestep)
        self._state_size = mujoco.mj_stateSize(model, _SIGNATURE)
        self._scratch = np.empty(self._state_size)
        self._states: dict[int, tuple[NDArray[np.float64], ...]] = {}
        self._free: list[tuple[NDArray[np.float64], ...]] = []
        self._substeps: dict[float, int] = {}
        self._stepping = threading.Lock()
        self._warnings = self._data.warning.number[UNSTABLE]
        # What the saved fields held before refresh(); None once the scene moved on.
        self._before_refresh: tuple[NDArray[Any], ...] | None = None
        self._drawings: dict[tuple[int, int], Drawing] = {}
        self._guard: ModelGuard | None = None
        self._variations: Variations | None = None
        self._digest: str | None = None

    @classmethod
    def from_xml_path(
        cls, path: str | PathLike[str], *, fields: Sequence[str] = ("xpos", "xipos")
    ) -> MujocoScene:
        """Build a scene from an MJCF or URDF file.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: MuJoCo can't read or compile it.
        """
        try:
            model = mujoco.MjModel.from_xml_path(fspath(path))
        except ValueError:
            # Afterwards only: MuJoCo may read what is no file, by a resource provider.
            if Path(path).exists():
                raise
            raise FileNotFoundError(
                errno.ENOENT, "There is no model file of that name", str(Path(path).absolute())
            ) from None
        return cls(model, fields=fields)

    @classmethod
    def from_xml_string(cls, xml: str, *, fields: Sequence[str] = ("xpos", "xipos")) -> MujocoScene:
        """Build a scene from MJCF text."""
        return cls(mujoco.MjModel.from_xml_string(xml), fields=fields)

    @classmethod
    def from_spec(
        cls, spec: mujoco.MjSpec, *, fields: Sequence[str] = ("xpos", "xipos")
    ) -> MujocoScene:
        """Build a scene from an `MjSpec`, which is compiled and may be dropped."""
        return cls(spec.compile(), fields=fields)

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled model; what is changed in it, is changed for everyone on the scene."""
        if self._model is None:
            raise _closed()
        return self._model

    @property
    def data(self) -> mujoco.MjData:
        """The data, holding the state of whoever stepped or restored last."""
        if self._data is None:
            raise _closed()
        return self._data

    def capture_state(self) -> int:
        """Set the present state aside and return the handle that restores it.

        Raises:
            StateCaptureUnsupported: The model has engine plugins, or lets bodies sleep.
            ClosedError: The scene is closed.
        """
        if self._model is None:
            raise _closed()
        # The first of the states in existence looks for all: no check per step.
        if not self._states:
            self._check_capturable(self._model)
        # Buffers of released handles serve again, so that a step allocates none.
        if self._free:
            saved = self._free.pop()
        else:
            saved = (np.empty(self._state_size), *map(np.empty_like, self._fields))
        mujoco.mj_getState(self._model, self._data, saved[0], _SIGNATURE)
        for place, view in zip(saved[1:], self._fields, strict=True):
            place[...] = view
        handle = _next_handle()
        self._states[handle] = saved
        return handle

    def restore_state(self, handle: int, /) -> None:
        """Put a captured state back; the clock goes back too, and the handle stays valid.

        Derived quantities other than the saved fields are those of whoever stepped last;
        `refresh` computes them.

        Raises:
            ValueError: The handle was released, or is another scene's.
            ClosedError: The scene is closed.
        """
        saved = self._states.get(handle)
        if saved is None:
            raise self._unknown(handle)
        mujoco.mj_setState(self._model, self._data, saved[0], _SIGNATURE)
        for place, view in zip(saved[1:], self._fields, strict=True):
            view[...] = place
        self._before_refresh = None

    def release_state(self, handle: int, /) -> None:
        """Give a handle back; it is invalid from then on.

        Raises:
            ValueError: The handle was released already, or is another scene's.
            ClosedError: The scene is closed.
        """
        saved = self._states.pop(handle, None)
        if saved is None:
            raise self._unknown(handle)
        self._free.append(saved)

    def step(self, dt: float, /) -> None:
        """Advance the scene by `dt` seconds, a whole number of the model's timesteps.

        The timestep is the one the model had when the scene was built.

        Raises:
            ValueError: `dt` is no whole, positive number of timesteps.
            RuntimeError: Another thread is stepping the scene.
            ClosedError: The scene is closed.
        """
        count = self._substeps.get(dt) or self.count_substeps(dt)
        if not self._stepping.acquire(blocking=False):
            raise RuntimeError(
                "Two threads step one scene at the same time. Environments of a shared scene take "
                "turns: step them from one thread, or give each its own (use_shared_scenes=False)."
            )
        try:
            self._before_refresh = None
            mujoco.mj_step(self._model, self._data, count)
        finally:
            self._stepping.release()

    def take_unstable(self) -> bool:
        """Return whether the simulation became unstable since the last look.

        MuJoCo has reset it to the model's default state then.
        """
        if self._warnings.tobytes() == _CALM:
            return False
        self._warnings[:] = 0
        return True

    def read_state(self, handle: int, /) -> NDArray[np.float64]:
        """Return the numbers of a captured state: its `mjSTATE_INTEGRATION`, live.

        Raises:
            ValueError: The handle was released, or is another scene's.
        """
        saved = self._states.get(handle)
        if saved is None:
            raise self._unknown(handle)
        return saved[0]

    def export_state(self, handle: int | None = None) -> dict[str, Any]:
        """Return a captured state, or the present one, as arrays that fit any scene of this model.

        They may be kept in a file, and put into a scene of another process by `import_state`.

        Args:
            handle: The state; None for the present one.

        Raises:
            ValueError: The handle was released, or is another scene's.
            StateCaptureUnsupported: The model has engine plugins, or lets bodies sleep.
            ClosedError: The scene is closed.
        """
        if handle is not None:
            saved = self._states.get(handle)
            if saved is None:
                raise self._unknown(handle)
            state, *fields = (array.copy() for array in saved)
            return {
                "integration": state,
                "fields": dict(zip(self._field_names, fields, strict=True)),
            }
        self._check_capturable(self.model)
        views = self._before_refresh or self._fields
        return numbers_of(self.model, self.data, dict(zip(self._field_names, views, strict=True)))

    def check_state(self, numbers: dict[str, Any]) -> None:
        """Check that what `export_state` returned is a state of this scene's model.

        Raises:
            ValueError: It is not, or it lacks a field that is saved here.
        """
        check_numbers(self.model, self._named_fields(), numbers)

    def import_state(self, numbers: dict[str, Any]) -> int:
        """Set an exported state aside here and return the handle that restores it.

        Raises:
            ValueError: As `check_state`.
        """
        self.check_state(numbers)
        fields = numbers["fields"]
        handle = _next_handle()
        self._states[handle] = (
            numbers["integration"].copy(),
            *(fields[name].copy() for name in self._field_names),
        )
        return handle

    def put_state(self, numbers: dict[str, Any]) -> None:
        """Put an exported state into the scene, with all that derives from it.

        Raises:
            ValueError: As `check_state`.
        """
        self.check_state(numbers)
        put_numbers(self.model, self.data, self._named_fields(), numbers)
        self._before_refresh = None

    def digest(self) -> str:
        """Return a short name for the physics of the model: equal for models that move alike.

        Values that `vary` put in don't count. Of a protected model it is worked out once.
        """
        if self._digest is not None:
            return self._digest
        present = None if self._variations is None else self._variations.current
        self.apply_variation(None)
        digest = digest_of(self.model)
        self.apply_variation(present)
        if self._guard is not None:
            self._digest = digest
        return digest

    def _named_fields(self) -> dict[str, NDArray[Any]]:
        return dict(zip(self._field_names, self._fields, strict=True))

    def refresh(self) -> None:
        """Compute derived quantities at the present state, which stays as it is to the bit.

        For reads outside a step: rendering, attributes, methods. It is not used before a step,
        where environments without sharing read what `mj_step` left, one timestep behind.
        """
        model, data, state = self.model, self.data, self._scratch
        mujoco.mj_getState(model, data, state, _SIGNATURE)
        mujoco.mj_forward(model, data)
        mujoco.mj_setState(model, data, state, _SIGNATURE)

    @contextmanager
    def refreshed(self) -> Iterator[None]:
        """Inside, derived quantities are those of the present state; then the saved fields go back.

        So a look at the scene leaves no trace in what is computed later. Changes that the body
        makes to the state stay; where it steps or restores, the saved fields are the new ones.
        """
        before = tuple(view.copy() for view in self._fields)
        self.refresh()
        self._before_refresh = before
        try:
            yield
        finally:
            if self._before_refresh is before:
                for view, value in zip(self._fields, before, strict=True):
                    view[...] = value
                self._before_refresh = None

    def protect_model(self) -> None:
        """Remember the model as it is now, for `check_model`; a manager does so for its scenes."""
        self._guard = ModelGuard(self.model)

    def check_model(self, *, thorough: bool = True) -> None:
        """Check that the model is as `protect_model` found it; what is not, is put back.

        Args:
            thorough: Look at large arrays (meshes, textures, height fields) too.

        Raises:
            SceneMismatch: An array, an option or a statistic of the model was changed.
        """
        changed = self.undo_model_changes(thorough=thorough)
        if changed:
            raise SceneMismatch(
                f"The model of a shared scene was changed in {', '.join(changed)}; what "
                "it was built with is put back, because every environment on the scene would "
                "move by the change. Change the model in the scene's builder and put the setting "
                "into the scene's name and fields, or give each environment its own scene "
                "(use_shared_scenes=False)."
            )

    def vary(self, names: Sequence[str], values: Mapping[str, ArrayLike]) -> Variation:
        """Put values of model fields in, until `apply_variation` puts others.

        Args:
            names: All fields that environments on this scene vary, the same with each call.
            values: Of some of them; the others have the model's own.

        Returns:
            What `apply_variation` puts in again: the values and what MuJoCo derives from them.

        Raises:
            ValueError: A field can't vary, or a value does not fit it.
        """
        if self._variations is None:
            self._variations = Variations(self.model, names)
        return self._variations.derive(values)

    def apply_variation(self, variation: Variation | None) -> None:
        """Put a variation into the model, or with None the model's own values."""
        if self._variations is not None:
            self._variations.apply(variation)

    def undo_model_changes(self, *, thorough: bool = True) -> list[str]:
        """Put the model back to what `protect_model` found, and return what was not so by name.

        Args:
            thorough: Look at large arrays (meshes, textures, height fields) too.
        """
        if self._guard is None:
            return []
        variations = self._variations
        if variations is None:
            return sorted(self._guard.undo_changes(thorough=thorough))
        present = variations.current
        variations.apply(None)
        changed = sorted(self._guard.undo_changes(thorough=thorough))
        variations.apply(present)
        return changed

    def reset(self) -> None:
        """Put the model's default state in place, for scenes whose state can't be captured."""
        mujoco.mj_resetData(self.model, self.data)
        self._before_refresh = None

    def render(self, camera: Camera = -1, width: int = 640, height: int = 480) -> NDArray[np.uint8]:
        """Draw the scene as it stands; call `refresh` first where the state was just restored.

        Args:
            camera: A camera's name, number, or an `MjvCamera`; -1 is a free camera.
            width: In pixels.
            height: In pixels.

        Returns:
            The picture, (height, width, 3), owned by the caller.

        Raises:
            RuntimeError: No OpenGL context can be had; the message says what to install.
        """
        from superdex.scenes._drawing import Drawing

        drawing = self._drawings.get((width, height))
        if drawing is None:
            drawing = self._drawings[width, height] = Drawing(self.model, width, height)
        return drawing.draw(self.data, camera)

    def close(self) -> None:
        """Free model, data, states and renderers; closing twice is fine."""
        for drawing in self._drawings.values():
            drawing.close()
        self._drawings.clear()
        # Empty, the tables lead every use to where a closed scene is refused: no check per step.
        self._states.clear()
        self._substeps.clear()
        self._free.clear()
        self._fields = ()
        self._warnings = np.zeros(0, np.int32)  # the other one is a view of the data
        self._before_refresh = self._guard = self._variations = None
        self._model = self._data = None

    def count_substeps(self, dt: float) -> int:
        """Return how many timesteps `dt` is.

        Raises:
            ValueError: It is no whole, positive number of them.
        """
        if self._model is None:
            raise _closed()
        timestep = self._timestep
        count = round(dt / timestep) if 0 < dt < math.inf else 0
        if count < 1 or abs(dt / timestep - count) > _TIMESTEP_TOLERANCE * count:
            raise ValueError(
                f"dt must be a whole number of the model's timesteps of {timestep:g} s, got {dt:g}"
            )
        self._substeps[dt] = count
        return count

    def _field_view(self, name: str) -> NDArray[Any]:
        """Return the live view of one `MjData` array field."""
        view: Any = getattr(self.data, name, None)
        if isinstance(view, np.ndarray) and view.size == 0:
            # Empty in this model, or in the arena, whose arrays come and go with each step.
            from mujoco.batch import DATA_FIELDS

            view = view if name in DATA_FIELDS else None
        if not isinstance(view, np.ndarray):
            raise ValueError(
                f"fields must name array fields of MjData that exist between steps, got {name!r}"
            )
        return view

    @staticmethod
    def _check_capturable(model: mujoco.MjModel) -> None:
        """Check that `mjSTATE_INTEGRATION` holds all that moves in this model.

        Raises:
            StateCaptureUnsupported: Plugins have state of their own, or bodies that sleep are
                listed (`MjData.tree_asleep` and more) outside of any state.
        """
        sleep = mujoco.mjtEnableBit.mjENBL_SLEEP.value
        sleeps = bool(model.opt.enableflags & sleep)
        for kind, found in (("plugin", bool(model.nplugin)), ("sleeping", sleeps)):
            if found:
                raise StateCaptureUnsupported(
                    f"State capture is not supported for scenes with {kind} actors."
                )

    def _unknown(self, handle: object) -> ValueError:
        if self._model is None:
            return _closed()
        return ValueError(
            f"State {handle!r} is not this scene's: it was released already or was captured from "
            "another scene"
        )


def _closed() -> ClosedError:
    return ClosedError("The scene is closed; build another one")
