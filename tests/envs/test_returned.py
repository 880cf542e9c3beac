"""Hooks that return the wrong thing: named with class, hook, what came and what is expected."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from superdex.envs import SceneEnv, StopReasons
from superdex.errors import WorkerRaised
from superdex.scenes import MujocoScene
from superdex.vector import HybridVectorEnv

BALL = """<mujoco><worldbody><body name="ball"><joint name="x" type="slide" axis="1 0 0"/>
<geom size="0.1" mass="1"/></body></worldbody><actuator><motor joint="x"/></actuator></mujoco>"""


class Ball(SceneEnv):
    """A ball whose hooks can be told what to return."""

    array_hooks = True
    varied_fields = ("body_mass",)
    agent_from_builder = False

    def __init__(self, returns=None, **overrides):
        super().__init__({"control_frequency": 10, **overrides})
        self.returns = returns or {}
        self._setup_observation_space(position=Box(-10, 10, (1,)), speed=Box(-10, 10, (1,)))
        self._setup_action_space(force=Box(-1, 1, (1,)))
        agent_of = (lambda scene: scene.data) if self.agent_from_builder else (lambda scene: None)

        def build():
            scene = MujocoScene.from_xml_string(BALL)
            return scene, agent_of(scene)

        self._load_scene("ball", build)

    def _find_agent(self, scene):
        return None if self.agent_from_builder else scene.data

    def _either(self, hook, usual):
        # Only in steps, where the hook runs in the reset too; those of a batch are never reset.
        alone = type(self._scene) is MujocoScene
        at_reset = hook == "_make_observation" and alone and self._elapsed_steps is None
        return usual if hook not in self.returns or at_reset else self.returns[hook]

    def _apply_action(self, action):
        self._agent.ctrl[:] = action["force"]

    def _make_observation(self):
        usual = {"position": self._agent.qpos, "speed": self._agent.qvel}, {}
        return self._either("_make_observation", usual)

    def _compute_reward_terms(self, action, observation, info):
        return self._either("_compute_reward_terms", {"right": self._agent.qpos[..., 0]})

    def _check_stop_criteria(self, observation, info):
        return self._either("_check_stop_criteria", StopReasons())

    def _draw_physics(self):
        return self._either("_draw_physics", {})

    def _render_frame(self):
        return self._either("_render_frame", np.zeros((4, 4, 3), np.uint8))


class BallOfItsBuilder(Ball):
    agent_from_builder = True


OBSERVATION = {"position": np.zeros(1), "speed": np.zeros(1)}
WRONG: list[tuple[str, Any, str]] = [
    ("_make_observation", None, "(observation, info), two dicts; got None"),
    ("_make_observation", OBSERVATION, "got the dict"),
    ("_make_observation", OBSERVATION, "return observation, {} where there is no info"),
    ("_make_observation", (OBSERVATION,), "got a tuple of 1"),
    ("_make_observation", (OBSERVATION, {}, 0.0), "got a tuple of 3"),
    ("_make_observation", (np.zeros(2), {}), "its observation is no dict"),
    ("_make_observation", (OBSERVATION, None), "its info is no dict"),
    ("_make_observation", True, "got the bool True"),
    ("_compute_reward_terms", None, "a dict of numbers by name; got None"),
    ("_compute_reward_terms", 0.5, "got the float 0.5; one number needs a name"),
    ("_compute_reward_terms", np.zeros(3), "got an array of shape (3,)"),
    ("_compute_reward_terms", [("right", 1.0)], "got a list of 1"),
    ("_compute_reward_terms", {"right": None}, "the term 'right' must be"),
    ("_compute_reward_terms", {"right": "much"}, "got the str 'much'"),
    ("_compute_reward_terms", {3: 1.0}, "got the name 3"),
    ("_check_stop_criteria", False, "got the bool False; for a reason and its condition"),
    ("_check_stop_criteria", np.True_, "StopReasons.where(terminated="),
    ("_check_stop_criteria", "no", "got the str 'no'"),
    ("_check_stop_criteria", ("Fell",), "each a reason or None, or None to go on; got a tuple"),
    ("_check_stop_criteria", ("Fell", None, None), "got a tuple of 3"),
    ("_check_stop_criteria", {"Fell": True, "Far": False}, "got the dict"),
]


@contextmanager
def four_at_once(returns):
    """Give four balls of one process that are stepped by one native call, reset already."""
    envs = HybridVectorEnv([partial(Ball, returns)] * 4, num_workers=1, in_process=True)
    with envs:
        assert all(envs.statistics().steps_at_once)
        envs.reset(seed=0)
        yield envs


@pytest.mark.parametrize(("hook", "returned", "message"), WRONG)
def test_a_wrong_return_is_named_one_by_one(hook, returned, message):
    """A step raises a TypeError with class, hook, what was returned and what is expected."""
    with Ball({hook: returned}) as env:
        env.reset(seed=0)
        with pytest.raises(TypeError, match=rf"^Ball\.{hook}\(\).*{re.escape(message)}"):
            env.step(env.action_space.sample())


@pytest.mark.parametrize(("hook", "returned", "message"), WRONG)
def test_a_wrong_return_is_named_where_all_are_stepped_at_once(hook, returned, message):
    """The same error, from hooks that run for all environments of a worker."""
    with four_at_once({hook: returned}) as envs:
        with pytest.raises(WorkerRaised) as caught:
            envs.step(envs.action_space.sample())
        assert type(caught.value.__cause__) is TypeError
        assert re.search(rf"^Ball\.{hook}\(\).*{re.escape(message)}", str(caught.value.__cause__))


@pytest.mark.parametrize("at_once", [False, True])
def test_a_wrong_return_arrives_in_the_parent(at_once):
    """A vector's step raises it, with the worker's environment named."""
    make = partial(Ball, {"_compute_reward_terms": 0.5})
    with HybridVectorEnv([make] * (4 if at_once else 2), num_workers=1) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerRaised, match=r"Ball\._compute_reward_terms\(\) must return"):
            envs.step(envs.action_space.sample())


@pytest.mark.parametrize("returned", [None, True, 0.5, ("body_mass", 1.0), np.ones(2)])
def test_wrong_values_of_physics_are_named(returned):
    """`_draw_physics` that returns no dict fails the reset, by name."""
    with (
        Ball({"_draw_physics": returned}) as env,
        pytest.raises(TypeError, match=r"^Ball\._draw_physics\(\) must return a dict"),
    ):
        env.reset(seed=0)


@pytest.mark.parametrize(
    "returned", [None, "picture", np.zeros((4, 4)), np.zeros((4, 4, 3)), [np.zeros((4, 4, 3))]]
)
def test_a_wrong_picture_is_named(returned):
    """`_render_frame` that returns no picture of bytes fails `render`, by name."""
    with Ball({"_render_frame": returned}, render_mode="rgb_array") as env:
        env.reset(seed=0)
        with pytest.raises(TypeError, match=r"^Ball\._render_frame\(\) must return an array"):
            env.render()


def test_no_camera_is_named():
    """`_render_camera` that returns None fails `render` before anything is drawn."""

    class Blind(Ball):
        _render_frame = SceneEnv._render_frame

        def _render_camera(self):
            return None

    with Blind(render_mode="rgb_array") as env:
        env.reset(seed=0)
        with pytest.raises(TypeError, match=r"^Blind\._render_camera\(\) must return a camera"):
            env.render()


@pytest.mark.parametrize("stop", [None, (None, None), [None, None], StopReasons()])
@pytest.mark.parametrize("num_envs", [2, 4])
def test_none_and_pairs_are_reasons_to_go_on(stop, num_envs):
    """Neither ends an episode, one by one or at once."""
    make = partial(Ball, {"_check_stop_criteria": stop})
    with HybridVectorEnv([make] * num_envs, num_workers=1, in_process=True) as envs:
        envs.reset(seed=0)
        result = envs.step(envs.action_space.sample())
    assert not result.terminated.any()
    assert not result.truncated.any()


def test_a_pair_of_reasons_ends_the_episode():
    """A plain tuple counts as `StopReasons`."""
    with Ball({"_check_stop_criteria": ("Fell", None)}) as env:
        env.reset(seed=0)
        *_, terminated, truncated, info = env.step(env.action_space.sample())
    assert (terminated, truncated) == (True, False)
    assert info["terminated_reason"] == "Fell"


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"position": np.zeros(1)}, "must have the keys ['position', 'speed'], got ['position']"),
        ({"position": np.zeros(1), "speed": "fast"}, "its observation 'speed' is the str 'fast'"),
    ],
)
def test_an_observation_of_other_names_is_named(observation, message):
    """A key that comes late or never, or a value without numbers, fails the step by name."""
    with Ball({"_make_observation": (observation, {})}) as env:
        env.reset(seed=0)
        with pytest.raises((TypeError, ValueError), match=re.escape(message)) as caught:
            env.step(env.action_space.sample())
    assert "Ball._make_observation()" in str(caught.value)


def test_terms_of_another_length_are_named_at_once():
    """A term that has no value for each environment fails the step by name."""
    with (
        four_at_once({"_compute_reward_terms": {"x": np.ones(3)}}) as envs,
        pytest.raises(
            WorkerRaised, match=r"the term 'x' must be numbers of shape \(4,\), got shape \(3,\)"
        ),
    ):
        envs.step(envs.action_space.sample())


def test_an_agent_that_the_builder_made_is_missed_by_name():
    """Array hooks that use it are told to make it in `_find_agent`."""
    with HybridVectorEnv([BallOfItsBuilder] * 4, num_workers=1) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerRaised, match=r"BallOfItsBuilder\._find_agent\(\) must return"):
            envs.step(envs.action_space.sample())
