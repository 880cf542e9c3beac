"""Slots: whatever the order, split and way, rows show what they show in steps of the full batch."""

from __future__ import annotations

import time
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from superdex.buffers import allocate
from superdex.envs import CartPoleEnv, HalfCheetahEnv
from superdex.envs.mujoco import AntEnv, HopperEnv
from superdex.errors import (
    BrokenError,
    CallPending,
    CallTimeout,
    ClosedError,
    ResetNeeded,
    StaleStateError,
    WorkerRaised,
)
from superdex.testing import row_info
from superdex.testing._equivalence import _same
from tests.vector.envs import Fixed, Walk, raising, walk_actions, walks
from tests.vector.rows import Run, faulty, odd
from tests.vector.slot_steps import WAYS, by_slots

MODES = list(AutoresetMode)
SLOTS = [[0, 1], [2, 3, 4], [5], [6, 7]]
"""Of eight environments in three workers, 0 to 2, 3 to 5, 6 and 7: two slots span workers."""

pytestmark = pytest.mark.usefixtures("nothing_remains")

# ── equality ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("mode", MODES)
def test_four_slots_in_random_order_are_a_step_of_all(make_workers, mode, way, in_process):
    """Observations, rewards, flags and infos of every kind, through autoresets."""
    envs = make_workers(odd(8), num_workers=3, autoreset_mode=mode, in_process=in_process)
    run = Run(envs, odd(8))
    run.reset(seed=3)
    step = by_slots(envs, SLOTS, way, np.random.default_rng(0))
    for actions in walk_actions(30, 8):
        run.step(actions, step=step)


@pytest.mark.parametrize("way", list(WAYS))
def test_slots_and_full_steps_take_turns(make_workers, way):
    """Each goes on from where the other was, resets of some and set attributes too."""
    envs = make_workers(odd(8), num_workers=3)
    run = Run(envs, odd(8))
    run.reset(seed=3)
    step = by_slots(envs, SLOTS, way, np.random.default_rng(0))
    for number, actions in enumerate(walk_actions(40, 8)):
        run.step(actions, step=step if number % 3 else None)
        if number % 5 == 0:
            run.reset([6, 1, 2], seed=number)


