"""Gymnasium's MuJoCo environments on one model and data: the same bits, and no mix-ups."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import mujoco
import numpy as np
import psutil
import pytest
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env

from superdex.errors import ClosedError, SceneMismatch, StateCaptureUnsupported
from superdex.scenes import live_scene_count, share_mujoco
from superdex.vector import HybridVectorEnv

GYMNASIUMS = [
    f"{name}-v5"
    for name in (
        "Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum "
        "Pusher Reacher Swimmer Walker2d"
    ).split()
]

BALL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body name="ball" pos="0 0 0.3"><freejoint/><geom size="{size}" mass="{mass}"/></body>
  </worldbody>
  <actuator><motor name="push" joint="{joint}" ctrlrange="-1 1"/></actuator>
</mujoco>
""".replace("<freejoint/>", '<joint name="x" type="slide"/>').replace('"{joint}"', '"x"')

Factory = Callable[[], gym.Env[Any, Any]]


class BallEnv(MujocoEnv):
    """A ball that is pushed; the constructor may change the model."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 100}  # noqa: RUF012  # as Gymnasium's

    def __init__(self, path: str, gravity: float | None = None, scale: float = 1.0) -> None:
        space = Box(-np.inf, np.inf, (2,))
        super().__init__(path, 5, observation_space=space, width=64, height=48)
        if gravity is not None:
            self.model.opt.gravity[2] = gravity
        self.model.body_mass *= scale

    def step(self, action):
        self.do_simulation(action, self.frame_skip)
        return self._observation(), 0.0, False, False, {}

    def reset_model(self):
        self.set_state(self.init_qpos + self.np_random.uniform(size=1), self.init_qvel)
        return self._observation()

    def push_gravity(self, gravity):
        self.model.opt.gravity[2] = gravity

    def _observation(self):
        return np.concatenate([self.data.qpos, self.data.qvel])


@pytest.fixture
def ball(tmp_path) -> str:
    path = tmp_path / "ball.xml"
    path.write_text(BALL.format(size=0.1, mass=1))
    return str(path)


@pytest.fixture
def made() -> Iterator[Callable[..., list[Any]]]:
    """Builds environments, and sees that none is left on a scene after them."""
    envs: list[Any] = []

    def make(*factories: Factory) -> list[Any]:
        new = [factory() for factory in factories]
        envs.extend(new)
        return new

    yield make
    for env in envs:
        env.close()
    assert live_scene_count() == 0


def is_same(a: Any, b: Any) -> bool:
    """Return whether two results are the same to the bit, types included."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype == y.dtype == object:
        return bool(np.array_equal(x, y))
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def interleave(plain: list[Any], shared: list[Any], num_steps: int) -> int:
    """Step both lists alike, in random order; return how many episodes ended."""
    rng = np.random.default_rng(7)
    ended = 0
    for seed, (a, b) in enumerate(zip(plain, shared, strict=True)):
        assert is_same(a.reset(seed=seed), b.reset(seed=seed))
    for _ in range(num_steps):
        for k in rng.permutation(len(plain)):
            space = plain[k].action_space
            action = rng.uniform(space.low, space.high).astype(space.dtype)
            result = plain[k].step(action)
            assert is_same(result, shared[k].step(action))
            if result[2] or result[3]:
                ended += 1
                assert is_same(plain[k].reset(), shared[k].reset())
    return ended


# The same bits


@pytest.mark.parametrize("name", GYMNASIUMS)
def test_interleaved_environments_are_bit_equal_to_unshared_ones(name, made):
    """Observations, rewards, flags and infos of 200 steps, through resets."""
    make = partial(gym.make, name, max_episode_steps=60)
    plain, shared = made(make, make, make), made(*[share_mujoco(make)] * 3)
    assert len({id(env.unwrapped.data) for env in shared}) == 1
    assert live_scene_count() == 1
    assert interleave(plain, shared, 200) >= 9


