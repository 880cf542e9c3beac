"""Gymnasium's InvertedPendulum-v5 and InvertedDoublePendulum-v5."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs.mujoco._arithmetic import power_of_two
from superdex.envs.mujoco._mujoco_env import Judgement, MujocoEnv, Parts

CAMERA = {"trackbodyid": 0, "distance": 2.04}

_LARGEST_ANGLE = 0.2
_LARGEST = 10


class InvertedPendulumEnv(MujocoEnv):
    """Gymnasium's InvertedPendulum-v5: the same keywords, spaces, rewards and infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import InvertedPendulumEnv
        >>> with InvertedPendulumEnv() as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (4,)
    """

    def __init__(
        self,
        xml_file: str = "inverted_pendulum.xml",
        frame_skip: int = 2,
        default_camera_config: dict[str, Any] | None = CAMERA,
        reset_noise_scale: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            xml_file, frame_skip, default_camera_config=default_camera_config, **kwargs
        )
        self._reset_noise_scale = reset_noise_scale
        self._set_up_observation()
        self.observation_structure = {"qpos": self.model.nq, "qvel": self.model.nv}

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scale = self._reset_noise_scale
        qpos = self.init_qpos + self._uniform(scale, self.model.nq)
        return qpos, self.init_qvel + self._uniform(scale, self.model.nv)

    def _observed(self) -> Parts:
        return self._agent.qpos, self._agent.qvel

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        qpos, qvel = self._agent.qpos, self._agent.qvel
        finite = np.isfinite(qpos).all(axis=-1) & np.isfinite(qvel).all(axis=-1)
        fell = ~finite | (np.abs(qpos[..., 1]) > _LARGEST_ANGLE)
        reward = (~fell).astype(np.int64)
        return reward, fell, {"reward_survive": reward}


class InvertedDoublePendulumEnv(MujocoEnv):
    """Gymnasium's InvertedDoublePendulum-v5: the same keywords, spaces, rewards, infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import InvertedDoublePendulumEnv
        >>> with InvertedDoublePendulumEnv() as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (9,)
    """

    fields = ("site_xpos", "qfrc_constraint")

    def __init__(
        self,
        xml_file: str = "inverted_double_pendulum.xml",
        frame_skip: int = 5,
        default_camera_config: dict[str, Any] | None = None,
        healthy_reward: float = 10.0,
        reset_noise_scale: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            xml_file, frame_skip, default_camera_config=default_camera_config, **kwargs
        )
        self._healthy_reward = healthy_reward
        self._reset_noise_scale = reset_noise_scale
        self._set_up_observation()

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scale = self._reset_noise_scale
        qpos = self.init_qpos + self._uniform(scale, self.model.nq)
        return qpos, self.init_qvel + self.np_random.standard_normal(self.model.nv) * scale

    def _observed(self) -> Parts:
        qpos = self._agent.qpos
        return (
            qpos[..., :1],
            np.sin(qpos[..., 1:]),
            np.cos(qpos[..., 1:]),
            np.clip(self._agent.qvel, -_LARGEST, _LARGEST),
            np.clip(self._agent.qfrc_constraint[..., :1], -_LARGEST, _LARGEST),
        )

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        x, y = self._agent.site_xpos[..., 0, 0], self._agent.site_xpos[..., 0, 2]
        v1, v2 = self._agent.qvel[..., 1], self._agent.qvel[..., 2]
        fell = y <= 1
        dist_penalty = 0.01 * power_of_two(x) + power_of_two(y - 2)
        vel_penalty = 1e-3 * power_of_two(v1) + 5e-3 * power_of_two(v2)
        alive_bonus = self._healthy_reward * (~fell).astype(np.int64)
        info = {
            "reward_survive": alive_bonus,
            "distance_penalty": -dist_penalty,
            "velocity_penalty": -vel_penalty,
        }
        return alive_bonus - dist_penalty - vel_penalty, fell, info
