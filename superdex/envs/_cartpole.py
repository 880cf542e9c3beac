"""A pole hinged on a cart that runs on a rail, balanced by a continuous push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from superdex.envs._config import SceneEnvCfg
from superdex.envs._model_env import ModelEnv, unbounded, within
from superdex.envs._scene_env import (
    Info,
    RewardTerms,
    StopReasons,
    StructuredAction,
    StructuredObservation,
)
from superdex.scenes import MujocoScene

# Newtons at full action. On the pole a tenth of it balances: it has a tenth of the cart's mass.
_FORCE_ON_POLE = 1.0


@dataclass(frozen=True, kw_only=True)
class CartPoleEnvCfg(SceneEnvCfg):
    """Settings of `CartPoleEnv`.

    Attributes:
        reset_noise_scale: Positions and velocities start uniformly within ± this.
        use_damping: Slider and hinge are damped.
        use_gravity: The pole falls.
        free_pole: The pole swings all the way round; else its hinge stops at ±1.2 rad.
        actuate_on_pole: The force acts on the pole's centre of mass, 1 N at most, instead of on
            the cart, 10 N at most.
        max_pole_angle: The episode ends beyond that angle from the vertical, in rad. 12° as in
            Barto, Sutton and Anderson (1983).
    """

    reset_noise_scale: float = 0.05
    use_damping: bool = True
    use_gravity: bool = True
    free_pole: bool = False
    actuate_on_pole: bool = False
    max_pole_angle: float = 0.2095

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ValueError: A value makes no sense; the message names it.
        """
        super().__post_init__()
        self.check_numbers("max_pole_angle", at_least=0, finite=False)


@dataclass(frozen=True, slots=True)
class CartPole:
    """Where to read and push the cart-pole of a scene: live views of its data, (1,) or (n,)."""

    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]
    ctrl: NDArray[np.float64]
    force_on_pole: NDArray[np.float64]
    observation: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, scene: MujocoScene) -> CartPole:
        """Find the cart-pole in a scene."""
        data = scene.data
        return cls(
            qpos=data.qpos,
            qvel=data.qvel,
            ctrl=data.ctrl,
            force_on_pole=data.body("pole").xfrc_applied[..., :1],
            observation={
                "angular_vel": data.joint("hinge").qvel,
                "linear_vel": data.joint("slider").qvel,
                "position": data.joint("slider").qpos,
                "vertical_ang": data.joint("hinge").qpos,
            },
        )


class CartPoleEnv(ModelEnv):
    """Keep a pole upright by pushing its cart, or the pole itself.

    Observation (4,) float32: `angular_vel` (rad/s), `linear_vel` (m/s), `position` (m) and
    `vertical_ang` (rad, 0 is upright). Action (1,): the `force` as a share of the largest one.
    Reward: 1 for each step with the pole up. The episode terminates with "Pole angle exceeded
    threshold".

    Example:
        >>> from superdex.envs import CartPoleEnv
        >>> with CartPoleEnv({"reset_noise_scale": 0.0}) as env:
        ...     observation, _ = env.reset(seed=0)
        >>> observation.tolist()
        [0.0, 0.0, 0.0, 0.0]
    """

    cfg_class: ClassVar[type[SceneEnvCfg]] = CartPoleEnvCfg
    array_hooks = True
    holds_action = True
    cfg: CartPoleEnvCfg
    _agent: CartPole

    def __init__(
        self, cfg: CartPoleEnvCfg | Mapping[str, Any] | None = None, **overrides: Any
    ) -> None:
        super().__init__(cfg, **overrides)
        self._setup_observation_space(
            angular_vel=unbounded(1),
            linear_vel=unbounded(1),
            position=unbounded(1),
            vertical_ang=unbounded(1),
        )
        self._setup_action_space(force=within(1.0, 1))
        self._load_model(
            "cartpole.xml",
            self._edit_model,
            CartPole.of,
            {
                "use_damping": self.cfg.use_damping,
                "use_gravity": self.cfg.use_gravity,
                "free_pole": self.cfg.free_pole,
            },
        )

    def _edit_model(self, spec: mujoco.MjSpec) -> None:
        if not self.cfg.use_gravity:
            spec.option.gravity = np.zeros(3)
        if not self.cfg.use_damping:
            for joint in spec.joints:
                joint.damping[:] = 0.0
        if self.cfg.free_pole:
            spec.joint("hinge").limited = mujoco.mjtLimited.mjLIMITED_FALSE

    def _reset_scene(self) -> None:
        scale = self.cfg.reset_noise_scale
        self._agent.qpos[:] = self.np_random.uniform(-scale, scale, 2)
        self._agent.qvel[:] = self.np_random.uniform(-scale, scale, 2)

    def _apply_action(self, action: StructuredAction) -> None:
        if self.cfg.actuate_on_pole:
            self._agent.force_on_pole[:] = _FORCE_ON_POLE * action["force"]
        else:
            self._agent.ctrl[:] = action["force"]

    def _make_observation(self) -> tuple[StructuredObservation, Info]:
        return self._agent.observation, {}

    def _compute_reward_terms(
        self, action: StructuredAction, observation: StructuredObservation, info: Info
    ) -> RewardTerms:
        return {"upright": 1.0 - self._has_fallen(observation)}

    def _check_stop_criteria(self, observation: StructuredObservation, info: Info) -> StopReasons:
        fallen = self._has_fallen(observation)
        return StopReasons.where(terminated={"Pole angle exceeded threshold": fallen})

    def _has_fallen(self, observation: StructuredObservation) -> Any:
        return abs(observation["vertical_ang"][..., 0]) > self.cfg.max_pole_angle
