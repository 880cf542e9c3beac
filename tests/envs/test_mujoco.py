"""Gymnasium's MuJoCo environments on shared scenes: the same as Gymnasium's own, to the bit."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import load_env_creator
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

import superdex.envs.mujoco
from superdex.envs.mujoco import AntEnv, HalfCheetahEnv, HopperEnv, InvertedPendulumEnv, PusherEnv
from superdex.envs.mujoco._arithmetic import (
    euclidean_norm,
    mass_center,
    power_of_two,
    squared_sum,
)
from superdex.errors import ResetNeeded
from superdex.vector import HybridVectorEnv

NAMES = [
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
]
WITHOUT_FORCES: dict[str, dict[str, Any]] = {
    "Ant": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0},
    "Humanoid": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0},
    "HumanoidStandup": {"include_cfrc_ext_in_observation": False, "impact_cost_weight": 0},
}
SETTINGS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in NAMES] + [
    *WITHOUT_FORCES.items()
]
OTHER_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    (
        "Ant",
        {
            "main_body": "torso",
            "frame_skip": 2,
            "forward_reward_weight": 0.5,
            "healthy_z_range": (0.4, 0.8),
            "contact_force_range": (-0.5, 0.2),
            "exclude_current_positions_from_observation": False,
        },
    ),
    ("HalfCheetah", {"ctrl_cost_weight": 0.7, "reset_noise_scale": 0.3, "frame_skip": 1}),
    (
        "Hopper",
        {
            "terminate_when_unhealthy": False,
            "healthy_state_range": (-3.0, 3.0),
            "exclude_current_positions_from_observation": False,
        },
    ),
    (
        "Humanoid",
        {
            **WITHOUT_FORCES["Humanoid"],
            "include_cinert_in_observation": False,
            "contact_cost_range": (0.5, 1.0),
        },
    ),
    ("HumanoidStandup", {"include_cvel_in_observation": False, "impact_cost_weight": 0.1}),
    ("InvertedDoublePendulum", {"healthy_reward": 3, "reset_noise_scale": 0.2}),
    ("InvertedPendulum", {"reset_noise_scale": 0.1}),
    ("Pusher", {"reward_near_weight": 2, "reward_control_weight": 1}),
    ("Reacher", {"reward_dist_weight": 0.3}),
    ("Swimmer", {"exclude_current_positions_from_observation": False}),
    ("Walker2d", {"healthy_angle_range": (-0.05, 0.05), "healthy_reward": 2}),
]

OURS_ALONE = {"terminated_reason", "truncated_reason"}


def theirs(name, **kwargs):
    return gym.make(f"{name}-v5", disable_env_checker=True, **kwargs)


def ours(name, **kwargs):
    return gym.make(f"superdex/{name}-v5", disable_env_checker=True, **kwargs)


def assert_same(expected, got, what=""):
    expected, got = np.asarray(expected), np.asarray(got)
    assert (expected.dtype, expected.shape) == (got.dtype, got.shape), what
    assert expected.tobytes() == got.tobytes(), f"{what}: {expected} {got}"


def assert_same_infos(expected, got):
    assert list(expected) == [key for key in got if key not in OURS_ALONE]
    for key, value in expected.items():
        assert_same(value, got[key], key)


def actions(space, seed, count, *leading):
    """Actions inside and outside of the bounds, which Gymnasium does not clip."""
    random = np.random.default_rng(seed)
    return random.uniform(-1.2, 1.2, (count, *leading, *space.shape)).astype(np.float32)


@pytest.fixture(params=SETTINGS + OTHER_SETTINGS, ids=lambda p: p[0] + "-" + str(len(p[1])))
def pair(request):
    name, kwargs = request.param
    with theirs(name, **kwargs) as reference, ours(name, **kwargs) as env:
        yield reference, env


def test_one_environment_is_gymnasiums_to_the_bit(pair):
    """Observations, rewards, flags, infos and their dtypes, through resets, beside a sibling."""
    reference, env = pair
    with type(env.unwrapped)() as sibling:
        sibling.reset(seed=1)
        (expected, expected_info), (got, info) = reference.reset(seed=3), env.reset(seed=3)
        for action in actions(env.action_space, 0, 60):
            assert_same(expected, got)
            assert_same_infos(expected_info, info)
            sibling.step(np.zeros(sibling.action_space.shape, np.float32))
            expected, reward, *flags, expected_info = reference.step(action)
            got, our_reward, *our_flags, info = env.step(action)
            assert float(reward) == float(our_reward)
            assert flags == our_flags
            assert ("terminated_reason" in info) == flags[0]
            if any(flags):
                assert_same(expected, got)
                assert_same_infos(expected_info, info)
                (expected, expected_info), (got, info) = reference.reset(), env.reset()


@pytest.mark.parametrize("name", NAMES)
def test_constructors_take_what_gymnasiums_take(name):
    """The same names in the same order, with the same defaults."""
    classes = [load_env_creator(f"{module}:{name}Env") for module in modules_of(name)]
    one, other = (inspect.signature(cls).parameters for cls in classes)
    assert list(one) == list(other)
    for parameter, mine in zip(one.values(), other.values(), strict=True):
        assert str(parameter.default) == str(mine.default)


def modules_of(name):
    spec = gym.spec(f"{name}-v5")
    return spec.entry_point.partition(":")[0], "superdex.envs.mujoco"


@pytest.mark.parametrize(("name", "kwargs"), SETTINGS + OTHER_SETTINGS)
def test_what_reads_contact_forces_has_no_array_hooks(name, kwargs):
    """And nothing else."""
    reads = name in WITHOUT_FORCES and not WITHOUT_FORCES[name].items() <= kwargs.items()
    with ours(name, **kwargs) as env:
        assert env.unwrapped.array_hooks is not reads


def test_spaces_and_attributes_are_gymnasiums(pair):
    """Spaces with dtypes, time limit, dt, frame rate, starts and the observation's structure."""
    reference, env = pair
    assert env.observation_space == reference.observation_space
    assert env.observation_space.dtype == np.float64
    assert env.action_space == reference.action_space
    assert env.spec.max_episode_steps == reference.spec.max_episode_steps
    assert env.spec.reward_threshold == reference.spec.reward_threshold
    one, other = reference.unwrapped, env.unwrapped
    assert (one.dt, one.frame_skip) == (other.dt, other.frame_skip)
    assert one.metadata == other.metadata
    assert_same(one.init_qpos, other.init_qpos)
    assert_same(one.init_qvel, other.init_qvel)
    structure = getattr(one, "observation_structure", None)
    assert structure == getattr(other, "observation_structure", None)


