"""VectorGameEnv: what it refuses, and that nothing has changed then."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from superdex.buffers import allocate
from superdex.errors import ClosedError, StaleStateError
from superdex.games import VectorGameEnv, library
from tests.buffers.arrays import FAULTS, digest, with_fault
from tests.games.batches import fingerprint, pick


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
        "wanted": partial(env.bot_moves, "voronoi", np.ones(4, np.uint8)),
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
        {"options": {"width": None}},
        {"options": {"width": float("inf")}},
        {"options": {9: 9}},
        {"options": ["width", 9]},
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


def test_games_cannot_be_copied_or_pickled(make):
    """An error says what to do instead; the library can, and is opened anew."""
    env = make(2, 1)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        for what in (env, env._batch):
            with pytest.raises(TypeError, match="capture"):
                copied(what)
    games = pickle.loads(pickle.dumps(library()))
    assert games.games == library().games


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


@pytest.mark.parametrize("num_envs", [10**9, 2**31 - 1])
def test_more_games_than_memory_holds_are_refused(tron, num_envs):
    """At once and with both numbers, not by the system when memory is full."""
    with pytest.raises(MemoryError, match=r"needs a block of .* MiB and the .* MiB"):
        VectorGameEnv("tron", num_envs, library=tron)
