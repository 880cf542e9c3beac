"""Gymnasium's vector wrappers give around ours what they give around its own vectors, or by hand.

Every wrapper of `gymnasium.wrappers.vector` is run around ours and around `SyncVectorEnv`, in every
autoreset mode, with and without partial resets; what involves statistics is also worked out by
hand. A wrapper that needs a package which is not installed is skipped.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

from superdex.testing import PlainLoop
from tests.vector.envs import Fixed, Walk, walk_actions, walks

NUM_ENVS = 4
NUM_STEPS = 40
REASONS = {"terminated_reason", "truncated_reason"}
"""What ours adds to an environment's infos."""


# ── environments ────────────────────────────────────────────────────────────────────────────────


class Bounded(Walk):
    """A walk with a finite observation space, which some wrappers ask for."""

    def __init__(self, tag=0):
        super().__init__(tag)
        self.observation_space = Box(-100, 100, (3,), np.float32)


class Painted(Walk):
    """A walk that is observed and rendered as a picture."""

    metadata: dict[str, Any] = {  # noqa: RUF012  # as in the base class
        "render_modes": ["rgb_array"],
        "render_fps": 100_000,  # a window waits for the next frame
    }

    def __init__(self, tag=0):
        super().__init__(tag)
        self.observation_space = Box(0, 255, (4, 6, 3), np.uint8)

    def observe(self):
        ramp = np.arange(72).reshape(4, 6, 3)
        return ((ramp * (self.steps + 1) + 31 * self.episode) % 256).astype(np.uint8)

    def render(self):
        return np.full((16, 16, 3), 10 * self.tag + self.steps, np.uint8)


class Endless(Bounded):
    """A walk without end."""

    def reset(self, **kwargs):
        result = super().reset(**kwargs)
        self.length = 10**9
        return result


class Keeping(SyncVectorEnv):
    """Gymnasium's vector, but it leaves the caller's options as they are.

    Its own takes the mask out of them, so that wrappers around it take every partial reset for a
    full one and lose the counts of environments that went on.
    """

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=None if options is None else dict(options))


