"""CartPole, HalfCheetah and Ant: sizes, physics, rewards, ends, and bit-equality when shared."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv
from superdex.scenes import MujocoScene, SceneManager
from superdex.testing import check_scene, check_scene_env, check_scene_name

VARIANTS = [
    (CartPoleEnv, {}, 4, 1),
    (CartPoleEnv, {"actuate_on_pole": True}, 4, 1),
    (HalfCheetahEnv, {}, 17, 6),
    (HalfCheetahEnv, {"full_observation": True}, 18, 6),
    (AntEnv, {}, 81, 8),
    (AntEnv, {"full_observation": True}, 83, 8),
    (AntEnv, {"observe_contacts": False}, 27, 8),
    (AntEnv, {"use_rotation_vector": True}, 80, 8),
]
SCENE_FIELDS = {
    CartPoleEnv: ("use_damping", "use_gravity", "free_pole"),
    HalfCheetahEnv: ("use_gravity", "use_rest_springs"),
    AntEnv: ("use_damping", "use_gravity", "use_low_friction", "use_high_friction"),
}
MODELS = ["cartpole.xml", "half_cheetah.xml", "ant.xml"]


def scene_configs(env_class):
    """Return every combination of the fields that shape a class's scene."""
    fields = SCENE_FIELDS[env_class]
    configs = [
        dict(zip(fields, values, strict=True))
        for values in itertools.product([False, True], repeat=len(fields))
    ]
    return [c for c in configs if not (c.get("use_low_friction") and c.get("use_high_friction"))]


def idle(env, num_steps):
    """Return the last observation by name after steps without action, and whether one ended."""
    ended = False
    for _ in range(num_steps):
        observation, _, terminated, *_ = env.step(np.zeros(env.action_space.shape, np.float32))
        ended |= terminated
    return env.to_structured_observation(observation), ended


@pytest.mark.parametrize(("env_class", "config", "num_observed", "num_actions"), VARIANTS)
def test_sizes_are_the_documented_ones(env_class, config, num_observed, num_actions):
    """Spaces, dtype, and the observation within them."""
    with env_class(config) as env:
        assert env.observation_space.shape == (num_observed,)
        assert env.action_space.shape == (num_actions,)
        assert env.observation_space.dtype == env.action_space.dtype == np.float32
        assert np.isfinite(env.observation_space.high).all()
        observation, _ = env.reset(seed=0)
        assert observation in env.observation_space


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(("env_class", "config", "_observed", "_actions"), VARIANTS)
def test_sharing_changes_no_bit(env_class, config, noise, _observed, _actions):
    """Four environments in turn over 160 steps, through ends and resets, and reset independence."""
    check_scene_env(
        lambda: env_class({**config, "reset_noise_scale": noise, "steps_per_episode": 60}),
        num_envs=4,
        num_steps=160,
    )


@pytest.mark.parametrize(
    ("env_class", "config"),
    [
        (CartPoleEnv, {}),
        (AntEnv, {}),
        (AntEnv, {"use_gravity": False}),
        (CartPoleEnv, {"free_pole": True}),
    ],
)
def test_sharing_changes_no_bit_between_variants_on_one_scene(env_class, config):
    """Variants that act or observe otherwise share a scene and leave no trace in each other."""
    variants = [options for cls, options, *_ in VARIANTS if cls is env_class]
    shared = [env_class({**config, **options}) for options in variants]
    alone = [env_class({**config, **options}, use_shared_scenes=False) for options in variants]
    assert len({id(env._scene) for env in shared}) == 1
    rng = np.random.default_rng(0)
    for seed, pair in enumerate(zip(shared, alone, strict=True)):
        first, second = (env.reset(seed=seed)[0] for env in pair)
        assert np.array_equal(first, second)
    for _ in range(150):
        for one, other in zip(shared, alone, strict=True):
            action = rng.uniform(-1, 1, one.action_space.shape).astype(np.float32)
            got, expected = one.step(action), other.step(action)
            assert np.array_equal(got[0], expected[0])
            assert got[1:] == expected[1:]
            if got[2]:
                assert np.array_equal(one.reset()[0], other.reset()[0])
    for env in (*shared, *alone):
        env.close()


