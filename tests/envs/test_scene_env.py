"""The base class: hooks, turns on a scene, resets, ends, and what happens on failure."""

from __future__ import annotations

import gc
import logging
import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium.spaces import Box

from superdex.envs import SceneEnv, SceneEnvCfg, StopReasons
from superdex.errors import ClosedError, ResetNeeded, SceneMismatch, StateCaptureUnsupported
from superdex.scenes import MujocoScene, SceneManager
from superdex.vector import HybridVectorEnv

CART = """
<mujoco>
  <option timestep="0.01" gravity="0 0 -{gravity}"/>
  <worldbody>
    <geom type="plane" size="9 9 0.1"/>
    <body name="cart" pos="0 0 0.2">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <geom type="box" size="0.2 0.1 0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="x" gear="2"/><motor joint="z"/></actuator>
</mujoco>
"""


@dataclass(frozen=True, kw_only=True)
class CartEnvCfg(SceneEnvCfg):
    control_frequency: float = 20
    reset_noise_scale: float = 0.1
    gravity: float = 9.81
    finish: float = 1e9
    name_all: bool = True


class CartEnv(SceneEnv):
    """A box pushed over the floor; it records what is called."""

    cfg_class = CartEnvCfg
    fail_in: str | None = None

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        self.calls: list[str] = []
        self._setup_observation_space(
            velocity=Box(-np.inf, np.inf, (2,)), body=Box(-np.inf, np.inf, (1, 2))
        )
        self._setup_action_space(x=Box(-1, 1, (1,)), z=Box(-2, 2, (1,)))
        name = repr(self.cfg.gravity) if self.cfg.name_all else "cart"
        self._load_scene(name, self.build, fields={"gravity": self.cfg.gravity})

    def build(self):
        return MujocoScene.from_xml_string(CART.format(gravity=self.cfg.gravity)), "agent"

    def called(self, hook):
        self.calls.append(hook)
        if self.fail_in == hook:
            raise ArithmeticError(hook)

    def _reset_scene(self):
        self.called("reset")
        self._scene.data.qpos[0] += self.np_random.uniform(-1, 1) * self.cfg.reset_noise_scale

    def _before_step(self):
        self.called("before")
        self.x_before = float(self._scene.data.body("cart").xpos[0])

    def _apply_action(self, action):
        self.called("apply")
        self.last_action = {name: value.copy() for name, value in action.items()}
        self._scene.data.ctrl[:] = [action["x"][0], action["z"][0]]

    def _make_observation(self):
        self.called("observe")
        data = self._scene.data
        return {"velocity": data.qvel, "body": data.qpos.reshape(1, 2)}, {"time": data.time}

    def _compute_reward_terms(self, action, observation, info):
        self.called("reward")
        moved = float(self._scene.data.body("cart").xpos[0]) - self.x_before
        return {"moved": moved, "effort": -0.1 * float(action["x"][0] ** 2)}

    def _check_stop_criteria(self, observation, info):
        self.called("stop")
        if observation["body"][0, 0] > self.cfg.finish:
            return StopReasons(terminated="Finished")
        return StopReasons()

    def scene_time(self):
        return self._scene.data.time

    def position(self):
        return float(np.float32(self._scene.data.qpos[0]))

    @property
    def now(self):
        return self.position()


@pytest.fixture(autouse=True)
def _no_scene_left():
    yield
    gc.collect()
    assert SceneManager.get_instance("CartEnv").scene_count == 0


def push(env, num_steps, seed=0):
    """Return observations and rewards under seeded random actions."""
    rng = np.random.default_rng(seed)
    steps = [env.step(rng.uniform(-2, 2, 2).astype(np.float32)) for _ in range(num_steps)]
    return [(step[0].tolist(), *step[1:]) for step in steps]


def test_a_step_calls_the_hooks_in_order():
    """Before the step once, the action before every substep, then observe, reward, stop."""
    with CartEnv() as env:
        env.reset(seed=0)
        assert env.calls == ["reset", "observe"]
        env.calls.clear()
        env.step(np.zeros(2, np.float32))
        assert env.calls == ["before", *["apply"] * 5, "observe", "reward", "stop"]


