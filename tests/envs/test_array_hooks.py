"""Hooks written for arrays: the same results for one environment and for many at once."""

from __future__ import annotations

import os
import signal
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import ClipReward

from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv, SceneEnv, StopReasons
from superdex.errors import WorkerRaised
from superdex.scenes import MujocoScene, SceneManager
from superdex.testing import PlainLoop, check_array_hooks, check_equivalence, row_info
from superdex.vector import EnvGroup, HybridVectorEnv

BUILT_IN = [
    partial(CartPoleEnv, steps_per_episode=15),
    partial(CartPoleEnv, actuate_on_pole=True, free_pole=True, max_pole_angle=0.5),
    partial(HalfCheetahEnv, steps_per_episode=11),
    partial(HalfCheetahEnv, full_observation=True, use_gravity=False, steps_per_episode=7),
    partial(AntEnv, observe_contacts=False, steps_per_episode=9),
    partial(
        AntEnv,
        observe_contacts=False,
        use_rotation_vector=True,
        full_observation=True,
        healthy_z_range=(0.5, 0.8),
    ),
]

BALL = """<mujoco><worldbody><body name="ball"><joint name="x" type="slide" axis="1 0 0"/>
<geom size="0.1" mass="1"/></body></worldbody><actuator><motor joint="x"/></actuator></mujoco>"""


class Ball(SceneEnv):
    """A ball that is pushed towards a target drawn at each reset."""

    array_hooks = True
    array_fields: tuple[str, ...] = ("target",)

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **{"control_frequency": 10, "steps_per_episode": 8, **overrides})
        self.target: Any = 0.0
        self._setup_observation_space(offset=Box(-10, 10, (1,)), speed=Box(-10, 10, (1,)))
        self._setup_action_space(force=Box(-1, 1, (1,)))
        self._load_scene("ball", lambda: (MujocoScene.from_xml_string(BALL), None))

    def _find_agent(self, scene):
        return scene.data

    def _reset_scene(self):
        self.target = self.np_random.uniform(-1, 1)

    def _apply_action(self, action):
        # depends on the state: not held over the substeps
        self._agent.ctrl[:] = action["force"] - 0.1 * self._agent.qvel

    def _offset(self):
        return self._agent.qpos[..., 0] - self.target

    def _make_observation(self):
        offset = self._offset()
        observation = {"offset": offset[..., None], "speed": self._agent.qvel}
        return observation, {"target": self.target, "size": 0.1, "pair": self._agent.qpos * [1, 2]}

    def _compute_reward_terms(self, action, observation, info):
        return {"near": -abs(self._offset()), "alive": 1.0}

    def _check_stop_criteria(self, observation, info):
        near, fast = abs(self._offset()) < 0.05, abs(self._agent.qvel[..., 0]) > 0.3
        return StopReasons.where(terminated={"Near": near, "Fast": fast})

    def whereabouts(self):
        return float(self._scene.data.qpos[0])


class Mixing(Ball):
    """Observes the mean of all balls instead of its own."""

    def _make_observation(self):
        observation, info = super()._make_observation()
        return {
            **observation,
            "speed": np.zeros_like(self._agent.qvel) + self._agent.qvel.mean(),
        }, info


class Undeclared(Ball):
    """Leaves out that the target is its own."""

    array_fields = ()


class Drawing(Ball):
    """Draws random numbers in a step."""

    def _apply_action(self, action):
        self._agent.ctrl[:] = self.np_random.uniform(-1, 1)


def stepped_at_once(envs: HybridVectorEnv) -> list[bool]:
    """Whether each worker's group, in this process, is stepped at once."""
    pool: Any = envs._pool
    return [worker.group.steps_at_once for worker in pool._workers]


@pytest.mark.parametrize("factory", BUILT_IN)
def test_built_in_environments_give_the_same_one_by_one_and_at_once(factory):
    """In every autoreset mode, through ends of both kinds."""
    check_array_hooks(factory, num_steps=40)


