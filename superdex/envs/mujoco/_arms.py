"""Gymnasium's Reacher-v5 and Pusher-v5: arms that bring something to a goal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs.mujoco._arithmetic import euclidean_norm, squared_sum
from superdex.envs.mujoco._mujoco_env import Judgement, MujocoEnv, Parts

REACHER_CAMERA = {"trackbodyid": 0}
PUSHER_CAMERA = {"trackbodyid": -1, "distance": 4.0}

_REACH = 0.2
_LEAST_DISTANCE = 0.17
_PUSHER_JOINTS = 7


class ReacherEnv(MujocoEnv):
    """Gymnasium's Reacher-v5: the same keywords, spaces, rewards and infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import ReacherEnv
        >>> with ReacherEnv() as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (10,)
    """

    fields = ("xpos",)

    def __init__(
        self,
        xml_file: str = "reacher.xml",
        frame_skip: int = 2,
        default_camera_config: dict[str, Any] | None = REACHER_CAMERA,
        reward_dist_weight: float = 1,
        reward_control_weight: float = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            xml_file, frame_skip, default_camera_config=default_camera_config, **kwargs
        )
        self._reward_dist_weight = reward_dist_weight
        self._reward_control_weight = reward_control_weight
        self._fingertip = self.model.body("fingertip").id
        self._target = self.model.body("target").id
        self._set_up_observation()

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        qpos = self._uniform(0.1, self.model.nq) + self.init_qpos
        while True:
            goal = self._uniform(_REACH, 2)
            if np.linalg.norm(goal) < _REACH:
                break
        qpos[-2:] = goal
        qvel = self.init_qvel + self._uniform(0.005, self.model.nv)
        qvel[-2:] = 0
        return qpos, qvel

    def _to_target(self) -> Any:
        xpos = self._agent.xpos
        return xpos[..., self._fingertip, :] - xpos[..., self._target, :]

    def _observed(self) -> Parts:
        qpos, qvel = self._agent.qpos, self._agent.qvel
        angles = qpos[..., :2]
        return (
            np.cos(angles),
            np.sin(angles),
            qpos[..., 2:],
            qvel[..., :2],
            self._to_target()[..., :2],
        )

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        reward_dist = -euclidean_norm(self._to_target()) * self._reward_dist_weight
        reward_ctrl = -squared_sum(action) * self._reward_control_weight
        info = {"reward_dist": reward_dist, "reward_ctrl": reward_ctrl}
        return reward_dist + reward_ctrl, False, info


class PusherEnv(MujocoEnv):
    """Gymnasium's Pusher-v5: the same keywords, spaces, rewards and infos, to the bit.

    Example:
        >>> from superdex.envs.mujoco import PusherEnv
        >>> with PusherEnv() as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (23,)
    """

    fields = ("xpos",)

    def __init__(
        self,
        xml_file: str = "pusher_v5.xml",
        frame_skip: int = 5,
        default_camera_config: dict[str, Any] | None = PUSHER_CAMERA,
        reward_near_weight: float = 0.5,
        reward_dist_weight: float = 1,
        reward_control_weight: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            xml_file, frame_skip, default_camera_config=default_camera_config, **kwargs
        )
        self._reward_near_weight = reward_near_weight
        self._reward_dist_weight = reward_dist_weight
        self._reward_control_weight = reward_control_weight
        bodies = ("tips_arm", "object", "goal")
        self._tip, self._object, self._goal = (self.model.body(name).id for name in bodies)
        self._set_up_observation()

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        qpos = self.init_qpos.copy()
        draw = self.np_random.uniform
        while True:
            x, y = draw(low=-0.3, high=0, size=1), draw(low=-0.2, high=0.2, size=1)
            cylinder = np.concatenate([x, y])
            if np.linalg.norm(cylinder) > _LEAST_DISTANCE:
                break
        qpos[-4:-2] = cylinder
        qpos[-2:] = 0
        qvel = self.init_qvel + self._uniform(0.005, self.model.nv)
        qvel[-4:] = 0
        return qpos, qvel

    def _observed(self) -> Parts:
        xpos = self._agent.xpos
        return (
            self._agent.qpos[..., :_PUSHER_JOINTS],
            self._agent.qvel[..., :_PUSHER_JOINTS],
            xpos[..., self._tip, :],
            xpos[..., self._object, :],
            xpos[..., self._goal, :],
        )

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        xpos = self._agent.xpos
        cylinder = xpos[..., self._object, :]
        near = euclidean_norm(cylinder - xpos[..., self._tip, :])
        far = euclidean_norm(cylinder - xpos[..., self._goal, :])
        reward_near = -near * self._reward_near_weight
        reward_dist = -far * self._reward_dist_weight
        reward_ctrl = -squared_sum(action) * self._reward_control_weight
        info = {
            "reward_dist": reward_dist,
            "reward_ctrl": reward_ctrl,
            "reward_near": reward_near,
        }
        return reward_dist + reward_ctrl + reward_near, False, info