def test_spaces_are_flattened_in_alphabetical_order():
    """The flat observation is body, then velocity; actions reach the hook clipped and by name."""
    with CartEnv() as env:
        env.reset(seed=0)
        observation, *_ = env.step(np.array([3.0, -1.5], np.float32))
        assert env.last_action["x"].tolist() == [1.0]
        assert env.last_action["z"].tolist() == [-1.5]
        named = env.to_structured_observation(observation)
        assert list(named) == ["body", "velocity"]
        assert named["body"].shape == (1, 2)
        assert np.array_equal(env.to_observation(named), observation)
        assert observation.dtype == np.float32
        assert env.action_space.shape == (2,)


def test_the_reward_is_the_sum_of_its_terms():
    """Each term goes to the info."""
    with CartEnv() as env:
        env.reset(seed=0)
        _, reward, _, _, info = env.step(np.ones(2, np.float32))
        assert reward == info["reward_moved"] + info["reward_effort"]
        assert type(reward) is float


def test_returned_observations_are_the_callers():
    """A later step does not rewrite an earlier observation."""
    with CartEnv() as env:
        first, _ = env.reset(seed=0)
        kept = first.copy()
        push(env, 3)
        assert np.array_equal(first, kept)


def test_an_end_says_why():
    """The reasons are in the info where the flags are set, and nowhere else."""
    with CartEnv(gravity=0.5, finish=0.2, steps_per_episode=30) as env:
        env.reset(seed=0)
        for _ in range(30):
            *_, terminated, truncated, info = env.step(np.array([1, 0], np.float32))
            assert ("terminated_reason" in info) == terminated
            assert ("truncated_reason" in info) == truncated
            if terminated:
                break
        assert info["terminated_reason"] == "Finished"
    with CartEnv(steps_per_episode=4) as env:
        for _ in range(2):
            env.reset()
            outcomes = push(env, 4)
            assert [outcome[3] for outcome in outcomes] == [False, False, False, True]
            assert outcomes[-1][4]["truncated_reason"] == "time limit"


@pytest.mark.parametrize("num_envs", [1, 4])
def test_shared_and_own_scenes_give_the_same_steps(num_envs):
    """Sharing changes no bit, though the reward reads xpos before the step."""
    shared = [CartEnv() for _ in range(num_envs)]
    alone = [CartEnv(use_shared_scenes=False) for _ in range(num_envs)]
    for envs in (shared, alone):
        for seed, env in enumerate(envs):
            env.reset(seed=seed)
    for turn in range(20):
        for index in range(num_envs):
            assert push(shared[index], 2, turn) == push(alone[index], 2, turn)
    for env in (*shared, *alone):
        env.close()


def test_the_scene_is_built_once_and_outlives_its_builder():
    """Siblings find it; it goes with the last of them, whichever was first."""
    builder, sibling = CartEnv(), CartEnv()
    manager = SceneManager.get_instance("CartEnv")
    assert manager.scene_info == {"9.81": 2}
    assert builder._scene is sibling._scene
    assert sibling._agent == "agent"
    builder.close()
    builder.close()
    assert manager.scene_info == {"9.81": 1}
    sibling.reset(seed=0)
    push(sibling, 3)
    sibling.close()
    assert manager.scene_count == 0


def test_unshared_scenes_leave_the_manager_empty():
    """They are closed with their environment, clean-up first."""
    log = []

    class Cleaning(CartEnv):
        def build(self):
            return (*super().build(), [lambda: log.append("one"), lambda: log.append("two")])

    env = Cleaning(use_shared_scenes=False)
    assert SceneManager.get_instance("Cleaning").scene_count == 0
    scene = env._scene
    env.close()
    assert log == ["two", "one"]
    with pytest.raises(ClosedError):
        scene.step(0.01)


def test_another_construction_under_one_name_is_refused():
    """A field that the name leaves out raises instead of sharing silently."""
    with CartEnv(name_all=False), pytest.raises(SceneMismatch, match=r"gravity=9\.81 \(now 1\.0\)"):
        CartEnv(name_all=False, gravity=1.0)
    assert SceneManager.get_instance("CartEnv").scene_count == 0


