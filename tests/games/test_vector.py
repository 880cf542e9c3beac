"""VectorGameEnv: keys, rules, seeds, calls with buffers and slots, threads, what is refused."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from superdex.buffers import allocate
from superdex.errors import ClosedError, StaleStateError
from superdex.games import VectorGameEnv
from tests.buffers.arrays import FAULTS, digest, with_fault
from tests.games.tron_twin import episode_seed

SMALL = {"width": 9, "height": 8}
COUNTS = (1 << 44) - 1
"""The bits of an id that count; the others differ from vector to vector."""


@pytest.fixture
def make(tron):
    """Makes small games of Tron."""
    return partial(VectorGameEnv, "tron", library=tron, options=SMALL, num_threads=1)


def pick(batch: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Return a legal id for each row, −1 where there is none."""
    counts = batch["legal_action_count"]
    picks = (rng.random(len(counts)) * counts).astype(int)
    picked: np.ndarray = batch["action_id"][np.arange(len(counts)), picks]
    return picked


def comparable(batch: Any) -> dict[str, np.ndarray]:
    """Return a batch with ids that two vectors share; final rows only where an episode ended."""
    ended = (batch["terminated"] | batch["truncated"]) != 0
    return {
        name: array & np.uint64(COUNTS)
        if name in ("state_id", "episode_id")
        else array[ended]
        if name.startswith("final_")
        else array
        for name, array in batch.items()
    }


def assert_equal(one: Any, other: Any) -> None:
    one, other = comparable(one), comparable(other)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def fingerprint(env: VectorGameEnv) -> str:
    """Return a hash of all games: captured, and as they are observed."""
    return hashlib.sha256(env.capture_states().tobytes()).hexdigest() + digest(env.observe())


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


def assert_games_equal(one: Any, other: Any) -> None:
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


def test_episodes_are_truncated_after_so_many_accepted_actions(corridor):
    """Illegal ones don't count; truncated is no termination."""
    env = VectorGameEnv("corridor", 1, 1, library=corridor, max_episode_steps=3)
    truncated = [int(env.step(np.array([action]))["truncated"][0]) for action in (0, 9, 1, 9, 0, 1)]
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


# ── buffers and slots ───────────────────────────────────────────────────────────────────────────


def test_every_way_to_step_gives_the_same(make):
    """step, into, checked, bound; through ends of episodes, with final observations."""
    settings: Any = {"visible_event_history": 2, "final_observation": True}
    envs = [make(5, 1, **settings) for _ in range(6)]
    plain, into, checked, both = envs[:4]
    buffers = [allocate(env.batch_spec()) for env in envs]
    handles = [env.bind(arrays) for env, arrays in zip(envs, buffers, strict=True)]
    batch, rng = plain.reset(seed=4), np.random.default_rng(0)
    for env, arrays in ((into, buffers[1]), (both, buffers[3])):
        env.reset_into(arrays, seed=4)
    checked.reset(seed=4)
    for handle in handles[4:]:
        handle.reset(seed=4)
    for _ in range(40):
        actions = pick(batch, rng)
        batch = plain.step(actions)
        into.step_into(actions, buffers[1])
        assert_equal(checked.step_checked(actions, checked.state_ids), batch)
        both.step_into_checked(actions, buffers[3]["state_id"], buffers[3])
        handles[4].step(actions)
        handles[5].step_checked(actions, buffers[5]["state_id"])
        for arrays in (buffers[1], buffers[3], buffers[4], buffers[5]):
            assert_equal(arrays, batch)


def test_slots_in_any_order_equal_the_full_batch(make):
    """Every way to step a slot, through ends of episodes, with final observations."""
    settings: Any = {"visible_event_history": 2, "final_observation": True}
    full, parts = make(7, 1, **settings), make(7, 1, **settings)
    batch, rng = full.observe(), np.random.default_rng(1)
    for _ in range(30):
        actions = pick(batch, rng)
        batch = full.step(actions)
        for at, slot in enumerate(rng.permutation(4)):
            rows = rng.permutation(parts.slot_partitions(4)[slot])
            ids = parts.state_ids[rows]
            buffers = allocate(parts.slot_batch_spec(len(rows)))
            if at == 0:
                got = parts.step_slots(rows, actions[rows])
            elif at == 1:
                got = parts.step_slots_checked(rows, actions[rows], ids)
            elif at == 2:
                parts.step_slots_into(rows, actions[rows], buffers)
                got = buffers
            else:
                parts.step_slots_into_checked(rows, actions[rows], ids, buffers)
                got = buffers
            assert_equal(got, {name: array[rows] for name, array in batch.items()})


