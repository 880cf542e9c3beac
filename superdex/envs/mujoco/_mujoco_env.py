"""The base of Gymnasium's MuJoCo environments on shared scenes.

They are `SceneEnv`s in everything but the step. Gymnasium's observations are flat and in an order
of their own, actions are neither checked nor clipped, and a reward is a formula whose order of
additions decides its last bits. So a step here is::

    before = _measured_before()
    ctrl ← action; frame_skip × mj_step
    _observed() → parts, joined to the observation
    _judge(action, before) → reward, unhealthy, info

The hooks are written for arrays, with `…` for a leading axis of environments: the same code serves
one environment and a batch. After a reset `mj_forward` runs as Gymnasium's does, and leaves its
solver's warm start to the first step.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from superdex.envs._batch import UNSTABLE_REASON, refuse_own_steps
from superdex.envs._layout import BoxLayout
from superdex.envs._outcome import owned
from superdex.envs._scene_env import Info, SceneEnv
from superdex.envs.mujoco._batch import UNHEALTHY_REASON, MujocoEnvBatch
from superdex.envs.mujoco._rendering import Rendering
from superdex.scenes import MujocoScene
from superdex.scenes._known import is_known

Judgement: TypeAlias = tuple[Any, Any, Info]
"""Reward, whether unhealthy, and info; each for one environment or with a leading axis."""

Parts: TypeAlias = Sequence[NDArray[np.float64]]

_ASSETS = os.path.join(os.path.dirname(gym.__file__), "envs", "mujoco", "assets")  # noqa: PTH118, PTH120
_RENDER_MODES = ["human", "rgb_array", "depth_array", "rgbd_tuple"]


class MujocoEnv(SceneEnv):
    """Gymnasium's `MujocoEnv` on a scene that its siblings share.

    A subclass names what it reads of `MjData` in `fields`, and writes `_start`, `_observed` and
    `_judge`, as the classes of this package do.

    Args:
        xml_file: A path; a bare file name is looked for among Gymnasium's models.
        frame_skip: Physics steps per environment step.
        render_mode: One of "human", "rgb_array", "depth_array", "rgbd_tuple"; None for none.
        use_shared_scenes: Take turns on one scene with the other environments of this class in
            this process.
        rendering: `width`, `height`, `camera_id`, `camera_name`, `default_camera_config`,
            `max_geom` and `visual_options`, as in Gymnasium.

    Attributes:
        frame_skip: As given.
        init_qpos: Positions of the model as it is built, (nq,).
        init_qvel: Velocities likewise, (nv,).
    """

    metadata: dict[str, Any] = {"render_modes": _RENDER_MODES}  # noqa: RUF012 # Gymnasium's type
    array_hooks = True
    holds_action = True
    fields: ClassVar[tuple[str, ...]] = ("qpos", "qvel")

    _agent: Any
    _scene: MujocoScene
    _rendering: Rendering | None = None
    _reads_contact_forces: bool = False
    # Fields that a batch need not copy out. The agent of the shared scene has all of them, because
    # it is there before a subclass's constructor says which: siblings may differ.
    _unread: frozenset[str] = frozenset()
    _takes_models_timestep = True

    def __init__(
        self,
        xml_file: str,
        frame_skip: int,
        *,
        render_mode: str | None = None,
        use_shared_scenes: bool = True,
        **rendering: Any,
    ) -> None:
        if render_mode is not None and render_mode not in _RENDER_MODES:
            raise ValueError(
                f"render_mode must be None or one of {', '.join(map(repr, _RENDER_MODES))}, got "
                f"{render_mode!r}"
            )
        super().__init__(use_shared_scenes=use_shared_scenes)
        self._rendering = Rendering(**rendering)
        self.render_mode = render_mode
        self.frame_skip = frame_skip
        self._load_model(_model_path(xml_file), *self._rendering.size)
        model = self._scene.model
        self._num_substeps = frame_skip
        self._dt = float(model.opt.timestep)
        self._control_timestep = self._dt * frame_skip
        self.cfg = dataclasses.replace(
            self.cfg, control_frequency=1 / self.dt, simulation_frequency=1 / self._dt
        )
        self.metadata = {**type(self).metadata, "render_fps": int(np.round(1.0 / self.dt))}
        self.init_qpos, self.init_qvel = model.qpos0.copy(), np.zeros(model.nv)
        bounds = model.actuator_ctrlrange.astype(np.float32)
        self._action_layout = _action_layout(bounds.tobytes())
        self.action_space = self._action_layout.space()

    def _load_model(self, path: str, width: int, height: int) -> None:
        """Load the scene of a model file, as it is on the disk now."""

        def build() -> tuple[MujocoScene, None]:
            model = mujoco.MjModel.from_xml_path(path)
            screen = model.vis.global_
            screen.offwidth = max(screen.offwidth, width)
            screen.offheight = max(screen.offheight, height)
            # What is read before a step, these environments remember themselves.
            return MujocoScene(model, only_fields=is_known(type(self))), None

        changed = os.stat(path).st_mtime_ns  # noqa: PTH116
        self._load_scene(repr((path, changed, width, height)), build)

    def _set_up_observation(self) -> None:
        """Declare the observation space, once a subclass's constructor has set what it needs."""
        self.array_hooks = self.array_hooks and not self._reads_contact_forces
        size = sum(part.size for part in self._observed())
        self._observation_layout = _observation_layout(size)
        self.observation_space = self._observation_layout.space()

    def _find_agent(self, scene: Any) -> Any:
        names = {*self.fields, "qpos", "qvel", "ctrl"} - self._unread
        return SimpleNamespace(**{name: getattr(scene.data, name) for name in names})

    # Hooks

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return where an episode starts, (nq,) and (nv,), drawn from `np_random`."""
        raise NotImplementedError(f"{type(self).__name__} must define _start")

    def _reset_info(self) -> Info:
        """Return the info of a reset."""
        return {}

    def _remember(self) -> None:
        """Note what the next step is measured from and `mj_step` would overwrite."""

    def _measured_before(self) -> Any:
        """Return what a step is measured from; called before the physics."""

    def _observed(self) -> Parts:
        """Return the parts of the observation, (…, *shape) each; they are copied."""
        raise NotImplementedError(f"{type(self).__name__} must define _observed")

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        """Return reward, whether the episode ends for being unhealthy, and info."""
        raise NotImplementedError(f"{type(self).__name__} must define _judge")

    # Gymnasium's interface

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], Info]:
        """Start an episode, with the draws of Gymnasium's environment.

        Returns:
            The observation, (size,) float64 owned by the caller, and the info.

        Raises:
            ClosedError: The environment is closed.
            SceneMismatch: The model of the shared scene was changed; it is put back.
        """
        gym.Env.reset(self, seed=seed)
        share = self._loaded_share()
        self.reset_options = dict(options or {})
        took_turn = share.take_turn()
        try:
            self._scene.reset()
            share.check_model(thorough=False)
            self._place(*self._start())
            observation = _joined(self._observed())
            info = owned(self._reset_info())
            share.keep()
        finally:
            if took_turn:
                share.give_turn()
        self._elapsed_steps = 0
        if self.render_mode == "human":
            self.render()
        return observation, info

    def step(
        self, action: NDArray[Any]
    ) -> tuple[NDArray[Any], Any, bool, bool, Info]:  # a NumPy scalar as Gymnasium's
        """Apply an action for `frame_skip` physics steps.

        Args:
            action: (nu,), not clipped, as in Gymnasium.

        Returns:
            Observation (size,) float64 owned by the caller, reward, terminated, truncated, info:
            Gymnasium's, and "terminated_reason" where the episode ends. A simulation that diverged
            ends the episode.

        Raises:
            ValueError: The action has another shape.
            ResetNeeded: The environment was never reset.
            ClosedError: The environment is closed.
            RuntimeError: Another thread is using the scene.
        """
        share = self._share
        if share is None or self._elapsed_steps is None:
            raise self._not_ready()
        action = np.asarray(action)
        agent = self._agent
        if action.shape != agent.ctrl.shape:
            raise ValueError(f"The action must have shape {agent.ctrl.shape}, got {action.shape}")
        took_turn = share.take_turn()
        try:
            if took_turn:
                share.restore()
            before = self._measured_before()
            agent.ctrl[:] = action
            share.driven.step(self._control_timestep)
            if self._reads_contact_forces:
                mujoco.mj_rnePostConstraint(self._scene.model, self._scene.data)
            observation = _joined(self._observed())
            reward, unhealthy, info = self._judge(action, before)
            unstable = share.is_unstable()
            info = owned(info)
            share.keep()
        finally:
            if took_turn:
                share.give_turn()
        self._elapsed_steps += 1
        if unstable or unhealthy:
            info["terminated_reason"] = UNSTABLE_REASON if unstable else UNHEALTHY_REASON
        if self.render_mode == "human":
            self.render()
        return observation, reward, bool(unstable or unhealthy), False, info

    def render(self) -> Any:
        """Return what Gymnasium's renderer gives in the render mode, of this environment's state.

        Raises:
            ImportError: A package that Gymnasium draws with is missing.
        """
        if self.render_mode is None:
            gym.logger.warn(
                f"{type(self).__name__}.render() needs a render mode; "
                'make it with render_mode="rgb_array"'
            )
            return None
        self._loaded_share()
        assert self._rendering is not None
        with self.own_state():
            return self._rendering.draw(self.model, self.data, self.render_mode)

    def close(self) -> None:
        """Close what draws and release the scene, once."""
        if self._rendering is not None:
            self._rendering.close()
        super().close()

    # As Gymnasium's MujocoEnv

    @property
    def model(self) -> mujoco.MjModel:
        """The model of the scene, which siblings share."""
        return self._scene.model

    @property
    def data(self) -> mujoco.MjData:
        """The data of the scene, holding this environment's state until a sibling takes its turn.

        Derived quantities are what the last step left, or inside `own_state()` the present ones.
        What is written there outside of `own_state()` is gone with the next step.
        """
        share = self._share
        if share is not None:
            share.visit()
        return self._scene.data

    @property
    def dt(self) -> float:
        """Seconds of simulated time per environment step."""
        return self._control_timestep

    def set_state(self, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        """Move this environment to positions (nq,) and velocities (nv,)."""
        with self.own_state():
            self._place(qpos, qvel)

    def state_vector(self) -> NDArray[np.float64]:
        """Return this environment's positions and velocities, (nq + nv,), as a new array."""
        with self.own_state():
            return np.concatenate([self._agent.qpos, self._agent.qvel])

    def get_body_com(self, body_name: str) -> NDArray[np.float64]:
        """Return where the frame of a body is, (3,), as a new array."""
        with self.own_state():
            position: NDArray[np.float64] = self.data.body(body_name).xpos.copy()
            return position

    # Beyond Gymnasium's interface

    @classmethod
    def make_batch(cls, envs: Sequence[SceneEnv], num_threads: int = 1) -> MujocoEnvBatch:
        """Return environments of this class as a batch that is stepped at once.

        Raises:
            NotBatchable: The message says why.
        """
        refuse_own_steps(cls, MujocoEnv)
        return MujocoEnvBatch(envs, num_threads)

    def _place(self, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        """Put positions and velocities into the scene, and compute what derives from them."""
        self._agent.qpos[:] = qpos
        self._agent.qvel[:] = qvel
        mujoco.mj_forward(self._scene.model, self._scene.data)
        self._remember()

    def _uniform(self, scale: float, size: int) -> NDArray[np.float64]:
        """Return noise within ± scale."""
        return self.np_random.uniform(low=-scale, high=scale, size=size)


def _joined(parts: Parts) -> NDArray[np.float64]:
    """Return the parts of one observation as a new array."""
    return np.concatenate([part.reshape(-1) for part in parts])


def _model_path(xml_file: str) -> str:
    """Return the path of a model file, as Gymnasium finds it.

    Raises:
        OSError: There is no such file.
    """
    # By os.path, which takes a tenth of the time that pathlib takes: there may be thousands.
    if not xml_file.startswith((".", "/", "~")):
        xml_file = os.path.join(_ASSETS, xml_file)  # noqa: PTH118
    path = os.path.abspath(os.path.expanduser(xml_file))  # noqa: PTH100, PTH111
    if not os.path.exists(path):  # noqa: PTH110
        raise OSError(f"File {path} does not exist")
    return path


@cache
def _observation_layout(size: int) -> BoxLayout:
    """Return the layout of observations, which is one for all environments of that size."""
    return BoxLayout.of({"observation": Box(-np.inf, np.inf, (size,), np.float64)})


@cache
def _action_layout(bounds: bytes) -> BoxLayout:
    """Return the layout of actions within (low, high) pairs of float32, likewise."""
    low, high = np.frombuffer(bounds, np.float32).reshape(-1, 2).T
    return BoxLayout.of({"action": Box(low, high, dtype=np.float32)})