def test_two_classes_never_share():
    """One scene name in two classes is two scenes, even where the classes have one name."""
    twin = type("CartEnv", (CartEnv,), {})
    with CartEnv() as first, twin() as second:
        assert first.scene_name == second.scene_name
        assert first._scene is not second._scene


def test_a_builder_that_fails_leaves_nothing():
    """The next environment builds anew."""

    class Broken(CartEnv):
        def build(self):
            raise OSError("no file")

    for _ in range(2):
        with pytest.raises(OSError, match="no file"):
            Broken()
    assert SceneManager.get_instance("Broken").scene_count == 0


def test_a_builder_must_return_scene_and_agent():
    """Anything else is an error that says what is expected."""

    class Forgetful(CartEnv):
        def build(self):
            return super().build()[0]

    with pytest.raises(TypeError, match=r"returns \(scene, agent\) .* got MujocoScene"):
        Forgetful()


class StubbornScene(MujocoScene):
    def capture_state(self):
        raise StateCaptureUnsupported(
            "State capture is not supported for scenes with plugin actors."
        )


def test_a_scene_that_cannot_be_captured_works_unshared_only():
    """Sharing it is refused; alone it resets and steps."""

    class Stubborn(CartEnv):
        def build(self):
            return StubbornScene(super().build()[0].model), None

    with pytest.raises(StateCaptureUnsupported):
        Stubborn()
    with Stubborn(use_shared_scenes=False) as env:
        first = env.reset(seed=3)[0]
        push(env, 5)
        assert np.array_equal(env.reset(seed=3)[0], first)


def test_reset_depends_on_the_seed_alone():
    """The same seed gives the same next 20 steps fresh, after steps, after a sibling's failure."""
    with CartEnv() as fresh:
        fresh.reset(seed=5)
        expected = push(fresh, 20)
    with CartEnv() as env, CartEnv() as sibling:
        env.reset(seed=1)
        push(env, 100, seed=9)
        env.reset(seed=5)
        assert push(env, 20) == expected
        sibling.reset(seed=2)
        sibling.fail_in = "reward"
        with pytest.raises(ArithmeticError):
            push(sibling, 1)
        env.reset(seed=5)
        assert push(env, 20) == expected
        sibling.fail_in = None
        sibling.reset(seed=5)
        assert push(sibling, 20) == expected


@pytest.mark.parametrize("hook", ["before", "apply", "observe", "reward", "stop"])
def test_a_failing_hook_harms_nobody(hook):
    """A sibling goes on as if nothing had been, and so does the one that failed."""
    with CartEnv() as env, CartEnv() as sibling, CartEnv() as reference:
        for each in (env, sibling, reference):
            each.reset(seed=1)
            push(each, 5)
        env.fail_in = hook
        with pytest.raises(ArithmeticError, match=hook):
            push(env, 1, seed=3)
        env.fail_in = None
        expected = push(reference, 10)
        assert push(sibling, 10) == expected
        assert push(env, 10) == expected


def test_resets_without_a_seed_differ_and_follow_the_first_seed():
    """The generator is the environment's own."""
    with CartEnv() as env:
        first = [env.reset(seed=4)[0][0], env.reset()[0][0], env.reset()[0][0]]
        assert len(set(first)) == 3
        push(env, 10)
        assert [env.reset(seed=4)[0][0], env.reset()[0][0], env.reset()[0][0]] == first


def test_reset_options_reach_the_hook():
    """They are those of the last reset."""
    seen = []

    class Optional(CartEnv):
        def _reset_scene(self):
            seen.append(self.reset_options)

    with Optional() as env:
        env.reset(options={"task": 3})
        env.reset()
    assert seen == [{"task": 3}, {}]


@pytest.mark.parametrize("action", [np.full(2, np.nan), np.array([0, np.inf])])
def test_an_action_that_is_not_finite_is_refused(action):
    """Nothing has moved afterwards."""
    with CartEnv() as env:
        env.reset(seed=0)
        with pytest.raises(ValueError, match="The action must be finite"):
            env.step(action)
        with env.own_state():
            assert env.scene_time() == 0


