"""What one environment does to a scene, its model and its reference, and what the others notice."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium.spaces import Box

from superdex.envs import CartPoleEnv, CartPoleEnvCfg, SceneEnv, StopReasons
from superdex.errors import SceneMismatch, WorkerRaised
from superdex.scenes import MujocoScene, SceneManager, live_scene_count
from superdex.testing import check_scene_name
from superdex.vector import HybridVectorEnv
from tests.envs.test_scene_env import CartEnv, push

NO_ACTION = np.zeros(2, np.float32)


class HeavyCart(CartEnv):
    """Writes into the model where it is told to."""

    change_in: str | None = None

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        if self.change_in == "constructor":
            self.load(5.0)

    def load(self, mass):
        self._scene.model.body("cart").mass[:] = mass

    def mass(self):
        return float(self._scene.model.body("cart").mass[0])

    def _reset_scene(self):
        super()._reset_scene()
        if self.change_in == "reset":
            self.load(5.0)

    @property
    def gravity(self):
        return float(self._scene.model.opt.gravity[2])

    @gravity.setter
    def gravity(self, value):
        self._scene.model.opt.gravity[2] = value


@pytest.fixture(autouse=True)
def _no_scene_left():
    gc.collect()
    before = live_scene_count()
    yield
    gc.collect()
    assert live_scene_count() == before


def test_a_model_changed_at_reset_is_refused_and_put_back():
    """The sibling steps as if nothing had been tried, and so does the environment itself."""
    with HeavyCart() as env, HeavyCart() as sibling, HeavyCart(use_shared_scenes=False) as alone:
        for each in (env, sibling, alone):
            each.reset(seed=0)
        env.change_in = "reset"
        with pytest.raises(SceneMismatch, match=r"changed in body_mass; .*use_shared_scenes=False"):
            env.reset(seed=1)
        assert env.mass() == 1.0
        expected = push(alone, 5)
        assert push(sibling, 5) == expected
        assert push(env, 5) == expected


def test_a_model_changed_by_a_constructor_is_refused():
    """By the next environment that finds the scene, or by the next reset."""

    class Loaded(HeavyCart):
        change_in = "constructor"

    first = Loaded()
    with pytest.raises(SceneMismatch, match="changed in body_mass"):
        Loaded()
    assert first.mass() == 1.0
    first.load(3.0)
    with pytest.raises(SceneMismatch, match="changed in body_mass"):
        first.reset(seed=0)
    assert first.mass() == 1.0
    first.close()


def test_a_model_changed_within_own_state_is_refused():
    """Changes to the state that were made beside it stay."""
    with HeavyCart() as env, HeavyCart() as sibling:
        env.reset(seed=0)
        sibling.reset(seed=0)

        def change() -> None:
            with env.own_state():
                env._scene.data.qpos[0] = 3.0
                env.gravity = 0.0

        with pytest.raises(SceneMismatch, match=r"changed in opt\.gravity"):
            change()
        assert env.gravity == pytest.approx(-9.81)
        with env.own_state():
            assert env._scene.data.qpos[0] == 3.0


def test_a_model_changed_by_a_call_through_the_vector_is_refused():
    """call() and set_attr() fail by name, and the vector stays usable."""
    with HybridVectorEnv([HeavyCart] * 2, num_envs_per_worker=2, in_process=True) as envs:
        envs.reset(seed=0)
        for attempt in (
            lambda: envs.call("load", 5.0, indices=[0]),
            lambda: envs.set_attr("gravity", [0.0], indices=[0]),
        ):
            with pytest.raises(WorkerRaised, match="model of a shared scene was changed") as raised:
                attempt()
            assert isinstance(raised.value.__cause__, SceneMismatch)
        assert envs.call("mass") == (1.0, 1.0)
        envs.step(envs.action_space.sample())


def test_an_environments_own_model_may_be_changed():
    """Without sharing it harms nobody."""

    class Loaded(HeavyCart):
        change_in = "constructor"

    with Loaded(use_shared_scenes=False) as env:
        env.change_in = "reset"
        env.reset(seed=0)
        with env.own_state():
            env.gravity = 0.0
        env.step(NO_ACTION)
        assert (env.mass(), env.gravity) == (5.0, 0.0)


@pytest.mark.parametrize("use_shared_scenes", [True, False])
def test_a_reset_may_read_derived_quantities(use_shared_scenes):
    """They are those of the initial state, on a new scene and after any number of steps."""

    class ReadsAtReset(CartEnv):
        def _reset_scene(self):
            data = self._scene.data
            self.seen = [data.geom_xpos.copy(), data.xpos.copy(), data.subtree_com.copy()]
            super()._reset_scene()

    with ReadsAtReset(use_shared_scenes=use_shared_scenes) as env:
        env.reset(seed=0)
        first = env.seen
        assert first[1][1].tolist() == [0.0, 0.0, 0.2]
        push(env, 10)
        env.reset(seed=0)
        assert all(map(np.array_equal, first, env.seen))


def test_infos_are_the_callers():
    """Arrays of the scene, nested ones too, are copied out of the way of later steps."""

    class ShowsArrays(CartEnv):
        def _make_observation(self):
            observation, _ = super()._make_observation()
            qpos = self._scene.data.qpos
            return observation, {"qpos": qpos, "all": {"list": [qpos], "pair": (qpos, 1)}}

        def _compute_reward_terms(self, action, observation, info):
            return {"place": self._scene.data.qpos[:1]}

    with ShowsArrays() as env, ShowsArrays() as sibling:
        _, first = env.reset(seed=0)
        sibling.reset(seed=1)
        *_, reward, _, _, second = env.step(np.ones(2, np.float32))
        infos = [first, second]
        kept = copy.deepcopy(infos)
        push(env, 3)
        push(sibling, 3)
        for info, as_it_was in zip(infos, kept, strict=True):
            assert np.array_equal(info["qpos"], as_it_was["qpos"])
            assert np.array_equal(info["all"]["list"][0], as_it_was["all"]["list"][0])
            assert np.array_equal(info["all"]["pair"][0], as_it_was["all"]["pair"][0])
        assert second["reward_place"] == reward == second["qpos"][0]


def test_a_reward_term_is_one_number():
    """An array of one is a number; one of several is refused by name."""

    class Pays(CartEnv):
        def _compute_reward_terms(self, action, observation, info):
            return {"pay": np.ones(self.size)}

    with Pays() as env:
        env.reset(seed=0)
        env.size = 1
        assert env.step(NO_ACTION)[1] == 1.0
        env.size = 2
        with pytest.raises(ValueError, match=r"term 'pay' must be one number, got shape \(2,\)"):
            env.step(NO_ACTION)


@pytest.mark.parametrize(
    ("stop", "key", "reason"),
    [
        (StopReasons(terminated=""), "terminated_reason", "terminated"),
        (StopReasons(truncated=""), "truncated_reason", "time limit"),
    ],
)
def test_an_empty_reason_becomes_a_plain_one(stop, key, reason):
    """An end without words is an end all the same."""

    class Ends(CartEnv):
        def _check_stop_criteria(self, observation, info):
            return stop

    with Ends() as env:
        env.reset(seed=0)
        *_, terminated, truncated, info = env.step(NO_ACTION)
        assert terminated != truncated
        assert info[key] == reason


def test_a_reason_that_is_no_string_is_refused():
    """False is not taken for an end that has happened."""

    class Ends(CartEnv):
        def _check_stop_criteria(self, observation, info):
            return StopReasons(terminated=False)

    with Ends() as env:
        env.reset(seed=0)
        with pytest.raises(TypeError, match="must be a string, or None to go on, got False"):
            env.step(NO_ACTION)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(duplicate):
    """A copy, when dropped, would give back a reference that it never took."""
    with CartPoleEnv() as env:
        env.reset(seed=0)
        with pytest.raises(TypeError, match="CartPoleEnv can't be copied or pickled"):
            duplicate(env)
        gc.collect()
        env.step(np.zeros(1, np.float32))


def test_a_state_that_cannot_be_released_keeps_no_scene():
    """close() says so, and the reference is given back all the same."""
    env = CartEnv()
    env.reset(seed=0)
    env._scene.close()
    with pytest.raises(ValueError, match="The scene is closed"):
        env.close()
    assert SceneManager.for_class(CartEnv).scene_count == 0
    with CartEnv() as another:
        another.reset(seed=0)


def test_threads_that_build_at_once_share_one_scene():
    """The builder runs once; the last one to close takes the scene along."""
    built = []

    class Slow(CartEnv):
        def build(self):
            built.append(threading.get_ident())
            time.sleep(0.05)
            return super().build()

    envs = []
    threads = [threading.Thread(target=lambda: envs.append(Slow())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(envs) == 4
    assert len(built) == 1
    assert len({id(env._scene) for env in envs}) == 1
    for env in envs:
        env.reset(seed=0)
        env.close()


@pytest.mark.parametrize("use_shared_scenes", [True, False])
def test_a_builder_may_return_none_for_clean_ups(use_shared_scenes):
    """Shared or not."""

    class NoCleanUps(CartEnv):
        def build(self):
            return (*super().build(), None)

    NoCleanUps(use_shared_scenes=use_shared_scenes).close()


@pytest.mark.parametrize("use_shared_scenes", [True, False])
def test_what_a_builder_returns_is_checked(use_shared_scenes):
    """Something else than a scene, or a clean-up that can't be called, is refused at once."""
    scenes = []

    class Builds(SceneEnv):
        def __init__(self, third=None, scene=None, **overrides):
            super().__init__(None, **overrides)
            self._setup_observation_space(x=Box(-1, 1, (1,)))
            self._load_scene("a", lambda: (scene, None, third))

    with pytest.raises(TypeError, match=r"methods of superdex\.scenes\.Scene, got NoneType"):
        Builds(use_shared_scenes=use_shared_scenes)
    for third in (5, [5]):
        scene = MujocoScene.from_xml_string("<mujoco/>")
        scenes.append(scene)
        with pytest.raises(TypeError, match="must be a sequence of functions"):
            Builds(third, scene, use_shared_scenes=use_shared_scenes)
        with pytest.raises(ValueError, match="closed"):
            scene.capture_state()


@dataclass(frozen=True, kw_only=True)
class MassCfg(CartPoleEnvCfg):
    mass: float = 1.0


def test_a_subclass_that_forgets_a_field_of_its_own_is_found():
    """By check_scene_name; with the field in name and fields it passes."""

    class Forgets(CartPoleEnv):
        cfg_class = MassCfg

        def _edit_model(self, spec):
            super()._edit_model(spec)
            spec.body("pole").mass = self.cfg.mass
            spec.body("pole").explicitinertial = True
            spec.body("pole").inertia = [0.1, 0.1, 0.1]

    class Remembers(Forgets):
        def _load_scene(self, name, builder, *, fields=None):
            mass = self.cfg.mass
            fields = {**fields, "mass": mass}
            return super()._load_scene(f"{name} {mass!r}", builder, fields=fields)

    configs = [{"mass": 1.0}, {"mass": 2.0}]
    check_scene_name(Remembers, configs)
    with pytest.raises(AssertionError, match=r"share the scene name .* differ in .*body_mass"):
        check_scene_name(Forgets, configs)
