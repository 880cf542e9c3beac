"""Faults while slots are in flight: nothing is lost that is not lost in a full step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import superdex.envs  # its classes are looked up late: they load MuJoCo, and every worker would
from superdex.errors import BrokenError, CallTimeout, WorkerDied
from superdex.testing import row_info
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Fixed, Walk, walk_actions, walks
from tests.vector.rows import Run, faulty, kill_self, odd, stumble
from tests.vector.slot_steps import by_slots, together
from tests.vector.test_restart import DyingAtReply, await_deaths, kill, physics_run
from tests.vector.test_timeouts import Gated

MODES = list(AutoresetMode)
WORKERS = [[0, 1, 2], [3, 4], [5, 6]]
"""The rows of the workers, of 7 environments."""

pytestmark = [
    pytest.mark.usefixtures("nothing_remains"),
    pytest.mark.filterwarnings("ignore:Worker . .*is restarted:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Environment . raised .*:RuntimeWarning"),
]


@pytest.fixture
def restarting(make_workers) -> Callable[..., HybridVectorEnv]:
    """Makes vectors that restart their workers."""
    return partial(make_workers, on_worker_failure="restart")


@pytest.fixture
def gate(tmp_path):
    """Yields a path that is made at the end at the latest."""
    path = tmp_path / "open"
    yield path
    path.touch()


# ── deaths ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["one by one", "in flight", "sent"])
@pytest.mark.parametrize("mode", MODES)
def test_a_death_in_a_slot_is_a_death_in_a_step(restarting, tmp_path, mode, way):
    """The slot's rows come back truncated, and others never notice."""
    builds = odd(7)
    env_fns = [*builds]
    env_fns[3] = faulty(builds[3], "step", kill_self, 9, tmp_path / "fuse")
    run = Run(restarting(env_fns, num_workers=3, autoreset_mode=mode), builds)
    run.reset(seed=5)
    step = by_slots(run.envs, WORKERS, way, np.random.default_rng(1))
    for actions in walk_actions(30, 7):
        run.step(actions, step=step)
    assert run.restarts == [0, 1, 0]