SCENES = {
    "at once, shared": (CartPoleEnv, 6, True, True),
    "at once, cheetahs": (HalfCheetahEnv, 5, True, True),
    "one by one, shared": (CartPoleEnv, 3, True, False),
    "one by one, apart": (CartPoleEnv, 6, False, False),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", list(SCENES))
def test_physics_rests_while_others_move(make_workers, case, mode):
    """Stepped at once or one by one, on shared scenes or not: to the bit."""
    env_class, per_worker, shared, at_once = SCENES[case]
    cfg = {"use_shared_scenes": shared, "steps_per_episode": 9, "reset_noise_scale": 0.1}
    builds = [partial(env_class, cfg)] * (2 * per_worker)
    envs = make_workers(builds, num_workers=2, autoreset_mode=mode)
    run = Run(envs, builds)
    run.reset(seed=5)
    rng = np.random.default_rng(1)
    slots = np.array_split(rng.permutation(2 * per_worker), 3)
    step = by_slots(envs, slots, "in flight", rng)
    shape = envs.action_space.shape
    for actions in rng.uniform(-1, 1, (25, *shape)).astype(np.float32):
        run.step(actions, step=step)
    assert envs.statistics().steps_at_once == (at_once, at_once)


GYMNASIUMS = {
    "Hopper": HopperEnv,
    "Ant": partial(AntEnv, include_cfrc_ext_in_observation=False, contact_cost_weight=0),
}


@pytest.mark.parametrize("name", list(GYMNASIUMS))
def test_gymnasiums_physics_rests_while_others_move(make_workers, name):
    """With what those environments remember beside the physics."""
    builds = [lambda: gym.wrappers.TimeLimit(GYMNASIUMS[name](), 8)] * 4
    envs = make_workers(builds, num_workers=1)
    run = Run(envs, builds)
    run.reset(seed=5)
    rng = np.random.default_rng(1)
    step = by_slots(envs, [[0, 3], [1, 2]], "one by one", rng)
    for actions in rng.uniform(-1, 1, (20, *envs.action_space.shape)).astype(np.float32):
        run.step(actions, step=step)
    assert envs.statistics().steps_at_once == (True,)


def test_resting_environments_take_no_action(make):
    """Nothing of their state changes, the control that an action sets neither."""
    envs = make([CartPoleEnv] * 4, num_workers=1)
    envs.reset(seed=1)
    actions = np.ones((4, 1), np.float32)
    envs.step(actions)
    assert envs.statistics().steps_at_once == (True,)
    states = envs._pool._workers[0].group._batched._batch._batch.states
    before = states.copy()
    envs.step_slots([0, 2], -actions[:2])
    assert before[[1, 3]].tobytes() == states[[1, 3]].tobytes()
    assert before[0].tobytes() != states[0].tobytes()


def test_rows_at_different_points_of_their_episodes(make_workers):
    """A slot may be stepped as often as one likes while others rest."""
    envs = make_workers(walks(4), num_workers=2)
    run = Run(envs, walks(4))
    run.reset(seed=2)
    actions = walk_actions(20, 4)
    for number in range(20):
        for row in ([0], [0, 3], [1])[number % 3]:
            batch = envs.step_slots([row], actions[number, [row]])
            expected = run.rows[row].step(actions[number, row])
            _same(batch.observation[0], expected["observation"], "observation")
            _same(batch.reward[0], expected["reward"], "reward")
            _same(row_info(batch.info, 0), expected["info"], "info")


def test_an_inner_class_steps_whole_workers(make_workers):
    """All environments of a worker, or none."""
    envs = make_workers(walks(4), num_workers=2, inner_env_cls=SyncVectorEnv)
    run = Run(envs, walks(4))
    run.reset(seed=2)
    step = by_slots(envs, [[3, 2], [1, 0]], "in flight")
    for actions in walk_actions(15, 4):
        run.step(actions, step=step)
    with pytest.raises(ValueError, match="expected 2 of worker 1, got 1"):
        envs.step_slots([0, 1, 2], walk_actions(1, 3)[0])
    envs.step(walk_actions(1, 4)[0])


def test_infos_are_of_the_slot(make):
    """One entry for each row, in its order; a key that no row gives is not there."""
    fns = [partial(Fixed, [{}, {"a": n, "b": {"c": n}} if n else {}, {"a": 0.5}]) for n in range(3)]
    envs = make(fns, num_workers=2)
    envs.reset()
    action = np.zeros((1, 1), np.float32)
    assert envs.step_slots([0], action).info == {}
    info = envs.step_slots([2, 1], np.zeros((2, 1), np.float32)).info
    assert info["a"].tolist() == [2, 1]
    assert info["_a"].tolist() == [True, True]
    assert info["b"]["c"].tolist() == [2, 1]
    assert envs.step_slots([0], action).info["a"].dtype == np.float64


def test_steps_make_columns_of_numbers(make_workers):
    """After the first few, slots send no infos over the pipe."""
    envs = make_workers([partial(Fixed, [{"a": 1.0}] * 100)] * 4, num_workers=2)
    envs.reset()
    actions = np.zeros((2, 1), np.float32)
    for _ in range(3):
        envs.step_slots([0, 2], actions)
    before = envs.statistics().messages
    for _ in range(20):
        assert envs.step_slots([2, 0], actions).info["a"].tolist() == [1, 1]
    assert envs.statistics().messages == before


# ── views, ids and books ────────────────────────────────────────────────────────────────────────


def test_views_of_an_earlier_step_stay_whole(make_workers):
    """Slots write to a buffer of their own."""
    envs = make_workers(walks(4), num_workers=2, copy=False)
    envs.reset(seed=1)
    actions = walk_actions(10, 4)
    envs.step(actions[0])
    result = envs.step(actions[1])
    kept = [np.array(array) for array in result[:4]]
    infos = {key: np.array(values) for key, values in result.info.items()}
    for action in actions[2:]:
        envs.step_slots([0, 3], action[:2])
    for before, array in zip(kept, result[:4], strict=True):
        assert np.array_equal(before, array)
    for key, values in infos.items():
        assert np.array_equal(values, result.info[key])


def test_a_slots_arrays_are_the_callers(make_workers):
    """They change no more, with `copy=False` neither."""
    envs = make_workers(walks(2), num_workers=1, copy=False)
    envs.reset(seed=1)
    actions = walk_actions(3, 2)
    batch = envs.step_slots([1], actions[0][:1])
    kept = batch.observation.copy(), {k: v.copy() for k, v in batch.info.items()}
    envs.step_slots([1], actions[1][:1])
    assert np.array_equal(kept[0], batch.observation)
    assert all(np.array_equal(v, batch.info[k]) for k, v in kept[1].items())
    batch.observation[:] = 7


def test_ids_move_with_the_rows_that_are_stepped(make_workers):
    """The others' stay, and a stale one is refused before anything moves."""
    envs = make_workers(walks(4), num_workers=2)
    envs.reset(seed=1)
    actions = walk_actions(1, 2)[0]
    before = envs.state_ids
    ticket = envs.submit_slots([2, 0], actions, before[[2, 0]])
    batch = envs.wait_slots(ticket)
    after = envs.state_ids
    assert np.flatnonzero(before != after).tolist() == [0, 2]
    assert batch.state_id.tolist() == after[[2, 0]].tolist()
    with pytest.raises(StaleStateError) as caught:
        envs.submit_slots([1, 2], actions, before[[1, 2]])
    assert "2" in str(caught.value)
    assert envs.open_tickets == ()
    assert np.array_equal(envs.state_ids, after)


def test_statistics_count_rows_that_were_stepped(make_workers):
    """Those that rest are no steps of environments."""
    envs = make_workers([partial(Fixed, length=3)] * 4, num_workers=2)
    envs.reset()
    for _ in range(4):  # the last one is an autoreset
        envs.step_slots([0, 1, 2], np.zeros((3, 1), np.float32))
    statistics = envs.statistics()
    assert (statistics.steps, statistics.env_steps) == (4, 9)
    assert min(statistics.seconds_in_envs) > 0


def test_slots_in_turn_across_workers(make_workers):
    """Each takes its share of every worker; sizes differ by one at most, larger ones first."""
    envs = make_workers(walks(7), num_workers=2, in_process=True)
    slots = envs.slot_partitions(3, across_workers=True)
    assert [len(slot) for slot in slots] == [3, 2, 2]
    assert sorted(np.concatenate(slots).tolist()) == list(range(7))
    for slot in slots:
        workers = [envs._split.locate(row)[0] for row in slot.tolist()]
        assert set(workers) == {0, 1}
    with pytest.raises(ValueError, match="8"):
        envs.slot_partitions(8, across_workers=True)


# ── slots in flight ─────────────────────────────────────────────────────────────────────────────


class Slow(Walk):
    """Takes 0.2 s a step."""

    def step(self, action):
        time.sleep(0.2)
        return super().step(action)


def test_slots_of_different_workers_run_at_the_same_time(make_workers):
    """Two slow ones take as long as one."""
    envs = make_workers([Slow] * 2, 1)
    envs.reset()
    actions = walk_actions(1, 1)[0]
    started = time.perf_counter()
    tickets = [envs.submit_slots([row], actions) for row in (0, 1)]
    for ticket in tickets:
        envs.wait_slots(ticket)
    assert time.perf_counter() - started < 0.38


def test_a_slot_is_waited_for_alone(make_workers):
    """A quick one is there long before a slow one, and the other calls wait for it."""
    envs = make_workers([Slow, Walk], 1)
    envs.reset()
    actions = walk_actions(1, 1)[0]
    slow, quick = envs.submit_slots([0], actions), envs.submit_slots([1], actions)
    assert envs.open_tickets == (slow, quick)
    started = time.perf_counter()
    envs.wait_slots(quick)
    assert time.perf_counter() - started < 0.15
    assert envs.open_tickets == (slow,)
    envs.step_slots([1], actions)
    envs.wait_slots(slow)


def test_many_requests_queue_up_in_one_worker(make_workers):
    """As many as it has environments, again and again, so that all rings go round."""
    envs = make_workers(walks(5), num_workers=1)
    run = Run(envs, walks(5))
    run.reset(seed=1)
    step = by_slots(envs, [[n] for n in range(5)], "in flight", np.random.default_rng(3))
    for actions in walk_actions(30, 5):
        run.step(actions, step=step)


def test_an_empty_slot_is_there_at_once(make_workers):
    """Nothing is sent, and nothing is in flight."""
    envs = make_workers(walks(2), 1)
    envs.reset()
    nothing = np.zeros((0, 2), np.float32)
    batch = envs.wait_slots(envs.submit_slots([], nothing))
    assert batch.observation.shape == (0, 3)
    envs.send(nothing, [])
    envs.step(walk_actions(1, 2)[0])


def test_resetting_slots(make_workers):
    """Rows of the slot begin anew, with their seeds; others keep their pending autoresets."""
    envs = make_workers(walks(4), num_workers=2)
    run = Run(envs, walks(4))
    run.reset(seed=2)
    actions = walk_actions(20, 4)
    for number in range(20):
        run.step(actions[number])
        batch = envs.reset_slots([3, 0], [number, None])
        for at, (row, seed) in enumerate(((3, number), (0, None))):
            observation, info = run.rows[row].reset(seed)
            _same(batch.observation[at], observation, "observation")
            _same(row_info(batch.info, at), info, "info")
        assert not batch.reward.any()
        assert not batch.action_valid.any()


def test_the_first_reset_may_be_of_slots(make_workers):
    """Rows that were never reset still need one."""
    envs = make_workers(walks(3), num_workers=1)
    actions = walk_actions(1, 1)[0]
    with pytest.raises(ResetNeeded, match="before the first reset"):
        envs.submit_slots([0], actions)
    envs.reset_slots([0, 2], 1)
    envs.step_slots([2], actions)
    with pytest.raises(ResetNeeded, match="Environment 1 was never reset"):
        envs.step_slots([1], actions)
    envs.reset_slots([1])
    envs.step(walk_actions(1, 3)[0])


def test_a_finished_environment_is_not_stepped_where_nothing_resets_it(make_workers):
    """Its slot is refused; those of others are not."""
    fns = [partial(Fixed, length=2), partial(Fixed, length=9)]
    envs = make_workers(fns, 1, autoreset_mode="Disabled")
    envs.reset()
    action = np.zeros((1, 1), np.float32)
    envs.step_slots([0], action)
    assert envs.step_slots([0], action).terminated[0]
    with pytest.raises(ResetNeeded, match="Environment 0 has finished"):
        envs.submit_slots([0], action)
    with pytest.raises(ResetNeeded, match="Environment 0 has finished"):
        envs.step(np.zeros((2, 1), np.float32))
    envs.step_slots([1], action)
    envs.reset_slots([0])
    envs.step_slots([0], action)


def test_observing_moves_nothing(make_workers):
    """The last results, whichever call gave them, of rows that are not in flight."""
    envs = make_workers(walks(4), num_workers=2)
    envs.reset(seed=1)
    result = envs.step(walk_actions(1, 4)[0])
    batch = envs.step_slots([2], walk_actions(1, 1)[0])
    ticket = envs.submit_slots([0], walk_actions(1, 1)[0])
    seen = envs.observe_slots([3, 2])
    assert np.array_equal(seen.observation[0], result.observation[3])
    assert np.array_equal(seen.observation[1], batch.observation[0])
    with pytest.raises(CallPending, match=r"environment 0, which is in flight: first wait_slots"):
        envs.observe_slots([0])
    envs.wait_slots(ticket)


# ── misuse ──────────────────────────────────────────────────────────────────────────────────────


def test_other_calls_are_refused_while_slots_are_in_flight(make_workers):
    """The message says what to do, and nothing has happened."""
    envs = make_workers(walks(2), 1)
    envs.reset(seed=1)
    action = walk_actions(1, 1)[0]
    ticket = envs.submit_slots([0], action)
    calls = [
        lambda: envs.step(walk_actions(1, 2)[0]),
        lambda: envs.reset_async(),
        lambda: envs.reset_envs([1]),
        lambda: envs.call("add", 1),
        lambda: envs.set_attr("tag", 1),
        lambda: envs.render(),
        lambda: envs.step_wait(),
        lambda: envs.allocate_buffers(),
        lambda: envs.autoreset_mask,
    ]
    for call in calls:
        with pytest.raises(CallPending, match=r"slots are in flight: first wait_slots\(\) or recv"):
            call()
    for call in (envs.step_slots, envs.submit_slots):
        with pytest.raises(CallPending, match="environment 0, which is in flight"):
            call([1, 0], walk_actions(1, 2)[0])
    with pytest.raises(CallPending, match="environment 0, which is in flight"):
        envs.reset_slots([0])
    assert envs.open_tickets == (ticket,)
    envs.wait_slots(ticket)
    envs.step(walk_actions(1, 2)[0])


def test_arguments_are_refused_before_anything_moves(make_workers):
    """Rows before actions, actions before ids, all before buffers."""
    envs = make_workers(walks(3), num_workers=1)
    envs.reset(seed=1)
    ids, actions = envs.state_ids, walk_actions(1, 2)[0]
    stale = ids[:2] + np.uint64(1)
    with pytest.raises(ValueError, match="more than once"):
        envs.submit_slots([0, 0], actions, stale)
    with pytest.raises(ValueError, match="between 0 and 2"):
        envs.submit_slots([0, 3], actions, stale)
    with pytest.raises(ValueError, match="shape"):
        envs.submit_slots([0, 1], actions[:1], stale)
    with pytest.raises(ValueError, match="same_kind"):
        envs.send(actions + 0j, [0, 1])
    with pytest.raises(StaleStateError):
        envs.submit_slots([0, 1], actions, stale)
    assert np.array_equal(envs.state_ids, ids)
    assert envs.statistics().env_steps == 0


def test_a_ticket_is_good_for_once(make_workers):
    """Waited for again, dropped by a reset, of another vector, or none at all."""
    envs, other = (make_workers(walks(2), 1, in_process=True) for _ in range(2))
    for each in (envs, other):
        each.reset()
    action = walk_actions(1, 1)[0]
    ticket, foreign = envs.submit_slots([0], action), other.submit_slots([0], action)
    envs.wait_slots(ticket)
    with pytest.raises(RuntimeError, match="waited for before"):
        envs.wait_slots(ticket)
    with pytest.raises(ValueError, match="another vector"):
        envs.wait_slots(foreign)
    with pytest.raises(ValueError, match="what submit_slots returned"):
        envs.wait_slots(3)
    dropped = envs.submit_slots([1], action)
    envs.reset()
    with pytest.raises(RuntimeError, match="dropped by a reset"):
        envs.wait_slots(dropped)


def test_buffers_of_another_shape_take_no_ticket(make_workers):
    """The slot stays in flight, to be waited for with others."""
    envs = make_workers(walks(3), num_workers=1)
    envs.reset(seed=1)
    ticket = envs.submit_slots([0, 2], walk_actions(1, 2)[0])
    with pytest.raises(ValueError, match="shape"):
        envs.wait_slots(ticket, allocate(envs.slot_batch_spec(3)))
    buffers = allocate(envs.slot_batch_spec(2))
    info = envs.wait_slots(ticket, buffers)
    assert info["_position"].tolist() == [True, True]
    assert buffers["env_id"].tolist() == [0, 2]


def test_reset_drops_what_is_in_flight(make_workers):
    """It waits for it first, so that nothing comes late; seeds lead where they always do."""
    envs = make_workers([Slow, Walk, Walk], 1)
    first, _ = envs.reset(seed=4)
    envs.submit_slots([0, 2], walk_actions(1, 2)[0])
    envs.send(walk_actions(1, 1)[0], [1])
    again, _ = envs.reset(seed=4)
    assert np.array_equal(first[:, :2], again[:, :2])  # the third is the episode
    assert envs.open_tickets == ()
    assert envs.in_flight.tolist() == []
    envs.submit_slots([0], walk_actions(1, 1)[0])
    buffers = allocate(envs.batch_spec())
    envs.reset_into(buffers, seed=4)
    assert np.array_equal(first[:, :2], buffers["observation"][:, :2])


@pytest.mark.parametrize("in_process", [True, False])
def test_reset_drops_empty_slots_too(make, in_process):
    """They have a ticket like any other, which doesn't stay open for ever."""
    envs = make(walks(2), 1, in_process=in_process)
    envs.reset()
    ticket = envs.submit_slots([], np.zeros((0, 2), np.float32))
    envs.reset()
    assert envs.open_tickets == ()
    with pytest.raises(RuntimeError, match="dropped by a reset"):
        envs.wait_slots(ticket)


@pytest.mark.parametrize("in_process", [False, True])
def test_a_reset_that_is_refused_drops_nothing(make_workers, in_process):
    """Seeds and options are looked at before anything is waited for."""
    envs = make_workers(walks(3), num_workers=1, in_process=in_process)
    envs.reset(seed=4)
    buffers = allocate(envs.batch_spec())
    ticket = envs.submit_slots([0, 2], walk_actions(1, 2)[0])
    envs.send(walk_actions(1, 1)[0], [1])
    for call in (envs.reset, partial(envs.reset_into, buffers)):
        with pytest.raises(ValueError, match="expected 3, got 2"):
            call(seed=[1, 2])
        with pytest.raises(ValueError, match="options"):
            call(options=3)
    assert envs.open_tickets == (ticket,)
    assert envs.in_flight.tolist() == [1]
    assert envs.wait_slots(ticket).env_id.tolist() == [0, 2]
    assert envs.recv().env_id.tolist() == [1]


def test_a_reset_waits_no_longer_than_told_for_what_is_in_flight(make_workers):
    """What takes too long stays in flight, to be waited for or dropped later."""
    envs = make_workers([Slow, Walk], 1, timeout=0.02)
    envs.reset(seed=4, timeout=60)
    buffers = allocate(envs.batch_spec())
    ticket = envs.submit_slots([0], walk_actions(1, 1)[0])
    for reset in (envs.reset, partial(envs.reset_into, buffers), partial(envs.reset, timeout=0)):
        with pytest.raises(CallTimeout):
            reset()
    assert envs.open_tickets == (ticket,)
    observation, _ = envs.reset(seed=4, timeout=60)
    assert observation.shape == (2, 3)
    assert envs.open_tickets == ()


def test_an_error_breaks_with_its_environment_named(make_workers):
    """Where it is waited for; a slot that was done before can still be had."""
    envs = make_workers([faulty(Walk, "step", raising(KeyError, "x")), Walk], 1)
    envs.reset()
    action = walk_actions(1, 1)[0]
    bad, good = envs.submit_slots([0], action), envs.submit_slots([1], action)
    envs.wait_slots(good)
    with pytest.raises(WorkerRaised, match=r"Environment 0 .* raised in step") as caught:
        envs.wait_slots(bad)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(BrokenError):
        envs.submit_slots([1], action)


def test_failures_at_the_same_time_are_all_raised(make_workers):
    """Of the slots that are waited for."""
    envs = make_workers([faulty(Walk, "step", raising(KeyError, "x"))] * 2, 1)
    envs.reset()
    with pytest.raises(ExceptionGroup) as caught:
        envs.step_slots([0, 1], walk_actions(1, 2)[0])
    assert [error.env_index for error in caught.value.exceptions] == [0, 1]


def test_options_that_cant_be_pickled_are_refused(make_workers):
    """Nothing is in flight then."""
    envs = make_workers(walks(2), 1)
    envs.reset(seed=1)
    with pytest.raises(TypeError, match="options of reset"):
        envs.reset_slots([0], options={"a": (n for n in range(3))})
    envs.step(walk_actions(1, 2)[0])


def test_large_options_do_not_get_stuck(make_workers):
    """A payload that fills the pipe waits for replies that fill it the other way."""
    fns = [partial(Fixed, [{"a": "x" * 500_000}] * 9)] * 3
    envs = make_workers(fns, num_workers=1)
    envs.reset()
    action = np.zeros((1, 1), np.float32)
    for _ in range(2):
        tickets = [envs.submit_slots([row], action) for row in (0, 1)]
        envs.reset_slots([2], options={"a": "y" * 500_000})
        for ticket in tickets:
            assert len(envs.wait_slots(ticket).info["a"][0]) == 500_000


def test_closed_is_the_end(make_workers):
    """With slots in flight too, and quickly."""
    envs = make_workers([Slow, Walk], 1)
    envs.reset()
    ticket = envs.submit_slots([0, 1], walk_actions(1, 2)[0])
    started = time.perf_counter()
    envs.close()
    assert time.perf_counter() - started < 3
    for call in (lambda: envs.wait_slots(ticket), envs.recv, lambda: envs.in_flight):
        with pytest.raises(ClosedError):
            call()
