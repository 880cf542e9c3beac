"""The calls with buffers, ids and slots, on a small batch of our own."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from superdex.buffers import SlotBatch, allocate
from superdex.errors import StaleStateError
from tests.buffers.arrays import FAULTS, Drift, digest, run_python, with_fault

ROWS = [4, 1]


def reset_drift(num_envs: int = 6) -> Drift:
    drift = Drift(num_envs)
    drift.reset_into(allocate(drift.batch_spec()))
    return drift


def actions_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=count).astype(np.float32)


def filled(spec: Any) -> dict[str, np.ndarray]:
    """Return buffers full of ones, so that whatever is written to them shows."""
    arrays = allocate(spec)
    for array in arrays.values():
        array.fill(1)
    return arrays


def without_ids(arrays: Any) -> dict[str, Any]:
    return {name: arrays[name] for name in arrays if name not in ("state_id", "episode_id")}


# ── full batches ────────────────────────────────────────────────────────────────────────────────


def test_step_into_writes_what_step_returns():
    """Step by step, through ends of episodes; foreign and bound buffers alike."""
    plain, into, bound = reset_drift(), reset_drift(), reset_drift()
    buffers, others = allocate(plain.batch_spec()), allocate(plain.batch_spec())
    handle = bound.bind(others)
    for seed in range(7):
        actions = actions_of(6, seed)
        expected = plain.step(actions)
        assert into.step_into(actions, buffers) == handle.step(actions)
        for arrays in (buffers, others):
            ended = expected["terminated"]
            for name in ("observation", "reward", "terminated", "action_valid", "action", "env_id"):
                np.testing.assert_array_equal(arrays[name], expected[name])
            final = expected["final_observation"]
            np.testing.assert_array_equal(arrays["final_observation"][ended], final[ended])
        assert buffers["state_id"].tolist() == into.state_ids.tolist()
        assert others["episode_id"].tolist() == bound.episode_ids.tolist()


def test_rows_of_final_observations_that_did_not_end_keep_what_they_held():
    """They are no results of this step."""
    drift = reset_drift()
    buffers = filled(drift.batch_spec())
    drift.step_into(actions_of(6), buffers)
    assert (buffers["final_observation"] == 1).all()


def test_reset_into_writes_first_observations_and_new_ids():
    """By itself and through a handle, with seeds and options passed on."""
    drift = reset_drift()
    before = drift.state_ids
    buffers = filled(drift.batch_spec())
    handle = drift.bind(buffers)
    for number, reset in enumerate((drift.reset_into, handle.reset)):
        arguments = (buffers,) if number == 0 else ()
        info = reset(*arguments, seed=7, options={"a": 1})
        assert info == {"options": {"a": 1}}
        assert (buffers["observation"][:, 0] == 7).all()
        assert not buffers["reward"].any()
        assert buffers["state_id"].tolist() == drift.state_ids.tolist()
        assert not set(before.tolist()) & set(drift.state_ids.tolist())


def test_buffers_may_leave_the_action_out():
    """Where it is there, it gets the actions as they were applied."""
    drift = reset_drift()
    buffers = allocate(drift.batch_spec())
    drift.step_into(np.full(6, 1 / 3), buffers)
    assert (buffers["action"] == np.float32(1 / 3)).all()
    del buffers["action"]
    drift.step_into(np.zeros(6), buffers)


def test_actions_may_be_a_view_of_a_buffer_that_is_written():
    """They are copied first."""
    one, two = reset_drift(), reset_drift()
    buffers = allocate(one.batch_spec())
    for _ in range(5):
        actions = buffers["observation"][:, 0] + 1
        expected = two.step(actions)
        buffers["observation"][:, 0] += 1
        one.step_into(buffers["observation"][:, 0], buffers)
        np.testing.assert_array_equal(buffers["observation"], expected["observation"])


def test_a_checked_step_is_a_step():
    """It returns what step returns; the ids are those of the last results."""
    one, two = reset_drift(), reset_drift()
    buffers = allocate(one.batch_spec())
    handle = two.bind(buffers)
    for seed in range(5):
        actions = actions_of(6, seed)
        result = one.step_checked(actions, one.state_ids)
        if seed == 0:
            two.step_into_checked(actions, two.state_ids, buffers)
        else:
            handle.step_checked(actions, buffers["state_id"])
        np.testing.assert_array_equal(result["observation"], buffers["observation"])


# ── slots ───────────────────────────────────────────────────────────────────────────────────────


def test_slots_in_any_order_equal_the_full_batch():
    """Every way to step a slot, through the ends of episodes."""
    full, parts = reset_drift(7), reset_drift(7)
    rng = np.random.default_rng(1)
    for seed in range(8):
        actions = actions_of(7, seed)
        expected = full.step(actions)
        for at, slot in enumerate(rng.permutation(4)):
            rows = rng.permutation(parts.slot_partitions(4)[slot])
            ids = parts.state_ids[rows]
            buffers = allocate(parts.slot_batch_spec(len(rows)))
            if at == 0:
                got: Any = parts.step_slots(rows, actions[rows])._asdict()
            elif at == 1:
                got = parts.step_slots_checked(rows, actions[rows], ids)._asdict()
            elif at == 2:
                parts.step_slots_into(rows, actions[rows], buffers)
                got = buffers
            else:
                parts.step_slots_into_checked(rows, actions[rows], ids, buffers)
                got = buffers
            for name in ("observation", "reward", "terminated", "action_valid", "env_id"):
                np.testing.assert_array_equal(got[name], expected[name][rows])
            ended = expected["terminated"][rows]
            final = expected["final_observation"][rows][ended]
            np.testing.assert_array_equal(got["final_observation"][ended], final)
            assert got["state_id"].tolist() == parts.state_ids[rows].tolist()
            assert got["episode_id"].tolist() == parts.episode_ids[rows].tolist()


def test_a_slot_moves_no_other_row():
    """Their ids stay, too."""
    drift = reset_drift()
    before, ids = {k: v.copy() for k, v in drift.state.items()}, drift.state_ids
    drift.step_slots(ROWS, np.ones(2))
    rest = [0, 2, 3, 5]
    assert (drift.state_ids != ids).tolist() == [False, True, False, False, True, False]
    for name, array in before.items():
        np.testing.assert_array_equal(drift.state[name][rest], array[rest])


def test_slots_are_observed_without_moving():
    """In the caller's order; asked twice, the same."""
    drift = reset_drift()
    drift.step(actions_of(6))
    before = digest(drift.everything())
    batch = drift.observe_slots(ROWS)
    buffers = allocate(drift.slot_batch_spec(2))
    drift.observe_slots_into(np.array(ROWS), buffers)
    assert isinstance(batch, SlotBatch)
    assert batch.info == {}
    for name in buffers:
        if name != "action":
            np.testing.assert_array_equal(buffers[name], getattr(batch, name))
    np.testing.assert_array_equal(batch.observation, drift.state["observation"][ROWS])
    assert digest(drift.everything()) == before