def run_beside_references(envs, references, mode, seed, steps):
    """Step a vector beside Gymnasium's environments and compare every row; return the resets."""
    observations, _ = envs.reset(seed=seed)
    for index, reference in enumerate(references):
        assert_same(reference.reset(seed=seed + index)[0], observations[index])
    ended = np.zeros(len(references), np.bool_)
    resets = 0
    for action in actions(envs.single_action_space, seed, steps, len(references)):
        if mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = envs.reset(options={"reset_mask": ended})
        observations, rewards, terminated, truncated, infos = envs.step(action)
        for index, reference in enumerate(references):
            if ended[index] and mode is not AutoresetMode.SAME_STEP:
                resets += 1
                observation, info = reference.reset()
                if mode is AutoresetMode.NEXT_STEP:
                    assert_same(observation, observations[index])
                    assert (rewards[index], terminated[index], truncated[index]) == (0, 0, 0)
                    ended[index] = False
                    continue
            observation, reward, *flags, info = reference.step(action[index])
            ended[index] = any(flags)
            assert (float(reward), *flags) == (
                rewards[index],
                terminated[index],
                truncated[index],
            )
            shown = infos
            if ended[index] and mode is AutoresetMode.SAME_STEP:
                resets += 1
                assert_same(observation, infos["final_obs"][index])
                shown = infos["final_info"]
                observation, _ = reference.reset()
            assert_same(observation, observations[index])
            for key, value in info.items():
                assert shown["_" + key][index]
                assert_same(value, shown[key][index], key)
            if flags[0]:
                assert infos["terminated_reason"][index] == "Unhealthy"
            if flags[1]:
                assert infos["truncated_reason"][index] == "time limit"
    return resets


def is_stepped_at_once(envs):
    return envs.unwrapped._pool._workers[0].group._batched is not None


@pytest.mark.parametrize(("name", "kwargs"), SETTINGS + OTHER_SETTINGS)
def test_a_vector_is_gymnasiums_environments_to_the_bit(name, kwargs):
    """Five at once, through terminations and a time limit, on two native threads."""
    limit = {"max_episode_steps": 23}
    references = [theirs(name, **kwargs, **limit) for _ in range(5)]
    with gym.make_vec(
        f"superdex/{name}-v5",
        num_envs=5,
        in_process=True,
        num_envs_per_worker=5,
        num_threads_per_worker=2,
        **kwargs,
        **limit,
    ) as envs:
        with ours(name, **kwargs) as env:
            assert is_stepped_at_once(envs) == env.unwrapped.array_hooks
        assert run_beside_references(envs, references, AutoresetMode.NEXT_STEP, 5, 50) >= 10
    for reference in references:
        reference.close()


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(("name", "workers"), [("Hopper", 1), ("Ant", 2)])
def test_every_autoreset_mode_is_gymnasiums_to_the_bit(mode, name, workers):
    """In one group and in two; of ants also what they remember of where they were."""
    kwargs = {**WITHOUT_FORCES.get(name, {}), "max_episode_steps": 17}
    references = [theirs(name, **kwargs) for _ in range(9)]
    with gym.make_vec(
        f"superdex/{name}-v5",
        num_envs=9,
        in_process=True,
        num_workers=workers,
        autoreset_mode=mode,
        reset_masks=True,
        **kwargs,
    ) as envs:
        assert is_stepped_at_once(envs)
        assert run_beside_references(envs, references, mode, 11, 50) > 15
    for reference in references:
        reference.close()


