"""VectorGameEnv: what a batch has, and the rules of seeds, actions and episodes."""

from __future__ import annotations

import numpy as np

from superdex.games import VectorGameEnv
from tests.buffers.arrays import digest
from tests.games.batches import Batch, assert_equal, pick
from tests.games.tron_twin import episode_seed

# ── keys ────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_has_the_arrays_of_its_spec_in_order(make):
    """Shapes, dtypes and keys, of every call that gives a batch."""
    for final in (False, True):
        env = make(3, 1, visible_event_history=2, final_observation=final)
        spec = env.batch_spec()
        assert list(spec)[:3] == ["board_tokens", "state", "action_id"]
        assert ("final_state" in spec) == final
        actions = np.zeros(3, np.int32)
        for batch in (env.reset(), env.step(actions), env.step_checked(actions, env.state_ids)):
            assert list(batch) == list(spec)
            assert all((a.shape, a.dtype) == tuple(spec[key]) for key, a in batch.items())


def test_events_have_a_window_of_zero_by_default(make):
    """So that the keys of a batch never change."""
    batch = make(2, 1).observe()
    assert batch["visible_event_features"].shape == (2, 0, 7)
    assert batch["visible_event_affected_mask"].shape[:2] == (2, 0)


def test_events_are_right_aligned(make):
    """After one move there is one event, at the end, and zeros before."""
    env = make(2, 1, visible_event_history=3)
    batch = env.step(pick(env.observe(), np.random.default_rng(0)))
    assert batch["visible_event_mask"].tolist() == [[0, 0, 1]] * 2
    assert not batch["visible_event_features"][:, :2].any()


def test_names_have_the_lengths_of_their_axes(make):
    """Board, state, actions, arguments, events and their sub-records."""
    env = make(1, 1, visible_event_history=1)
    spec = env.batch_spec()
    names = {
        "state": env.state_feature_names,
        "action_features": env.action_feature_names,
        "action_arg_mask": env.action_arg_names,
        "visible_event_features": env.visible_event_feature_names,
        "visible_event_affected": env.visible_event_affected_feature_names,
    }
    for key, given in names.items():
        assert len(given) == spec[key].shape[-1] > 0
    assert len(env.board_channel_names) == spec["board_tokens"].shape[1]


def test_arrays_are_the_callers_own(make):
    """A later step writes to none of them."""
    env = make(4, 1)
    batch = env.reset()
    before = digest(batch)
    env.step(pick(batch, np.random.default_rng(0)))
    assert digest(batch) == before


# ── rules ───────────────────────────────────────────────────────────────────────────────────────


def test_environment_i_starts_from_seed_plus_i(make):
    """At construction and at a reset; and later episodes from the mix of seed, i and episode."""
    env = make(3, 5)
    for row in range(3):
        expected = make(1, 5 + row).observe()
        np.testing.assert_array_equal(env.observe_slots([row])["state"], expected["state"])
    env.reset()
    env.reset()
    for row in range(3):
        expected = make(1, episode_seed(5, row, 2)).observe()
        np.testing.assert_array_equal(env.observe_slots([row])["state"], expected["state"])
    assert_games_equal(env.reset(seed=5), make(3, 5).observe())


def assert_games_equal(one: Batch, other: Batch) -> None:
    for key in ("board_tokens", "state", "action_id", "reward", "terminated"):
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def test_zero_is_a_seed_like_any_other(make):
    """Only None is random."""
    assert_equal(make(3, 0).observe(), make(3, 0).observe())
    seeds = {make(1).seed for _ in range(4)}
    assert len(seeds) == 4


def test_a_random_seed_can_be_read_and_used_again(make):
    """The attribute is the seed of environment 0."""
    env = make(3)
    assert_equal(env.observe(), make(3, env.seed).observe())


def test_seeds_may_be_given_row_by_row(make):
    """A list, an array, with None for the next episode; in a slot they go by its order."""
    env, twin = make(3, 1), make(3, 1)
    got = env.reset(seed=[7, None, 9])
    twin.reset()
    expected = twin.observe()
    assert_games_equal(
        {key: array[[1]] for key, array in got.items()},
        {key: array[[1]] for key, array in expected.items()},
    )
    slot = env.reset_slots([2, 0], np.array([7, 9]))
    np.testing.assert_array_equal(slot["state"], got["state"][[0, 2]])
    np.testing.assert_array_equal(env.reset_slots([2], 7)["state"], make(1, 9).observe()["state"])


def test_an_illegal_id_leaves_its_game_and_others_advance(make):
    """action_valid 0, reward 0, the same state id; ids that no action has are illegal too."""
    env = make(4, 1)
    before = env.observe()
    actions = pick(before, np.random.default_rng(0))
    for bad in (-1, 4, 2**31 - 1):
        now = env.observe()
        actions = pick(now, np.random.default_rng(0))
        actions[1] = bad
        after = env.step(actions)
        assert after["action_valid"].tolist() == [1, 0, 1, 1]
        assert after["reward"][1] == 0
        assert not after["seat_reward"][1].any()
        changed = after["state_id"] != now["state_id"]
        assert changed.tolist() == [True, False, True, True]
        np.testing.assert_array_equal(after["board_tokens"][1], now["board_tokens"][1])


