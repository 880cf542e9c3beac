"""Environments that look at all that MuJoCo derives, in every hook."""

from __future__ import annotations

import mujoco
import numpy as np
from gymnasium.spaces import Box
from mujoco.batch import DATA_FIELDS

from superdex.envs import SceneEnv, StopReasons
from superdex.scenes import MujocoScene
from superdex.scenes._batch_data import _unwritten

# An arm on a cart, a box and a ball that fall on the floor: joints, sites, sensors of each stage,
# tendons, actuators with a state of their own, a camera, a light, a mocap body, and contacts.
XML = """
<mujoco>
  <option timestep="0.005" integrator="{integrator}"><flag energy="enable"/></option>
  <worldbody>
    <light name="lamp" pos="0 0 3" mode="trackcom"/>
    <geom type="plane" size="5 5 0.1"/>
    <body name="cart" pos="0 0 0.5">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size="0.1 0.1 0.05"/>
      <camera name="eye" pos="0 -2 0.5" mode="targetbody" target="box"/>
      <body name="arm" pos="0 0 0.05">
        <joint name="hinge" type="hinge" axis="0 1 0" stiffness="0.2"/>
        <geom type="capsule" size="0.04" fromto="0 0 0 0.4 0 0.1"/>
        <site name="tip" pos="0.4 0 0.1"/>
      </body>
    </body>
    <body name="box" pos="1 0 0.13"><freejoint/><geom type="box" size="0.1 0.12 0.09"/>
      <site name="top" pos="0 0 0.09"/></body>
    <body name="target" mocap="true" pos="-1 0 0.5"><geom size="0.05" contype="0"/></body>
    <body name="ball" pos="-1 0 0.5"><freejoint/><geom name="ball" size="0.08"/></body>
  </worldbody>
  <tendon>
    <fixed name="both"><joint joint="slide" coef="1"/><joint joint="hinge" coef="-0.5"/></fixed>
    {tendon}
  </tendon>
  <equality><weld body1="target" body2="ball"/></equality>
  <actuator>
    <general name="filtered" joint="hinge" dyntype="filter" dynprm="0.2" gainprm="3"/>
    <motor joint="slide"/><motor tendon="both" gear="0.3"/>
  </actuator>
  <sensor>
    <framepos objtype="site" objname="tip"/><framelinvel objtype="site" objname="tip"/>
    <accelerometer site="tip"/><touch site="top"/><jointpos joint="hinge"/>
    <actuatorfrc actuator="filtered"/><tendonpos tendon="both"/>{sensor}
  </sensor>
</mujoco>
"""
VARIANTS = {
    "Euler": {"integrator": "Euler", "tendon": "", "sensor": ""},
    "RK4": {"integrator": "RK4", "tendon": "", "sensor": '<subtreelinvel body="cart"/>'},
    "implicitfast": {
        "integrator": "implicitfast",
        "tendon": '<spatial name="rope"><site site="tip"/><site site="top"/></spatial>',
        "sensor": '<force site="tip"/><tendonvel tendon="rope"/>',
    },
}


def fields_of(variant: str) -> list[str]:
    """Return the fields of data that have a fixed size and that a batch has."""
    model = mujoco.MjModel.from_xml_string(XML.format(**VARIANTS[variant]))
    data = mujoco.MjData(model)
    partly = _unwritten(model)[1]
    names = {name for name in DATA_FIELDS if np.asarray(getattr(data, name)).size}
    return sorted(names - partly - {"plugin_data"})


def look(data: object, names: list[str], leading: tuple[int, ...]) -> np.ndarray:
    """Return all of some fields as one new array of bits, (*leading, size)."""
    parts = [np.asarray(getattr(data, n)).astype(np.float64).reshape(*leading, -1) for n in names]
    return np.concatenate(parts, axis=-1)


class Onlooker(SceneEnv):
    """Observes what each hook of the step saw; `first_look` is the first step that looks."""

    variant = "Euler"
    names: tuple[str, ...] = ()
    first_look = 0
    array_fields = ("seen_before", "seen_applying", "seen_rewarding", "seen_stopping", "count")

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        xml = XML.format(**VARIANTS[self.variant])
        self._load_scene(self.variant, lambda: (MujocoScene.from_xml_string(xml), None))
        size = look(self._scene.data, self.names, ()).size
        self._setup_action_space(push=Box(-1, 1, (self._scene.model.nu,)))
        self.sees = ("before", "applying", "observing", "rewarding", "stopping")
        self._setup_observation_space(
            **{name: Box(-np.inf, np.inf, (size,), np.float64) for name in self.sees}
        )
        self._forget()

    def _forget(self):
        nothing = np.zeros(self._observation_layout.size // 5)
        self.seen_before = self.seen_applying = self.seen_rewarding = nothing
        self.seen_stopping, self.count = nothing, 0.0

    def _reset_scene(self):
        data = self._scene.data
        data.qpos[:2] += self.np_random.uniform(-0.3, 0.3, 2)
        data.qvel[:] = self.np_random.uniform(-1, 1, data.qvel.shape)
        data.mocap_pos[:] += self.np_random.uniform(-0.1, 0.1, data.mocap_pos.shape)
        self._forget()

    def _look(self):
        data = self._scene.data
        leading = data.qpos.shape[:-1]
        size = self._observation_layout.size // 5
        looks = np.asarray(self.count >= self.first_look)
        if not looks.any():
            return np.zeros((*leading, size))
        return np.where(looks[..., np.newaxis], look(data, self.names, leading), 0.0)

    def _before_step(self):
        self.count = self.count + 1.0
        self.seen_before = self._look()

    def _apply_action(self, action):
        self.seen_applying = self._look()
        # A controller: bias forces and a pose decide what moves.
        data = self._scene.data
        data.ctrl[:] = action["push"]
        data.qfrc_applied[:] = 0.1 * data.qfrc_bias
        data.qfrc_applied[..., 0] -= data.site_xpos[..., 0, 2]

    def _make_observation(self):
        shape = np.shape(self._look())
        seen = {name: getattr(self, f"seen_{name}", None) for name in self.sees}
        seen["observing"] = self._look()
        return {name: np.broadcast_to(value, shape) for name, value in seen.items()}, {}

    def _compute_reward_terms(self, action, observation, info):
        self.seen_rewarding = self._look()
        return {"height": self._scene.data.site_xpos[..., 0, 2] * 1.0}

    def _check_stop_criteria(self, observation, info):
        self.seen_stopping = self._look()
        tilted = abs(self._scene.data.qpos[..., 1]) > 0.6
        return StopReasons.where(terminated={"Tilted": tilted})


def onlooker(variant: str = "Euler", *, names: list[str] | None = None, **attributes) -> type:
    """Return a class of environments that look at fields."""
    given = {"variant": variant, "names": names or fields_of(variant), **attributes}
    return type("Onlooker", (Onlooker,), given)