def what_the_checker_says_of(env):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
    return {str(warning.message) for warning in caught}


def test_gymnasiums_checker_says_nothing_new(pair):
    """check_env passes, with no warning that Gymnasium's own environment doesn't get."""
    reference, env = pair
    assert what_the_checker_says_of(env) <= what_the_checker_says_of(reference)


def test_make_vec_just_works():
    """No keyword and no main guard: in this process, on every CPU that may be used."""
    code = """
import gymnasium, numpy, superdex.envs
envs = gymnasium.make_vec("superdex/HalfCheetah-v5", num_envs=64)
observations, _ = envs.reset(seed=0)
observations, *_ = envs.step(envs.action_space.sample())
print(type(envs).__name__, observations.shape, observations.dtype, envs.worker_pids)
envs.close()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "HybridVectorEnv (64, 17) float64 ()\n"


def test_make_vec_deals_out_what_is_stepped_one_by_one():
    """Environments that read contact forces get worker processes, as do keywords for workers."""
    from superdex._limits import usable_cpus

    with gym.make_vec("superdex/Ant-v5", num_envs=2) as envs:
        assert len(envs.unwrapped.worker_pids) == min(2, usable_cpus())
    with gym.make_vec("superdex/Swimmer-v5", num_envs=4, timeout=60.0) as envs:
        assert len(envs.unwrapped.worker_pids) == 1


def test_vectors_of_other_kinds_take_the_ids_too():
    """Gymnasium's own synchronous vector is made of them as of any."""
    envs = gym.make_vec("superdex/Reacher-v5", num_envs=2, vectorization_mode="sync")
    assert envs.reset(seed=0)[0].shape == (2, 10)
    envs.close()


def test_environments_with_other_settings_are_no_batch_and_right_all_the_same():
    """Siblings may share a scene and differ in settings; then they are stepped one by one."""
    weights = [0.1, 0.2, 0.3, 0.4]
    env_fns = [lambda w=w: HalfCheetahEnv(ctrl_cost_weight=w) for w in weights]
    envs = HybridVectorEnv(env_fns, num_workers=1, in_process=True)
    with envs:
        with pytest.warns(UserWarning, match="differ in _ctrl_cost_weight"):
            envs.reset(seed=0)
        action = np.ones((4, 6), np.float32)
        *_, infos = envs.step(action)
        expected = [-w * np.sum(np.square(action[0])) for w in weights]
        assert infos["reward_ctrl"].tolist() == [float(e) for e in expected]


def test_set_state_moves_one_of_a_batch_and_what_it_measures_from():
    """As in Gymnasium the next velocity is measured from there; siblings stay where they are."""
    kwargs = WITHOUT_FORCES["Ant"]
    with (
        theirs("Ant", **kwargs) as reference,
        HybridVectorEnv([lambda: AntEnv(**kwargs)] * 4, num_workers=1, in_process=True) as envs,
        AntEnv(**kwargs) as sibling,
    ):
        reference.reset(seed=2)
        envs.reset(seed=0)
        sibling.reset(seed=1)
        qpos = reference.unwrapped.init_qpos + 0.1
        qvel = reference.unwrapped.init_qvel
        reference.unwrapped.set_state(qpos, qvel)
        envs.call("set_state", qpos, qvel, indices=[2])
        action = np.full((4, 8), 0.3, np.float32)
        observation, reward, *_ = reference.step(action[0])
        observations, rewards, *_ = envs.step(action)
        assert_same(observation, observations[2])
        assert reward == rewards[2]
        assert_same(sibling.step(action[0])[0], observations[1])
        assert is_stepped_at_once(envs)
        state = np.concatenate([reference.unwrapped.data.qpos, reference.unwrapped.data.qvel])
        assert_same(state, envs.call("state_vector", indices=[2])[0])