def test_an_environment_that_remembers_gives_the_same():
    """What it draws at a reset, an action that depends on the state, infos of several shapes."""
    check_array_hooks(Ball, num_steps=60)


@pytest.mark.parametrize("split", [(1, 8), (2, 4)])
def test_workers_give_the_same(split):
    """In processes of their own."""
    check_equivalence([Ball] * 8, [split], num_steps=30)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_make_no_difference(threads):
    """However many step the physics."""
    env_fns = [partial(AntEnv, observe_contacts=False)] * 7
    actions = np.random.default_rng(1).uniform(-1, 1, (12, 7, 8)).astype(np.float32)
    with HybridVectorEnv(env_fns, num_workers=1, num_threads_per_worker=threads) as envs:
        envs.reset(seed=3)
        got = [envs.step(action) for action in actions]
    for index in range(7):
        env = env_fns[0]()
        loop = PlainLoop(env, AutoresetMode.NEXT_STEP)
        loop.reset(seed=3 + index)
        for action, result in zip(actions[:, index], got, strict=True):
            expected = loop.step(action)
            np.testing.assert_array_equal(result.observation[index], expected.observation)
            assert result.reward[index] == expected.reward
        env.close()


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Mixing, r"environment 0: observation differs in speed \(.*, expected .*\)"),
        (Undeclared, "target was set in one of them"),
        (partial(AntEnv, steps_per_episode=5), "does not declare array_hooks"),
    ],
)
def test_the_check_finds_hooks_that_are_not_for_arrays(cls, message):
    """And says what is wrong."""
    with pytest.raises(AssertionError, match=message):
        check_array_hooks(cls, num_steps=20)


def test_drawing_in_a_step_is_refused():
    """One generator would serve all environments."""
    with HybridVectorEnv([Drawing] * 4, num_workers=1, in_process=True) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerRaised, match="draw in _reset_scene"):
            envs.step(np.zeros((4, 1), np.float32))


def test_calls_and_attributes_are_those_of_each_environment():
    """The environment itself is asked, where the batch has brought it."""
    env_fns = [Ball] * 5
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 5, 1)).astype(np.float32)
    with HybridVectorEnv(env_fns, num_workers=1, in_process=True) as envs:
        envs.reset(seed=0)
        for action in actions:
            *_, info = envs.step(action)
        assert stepped_at_once(envs) == [True]
        assert envs.call("whereabouts") == tuple(info["pair"][:, 0].tolist())
        assert envs.get_attr("target") == tuple(info["target"].tolist())
        assert stepped_at_once(envs) == [True]


def test_a_remembered_attribute_that_is_set_counts():
    """In the very next step."""
    with HybridVectorEnv([Ball] * 4, num_workers=1, in_process=True) as envs:
        envs.reset(seed=0)
        envs.set_attr("target", [1.0, 2.0, 3.0, 4.0])
        *_, info = envs.step(np.zeros((4, 1), np.float32))
        assert info["target"].tolist() == [1.0, 2.0, 3.0, 4.0]
        assert stepped_at_once(envs) == [True]


def test_an_attribute_that_the_batch_does_not_know_ends_it():
    """It counts all the same, and a warning says why it is slower now."""
    with HybridVectorEnv([CartPoleEnv] * 4, num_workers=1, in_process=True) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros((4, 1), np.float32))
        cfg = envs.get_attr("cfg")[0]
        with pytest.warns(UserWarning, match="one by one in a group, because CartPoleEnv.cfg"):
            envs.set_attr("cfg", [cfg.__class__(max_pole_angle=1e-9)] + [cfg] * 3)
        assert stepped_at_once(envs) == [False]
        *_, terminated, _, _ = envs.step(np.zeros((4, 1), np.float32))
        assert terminated.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("env_fns", "why"),
    [
        ([partial(CartPoleEnv, max_pole_angle=a) for a in (1.0, 1.0, 2.0, 1.0)], "settings"),
        ([CartPoleEnv, Ball, CartPoleEnv, Ball], "it holds a Ball beside a CartPoleEnv"),
        ([lambda: ClipReward(CartPoleEnv(), 0, 1)] * 4, "wrapped in ClipReward"),
    ],
)
def test_environments_that_do_not_fit_together_are_stepped_one_by_one(env_fns, why):
    """A notice says why, once."""
    try:
        group = EnvGroup(env_fns, range(4))
    except ValueError:  # spaces differ, which a vector refuses
        return
    assert not group.steps_at_once
    assert [why in message for _, message in group.notices.take()] == [True]
    group.close()


