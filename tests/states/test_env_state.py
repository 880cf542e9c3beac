"""The state of one environment: exact, or refused by name."""

from __future__ import annotations

import enum
import re
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.spaces import Box

import superdex.envs.mujoco  # noqa: F401  # registers its ids
from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv, SceneEnv
from superdex.errors import StateCaptureUnsupported
from superdex.scenes import MujocoScene, share_mujoco
from superdex.states._codec import decode
from superdex.states._env_state import EnvState, difference
from superdex.vector import BoxSpaces

GYMNASIUM = [
    f"{name}-v5"
    for name in (
        *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
        *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
    )
]
CLASSIC = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]
OWN = [
    CartPoleEnv,
    HalfCheetahEnv,
    AntEnv,
    partial(CartPoleEnv, free_pole=True, actuate_on_pole=True),
    partial(AntEnv, observe_contacts=False),
]

pytestmark = pytest.mark.filterwarnings("ignore:.*settotalmass.*", "ignore:.*Overriding.*")


def captured(env) -> tuple[bytes, dict[str, str]]:
    state = EnvState(env)
    return state.encode({"env": state.capture()}), state.tag()


def restored(env, data: bytes, tag: dict[str, str]) -> None:
    state = EnvState(env)
    assert difference(state.tag(), tag) is None
    tree = decode(data)["env"]
    state.check(tree)
    state.restore(tree)


def trajectory(env, actions) -> list[Any]:
    """Return all that an environment shows, through resets."""
    shown: list[Any] = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        shown.append((np.asarray(observation).tobytes(), reward, terminated, truncated))
        shown.append({k: np.asarray(v).tolist() for k, v in info.items() if k != "episode"})
        if terminated or truncated:
            observation, info = env.reset()
            shown.append((np.asarray(observation).tobytes(), str(info)))
    return shown


def check_exact(make, make_other=None, steps=(30, 50)) -> None:
    """Capture, step, restore and step again; and the same in another environment, elsewhere."""
    envs = [make() for _ in range(2)] + [(make_other or make)()]
    one, sibling, other = envs
    one.action_space.seed(0)
    actions = [one.action_space.sample() for _ in range(sum(steps))]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    trajectory(one, actions[: steps[0]])
    trajectory(other, actions[5:17])
    data, tag = captured(one)
    expected = trajectory(one, actions[steps[0] :])
    trajectory(sibling, actions[:3])
    restored(other, data, tag)
    assert trajectory(other, actions[steps[0] :]) == expected
    restored(one, data, tag)
    assert trajectory(one, actions[steps[0] :]) == expected
    for env in envs:
        env.close()


@pytest.mark.parametrize("name", GYMNASIUM)
def test_gymnasium_mujoco_is_exact(name):
    """Alone, and from there into one on a shared scene."""
    make = partial(gym.make, name)
    check_exact(make)
    check_exact(make, share_mujoco(make))


@pytest.mark.parametrize("name", GYMNASIUM)
def test_shared_gymnasium_mujoco_is_exact(name):
    """On one scene, and from there into one that is alone."""
    make = partial(gym.make, name)
    check_exact(share_mujoco(make))
    check_exact(share_mujoco(make), make)


@pytest.mark.parametrize("name", GYMNASIUM)
def test_their_array_versions_are_exact(name):
    """Shared, unshared, and from one to the other."""
    make = partial(gym.make, f"superdex/{name}")
    alone = partial(make, use_shared_scenes=False)
    check_exact(make)
    check_exact(make, alone)
    check_exact(alone, make)


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_control_is_exact(name):
    """As it is, and with box spaces around."""
    check_exact(partial(gym.make, name, max_episode_steps=40))
    check_exact(lambda: BoxSpaces(gym.make(name, max_episode_steps=40)))


@pytest.mark.parametrize("make", OWN)
def test_scene_environments_are_exact(make):
    """Shared, unshared, and from one to the other."""
    alone = partial(make, use_shared_scenes=False)
    check_exact(make)
    check_exact(make, alone)
    check_exact(alone, make)


def stacked(env):
    return wrappers.FrameStackObservation(wrappers.RecordEpisodeStatistics(env), 3)