@pytest.mark.parametrize("name", ["Ant-v5", "Humanoid-v5", "Reacher-v5"])
def test_workers_give_what_a_plain_vector_gives(name):
    """Steps, autoresets, and what is asked of single environments between them."""
    make = partial(gym.make, name, max_episode_steps=20)
    with (
        HybridVectorEnv([make] * 6, num_workers=1, in_process=True) as plain,
        HybridVectorEnv([share_mujoco(make)] * 6, num_workers=2) as shared,
    ):
        assert is_same(tuple(plain.reset(seed=3)), tuple(shared.reset(seed=3)))
        plain.action_space.seed(0)
        for _ in range(50):
            actions = plain.action_space.sample()
            assert is_same(tuple(plain.step(actions)), tuple(shared.step(actions)))
            for name, *args in [("state_vector",), ("get_body_com", "world"), ("dt",)]:
                assert is_same(plain.call(name, *args), shared.call(name, *args))
        qpos = np.asarray([data.qpos for data in shared.get_attr("data")])
        assert is_same(qpos, np.asarray([data.qpos for data in plain.get_attr("data")]))
        assert shared.statistics().live_scenes == (1, 1)


@pytest.mark.parametrize("name", ["Ant-v5", "Humanoid-v5"])
def test_a_body_is_where_the_last_step_left_it(name, made):
    """What the saved fields hold is bit-equal outside of a step too, and a look leaves no trace."""
    make = partial(gym.make, name)
    plain, shared = made(make, make), made(*[share_mujoco(make)] * 2)
    for _ in range(3):
        interleave(plain, shared, 20)
        for a, b in zip(plain, shared, strict=True):
            expected = a.unwrapped.get_body_com("torso" if name == "Humanoid-v5" else 1)
            with b.unwrapped.own_state():
                assert is_same(expected, b.unwrapped.data.body("torso").xpos)


def test_bodies_moved_from_outside_are_moved(made):
    """set_state between two steps does what it does without sharing."""
    make = partial(gym.make, "Ant-v5")
    plain, shared = made(make, make), made(*[share_mujoco(make)] * 2)
    interleave(plain, shared, 5)
    for a, b in zip(plain, shared, strict=True):
        qpos, qvel = a.unwrapped.init_qpos + 0.1, a.unwrapped.init_qvel
        a.unwrapped.set_state(qpos, qvel)
        with b.unwrapped.own_state():
            b.unwrapped.set_state(qpos, qvel)
    for a, b in zip(plain, shared, strict=True):
        action = np.full(8, 0.3, np.float32)
        assert is_same(a.step(action), b.step(action))


def test_what_is_written_into_the_data_stays(made):
    """A force applied between two steps acts on its environment alone, in its next step."""
    make = partial(gym.make, "HalfCheetah-v5")
    plain, shared = made(make, make), made(*[share_mujoco(make)] * 2)
    interleave(plain, shared, 3)
    for env in (plain[0], shared[0]):
        env.unwrapped.data.xfrc_applied[1, 0] = 50.0
    assert shared[1].unwrapped.data.xfrc_applied[1, 0] == 0.0
    action = np.zeros(6, np.float32)
    for a, b in zip(plain, shared, strict=True):
        assert is_same(a.step(action), b.step(action))


class Progress(gym.Wrapper):
    """Measures a step by the data, through a reference that it keeps if asked to."""

    def __init__(self, env, keeps=False):
        super().__init__(env)
        self._kept = env.unwrapped.data if keeps else None

    def step(self, action):
        data = self.unwrapped.data if self._kept is None else self._kept
        before = data.body("torso").xpos.copy(), data.qpos.copy()
        observation, _, *rest = super().step(action)
        after = self.unwrapped.data.body("torso").xpos, self.unwrapped.data.qpos
        reward = sum(float(np.sum(b - a)) for a, b in zip(before, after, strict=True))
        return observation, reward, *rest


@pytest.mark.parametrize("keeps", [False, True])
def test_wrappers_inside_read_their_environments_data(keeps, made):
    """What a wrapper reads before the step is its own, even where it kept the data."""

    def make():
        return Progress(gym.make("Ant-v5"), keeps=keeps)

    interleave(made(make, make), made(*[share_mujoco(make)] * 2), 30)


def test_wrappers_outside_read_their_environments_data(made):
    """So is what a wrapper reads that goes around what the shared factory built."""

    def make():
        return Progress(gym.make("Ant-v5"))

    def make_shared():
        return Progress(share_mujoco(partial(gym.make, "Ant-v5"))())

    interleave(made(make, make), made(make_shared, make_shared), 30)