# ── wrappers ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """How a wrapper is tried.

    Attributes:
        wrap: Puts it around a vector.
        env: The class of environments.
        needs: Packages without which it can't be used.
        look: What to compare of the wrapper itself after each step.
        cast: What its caller's actions are.
    """

    wrap: Callable[..., Any]
    env: type[Walk] = Bounded
    needs: tuple[str, ...] = ()
    look: Callable[[Any], Any] = lambda _: None
    cast: Callable[[np.ndarray], Any] = lambda actions: actions


def vectorized(kind, name, **kwargs):
    """Return a function that vectorizes a wrapper of single environments."""
    wrapper, single = getattr(wrappers, kind), getattr(gym.wrappers, name)
    return lambda envs: wrapper(envs, single, **{key: value(envs) for key, value in kwargs.items()})


def seen_in_window(envs):
    return pytest.importorskip("pygame").surfarray.array3d(envs.window)


def as_tensor(actions):
    return pytest.importorskip("torch").tensor(actions)


def every_third(episode):
    return episode % 3 == 0


F = np.float32
CASES = {
    "VectorizeTransformObservation": Case(
        vectorized(
            "VectorizeTransformObservation",
            "TransformObservation",
            func=lambda _: lambda observation: observation / 2,
            observation_space=lambda envs: envs.single_observation_space,
        )
    ),
    "VectorizeTransformAction": Case(
        vectorized(
            "VectorizeTransformAction",
            "TransformAction",
            func=lambda _: lambda action: action / 2,
            action_space=lambda envs: envs.single_action_space,
        )
    ),
    "VectorizeTransformReward": Case(
        vectorized(
            "VectorizeTransformReward",
            "TransformReward",
            func=lambda _: lambda reward: reward / 2,
        )
    ),
    "DictInfoToList": Case(wrappers.DictInfoToList),
    "TransformObservation": Case(partial(wrappers.TransformObservation, func=lambda o: o / 2)),
    "FilterObservation": Case(partial(wrappers.FilterObservation, filter_keys=["position"])),
    "FlattenObservation": Case(wrappers.FlattenObservation, Painted),
    "GrayscaleObservation": Case(wrappers.GrayscaleObservation, Painted),
    "ResizeObservation": Case(
        partial(wrappers.ResizeObservation, shape=(2, 3)), Painted, needs=("cv2",)
    ),
    "ReshapeObservation": Case(partial(wrappers.ReshapeObservation, shape=(12, 6)), Painted),
    "RescaleObservation": Case(
        partial(wrappers.RescaleObservation, min_obs=np.full(3, -1, F), max_obs=np.full(3, 1, F))
    ),
    "DtypeObservation": Case(partial(wrappers.DtypeObservation, dtype=np.float64)),
    "NormalizeObservation": Case(
        wrappers.NormalizeObservation, look=lambda envs: (envs.obs_rms.mean, envs.obs_rms.var)
    ),
    "TransformAction": Case(partial(wrappers.TransformAction, func=lambda action: action / 2)),
    "ClipAction": Case(wrappers.ClipAction, cast=lambda actions: 2 * actions),
    "RescaleAction": Case(
        partial(wrappers.RescaleAction, min_action=np.full(2, -2, F), max_action=np.full(2, 2, F))
    ),
    "TransformReward": Case(partial(wrappers.TransformReward, func=lambda reward: 2 * reward)),
    "ClipReward": Case(partial(wrappers.ClipReward, min_reward=-0.5, max_reward=0.5)),
    "NormalizeReward": Case(
        wrappers.NormalizeReward, look=lambda envs: (envs.return_rms.mean, envs.return_rms.var)
    ),
    "RecordEpisodeStatistics": Case(
        wrappers.RecordEpisodeStatistics,
        look=lambda envs: (envs.episode_count, list(envs.return_queue), list(envs.length_queue)),
    ),
    "RecordVideo": Case(
        lambda envs: wrappers.RecordVideo(envs, "videos", episode_trigger=every_third),
        Painted,
        needs=("moviepy",),
        look=lambda envs: (envs.episode_id, list(envs.recorded_frames)),
    ),
    "HumanRendering": Case(
        lambda envs: wrappers.HumanRendering(envs),
        Painted,
        needs=("pygame", "cv2"),
        look=seen_in_window,
    ),
    "ArrayConversion": Case(
        lambda envs: wrappers.ArrayConversion(envs, np, np), Endless, needs=("array_api_compat",)
    ),
    "NumpyToTorch": Case(
        lambda envs: wrappers.NumpyToTorch(envs),
        Endless,
        needs=("array_api_compat", "torch"),
        cast=as_tensor,
    ),
}
FOR_OTHER_VECTORS = {"JaxToNumpy", "JaxToTorch"}
"""They give the vector actions of JAX, for environments written in it; ours takes NumPy's."""


def test_every_wrapper_of_gymnasium_is_tried():
    """A new one fails here until it has a case."""
    assert set(wrappers.__all__) <= CASES.keys() | FOR_OTHER_VECTORS


def info_of(info, row):
    """Return what a batched info says of one environment."""
    result = {}
    for key, values in info.items():
        mask = info.get(f"_{key}")
        is_mask = isinstance(key, str) and key.startswith("_") and key[1:] in info
        if not is_mask and (mask is None or mask[row]):
            result[key] = info_of(values, row) if isinstance(values, dict) else values[row]
    return result


def comparable(info):
    """Leave out what ours adds, and the time that an episode took."""
    return {
        key: comparable(value) if isinstance(value, dict) else value
        for key, value in info.items()
        if key not in REASONS | {"t"}
    }


def infos_of(info):
    """Return what each environment gave, whether infos are in a dict of arrays or in a list."""
    rows = info if isinstance(info, list) else [info_of(info, row) for row in range(NUM_ENVS)]
    return [comparable(row) for row in rows]


def copied(value):
    """Return NumPy copies of arrays, in lists and tuples too."""
    return [copied(each) for each in value] if isinstance(value, tuple | list) else np.array(value)