@pytest.mark.parametrize(
    "wrap",
    [
        partial(wrappers.NormalizeObservation, epsilon=1e-6),
        partial(wrappers.NormalizeReward, gamma=0.9),
        wrappers.RecordEpisodeStatistics,
        stacked,
        partial(wrappers.DelayObservation, delay=2),
        wrappers.TimeAwareObservation,
        partial(wrappers.StickyAction, repeat_action_probability=0.5),
        partial(wrappers.RepeatAction, num_repeats=2),
        partial(wrappers.RescaleAction, min_action=np.float32(-1), max_action=np.float32(1)),
        partial(wrappers.TransformReward, func=lambda reward: float(reward) * 2),
        partial(wrappers.MaxAndSkipObservation, skip=2),
        partial(wrappers.TimeLimit, max_episode_steps=17),
        lambda env: wrappers.NormalizeReward(wrappers.NormalizeObservation(env)),
    ],
)
def test_gymnasium_wrappers_are_exact(wrap):
    """Running means, stacks, delays and counters go with the state."""
    check_exact(lambda: wrap(gym.make("Pendulum-v1", max_episode_steps=25)))


def test_statistics_of_episodes_go_on():
    """Returns, lengths and counts; elapsed time is counted from then on."""
    make = partial(gym.make, "Pendulum-v1", max_episode_steps=10)
    one, other = (wrappers.RecordEpisodeStatistics(make()) for _ in range(2))
    one.reset(seed=0)
    other.reset(seed=1)
    trajectory(one, [np.zeros(1, np.float32)] * 15)
    data, tag = captured(one)
    restored(other, data, tag)
    assert other.return_queue == one.return_queue
    assert other.length_queue == deque([10], 100)
    assert (other.episode_count, other.episode_lengths) == (1, 5)
    assert abs(other.episode_start_time - one.episode_start_time) < 60


def test_the_generator_of_a_space_goes_with_the_state():
    """For environments that draw actions from it."""
    one, other = gym.make("Pendulum-v1"), gym.make("Pendulum-v1")
    one.action_space.seed(3)
    one.reset(seed=0)
    data, tag = captured(one)
    restored(other, data, tag)
    assert other.action_space.sample() == one.action_space.sample()


def test_what_was_set_from_outside_goes_with_the_state():
    """An attribute is part of what the future depends on."""
    one, other = gym.make("Pendulum-v1"), gym.make("Pendulum-v1")
    one.reset(seed=0)
    one.unwrapped.g = 3.0
    one.unwrapped.extra = np.arange(3)
    other.unwrapped.spare = 1
    data, tag = captured(one)
    restored(other, data, tag)
    assert other.unwrapped.g == 3.0
    assert other.unwrapped.extra.tolist() == [0, 1, 2]
    assert not hasattr(other.unwrapped, "spare")


def test_a_capture_shares_nothing_with_the_environment():
    """Nor do two environments that one state was put into."""
    envs = [gym.make("Pendulum-v1") for _ in range(3)]
    for env in envs:
        env.reset(seed=0)
    data, tag = captured(envs[0])
    for env in envs[1:]:
        restored(env, data, tag)
    action = np.ones(1, np.float32)
    first = trajectory(envs[1], [action] * 5)
    assert trajectory(envs[2], [action] * 5) == first
    assert envs[1].unwrapped.np_random is not envs[2].unwrapped.np_random


# ── what can't be captured ──────────────────────────────────────────────────────────────────────


class Opaque(gym.Env):
    observation_space = action_space = Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = float(self.np_random.normal())
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x += float(action[0]) * float(self.np_random.uniform())
        return np.array([self.x], np.float32), self.x, False, False, {}


class Telling(Opaque):
    """Says itself what its state is."""

    def get_state(self):
        return {"x": self.x}

    def set_state(self, state):
        self.x = state["x"]


class Wrong(Telling):
    def get_state(self):
        return {"x": object()}


class Counting(gym.Wrapper):
    count = 0

    def step(self, action):
        self.count += 1
        return super().step(action)


