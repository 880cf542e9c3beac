"""An ant with four legs of two joints, rewarded for walking along x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from superdex.envs._config import SceneEnvCfg
from superdex.envs._model_env import ModelEnv, squared_norm, unbounded, within
from superdex.envs._scene_env import (
    Info,
    RewardTerms,
    StopReasons,
    StructuredAction,
    StructuredObservation,
)
from superdex.scenes import MujocoScene

_LOW_FRICTION, _HIGH_FRICTION = 0.3, 2.0
# Contact wrenches are clipped to ± this, in N and Nm, as in Gymnasium's Ant.
_WRENCH_LIMIT = 1.0


@dataclass(frozen=True, kw_only=True)
class AntEnvCfg(SceneEnvCfg):
    """Settings of `AntEnv`.

    Attributes:
        control_frequency: As `SceneEnvCfg`.
        reset_noise_scale: Positions start uniformly within ± this, velocities with this standard
            deviation.
        use_damping: The joints are damped.
        use_gravity: The ant has weight.
        use_low_friction: Its feet slip (coefficient 0.3 instead of 1).
        use_high_friction: Its feet grip (coefficient 2 instead of 1).
        full_observation: Observe the position on the floor too.
        observe_contacts: Observe contact wrenches and pay for them.
        use_rotation_vector: Observe the orientation as a rotation vector, not a quaternion.
        forward_reward_weight: Reward per m/s.
        healthy_reward: Reward per step in health.
        ctrl_cost_weight: Cost of the squared action.
        contact_cost_weight: Cost of the squared, clipped contact wrenches.
        healthy_z_range: Heights of the torso, in m, outside of which the ant is unhealthy.
    """

    control_frequency: float = 20
    reset_noise_scale: float = 0.1
    use_damping: bool = True
    use_gravity: bool = True
    use_low_friction: bool = False
    use_high_friction: bool = False
    full_observation: bool = False
    observe_contacts: bool = True
    use_rotation_vector: bool = False
    forward_reward_weight: float = 1.0
    healthy_reward: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_z_range: tuple[float, float] = (0.28, 1.0)

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ValueError: A value makes no sense; the message names it.
        """
        super().__post_init__()
        if self.use_low_friction and self.use_high_friction:
            raise ValueError("use_low_friction and use_high_friction exclude each other")
        self.check_numbers(
            "forward_reward_weight", "healthy_reward", "ctrl_cost_weight", "contact_cost_weight"
        )
        bounds = self.healthy_z_range
        # Infinite bounds are fine; nan, in no order, is not.
        if (
            not isinstance(bounds, Sequence)
            or len(bounds) != 2
            or not all(isinstance(z, int | float | np.number) for z in bounds)
            or not bounds[0] < bounds[1]
        ):
            raise ValueError(
                f"healthy_z_range must be two heights, the lower one first, got {bounds!r}"
            )
        object.__setattr__(self, "healthy_z_range", tuple(bounds))


@dataclass(frozen=True, slots=True)
class Ant:
    """Where to read and drive the ant of a scene: live views of its data."""

    model: mujoco.MjModel
    data: mujoco.MjData
    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]
    ctrl: NDArray[np.float64]
    contact_wrenches: NDArray[np.float64]
    quaternion: NDArray[np.float64]
    observation: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, scene: MujocoScene) -> Ant:
        """Find the ant in a scene."""
        data = scene.data
        qpos, qvel = data.qpos, data.qvel
        return cls(
            model=scene.model,
            data=data,
            qpos=qpos,
            qvel=qvel,
            ctrl=data.ctrl,
            # Body 0 is the world; the nine others are the ant's.
            contact_wrenches=data.cfrc_ext[..., 1:, :],
            quaternion=qpos[..., 3:7],
            observation={
                "angular_velocity": qvel[..., 3:6],
                "height": qpos[..., 2:3],
                "joint_angles": qpos[..., 7:],
                "joint_velocities": qvel[..., 6:],
                "linear_velocity": qvel[..., :3],
            },
        )


