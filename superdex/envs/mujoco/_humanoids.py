"""Gymnasium's Humanoid-v5 and HumanoidStandup-v5."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs._scene_env import Info
from superdex.envs.mujoco._arithmetic import euclidean_norm, mass_center, squared_sum
from superdex.envs.mujoco._mujoco_env import Judgement, MujocoEnv, Parts

HUMANOID_CAMERA = {
    "trackbodyid": 1,
    "distance": 4.0,
    "lookat": np.array((0.0, 0.0, 2.0)),
    "elevation": -20.0,
}
STANDUP_CAMERA = {**HUMANOID_CAMERA, "lookat": np.array((0.0, 0.0, 0.8925))}

_ROOT = 6
"""Velocities of the free joint, which no actuator drives."""


class HumanoidBase(MujocoEnv):
    """What the two humanoids have in common: start, observation and the cost of forces."""

    fields = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext", "ten_length", "ten_velocity", "xipos")

    def __init__(
        self,
        xml_file: str,
        frame_skip: int,
        *,
        force_cost_weight: float,
        force_cost_range: tuple[float, float],
        reset_noise_scale: float,
        exclude_current_positions_from_observation: bool,
        include_cinert_in_observation: bool,
        include_cvel_in_observation: bool,
        include_qfrc_actuator_in_observation: bool,
        include_cfrc_ext_in_observation: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(xml_file, frame_skip, **kwargs)
        self._force_cost_weight = force_cost_weight
        self._force_cost_range = force_cost_range
        self._reset_noise_scale = reset_noise_scale
        self._reads_contact_forces = bool(include_cfrc_ext_in_observation) or force_cost_weight != 0
        self._skipped = 2 * exclude_current_positions_from_observation
        # In the order of the observation: field, where it begins, and whether it is observed.
        self._further = {
            "cinert": (1, include_cinert_in_observation),
            "cvel": (1, include_cvel_in_observation),
            "qfrc_actuator": (_ROOT, include_qfrc_actuator_in_observation),
            "cfrc_ext": (1, include_cfrc_ext_in_observation),
        }
        # Whether forces are read decides whether there is a batch; then their field has no use.
        self._unread = frozenset(n for n, (_, included) in self._further.items() if not included)
        if self._reads_contact_forces:
            self._unread -= {"cfrc_ext"}
        self._set_up_observation()
        self.observation_structure = {
            "skipped_qpos": self._skipped,
            "qpos": self.model.nq - self._skipped,
            "qvel": self.model.nv,
            **{
                name: getattr(self._agent, name)[first:].size * included
                for name, (first, included) in self._further.items()
            },
            "ten_length": 0,
            "ten_velocity": 0,
        }

    def _start(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scale = self._reset_noise_scale
        qpos = self.init_qpos + self._uniform(scale, self.model.nq)
        return qpos, self.init_qvel + self._uniform(scale, self.model.nv)

    def _observed(self) -> Parts:
        agent = self._agent
        parts = [agent.qpos[..., self._skipped :], agent.qvel]
        for name, (first, included) in self._further.items():
            if included:
                field = getattr(agent, name)
                is_vector = name == "qfrc_actuator"
                parts.append(field[..., first:] if is_vector else field[..., first:, :])
        return parts

    def _tendon_info(self) -> Info:
        return {
            "tendon_length": self._agent.ten_length,
            "tendon_velocity": self._agent.ten_velocity,
        }

    def _force_cost(self) -> Any:
        """Return the cost of contact forces, within its range."""
        if self._reads_contact_forces:
            cost = self._force_cost_weight * np.square(self._agent.cfrc_ext).sum()
        else:
            cost = np.zeros(self._agent.qpos.shape[:-1])
        return np.clip(cost, *self._force_cost_range)


class HumanoidEnv(HumanoidBase):
    """Gymnasium's Humanoid-v5: the same keywords, spaces, rewards and infos, to the bit.

    It reads contact forces, which a batch of simulations can't give exactly; so these environments
    are stepped one by one. With `include_cfrc_ext_in_observation=False` and
    `contact_cost_weight=0` it doesn't, and they are stepped at once.

    Example:
        >>> from superdex.envs.mujoco import HumanoidEnv
        >>> with HumanoidEnv() as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape, env.array_hooks
        ((348,), False)
    """

    array_fields = ("_xy",)

    def __init__(
        self,
        xml_file: str = "humanoid.xml",
        frame_skip: int = 5,
        default_camera_config: dict[str, Any] | None = HUMANOID_CAMERA,
        forward_reward_weight: float = 1.25,
        ctrl_cost_weight: float = 0.1,
        contact_cost_weight: float = 5e-7,
        contact_cost_range: tuple[float, float] = (-np.inf, 10.0),
        healthy_reward: float = 5.0,
        terminate_when_unhealthy: bool = True,
        healthy_z_range: tuple[float, float] = (1.0, 2.0),
        reset_noise_scale: float = 1e-2,
        exclude_current_positions_from_observation: bool = True,
        include_cinert_in_observation: bool = True,
        include_cvel_in_observation: bool = True,
        include_qfrc_actuator_in_observation: bool = True,
        include_cfrc_ext_in_observation: bool = True,
        **kwargs: Any,
    ) -> None:
        self._forward_reward_weight = forward_reward_weight
        self._ctrl_cost_weight = ctrl_cost_weight
        self._healthy_reward = healthy_reward
        self._terminate_when_unhealthy = terminate_when_unhealthy
        self._healthy_z_range = healthy_z_range
        self._xy = np.zeros(2)
        super().__init__(
            xml_file,
            frame_skip,
            force_cost_weight=contact_cost_weight,
            force_cost_range=contact_cost_range,
            reset_noise_scale=reset_noise_scale,
            exclude_current_positions_from_observation=exclude_current_positions_from_observation,
            include_cinert_in_observation=include_cinert_in_observation,
            include_cvel_in_observation=include_cvel_in_observation,
            include_qfrc_actuator_in_observation=include_qfrc_actuator_in_observation,
            include_cfrc_ext_in_observation=include_cfrc_ext_in_observation,
            default_camera_config=default_camera_config,
            **kwargs,
        )

    def _remember(self) -> None:
        self._xy = mass_center(self._scene.model.body_mass, self._agent.xipos).copy()

    def _reset_info(self) -> Info:
        position = self._agent.qpos[..., 0:2]
        return {
            "x_position": position[..., 0],
            "y_position": position[..., 1],
            **self._tendon_info(),
            "distance_from_origin": euclidean_norm(position),
        }

    def _measured_before(self) -> Any:
        return self._xy

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        self._remember()
        velocity = (self._xy - before) / self.dt
        z = self._agent.qpos[..., 2]
        low, high = self._healthy_z_range
        is_healthy = (low < z) & (z < high)
        forward_reward = self._forward_reward_weight * velocity[..., 0]
        healthy_reward = is_healthy * self._healthy_reward
        ctrl_cost = self._ctrl_cost_weight * squared_sum(self._agent.ctrl)
        contact_cost = self._force_cost()
        info = {
            **self._reset_info(),
            "x_velocity": velocity[..., 0],
            "y_velocity": velocity[..., 1],
            "reward_survive": healthy_reward,
            "reward_forward": forward_reward,
            "reward_ctrl": -ctrl_cost,
            "reward_contact": -contact_cost,
        }
        unhealthy = ~is_healthy if self._terminate_when_unhealthy else False
        reward = forward_reward + healthy_reward - (ctrl_cost + contact_cost)
        return reward, unhealthy, info


class HumanoidStandupEnv(HumanoidBase):
    """Gymnasium's HumanoidStandup-v5: the same keywords, spaces, rewards and infos, to the bit.

    It reads contact forces, which a batch of simulations can't give exactly; so these environments
    are stepped one by one. With `include_cfrc_ext_in_observation=False` and `impact_cost_weight=0`
    it doesn't, and they are stepped at once.

    Example:
        >>> from superdex.envs.mujoco import HumanoidStandupEnv
        >>> with HumanoidStandupEnv(include_cinert_in_observation=False) as env:
        ...     observation, info = env.reset(seed=0)
        >>> observation.shape
        (218,)
    """

    def __init__(
        self,
        xml_file: str = "humanoidstandup.xml",
        frame_skip: int = 5,
        default_camera_config: dict[str, Any] | None = STANDUP_CAMERA,
        uph_cost_weight: float = 1,
        ctrl_cost_weight: float = 0.1,
        impact_cost_weight: float = 0.5e-6,
        impact_cost_range: tuple[float, float] = (-np.inf, 10.0),
        reset_noise_scale: float = 1e-2,
        exclude_current_positions_from_observation: bool = True,
        include_cinert_in_observation: bool = True,
        include_cvel_in_observation: bool = True,
        include_qfrc_actuator_in_observation: bool = True,
        include_cfrc_ext_in_observation: bool = True,
        **kwargs: Any,
    ) -> None:
        # Gymnasium takes this weight and does not use it.
        self._uph_cost_weight = uph_cost_weight
        self._ctrl_cost_weight = ctrl_cost_weight
        super().__init__(
            xml_file,
            frame_skip,
            force_cost_weight=impact_cost_weight,
            force_cost_range=impact_cost_range,
            reset_noise_scale=reset_noise_scale,
            exclude_current_positions_from_observation=exclude_current_positions_from_observation,
            include_cinert_in_observation=include_cinert_in_observation,
            include_cvel_in_observation=include_cvel_in_observation,
            include_qfrc_actuator_in_observation=include_qfrc_actuator_in_observation,
            include_cfrc_ext_in_observation=include_cfrc_ext_in_observation,
            default_camera_config=default_camera_config,
            **kwargs,
        )

    def _reset_info(self) -> Info:
        qpos = self._agent.qpos
        return {
            "x_position": qpos[..., 0],
            "y_position": qpos[..., 1],
            "z_distance_from_origin": qpos[..., 2] - self.init_qpos[2],
            **self._tendon_info(),
        }

    def _judge(self, action: NDArray[Any], before: Any) -> Judgement:
        uph_cost = (self._agent.qpos[..., 2] - 0) / self._dt
        quad_ctrl_cost = self._ctrl_cost_weight * squared_sum(self._agent.ctrl)
        quad_impact_cost = self._force_cost()
        info = {
            **self._reset_info(),
            "reward_linup": uph_cost,
            "reward_quadctrl": -quad_ctrl_cost,
            "reward_impact": -quad_impact_cost,
        }
        return uph_cost - quad_ctrl_cost - quad_impact_cost + 1, False, info
