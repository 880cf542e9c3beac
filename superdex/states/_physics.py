"""The simulation of one environment ↔ plain numbers, whichever way the environment holds it.

No module that imports MuJoCo is loaded here: an environment that needs one has loaded it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from superdex.errors import StateCaptureUnsupported

__all__ = ["Physics", "physics_of"]

_NO_SETTINGS = frozenset("use_shared_scenes render_mode render_size profile".split())
"""Settings of a `SceneEnv` that change nothing in its episodes."""


class Physics(Protocol):
    """How the simulation of one environment is captured.

    Attributes:
        left_out: Attributes of the environment that are captured here, or say how it is made.
    """

    left_out: frozenset[str]

    def tag(self) -> dict[str, str]:
        """Return what must be equal in two environments that exchange states."""
        ...

    def capture(self) -> Any:
        """Return the state as a tree of plain values."""
        ...

    def check(self, state: Any) -> None:
        """Raise `ValueError` if a state does not fit; change nothing."""
        ...

    def restore(self, state: Any) -> None:
        """Put a state that was checked in its place."""
        ...

    def turn(self) -> Any:
        """Return a context in which the simulation holds this environment's state."""
        ...


def physics_of(env: Any) -> Physics | None:
    """Return how the simulation of an unwrapped environment is captured; None where it has none."""
    for module, name, physics in (
        ("superdex.envs._scene_env", "SceneEnv", ScenePhysics),
        ("superdex.scenes._seated", "SeatedEnv", SeatedPhysics),
        ("gymnasium.envs.mujoco.mujoco_env", "MujocoEnv", OwnPhysics),
    ):
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None and isinstance(env, cls):
            return physics(env)
    return None


class ScenePhysics:
    """Of a `SceneEnv`."""

    left_out = frozenset(
        {
            *("_share", "_scene", "_agent", "cfg", "_stopwatch", "_observation_layout"),
            *("_action_layout", "_rendering", "_closed", "array_hooks", "_unread"),
        }
    )

    def __init__(self, env: Any) -> None:
        self._env = env

    def tag(self) -> dict[str, str]:
        """Return settings and model."""
        cfg = self._env.cfg
        settings = {
            field.name: repr(getattr(cfg, field.name))
            for field in dataclasses.fields(cfg)
            if field.name not in _NO_SETTINGS
        }
        return {
            "settings": ", ".join(f"{name}={value}" for name, value in settings.items()),
            "scene": _digest(self._env, self._env._scene),
        }

    def capture(self) -> Any:
        """Return the state in the scene, and the values of varied fields."""
        return self._env._loaded_share().export_state(type(self._env).__name__)

    def check(self, state: Any) -> None:
        """See `Physics.check`."""
        self._env._loaded_share().check_state(self._env.varied_fields, state)

    def restore(self, state: Any) -> None:
        """See `Physics.restore`."""
        self._env._loaded_share().import_state(self._env.varied_fields, state)

    def turn(self) -> Any:
        """See `Physics.turn`."""
        return self._env.own_state()


class SeatedPhysics:
    """Of a Gymnasium MuJoCo environment on a shared scene."""

    left_out = frozenset({"model", "data", "_seat", "_leave", "mujoco_renderer"})

    def __init__(self, env: Any) -> None:
        self._env = env

    def tag(self) -> dict[str, str]:
        """Return the model."""
        return {"scene": _digest(self._env, self._env._seated().turns.scene)}

    def capture(self) -> Any:
        """See `Physics.capture`."""
        return self._env._seated().export_state()

    def check(self, state: Any) -> None:
        """See `Physics.check`."""
        self._env._seated().turns.scene.check_state(state)

    def restore(self, state: Any) -> None:
        """See `Physics.restore`."""
        self._env._seated().import_state(state)

    def turn(self) -> Any:
        """See `Physics.turn`."""
        return self._env.own_state()


class OwnPhysics:
    """Of a Gymnasium MuJoCo environment with a model and data of its own."""

    left_out = frozenset({"model", "data", "mujoco_renderer"})
    _fields = ("xpos", "xipos")
    """What a state must have at least: one from a shared scene has no more than it needs."""

    def __init__(self, env: Any) -> None:
        from superdex.scenes._saved_state import StateSaver

        self._env = env
        self._saver = StateSaver(env.model, env.data)

    def tag(self) -> dict[str, str]:
        """Return the model, which may have been changed since the last time."""
        from superdex.scenes._exchange import digest_of

        return {"scene": digest_of(self._env.model)}

    def capture(self) -> Any:
        """See `Physics.capture`."""
        from superdex.scenes._mujoco import MujocoScene

        MujocoScene._check_capturable(self._env.model)
        return self._saver.export(self._saver.save())

    def check(self, state: Any) -> None:
        """See `Physics.check`."""
        self._saver.check(state, required=self._fields)

    def restore(self, state: Any) -> None:
        """See `Physics.restore`."""
        self._saver.load_numbers(state)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """It is always its turn."""
        yield


def _digest(env: Any, scene: Any) -> str:
    if not hasattr(scene, "export_state"):
        raise StateCaptureUnsupported(
            f"The state of {type(env).__name__} can't be captured: its {type(scene).__name__} has "
            "no export_state and import_state. A MujocoScene has."
        )
    return str(scene.digest())
