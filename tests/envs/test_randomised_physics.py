"""Model fields that each environment has values of its own for, on one scene."""

from __future__ import annotations

from functools import partial

import mujoco
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv
from superdex.errors import SceneMismatch
from superdex.scenes import SceneManager
from superdex.scenes._variation import Variations
from superdex.testing import PlainLoop, check_array_hooks, check_equivalence, check_scene_env
from superdex.vector import HybridVectorEnv


class VariedCartPole(CartPoleEnv):
    """A cart-pole of any mass, on any planet."""

    varied_fields = ("body_mass", "opt.gravity", "dof_damping")

    def _draw_physics(self):
        model = self._scene.model
        return {
            "body_mass": model.body_mass * self.np_random.uniform(0.5, 2, model.nbody),
            "opt.gravity": [0, 0, self.np_random.uniform(-15, -2)],
            "dof_damping": model.dof_damping * self.np_random.uniform(0.1, 4),
        }


class VariedAnt(AntEnv):
    """An ant on floors of differing friction; without a draw, on the model's own."""

    varied_fields = ("geom_friction", "body_mass")

    def _draw_physics(self):
        if self.np_random.random() < 0.3:
            return {}
        scale = self.np_random.uniform(0.2, 2)
        return {"geom_friction": self._scene.model.geom_friction * [scale, 1, 1]}


class Floating(CartPoleEnv):
    """A pole that floats in some episodes: nought in the model, by a flag that MuJoCo sets."""

    varied_fields = ("body_gravcomp", "geom_margin")

    def _draw_physics(self):
        if self.np_random.random() < 0.5:
            return {}
        return {"body_gravcomp": self.np_random.uniform(0, 1, self._scene.model.nbody)}


class Misspelt(HalfCheetahEnv):
    varied_fields = ("body_maas",)


CLASSES = [
    partial(VariedCartPole, steps_per_episode=9),
    partial(VariedAnt, observe_contacts=False, steps_per_episode=7),
    partial(Floating, steps_per_episode=8),
]


@pytest.mark.parametrize("factory", CLASSES)
def test_one_by_one_and_at_once_are_the_same(factory):
    """In every autoreset mode; each episode has values of its own."""
    check_array_hooks(factory, num_steps=30)


@pytest.mark.parametrize("factory", [*CLASSES, partial(VariedAnt, steps_per_episode=7)])
def test_shared_and_unshared_scenes_are_the_same(factory):
    """To the bit, whoever else is on the scene."""
    actions = np.random.default_rng(0).uniform(-1, 1, (25, 3, 8)).astype(np.float32)
    shared = [PlainLoop(factory(), AutoresetMode.NEXT_STEP) for _ in range(3)]
    alone = [PlainLoop(factory(use_shared_scenes=False), AutoresetMode.NEXT_STEP) for _ in range(3)]
    for index, (one, other) in enumerate(zip(shared, alone, strict=True)):
        assert_same(one.reset(seed=index), other.reset(seed=index))
    for step in actions:
        for index, (one, other) in enumerate(zip(shared, alone, strict=True)):
            action = step[index, : one.env.action_space.shape[0]]
            assert_same(one.step(action), other.step(action))
    for loop in shared + alone:
        loop.env.close()


def assert_same(one, other):
    np.testing.assert_array_equal(one.observation, other.observation)
    assert (one.reward, one.terminated, one.truncated) == (
        other.reward,
        other.terminated,
        other.truncated,
    )


@pytest.mark.parametrize("factory", CLASSES)
def test_the_check_of_environments_passes(factory):
    """What varies is no change of the model."""
    check_scene_env(factory)


def test_workers_give_the_same():
    """However environments are split."""
    check_equivalence([CLASSES[0]] * 8, [(2, 4), (4, 2)], num_steps=20)