def test_slots_are_reset_by_themselves():
    """With their seeds; the others stay where they are."""
    drift = reset_drift()
    drift.step(actions_of(6))
    rest = drift.state["observation"][[0, 2, 3, 5]].copy()
    batch = drift.reset_slots(ROWS, np.array([5, 6]), options={"b": 1})
    assert batch.observation.tolist() == [[5, 0], [6, 0]]
    assert batch.info == {"options": {"b": 1}}
    buffers = allocate(drift.slot_batch_spec(2))
    drift.reset_slots_into(ROWS, buffers, np.array([8, 9]))
    assert buffers["observation"].tolist() == [[8, 0], [9, 0]]
    np.testing.assert_array_equal(drift.state["observation"][[0, 2, 3, 5]], rest)


def test_a_slot_spec_is_the_batch_spec_with_fewer_rows():
    """Dtypes and further axes are the same."""
    drift = Drift()
    spec, batch = drift.slot_batch_spec(2), drift.batch_spec()
    assert [*spec] == [*batch]
    for name in spec:
        assert spec[name].shape == (2, *batch[name].shape[1:])
        assert spec[name].dtype == batch[name].dtype


@pytest.mark.parametrize("rows", [-1, 2.0, True, "2", None, 1 + Drift().num_envs])
def test_impossible_numbers_of_rows_have_no_spec(rows):
    """They are named, and no array of such a shape is asked for later."""
    with pytest.raises(ValueError, match=r"rows must be an integer from 0 to \d+, .* got"):
        Drift().slot_batch_spec(rows)


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


