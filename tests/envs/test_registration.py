"""Gymnasium's registry: ids, limits, vector entry points, and what an import costs."""

from __future__ import annotations

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import superdex.envs
from superdex.envs import CartPoleEnv, register_envs
from superdex.vector import HybridVectorEnv

SIZES = {
    "superdex_gym/CartPole-v0": (4, 1, 500),
    "superdex_gym/CartPoleActuateOnPole-v0": (4, 1, 500),
    "superdex_gym/HalfCheetah-v0": (17, 6, 1000),
    "superdex_gym/HalfCheetahFullObservation-v0": (18, 6, 1000),
    "superdex_gym/Ant-v0": (81, 8, 1000),
    "superdex_gym/AntFullObservation-v0": (83, 8, 1000),
    "superdex_gym/AntNoContact-v0": (27, 8, 1000),
    "superdex_gym/AntRotationVector-v0": (80, 8, 1000),
}


def run(code):
    """Return what a fresh process prints."""
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
    return result.stdout


def test_the_ids_are_the_documented_ones():
    """No more and no fewer; registering twice changes nothing."""
    register_envs()
    assert {i for i in gym.registry if i.startswith("superdex_gym/")} == set(SIZES)


@pytest.mark.parametrize("env_id", SIZES)
def test_each_id_makes_what_it_says(env_id):
    """Sizes and time limit; keywords of make() are settings."""
    num_observed, num_actions, limit = SIZES[env_id]
    with gym.make(env_id, steps_per_episode=7) as env:
        assert env.observation_space.shape == (num_observed,)
        assert env.action_space.shape == (num_actions,)
        assert env.spec.max_episode_steps == limit
        assert env.unwrapped.cfg.steps_per_episode == 7


@pytest.mark.parametrize("env_id", SIZES)
def test_gymnasiums_checker_has_nothing_to_say(env_id):
    """check_env passes without a warning (here a warning is an error)."""
    with gym.make(env_id) as env:
        check_env(env.unwrapped, skip_render_check=True)


def test_gymnasiums_checker_has_nothing_to_say_of_rendering():
    """Nor of the pictures."""
    pytest.importorskip("mujoco.egl" if sys.platform.startswith("linux") else "mujoco")
    with gym.make("superdex_gym/CartPole-v0", render_mode="rgb_array") as env:
        check_env(env.unwrapped)


def test_registration_imports_neither_mujoco_nor_an_environment():
    """The ids are there before anything heavy is."""
    code = """
import sys
import gymnasium, superdex.envs, superdex.scenes
assert "superdex_gym/Ant-v0" in gymnasium.registry
heavy = [name for name in sys.modules if name.partition(".")[0] == "mujoco"]
print(heavy, [n for n in sys.modules if n in ("superdex.envs._scene_env", "superdex.envs._ant")])
"""
    assert run(code) == "[] []\n"


def test_make_finds_the_ids_by_module():
    """A process that never imported the package names it in the id."""
    code = """
import gymnasium
env = gymnasium.make("superdex.envs:superdex_gym/CartPole-v0")
print(env.reset(seed=0)[0].shape)
env.close()
"""
    assert run(code) == "(4,)\n"


def test_lazy_names_are_listed_and_unknown_ones_refused():
    """dir() shows what can be imported."""
    assert set(superdex.envs.__all__) <= set(dir(superdex.envs))
    assert superdex.envs.CartPoleEnv is CartPoleEnv
    with pytest.raises(AttributeError, match="has no attribute 'NoEnv'"):
        superdex.envs.NoEnv  # noqa: B018 - the access is what is tested


def test_make_vec_gives_a_hybrid_vector_env():
    """Keywords go where they belong: to the vector, to the limit, to the environments."""
    env = gym.make_vec(
        "superdex_gym/CartPole-v0",
        num_envs=5,
        vectorization_mode="vector_entry_point",
        num_workers=2,
        in_process=False,
        max_episode_steps=3,
        max_pole_angle=100.0,
        reset_noise_scale=0.2,
    )
    with env:
        assert isinstance(env.unwrapped, HybridVectorEnv)
        assert (env.num_envs, env.unwrapped.num_workers) == (5, 2)
        observations, _ = env.reset(seed=3)
        for index in range(5):
            with CartPoleEnv(reset_noise_scale=0.2) as one:
                assert np.array_equal(observations[index], one.reset(seed=3 + index)[0])
        for step in range(3):
            *_, truncated, info = env.step(np.zeros((5, 1), np.float32))
            assert truncated.all() == (step == 2)
        assert list(info["truncated_reason"]) == ["time limit"] * 5


def test_make_vec_needs_no_split():
    """Variants keep their own keywords, and the usable CPUs decide the number of workers."""
    with gym.make_vec(
        "superdex_gym/AntNoContact-v0", num_envs=3, in_process=True, num_envs_per_worker=3
    ) as env:
        assert env.single_observation_space.shape == (27,)
    from superdex._limits import usable_cpus

    with gym.make_vec("superdex_gym/CartPole-v0", num_envs=2) as env:
        assert env.unwrapped.num_workers == min(2, usable_cpus())