@pytest.mark.parametrize("file_name", MODELS)
def test_the_models_states_are_exact(file_name):
    """Each model file passes the check that any scene has to pass."""
    text = model_text(file_name)
    check_scene(lambda: MujocoScene.from_xml_string(text))


def model_text(file_name):
    from importlib.resources import files

    return files("superdex.envs").joinpath(file_name).read_text(encoding="utf-8")


@pytest.mark.parametrize("env_class", SCENE_FIELDS)
def test_a_name_stands_for_one_construction(env_class):
    """Over all values of the scene's fields and of some that are none."""
    others = [{}, {"steps_per_episode": 7, "reset_noise_scale": 0.3}, {"control_frequency": 10}]
    if env_class is CartPoleEnv:
        others.append({"actuate_on_pole": True})
    configs = [{**config, **other} for config in scene_configs(env_class) for other in others]
    check_scene_name(env_class, configs)


@pytest.mark.parametrize("env_class", SCENE_FIELDS)
def test_each_construction_has_its_own_name(env_class):
    """As many scenes as constructions, named by their values' repr; no more."""
    envs = [env_class(config) for config in scene_configs(env_class)]
    more = [env_class(config, steps_per_episode=3) for config in scene_configs(env_class)]
    info = SceneManager.get_instance(env_class.__name__).scene_info
    assert info == {repr(tuple(config.values())): 2 for config in scene_configs(env_class)}
    for env in (*envs, *more):
        env.close()


simulation = st.sampled_from([20, 40, 50, 80, 100, 200, 300, 500])


@settings(max_examples=20, deadline=None)
@given(first=simulation, second=simulation, seed=st.integers(0, 9))
def test_any_simulation_frequency_is_kept(first, second, seed):
    """A frequency that the model's timestep divides shares the scene; another has its own."""
    envs = [
        CartPoleEnv(control_frequency=20, simulation_frequency=frequency)
        for frequency in (first, second)
        if frequency % 20 == 0
    ]
    for env in envs:
        env.reset(seed=seed)
    for env in envs:
        env.step(np.zeros(1, np.float32))
        with env.own_state():
            assert env._scene.data.time == pytest.approx(0.05)
        env.close()
    check_scene_name(
        CartPoleEnv,
        [{"control_frequency": 1, "simulation_frequency": n} for n in (first, second)],
    )


@pytest.mark.parametrize("env_class", SCENE_FIELDS)
def test_random_actions_keep_the_physics_finite(env_class):
    """A thousand steps at full strength, without MuJoCo warning of a diverged simulation."""
    config = {"healthy_z_range": (-10, 10)} if env_class is AntEnv else {}
    if env_class is CartPoleEnv:
        config = {"max_pole_angle": 100.0}
    with env_class(config) as env:
        env.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(1000):
            action = np.sign(rng.uniform(-1, 1, env.action_space.shape)).astype(np.float32)
            observation, reward, *_ = env.step(action)
            assert np.isfinite(observation).all()
            assert np.isfinite(reward)
            assert np.abs(observation).max() < 100
        warned = [int(warning.number) for warning in env._scene.data.warning]
        assert warned == [0] * len(warned)


def test_the_pole_falls_and_says_so():
    """The episode ends beyond the angle, with reward 1 for each step before."""
    with CartPoleEnv(reset_noise_scale=0.02) as env:
        env.reset(seed=0)
        rewards = []
        terminated = False
        while not terminated:
            observation, reward, terminated, truncated, info = env.step(np.zeros(1, np.float32))
            rewards.append(reward)
        assert not truncated
        assert info["terminated_reason"] == "Pole angle exceeded threshold"
        assert abs(observation[3]) > 0.2095
        assert rewards == [1.0] * (len(rewards) - 1) + [0.0]