def test_observing_moves_nothing_and_shows_the_last_results(make):
    """Of all rows, and of a slot; reward and flags included, and final observations."""
    env = make(6, 1, final_observation=True)
    batch, rng = env.reset(), np.random.default_rng(0)
    while not batch["terminated"].any():
        batch = env.step(pick(batch, rng))
    for _ in range(2):
        assert_equal(env.observe(), batch)
        rows = np.array([4, 0, 5])
        expected = {name: array[rows] for name, array in batch.items()}
        assert_equal(env.observe_slots(rows), expected)
        buffers = allocate(env.slot_batch_spec(3))
        env.observe_slots_into(rows, buffers)
        assert_equal(buffers, expected)


def test_actions_and_ids_may_be_views_of_the_buffers_that_are_written(make):
    """They are read first."""
    env, twin = make(5, 1), make(5, 1)
    buffers, batch = allocate(env.batch_spec()), twin.observe()
    env.observe_slots_into(np.arange(5), buffers)
    handle = env.bind(buffers)
    for step in range(20):
        batch = twin.step(batch["action_id"][:, 0])
        if step % 2:
            env.step_into_checked(buffers["action_id"][:, 0], buffers["state_id"], buffers)
        else:
            handle.step(buffers["action_id"][:, 0])
        assert_equal(buffers, batch)


def test_integers_of_any_kind_are_actions_where_they_fit(make):
    """int64 and uint8 and big-endian give what int32 gives."""
    for dtype in (np.int64, np.uint64, np.uint8, ">i4"):
        env, twin = make(3, 1), make(3, 1)
        buffers = allocate(env.batch_spec())
        handle = env.bind(buffers)
        actions = pick(env.observe(), np.random.default_rng(0))
        handle.step(actions.astype(dtype))
        assert_equal(buffers, twin.step(actions))


def test_captured_games_go_on_as_they_would_have(make):
    """In their own row, in another, and in another vector; with new ids."""
    env, other = make(4, 1, visible_event_history=2), make(2, 9, visible_event_history=2)
    batch, rng = env.observe(), np.random.default_rng(0)
    for _ in range(6):
        batch = env.step(pick(batch, rng))
    states = env.capture_states([3, 1])
    other.restore_states(states)
    assert not set(other.state_ids.tolist()) & set(env.state_ids.tolist())
    got = other.observe()
    for key in ("board_tokens", "state", "reward", "visible_event_features"):
        np.testing.assert_array_equal(got[key], batch[key][[3, 1]])
    env.restore_states(states, [0, 2])
    np.testing.assert_array_equal(
        env.observe()["state"], batch["state"][[3, 1, 1, 3]][[0, 1, 1, 3]]
    )


def test_bots_move_where_they_are_wanted(make):
    """Legal moves there, −1 elsewhere."""
    env = make(6, 1)
    batch = env.observe()
    wanted = np.array([1, 0, 1, 0, 0, 1], bool)
    moves = env.bot_moves("voronoi", wanted)
    np.testing.assert_array_equal(moves == -1, ~wanted)
    assert (batch["action_id"][wanted] == moves[wanted][:, None]).any(1).all()
    np.testing.assert_array_equal(env.bot_moves(env.description.bots[-1], env_ids=[4]).shape, (1,))


# ── threads and signals ─────────────────────────────────────────────────────────────────────────


