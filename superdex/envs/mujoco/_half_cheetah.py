"""Gymnasium's HalfCheetah-v5."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs._scene_env import Info
from superdex.envs.mujoco._arithmetic import squared_sum
from superdex.envs.mujoco._mujoco_env import Judgement, MujocoEnv, Parts

CAMERA = {"distance": 4.0}


class HalfCheetahEnv(MujocoEnv):
    """Gymnasium's HalfCheetah-v5: the same keywords, spaces, rewards and infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import HalfCheetahEnv
        >>> with HalfCheetahEnv(forward_reward_weight=2.0) as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape, list(info)
        ((17,), ['x_position'])
    """

    def __init__(
        self,
        xml_file: str = "half_cheetah.xml",
        frame_skip: int = 5,
        default_camera_config: dict[str, Any] | None = CAMERA,
        forward_reward_weight: float = 1.0,
        ctrl_cost_weight: float = 0.1,
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
        return qpos, self.init_qvel + scale * self.np_random.standard_normal(self.model.nv)

    def _reset_info(self) -> Info:
        return {"x_position": self._agent.qpos[..., 0]}

    def _measured_before(self) -> Any:
        return self._agent.qpos[..., 0].copy()

    def _observed(self) -> Parts:
        return self._agent.qpos[..., self._skipped :], self._agent.qvel

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        x_position = self._agent.qpos[..., 0]
        x_velocity = (x_position - before) / self.dt
        forward_reward = self._forward_reward_weight * x_velocity
        ctrl_cost = self._ctrl_cost_weight * squared_sum(action)
        info = {
            "x_position": x_position,
            "x_velocity": x_velocity,
            "reward_forward": forward_reward,
            "reward_ctrl": -ctrl_cost,
        }
        return forward_reward - ctrl_cost, False, info
