"""Games as a Gymnasium vector environment."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from superdex.errors import ClosedError, ResetNeeded
from superdex.games import GymnasiumVectorGameEnv, VectorGameEnv
from tests.games.batches import pick

SMALL = {"width": 9, "height": 8}


@pytest.fixture
def make(tron):
    """Makes small games of Tron with Gymnasium's face."""
    return partial(GymnasiumVectorGameEnv, "tron", library=tron, options=SMALL, num_threads=1)


def first_legal(observation: Any) -> np.ndarray:
    """Return the first legal id of each row."""
    legal: np.ndarray = observation["action_mask"].argmax(axis=1)
    return legal


def test_what_it_gives_lies_in_its_spaces(make):
    """Observations, final ones too, with both kinds of actions, and masks for sampling."""
    for actions in ("discrete", "box"):
        env = make(6, 1, actions=actions)
        observation, _ = env.reset(seed=3)
        env.action_space.seed(1)
        ends = 0
        for _ in range(60):
            assert env.observation_space.contains(observation)
            chosen = (
                first_legal(observation) if actions == "discrete" else env.action_space.sample()
            )
            assert env.action_space.contains(chosen)
            observation, reward, terminated, truncated, info = env.step(chosen)
            assert reward.dtype == np.float64
            assert terminated.dtype == truncated.dtype == np.bool_
            for row in np.flatnonzero(terminated):
                ends += 1
                assert env.single_observation_space.contains(info["final_obs"][row])
            assert info.get("_final_obs", terminated).tolist() == terminated.tolist()
        assert ends


def test_it_plays_the_games_of_the_batch(make, tron):
    """Observation, reward and flags are those of VectorGameEnv, through ends of episodes."""
    env = make(6, 1)
    plain = VectorGameEnv("tron", 6, 1, library=tron, options=SMALL, final_observation=True)
    observation, info = env.reset(seed=3)
    batch = plain.reset(seed=3)
    for _ in range(40):
        np.testing.assert_array_equal(observation["state"], batch["state"])
        np.testing.assert_array_equal(info["seat"], batch["seat"])
        legal = [np.flatnonzero(mask).tolist() for mask in observation["action_mask"]]
        listed = zip(batch["action_id"], batch["legal_action_count"], strict=True)
        assert legal == [sorted(ids[:count].tolist()) for ids, count in listed]
        actions = first_legal(observation)
        observation, reward, terminated, _, info = env.step(actions)
        batch = plain.step(actions)
        np.testing.assert_array_equal(reward, batch["reward"])
        np.testing.assert_array_equal(terminated, batch["terminated"])
        for row in np.flatnonzero(terminated):
            np.testing.assert_array_equal(
                info["final_obs"][row]["state"], batch["final_state"][row]
            )


def test_scores_play_the_best_legal_action(make):
    """An illegal one is never played, however great its score; of equal ones, the first is."""
    one, two = make(4, 1), make(4, 1, actions="box")
    observation, _ = one.reset(seed=1)
    two.reset(seed=1)
    for _ in range(30):
        scores = np.where(observation["action_mask"] == 0, 1, -0.5).astype(np.float32)
        observation, *_ = one.step(first_legal(observation))
        other, *_, others = two.step(scores)
        assert others["action_valid"].all()
        np.testing.assert_array_equal(observation["state"], other["state"])


def test_wrong_actions_are_refused_and_nothing_moves(make):
    """Of another shape, no numbers, or not finite."""
    env = make(3, 1, actions="box")
    env.reset()
    before = env.games.state_ids.tolist()
    nan = np.full((3, 4), np.nan, np.float32)
    for wrong in (np.zeros(3), np.zeros((3, 4), int), nan, [[0.0] * 4] * 3):
        with pytest.raises(ValueError, match="actions must"):
            env.step(wrong)
    with pytest.raises(ValueError, match="int32 can hold"):
        make(1, 1).games.step(np.array([2**32]))
    assert env.games.state_ids.tolist() == before


