"""States and the model that they belong to: exact on the same one, refused on another."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

from superdex.envs import SceneEnv
from superdex.scenes import MujocoScene
from superdex.states._codec import decode
from superdex.states._env_state import EnvState, difference

SIDE = 160
XML = f"""<mujoco><asset><hfield name="terrain" nrow="{SIDE}" ncol="{SIDE}" size="4 4 1 0.1"/>
</asset><worldbody><geom type="hfield" hfield="terrain"/>
<body name="ball" pos="0 0 0.9"><freejoint/><geom size="0.1" mass="1"/></body></worldbody>
</mujoco>"""


class Terrain(SceneEnv):
    """A ball on a plateau of 100 KiB."""

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        self._setup_observation_space(where=Box(-10, 10, (7,)))
        self._setup_action_space(nothing=Box(-1, 1, (1,)))
        self._load_scene("terrain", lambda: (MujocoScene.from_xml_string(XML), None))

    def _draw_terrain(self):
        return np.full(SIDE * SIDE, self.np_random.uniform(0, 0.8))

    def _apply_action(self, action):
        pass

    def _make_observation(self):
        return {"where": self._scene.data.qpos}, {}

    def _compute_reward_terms(self, action, observation, info):
        return {}


class Written(Terrain):
    """Writes it into a model of its own."""

    def _reset_scene(self):
        self._scene.model.hfield_data[:] = self._draw_terrain()


class Drawn(Terrain):
    """Draws it as MuJoCo's field that varies."""

    varied_fields = ("hfield_data",)

    def _draw_physics(self):
        return {"hfield_data": self._draw_terrain()}


def run(env, steps=100):
    return np.array([env.step(np.zeros(1, np.float32))[0] for _ in range(steps)]).tobytes()


def test_a_state_is_refused_on_another_terrain():
    """Also of the environment itself, an episode later, with what to do; on the same it fits."""
    with Written(use_shared_scenes=False) as env, Written(use_shared_scenes=False) as other:
        env.reset(seed=0)
        tag = EnvState(env).tag()
        other.reset(seed=0)
        assert difference(EnvState(other).tag(), tag) is None
        for each, seed in ((other, 1), (env, 2)):
            each.reset(seed=seed)
            said = difference(EnvState(each).tag(), tag)
            assert said is not None
            assert "another model of the scene" in said
            assert "_draw_physics" in said


@pytest.mark.parametrize("shared", [True, False])
def test_a_terrain_that_varies_goes_with_the_state(shared):
    """An environment that rolls over another one goes on to the bit."""
    with Drawn(use_shared_scenes=shared) as env, Drawn() as other:
        env.reset(seed=0)
        run(env, 30)
        state, tag = EnvState(env), EnvState(env).tag()
        data = state.encode({"env": state.capture()})
        expected = run(env)
        other.reset(seed=1)
        run(other, 5)
        there = EnvState(other)
        assert difference(there.tag(), tag) is None
        tree = decode(data)["env"]
        there.check(tree)
        there.restore(tree)
        assert run(other) == expected


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5"])
def test_a_model_of_gymnasium_that_differs_a_little_is_another(name):
    """A state goes on to the bit or is refused."""
    make = partial(gym.make, name)
    one, other = make(), make()
    other.unwrapped.model.opt.gravity[2] += 1e-9
    said = difference(EnvState(one).tag(), EnvState(other).tag())
    assert said is not None
    assert "another model" in said
    one.close()
    other.close()