def test_a_slot_behind_the_one_that_killed_its_worker_is_done_too(restarting, tmp_path):
    """Its rows were lost with the worker, and say so; a slot before keeps its results."""
    env_fns: list[Any] = walks(4)
    env_fns[1] = faulty(Walk, "step", kill_self, 2, tmp_path / "fuse")
    envs = restarting(env_fns, num_workers=1)
    plain = Run(envs, walks(4))
    plain.reset(seed=1)
    actions = walk_actions(4, 4)
    for number in range(2):
        plain.step(actions[number])
    tickets = [envs.submit_slots([row], actions[2, [row]]) for row in range(4)]
    batches = [envs.wait_slots(ticket) for ticket in tickets]
    expected = plain.rows[0].step(actions[2, 0])
    assert batches[0].observation[0].tolist() == expected["observation"].tolist()
    lost = [row.last.tolist() for row in plain.rows]
    for row in (1, 2, 3):
        if plain.rows[row].ended:
            continue
        assert batches[row].truncated[0]
        assert batches[row].info["truncated_reason"][0] == "worker restarted"
        assert batches[row].observation[0].tolist() == lost[row]
        assert not batches[row].action_valid[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_death_while_idle(restarting, mode):
    """Is noticed by the next slot, and rows that rest say that they are lost when they move."""
    envs = restarting(walks(7), num_workers=3, autoreset_mode=mode)
    run = Run(envs, walks(7))
    run.reset(seed=5)
    step = by_slots(envs, WORKERS, "in flight")
    for number, actions in enumerate(walk_actions(20, 7)):
        if number == 7:
            kill(envs, 1, 2)
        run.step(actions, step=step)
    assert run.restarts == [0, 1, 1]


def test_last_observations_survive_a_worker_that_dies_over_them(restarting, tmp_path):
    """Large ones are written as they come, and half of a step was."""
    big = (64, 64)
    env_fns: list[Any] = [partial(Fixed, shape=big)] * 3
    env_fns[1] = faulty(partial(Fixed, shape=big), "step", kill_self, 3, tmp_path / "fuse")
    envs = restarting(env_fns, num_workers=1)
    envs.reset()
    actions = np.zeros((3, 1), np.float32)
    for number in range(1, 4):
        assert envs.step_slots([0, 1, 2], actions).observation.max() == number
    batch = envs.step_slots([0, 1, 2], actions)
    assert batch.truncated.all()
    assert batch.observation.min() == batch.observation.max() == 3


@pytest.mark.parametrize("name", ["AntEnv", "CartPoleEnv"])
def test_physics(restarting, tmp_path, name):
    """At once and one by one, some of the worker's environments resting."""
    run, actions = physics_run(restarting, tmp_path, name, shared=True)
    step = by_slots(run.envs, [[0, 1], [3], [2]], "in flight")
    for each in actions:
        run.step(each, step=step)
    assert run.restarts == [1, 0]


def test_a_death_over_the_reply(restarting, tmp_path):
    """The step was done, but its infos are gone: the episode is lost all the same."""
    envs = restarting([Walk, partial(DyingAtReply, tmp_path / "fuse")], 1)
    run = Run(envs, [Walk, Walk])
    run.reset(seed=1)
    step = by_slots(envs, [[0], [1]], "in flight")
    actions = walk_actions(12, 2)
    for number in (0, 1):
        run.step(actions[number], step=step)

    def step_late(actions):
        tickets = [envs.submit_slots([row], actions[[row]]) for row in (0, 1)]
        await_deaths(envs, 1)  # nobody reads the reply before
        return together([envs.wait_slots(ticket) for ticket in tickets], 2)

    run.step(actions[2], step=step_late)
    assert run.restarts == [0, 1]
    for batch in actions[3:]:
        run.step(batch, step=step)


def test_another_inner_layer(restarting, tmp_path):
    """Whole workers are lost, and say so."""
    env_fns: list[Any] = walks(4)
    env_fns[3] = faulty(Walk, "step", kill_self, 5, tmp_path / "fuse")
    envs = restarting(env_fns, num_workers=2, inner_env_cls=SyncVectorEnv)
    envs.reset(seed=1)
    lost = 0
    for actions in walk_actions(12, 4):
        for slot in ([3, 2], [0, 1]):
            batch = envs.step_slots(slot, actions[slot])
            for at in range(2):
                reason = row_info(batch.info, at).get("truncated_reason")
                lost += reason == "worker restarted"
    assert envs.statistics().worker_restarts == (0, 1)
    assert lost >= 1


@pytest.mark.parametrize("way", ["in flight", "sent"])
def test_a_death_is_raised_where_nothing_restarts(make_workers, gate, way):
    """Within a second, though another environment of the slot is slow."""
    envs = make_workers([faulty(Walk, "step", kill_self), partial(_GatedWalk, gate)], 1)
    envs.reset()
    actions = walk_actions(1, 2)[0]
    started = time.perf_counter()
    with pytest.raises(WorkerDied, match=r"Worker 0 \(environment 0\) died .*SIGKILL"):
        by_slots(envs, [[0, 1]], way)(actions)
    assert time.perf_counter() - started < 1.0
    with pytest.raises(BrokenError):
        envs.submit_slots([1], actions[:1])
    envs.close()


class _GatedWalk(Walk):
    """A walk that waits in step until a file exists."""

    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def step(self, action):
        while not self.gate.exists():
            time.sleep(0.005)
        return super().step(action)


def test_a_slot_of_another_worker_can_still_be_had(make_workers):
    """A death that is none of its business is noticed by the next call."""
    envs = make_workers([faulty(Walk, "step", kill_self), Walk], 1)
    envs.reset()
    action = walk_actions(1, 1)[0]
    # the bad one last: once its death is known, nothing is submitted any more
    good, bad = envs.submit_slots([1], action), envs.submit_slots([0], action)
    await_deaths(envs, 0)
    assert envs.wait_slots(good).env_id.tolist() == [1]
    with pytest.raises(WorkerDied):
        envs.wait_slots(bad)


def test_an_environment_that_dies_again_and_again(restarting):
    """Is raised in the end, with what to do."""
    envs = restarting([faulty(Walk, "step", kill_self), Walk], 1, max_restarts=3)
    envs.reset()
    action = walk_actions(1, 1)[0]
    batches = (envs.step_slots([0], action) for _ in range(20))
    with pytest.raises(WorkerDied, match="as often as allowed"):
        deque(batches)
    envs.close()


def test_a_reset_that_kills_is_done_again(restarting, tmp_path):
    """With the seeds and options that it had."""
    fuse = tmp_path / "fuse"
    envs = restarting([faulty(Walk, "reset", kill_self, 1, fuse), Walk], num_workers=1)
    run = Run(envs, walks(2))
    run.reset(seed=1)
    batch = envs.reset_slots([1, 0], [8, 9], options=[{"a": 1}, None])
    run.note_faults()
    for at, (row, seed) in enumerate(((1, 8), (0, 9))):
        observation, _ = run.rows[row].reset(seed)
        assert batch.observation[at, :2].tolist() == observation[:2].tolist()
    assert envs.get_attr("options", [1]) == ([{"a": 1}],)


def test_a_slot_after_a_call_that_killed(restarting):
    """The call that failed is not done again by the worker's successor."""
    envs = restarting([_Dying] * 2, 1)
    envs.reset(seed=1)
    with pytest.raises(WorkerDied):
        envs.call("die", indices=[0])
    batch = envs.step_slots(
        [0, 1],
        walk_actions(1, 2)[0],
    )
    assert batch.truncated.tolist() == [True, False]
    assert envs.statistics().worker_restarts == (1, 0)


class _Dying(Walk):
    """A walk that can be killed by a call."""

    def die(self):
        kill_self()


def test_close_ends_workers_that_are_at_a_request(make_workers, gate):
    """Within its limit, requests that wait in the queue too."""
    envs = make_workers([partial(Gated, gate)] * 2, num_workers=1)
    envs.reset()
    for row in (0, 1):
        envs.send(np.zeros((1, 1), np.float32), [row])
    started = time.perf_counter()
    envs.close()
    assert time.perf_counter() - started < 4


# ── environments that raise ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["one by one", "in flight", "sent"])
@pytest.mark.parametrize("mode", MODES)
def test_an_error_truncates_one_episode(make_workers, tmp_path, mode, way):
    """Wherever its row stands in its slot, and however its environments are dealt out."""
    builds = odd(6)
    env_fns = [*builds]
    env_fns[4] = faulty(builds[4], "step", stumble, 7, tmp_path / "fuse")
    envs = make_workers(env_fns, num_workers=2, autoreset_mode=mode, on_env_error="truncate")
    run = Run(envs, builds, stumbling=4)
    run.reset(seed=5)
    step = by_slots(envs, [[0, 3, 5], [1, 4], [2]], way, np.random.default_rng(1))
    for actions in walk_actions(25, 6):
        run.step(actions, step=step)
    assert run.errors == 1


def test_an_action_that_is_refused_truncates_one_episode_of_those_at_once(make_workers):
    """Where all are stepped at once and others rest."""
    envs = make_workers([superdex.envs.CartPoleEnv] * 5, num_workers=1, on_env_error="truncate")
    envs.reset(seed=1)
    actions = np.zeros((3, 1), np.float32)
    before = envs.step_slots([4, 0, 2], actions).observation
    actions[1] = np.nan
    batch = envs.step_slots([4, 0, 2], actions)
    assert batch.truncated.tolist() == [False, True, False]
    assert np.array_equal(batch.observation[1], before[1])
    assert envs.step_slots([1, 3], actions[[0, 2]]).action_valid.all()


# ── Ctrl-C ──────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_while_waiting_leaves_the_slot_in_flight(make_workers, gate):
    """Its ticket is there, for a `step_slots` too; waiting again returns its results."""
    envs = make_workers([partial(Gated, gate), partial(Gated, gate, "never")], 1)
    envs.reset()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        envs.step_slots([0, 1], np.zeros((2, 1), np.float32))
    timer.join()
    (ticket,) = envs.open_tickets
    assert ticket.env_ids.tolist() == [0, 1]
    with pytest.raises(CallTimeout):
        envs.wait_slots(ticket, timeout=0.01)
    gate.touch()
    assert envs.wait_slots(ticket).observation[:, 0].tolist() == [1, 1]


def test_ctrl_c_at_any_line_of_a_slots_way_loses_nothing(make_workers, ctrl_c_at_line):
    """It was not sent, or has a ticket, or was taken; and was done once."""
    envs = make_workers([Fixed] * 2, 1)
    envs.reset()
    actions = np.zeros((2, 1), np.float32)
    line, steps = 1, 0
    while True:
        before = envs.state_ids
        if not ctrl_c_at_line(line, lambda: envs.step_slots([1, 0], actions)):
            steps += 1
            break
        tickets = envs.open_tickets
        if tickets:
            assert envs.wait_slots(tickets[0]).observation.max() == steps + 1
        steps += bool((envs.state_ids != before).all())
        assert envs.observe_slots([0, 1]).observation.ravel().tolist() == [steps] * 2
        line += 3
    assert line > 200
    assert envs.get_attr("steps") == (steps, steps)


def test_ctrl_c_before_a_step_is_sent_moves_nothing(make_workers, ctrl_c_at_line):
    """A slot that comes next does not have the workers do that step after all."""
    envs = make_workers([Fixed] * 2, 1, timeout=20)
    envs.reset()
    actions = np.zeros((2, 1), np.float32)
    line, steps = 1, 0
    while ctrl_c_at_line(line, partial(envs.step, actions), ("_start_step", "prepare", "start")):
        if envs._flight.lifecycle.in_flight:
            envs.step_wait()
            steps += 1
        envs.step_slots([0, 1], actions)
        steps += 1
        assert envs.get_attr("steps") == (steps, steps)
        line += 1
    assert line > 20


def test_many_interrupts_lose_no_row(make_workers):
    """Of what is sent and received."""
    envs = make_workers(walks(6), num_workers=3)
    envs.reset(seed=0)
    action, sent, received = walk_actions(1, 6)[0], 0, 0
    for number in range(60):
        timer = threading.Timer(0.0003 * (number % 7), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            if not envs.in_flight.size:
                envs.send(action, range(6))
            timer.join()
            time.sleep(0.002)
        except KeyboardInterrupt:
            timer.join()
        left = len(envs.in_flight)
        if left:
            batch = envs.recv(left)
            assert len(batch.env_id) == left == 6
            received += left
            sent += 6
    assert sent == received == envs.statistics().steps * 6