class Saying(Counting):
    def get_state(self):
        return self.count

    def set_state(self, state):
        self.count = state


class Doubling(gym.ObservationWrapper):
    def observation(self, observation):
        return observation * 2


class Smoothing(gym.ObservationWrapper):
    """Has a state, all of it plain."""

    def __init__(self, env):
        super().__init__(env)
        self.mean = 0.0

    def observation(self, observation):
        self.mean = 0.9 * self.mean + 0.1 * observation
        return self.mean


class Hiding(Smoothing):
    def __init__(self, env):
        super().__init__(env)
        self.filter = iter([])


class Pushed(PendulumEnv):
    def __init__(self, tool=None):
        super().__init__()
        self.tool = tool


def drawing():
    """Return a function with a generator of its own."""
    generator = np.random.default_rng(0)
    return lambda: generator.normal()


def test_get_state_and_set_state_are_used():
    """The generator is seen to."""
    check_exact(Telling)


GOALS = np.arange(12.0).reshape(4, 3)
"""Of all environments."""


class Phase(enum.Enum):
    REST = 1
    RUN = 2


@dataclass(frozen=True)
class Goal:
    place: float
    noise: np.ndarray


class Busy(PendulumEnv):
    """Remembers in many ways; its reward shows all of it."""

    __slots__ = ("__slot",)

    def __init__(self):
        super().__init__()
        self.buffer = np.zeros(4)
        self.head = self.buffer[:2]
        self.goals = np.arange(12.0).reshape(4, 3)
        self.history = self.log = []
        self.rule = abs
        self._choose(0)
        self.__slot = 0

    def _choose(self, k):
        self.goal, self.common = self.goals[k], GOALS[k]
        self.phase = Phase.RUN if k % 2 else Phase.REST
        self.behaviour = self._run if k % 2 else self._rest
        self.target = Goal(float(k), np.full(2000, k))

    def _run(self):
        return 3.0

    def _rest(self):
        return 5.0

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.head += self.np_random.normal(size=2)
        self.log.append(self.np_random.normal())
        self.__slot += 1
        shown = (
            *(self.buffer.sum(), self.goal.sum(), self.goals.sum(), self.common.sum()),
            *(GOALS.sum(), sum(self.history), self.phase.value, self.behaviour()),
            *(self.target.place, self.target.noise[1000], self.__slot, self.rule(-1.0)),
        )
        self._choose(int(self.np_random.integers(4)))
        return observation, reward, terminated, truncated, info | {"shown": shown}


def test_what_an_environment_remembers_in_other_ways_is_exact():
    """Views, names for one list, slots, own methods, enumerations and frozen data classes.

    A table from which an environment has chosen a row is left as it was, whoever it belongs to.
    """
    for seed in range(3):
        check_exact(Busy, steps=(3 + seed, 20))
    np.testing.assert_array_equal(GOALS, np.arange(12.0).reshape(4, 3))


def test_what_an_environment_is_made_of_is_no_part_of_a_state():
    """A state that was tampered with does not get at it."""
    env = gym.make("Pendulum-v1")
    env.reset(seed=0)
    state = EnvState(env)
    tree = state.capture()
    tree["layers"][-1]["spec"] = [None, 3]
    with pytest.raises(ValueError, match=r"damaged: 'spec' of PendulumEnv is no part of a state"):
        state.check(tree)


def test_another_function_in_its_place_is_noticed():
    """It can't be put back, and nothing may go on with the wrong one."""
    one, other = Pushed(np.tanh), Pushed(partial(np.add, 1))
    third = Pushed(partial(np.add, 2))
    for env in (one, other, third):
        env.reset(seed=0)
    data, tag = captured(other)
    with pytest.raises(ValueError, match=r"another Pushed, with another 'tool'"):
        restored(third, data, tag)
    with pytest.raises(ValueError, match=r"another Pushed, with another 'tool': expected tanh"):
        restored(one, data, tag)


def test_an_environment_of_which_nothing_is_known_is_named():
    """And what it has to define."""
    with pytest.raises(
        StateCaptureUnsupported, match=r"Opaque.*Define get_state\(\) and set_state"
    ):
        EnvState(Opaque())