def test_two_threads_may_call_on_disjoint_slots(make):
    """Their results are those of one thread that steps the slots one after the other."""
    together, alone = make(64, 1, num_threads=2), make(64, 1)
    slots = np.arange(0, 64, 2), np.arange(1, 64, 2)
    got: dict[tuple[bool, int], Any] = {}

    def play(env: VectorGameEnv, rows: np.ndarray) -> None:
        buffers = allocate(env.slot_batch_spec(len(rows)))
        env.observe_slots_into(rows, buffers)
        rng = np.random.default_rng(int(rows[0]))
        for _ in range(100):
            env.step_slots_into_checked(rows, pick(buffers, rng), buffers["state_id"], buffers)
        got[env is together, int(rows[0])] = buffers

    threads = [threading.Thread(target=play, args=(together, rows)) for rows in slots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rows in slots:
        play(alone, rows)
        assert_equal(got[True, int(rows[0])], got[False, int(rows[0])])


def test_of_two_threads_with_one_position_one_is_stale(make):
    """Ids are compared in the moment of the step: no position is stepped twice."""
    env = make(2, 1)
    outcomes: list[Any] = []

    def play(start: threading.Barrier, action: np.ndarray, ids: np.ndarray) -> None:
        start.wait()
        try:
            env.step_slots_checked([1], action, ids)
        except StaleStateError as stale:
            outcomes.append(stale.rows)
        else:
            outcomes.append("stepped")

    for seed in range(60):
        env.reset(seed=seed)
        arguments = threading.Barrier(2), env.observe()["action_id"][[1], 0], env.state_ids[1:]
        threads = [threading.Thread(target=play, args=arguments) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes.count("stepped") == outcomes.count((1,)) == 60


def test_after_ctrl_c_the_last_batch_can_be_observed(make):
    """Whether the step came to its end or never began, no game and no result is lost."""
    env, twin = make(4096, 1, final_observation=True), make(4096, 1, final_observation=True)
    batch, rng = twin.observe(), np.random.default_rng(0)
    interrupted = 0
    for delay in np.linspace(1e-4, 6e-3, 12):
        actions = pick(batch, rng)
        before = env.state_ids
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            env.step(actions)
            timer.join()
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        if (env.state_ids == before).all():
            env.step(actions)
        batch = twin.step(actions)
        assert_equal(env.observe(), batch)
    assert interrupted


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def refusals(env: VectorGameEnv, buffers: Any) -> dict[str, Any]:
    """Return calls that must be refused with `ValueError`, by name."""
    good, ids = np.zeros(4, np.int32), env.state_ids
    slot = allocate(env.slot_batch_spec(2))
    calls: dict[str, Any] = {}
    bad_actions: dict[str, Any] = {
        "wrapped": np.array([0, 0, 0, 2**32]),
        "negative": np.array([0, 0, 0, -(2**31) - 1]),
        "unsigned": np.array([0, 0, 0, 2**64 - 1], np.uint64),
        "float": np.zeros(4),
        "bool": np.zeros(4, bool),
        "objects": np.zeros(4, object),
        "short": np.zeros(3, np.int32),
        "deep": np.zeros((4, 1), np.int32),
        "list": [0, 0, 0, 0],
        "none": None,
    }
    handle = env.bind(buffers)
    for name, actions in bad_actions.items():
        calls |= {
            f"step {name}": partial(env.step, actions),
            f"into {name}": partial(env.step_into, actions, buffers),
            f"bound {name}": partial(handle.step, actions),
            f"bound checked {name}": partial(handle.step_checked, actions, ids),
            f"slots {name}": partial(env.step_slots, [0, 1, 2, 3], actions),
        }
    bad_ids: dict[str, Any] = {
        "stale": ids - np.uint64(4),
        "foreign": ids ^ np.uint64(1 << 50),
        "short": ids[:2],
        "float": ids.astype(float),
        "wrapped": ids.astype(object) + 2**64,
        "negative": -np.ones(4, np.int64),
    }
    for name, wrong in bad_ids.items():
        calls |= {
            f"checked ids {name}": partial(env.step_checked, good, wrong),
            f"into checked ids {name}": partial(env.step_into_checked, good, wrong, buffers),
            f"bound checked ids {name}": partial(handle.step_checked, good, wrong),
            f"slots checked ids {name}": partial(env.step_slots_checked, range(4), good, wrong),
        }
    bad_rows: dict[str, Any] = {
        "twice": [1, 1],
        "outside": [0, 4],
        "negative": [-1, 0],
        "wrapped": [0, 2**32 + 1],
        "float": [0.0, 1.0],
        "bool": [True, False],
        "deep": [[0, 1]],
    }
    for name, rows in bad_rows.items():
        calls |= {
            f"observe rows {name}": partial(env.observe_slots_into, rows, slot),
            f"step rows {name}": partial(env.step_slots_into, rows, good[:2], slot),
            f"reset rows {name}": partial(env.reset_slots_into, rows, slot),
            f"capture rows {name}": partial(env.capture_states, rows),
            f"bots rows {name}": partial(env.bot_moves, env.description.bots[0], env_ids=rows),
        }
    bad_seeds: dict[str, Any] = {
        "negative": -1,
        "large": 2**64 - 3,
        "bool": True,
        "float": 1.5,
        "text": "1",
        "short": [1, 2],
        "mixed": [1, 2, 3, -4],
        "floats": [1.0, 2.0, 3.0, 4.0],
    }
    for name, seed in bad_seeds.items():
        calls |= {
            f"seed {name}": partial(env.reset, seed=seed),
            f"into seed {name}": partial(env.reset_into, buffers, seed=seed),
            f"bound seed {name}": partial(handle.reset, seed=seed),
            f"slots seed {name}": partial(env.reset_slots, range(4), seed),
        }
    damaged = env.capture_states()
    damaged[2, 20] ^= 1
    calls |= {
        "options": partial(env.reset, options={"reset_mask": np.ones(4, bool)}),
        "damaged": partial(env.restore_states, damaged),
        "cut": partial(env.restore_states, damaged[:, :-8]),
        "few": partial(env.restore_states, damaged[:2]),
        "no bot": partial(env.bot_moves, "grandmaster"),
        "depth": partial(env.bot_moves, env.description.bots[-1], depth=-1),
        "nodes": partial(env.bot_moves, env.description.bots[-1], nodes=2**32 + 1),
        "slots": partial(env.slot_partitions, 5),
    }
    return calls


def test_every_refused_call_leaves_games_and_buffers_byte_equal(make):
    """Actions, ids, rows, seeds, options and states that are not as expected."""
    env = make(4, 1, visible_event_history=2)
    buffers = allocate(env.batch_spec())
    env.step_into(pick(env.observe(), np.random.default_rng(0)), buffers)
    calls = refusals(env, buffers)
    before = fingerprint(env), digest(buffers)
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"."):
            call()
        assert (fingerprint(env), digest(buffers)) == before, name


def test_every_fault_of_every_array_is_refused(make):
    """By each call that writes to buffers; games and buffers stay byte-equal."""
    env = make(2, 1, visible_event_history=1, final_observation=True)
    actions = np.zeros(2, np.int32)
    before = fingerprint(env)
    for key, spec in env.batch_spec().items():
        for fault in FAULTS:
            if fault == "aligned" and spec.dtype.itemsize == 1:
                continue  # bytes are aligned wherever they lie
            buffers = allocate(env.batch_spec())
            if fault == "missing":
                del buffers[key]
            else:
                buffers[key] = with_fault(spec, fault)
            if fault != "kind":
                untouched = digest(buffers)
            for call in (
                partial(env.step_into, actions, buffers),
                partial(env.step_into_checked, actions, env.state_ids, buffers),
                partial(env.reset_into, buffers),
                partial(env.bind, buffers),
                partial(env.step_slots_into, [1, 0], actions, buffers),
                partial(env.observe_slots_into, [1, 0], buffers),
                partial(env.reset_slots_into, [1, 0], buffers),
            ):
                with pytest.raises(ValueError, match=key):
                    call()
            if fault != "kind":
                assert digest(buffers) == untouched
    assert fingerprint(env) == before


def test_arrays_that_overlap_are_refused(make):
    """They would write over each other."""
    env = make(2, 1)
    buffers = allocate(env.batch_spec())
    buffers["terminated"] = buffers["action_mask"].reshape(-1)[:2]
    with pytest.raises(ValueError, match="overlap"):
        env.step_into(np.zeros(2, np.int32), buffers)


def test_stale_ids_name_their_rows(make):
    """In a batch and in a slot; also those of another vector."""
    env = make(4, 1)
    ids = env.state_ids
    env.step_slots([2], env.observe()["action_id"][[2], 0])
    with pytest.raises(StaleStateError) as caught:
        env.step_checked(np.zeros(4, np.int32), ids)
    assert caught.value.rows == (2,)
    assert not caught.value.foreign
    with pytest.raises(StaleStateError) as caught:
        env.step_slots_checked([1, 3], np.zeros(2, np.int32), make(4, 1).state_ids[[1, 3]])
    assert caught.value.foreign == (1, 3)


def test_arguments_of_the_constructor_are_checked(tron):
    """Numbers out of range, unknown names, events that a game doesn't have."""
    make = partial(VectorGameEnv, library=tron)
    bad: list[dict[str, Any]] = [
        {"num_envs": 0},
        {"num_envs": 2.0},
        {"num_envs": True},
        {"seed": -1},
        {"seed": 2**64},
        {"seed": 1.0},
        {"num_threads": 0},
        {"max_actions": 0},
        {"visible_event_history": -1},
        {"max_episode_steps": 0},
        {"options": {"width": 1}},
        {"options": {"widht": 9}},
        {"game": "tro"},
    ]
    for wrong in bad:
        arguments: Any = {"game": "tron", "num_envs": 2, "seed": 1} | wrong
        with pytest.raises(ValueError, match=r"."):
            make(**arguments)


def test_a_game_without_events_has_no_history(corridor):
    """It says so, rather than show none."""
    with pytest.raises(NotImplementedError, match="does not offer"):
        VectorGameEnv("corridor", 1, 1, library=corridor, visible_event_history=2)


def test_after_close_every_call_is_refused(make):
    """Closing twice is fine; the handle is closed too."""
    env = make(2, 1)
    buffers = allocate(env.batch_spec())
    handle, actions = env.bind(buffers), np.zeros(2, np.int32)
    with env:
        pass
    env.close()
    assert env.closed
    before = digest(buffers)
    calls: list[Any] = [
        env.reset,
        env.observe,
        env.capture_states,
        partial(env.step, actions),
        partial(env.step_into, actions, buffers),
        partial(env.step_slots, [0], actions[:1]),
        partial(env.observe_slots_into, [0], buffers),
        partial(env.bind, buffers),
        partial(handle.step, actions),
        partial(handle.step, None),
        handle.reset,
        partial(env.bot_moves, "voronoi"),
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            call()
    assert digest(buffers) == before