def test_pictures_are_of_their_environment(made):
    """Each environment draws its own state, as without sharing, also after a sibling closed."""
    make = partial(gym.make, "Reacher-v5", render_mode="rgb_array", width=96, height=64)
    plain, shared = made(make, make, make), made(*[share_mujoco(make)] * 3)
    for seed, (a, b) in enumerate(zip(plain, shared, strict=True)):
        a.reset(seed=seed)
        b.reset(seed=seed)
    expected = []
    for env in plain:
        # One after another: Gymnasium draws in the context that was made last.
        expected.append(env.render())
        env.close()
    assert all(is_same(*pair) for pair in zip(expected, [e.render() for e in shared], strict=True))
    shared[1].close()
    assert is_same(expected[0], shared[0].render())
    assert is_same(expected[2], shared[2].render())
    assert not np.array_equal(expected[0], expected[2])


def test_it_passes_for_what_it_is(made):
    """Class, spaces, spec, initial state and renderer are those of the unshared environment."""
    make = partial(gym.make, "HalfCheetah-v5")
    (plain,), (first, second) = made(make), made(*[share_mujoco(make)] * 2)
    first.reset(seed=0)
    for env in (first, second):
        base = env.unwrapped
        assert isinstance(base, HalfCheetahEnv)
        assert (type(base).__name__, str(env)) == ("HalfCheetahEnv", str(plain))
        assert env.observation_space == plain.observation_space
        assert env.action_space == plain.action_space
        assert env.spec == plain.spec
        assert is_same(base.init_qpos, plain.unwrapped.init_qpos)
        assert base.mujoco_renderer.model is base.model
        assert base.mujoco_renderer.data is base.data


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Ant-v5"])
def test_gymnasiums_checker_passes(name, made):
    """check_env accepts a shared environment beside a sibling."""
    env, sibling = made(*[share_mujoco(partial(gym.make, name))] * 2)
    sibling.reset(seed=0)
    with warnings.catch_warnings():
        # Of the unshared one it says the same: that observations are unbounded.
        warnings.filterwarnings("ignore", message=".*A Box observation space .* value is")
        check_env(env.unwrapped, skip_render_check=True)


# What is shared, and what is not


def test_a_model_is_compiled_once(made, monkeypatch):
    """Constructors after the first get what is there."""
    compiled = []
    compile_model = mujoco.MjModel.from_xml_path

    def counted(path):
        compiled.append(path)
        return compile_model(path)

    monkeypatch.setattr(mujoco.MjModel, "from_xml_path", counted)
    made(*[share_mujoco(partial(gym.make, "Hopper-v5"))] * 5)
    assert len(compiled) == 1


def test_an_environment_costs_kilobytes(made):
    """Two hundred more environments of a megabyte each take no memory to speak of."""
    make = share_mujoco(HalfCheetahEnv)
    for env in made(make, make):
        env.reset(seed=0)
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    for env in made(*[make] * 200):
        env.reset(seed=0)
    gc.collect()
    assert (process.memory_info().rss - before) / 200 < 64 * 1024


def test_different_constructions_are_kept_apart(ball, tmp_path, made):
    """Another file, another change in the constructor or another picture size: another model."""
    heavy = tmp_path / "heavy.xml"
    heavy.write_text(BALL.format(size=0.1, mass=2))
    ways = [
        partial(BallEnv, ball),
        partial(BallEnv, str(heavy)),
        partial(BallEnv, ball, gravity=-1.6),
        partial(BallEnv, ball, scale=3.0),
    ]
    plain, shared = made(*ways, *ways), made(*[share_mujoco(way) for way in ways * 2])
    assert live_scene_count() == 4
    for one, other in zip(shared[:4], shared[4:], strict=True):
        assert one.data is other.data
    interleave(plain, shared, 20)
    for a, b in zip(plain, shared, strict=True):
        assert is_same(a.model.body_mass, b.model.body_mass)


def test_two_classes_do_not_share(ball, made):
    """A subclass gets a model of its own, though it compiles the same."""

    class OtherEnv(BallEnv):
        pass

    one, other = made(share_mujoco(partial(BallEnv, ball)), share_mujoco(partial(OtherEnv, ball)))
    assert one.model is not other.model


