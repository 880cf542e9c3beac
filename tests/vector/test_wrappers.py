"""Gymnasium's vector wrappers give around ours what they give around its own vectors, or by hand.

The reference is `SyncVectorEnv` where Gymnasium supports the mode, and a loop written out where
its own vectors and wrappers disagree with each other.
"""

from __future__ import annotations

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

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
NEXT_STEP_ONLY = {"NormalizeObservation", "FlattenObservation", "RescaleObservation"}
"""Gymnasium's observation wrappers refuse SAME_STEP."""

WRAPPERS = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "ClipReward": partial(wrappers.ClipReward, min_reward=-0.5, max_reward=0.5),
    "ClipAction": wrappers.ClipAction,
    "RescaleAction": partial(
        wrappers.RescaleAction,
        min_action=np.full(2, -2, np.float32),
        max_action=np.full(2, 2, np.float32),
    ),
    "FlattenObservation": wrappers.FlattenObservation,
    "RescaleObservation": partial(
        wrappers.RescaleObservation,
        min_obs=np.full(3, -1, np.float32),
        max_obs=np.full(3, 1, np.float32),
    ),
    "TransformReward": partial(wrappers.TransformReward, func=lambda reward: 2 * reward),
    "DictInfoToList": wrappers.DictInfoToList,
}


class Bounded(Walk):
    """A walk with a finite observation space, which some wrappers ask for."""

    def __init__(self, tag=0):
        super().__init__(tag)
        self.observation_space = Box(-100, 100, (3,), np.float32)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in WRAPPERS
        for mode in MODES
        if mode is AutoresetMode.NEXT_STEP or name not in NEXT_STEP_ONLY
    ],
)
def test_a_wrapper_gives_what_it_gives_around_gymnasiums_vector(make, name, mode):
    """Observations, rewards, flags and the wrapper's infos, through many episodes."""
    env_fns = [partial(Bounded, tag) for tag in range(4)]
    wrap = WRAPPERS[name]
    ours = wrap(make(env_fns, num_workers=2, autoreset_mode=mode))
    theirs = wrap(SyncVectorEnv(env_fns, autoreset_mode=mode))
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for batch in walk_actions(40, 4):
        one, two = ours.step(batch), theirs.step(batch)
        for got, expected in zip(one[:4], two[:4], strict=True):
            np.testing.assert_array_equal(got, expected)
        if name == "DictInfoToList":
            for own, other in zip(one[4], two[4], strict=True):
                assert {"position", "steps"} & own.keys() == {"position", "steps"} & other.keys()
                assert own.get("position") == other.get("position")
        else:
            assert two[4].keys() <= one[4].keys()
            for key in ("position", "steps", "_position"):
                if key in two[4]:
                    np.testing.assert_array_equal(one[4][key], two[4][key])
            if "episode" in two[4]:
                for key in ("r", "l"):
                    np.testing.assert_array_equal(one[4]["episode"][key], two[4]["episode"][key])
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("in_process", [True, False])
def test_returns_and_lengths_are_those_of_a_hand_loop(make, mode, in_process):
    """Every episode of every environment, in order."""
    envs = wrappers.RecordEpisodeStatistics(
        make(walks(3), num_workers=2, autoreset_mode=mode, in_process=in_process)
    )
    envs.reset(seed=5)
    actions = walk_actions(40, 3)
    recorded: list[list[tuple[float, int]]] = [[], [], []]
    for batch in actions:
        info = envs.step(batch)[4]
        for row in np.flatnonzero(info.get("_episode", [])):
            recorded[row].append((info["episode"]["r"][row], int(info["episode"]["l"][row])))
    for row in range(3):
        expected = []
        loop = PlainLoop(Walk(row), mode)
        loop.reset(seed=5 + row)
        rewards: list[float] = []
        for action in actions[:, row]:
            ignored = loop._ended and mode is AutoresetMode.NEXT_STEP
            transition = loop.step(action)
            if not ignored:
                rewards.append(transition.reward)
            if transition.terminated or transition.truncated:
                expected.append((sum(rewards), len(rewards)))
                rewards = []
        assert len(expected) > 3
        assert [length for _, length in recorded[row]] == [length for _, length in expected]
        np.testing.assert_allclose([r for r, _ in recorded[row]], [r for r, _ in expected])


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