def test_wrappers_of_ones_own():
    """Those that transform, and those that say what their state is, are exact."""
    for wrap in (Doubling, Smoothing, Saying, gym.Wrapper):
        check_exact(lambda wrap=wrap: wrap(gym.make("Pendulum-v1")))


def test_a_wrapper_of_which_nothing_is_known_is_named():
    """A wrapper may hold anything."""
    env = Counting(gym.make("Pendulum-v1"))
    env.reset(seed=0)
    env.step(np.zeros(1, np.float32))
    with pytest.raises(StateCaptureUnsupported, match=r"state of Counting .*wrapper"):
        EnvState(env)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pushed(object()), r"Pushed can't be captured: its attribute 'tool'"),
        (lambda: Pushed([1, {"a": {1: object()}}]), r"Pushed .*'tool'.*object"),
        (lambda: Pushed(PendulumEnv()), r"Pushed .*'tool'.*PendulumEnv"),
        (lambda: Pushed(np.random.default_rng(0).normal), r"Pushed .*'tool'.*Generator"),
        (lambda: Pushed(partial(max, np.random.default_rng(0))), r"'tool'.*Generator"),
        (lambda: Pushed(drawing()), r"Pushed .*'tool'.*Generator"),
        (lambda: Pushed([].append), r"Pushed .*'tool'.*method of a list"),
        (lambda: Hiding(gym.make("Pendulum-v1")), r"Hiding .*'filter'"),
        (Wrong, r"Wrong\.get_state\(\) returned"),
    ],
)
def test_an_attribute_that_is_no_plain_value_is_named(make, message):
    """With class and attribute; the environment goes on as before."""
    env, twin = make(), make()
    for each in (env, twin):
        each.reset(seed=0)
    with pytest.raises(StateCaptureUnsupported, match=message):
        captured(env)
    action = np.ones(1, np.float32)
    assert trajectory(env, [action] * 3) == trajectory(twin, [action] * 3)


def test_functions_and_constants_are_left_alone():
    """They are how an environment is built."""
    for tool in (
        np.tanh,
        partial(np.add, 1),
        lambda: check_exact,
        captured,
        np,
        Box,
        np.dtype("f4"),
    ):
        check_exact(partial(Pushed, tool))


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (CartPoleEnv, HalfCheetahEnv, "another environment: expected .*HalfCheetahEnv, got .*Cart"),
        (
            partial(gym.make, "Pendulum-v1", max_episode_steps=50),
            partial(gym.make, "Pendulum-v1", max_episode_steps=60),
            r"max_episode_steps=60\).*max_episode_steps=50\)",
        ),
        (CartPoleEnv, partial(CartPoleEnv, steps_per_episode=9), "another settings: .*=9"),
        (
            partial(CartPoleEnv, use_gravity=False),
            CartPoleEnv,
            "another settings: expected .*use_gravity=True",
        ),
        (partial(gym.make, "Pendulum-v1"), lambda: Doubling(gym.make("Pendulum-v1")), "Doubling"),
    ],
)
def test_what_differs_is_named(one, other, message):
    """With what was expected and what came."""
    envs = one(), other()
    for env in envs:
        env.reset(seed=0)
    said = difference(EnvState(envs[1]).tag(), EnvState(envs[0]).tag())
    assert re.search(message, said or "")
    for env in envs:
        env.close()


class Looking(HopperEnv):
    """Reads, before a step, what the last one left one timestep behind."""

    def step(self, action):
        seen = float(self.data.geom_xpos.sum() + self.data.cvel.sum() + self.data.qacc.sum())
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + seen, terminated, truncated, info


def test_a_mujoco_environment_may_read_anything_before_a_step():
    """Of a class that is not Gymnasium's, all such numbers are kept."""
    check_exact(Looking)
    one, other = share_mujoco(Looking)(), Looking()
    for env in (one, other):
        env.reset(seed=0)
    restored(other, *captured(one))  # which has no more than its scene saves
    assert other.data.qpos.tobytes() == one.unwrapped.data.qpos.tobytes()
    one.close()