def test_too_many_legal_actions_keep_the_progress_action_in_the_last_row(countdown):
    """A deterministic prefix, and the action that sorts last; it says so."""
    env = VectorGameEnv("countdown", 64, 1, library=countdown, max_actions=3, num_threads=1)
    batch = env.reset()
    total = batch["total_legal_action_count"]
    many = total > 3
    assert many.sum() > 30
    assert batch["action_truncated"].tolist() == many.astype(int).tolist()
    assert (batch["action_id"][many] == [0, 1, env.description.progress_action]).all()
    np.testing.assert_array_equal(batch["legal_action_count"], np.minimum(total, 3))
    after = env.step(batch["action_id"][np.arange(64), batch["legal_action_count"] - 1])
    assert after["action_valid"].all()
    assert (after["state"][:, 0] == batch["state"][:, 0] - 1).all()


def test_padding_rows_have_the_id_minus_one(make):
    """And a mask of 0, and zeros as features."""
    env = make(8, 1)
    batch = env.step(pick(env.observe(), np.random.default_rng(0)))
    batch = env.step(pick(batch, np.random.default_rng(1)))
    padding = np.arange(4) >= batch["legal_action_count"][:, None]
    assert padding.any()
    np.testing.assert_array_equal(batch["action_id"] == -1, padding)
    np.testing.assert_array_equal(batch["action_mask"] == 0, padding)
    assert not batch["action_features"][padding].any()


def test_auto_reset_shows_the_next_episode_with_the_reward_of_the_last(make):
    """terminated and reward belong to the step; observation and ids to the new episode."""
    env = make(8, 1, final_observation=True)
    twin = make(8, 1, auto_reset=False)
    rng, ends = np.random.default_rng(3), 0
    batch = env.reset()
    twin.reset()
    for _ in range(60):
        actions = pick(batch, rng)
        before, batch = batch, env.step(actions)
        plain = twin.step(actions)
        ended = batch["terminated"] != 0
        for key in ("reward", "seat_reward", "acting_seat", "terminated", "action_valid"):
            np.testing.assert_array_equal(batch[key], plain[key])
        np.testing.assert_array_equal(ended, batch["episode_id"] != before["episode_id"])
        np.testing.assert_array_equal(batch["final_state"][ended], plain["state"][ended])
        np.testing.assert_array_equal(
            batch["final_board_tokens"][ended], plain["board_tokens"][ended]
        )
        assert batch["legal_action_count"].all()
        if ended.any():
            ends += int(ended.sum())
            twin.reset_slots(np.flatnonzero(ended))
    assert ends > 8


def test_without_auto_reset_a_finished_game_stays_as_it_is(make):
    """No legal rows, terminated, and no second reward, until it is reset."""
    env = make(2, 1, auto_reset=False)
    batch, rng = env.reset(), np.random.default_rng(0)
    while not batch["terminated"][0]:
        batch = env.step(pick(batch, rng))
    for _ in range(3):
        batch = env.step(np.zeros(2, np.int32))
        assert batch["terminated"][0] == 1
        assert batch["legal_action_count"][0] == 0
        assert batch["action_valid"][0] == batch["reward"][0] == 0
        assert not batch["seat_reward"][0].any()
    assert env.reset_slots([0])["legal_action_count"][0] > 0


def test_episodes_are_truncated_after_so_many_accepted_actions(tron, corridor):
    """Illegal ones don't count; truncated is no termination."""
    for library in (tron, corridor):
        env = VectorGameEnv(library.games[0], 1, 1, library=library, max_episode_steps=3)
        batch, truncated = env.observe(), []
        for legal in (True, False, True, False, True, True):
            batch = env.step(batch["action_id"][:, 0] if legal else np.array([9]))
            assert batch["action_valid"][0] == legal
            assert not batch["terminated"][0]
            truncated.append(int(batch["truncated"][0]))
        assert truncated == [0, 0, 0, 0, 1, 0]


def test_results_do_not_depend_on_threads(make):
    """One and two threads give the same bytes over 400 steps."""
    one, two = (make(64, 3, visible_event_history=2, num_threads=n) for n in (1, 2))
    rngs = [np.random.default_rng(1) for _ in range(2)]
    batches = [one.observe(), two.observe()]
    for _ in range(400):
        batches = [
            env.step(pick(batch, rng))
            for env, batch, rng in zip((one, two), batches, rngs, strict=True)
        ]
        assert_equal(*batches)
    np.testing.assert_array_equal(one.capture_states(), two.capture_states())
