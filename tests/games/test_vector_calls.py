"""VectorGameEnv: the calls with buffers and slots, captured games, bots, threads and signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from superdex.buffers import allocate
from superdex.errors import StaleStateError
from superdex.games import VectorGameEnv
from tests.games.batches import assert_equal, pick

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


def test_an_empty_slot_is_a_slot(make):
    """It gives arrays without rows, and no game moves."""
    env = make(3, 1)
    before, nothing = env.state_ids, np.zeros(0, np.int32)
    assert env.step_slots([], nothing)["board_tokens"].shape == (0, 8, 8, 9)
    assert env.step_slots_checked([], nothing, before[:0])["env_id"].shape == (0,)
    assert env.reset_slots([])["reward"].shape == (0,)
    assert env.capture_states([]).shape[0] == 0
    assert env.state_ids.tolist() == before.tolist()


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


def interrupted_at(line: int, call: Callable[[], Any]) -> bool:
    """Raise KeyboardInterrupt before a line of a call; return whether it has that many."""
    left = line

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left == 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_call_that_is_interrupted_is_done_for_all_rows_or_for_none(make):
    """At each of its lines: resets with and without seeds, and every kind of step."""
    env = make(4, 1)
    buffers, rows, actions = allocate(env.batch_spec()), [0, 1, 2, 3], np.zeros(4, np.int32)
    handle = env.bind(buffers)
    calls: list[Callable[[], Any]] = [
        lambda: env.reset(seed=[7, None, 9, None]),
        lambda: env.reset_slots(rows, [None, 7, 8, None]),
        lambda: handle.reset(seed=[7, None, 9, None]),
        lambda: env.reset_into(buffers),
        lambda: env.step(actions),
        lambda: env.step_into(actions, buffers),
        lambda: env.step_slots_checked(rows, actions, env.state_ids[rows]),
        lambda: handle.step(actions),
    ]
    for number, call in enumerate(calls):
        line, interrupted = 0, True
        while interrupted:
            line += 1
            actions[:] = env.observe()["action_id"][:, 0]
            before = env.state_ids
            interrupted = interrupted_at(line, call)
            moved = env.state_ids != before
            assert moved.all() or (interrupted and not moved.any()), (number, line)
        assert line > 5


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
