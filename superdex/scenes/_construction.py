"""Construction of a Gymnasium MuJoCo environment on a model and data that exist already.

`MujocoEnv.__init__` calls `_initialize_simulation()` for its model and data. While a factory runs,
that call is answered with those of a scene, laid out as if they were new: the model as it was
compiled, the data reset. So nothing is compiled, nothing is allocated, and what the constructor
remembers of model and data is right. The constructor may change the model. Afterwards it is
compared with what it was made into for the environments that share it::

    same            → the environment gets a seat on the scene
    another one     → put back; the environment is built again, on the scene that has such a model
                      or on a new one

What can't be handed over so (a constructor that replaces its data, a factory that builds two
environments) stays as it would be without sharing, and a warning says so.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any, TypeAlias

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray

from superdex.errors import StateCaptureUnsupported
from superdex.scenes._guard import ModelGuard
from superdex.scenes._known import is_known
from superdex.scenes._manager import SceneManager
from superdex.scenes._mujoco import MujocoScene
from superdex.scenes._seat import Seat, Turns
from superdex.scenes._seated import SeatedEnv, take_seat

_Simulation: TypeAlias = "tuple[mujoco.MjModel, mujoco.MjData]"

_FIELDS = ("xpos", "xipos")
"""All that Gymnasium's own environments read before a step, beside the state."""

_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
_CALLBACKS = "act_bias act_dyn act_gain contactfilter control passive sensor".split()

# Held while a factory runs: it is for this one that `MujocoEnv.__init__` is another.
_building = threading.RLock()


@dataclass(eq=False, slots=True)
class SharedModel:
    """A scene's turns, and what it takes to lay it out for another constructor.

    Attributes:
        turns: The scene's.
        built: The bytes of the model as the constructor left it.
        pictures: Guards the model's settings of pictures; the scene guards the rest.
        compiled: Guards of the model as the constructor got it; none where it left it so.
    """

    turns: Turns
    built: NDArray[np.uint8]
    pictures: ModelGuard
    compiled: tuple[ModelGuard, ...]

    def lay_out(self, start: NDArray[np.float64] | None) -> _Simulation:
        """Return model and data as if they were new, during a turn that is nobody's.

        Args:
            start: The state of the data; None for the model's default.

        Raises:
            SceneMismatch: The model was changed since it was constructed; it is put back.
        """
        self.turns.vacate()
        self.turns.check_model(thorough=True)
        self.pictures.undo_changes(thorough=True)
        for guard in self.compiled:
            guard.undo_changes(thorough=True)
        model, data = self.turns.scene.model, self.turns.scene.data
        mujoco.mj_resetData(model, data)
        if start is not None:
            mujoco.mj_setState(model, data, start, _STATE)
        return model, data

    def put_back(self) -> None:
        """Make the model again what it is for those who share it."""
        self.turns.scene.undo_model_changes(thorough=True)
        self.pictures.undo_changes(thorough=True)


def build_shared(
    factory: Callable[[], gym.Env[Any, Any]], fields: tuple[str, ...]
) -> gym.Env[Any, Any]:
    """Return an environment that shares its model and data with those like it.

    Raises:
        TypeError: The factory returned something else than an environment on a `MujocoEnv`.
        StateCaptureUnsupported: The model has state that can't be captured.
    """
    for name in _CALLBACKS:
        if getattr(mujoco, f"get_mjcb_{name}")() is not None:
            raise StateCaptureUnsupported(
                f"State capture is not supported for scenes with callback actors: mjcb_{name} is "
                "set in this process, and what it remembers is no environment's own."
            )
    construction = _Construction(fields)
    with _building:
        while True:
            env: Any = None
            try:
                with construction.attempt():
                    env = factory()
                    if construction.finish(env):
                        return env  # type: ignore[no-any-return]  # `finish` has checked it
            except BaseException:
                _close(env)
                raise
            _close(env)