def test_an_action_of_another_shape_is_refused():
    """The message has both shapes."""
    with CartEnv() as env:
        env.reset(seed=0)
        with pytest.raises(ValueError, match=r"must have shape \(2,\), got \(3,\)"):
            env.step(np.zeros(3))


def test_an_observation_of_other_names_or_shapes_is_refused_at_reset():
    """What a hook returns is checked against what was declared."""

    class Misnamed(CartEnv):
        def _make_observation(self):
            return {"velocity": self._scene.data.qvel, "boddy": [0, 0]}, {}

    class Misshapen(CartEnv):
        def _make_observation(self):
            return {"velocity": self._scene.data.qvel[:1], "body": np.zeros((1, 2))}, {}

    with Misnamed() as env, pytest.raises(ValueError, match=r"\['body', 'velocity'\], got"):
        env.reset()
    with Misshapen() as env, pytest.raises(ValueError, match=r"'velocity' must have shape \(2,\)"):
        env.reset()


def test_stepping_too_early_or_too_late_says_so():
    """Before the first reset, after close, and without a scene."""
    env = CartEnv()
    with pytest.raises(ResetNeeded, match="CartEnv was never reset"):
        env.step(np.zeros(2))
    env.close()
    for use in (env.reset, lambda: env.step(np.zeros(2))):
        with pytest.raises(ClosedError, match="CartEnv is closed"):
            use()
    with pytest.raises(RuntimeError, match=r"no scene; call _load_scene\(\)"):
        SceneEnv().reset()


def test_a_scene_not_loaded_by_load_scene_warns_at_reset():
    """It works, unshared; with sharing off there is no warning."""

    class ByHand(CartEnv):
        def _load_scene(self, name, builder, *, fields=None):
            self._scene, self._agent = builder()

    with ByHand() as env:
        with pytest.warns(RuntimeWarning, match=r"did not load its scene through _load_scene\(\)"):
            env.reset(seed=1)
        moved = push(env, 5)
    with CartEnv() as other:
        other.reset(seed=1)
        assert push(other, 5) == moved
    with warnings.catch_warnings(), ByHand(use_shared_scenes=False) as env:
        warnings.simplefilter("error")
        env.reset(seed=1)
        assert push(env, 5) == moved


def test_own_state_shows_and_keeps_ones_own():
    """Inside, the scene is this environment's; a look leaves no trace, a change stays."""
    with CartEnv() as env, CartEnv() as sibling, CartEnv() as reference:
        for each in (env, sibling, reference):
            each.reset(seed=1)
            push(each, 5)
        push(sibling, 3)
        with env.own_state():
            assert env.scene_time() == pytest.approx(0.25)
            position = env._scene.data.body("cart").xpos[0]
            assert position == pytest.approx(env._scene.data.qpos[0])
        assert push(env, 5) == push(reference, 5)
        with env.own_state():
            env._scene.data.qvel[0] = 3.0
        push(sibling, 2)
        assert push(env, 1)[0][0][2] > 1 > abs(push(reference, 1)[0][0][2])


def test_own_state_before_the_first_reset_is_the_initial_one():
    """And it takes no reset's place."""
    with CartEnv() as sibling, CartEnv() as env:
        sibling.reset(seed=1)
        push(sibling, 5)
        with env.own_state():
            assert env.scene_time() == 0
        with pytest.raises(ResetNeeded):
            env.step(np.zeros(2))


def test_steps_within_own_state_go_on_from_there():
    """A method that changes the state and steps works as without sharing."""
    results = []
    for shared in (True, False):
        with CartEnv(use_shared_scenes=shared) as env, CartEnv(use_shared_scenes=shared) as other:
            env.reset(seed=1)
            other.reset(seed=2)
            with env.own_state():
                env._scene.data.qvel[0] = 1.0
                inside = push(env, 2)
                with env.own_state():
                    assert env.scene_time() == pytest.approx(0.1)
            push(other, 2)
            results.append((inside, push(env, 2)))
    assert results[0] == results[1]


