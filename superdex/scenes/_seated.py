"""Gymnasium's MuJoCo environments, and wrappers around them, that take turns on a shared scene.

An environment that was constructed gets another class: its own, with the methods of `SeatedEnv`
before it. So it is still an instance of its class, and no call to it gets past a turn. The
outermost wrapper is treated alike: what wrappers read of the data before or after a step is then
read in the environment's turn, even by a reference to the data that they keep.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import gymnasium as gym
import mujoco
from gymnasium.envs.mujoco import MujocoEnv

from superdex.errors import ClosedError, SceneMismatch
from superdex.scenes._seat import Seat


class SeatedEnv(MujocoEnv):
    """What an environment on a shared scene does before its own class does the rest."""

    _seat: Seat | None
    _leave: weakref.finalize[Any, Any]

    def step(self, action: Any) -> Any:
        """Step in the environment's turn."""
        seat = self._seated()
        if not seat.begin():
            return super().step(action)
        try:
            return super().step(action)
        finally:
            seat.end()

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Reset in the environment's turn; takes what its own class takes.

        Raises:
            SceneMismatch: The shared model was changed; it is put back.
        """
        seat = self._seated()
        with seat.turn():
            result = super().reset(*args, **kwargs)
            seat.turns.check_model(thorough=False)
        return result

    def _step_mujoco_simulation(self, ctrl: Any, n_frames: int) -> None:
        """Step the simulation, and remember from where."""
        self.data.ctrl[:] = ctrl
        with self._seated().turns.scene.stepped_by_others(n_frames):
            super()._step_mujoco_simulation(ctrl, n_frames)  # type: ignore[no-untyped-call]  # Gymnasium's own

    def render(self) -> Any:
        """Draw the environment's own state, derived quantities refreshed outside of a step."""
        with self.own_state():
            # Gymnasium takes the OpenGL context to be current that this environment drew in last,
            # but a sibling has drawn since.
            viewer = getattr(self.mujoco_renderer, "viewer", None)
            if viewer is not None:
                viewer.make_context_current()
            return super().render()  # type: ignore[no-untyped-call]  # Gymnasium's own

    def close(self) -> None:
        """Close the renderer and give the seat back, once."""
        if self._seat is None:
            return
        try:
            super().close()  # type: ignore[no-untyped-call]  # Gymnasium's own
        finally:
            self._seat = None
            self._leave()

    @contextmanager
    def own_state(self) -> Iterator[None]:
        """Inside, the data holds this environment's state, derived quantities refreshed.

        Raises:
            RuntimeError: Another environment has its turn, in another thread.
            SceneMismatch: The shared model was changed; it is put back.
        """
        seat = self._seat
        if seat is None or not seat.begin():
            yield
            return
        try:
            seat.refresh()
            yield
        finally:
            try:
                # Unless the body closed the environment.
                if self._seat is seat:
                    seat.turns.check_model(thorough=True)
            finally:
                seat.end()

    @property
    def model(self) -> mujoco.MjModel:
        """The shared model."""
        return self._seated().model

    @model.setter
    def model(self, value: object) -> None:
        self._refuse("model")

    @property
    def data(self) -> mujoco.MjData:
        """The shared data, holding this environment's state until another one has its turn."""
        seat = self._seated()
        if seat.turns.occupant is not seat:
            seat.visit()
        return seat.data

    @data.setter
    def data(self, value: object) -> None:
        self._refuse("data")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} can't be copied or pickled: it shares its model and data with "
            "others of this process. Pass the function that builds it."
        )

    def _seated(self) -> Seat:
        if self._seat is None:
            raise ClosedError(f"{type(self).__name__} is closed; make another one")
        return self._seat

    def _refuse(self, name: str) -> NoReturn:
        raise SceneMismatch(
            f"{type(self).__name__}.{name} can't be set: the environments of a process share it. "
            "An environment that builds another one as it runs must be made without share_mujoco."
        )


class SeatedWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """What the outermost wrapper does before its own class does the rest."""

    _seated: Callable[[], Seat]

    def step(self, action: Any) -> Any:
        """Step in the environment's turn."""
        seat = self._seated()
        if not seat.begin():
            return super().step(action)
        try:
            return super().step(action)
        finally:
            seat.end()

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Reset in the environment's turn; takes what its own class takes."""
        with self._seated().turn():
            return super().reset(*args, **kwargs)

    def render(self) -> Any:
        """Draw the environment's own state."""
        with self.unwrapped.own_state():  # type: ignore[attr-defined]  # it is a SeatedEnv
            return super().render()


def take_seat(env: gym.Env[Any, Any], seat: Seat) -> None:
    """Give a new environment, whose model and data are the scene's, its seat."""
    base: Any = env.unwrapped
    base_class: Any = type(base)
    # The properties of its new class stand for them.
    del base.model, base.data
    base._seat = seat
    # An environment that is dropped without being closed gives its seat back too.
    base._leave = weakref.finalize(base, seat.leave)
    base._leave.atexit = False
    base.__class__ = _mixed(SeatedEnv, base_class)
    if isinstance(env, gym.Wrapper):
        outermost: Any = env
        outermost_class: Any = type(env)
        outermost._seated = base._seated
        outermost.__class__ = _mixed(SeatedWrapper, outermost_class)


@cache
def _mixed(first: Any, cls: Any) -> Any:
    """Return a class that passes for `cls`, with the methods of `first` before its own."""
    names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(cls.__name__, (first, cls), names)