@pytest.mark.parametrize("is_included", [False, True])
def test_a_file_written_anew_is_another_model(is_included, ball, tmp_path, made):
    """The contents of the files count, those of included ones too, and not their names."""
    path = ball
    if is_included:
        path = str(tmp_path / "outer.xml")
        Path(path).write_text('<mujoco><include file="ball.xml"/></mujoco>')
    make = share_mujoco(partial(BallEnv, path))
    (light,) = made(make)
    Path(ball).write_text(BALL.format(size=0.1, mass=5))
    (heavy,) = made(make)
    assert light.model.body_mass[1] == 1.0
    assert heavy.model.body_mass[1] == 5.0


def test_simulations_of_the_classs_own_making_are_compared(ball, made):
    """A class that compiles by itself shares where what it compiled, and its state, is the same."""

    class SpecEnv(BallEnv):
        def _initialize_simulation(self):
            spec = mujoco.MjSpec.from_file(self.fullpath)
            spec.option.gravity[2] = -3.0
            model = spec.compile()
            data = mujoco.MjData(model)
            data.qpos[:] = 0.25
            return model, data

    make = partial(SpecEnv, ball)
    plain, shared = made(make, make), made(*[share_mujoco(make)] * 2)
    assert shared[0].data is shared[1].data
    assert shared[1].init_qpos[0] == 0.25
    interleave(plain, shared, 10)


def test_a_change_of_the_model_is_refused(ball, made):
    """Neither a call nor a step changes the model of siblings, and it is put back."""
    one, other = made(*[share_mujoco(partial(BallEnv, ball))] * 2)
    with pytest.raises(SceneMismatch, match=r"opt\.gravity"), one.own_state():
        one.push_gravity(-1.0)
    assert other.model.opt.gravity[2] == -9.81
    one.push_gravity(-1.0)
    with pytest.raises(SceneMismatch, match="without share_mujoco"):
        other.reset(seed=0)
    one.push_gravity(-1.0)
    with pytest.raises(SceneMismatch, match="without share_mujoco"):
        share_mujoco(partial(BallEnv, ball))()
    assert one.model.opt.gravity[2] == -9.81
    made(share_mujoco(partial(BallEnv, ball)))
    assert live_scene_count() == 1


def test_a_refused_change_says_how_to_draw_the_model_anew(ball, made):
    """Without sharing, or as an environment on a scene."""
    (env,) = made(share_mujoco(partial(BallEnv, ball)))
    env.model.body_mass[1] *= 2
    with pytest.raises(SceneMismatch, match=r"body_mass .* varied_fields .* _draw_physics"):
        env.reset(seed=0)


@pytest.mark.parametrize("name", ["model", "data"])
def test_another_model_or_data_is_refused(name, ball, made):
    """An environment can't part from its siblings unnoticed."""
    env, _ = made(*[share_mujoco(partial(BallEnv, ball))] * 2)
    with pytest.raises(SceneMismatch, match="without share_mujoco"):
        setattr(env, name, None)


def test_a_constructor_that_replaces_the_data_is_left_alone(ball, made):
    """Such an environment works unshared, a warning says so, and siblings keep their state."""

    class OwnDataEnv(BallEnv):
        def __init__(self, path, own):
            super().__init__(path)
            if own:
                self.data = mujoco.MjData(self.model)

    make = share_mujoco(partial(OwnDataEnv, ball, False))
    (sibling,) = made(make)
    sibling.reset(seed=1)
    before = sibling.data.qpos.copy()
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="OwnDataEnv has a model and data of its own"):
            (env,) = made(share_mujoco(partial(OwnDataEnv, ball, True)))
        env.reset(seed=2)
        env.step(np.ones(1, np.float32))
        assert env.model is not sibling.model
    assert is_same(before, sibling.data.qpos)