def test_closing_within_own_state_closes():
    """A look that ends the environment leaves the scene to its siblings, without its state."""
    with CartEnv() as sibling:
        env = CartEnv()
        env.reset(seed=0)
        sibling.reset(seed=1)
        with env.own_state():
            env.close()
        assert len(sibling._scene._states) == 2
        push(sibling, 1)
        with sibling.own_state():
            sibling.close()


def test_a_limit_stays_reached():
    """Steps beyond it are truncated too, as Gymnasium's TimeLimit has it."""
    with CartEnv(steps_per_episode=2) as env:
        env.reset(seed=0)
        assert [outcome[3] for outcome in push(env, 4)] == [False, True, True, True]


def test_calls_through_the_vector_find_each_environments_own_state():
    """call() and get_attr() show what the environment itself would show."""
    with HybridVectorEnv([CartEnv] * 3, num_envs_per_worker=3, in_process=True) as env:
        observations, _ = env.reset(seed=0)
        for _ in range(4):
            observations, *_ = env.step(env.action_space.sample())
            assert env.call("position") == tuple(observations[:, 0].tolist())
            assert env.get_attr("now", indices=[2, 0]) == (observations[2, 0], observations[0, 0])


def test_two_threads_on_one_scene_are_refused():
    """A sibling stepped amid a step raises; afterwards both go on."""
    errors = []

    class Nosy(CartEnv):
        sibling = None

        def _compute_reward_terms(self, action, observation, info):
            if self.sibling is not None:
                thread = threading.Thread(target=self.meddle)
                thread.start()
                thread.join()
            return {}

        def meddle(self):
            try:
                self.sibling.step(np.zeros(2, np.float32))
            except RuntimeError as error:
                errors.append(str(error))

    with Nosy() as env, Nosy() as sibling:
        env.reset(seed=0)
        sibling.reset(seed=0)
        env.sibling = sibling
        push(env, 1)
        push(sibling, 1)
    assert len(errors) == 1
    assert "Another environment is using the scene" in errors[0]


def test_one_thread_after_another_is_fine():
    """An environment belongs to no thread."""
    with CartEnv() as env, CartEnv() as reference:
        for each in (env, reference):
            each.reset(seed=0)
        moved = []
        thread = threading.Thread(target=lambda: moved.extend(push(env, 3)))
        thread.start()
        thread.join()
        assert moved == push(reference, 3)


def test_a_dropped_environment_gives_its_share_back():
    """Garbage collection does what close() was not asked to."""
    env = CartEnv()
    env.reset(seed=0)
    del env
    gc.collect()
    assert SceneManager.get_instance("CartEnv").scene_count == 0


def test_states_are_given_back():
    """An environment holds one state while it lives and none after."""
    with CartEnv() as first:
        scene = first._scene
        first.reset()
        held = len(scene._states)
        with CartEnv() as second:
            second.reset()
            push(second, 5)
            assert len(scene._states) == held + 1
        assert len(scene._states) == held


def test_profile_tells_where_the_time_went(caplog):
    """Every phase is timed, the results are the same, and the report is logged at the end."""
    caplog.set_level(logging.INFO)
    with CartEnv() as plain, CartEnv(profile=True) as env:
        plain.reset(seed=0)
        env.reset(seed=0)
        assert push(env, 4) == push(plain, 4)
        assert env.timings["physics"].calls == 20
        assert env.timings["_apply_action"].calls == 20
        assert env.timings["restore state"].calls == 5
        assert plain.timings == {}
        assert "make it with profile=True" in plain.timing_report()
    assert "CartEnv: where the time went" in caplog.text
    assert "physics" in caplog.text


def test_missing_hooks_are_named():
    """An unwritten hook says its name."""
    for hook, arguments in {
        "_apply_action": [{}],
        "_make_observation": [],
        "_compute_reward_terms": [{}, {}, {}],
    }.items():
        with pytest.raises(NotImplementedError, match=f"SceneEnv must define {hook}"):
            getattr(SceneEnv(), hook)(*arguments)