ALL_ROWS = {
    "step_into": ("actions", "buffers"),
    "step_into_checked": ("actions", "state_ids", "buffers"),
    "reset_into": ("buffers",),
    "bind": ("buffers",),
}
SOME_ROWS = {
    "step_slots_into": ("env_ids", "actions", "buffers"),
    "step_slots_into_checked": ("env_ids", "actions", "state_ids", "buffers"),
    "observe_slots_into": ("env_ids", "buffers"),
    "reset_slots_into": ("env_ids", "buffers"),
}


def assert_untouched(drift: Drift, buffers: Any, call: Callable[[], Any], error: Any, match: str):
    """Check that a call is refused, and that not a byte of anything has changed by it."""
    writable = {k: v for k, v in buffers.items() if isinstance(v, np.ndarray)}
    before = digest(drift.everything()), digest(writable)
    with pytest.raises(error, match=match):
        call()
    assert (digest(drift.everything()), digest(writable)) == before


@pytest.mark.parametrize("call", [*ALL_ROWS, *SOME_ROWS])
def test_bad_buffers_are_refused_by_every_call(call):
    """Each fault of the first and of the last key; then the next step equals that of a twin."""
    drift, twin = reset_drift(), reset_drift()
    rows = ROWS if call in SOME_ROWS else [*range(6)]
    spec = drift.slot_batch_spec(len(rows))
    given: dict[str, Any] = {
        "env_ids": rows,
        "actions": actions_of(len(rows)),
        "state_ids": drift.state_ids[rows],
    }
    for name in ("observation", "episode_id"):
        for fault in FAULTS:
            buffers: dict[str, Any] = filled(spec)
            if fault == "missing":
                del buffers[name]
            else:
                buffers[name] = with_fault(spec[name], fault)
            arguments = {**given, "buffers": buffers}
            chosen = [arguments[key] for key in (ALL_ROWS | SOME_ROWS)[call]]
            do = partial(getattr(drift, call), *chosen)
            assert_untouched(drift, buffers, do, ValueError, f"'{name}'")
    one, two = drift.step(actions_of(6)), twin.step(actions_of(6))
    for key, array in without_ids(one).items():
        np.testing.assert_array_equal(array, two[key])


def test_a_handle_is_refused_what_is_wrong_with_the_actions_and_ids():
    """Its buffers were checked before; the rest is checked each time."""
    drift = reset_drift()
    buffers = filled(drift.batch_spec())
    handle = drift.bind(buffers)
    old = drift.state_ids
    drift.step(actions_of(6))
    for call, error in (
        (partial(handle.step, np.zeros(5)), ValueError),
        (partial(handle.step, np.zeros(6, complex)), ValueError),
        (partial(handle.step_checked, actions_of(6), old), StaleStateError),
    ):
        assert_untouched(drift, buffers, call, error, ".")
    drift.closed = True
    for ended in (partial(handle.step, actions_of(6)), handle.reset):
        assert_untouched(drift, buffers, ended, RuntimeError, "after the end")


@pytest.mark.parametrize("call", ["step_checked", "step_into_checked"])
def test_one_stale_id_refuses_the_whole_step(call):
    """It is named, and nothing moves; then the next step equals that of a twin."""
    drift, twin = reset_drift(), reset_drift()
    buffers = filled(drift.batch_spec())
    actions = actions_of(6)
    old = drift.state_ids
    drift.step_slots([2], np.ones(1))
    twin.step_slots([2], np.ones(1))
    arguments = (actions, old) if call == "step_checked" else (actions, old, buffers)
    do = partial(getattr(drift, call), *arguments)
    assert_untouched(drift, buffers, do, StaleStateError, "environment 2 ")
    one, two = drift.step_checked(actions, drift.state_ids), twin.step(actions)
    np.testing.assert_array_equal(one["observation"], two["observation"])


