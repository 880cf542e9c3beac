"""A planar cheetah with two legs of three links, rewarded for running forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from superdex.envs._config import SceneEnvCfg
from superdex.envs._model_env import ModelEnv, squared_norm, unbounded, within
from superdex.envs._scene_env import Info, RewardTerms, StructuredAction, StructuredObservation
from superdex.scenes import MujocoScene

# x, z and pitch of the torso come before the leg joints, in positions and in velocities.
_ROOT = 3


@dataclass(frozen=True, kw_only=True)
class HalfCheetahEnvCfg(SceneEnvCfg):
    """Settings of `HalfCheetahEnv`.

    Attributes:
        control_frequency: As `SceneEnvCfg`.
        reset_noise_scale: Positions start uniformly within ± this, velocities with this standard
            deviation.
        use_gravity: The cheetah has weight.
        use_rest_springs: Springs pull the leg joints to their rest position.
        full_observation: Observe the position along the track too.
        forward_reward_weight: Reward per m/s.
        ctrl_cost_weight: Cost of the squared action.
    """

    control_frequency: float = 20
    reset_noise_scale: float = 0.1
    use_gravity: bool = True
    use_rest_springs: bool = True
    full_observation: bool = False
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ValueError: A value makes no sense; the message names it.
        """
        super().__post_init__()
        self.check_numbers("forward_reward_weight", "ctrl_cost_weight")


@dataclass(frozen=True, slots=True)
class HalfCheetah:
    """Where to read and drive the cheetah of a scene, or of a batch: live views of its data."""

    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]
    ctrl: NDArray[np.float64]
    observation: dict[str, NDArray[np.float64]]
    full_observation: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, scene: MujocoScene) -> HalfCheetah:
        """Find the cheetah in a scene."""
        qpos, qvel = scene.data.qpos, scene.data.qvel
        observation = {
            "height": qpos[..., 1:2],
            "joint_angles": qpos[..., _ROOT:],
            "joint_velocities": qvel[..., _ROOT:],
            "linear_velocity": qvel[..., :2],
            "pitch": qpos[..., 2:3],
            "pitch_velocity": qvel[..., 2:3],
        }
        return cls(
            qpos=qpos,
            qvel=qvel,
            ctrl=scene.data.ctrl,
            observation=observation,
            full_observation={**observation, "position": qpos[..., :1]},
        )


class HalfCheetahEnv(ModelEnv):
    """Run forward on two legs.

    Observation (17,) float32, in alphabetical order: `height` (1,) above the start in m,
    `joint_angles` (6,) in rad, `joint_velocities` (6,) in rad/s, `linear_velocity` (2,) along x and
    z in m/s, `pitch` (1,) in rad, `pitch_velocity` (1,) in rad/s; with `full_observation` also
    `position` (1,) along x in m: (18,). Joints are hip, knee and ankle of the back leg, then of the
    front leg. Action (6,): their `torque` as shares of the largest.

    Reward terms, weighted as in Gymnasium's HalfCheetah (Wawrzyński 2009): `forward`, the mean
    velocity along x over the step, and `control`, minus the squared action. There is no end but a
    limit.

    Example:
        >>> from superdex.envs import HalfCheetahEnv
        >>> with HalfCheetahEnv() as env:
        ...     observation, _ = env.reset(seed=0)
        >>> observation.shape, env.action_space.shape
        ((17,), (6,))
    """

    cfg_class: ClassVar[type[SceneEnvCfg]] = HalfCheetahEnvCfg
    array_hooks = True
    holds_action = True
    cfg: HalfCheetahEnvCfg
    _agent: HalfCheetah

    def __init__(
        self, cfg: HalfCheetahEnvCfg | Mapping[str, Any] | None = None, **overrides: Any
    ) -> None:
        super().__init__(cfg, **overrides)
        self._x_before: Any = 0.0
        self._setup_action_space(torque=within(1.0, 6))
        self._load_model(
            "half_cheetah.xml",
            self._edit_model,
            HalfCheetah.of,
            {
                "use_gravity": self.cfg.use_gravity,
                "use_rest_springs": self.cfg.use_rest_springs,
            },
        )
        self._setup_observation_space(
            **{name: unbounded(*view.shape) for name, view in self._observed().items()}
        )

    def _observed(self) -> dict[str, NDArray[np.float64]]:
        agent = self._agent
        return agent.full_observation if self.cfg.full_observation else agent.observation

    def _edit_model(self, spec: mujoco.MjSpec) -> None:
        if not self.cfg.use_gravity:
            spec.option.gravity = np.zeros(3)
        if not self.cfg.use_rest_springs:
            for joint in spec.joints:
                joint.stiffness[:] = 0.0

    def _reset_scene(self) -> None:
        agent, scale = self._agent, self.cfg.reset_noise_scale
        agent.qpos[:] += self.np_random.uniform(-scale, scale, agent.qpos.shape)
        agent.qvel[:] += scale * self.np_random.standard_normal(agent.qvel.shape)

    def _before_step(self) -> None:
        self._x_before = self._agent.qpos[..., 0].copy()

    def _apply_action(self, action: StructuredAction) -> None:
        self._agent.ctrl[:] = action["torque"]

    def _make_observation(self) -> tuple[StructuredObservation, Info]:
        return self._observed(), {"x_position": self._agent.qpos[..., 0]}

    def _compute_reward_terms(
        self, action: StructuredAction, observation: StructuredObservation, info: Info
    ) -> RewardTerms:
        velocity = (info["x_position"] - self._x_before) * self.cfg.control_frequency
        torque = action["torque"]
        return {
            "forward": self.cfg.forward_reward_weight * velocity,
            "control": -self.cfg.ctrl_cost_weight * squared_norm(torque),
        }