@pytest.mark.parametrize("actuate_on_pole", [False, True])
def test_the_pole_can_be_balanced(actuate_on_pole):
    """A linear controller holds it for ten seconds, through the cart and through the pole."""
    gain = np.array([0.5, 0.3, 0.2, 2.5]) if not actuate_on_pole else -np.array([1, 0, 0, 4])
    with CartPoleEnv(actuate_on_pole=actuate_on_pole) as env:
        observation, _ = env.reset(seed=1)
        for _ in range(500):
            observation, _, terminated, *_ = env.step(np.array([gain @ observation], np.float32))
            assert not terminated


def test_cart_pole_fields_change_the_physics():
    """No gravity: the pole stays. No damping: the cart keeps its speed. Free: no stop."""
    with CartPoleEnv(use_gravity=False, use_damping=False, reset_noise_scale=0.0) as env:
        env.reset(seed=0)
        with env.own_state():
            env._agent.qvel[0] = 0.5
            env._agent.qvel[1] = -0.5 * 0.0
        seen, ended = idle(env, 50)
        assert not ended
        assert seen["linear_vel"][0] == pytest.approx(0.5, abs=1e-6)
    angles = {}
    for free_pole in (False, True):
        with CartPoleEnv(free_pole=free_pole, max_pole_angle=100.0) as env:
            env.reset(seed=0)
            angles[free_pole] = max(abs(idle(env, 1)[0]["vertical_ang"][0]) for _ in range(100))
    assert angles[False] < 1.3
    assert angles[True] > 2.5


def test_the_cheetah_stands():
    """On its rest springs it keeps its place, level."""
    with HalfCheetahEnv(full_observation=True, reset_noise_scale=0.0) as env:
        env.reset(seed=0)
        seen, _ = idle(env, 200)
        assert abs(seen["pitch"][0]) < 0.1
        assert seen["height"][0] > -0.25
        assert abs(seen["position"][0]) < 0.3
        assert abs(seen["linear_velocity"]).max() < 0.01


def test_without_springs_the_cheetah_sinks():
    """The field changes what holds it up."""
    heights = {}
    for use_rest_springs in (True, False):
        with HalfCheetahEnv(use_rest_springs=use_rest_springs) as env:
            env.reset(seed=0)
            heights[use_rest_springs] = float(idle(env, 100)[0]["height"][0])
    assert heights[False] < heights[True] - 0.1


def test_an_open_loop_gait_runs_forward():
    """Sines at 2.5 Hz carry the cheetah forward, and the reward says how fast."""
    phase = np.array([3.9, 2.6, 2.2, 4.8, 5.2, 4.0])
    amplitude = np.array([0.9, 0.5, 1.3, 0.8, 0.9, 1.2])
    offset = np.array([0.0, 0.3, 0.4, -0.4, -0.7, 0.2])
    with HalfCheetahEnv(reset_noise_scale=0.0) as env:
        _, info = env.reset(seed=0)
        start, forward = info["x_position"], 0.0
        for step in range(100):
            torque = amplitude * np.sin(2 * np.pi * 2.5 * step / 20 + phase) + offset
            _, reward, *_, info = env.step(torque.astype(np.float32))
            forward += info["reward_forward"] / 20
            assert info["reward_control"] < 0
            assert reward == info["reward_forward"] + info["reward_control"]
    assert info["x_position"] > 5
    assert forward == pytest.approx(info["x_position"] - start)


def test_the_ant_stands():
    """Left alone it stays upright and healthy for 20 seconds."""
    with AntEnv() as env:
        env.reset(seed=0)
        seen, ended = idle(env, 400)
        assert not ended
        w, x, y, z = seen["orientation"]
        assert w * w - x * x - y * y + z * z > 0.98
        assert 0.28 < seen["height"][0] < 0.45