def test_ids_of_before_a_reset_and_of_others_are_stale():
    """Every step and reset makes them so, and each vector has its own."""
    drift, other = reset_drift(), reset_drift()
    seen = []
    moves: list[Callable[[], Any]] = [
        lambda: drift.step(actions_of(6)),
        lambda: drift.reset_into(allocate(drift.batch_spec())),
        lambda: drift.reset_slots([0]),
        lambda: drift.step_slots([0], np.ones(1)),
    ]
    for move in moves:
        seen.append(drift.state_ids)
        move()
        for old in seen:
            with pytest.raises(StaleStateError, match=r"environments? 0"):
                drift.step_checked(actions_of(6), old)
    with pytest.raises(StaleStateError, match="another vector"):
        drift.step_checked(actions_of(6), other.state_ids)


SLOT_CALLS = [
    lambda d, rows, actions, ids, b: d.step_slots(rows, actions),
    lambda d, rows, actions, ids, b: d.step_slots_checked(rows, actions, ids),
    lambda d, rows, actions, ids, b: d.step_slots_into(rows, actions, b),
    lambda d, rows, actions, ids, b: d.step_slots_into_checked(rows, actions, ids, b),
]


@pytest.mark.parametrize("call", SLOT_CALLS)
def test_what_is_wrong_is_found_in_one_order(call):
    """The end, then ids of environments, then actions, then state ids, then buffers."""
    drift = reset_drift()
    checked, into = SLOT_CALLS.index(call) in (1, 3), SLOT_CALLS.index(call) >= 2
    stale = drift.state_ids[ROWS]
    drift.step(actions_of(6))
    spec = drift.slot_batch_spec(2)
    good, bad = filled(spec), {**filled(spec), "observation": 0}
    fresh, actions = drift.state_ids[ROWS], np.ones(2)
    steps: list[tuple[Any, Any, Any, Any, type[Exception], str]] = [
        ([1, 9], np.ones(3), stale, bad, ValueError, "between 0 and 5"),
        ([1, 1], np.ones(3), stale, bad, ValueError, "more than once"),
        (ROWS, np.ones(3), stale, bad, ValueError, "actions must have"),
        (ROWS, np.ones(2, complex), stale, bad, ValueError, "another kind"),
    ]
    if checked:
        steps.append((ROWS, actions, stale, bad, StaleStateError, "environments 4, 1"))
    if into:
        steps.append((ROWS, actions, fresh, bad, ValueError, "observation"))
    for rows, batch, ids, buffers, error, match in steps:
        do = partial(call, drift, rows, batch, ids, buffers)
        assert_untouched(drift, buffers, do, error, match)
    drift.closed = True
    do = partial(call, drift, [1, 1], np.ones(3), stale, bad)
    assert_untouched(drift, bad, do, RuntimeError, "the end")
    drift.closed = False
    call(drift, ROWS, actions, fresh, good)


def test_checked_calls_of_all_rows_find_what_is_wrong_in_the_same_order():
    """The end, then actions, then state ids, then buffers."""
    drift = reset_drift()
    stale = drift.state_ids
    drift.step(actions_of(6))
    bad = {**filled(drift.batch_spec()), "observation": 0}
    for actions, ids, error, match in (
        (np.ones(3), stale, ValueError, "actions must"),
        (np.ones(6), stale, StaleStateError, "environments 0"),
        (np.ones(6), drift.state_ids, ValueError, "observation"),
    ):
        do = partial(drift.step_into_checked, actions, ids, bad)
        assert_untouched(drift, bad, do, error, match)


def test_rows_that_can_not_be_stepped_are_refused():
    """As the class says; others of its rows can."""
    drift = Drift()
    drift.reset_slots([0, 1])
    with pytest.raises(RuntimeError, match="never reset"):
        drift.step_slots([0, 2], np.ones(2))
    drift.step_slots([0, 1], np.ones(2))


def test_buffers_are_not_kept():
    """When the caller drops them, they are gone; a handle keeps its own."""
    drift = reset_drift()
    buffers = allocate(drift.batch_spec())
    gone = weakref.ref(buffers["observation"])
    drift.step_into(actions_of(6), buffers)
    handle = drift.bind(buffers)
    del buffers
    assert gone() is not None
    del handle
    assert gone() is None


def test_it_needs_no_process_and_no_shared_memory():
    """The package can be used by whatever steps a batch, and costs next to nothing to import."""
    done = run_python("import superdex.buffers, sys; print([*sys.modules])")
    loaded = ast.literal_eval(done.stdout)
    assert "superdex.buffers" in loaded
    assert not [name for name in loaded if name.startswith(("superdex.vector", "superdex.envs"))]
