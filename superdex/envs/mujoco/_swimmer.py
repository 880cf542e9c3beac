"""Gymnasium's Swimmer-v5."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs._scene_env import Info
from superdex.envs.mujoco._arithmetic import euclidean_norm, squared_sum
from superdex.envs.mujoco._mujoco_env import Judgement, MujocoEnv, Parts


class SwimmerEnv(MujocoEnv):
    """Gymnasium's Swimmer-v5: the same keywords, spaces, rewards and infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import SwimmerEnv
        >>> with SwimmerEnv() as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (8,)
    """

    def __init__(
        self,
        xml_file: str = "swimmer.xml",
        frame_skip: int = 4,
        default_camera_config: dict[str, Any] | None = None,
        forward_reward_weight: float = 1.0,
        ctrl_cost_weight: float = 1e-4,
        reset_noise_scale: float = 0.1,
        exclude_current_positions_from_observation: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            xml_file, frame_skip, default_camera_config=default_camera_config, **kwargs
        )
        self._forward_reward_weight = forward_reward_weight
        self._ctrl_cost_weight = ctrl_cost_weight
        self._reset_noise_scale = reset_noise_scale
        self._skipped = 2 * exclude_current_positions_from_observation
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

    def _reset_info(self) -> Info:
        position = self._agent.qpos[..., 0:2]
        return {
            "x_position": position[..., 0],
            "y_position": position[..., 1],
            "distance_from_origin": euclidean_norm(position),
        }

    def _measured_before(self) -> Any:
        return self._agent.qpos[..., 0:2].copy()

    def _observed(self) -> Parts:
        return self._agent.qpos[..., self._skipped :], self._agent.qvel

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        velocity = (self._agent.qpos[..., 0:2] - before) / self.dt
        forward_reward = self._forward_reward_weight * velocity[..., 0]
        ctrl_cost = self._ctrl_cost_weight * squared_sum(action)
        info = {
            **self._reset_info(),
            "x_velocity": velocity[..., 0],
            "y_velocity": velocity[..., 1],
            "reward_forward": forward_reward,
            "reward_ctrl": -ctrl_cost,
        }
        return forward_reward - ctrl_cost, False, info