def test_the_standing_ants_contact_wrenches_carry_its_weight():
    """Before clipping, vertical contact forces sum to the weight; the shins bear them."""
    with AntEnv(use_shared_scenes=False) as env:
        env.reset(seed=0)
        idle(env, 400)
        forces = env._agent.contact_wrenches[:, 5]
        weight = float(env._scene.model.body_subtreemass[1]) * 9.81
        assert forces.sum() == pytest.approx(weight, rel=0.02)
        shins = [env._scene.model.body(f"{leg} shin").id - 1 for leg in LEGS]
        assert forces[shins].sum() == pytest.approx(weight, rel=0.02)


LEGS = ("front left", "back left", "back right", "front right")


def test_the_contact_wrenches_are_those_of_the_last_physics_step():
    """They equal what MuJoCo computes for the same motion in data of its own, to the bit."""
    with AntEnv(reset_noise_scale=0.0, simulation_frequency=20) as env, AntEnv() as sibling:
        env.reset(seed=0)
        sibling.reset(seed=1)
        model = mujoco.MjModel.from_xml_string(model_text("ant.xml"))
        data = mujoco.MjData(model)
        rng = np.random.default_rng(0)
        touched = 0
        for _ in range(60):
            action = rng.uniform(-1, 1, 8).astype(np.float32)
            observation, *_ = env.step(action)
            sibling.step(-action)
            data.ctrl[:] = action
            mujoco.mj_step(model, data, 5)
            mujoco.mj_rnePostConstraint(model, data)
            expected = data.cfrc_ext[1:].clip(-1, 1).astype(np.float32)
            got = env.to_structured_observation(observation)["contact_wrenches"]
            assert np.array_equal(got, expected)
            touched += bool(got.any())
        assert touched > 30


def test_the_unhealthy_ant_says_so():
    """Outside its range of heights the episode ends, without the healthy reward."""
    with AntEnv(healthy_z_range=(0.5, 1.0)) as env:
        env.reset(seed=0)
        for _ in range(20):
            *_, terminated, _, info = env.step(np.zeros(8, np.float32))
            assert info["reward_healthy"] == (0.0 if terminated else 1.0)
            if terminated:
                break
        assert info["terminated_reason"] == "Unhealthy"


def test_random_actions_make_the_ant_unhealthy_some_time():
    """Episodes of a random policy end, neither at once nor never."""
    lengths = []
    with AntEnv() as env:
        for seed in range(5):
            env.reset(seed=seed)
            env.action_space.seed(seed)
            ends = (env.step(env.action_space.sample())[2] for _ in range(1000))
            lengths.append(next((n for n, ended in enumerate(ends, 1) if ended), 1000))
    assert min(lengths) > 20
    assert sorted(lengths)[2] < 1000


def test_the_rotation_vector_is_the_quaternions():
    """Both variants describe one orientation."""
    with AntEnv() as env, AntEnv(use_rotation_vector=True) as other:
        quaternion = env.to_structured_observation(env.reset(seed=3)[0])["orientation"]
        vector = other.to_structured_observation(other.reset(seed=3)[0])["orientation"]
    angle = np.linalg.norm(vector)
    expected = np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * vector / angle])
    assert np.allclose(np.abs(quaternion @ expected), 1, atol=1e-6)


def test_ant_fields_change_the_physics():
    """Without gravity it floats; with less friction the same push slides further."""
    with AntEnv(use_gravity=False, reset_noise_scale=0.0) as env:
        env.reset(seed=0)
        assert idle(env, 40)[0]["height"][0] == pytest.approx(0.46, abs=0.03)
    slid = {}
    for name in ("use_low_friction", "use_high_friction"):
        with AntEnv({name: True, "full_observation": True, "reset_noise_scale": 0.0}) as env:
            env.reset(seed=0)
            idle(env, 20)
            with env.own_state():
                env._agent.qvel[0] = 1.5
            slid[name] = idle(env, 40)[0]["position"][0]
    assert slid["use_low_friction"] > slid["use_high_friction"] + 0.02