def trace(vector, case, *, partial_resets):
    """Return all that a wrapper gives around a vector, or the error that it refuses it with."""
    seen: list[Any] = []

    def reset(**kwargs):
        observation, info = envs.reset(**kwargs)
        seen.append((copied([observation]), infos_of(info), copied(case.look(envs))))

    mode = vector.metadata["autoreset_mode"]
    try:
        envs = case.wrap(vector)
        spaces = (envs.single_observation_space, envs.single_action_space)
        seen.append((spaces, (envs.observation_space, envs.action_space)))
        reset(seed=3)
        for number, batch in enumerate(walk_actions(NUM_STEPS, NUM_ENVS)):
            *arrays, info = envs.step(case.cast(batch))
            seen.append((copied(arrays), infos_of(info), copied(case.look(envs))))
            ended = copied(arrays[2]) | copied(arrays[3])
            if mode is AutoresetMode.DISABLED and ended.any():
                reset(options={"reset_mask": ended})
            if partial_resets and number % 7 == 3:
                seeds = [100 * number + row for row in range(NUM_ENVS)]
                reset(seed=seeds, options={"reset_mask": np.array([True, False, True, False])})
        envs.close()
    except Exception as error:
        return error
    return seen


def assert_same(one, two):
    """Compare whole traces: values, dtypes, spaces, and which keys are there."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, list | tuple):
        for first, second in zip(one, two, strict=True):
            assert_same(first, second)
    elif isinstance(one, Box):
        assert one == two
    else:
        one, two = np.asarray(one), np.asarray(two)
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)


def without_addresses(error):
    return re.sub("0x[0-9a-f]+", "", str(error))


@pytest.mark.parametrize("partial_resets", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", [name for name in wrappers.__all__ if name in CASES])
def test_a_wrapper_gives_what_it_gives_around_gymnasiums_vector(
    make, name, mode, partial_resets, monkeypatch, tmp_path
):
    """Observations, rewards, flags, infos and its own state; or it refuses both alike."""
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other packages and the wrappers say
        for package in case.needs:
            pytest.importorskip(package)
        monkeypatch.setitem(os.environ, "SDL_VIDEODRIVER", "dummy")
        monkeypatch.chdir(tmp_path)
        env_fns = [partial(case.env, tag) for tag in range(NUM_ENVS)]
        theirs = trace(Keeping(env_fns, autoreset_mode=mode), case, partial_resets=partial_resets)
        vector = make(env_fns, num_workers=2, autoreset_mode=mode, reset_masks=True)
        ours = trace(vector, case, partial_resets=partial_resets)
    refused = isinstance(theirs, Exception)
    if mode is AutoresetMode.NEXT_STEP and not partial_resets:
        assert refused == (name == "FilterObservation"), theirs  # it is for dicts, which ours isn't
    if refused:
        assert type(ours) is type(theirs)
        assert without_addresses(ours) == without_addresses(theirs)
    else:
        assert not isinstance(ours, Exception), ours
        assert_same(ours, theirs)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_wrappers_around_wrappers_give_the_same_in_workers(make_workers, mode):
    """As a training stacks them, with partial resets."""

    def wrap(envs):
        envs = wrappers.RecordEpisodeStatistics(wrappers.ClipAction(envs))
        return wrappers.ClipReward(wrappers.NormalizeReward(envs), -1.0, 1.0)

    case = Case(wrap, cast=lambda actions: 2 * actions)
    env_fns = [partial(Bounded, tag) for tag in range(NUM_ENVS)]
    theirs = trace(Keeping(env_fns, autoreset_mode=mode), case, partial_resets=True)
    vector = make_workers(env_fns, num_workers=2, autoreset_mode=mode, reset_masks=True)
    assert_same(trace(vector, case, partial_resets=True), theirs)


def test_words_in_infos_stop_array_conversion_around_any_vector(make):
    """Gymnasium's converter knows numbers only, and the reasons of episodes' ends are words."""
    if "ArrayConversion" not in wrappers.__all__:
        pytest.skip("this version has no ArrayConversion")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("array_api_compat")
        convert = partial(wrappers.ArrayConversion, env_xp=np, target_xp=np)
    actions = np.zeros((1, 1), np.float32)
    theirs = convert(SyncVectorEnv([partial(Fixed, [{}, {"word": "some"}])]))
    ours = convert(make([partial(Fixed, length=2)]))
    for envs in (theirs, ours):
        envs.reset()
    ours.step(actions)
    for envs in (theirs, ours):
        with pytest.raises(BufferError, match="DLPack"):
            envs.step(actions)


# ── by hand ─────────────────────────────────────────────────────────────────────────────────────


def counts_same_step():
    """Return whether this Gymnasium's statistics know SAME_STEP; the first versions' did not."""
    envs = wrappers.RecordEpisodeStatistics(
        SyncVectorEnv([partial(Fixed, length=2)], autoreset_mode=AutoresetMode.SAME_STEP)
    )
    envs.reset()
    for _ in range(4):
        envs.step(np.zeros((1, 1), np.float32))
    envs.close()
    return list(envs.length_queue) == [2, 2]


@pytest.mark.parametrize("partial_resets", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("in_process", [True, False], ids=["here", "workers"])
def test_returns_and_lengths_are_those_of_a_hand_loop(make, mode, in_process, partial_resets):
    """Every episode of every environment, in order; those cut short by a reset are none."""
    if mode is AutoresetMode.SAME_STEP and not counts_same_step():
        pytest.skip("this version's RecordEpisodeStatistics does not know SAME_STEP")
    envs = wrappers.RecordEpisodeStatistics(
        make(walks(3), num_workers=2, autoreset_mode=mode, in_process=in_process, reset_masks=True)
    )
    envs.reset(seed=5)
    loops = [PlainLoop(Walk(row), mode) for row in range(3)]
    rewards: list[list[float]] = [[], [], []]
    for row, loop in enumerate(loops):
        loop.reset(seed=5 + row)
    recorded, expected = [], []

    def reset(mask):
        envs.reset(options={"reset_mask": mask})
        for row in np.flatnonzero(mask):
            loops[row].reset()
            rewards[row] = []

    for number, batch in enumerate(walk_actions(60, 3)):
        info = envs.step(batch)[4]
        for row in np.flatnonzero(info.get("_episode", [])):
            statistics = info["episode"]
            recorded.append((row, statistics["l"][row], pytest.approx(statistics["r"][row])))
        ended = np.zeros(3, bool)
        for row, loop in enumerate(loops):
            ignored = loop._ended and mode is AutoresetMode.NEXT_STEP
            transition = loop.step(batch[row])
            if not ignored:
                rewards[row].append(transition.reward)
            ended[row] = transition.terminated or transition.truncated
            if ended[row]:
                expected.append((row, len(rewards[row]), sum(rewards[row])))
                rewards[row] = []
        if mode is AutoresetMode.DISABLED and ended.any():
            reset(ended)
        if partial_resets and number % 4 == 3:
            reset(np.array([True, False, number % 8 == 3]))
    assert recorded == expected
    assert {row for row, *_ in expected} == {0, 1, 2}
    assert len(expected) > 20


def test_normalized_observations_are_those_of_a_hand_loop(make):
    """Mean and variance of all observations so far, those of resets too, from a weak prior."""
    envs = wrappers.NormalizeObservation(make(walks(3), num_workers=2))
    got = [envs.reset(seed=5)[0]]
    loops = [PlainLoop(Walk(row), AutoresetMode.NEXT_STEP) for row in range(3)]
    raw = [[loop.reset(seed=5 + row).observation for row, loop in enumerate(loops)]]
    for batch in walk_actions(30, 3):
        got.append(envs.step(batch)[0])
        raw.append([loop.step(a).observation for loop, a in zip(loops, batch, strict=True)])
    weight = 1e-4  # Gymnasium's prior: mean 0 and variance 1, of so many observations
    for number, normalized in enumerate(got):
        so_far = np.concatenate(raw[: number + 1]).astype(np.float64)
        count = len(so_far) + weight
        mean = so_far.sum(0) / count
        variance = (weight + (so_far**2).sum(0)) / count - mean**2
        expected = (raw[number] - mean) / np.sqrt(variance + envs.epsilon)
        np.testing.assert_allclose(normalized, expected, rtol=1e-3, atol=1e-3)


def test_normalized_rewards_are_those_of_a_hand_loop(make):
    """Divided by the deviation of all discounted returns so far, from a weak prior."""
    env_fns = [partial(Endless, row) for row in range(3)]
    envs = wrappers.NormalizeReward(make(env_fns, num_workers=2))
    envs.reset(seed=5)
    loops = [PlainLoop(Endless(row), AutoresetMode.NEXT_STEP) for row in range(3)]
    for row, loop in enumerate(loops):
        loop.reset(seed=5 + row)
    returns, so_far, weight = np.zeros(3), [], 1e-4
    for batch in walk_actions(30, 3):
        got = envs.step(batch)[1]
        rewards = np.array([loop.step(a).reward for loop, a in zip(loops, batch, strict=True)])
        returns = returns * envs.gamma + rewards
        so_far.extend(returns)
        count = len(so_far) + weight
        mean = sum(so_far) / count
        variance = (weight + np.square(so_far).sum()) / count - mean**2
        np.testing.assert_allclose(got, rewards / np.sqrt(variance + envs.epsilon), rtol=1e-4)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_episode_statistics_survive_partial_resets(make, mode):
    """With reset_masks=True the counts of other environments go on."""
    env_fns = [partial(Fixed, length=length, reward=1.0) for length in (6, 6, 50)]
    vector = make(env_fns, num_workers=2, autoreset_mode=mode, reset_masks=True)
    envs = wrappers.RecordEpisodeStatistics(vector)
    actions = np.zeros((3, 1), np.float32)
    envs.reset()
    for _ in range(3):
        envs.step(actions)
    mask = np.array([True, False, False])
    observation, _ = envs.reset(options={"reset_mask": mask})
    assert observation[:, 0].tolist() == [0, 3, 3]
    for _ in range(2):
        info = envs.step(actions)[4]
        assert "episode" not in info
    info = envs.step(actions)[4]
    assert info["_episode"].tolist() == [False, True, False]
    assert info["episode"]["l"].tolist() == [0, 6, 0]
    assert info["episode"]["r"].tolist() == [0, 6, 0]
    if mode is AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": np.array([False, True, False])})
    for _ in range(3):
        info = envs.step(actions)[4]
    assert info["_episode"].tolist() == [True, False, False]
    assert info["episode"]["l"].tolist() == [6, 0, 0]


def test_a_list_of_infos_holds_what_each_environment_gave(make):
    """DictInfoToList reads our arrays and masks."""
    env_fns = [partial(Fixed, [{}, {"n": tag, "word": f"w{tag}"}]) for tag in range(2)]
    envs = wrappers.DictInfoToList(make([*env_fns, Fixed], num_workers=2))
    envs.reset()
    infos = envs.step(np.zeros((3, 1), np.float32))[4]
    assert infos == [{"n": 0, "word": "w0"}, {"n": 1, "word": "w1"}, {}]


def test_a_wrapped_vector_is_still_reached(make):
    """Its spaces and metadata through wrappers, its calls by unwrapped."""
    envs = wrappers.ClipReward(wrappers.RecordEpisodeStatistics(make(walks(3))), -1.0, 1.0)
    assert envs.unwrapped.call("add", 1) == (1, 2, 3)
    assert [int(picture[0, 0, 0]) for picture in envs.render()] == [0, 1, 2]
    assert envs.num_envs == 3
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_closing_a_wrapper_closes_the_vector(make_workers):
    """Twice too."""
    vector = make_workers(walks(2), 2)
    envs = wrappers.RecordEpisodeStatistics(vector)
    envs.reset()
    envs.close()
    envs.close()
    assert vector.closed


def test_wrappers_of_single_environments_work_inside(make):
    """Each environment may be wrapped as its function likes."""

    def build():
        env: gym.Env[Any, Any] = gym.wrappers.TimeLimit(Fixed(reward=2.0), 3)
        return gym.wrappers.RecordEpisodeStatistics(env)

    envs = make([build] * 3, num_workers=2)
    envs.reset()
    for _ in range(3):
        result = envs.step(np.zeros((3, 1), np.float32))
    assert result.truncated.all()
    assert result.info["episode"]["r"].tolist() == [6, 6, 6]
    assert result.info["truncated_reason"].tolist() == ["time limit"] * 3