class AntEnv(ModelEnv):
    """Walk along x on four legs.

    Observation (81,) float32, in alphabetical order: `angular_velocity` (3,) of the torso in its
    own frame in rad/s, `contact_wrenches` (9, 6), `height` (1,) of the torso in m, `joint_angles`
    (8,) in rad, `joint_velocities` (8,) in rad/s, `linear_velocity` (3,) in m/s, `orientation` (4,)
    as a quaternion. A contact wrench is torque then force on one moving body (torso; thigh and shin
    of each leg), about the ant's centre of mass in world axes, clipped to ±1 Nm and ±1 N.

    Variants: `full_observation` adds `position` (2,) on the floor in m (83,); without
    `observe_contacts` the wrenches are left out (27,); with `use_rotation_vector` the orientation
    is a rotation vector (3,) in rad (80,).

    Action (8,): the `torque` of hip and ankle of the legs front left, back left, back right and
    front right, as shares of the largest. Reward terms, weighted as in Gymnasium's Ant (Schulman
    et al. 2015): `forward`, the mean velocity along x over the step, `healthy`, `control` and
    `contact`. The episode terminates with "Unhealthy" where the torso leaves `healthy_z_range`.

    Example:
        >>> from superdex.envs import AntEnv
        >>> with AntEnv() as env:
        ...     observation, _ = env.reset(seed=0)
        ...     wrenches = env.to_structured_observation(observation)["contact_wrenches"]
        >>> observation.shape, wrenches.shape
        ((81,), (9, 6))
    """

    cfg_class: ClassVar[type[SceneEnvCfg]] = AntEnvCfg
    array_hooks = True
    holds_action = True
    cfg: AntEnvCfg
    _agent: Ant

    def __init__(self, cfg: AntEnvCfg | Mapping[str, Any] | None = None, **overrides: Any) -> None:
        super().__init__(cfg, **overrides)
        # what a batch steps gives no contact wrenches
        self.array_hooks = self.array_hooks and not self.cfg.observe_contacts
        self._x_before: Any = 0.0
        self._setup_action_space(torque=within(1.0, 8))
        self._setup_observation_space(**self._observed_boxes())
        self._load_model(
            "ant.xml",
            self._edit_model,
            Ant.of,
            {
                "use_damping": self.cfg.use_damping,
                "use_gravity": self.cfg.use_gravity,
                "use_low_friction": self.cfg.use_low_friction,
                "use_high_friction": self.cfg.use_high_friction,
            },
        )

    def _observed_boxes(self) -> dict[str, Box]:
        boxes = {
            "angular_velocity": unbounded(3),
            "height": unbounded(1),
            "joint_angles": unbounded(8),
            "joint_velocities": unbounded(8),
            "linear_velocity": unbounded(3),
            "orientation": unbounded(3 if self.cfg.use_rotation_vector else 4),
        }
        if self.cfg.full_observation:
            boxes["position"] = unbounded(2)
        if self.cfg.observe_contacts:
            boxes["contact_wrenches"] = within(_WRENCH_LIMIT, 9, 6)
        return boxes

    def _edit_model(self, spec: mujoco.MjSpec) -> None:
        if not self.cfg.use_gravity:
            spec.option.gravity = np.zeros(3)
        if not self.cfg.use_damping:
            for joint in spec.joints:
                joint.damping[:] = 0.0
        if self.cfg.use_low_friction or self.cfg.use_high_friction:
            friction = _LOW_FRICTION if self.cfg.use_low_friction else _HIGH_FRICTION
            # A contact takes the larger coefficient of its two sides: floor and foot change both.
            for geom in spec.geoms:
                geom.friction[0] = friction

    def _reset_scene(self) -> None:
        agent, scale = self._agent, self.cfg.reset_noise_scale
        agent.qpos[:] += self.np_random.uniform(-scale, scale, agent.qpos.shape)
        agent.quaternion[:] /= np.linalg.norm(agent.quaternion)
        agent.qvel[:] += scale * self.np_random.standard_normal(agent.qvel.shape)

    def _before_step(self) -> None:
        self._x_before = self._agent.qpos[..., 0].copy()

    def _apply_action(self, action: StructuredAction) -> None:
        self._agent.ctrl[:] = action["torque"]

    def _make_observation(self) -> tuple[StructuredObservation, Info]:
        agent = self._agent
        observation = dict(agent.observation)
        if self.cfg.use_rotation_vector:
            observation["orientation"] = rotation_vectors(agent.quaternion)
        else:
            observation["orientation"] = agent.quaternion
        if self.cfg.full_observation:
            observation["position"] = agent.qpos[..., :2]
        if self.cfg.observe_contacts:
            # mj_step leaves these out unless a sensor wants them.
            mujoco.mj_rnePostConstraint(agent.model, agent.data)
            observation["contact_wrenches"] = agent.contact_wrenches.clip(
                -_WRENCH_LIMIT, _WRENCH_LIMIT
            )
        return observation, {"x_position": agent.qpos[..., 0]}

    def _compute_reward_terms(
        self, action: StructuredAction, observation: StructuredObservation, info: Info
    ) -> RewardTerms:
        cfg = self.cfg
        velocity = (info["x_position"] - self._x_before) * cfg.control_frequency
        torque = action["torque"]
        terms = {
            "forward": cfg.forward_reward_weight * velocity,
            "healthy": cfg.healthy_reward * self._is_healthy(),
            "control": -cfg.ctrl_cost_weight * squared_norm(torque),
        }
        if cfg.observe_contacts:
            wrenches = observation["contact_wrenches"].ravel()
            terms["contact"] = -cfg.contact_cost_weight * float(wrenches.dot(wrenches))
        return terms

    def _check_stop_criteria(self, observation: StructuredObservation, info: Info) -> StopReasons:
        return StopReasons.where(terminated={"Unhealthy": ~self._is_healthy()})

    def _is_healthy(self) -> Any:
        low, high = self.cfg.healthy_z_range
        # A height that is not finite is in no range.
        height = self._agent.qpos[..., 2]
        return (low <= height) & (height <= high)


def rotation_vectors(quaternions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return unit quaternions (…, 4) as rotation vectors (…, 3) in rad."""
    vectors = np.empty((*quaternions.shape[:-1], 3))
    for index in np.ndindex(vectors.shape[:-1]):
        mujoco.mju_quat2Vel(vectors[index], quaternions[index], 1.0)
    return vectors
