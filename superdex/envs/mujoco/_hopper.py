"""Gymnasium's Hopper-v5 and Walker2d-v5: planar legs that must stay upright."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs._scene_env import Info
from superdex.envs.mujoco._arithmetic import squared_sum
from superdex.envs.mujoco._mujoco_env import Judgement, MujocoEnv, Parts

HOPPER_CAMERA = {
    "trackbodyid": 2,
    "distance": 3.0,
    "lookat": np.array((0.0, 0.0, 1.15)),
    "elevation": -20.0,
}
WALKER_CAMERA = {**HOPPER_CAMERA, "distance": 4.0}
_LARGEST_VELOCITY = 10


class UprightEnv(MujocoEnv):
    """What a hopper and a walker have in common."""

    def __init__(
        self,
        xml_file: str,
        frame_skip: int,
        *,
        forward_reward_weight: float,
        ctrl_cost_weight: float,
        healthy_reward: float,
        terminate_when_unhealthy: bool,
        healthy_z_range: tuple[float, float],
        healthy_angle_range: tuple[float, float],
        reset_noise_scale: float,
        exclude_current_positions_from_observation: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(xml_file, frame_skip, **kwargs)
        self._forward_reward_weight = forward_reward_weight
        self._ctrl_cost_weight = ctrl_cost_weight
        self._healthy_reward = healthy_reward
        self._terminate_when_unhealthy = terminate_when_unhealthy
        self._healthy_z_range = healthy_z_range
        self._healthy_angle_range = healthy_angle_range
        self._reset_noise_scale = reset_noise_scale
        self._skipped = 1 * exclude_current_positions_from_observation
        self._set_up_observation()
        self.observation_structure = {
            "skipped_qpos": self._skipped,
            "qpos": self.model.nq - self._skipped,
            "qvel": self.model.nv,
        }

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scale = self._reset_noise_scale
        qpos = self.init_qpos + self._uniform(scale, self.model.nq)
        return qpos, self.init_qvel + self._uniform(scale, self.model.nv)

    def _position_info(self) -> Info:
        qpos = self._agent.qpos
        return {
            "x_position": qpos[..., 0],
            "z_distance_from_origin": qpos[..., 1] - self.init_qpos[1],
        }

    def _reset_info(self) -> Info:
        return self._position_info()

    def _measured_before(self) -> Any:
        return self._agent.qpos[..., 0].copy()

    def _observed(self) -> Parts:
        velocity = np.clip(self._agent.qvel, -_LARGEST_VELOCITY, _LARGEST_VELOCITY)
        return self._agent.qpos[..., self._skipped :], velocity

    def _is_healthy(self) -> Any:
        z, angle = self._agent.qpos[..., 1], self._agent.qpos[..., 2]
        min_z, max_z = self._healthy_z_range
        min_angle, max_angle = self._healthy_angle_range
        return (min_z < z) & (z < max_z) & (min_angle < angle) & (angle < max_angle)

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        x_velocity = (self._agent.qpos[..., 0] - before) / self.dt
        is_healthy = self._is_healthy()
        forward_reward = self._forward_reward_weight * x_velocity
        healthy_reward = is_healthy * self._healthy_reward
        ctrl_cost = self._ctrl_cost_weight * squared_sum(action)
        info = {
            **self._position_info(),
            "x_velocity": x_velocity,
            "reward_forward": forward_reward,
            "reward_ctrl": -ctrl_cost,
            "reward_survive": healthy_reward,
        }
        unhealthy = ~is_healthy if self._terminate_when_unhealthy else False
        return forward_reward + healthy_reward - ctrl_cost, unhealthy, info


class HopperEnv(UprightEnv):
    """Gymnasium's Hopper-v5: the same keywords, spaces, rewards and infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import HopperEnv
        >>> with HopperEnv(terminate_when_unhealthy=False) as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (11,)
    """

    def __init__(
        self,
        xml_file: str = "hopper.xml",
        frame_skip: int = 4,
        default_camera_config: dict[str, Any] | None = HOPPER_CAMERA,
        forward_reward_weight: float = 1.0,
        ctrl_cost_weight: float = 1e-3,
        healthy_reward: float = 1.0,
        terminate_when_unhealthy: bool = True,
        healthy_state_range: tuple[float, float] = (-100.0, 100.0),
        healthy_z_range: tuple[float, float] = (0.7, float("inf")),
        healthy_angle_range: tuple[float, float] = (-0.2, 0.2),
        reset_noise_scale: float = 5e-3,
        exclude_current_positions_from_observation: bool = True,
        **kwargs: Any,
    ) -> None:
        self._healthy_state_range = healthy_state_range
        super().__init__(
            xml_file,
            frame_skip,
            forward_reward_weight=forward_reward_weight,
            ctrl_cost_weight=ctrl_cost_weight,
            healthy_reward=healthy_reward,
            terminate_when_unhealthy=terminate_when_unhealthy,
            healthy_z_range=healthy_z_range,
            healthy_angle_range=healthy_angle_range,
            reset_noise_scale=reset_noise_scale,
            exclude_current_positions_from_observation=exclude_current_positions_from_observation,
            default_camera_config=default_camera_config,
            **kwargs,
        )

    def _is_healthy(self) -> Any:
        low, high = self._healthy_state_range
        healthy = super()._is_healthy()
        for state in (self._agent.qpos[..., 2:], self._agent.qvel):
            healthy = healthy & ((low < state) & (state < high)).all(axis=-1)
        return healthy


class Walker2dEnv(UprightEnv):
    """Gymnasium's Walker2d-v5: the same keywords, spaces, rewards and infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import Walker2dEnv
        >>> with Walker2dEnv() as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (17,)
    """

    def __init__(
        self,
        xml_file: str = "walker2d_v5.xml",
        frame_skip: int = 4,
        default_camera_config: dict[str, Any] | None = WALKER_CAMERA,
        forward_reward_weight: float = 1.0,
        ctrl_cost_weight: float = 1e-3,
        healthy_reward: float = 1.0,
        terminate_when_unhealthy: bool = True,
        healthy_z_range: tuple[float, float] = (0.8, 2.0),
        healthy_angle_range: tuple[float, float] = (-1.0, 1.0),
        reset_noise_scale: float = 5e-3,
        exclude_current_positions_from_observation: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            xml_file,
            frame_skip,
            forward_reward_weight=forward_reward_weight,
            ctrl_cost_weight=ctrl_cost_weight,
            healthy_reward=healthy_reward,
            terminate_when_unhealthy=terminate_when_unhealthy,
            healthy_z_range=healthy_z_range,
            healthy_angle_range=healthy_angle_range,
            reset_noise_scale=reset_noise_scale,
            exclude_current_positions_from_observation=exclude_current_positions_from_observation,
            default_camera_config=default_camera_config,
            **kwargs,
        )