def test_wrappers_of_gymnasium_count_its_episodes(make):
    """RecordEpisodeStatistics gives the lengths that a count by hand gives."""
    env = RecordEpisodeStatistics(make(5, 1))
    observation, _ = env.reset(seed=2)
    lengths, ends = np.zeros(5, int), 0
    for _ in range(60):
        observation, _, terminated, _, info = env.step(first_legal(observation))
        lengths += 1
        if terminated.any():
            ends += 1
            np.testing.assert_array_equal(info["episode"]["l"][terminated], lengths[terminated])
        lengths[terminated] = 0
    assert ends


def test_without_auto_reset_a_mask_says_what_is_reset(make):
    """Finished games can't be stepped; the others keep where they are, the caller its dict."""
    env = make(4, 1, auto_reset=False, observation_keys=("state", "action_features"))
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    observation, _ = env.reset()
    ended = np.zeros(4, bool)
    while not ended.any():
        observation, _, ended, _, info = env.step(first_legal(observation))
    assert "final_obs" not in info
    with pytest.raises(ResetNeeded, match=f"Environment {int(ended.argmax())} "):
        env.step(first_legal(observation))
    options = {"reset_mask": ended}
    after, info = env.reset(options=options)
    assert list(options) == ["reset_mask"]
    np.testing.assert_array_equal(info["_seat"], ended)
    np.testing.assert_array_equal(after["state"][~ended], observation["state"][~ended])
    assert after["action_mask"].any(axis=1).all()
    env.step(first_legal(after))


@pytest.mark.parametrize("actions", ["discrete", "box"])
def test_a_step_looks_at_the_games_as_they_are(make, actions):
    """Also when they moved by themselves, as in a step whose results Ctrl-C kept back."""
    env = make(6, 1, actions=actions, auto_reset=False)
    env.reset()
    batch, rng = env.games.observe(), np.random.default_rng(0)
    while not batch["terminated"].any():
        if actions == "box":
            *_, info = env.step(rng.uniform(-1, 1, (6, 4)).astype(np.float32))
            assert info["action_valid"].all()
        batch = env.games.observe()
        for _ in range(2):
            batch = env.games.step(pick(batch, rng)) if not batch["terminated"].any() else batch
    with pytest.raises(ResetNeeded, match="has finished"):
        env.step(np.zeros((6, 4), np.float32) if actions == "box" else np.zeros(6, int))


def test_a_setting_that_it_makes_itself_is_refused(make):
    """Rather than passed over."""
    with pytest.raises(TypeError, match="final_observation"):
        make(2, 1, final_observation=True)


def test_bad_resets_are_refused_and_nothing_moves(make):
    """Masks and seeds that are not as expected, and unknown options."""
    env = make(3, 1)
    env.reset()
    before = env.games.state_ids.tolist()
    mask = np.array([True, False, True])
    wrong: list[dict[str, Any]] = [
        {"options": {"reset_mask": [True, False, True]}},
        {"options": {"reset_mask": mask[:2]}},
        {"options": {"reset_mask": ~(mask | True)}},
        {"options": {"reset_mask": mask}, "seed": [1, 2]},
        {"options": {"reset_mask": mask, "width": 3}},
        {"options": {"width": 3}},
        {"seed": -1},
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"."):
            env.reset(**arguments)
    assert env.games.state_ids.tolist() == before


def test_arguments_are_checked(make):
    """Unknown kinds of actions, and arrays that are not known at the end of an episode."""
    with pytest.raises(ValueError, match="'discrete' or 'box'"):
        make(2, 1, actions="both")
    with pytest.raises(ValueError, match="observation_keys"):
        make(2, 1, observation_keys=("action_features",))


def test_it_must_be_reset_first_and_can_be_closed(make):
    """As every vector environment of Gymnasium."""
    env = make(2, 1)
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(2, int))
    with env:
        env.reset()
    env.close()
    with pytest.raises(ClosedError):
        env.reset()
