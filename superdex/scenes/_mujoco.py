"""A MuJoCo model with its data, whose state can be captured and restored exactly.

Why `mjSTATE_INTEGRATION`: positions and velocities alone (`mjSTATE_PHYSICS`), even with time and
plug-in state (`mjSTATE_FULLPHYSICS`), leave out the solver's warm start, controls and applied
forces, and trajectories part at the first contact.

Why everything derived beside it: after `mj_step`, derived quantities such as `qfrc_bias` or `xpos`
describe the moment before the last substep. An environment that reads one of them before it steps,
to compensate gravity or to measure how far a body moved, would read its sibling's. `mj_forward`
after the restore is no cure: it computes them at the present state, one substep later than a loop
without sharing reads them, and rewards differ by 1e-4. So all that the `MjData` holds is saved with
the state, in a few copies of memory (`_memory`); nobody has to say what is read. Environments that
are known to read nothing derived before a step save fields by name instead, or none.
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
from superdex.scenes._exchange import digest_of
from superdex.scenes._guard import ModelGuard
from superdex.scenes._model_fields import advice
from superdex.scenes._saved_state import SIGNATURE, SavedState, StateSaver
from superdex.scenes._variation import Variation, Variations

if TYPE_CHECKING:
    from superdex.scenes._drawing import Camera, Drawing

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
        fields: `MjData` array fields that environments read before they step. It is a hint, which
            nobody needs to give: everything that the data hold is saved with each state.
        only_fields: Save no derived quantity but `fields`. A state is then a kilobyte instead of
            10 to 100, and a restore some microseconds quicker, but a hook that reads another
            derived quantity before the physics moves reads a sibling's. `check_scene_env` of
            `superdex.testing` finds such a hook.

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
        fields: Sequence[str] = (),
        only_fields: bool = False,
    ) -> None:
        self._model: mujoco.MjModel | None = model
        self._data: mujoco.MjData | None = mujoco.MjData(model) if data is None else data
        # Checked even where they are but a hint.
        named = StateSaver(model, self.data, fields, everything=False)
        self._saver = named if only_fields else StateSaver(model, self.data)
        self._timestep = float(model.opt.timestep)
        self._scratch = np.empty(mujoco.mj_stateSize(model, SIGNATURE))
        self._states: dict[int, SavedState] = {}
        self._free: list[SavedState] = []
        self._substeps: dict[float, int] = {}
        self._stepping = threading.Lock()
        self._warnings = self._data.warning.number[UNSTABLE]
        # What the data held before refreshed(); None once the scene moved on.
        self._before_refresh: SavedState | None = None
        self._drawings: dict[tuple[int, int], Drawing] = {}
        self._guard: ModelGuard | None = None
        self._variations: Variations | None = None
        self._digest: str | None = None

    @classmethod
    def from_xml_path(
        cls, path: str | PathLike[str], *, fields: Sequence[str] = (), only_fields: bool = False
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
        return cls(model, fields=fields, only_fields=only_fields)

    @classmethod
    def from_xml_string(
        cls, xml: str, *, fields: Sequence[str] = (), only_fields: bool = False
    ) -> MujocoScene:
        """Build a scene from MJCF text."""
        model = mujoco.MjModel.from_xml_string(xml)
        return cls(model, fields=fields, only_fields=only_fields)

    @classmethod
    def from_spec(
        cls, spec: mujoco.MjSpec, *, fields: Sequence[str] = (), only_fields: bool = False
    ) -> MujocoScene:
        """Build a scene from an `MjSpec`, which is compiled and may be dropped."""
        return cls(spec.compile(), fields=fields, only_fields=only_fields)

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

    @property
    def saves_everything(self) -> bool:
        """Whether all derived quantities are saved with a state, or fields by name alone."""
        return self._saver.everything

    def save_everything(self) -> None:
        """From now on save all derived quantities with each state.

        Those of a state that was captured before are computed when it is restored.
        """
        self._saver.everything = True

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
        # Memory of released handles serves again, so that a step allocates none.
        saved = self._saver.save(self._free.pop() if self._free else None)
        handle = _next_handle()
        self._states[handle] = saved
        return handle

    def restore_state(self, handle: int, /) -> None:
        """Put a captured state back; the clock goes back too, and the handle stays valid.

        Derived quantities are as they were when it was captured. Of a scene with `only_fields`
        those are its `fields`; others are those of whoever stepped last, and `refresh` computes
        them.

        Raises:
            ValueError: The handle was released, or is another scene's.
            ClosedError: The scene is closed.
        """
        self._saver.load(self._saved(handle))
        self._before_refresh = None

    def _saved(self, handle: int) -> SavedState:
        saved = self._states.get(handle)
        if saved is None:
            raise self._unknown(handle)
        return saved

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
            if self._saver.everything:
                self._saver.step(count)
            else:
                mujoco.mj_step(self._model, self._data, count)
        finally:
            self._stepping.release()

    @contextmanager
    def stepped_by_others(self, num_substeps: int) -> Iterator[None]:
        """Inside, somebody else calls `mj_step` for a number of substeps, once and first."""
        self._before_refresh = None
        with self._saver.stepped_by_others(num_substeps):
            yield

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
        return self._saver.numbers_of(self._saved(handle))

    def read_derived(self, handle: int, name: str, /) -> NDArray[Any]:
        """Return a derived quantity of a captured state, live; everything must be saved.

        Raises:
            ValueError: The handle was released, or is another scene's.
            KeyError: It has no fixed size.
        """
        snapshot = self._saved(handle).snapshot
        assert snapshot is not None, "a scene that saves everything has snapshots"
        return self._saver.memory.read(snapshot, name)

    def repeat_steps(
        self, before: NDArray[np.float64], count: int, after: NDArray[np.float64]
    ) -> None:
        """Leave in the scene what substeps left that were made elsewhere, by a batch say.

        Args:
            before: The `mjSTATE_INTEGRATION` before them.
            count: How many.
            after: The present state, in which controls may have been changed since.
        """
        self._saver.repeat(before, count, after)
        self.take_unstable()  # it was seen when they were made
        self._before_refresh = None

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
            return self._saver.export(self._saved(handle))
        self._check_capturable(self.model)
        return self._saver.export(self._saver.save(), self._before_refresh)

    def check_state(self, numbers: dict[str, Any]) -> None:
        """Check that what `export_state` returned is a state of this scene's model.

        Raises:
            ValueError: It is not, or it lacks a field that is saved here.
        """
        self._saver.check(numbers)

    def import_state(self, numbers: dict[str, Any]) -> int:
        """Set an exported state aside here and return the handle that restores it.

        Raises:
            ValueError: As `check_state`.
        """
        self.check_state(numbers)
        present = self._saver.save(self._free.pop() if self._free else None)
        try:
            self._saver.load_numbers(numbers)
            self.take_unstable()  # it was seen when the state was made
            return self.capture_state()
        finally:
            self._saver.load(present)
            self._free.append(present)

    def put_state(self, numbers: dict[str, Any]) -> None:
        """Put an exported state into the scene, with all that derives from it.

        Raises:
            ValueError: As `check_state`.
        """
        self.check_state(numbers)
        self._saver.load_numbers(numbers)
        self.take_unstable()
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

    def refresh(self) -> None:
        """Compute derived quantities at the present state, which stays as it is to the bit.

        For reads outside a step: rendering, attributes, methods. It is not used before a step,
        where environments without sharing read what `mj_step` left, one timestep behind.
        """
        model, data, state = self.model, self.data, self._scratch
        mujoco.mj_getState(model, data, state, SIGNATURE)
        mujoco.mj_forward(model, data)
        mujoco.mj_setState(model, data, state, SIGNATURE)
        self._saver.origin = None

    @contextmanager
    def refreshed(self, *, with_contact_forces: bool = False) -> Iterator[None]:
        """Inside, derived quantities are those of the present state; then they are as before.

        So a look at the scene leaves no trace in what is computed later. Changes that the body
        makes to the state stay. Where it steps, restores, or computes derived quantities itself,
        those are the new ones.

        Args:
            with_contact_forces: Compute what `mj_forward` leaves out too: `cacc`, `cfrc_int` and
                `cfrc_ext`.
        """
        before = self._saver.save()
        self.refresh()
        if with_contact_forces:
            mujoco.mj_rnePostConstraint(self.model, self.data)
        looked = self._saver.save() if self._saver.everything else before
        self._before_refresh = before
        try:
            yield
        finally:
            if self._before_refresh is before:
                self._saver.put_derived_back(before, looked)
                self._before_refresh = None

    def protect_model(self) -> None:
        """Remember the model as it is now, for `check_model`; a manager does so for its scenes."""
        self._guard = ModelGuard(self.model)

    def check_model(self, *, thorough: bool = True) -> None:
        """Check that the model is as `protect_model` found it; what is not, is put back.

        Args:
            thorough: Look at large textures too.

        Raises:
            SceneMismatch: An array, a flag, an option or a statistic of the model was changed.
        """
        changed = self.undo_model_changes(thorough=thorough)
        if changed:
            declared = () if self._variations is None else self._variations.names
            raise SceneMismatch(
                f"The model of a shared scene was changed in {', '.join(changed)}; what "
                "it was built with is put back, because every environment on the scene would "
                f"move by the change. {advice(changed, declared)}"
            )

    def declare_varied(self, names: Sequence[str]) -> None:
        """Put the model's own values in, and have these fields vary from now on.

        Raises:
            ValueError: A field can't vary.
            SceneMismatch: Someone wrote into a field that varies, or changed a protected model.
        """
        self.check_varied()
        self.apply_variation(None)
        declared = () if self._variations is None else self._variations.names
        if not set(names) <= set(declared):
            self.check_model()
            self._variations = Variations(self.model, [*declared, *names])
        elif self._guard is None and self._variations is not None:
            self._variations.take_own()

    def check_varied(self) -> None:
        """Check that nobody wrote into the fields that vary; what was written is put back.

        Raises:
            SceneMismatch: Someone did.
        """
        changed = [] if self._variations is None else self._variations.undo_changes()
        if changed:
            raise SceneMismatch(
                f"The model was changed in {', '.join(changed)}, which varied_fields names; the "
                "change is undone, because what varies is drawn. Return this episode's values "
                "from _draw_physics, in place of writing them."
            )

    def vary(self, names: Sequence[str], values: Mapping[str, ArrayLike]) -> Variation:
        """Put values of model fields in, until `apply_variation` puts others.

        Args:
            names: All fields that the environment varies.
            values: Of some of them; the others have the model's own.

        Returns:
            What `apply_variation` puts in again: the values and what MuJoCo derives from them.

        Raises:
            ValueError: A field can't vary, or a value does not fit it.
            SceneMismatch: As `declare_varied`.
        """
        self.declare_varied(names)
        assert self._variations is not None
        return self._variations.derive(values)

    def apply_variation(self, variation: Variation | None) -> None:
        """Put a variation into the model, or with None the model's own values."""
        if self._variations is not None:
            self._variations.apply(variation)

    def undo_model_changes(self, *, thorough: bool = True) -> list[str]:
        """Put the model back to what `protect_model` found, and return what was not so by name.

        Args:
            thorough: Look at large textures too.
        """
        if self._guard is None:
            return []
        variations = self._variations
        if variations is None:
            return sorted(self._guard.undo_changes(thorough=thorough))
        changed = variations.undo_changes()
        present = variations.current
        variations.apply(None)
        changed += self._guard.undo_changes(thorough=thorough)
        variations.apply(present)
        return sorted(changed)

    def reset(self) -> None:
        """Put the model's default state in place, for scenes whose state can't be captured."""
        mujoco.mj_resetData(self.model, self.data)
        self._saver.origin = None
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
        self._warnings = np.zeros(0, np.int32)  # the other one is a view of the data
        self._saver = _Closed()  # type: ignore[assignment]  # it refuses every use
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


class _Closed:
    """Stands in for what a closed scene no longer has."""

    def __getattr__(self, name: str) -> Any:
        raise _closed()


def _closed() -> ClosedError:
    return ClosedError("The scene is closed; build another one")
