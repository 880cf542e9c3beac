"""Gymnasium's Ant-v5."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs._scene_env import Info
from superdex.envs.mujoco._arithmetic import euclidean_norm, squared_sum
from superdex.envs.mujoco._mujoco_env import Judgement, MujocoEnv, Parts

CAMERA = {"distance": 4.0}


class AntEnv(MujocoEnv):
    """Gymnasium's Ant-v5: the same keywords, spaces, rewards and infos, to the bit.

    It reads contact forces, which a batch of simulations can't give exactly; so these environments
    are stepped one by one. With `include_cfrc_ext_in_observation=False` and
    `contact_cost_weight=0` it doesn't, and they are stepped at once.

    Example:
        >>> from superdex.envs.mujoco import AntEnv
        >>> with AntEnv(include_cfrc_ext_in_observation=False, contact_cost_weight=0) as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape, env.array_hooks
        ((27,), True)
    """

    fields = ("xpos", "cfrc_ext")
    array_fields = ("_xy",)

    def __init__(
        self,
        xml_file: str = "ant.xml",
        frame_skip: int = 5,
        default_camera_config: dict[str, Any] | None = CAMERA,
        forward_reward_weight: float = 1,
        ctrl_cost_weight: float = 0.5,
        contact_cost_weight: float = 5e-4,
        healthy_reward: float = 1.0,
        main_body: int | str = 1,
        terminate_when_unhealthy: bool = True,
        healthy_z_range: tuple[float, float] = (0.2, 1.0),
        contact_force_range: tuple[float, float] = (-1.0, 1.0),
        reset_noise_scale: float = 0.1,
        exclude_current_positions_from_observation: bool = True,
        include_cfrc_ext_in_observation: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            xml_file, frame_skip, default_camera_config=default_camera_config, **kwargs
        )
        self._forward_reward_weight = forward_reward_weight
        self._ctrl_cost_weight = ctrl_cost_weight
        self._contact_cost_weight = contact_cost_weight
        self._healthy_reward = healthy_reward
        self._terminate_when_unhealthy = terminate_when_unhealthy
        self._healthy_z_range = healthy_z_range
        self._contact_force_range = contact_force_range
        self._main_body = self.model.body(main_body).id
        self._reset_noise_scale = reset_noise_scale
        self._observes_forces = bool(include_cfrc_ext_in_observation)
        self._reads_contact_forces = self._observes_forces or contact_cost_weight != 0
        if not self._reads_contact_forces:
            self._unread = frozenset({"cfrc_ext"})
        self._skipped = 2 * exclude_current_positions_from_observation
        self._xy = np.zeros(2)
        self._set_up_observation()
        self.observation_structure = {
            "skipped_qpos": self._skipped,
            "qpos": self.model.nq - self._skipped,
            "qvel": self.model.nv,
            "cfrc_ext": self._agent.cfrc_ext[1:].size * self._observes_forces,
        }

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scale = self._reset_noise_scale
        qpos = self.init_qpos + self._uniform(scale, self.model.nq)
        return qpos, self.init_qvel + scale * self.np_random.standard_normal(self.model.nv)

    def _remember(self) -> None:
        self._xy = self._agent.xpos[..., self._main_body, :2].copy()

    def _reset_info(self) -> Info:
        position = self._agent.qpos[..., 0:2]
        return {
            "x_position": position[..., 0],
            "y_position": position[..., 1],
            "distance_from_origin": euclidean_norm(position),
        }

    def _measured_before(self) -> Any:
        return self._xy

    def _observed(self) -> Parts:
        parts = (self._agent.qpos[..., self._skipped :], self._agent.qvel)
        return (*parts, self._contact_forces()[1:]) if self._observes_forces else parts

    def _contact_forces(self) -> NDArray[np.float64]:
        """Return the forces on each body of one environment, (bodies, 6)."""
        low, high = self._contact_force_range
        forces: NDArray[np.float64] = np.clip(self._agent.cfrc_ext, low, high)
        return forces

    def _contact_cost(self) -> Any:
        if not self._reads_contact_forces:
            return np.zeros(self._agent.qpos.shape[:-1])
        return self._contact_cost_weight * np.sum(np.square(self._contact_forces()))

    def _is_healthy(self) -> Any:
        qpos, qvel = self._agent.qpos, self._agent.qvel
        low, high = self._healthy_z_range
        finite = np.isfinite(qpos).all(axis=-1) & np.isfinite(qvel).all(axis=-1)
        return finite & (low <= qpos[..., 2]) & (qpos[..., 2] <= high)

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        self._remember()
        velocity = (self._xy - before) / self.dt
        is_healthy = self._is_healthy()
        forward_reward = velocity[..., 0] * self._forward_reward_weight
        healthy_reward = is_healthy * self._healthy_reward
        ctrl_cost = self._ctrl_cost_weight * squared_sum(action)
        contact_cost = self._contact_cost()
        info = {
            **self._reset_info(),
            "x_velocity": velocity[..., 0],
            "y_velocity": velocity[..., 1],
            "reward_forward": forward_reward,
            "reward_ctrl": -ctrl_cost,
            "reward_contact": -contact_cost,
            "reward_survive": healthy_reward,
        }
        unhealthy = ~is_healthy if self._terminate_when_unhealthy else False
        reward = forward_reward + healthy_reward - (ctrl_cost + contact_cost)
        return reward, unhealthy, info