class _Construction:
    """One environment in the making, in as many attempts as it takes."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields
        self._is_shareable = True
        self._refused: set[str] = set()
        self._wanted: NDArray[np.uint8] | None = None

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Inside, the factory may run once; a scene that it got no seat on is left as it was."""
        self._env: MujocoEnv | None = None
        self._given: _Simulation | None = None
        self._found: SharedModel | None = None
        self._seat: Seat | None = None
        with ExitStack() as self._ending, _answered(self._initialize):
            yield

    def _initialize(self, env: MujocoEnv, own: Callable[[], _Simulation]) -> _Simulation:
        """Answer for `env._initialize_simulation`, which is `own`."""
        if self._env is not None or not self._is_shareable:
            return own()
        self._env = env
        simulation = start = None
        source = _source_of(env)
        if source is None:
            simulation = own()
            source, start = _image_of(simulation[0]).tobytes(), _state_of(*simulation)
        digest = hashlib.sha256(source + repr(self._fields).encode()).hexdigest()
        self._manager = self._ending.enter_context(SceneManager.building(type(env)))
        self._prefix = f"{env.fullpath} {digest[:16]}"
        self._found = self._find()
        if self._found is not None:
            self._ending.callback(self._leave_found)
            self._given = self._found.lay_out(start)
        else:
            self._given = simulation or own()
            self._compiled = _image_of(self._given[0])
            self._guards = tuple(ModelGuard(self._given[0], pictures=p) for p in (False, True))
        return self._given

    def finish(self, env: Any) -> bool:
        """Give a new environment its seat; False where it has to be built again."""
        base = getattr(env, "unwrapped", None)
        if not isinstance(base, MujocoEnv):
            raise TypeError(
                "share_mujoco needs a function that builds an environment whose `unwrapped` is a "
                f"gymnasium.envs.mujoco.MujocoEnv; it returned {env!r}"
            )
        if isinstance(base, SeatedEnv):
            return True
        model, data = self._given or (None, None)
        if base is not self._env or base.model is not model or base.data is not data:
            if self._found is not None:
                self._is_shareable = False
                return False
            warnings.warn(
                f"{type(base).__name__} has a model and data of its own, not shared ones: they are "
                "not those that MujocoEnv's constructor made for the first environment that the "
                "function built.",
                RuntimeWarning,
                stacklevel=4,
            )
            return True
        if self._found is None:
            self._seat = self._register(model, data, is_known=_is_known(env))
        else:
            image = _image_of(model)
            if not np.array_equal(image, self._found.built):
                self._refused.add(self._found.turns.name)
                self._wanted = image
                return False
            if not _is_known(env):
                self._found.turns.scene.save_everything()
            self._seat = Seat(self._found.turns, self._manager)
        self._seat.turns.occupant = self._seat
        take_seat(env, self._seat)
        return True

    def _find(self) -> SharedModel | None:
        """Return what to try, with one more reference to the scene and its lock taken."""
        for name in reversed(self._manager.scene_info):
            if name in self._refused or name.rpartition(" #")[0] != self._prefix:
                continue
            registered = self._manager.try_find_scene(name)
            if registered is None:
                continue
            shared: SharedModel = registered.agent
            fits = self._wanted is None or np.array_equal(self._wanted, shared.built)
            # It is taken where an environment builds another one amid its turn.
            if fits and shared.turns.lock.acquire(blocking=False):
                return shared
            self._manager.release_scene(name)
        return None

    def _leave_found(self) -> None:
        """Let go of the scene that was found; without a seat on it, give the reference back."""
        assert self._found is not None
        if self._seat is None:
            self._found.put_back()
        self._found.turns.lock.release()
        if self._seat is None:
            self._manager.release_scene(self._found.turns.name)

    def _register(self, model: mujoco.MjModel, data: mujoco.MjData, *, is_known: bool) -> Seat:
        """Make a scene of model and data, which a constructor was the first to get."""
        names = (f"{self._prefix} #{number}" for number in itertools.count(1))
        name = next(name for name in names if name not in self._manager)
        fields = dict.fromkeys([*_FIELDS, *self._fields])
        scene = MujocoScene(model, data=data, fields=tuple(fields), only_fields=True)
        if not is_known:
            scene.save_everything()
        image = _image_of(model)
        shared = SharedModel(
            Turns(scene, name),
            built=image,
            pictures=ModelGuard(model, pictures=True),
            compiled=() if np.array_equal(image, self._compiled) else self._guards,
        )
        try:
            # The manager computes derived quantities, which the constructor did not.
            state = scene.capture_state()
            self._manager.register_scene(name, scene, shared)
            scene.restore_state(state)
            scene.release_state(state)
        except BaseException:
            scene.close()
            raise
        return Seat(shared.turns, self._manager)


@contextmanager
def _answered(initialize: Callable[..., _Simulation]) -> Iterator[None]:
    """Inside, environments that this thread constructs get model and data from `initialize`.

    There is no other way between a factory of any kind and the constructor: Gymnasium offers none.
    Environments that another thread constructs at the same time are left alone.
    """
    constructor, thread = MujocoEnv.__init__, get_ident()

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # it stands in for one
        # Where factories are nested, the inner one's has come first.
        if get_ident() == thread and "_initialize_simulation" not in vars(self):
            self._initialize_simulation = partial(initialize, self, self._initialize_simulation)
        try:
            constructor(self, *args, **kwargs)
        finally:
            vars(self).pop("_initialize_simulation", None)

    MujocoEnv.__init__ = __init__  # type: ignore[method-assign]  # put back right after
    try:
        yield
    finally:
        MujocoEnv.__init__ = constructor  # type: ignore[method-assign]  # what it was


def _source_of(env: MujocoEnv) -> bytes | None:
    """Return bytes that tell what an environment compiles; None where only compiling tells.

    They are made of the contents of its files: a name or a time stamp stays while a file is
    written anew.
    """
    if type(env)._initialize_simulation is not MujocoEnv._initialize_simulation:
        return None
    try:
        files = sorted(mujoco.mju_getXMLDependencies(env.fullpath))
        contents = [Path(file).read_bytes() for file in files]
    # Compiling it will say better what is wrong, if it is.
    except (OSError, ValueError, mujoco.FatalError):
        return None
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    return repr((files, digests, env.width, env.height)).encode()


def _image_of(model: mujoco.MjModel) -> NDArray[np.uint8]:
    """Return a compiled model as bytes."""
    image = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, image)
    return image


def _state_of(model: mujoco.MjModel, data: mujoco.MjData) -> NDArray[np.float64]:
    state = np.empty(mujoco.mj_stateSize(model, _STATE))
    mujoco.mj_getState(model, data, state, _STATE)
    return state


def _is_known(env: gym.Env[Any, Any]) -> bool:
    """Return whether environment and wrappers are Gymnasium's own."""
    classes = [type(env.unwrapped)]
    while isinstance(env, gym.Wrapper):
        classes.append(type(env))
        env = env.env
    return is_known(*classes)


def _close(env: Any) -> None:
    """Close what is not handed out; why it is not, is the failure to report."""
    with suppress(Exception):
        env.close()