def test_a_constructor_that_fails_leaves_siblings_as_they_were(ball, made):
    """The model is put back, the state is kept, and the next construction works."""

    class FailingEnv(BallEnv):
        def __init__(self, path, fails):
            super().__init__(path)
            if fails:
                self.model.opt.gravity[2] = 0.0
                self.model.vis.global_.fovy = 10.0
                raise ValueError("on purpose")

    make = share_mujoco(partial(FailingEnv, ball, False))
    (sibling,) = made(make)
    sibling.reset(seed=1)
    before = sibling.data.qpos.copy()
    with pytest.raises(ValueError, match="on purpose"):
        share_mujoco(partial(FailingEnv, ball, True))()
    assert (sibling.model.opt.gravity[2], sibling.model.vis.global_.fovy) == (-9.81, 45.0)
    assert is_same(before, sibling.data.qpos)
    assert made(make)[0].data is sibling.data
    assert MujocoEnv.__init__.__module__ == "gymnasium.envs.mujoco.mujoco_env"


def test_an_environment_built_amid_a_turn_gets_its_own(ball, made):
    """A planner that an environment builds as it steps does not wait for its turn for ever."""
    make = share_mujoco(partial(BallEnv, ball))
    (env,) = made(make)
    with env.own_state():
        (planner,) = made(make)
    assert planner.data is not env.data


# Seats are given back


def test_the_last_one_to_close_frees_the_scene(ball, made):
    """Closing one leaves siblings; closing twice is fine; a closed one says that it is closed."""
    one, other = made(*[share_mujoco(partial(BallEnv, ball))] * 2)
    for env in (one, other):
        env.reset(seed=0)
    one.close()
    one.close()
    with pytest.raises(ClosedError, match="BallEnv is closed"):
        one.step(np.zeros(1, np.float32))
    with pytest.raises(ClosedError):
        _ = one.data
    other.step(np.zeros(1, np.float32))
    assert live_scene_count() == 1
    other.close()
    assert live_scene_count() == 0


def test_a_dropped_environment_gives_its_seat_back(ball):
    """Without close too."""
    make = share_mujoco(partial(BallEnv, ball))
    envs = [make(), make()]
    envs[0].reset(seed=0)
    envs[1].reset(seed=0)
    del envs
    gc.collect()
    assert live_scene_count() == 0


def test_two_threads_at_once_are_refused(ball, made):
    """A step amid another environment's turn, in another thread, raises and moves nothing."""
    one, other = made(*[share_mujoco(partial(BallEnv, ball))] * 2)
    for env in (one, other):
        env.reset(seed=0)
    failures = []

    def step_other():
        for use in (partial(other.step, np.zeros(1, np.float32)), lambda: other.data):
            try:
                use()
            except RuntimeError as error:
                failures.append(str(error))

    with one.own_state():
        before = one.data.qpos.copy()
        thread = threading.Thread(target=step_other)
        thread.start()
        thread.join()
        assert is_same(before, one.data.qpos)
    assert len(failures) == 2
    assert all("take turns" in failure for failure in failures)
    other.step(np.zeros(1, np.float32))


# What can't be shared


def test_sleeping_bodies_are_refused(tmp_path):
    """A state that can't be captured is not shared."""
    path = tmp_path / "sleepy.xml"
    option = '<mujoco><option><flag sleep="enable"/></option>'
    path.write_text(BALL.format(size=0.1, mass=1).replace("<mujoco>", option))
    with pytest.raises(StateCaptureUnsupported, match="sleeping actors"):
        share_mujoco(partial(BallEnv, str(path)))()
    assert live_scene_count() == 0


def test_callbacks_are_refused(ball):
    """A callback may remember anything, and belongs to no environment."""
    mujoco.set_mjcb_control(lambda model, data: None)
    try:
        with pytest.raises(StateCaptureUnsupported, match="callback actors: mjcb_control"):
            share_mujoco(partial(BallEnv, ball))()
    finally:
        mujoco.set_mjcb_control(None)


def test_other_environments_are_refused():
    """What is no MujocoEnv is named, and what is no function too."""
    with pytest.raises(TypeError, match="MujocoEnv; it returned"):
        share_mujoco(partial(gym.make, "CartPole-v1"))()
    with pytest.raises(TypeError, match="needs a function"):
        share_mujoco("HalfCheetah-v5")


def test_factories_travel_and_environments_do_not(made):
    """The factory can be pickled; an environment says why it can't."""
    make = cloudpickle.loads(cloudpickle.dumps(share_mujoco(lambda: AntEnv(), fields=("xpos",))))
    (env,) = made(make)
    with pytest.raises(TypeError, match="shares its model and data"):
        copy.deepcopy(env.unwrapped)
    assert share_mujoco(make) is make