class DoubledEnv(HalfCheetahEnv):
    """Written as subclasses of Gymnasium's classes are."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return (observation, 2 * reward, *rest)


def test_a_step_of_ones_own_is_heeded():
    """A subclass that overrides step is stepped by it, one environment after the other."""
    envs = HybridVectorEnv([DoubledEnv] * 4, num_workers=1, in_process=True)
    with envs, HalfCheetahEnv() as plain:
        with pytest.warns(UserWarning, match="DoubledEnv has a step of its own"):
            envs.reset(seed=0)
        plain.reset(seed=0)
        action = np.ones((4, 6), np.float32)
        assert envs.step(action)[1][0] == 2 * plain.step(action[0])[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_diverged_simulation_ends_its_episode_and_no_other(workers):
    """With a reason, at once (one group of four) and one by one (two of two)."""
    with (
        HybridVectorEnv([HopperEnv] * 4, num_workers=workers, in_process=True) as envs,
        HopperEnv() as sibling,
    ):
        assert is_stepped_at_once(envs) == (workers == 1)
        envs.reset(seed=0)
        sibling.reset(seed=1)
        envs.call("set_state", np.zeros(6), np.full(6, 1e12), indices=[3])
        action = np.zeros((4, 3), np.float32)
        observations, _, terminated, _, infos = envs.step(action)
        assert terminated.tolist() == [False, False, False, True]
        assert infos["terminated_reason"][3] == "simulation diverged"
        assert_same(sibling.step(action[1])[0], observations[1])


def test_a_step_before_the_reset_is_refused():
    """As for every environment on a shared scene."""
    with HopperEnv() as env, pytest.raises(ResetNeeded):
        env.step(np.zeros(3, np.float32))


def test_an_action_of_another_shape_is_refused():
    """The message tells both shapes."""
    with HopperEnv() as env:
        env.reset(seed=0)
        with pytest.raises(ValueError, match=r"must have shape \(3,\), got \(1,\)"):
            env.step(np.zeros(1, np.float32))


def test_a_missing_model_file_is_named():
    """As in Gymnasium, an OSError."""
    with pytest.raises(OSError, match=r"no_such\.xml does not exist"):
        HopperEnv(xml_file="no_such.xml")


def test_a_model_of_ones_own_is_read_as_it_is_now(tmp_path):
    """A file that changed makes another scene, while those built before keep theirs."""
    path = tmp_path / "pole.xml"
    model = Path(gym.__file__).parent / "envs/mujoco/assets/inverted_pendulum.xml"
    text = model.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    with InvertedPendulumEnv(xml_file=str(path)) as before:
        path.write_text(text.replace('timestep="0.02"', 'timestep="0.01"'), encoding="utf-8")
        os.utime(path, ns=(1, 1))
        with InvertedPendulumEnv(xml_file=str(path)) as after:
            assert (before.dt, after.dt) == (0.04, 0.02)


def test_pictures_are_drawn_by_gymnasiums_renderer():
    """Each environment draws its own state, in Gymnasium's size and camera."""
    pytest.importorskip("imageio")
    with PusherEnv(render_mode="rgb_array") as env, PusherEnv() as sibling:
        env.reset(seed=0)
        sibling.reset(seed=1)
        try:
            picture = env.render()
        except Exception as error:
            pytest.skip(f"no OpenGL: {error}")
        assert picture.shape == (480, 480, 3)
        assert np.array_equal(picture, env.render())


def test_a_render_mode_is_checked():
    """The message lists those that there are."""
    with pytest.raises(ValueError, match="'rgb_array', 'depth_array'"):
        HopperEnv(render_mode="ansi")


def test_all_classes_are_listed_and_unknown_names_refused():
    """dir() shows what can be imported."""
    assert set(superdex.envs.mujoco.__all__) <= set(dir(superdex.envs.mujoco))
    for name in superdex.envs.mujoco.__all__:
        assert getattr(superdex.envs.mujoco, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'NoEnv'"):
        superdex.envs.mujoco.NoEnv  # noqa: B018 - the access is what is tested


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(-6, 6))
def test_arithmetic_over_rows_is_that_of_each_row(seed, count, exponent):
    """Sums, norms, squares and centres of mass as Gymnasium's formulas give them for one."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(count, 20)) * 10**exponent
    masses, positions = random.uniform(0, 3, 14), random.normal(size=(count, 14, 3))
    for size in (2, 3):
        norms = euclidean_norm(numbers[:, 1 : 1 + size])
        assert norms.tolist() == [np.linalg.norm(row[1 : 1 + size]) for row in numbers]
    for size in (1, 6, 8, 17):
        for dtype in (np.float32, np.float64):
            rows = numbers[:, :size].astype(dtype)
            expected = [np.sum(np.square(row)) for row in rows]
            assert_same(np.array(expected), squared_sum(rows))
    assert power_of_two(numbers[:, 0]).tolist() == [x**2 for x in numbers[:, 0]]
    centers = mass_center(masses, positions)
    for center, position in zip(centers, positions, strict=True):
        assert_same((np.einsum("b,bj->j", masses, position) / masses.sum())[0:2], center)
