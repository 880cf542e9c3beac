"""The base of environments whose physics lives in a scene.

One step of an environment on a shared scene::

    action ── checked, clipped, split by name
      │
      ▼  take the turn, restore own state
    _before_step()
    num_substeps × { _apply_action(action); scene.step(dt) }
    _make_observation() → observation, info
    _compute_reward_terms(action, observation, info)
    _check_stop_criteria(observation, info)
      │  capture own state, give the turn back
      ▼
    flat observation, reward, terminated, truncated, info

The state is captured last: a hook that raises leaves the state of before the step, and nothing of
it in a sibling, which restores its own first. Without sharing the same path runs, minus restore and
capture.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from superdex.envs._batch import UNSTABLE_REASON, SceneEnvBatch, refuse_own_steps
from superdex.envs._config import RENDER_MODES, SceneEnvCfg, check_timestep
from superdex.envs._layout import BoxLayout
from superdex.envs._outcome import as_number, in_words, owned
from superdex.envs._returned import (
    check_camera,
    check_frame,
    check_observed,
    check_stop,
    check_terms,
    check_values,
    explain_observation,
    explain_terms,
)
from superdex.envs._share import SceneBuilder, SceneShare, may_share
from superdex.envs._timing import PhaseTiming, Stopwatch, report
from superdex.errors import ClosedError, ResetNeeded
from superdex.scenes import SceneData

Observation: TypeAlias = NDArray[np.float32]
Action: TypeAlias = NDArray[np.float32]
StructuredObservation: TypeAlias = dict[str, Any]
StructuredAction: TypeAlias = dict[str, NDArray[Any]]
Info: TypeAlias = dict[str, Any]
RewardTerms: TypeAlias = dict[str, float]

_DEFAULT_RENDER_SIZE = (640, 480)
_logger = logging.getLogger("superdex.envs")


class StopReasons(NamedTuple):
    """Why an episode ends, in words; None where it goes on.

    Attributes:
        terminated: The task's own end, such as "Unhealthy". In hooks written for arrays also an
            array of reasons and Nones, (…,); see `where`.
        truncated: An end from outside the task, such as a limit; likewise.
    """

    terminated: Any = None
    truncated: Any = None

    @classmethod
    def where(
        cls,
        terminated: Mapping[str, Any] | None = None,
        truncated: Mapping[str, Any] | None = None,
    ) -> StopReasons:
        """Return the reasons whose condition holds, for one environment or an array of them.

        Args:
            terminated: Reason → condition, a bool or an array of them, (…,); the first one counts.
            truncated: Likewise.

        Example:
            >>> import numpy as np
            >>> from superdex.envs import StopReasons
            >>> StopReasons.where(terminated={"Fell": np.array([True, False])}).terminated
            array(['Fell', None], dtype=object)
            >>> StopReasons.where(terminated={"Fell": False})
            StopReasons(terminated=None, truncated=None)
        """
        return cls(_reason_where(terminated or {}), _reason_where(truncated or {}))


def _reason_where(conditions: Mapping[str, Any]) -> Any:
    """Return the first reason whose condition holds, of each environment."""
    reasons: Any = None
    for reason, condition in conditions.items():
        if np.ndim(condition) == 0:
            reasons = reason if reasons is None and condition else reasons
        elif condition.any():
            if reasons is None:
                reasons = np.full(np.shape(condition), None)
            else:
                condition = condition & (reasons == None)  # noqa: E711  # of each element
            reasons[condition] = reason
    return reasons


_GO_ON = StopReasons()


def _as_stop(env: SceneEnv, stop: Any) -> StopReasons:
    """Return what `_check_stop_criteria` returned as reasons; None is to go on.

    Raises:
        TypeError: It is no pair.
    """
    if stop is None:
        return _GO_ON
    check_stop(env, stop)
    return StopReasons(*stop)


class SceneEnv(gym.Env[Observation, Action]):
    """An environment that takes turns on a physics scene with its siblings.

    A subclass declares its spaces and loads its scene in the constructor, and writes three hooks:
    `_apply_action`, `_make_observation`, `_compute_reward_terms`. Optional ones are
    `_reset_scene`, `_before_step`, `_check_stop_criteria`, `_render_camera` and `_render_frame`.

    Args:
        cfg: Settings as the class's `cfg_class` or a dict; None for the defaults.
        overrides: Settings that win over `cfg`, so that keywords of `gymnasium.make` arrive here.

    Hooks that a step calls may be written for arrays: with `…` for any leading axis of
    environments, as in `self._agent.qpos[..., 0]`. A class that declares so with `array_hooks` is
    stepped faster by `HybridVectorEnv`: all environments of a worker at once, the physics by one
    native call. The results are the same to the bit; `superdex.testing.check_array_hooks` proves
    it for a class.

    Attributes:
        cfg: The settings.
        reset_options: The options of the last `reset`, for `_reset_scene`.
        array_hooks: Of the class: `_before_step`, `_apply_action`, `_make_observation`,
            `_compute_reward_terms` and `_check_stop_criteria` are written for arrays. What they
            keep for later is copied from live views, and they draw no random numbers.
        array_fields: Of the class: attributes that differ between environments and last longer
            than a step, such as a target that `_reset_scene` draws. In array hooks they have a
            leading axis of environments.
        varied_fields: Of the class: model fields, such as "body_mass" or "opt.gravity", that
            `_draw_physics` gives each environment values of its own for (domain randomization).
            Any array of floating-point numbers that MuJoCo does not compute from others.
        holds_action: Of the class: `_apply_action` writes the same for each substep of a step, so
            that once is enough.

    Example:
        >>> from gymnasium.spaces import Box
        >>> from superdex.envs import SceneEnv
        >>> from superdex.scenes import MujocoScene
        >>> BALL = '''<mujoco><worldbody><body name="ball"><joint name="x" type="slide"
        ...     axis="1 0 0"/><geom size="0.1" mass="1"/></body></worldbody><actuator>
        ...     <motor joint="x"/></actuator></mujoco>'''
        >>> class BallEnv(SceneEnv):
        ...     def __init__(self, cfg=None, **overrides):
        ...         super().__init__(cfg, **overrides)
        ...         self._setup_observation_space(position=Box(-10, 10, (1,)))
        ...         self._setup_action_space(force=Box(-1, 1, (1,)))
        ...         self._load_scene("ball", lambda: (MujocoScene.from_xml_string(BALL), None))
        ...     def _apply_action(self, action):
        ...         self._scene.data.ctrl[:] = action["force"]
        ...     def _make_observation(self):
        ...         return {"position": self._scene.data.qpos}, {}
        ...     def _compute_reward_terms(self, action, observation, info):
        ...         return {"right": float(observation["position"][0])}
        >>> with BallEnv(control_frequency=10, simulation_frequency=100) as env:
        ...     observation, info = env.reset(seed=1)
        ...     observation, reward, *_ = env.step(env.action_space.high)
        >>> bool(reward > 0)
        True
    """

    # Gymnasium's name and type.
    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES)}  # noqa: RUF012
    cfg_class: ClassVar[type[SceneEnvCfg]] = SceneEnvCfg
    array_hooks: bool = False
    array_fields: tuple[str, ...] = ()
    varied_fields: tuple[str, ...] = ()
    holds_action: bool = False

    cfg: SceneEnvCfg
    _scene: Any
    _agent: Any
    # Whether the frequencies follow from the model that is loaded, not from the settings.
    _takes_models_timestep: ClassVar[bool] = False
    # Until the constructor has set everything that close() needs.
    _closed = True

    def __init__(
        self, cfg: SceneEnvCfg | Mapping[str, Any] | None = None, **overrides: Any
    ) -> None:
        self.cfg = self.cfg_class.from_any(cfg, **overrides)
        if not may_share():
            self.cfg = dataclasses.replace(self.cfg, use_shared_scenes=False)
        self.render_mode = self.cfg.render_mode
        self.metadata = {**type(self).metadata, "render_fps": self.cfg.control_frequency}
        self.reset_options: dict[str, Any] = {}
        self._scene = self._agent = None
        self._share: SceneShare | None = None
        self._elapsed_steps: int | None = None
        self._num_substeps = self.cfg.num_substeps
        self._dt = self.cfg.simulation_timestep
        self._stopwatch: Stopwatch | None = None
        if self.cfg.profile or not self.cfg.use_shared_scenes:
            self.array_hooks = False  # asked for, so there is nothing to warn of
        if self.cfg.profile:
            self._stopwatch = Stopwatch()
            for hook in (
                "_before_step",
                "_apply_action",
                "_make_observation",
                "_compute_reward_terms",
                "_check_stop_criteria",
                "_reset_scene",
            ):
                setattr(self, hook, self._stopwatch.timed(hook, getattr(self, hook)))
        self._closed = False

    # Hooks

    def _apply_action(self, action: StructuredAction) -> None:
        """Write an action into the scene; called before every physics step.

        Args:
            action: The clipped action by name, (*shape,) each.
        """
        raise NotImplementedError(f"{type(self).__name__} must define _apply_action")

    def _make_observation(self) -> tuple[StructuredObservation, Info]:
        """Return the observation by name, and an info; the values are copied."""
        raise NotImplementedError(f"{type(self).__name__} must define _make_observation")

    def _compute_reward_terms(
        self, action: StructuredAction, observation: StructuredObservation, info: Info
    ) -> RewardTerms:
        """Return the parts of the reward by name; the reward is their sum."""
        raise NotImplementedError(f"{type(self).__name__} must define _compute_reward_terms")

    def _check_stop_criteria(
        self, observation: StructuredObservation, info: Info
    ) -> StopReasons | None:
        """Return why the episode ends; None, or `StopReasons()`, where it goes on.

        `steps_per_episode` is seen to elsewhere.
        """
        return _GO_ON

    def _draw_physics(self) -> Mapping[str, Any]:
        """Return this episode's values of `varied_fields`, by name: domain randomization.

        Called at each reset, before `_reset_scene`. Draw from `self.np_random` only; the model's
        own values are in `self._scene.model`. A field that is left out keeps them. What MuJoCo
        derives from the values (`mj_setConst`) follows. Values that are written into the model
        instead raise `SceneMismatch`.
        """
        return {}

    def _reset_scene(self) -> None:
        """Move the scene from its initial state to where an episode starts.

        Draw from `self.np_random` only, and set what the environment remembers itself, so that a
        reset does not depend on what was before. `self.reset_options` holds the options.
        """

    def _before_step(self) -> None:
        """Remember what a step is measured against; called before the first physics step."""

    def _find_agent(self, scene: Any) -> Any:
        """Return the agent of a scene, or with a leading axis of environments that of a batch.

        Where `_load_scene`'s builder returns None for the agent, this makes it. An agent that
        array hooks use must come from here: a batch has its own.
        """

    def _render_camera(self) -> Any:
        """Return the camera to draw from: a name, a number or the scene's own kind of camera."""
        return -1

    def _render_frame(self) -> NDArray[np.uint8]:
        """Return the picture, (height, width, 3), of the state that the scene holds now."""
        width, height = self.cfg.render_size or _DEFAULT_RENDER_SIZE
        camera = self._render_camera()
        check_camera(self, camera)
        picture: NDArray[np.uint8] = self._scene.render(camera, width, height)
        return picture

    # Set-up, called by subclasses' constructors

    def _setup_observation_space(self, **boxes: Box) -> None:
        """Declare the observation as named boxes, flattened in alphabetical order of names."""
        self._observation_layout = BoxLayout.of(boxes)
        self.observation_space = self._observation_layout.space()

    def _setup_action_space(self, **boxes: Box) -> None:
        """Declare the action as named boxes, flattened in alphabetical order of names."""
        self._action_layout = BoxLayout.of(boxes)
        self.action_space = self._action_layout.space()

    def _load_scene(
        self, name: str, builder: SceneBuilder, *, fields: Mapping[str, Any] | None = None
    ) -> SceneData:
        """Set `_scene` and `_agent` to the shared scene of that name, built if there is none yet.

        Args:
            name: Identifies the construction among scenes of this class: every configuration
                field that changes what `builder` makes belongs in it.
            builder: Returns `(scene, agent)` or `(scene, agent, cleanup_callbacks)`; the agent is
                whatever environments use to read and actuate, shared by all of them. It doesn't
                run where the scene is found.
            fields: The configuration values that shape the construction, remembered with it.

        Raises:
            SceneMismatch: The scene of that name was built from other `fields`, or its model was
                changed since.
            StateCaptureUnsupported: The scene's state can't be captured, and sharing is enabled.
            ValueError: `simulation_frequency` does not fit the model's timestep.
        """
        if self._share is not None:
            raise RuntimeError(f"{type(self).__name__} has loaded its scene already")
        if self.cfg.use_shared_scenes:
            share = SceneShare.of_class(type(self), name, builder, fields, self._stopwatch)
        else:
            share = SceneShare.of_own(name, builder, self._stopwatch)
        share.varies = bool(self.varied_fields)
        if share.varies and not hasattr(share.data.scene, "apply_variation"):
            share.release()
            raise TypeError(
                f"varied_fields needs a MujocoScene, {type(self).__name__} has a "
                f"{type(share.data.scene).__name__}"
            )
        if not self._takes_models_timestep:
            try:
                check_timestep(self, share.data.scene, self.cfg)
            except ValueError:
                share.release()
                raise
        self._share = share
        self._scene = share.data.scene
        if share.data.agent is None:
            share.data.agent = self._find_agent(self._scene)
        self._agent = share.data.agent
        return share.data

    # Gymnasium's interface

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start an episode from the scene's initial state, moved by `_reset_scene`.

        The start depends on the seed, or without one on the environment's own generator, and on
        nothing that happened before, here or in a sibling.

        Returns:
            The observation, (size,), owned by the caller, and the info.

        Raises:
            ClosedError: The environment is closed.
            ValueError: `_make_observation` returned other names or shapes than were declared.
            TypeError: A hook returned something of another type.
            SceneMismatch: The model of the shared scene, or a field that varies, was changed; it
                is put back.
        """
        super().reset(seed=seed)
        share = self._loaded_share()
        self.reset_options = dict(options or {})
        took_turn = share.take_turn()
        try:
            share.restore_initial()
            # Derived quantities are still those of whoever stepped last, and the hook may read one.
            refresh = getattr(self._scene, "refresh", _nothing)
            if self.varied_fields:
                share.begin_draw(self.varied_fields)
                values = self._draw_physics()
                check_values(self, values)
                share.vary(self.varied_fields, values)
            refresh()
            self._reset_scene()
            share.check_model(thorough=False)
            refresh()
            returned = self._make_observation()
            check_observed(self, returned)
            structured, info = returned
            self._observation_layout.check(structured, "The observation")
            observation = self._observation_layout.flatten(structured)
            share.keep()
        finally:
            if took_turn:
                share.give_turn()
        self._elapsed_steps = 0
        return observation, owned(info)

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, Info]:
        """Apply an action for one control timestep.

        Args:
            action: (size,), clipped to the action space.

        Returns:
            Observation (size,) owned by the caller, reward, terminated, truncated, info. The info
            holds each reward term as "reward_<name>", and "terminated_reason" or
            "truncated_reason" where the episode ends.

        Raises:
            ValueError: The action has another shape, holds no real numbers or one that is not
                finite, or a reward term is more than one number.
            TypeError: A hook returned something of another type; the message names class and hook,
                what it returned and what is expected. Or a stop reason is no string.
            SceneMismatch: A field that varies was written into; it is put back.
            ResetNeeded: The environment was never reset.
            ClosedError: The environment is closed.
            RuntimeError: Another thread is using the scene.
        """
        share = self._share
        if share is None or self._elapsed_steps is None:
            raise self._not_ready()
        structured_action = self._action_layout.views(self._action_layout.clipped(action))
        advance, dt = share.driven.step, self._dt
        took_turn = share.take_turn()
        try:
            if took_turn:
                share.restore()
            self._before_step()
            for substep in range(self._num_substeps):
                if substep == 0 or not self.holds_action:
                    self._apply_action(structured_action)
                advance(dt)
            structured, info, observation = _observe(self)
            terms = self._compute_reward_terms(structured_action, structured, info)
            if type(terms) is not dict:
                check_terms(self, terms)
            stop = self._check_stop_criteria(structured, info)
            if type(stop) is not StopReasons:
                stop = _as_stop(self, stop)
            if share.is_unstable():
                stop = StopReasons(UNSTABLE_REASON, stop[1])
            share.check_varied()
            share.keep()
        finally:
            if took_turn:
                share.give_turn()
        self._elapsed_steps += 1
        info = owned(info)
        reward = _add_up(self, terms, info)
        terminated_reason, truncated_reason = stop
        if truncated_reason is None and 0 < self.cfg.steps_per_episode <= self._elapsed_steps:
            truncated_reason = "time limit"
        if terminated_reason is not None:
            info["terminated_reason"] = in_words(terminated_reason, "terminated")
        if truncated_reason is not None:
            info["truncated_reason"] = in_words(truncated_reason, "time limit")
        return (
            observation,
            reward,
            terminated_reason is not None,
            truncated_reason is not None,
            info,
        )

    def render(self) -> Any:
        """Return a picture of this environment's own state, (height, width, 3) uint8.

        Raises:
            RuntimeError: No OpenGL context can be had; the message says what to install.
            TypeError: `_render_frame` returned no picture.
        """
        if self.render_mode is None:
            gym.logger.warn(
                f"{type(self).__name__}.render() needs a render mode; "
                'make it with render_mode="rgb_array"'
            )
            return None
        self._loaded_share()
        with self.own_state():
            frame = self._render_frame()
        check_frame(self, frame)
        return frame

    def close(self) -> None:
        """Release the scene, once; the last environment to do so destroys it."""
        if self._closed:
            return
        self._closed = True
        share, self._share = self._share, None
        self._scene = self._agent = self._elapsed_steps = None
        if self._stopwatch is not None:
            _logger.info("%s", self.timing_report())
        if share is not None:
            share.release()

    def __getstate__(self) -> Any:
        """Refuse to be copied or pickled: a copy would give back a share that it never took.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{type(self).__name__} can't be copied or pickled: it has a share in a scene of this "
            "process. Pass a function that builds an environment, or make another one from its cfg."
        )

    def __del__(self) -> None:
        # A net for environments that were dropped: their share of a scene must not outlive them.
        self.close()

    # Beyond Gymnasium's interface

    @classmethod
    def make_batch(cls, envs: Sequence[SceneEnv], num_threads: int = 1) -> SceneEnvBatch:
        """Return environments of this class as a batch that is stepped at once.

        `HybridVectorEnv` asks for it; it steps them one by one where they can't be.

        Raises:
            NotBatchable: The message says why.
        """
        refuse_own_steps(cls, SceneEnv)
        return SceneEnvBatch(envs, num_threads)

    @contextmanager
    def own_state(self) -> Iterator[None]:
        """Inside, the scene holds this environment's state, derived quantities refreshed.

        Whatever touches the scene of an environment outside `reset` and `step` belongs inside. At
        the end the state is captured again, so changes made to it stay; a mere look leaves no
        trace in what comes after.

        Raises:
            RuntimeError: Another thread is using the scene.
            SceneMismatch: The model of the shared scene was changed; it is put back.
        """
        share = self._share
        if share is None or not share.take_turn():
            yield
            return
        try:
            share.restore()
            with self._scene.refreshed() if hasattr(self._scene, "refreshed") else nullcontext():
                yield
        finally:
            try:
                # Unless the body closed the environment.
                if self._share is share:
                    share.keep()
                    share.is_unstable()  # what was stepped in there is no business of a later step
                    share.check_model(thorough=True)
            finally:
                share.give_turn()

    def to_observation(self, structured: Mapping[str, Any]) -> Observation:
        """Return an observation by name, (…, *shape) each, as one new array (…, size)."""
        return self._observation_layout.to_flat(structured, "The observation")

    def to_structured_observation(self, observation: Any) -> StructuredObservation:
        """Return an observation (…, size), one or a batch, by name as new arrays (…, *shape)."""
        return self._observation_layout.to_structured(observation, "The observation")

    def to_action(self, structured: Mapping[str, Any]) -> Action:
        """Return an action by name, (…, *shape) each, as one new array (…, size)."""
        return self._action_layout.to_flat(structured, "The action")

    def to_structured_action(self, action: Any) -> StructuredAction:
        """Return an action (…, size), one or a batch, by name as new arrays (…, *shape)."""
        return self._action_layout.to_structured(action, "The action")

    @property
    def scene_name(self) -> str | None:
        """The name that the scene was loaded under; None without `_load_scene`."""
        return None if self._share is None else self._share.name

    @property
    def timings(self) -> dict[str, PhaseTiming]:
        """Phase → calls and seconds so far; empty without `profile=True`."""
        return {} if self._stopwatch is None else dict(self._stopwatch.phases)

    def timing_report(self) -> str:
        """Return where the time of the steps so far went, in lines of text.

        With `profile=True` it is also logged at the end, at level INFO of "superdex.envs".
        """
        if self._stopwatch is None:
            return f"{type(self).__name__} takes no times; make it with profile=True"
        return report(type(self).__name__, self._stopwatch.phases)

    def _loaded_share(self) -> SceneShare:
        """Return the share in the scene; one not loaded by `_load_scene` is not shared.

        Raises:
            ClosedError: The environment is closed.
            RuntimeError: There is no scene.
        """
        if self._share is None:
            if self._closed or self._scene is None:
                raise self._not_ready()
            check_timestep(self, self._scene, self.cfg)
            self._share = SceneShare.of_hand_built(self._scene, self._agent, self._stopwatch)
        if self._share.name is None and self.cfg.use_shared_scenes:
            warnings.warn(
                f"{type(self).__name__} has use_shared_scenes=True but did not load its scene "
                "through _load_scene(): the scene is not shared. Load it through _load_scene(), or "
                "set use_shared_scenes=False.",
                RuntimeWarning,
                stacklevel=3,
            )
        return self._share

    def _not_ready(self) -> Exception:
        """Return the error for a use that is too early or too late."""
        name = type(self).__name__
        if self._closed:
            return ClosedError(f"{name} is closed; make another one")
        if self._scene is None:
            return RuntimeError(f"{name} has no scene; call _load_scene() in its constructor")
        return ResetNeeded(f"{name} was never reset; call reset() before step()")


def _nothing() -> None:
    """Stand in for an optional method that a scene doesn't have."""


def _observe(env: SceneEnv) -> tuple[StructuredObservation, Info, Observation]:
    """Return what `_make_observation` returns, and the observation as a vector.

    Raises:
        TypeError: It returned no pair of dicts, or a value without numbers.
        ValueError: A name or a shape is another one than was declared.
    """
    returned = env._make_observation()
    try:
        structured, info = returned
        observation = env._observation_layout.flatten(structured)
    except Exception:
        check_observed(env, returned)
        explain_observation(env, env._observation_layout, returned[0])
        raise
    if type(info) is not dict:
        check_observed(env, returned)
    return structured, info, observation


def _add_up(env: SceneEnv, terms: RewardTerms, info: Info) -> float:
    """Return the sum of the terms, and put each into the info.

    Raises:
        TypeError: A name is no string, or a term is no number.
        ValueError: A term is more than one number.
    """
    reward = 0.0
    try:
        for name, term in terms.items():
            if not isinstance(term, float):
                term = as_number(name, term)
            reward += term
            info["reward_" + name] = term
    except Exception:
        explain_terms(env, terms)
        raise
    return float(reward)