def test_another_model_is_told_from_the_same():
    """A model that was changed after construction, too."""
    one, other = gym.make("Hopper-v5"), gym.make("Hopper-v5")
    assert difference(EnvState(one).tag(), EnvState(other).tag()) is None
    other.unwrapped.model.opt.viscosity = 0.5
    said = difference(EnvState(one).tag(), EnvState(other).tag())
    assert said is not None
    assert "model of the scene" in said


class Idle:
    """A scene that can capture, but not export."""

    def capture_state(self):
        return 0

    def restore_state(self, handle, /):
        pass

    def release_state(self, handle, /):
        pass

    def step(self, dt, /):
        pass

    def close(self):
        pass


class Bodyless(SceneEnv):
    """On such a scene."""

    def __init__(self):
        super().__init__()
        self._setup_observation_space(x=Box(-1, 1, (1,)))
        self._setup_action_space(x=Box(-1, 1, (1,)))
        self._load_scene("none", lambda: (Idle(), None))

    def _apply_action(self, action):
        pass

    def _make_observation(self):
        return {"x": np.zeros(1)}, {}

    def _compute_reward_terms(self, action, observation, info):
        return {}


def test_a_scene_that_can_not_be_exported_is_named():
    """It says what is missing."""
    with Bodyless() as env:
        env.reset(seed=0)
        with pytest.raises(StateCaptureUnsupported, match=r"Bodyless.*Idle has no export_state"):
            EnvState(env).tag()


class Remembering(CartPoleEnv):
    """Remembers things beside its scene, of which one is a live view."""

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        self.view = self._scene.data.qpos
        self.noise = 0.0
        self.history: list[float] = []
        self.body = self._scene.data.body("pole")

    def _reset_scene(self):
        super()._reset_scene()
        self.noise = float(self.np_random.normal())
        self.history = []

    def _before_step(self):
        self.history.append(float(self.view[0]))

    def _compute_reward_terms(self, action, observation, info):
        return {"x": float(sum(self.history)) + self.noise}


def test_attributes_of_a_scene_environment_go_with_the_state():
    """And live views of the scene stay live."""
    make = partial(Remembering, steps_per_episode=20)
    check_exact(make)
    check_exact(make, partial(make, use_shared_scenes=False))


class Steered(CartPoleEnv):
    """Keeps something that is no plain value, and says how to keep it."""

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        self.pile = iter(range(10**6))
        self.drawn = 0

    def _apply_action(self, action):
        self.drawn = next(self.pile)
        super()._apply_action(action)

    def _compute_reward_terms(self, action, observation, info):
        return {"x": float(self.drawn)}

    def get_state(self):
        return {"drawn": self.drawn, "x": float(self._scene.data.qpos[0])}

    def set_state(self, state):
        self.drawn = state["drawn"]
        self.pile = iter(range(self.drawn + 1, 10**6))


def test_get_state_of_a_scene_environment_is_for_what_it_remembers():
    """The scene holds the environment's own state meanwhile, and is seen to."""
    check_exact(Steered)
    check_exact(Steered, partial(Steered, use_shared_scenes=False))
    one, other = Steered(), Steered()
    one.reset(seed=0)
    other.reset(seed=1)
    with one.own_state():
        expected = float(one._scene.data.qpos[0])
    assert EnvState(one).capture()["layers"][0]["own"]["x"] == expected
    one.close()
    other.close()


def test_a_state_with_other_fields_is_refused():
    """An environment that reads a field before it steps needs it."""
    xml = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    lean = MujocoScene.from_xml_string(xml, fields=("xpos",), only_fields=True)
    full = MujocoScene.from_xml_string(xml)
    with pytest.raises(ValueError, match=r"lacks the field 'solver_niter'.*, got \['xpos'\]"):
        full.import_state(lean.export_state())
    lean.put_state(full.export_state())
    larger = MujocoScene.from_xml_string(
        xml.replace("</worldbody>", "<body><freejoint/><geom size='.1'/></body></worldbody>")
    )
    with pytest.raises(ValueError, match=r"another model: expected .* numbers"):
        full.import_state(larger.export_state())
    for scene in (lean, full, larger):
        scene.close()