@pytest.mark.parametrize(
    ("factory", "count"),
    [
        (CartPoleEnv, 3),
        (partial(CartPoleEnv, use_shared_scenes=False), 4),
        (partial(HalfCheetahEnv, profile=True), 4),
        (AntEnv, 4),
    ],
)
def test_what_was_asked_for_is_stepped_one_by_one_without_a_word(factory, count):
    """A few are quicker like that; the others can't be stepped at once with these settings."""
    group = EnvGroup([factory] * count, range(count))
    assert not group.steps_at_once
    assert group.notices.take() == []
    group.close()


def test_a_time_limit_around_the_environments_counts():
    """As `gymnasium.make` puts it there, and from calls too."""
    env_fns = [lambda: gym.make("superdex_gym/HalfCheetah-v0", max_episode_steps=6)] * 4
    with HybridVectorEnv(env_fns, num_workers=1, in_process=True) as envs:
        assert stepped_at_once(envs) == [True]
    check_equivalence(env_fns, [(1, 4)], num_steps=20, in_process=True)


def test_a_bad_action_is_that_environments_error_and_nothing_moves():
    """The others are where they were."""
    with HybridVectorEnv(
        [Ball] * 4, num_workers=1, in_process=True, on_env_error="truncate"
    ) as envs:
        envs.reset(seed=0)
        actions = np.zeros((4, 1), np.float32)
        actions[2] = np.nan
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = envs.step(actions)
        assert "Environment 2 raised in step: ValueError: The action must be finite" in str(
            seen[0].message
        )
        assert result.truncated.tolist() == [False, False, True, False]
        assert stepped_at_once(envs) == [True]
        for index in (0, 1, 3):
            env = Ball()
            env.reset(seed=index)
            observation, *_ = env.step(actions[index])
            np.testing.assert_array_equal(result.observation[index], observation)
            env.close()


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.filterwarnings("ignore:.*unstable")
def test_a_diverged_simulation_ends_its_episode_and_no_other(count):
    """On both paths, with the reason; it goes on from a reset."""

    def blow_up(envs, index):
        envs.call("explode", indices=[index])

    with HybridVectorEnv([Exploding] * count, num_workers=1, in_process=True) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros((count, 1), np.float32))
        blow_up(envs, count // 2)
        *_, terminated, _, info = envs.step(np.zeros((count, 1), np.float32))
        assert np.flatnonzero(terminated).tolist() == [count // 2]
        assert info["terminated_reason"][count // 2] == "simulation diverged"
        observation, *_, terminated, _, _ = envs.step(np.zeros((count, 1), np.float32))
        assert not terminated.any()
        assert np.isfinite(observation).all()
        assert stepped_at_once(envs) == [count > 1]


class Exploding(Ball):
    def explode(self):
        self._scene.data.qvel[:] = 1e12

    def _check_stop_criteria(self, observation, info):
        return StopReasons()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_restarted_worker_steps_its_environments_at_once(mode):
    """Their episodes are truncated, and those of the other worker are as without the fault."""
    env_fns = [partial(CartPoleEnv, steps_per_episode=9)] * 8
    actions = np.random.default_rng(0).uniform(-1, 1, (25, 8, 1)).astype(np.float32)

    def run(kill_at):
        with HybridVectorEnv(
            env_fns, num_workers=2, autoreset_mode=mode, on_worker_failure="restart"
        ) as envs:
            envs.reset(seed=0)
            results = []
            for number, action in enumerate(actions):
                if number == kill_at:
                    os.kill(envs.worker_pids[1], signal.SIGKILL)
                results.append(envs.step(action))
                ended = results[-1].terminated | results[-1].truncated
                if mode is AutoresetMode.DISABLED and ended.any():
                    envs.reset_envs(ended)
            assert envs.statistics().steps_at_once == (True, True)
        return results

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        got = run(kill_at=5)
    for one, expected in zip(got, run(kill_at=-1), strict=True):
        np.testing.assert_array_equal(one.observation[:4], expected.observation[:4])
        np.testing.assert_array_equal(one.reward[:4], expected.reward[:4])
        np.testing.assert_array_equal(one.truncated[:4], expected.truncated[:4])
    assert got[5].truncated[4:].all()
    assert set(got[5].info["truncated_reason"][4:]) == {"worker restarted"}


def test_partial_resets_leave_the_others_where_they_are():
    """Beside environments that wait for their autoreset."""
    env_fns = [Ball] * 6
    rng = np.random.default_rng(4)
    loops = [PlainLoop(Ball(), AutoresetMode.NEXT_STEP) for _ in env_fns]
    with HybridVectorEnv(env_fns, num_workers=1, in_process=True) as envs:
        observation, _ = envs.reset(seed=0)
        for index, loop in enumerate(loops):
            loop.reset(seed=index)
        for number in range(50):
            actions = rng.uniform(-1, 1, (6, 1)).astype(np.float32)
            observation, reward, _, _, info = envs.step(actions)
            for index, loop in enumerate(loops):
                expected = loop.step(actions[index])
                np.testing.assert_array_equal(observation[index], expected.observation)
                assert reward[index] == expected.reward
                own = row_info(info, index)
                assert {k: own[k] for k in expected.info if "reason" not in k}.keys() == {
                    k for k in expected.info if "reason" not in k
                }
            if number % 7 == 3:
                chosen = rng.permutation(6)[:2]
                seeds = [int(rng.integers(1000)) for _ in chosen]
                observation, _ = envs.reset_envs(chosen, seed=seeds)
                for index, seed in zip(chosen, seeds, strict=True):
                    expected = loops[index].reset(seed=seed)
                    np.testing.assert_array_equal(observation[index], expected.observation)
    for loop in loops:
        loop.env.close()


def test_nothing_is_left_when_a_batch_is_closed():
    """The scene is gone with the last environment."""
    with HybridVectorEnv([Ball] * 4, num_workers=1, in_process=True) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros((4, 1), np.float32))
        assert SceneManager.get_instance("Ball").scene_count == 1
    assert SceneManager.get_instance("Ball").scene_count == 0


class Measuring(Ball):
    """Remembers for the length of a step where it was, and counts its steps."""

    array_fields = ("target", "count")

    def __init__(self, cfg=None, **overrides):
        self.before: Any = None
        self.count: Any = 0
        super().__init__(cfg, **overrides)

    def _before_step(self):
        self.before = self._agent.qpos[..., 0].copy()
        self.count = self.count + 1


def test_what_is_set_anew_before_each_step_may_differ():
    """An environment that was stepped by itself joins its siblings."""
    with HybridVectorEnv([Measuring] * 2, num_workers=1, in_process=True) as single:
        single.reset(seed=1)
        single.step(np.zeros((2, 1), np.float32))
        state = single.capture_states([1])
    with HybridVectorEnv([Measuring] * 8, num_workers=1, in_process=True) as envs:
        envs.reset(seed=2)
        envs.fork(state, range(8))
        envs.step(np.zeros((8, 1), np.float32))
        assert stepped_at_once(envs) == [True]
        assert envs.get_attr("count") == (2,) * 8