def test_a_field_that_a_batch_has_once_is_named_in_a_warning():
    """The environments are stepped one by one then, with the same results."""

    class Reshaped(CartPoleEnv):
        varied_fields = ("mesh_vert",)

    reason = "mesh_vert, which varied_fields names, is common to all simulations of a batch"
    with HybridVectorEnv([Reshaped] * 4, num_workers=1, in_process=True) as envs:
        with pytest.warns(UserWarning, match=reason):
            envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        assert envs.statistics().steps_at_once == (False,)


def test_the_values_make_a_difference():
    """Two environments part that begin alike."""
    heavy, light = VariedCartPole(), VariedCartPole()
    heavy.reset(seed=1)
    light.reset(seed=2)
    masses = []
    for env in (heavy, light):
        with env.own_state():
            masses.append(env._scene.model.body_mass.copy())
    assert (masses[0] != masses[1]).any()
    heavy.close()
    light.close()


def test_a_look_from_outside_sees_the_environments_own_values():
    """And the model is as it was built for all others."""
    env, other = VariedAnt(observe_contacts=False), VariedAnt(observe_contacts=False)
    seed = next(s for s in range(99) if np.random.default_rng(s).random() >= 0.3)
    env.reset(seed=seed)
    with env.own_state():
        own = env._scene.model.geom_friction[0, 0]
    with other.own_state():
        assert other._scene.model.geom_friction[0, 0] == 1.0
    assert own != 1.0
    env.close()
    other.close()


def test_the_model_is_still_protected():
    """A change of another field is found, and varied ones stay."""

    class Cheat(VariedCartPole):
        def _reset_scene(self):
            super()._reset_scene()
            self._scene.model.geom_size[:] *= 2

    env = Cheat()
    with pytest.raises(SceneMismatch, match="geom_size"):
        env.reset(seed=0)
    env.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"geom_size": 1.0}, "not among the environment's varied_fields"),
        ({"body_mass": [1.0, 2.0]}, r"body_mass must fit the shape \(3,\), got \(2,\)"),
        ({"body_mass": np.nan}, "body_mass must be finite"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, message):
    """With what is wrong."""

    class Wrong(VariedCartPole):
        def _draw_physics(self):
            return values

    env = Wrong()
    with pytest.raises(ValueError, match=message):
        env.reset(seed=0)
    env.close()


def test_a_field_that_there_is_not_is_refused():
    """At the first reset."""
    env = Misspelt()
    with pytest.raises(ValueError, match=r"varied_fields must name arrays .* got 'body_maas'"):
        env.reset(seed=0)
    env.close()


@pytest.mark.parametrize("file", ["ant.xml", "half_cheetah.xml", "cartpole.xml"])
def test_everything_that_mujoco_derives_goes_back(file):
    """After a variation the model is as it was built, in every array and number."""
    from superdex.envs._model_env import _mjcf
    from superdex.scenes._guard import ModelGuard

    model = mujoco.MjModel.from_xml_string(_mjcf(file))
    variations = Variations(model, ["body_mass", "dof_armature", "body_pos", "actuator_gear"])
    guard = ModelGuard(model)
    values = {
        name: np.random.default_rng(0).uniform(0.5, 2, getattr(model, name).shape)
        for name in variations.names
    }
    first = variations.derive(values)
    fresh = mujoco.MjModel.from_xml_string(_mjcf(file))
    for name, value in values.items():
        getattr(fresh, name)[...] = value
    mujoco.mj_setConst(fresh, mujoco.MjData(fresh))
    for name in ("body_subtreemass", "dof_invweight0", "dof_M0", "actuator_acc0"):
        np.testing.assert_array_equal(getattr(model, name), getattr(fresh, name))
    assert model.stat.meaninertia == fresh.stat.meaninertia
    variations.apply(None)
    assert guard.undo_changes(thorough=True) == []
    variations.apply(first)
    assert model.stat.meaninertia == fresh.stat.meaninertia


def test_nothing_is_left():
    """The scene goes with its last environment."""
    env = VariedCartPole()
    env.reset(seed=0)
    env.close()
    assert SceneManager.get_instance("VariedCartPole").scene_count == 0
