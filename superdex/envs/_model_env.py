"""Environments whose scene is one of the model files beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import mujoco
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from superdex.envs._scene_env import SceneEnv
from superdex.scenes import MujocoScene
from superdex.scenes._known import is_known

# Finite, so that nobody who scales by the bounds meets an infinity, and never exceeded.
_LARGEST = float(np.finfo(np.float32).max)


@cache
def within(limit: float, *shape: int) -> Box:
    """Return the box of float32 numbers within ± `limit`, one object for all who ask.

    It serves as a declaration; to make one takes longer than anything else in a constructor.
    """
    return Box(-limit, limit, shape, np.float32)


def unbounded(*shape: int) -> Box:
    """Return a box for float32 numbers of any size."""
    return within(_LARGEST, *shape)


def squared_norm(vectors: NDArray[Any]) -> Any:
    """Return the squared lengths of vectors (…, n) as float64, (…,), each to the same bits."""
    return np.square(vectors).sum(axis=-1).astype(np.float64)


class ModelEnv(SceneEnv):
    """A `SceneEnv` on an MJCF file of this package, edited as the configuration says.

    A subclass whose edits depend on settings of its own overrides `_load_scene` and adds them to
    name and fields; `superdex.testing.check_scene_name` finds one that was forgotten.
    """

    def _load_model(
        self,
        file_name: str,
        edit: Callable[[mujoco.MjSpec], None],
        agent: Callable[[MujocoScene], Any],
        fields: Mapping[str, Any],
    ) -> None:
        """Load the scene of a model file, named by the values that shape it.

        The file's own timestep serves every simulation frequency that it divides into; another
        frequency is compiled into the model, and then belongs to the name too.

        Args:
            file_name: A file beside this module.
            edit: Applies the configuration to the parsed model before it is compiled.
            agent: Makes the agent of a scene or a batch.
            fields: The configuration values that `edit` depends on.
        """
        self._agent_of = agent
        fields = dict(fields)
        timesteps = self._dt / _timestep(file_name)
        fits = round(timesteps) >= 1 and abs(timesteps - round(timesteps)) < 1e-9 * timesteps
        if not fits:
            fields["simulation_frequency"] = self.cfg.simulation_frequency

        def build() -> tuple[MujocoScene, None]:
            spec = mujoco.MjSpec.from_string(_mjcf(file_name))
            if not fits:
                spec.option.timestep = self._dt
            edit(spec)
            # These environments measure from qpos, which is in the state; others may not.
            return MujocoScene.from_spec(spec, only_fields=is_known(type(self))), None

        self._load_scene(repr(tuple(fields.values())), build, fields=fields)

    def _find_agent(self, scene: Any) -> Any:
        return self._agent_of(scene)

    def _render_camera(self) -> str:
        return "track"


def _mjcf(file_name: str) -> str:
    """Return the text of a model file."""
    return files("superdex.envs").joinpath(file_name).read_text(encoding="utf-8")


@cache
def _timestep(file_name: str) -> float:
    """Return the timestep that a model file asks for, in seconds."""
    return float(mujoco.MjSpec.from_string(_mjcf(file_name)).option.timestep)
