"""Sending and receiving: exact books of what is in flight, and nobody waits for the slowest."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.errors import CallPending, CallTimeout, ResetNeeded, WorkerRaised
from superdex.testing import row_info
from superdex.testing._equivalence import _same
from tests.vector.envs import Fixed, Walk, raising, walk_actions, walks
from tests.vector.leftovers import remains
from tests.vector.rows import Run, faulty, odd
from tests.vector.test_timeouts import Gated

pytestmark = pytest.mark.usefixtures("nothing_remains")


@pytest.fixture
def gate(tmp_path):
    """Yields a path that is made at the end at the latest."""
    path = tmp_path / "open"
    yield path
    path.touch()


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_loop_of_sends_gives_each_environment_its_own_trajectory(make_workers, mode, in_process):
    """Each goes at its own pace, and shows what a plain loop over it alone shows."""
    envs = make_workers(odd(6), num_workers=3, autoreset_mode=mode, in_process=in_process)
    run = Run(envs, odd(6))
    run.reset(seed=3)
    actions, steps = walk_actions(40, 6), np.zeros(6, np.intp)
    rng = np.random.default_rng(0)
    envs.send(actions[0], range(6))
    while steps.sum() < 180:
        batch = envs.recv(min(2, len(envs.in_flight)), int(rng.integers(2, 5)))
        for at, row in enumerate(batch.env_id.tolist()):
            expected = run.rows[row].step(actions[steps[row], row])
            info = row_info(batch.info, at)
            if "final_obs" in expected["info"]:
                info["final_obs"] = batch.final_observation[at]
            for key in ("observation", "reward", "terminated", "truncated"):
                _same(getattr(batch, key)[at], expected[key], key)
            _same(info, expected["info"], f"info of {row}")
            steps[row] += 1
        again = batch.env_id[steps[batch.env_id] < 40]
        if again.size:
            envs.send(actions[steps[again], again], again)


def test_books_are_exact(make_workers):
    """What is sent is in flight until it is received, each row once."""
    envs = make_workers(walks(6), num_workers=3)
    envs.reset()
    actions = walk_actions(1, 6)[0]
    assert envs.in_flight.tolist() == []
    envs.send(actions[:3], [5, 0, 3])
    assert envs.in_flight.tolist() == [0, 3, 5]
    assert envs.in_flight.dtype == np.int32
    envs.in_flight[:] = 0  # a copy
    envs.send(actions[:1], [1])
    received: list[int] = []
    while (left := envs.in_flight.tolist()) != []:
        rows = envs.recv(1, 1).env_id.tolist()
        assert set(rows) <= set(left)
        received += rows
        assert envs.in_flight.tolist() == sorted(set(left) - set(rows))
    assert sorted(received) == [0, 1, 3, 5]
    envs.step(actions)


def test_rows_of_one_worker_come_together_and_may_be_taken_apart(make_workers):
    """What is not taken stays whole for the next call."""
    fns = [partial(Fixed, [{}, {"a": n, "word": f"w{n}"}]) for n in range(4)]
    envs = make_workers(fns, num_workers=1)
    envs.reset()
    envs.send(np.zeros((4, 1), np.float32), [3, 1, 0, 2])
    rows, values, words = [], [], []
    for _ in range(2):
        batch = envs.recv(1, 2)
        assert len(batch.env_id) == 2
        rows += batch.env_id.tolist()
        values += batch.info["a"].tolist()
        words += batch.info["word"].tolist()
        envs.send(np.zeros((1, 1), np.float32), batch.env_id[:1])
    assert (rows, values, words) == ([0, 1, 2, 3], [0, 1, 2, 3], ["w0", "w1", "w2", "w3"])
    assert len(envs.recv(2).env_id) == 2


def test_quick_ones_do_not_wait_for_a_slow_one(make_workers, gate):
    """They are received again and again while it is in flight."""
    envs = make_workers([partial(Gated, gate)] + [partial(Gated, gate, "never")] * 2, 1)
    envs.reset()
    action = np.zeros((1, 1), np.float32)
    envs.send(np.zeros((3, 1), np.float32), range(3))
    for _ in range(20):
        batch = envs.recv(1, 1)
        assert batch.env_id[0] != 0
        envs.send(action, batch.env_id)
    assert 0 in envs.in_flight
    gate.touch()
    while envs.in_flight.size:
        last = envs.recv()
    assert last.observation[-1, 0] > 0


def test_waiting_for_too_long_loses_nothing(make_workers, gate):
    """All stay in flight, and those that are there can be received."""
    envs = make_workers([partial(Gated, gate), partial(Gated, gate, "never")], 1)
    envs.reset()
    envs.send(np.zeros((2, 1), np.float32), [0, 1])
    with pytest.raises(
        CallTimeout, match=r"recv did not finish .*\(environment 0 \(worker 0\) is in step"
    ):
        envs.recv(2, timeout=0.2)
    assert envs.in_flight.tolist() == [0, 1]
    assert envs.recv(1, timeout=1).env_id.tolist() == [1]
    with pytest.raises(CallTimeout):
        envs.recv(timeout=0)
    gate.touch()
    assert envs.recv().env_id.tolist() == [0]


def test_an_error_that_is_kept_keeps_no_memory(make_workers, gate):
    """Its traceback holds frames, but the block goes with the vector."""
    before = remains()
    envs = make_workers([partial(Gated, gate)], 1)
    envs.reset()
    envs.send(np.zeros((1, 1), np.float32), [0])
    with pytest.raises(CallTimeout) as caught:
        envs.recv(timeout=0.01)
    gate.touch()
    envs.recv()
    envs.close()
    assert remains() == before
    assert caught.value.workers == (0,)


def test_the_constructors_limit_holds(make_workers, gate):
    """Where a call has none of its own."""
    envs = make_workers([partial(Gated, gate)], 1, timeout=0.15)
    envs.reset()
    ticket = envs.submit_slots([0], np.zeros((1, 1), np.float32))
    with pytest.raises(CallTimeout, match="wait_slots"):
        envs.wait_slots(ticket)
    gate.touch()
    envs.wait_slots(ticket, timeout=np.inf)


def test_a_slow_one_is_reported_once(make_workers, gate):
    """In a warning that names it, and waited for."""
    envs = make_workers([partial(Gated, gate)], 1, slow_after=1.0)
    envs.reset()
    envs.send(np.zeros((1, 1), np.float32), [0])
    told = pytest.warns(RuntimeWarning, match=r"recv has been under way .* environment 0")
    with told as caught, pytest.raises(CallTimeout):
        envs.recv(timeout=1.5)
    assert len(caught) == 1
    gate.touch()
    envs.recv()


def test_misuse_is_refused(make_workers):
    """Sending what is in flight, receiving nothing or more than that; nothing has changed."""
    envs = make_workers(walks(3), num_workers=1)
    action = walk_actions(1, 1)[0]
    with pytest.raises(ResetNeeded, match="send was called before the first reset"):
        envs.send(action, [0])
    envs.reset()
    with pytest.raises(RuntimeError, match=r"nothing in flight: call send\(\) first"):
        envs.recv()
    envs.send(action, [1])
    with pytest.raises(CallPending, match=r"environment 1, which is in flight: first recv\(\)"):
        envs.send(walk_actions(1, 2)[0], [0, 1])
    with pytest.raises(ValueError, match="at most 1, got 2"):
        envs.recv(2)
    with pytest.raises(ValueError, match="max_envs"):
        envs.recv(1, 0)
    for wrong in (0, True, 1.0, None):
        with pytest.raises(ValueError, match="min_envs"):
            envs.recv(wrong)
    with pytest.raises(ValueError, match="timeout"):
        envs.recv(timeout=np.nan)
    ticket = envs.submit_slots([0], action)
    assert envs.in_flight.tolist() == [1]
    assert envs.recv().env_id.tolist() == [1]
    with pytest.raises(RuntimeError, match="nothing in flight"):
        envs.recv()
    envs.wait_slots(ticket)


@pytest.mark.parametrize(
    ("call", "order"),
    [
        ("send", "actions, env_ids"),
        ("step_slots", "env_ids, actions"),
        ("submit_slots", "env_ids, actions, state_ids"),
    ],
)
def test_swapped_arguments_are_refused_with_their_order(make, call, order):
    """What is wrong in another way gets no such advice."""
    envs = make(walks(4))
    envs.reset()
    actions, ids = walk_actions(1, 2)[0], np.array([0, 3])
    wrong = (ids, actions) if call == "send" else (actions, ids)
    advice = rf"Nothing has changed\. The arguments seem to be swapped: it is {call}\({order}\)\.$"
    with pytest.raises(ValueError, match=advice):
        getattr(envs, call)(*wrong)
    with pytest.raises(ValueError, match=r"Nothing has changed\.$"):
        getattr(envs, call)(actions, actions)


def test_reset_flushes(make_workers, gate):
    """What was sent is waited for and dropped, what was not received too."""
    envs = make_workers([partial(Gated, gate), partial(Gated, gate, "never")], 1)
    envs.reset()
    envs.send(np.zeros((2, 1), np.float32), [0, 1])
    envs.recv(1)
    gate.touch()
    assert envs.reset().observation.tolist() == [[1] * 3] * 2  # how often they were stepped
    assert envs.in_flight.tolist() == []
    with pytest.raises(RuntimeError, match="nothing in flight"):
        envs.recv()


def test_finished_environments_that_were_flushed_still_need_a_reset(make_workers):
    """Where nothing resets them, and the reset was of others."""
    envs = make_workers(
        [partial(Fixed, length=1)] * 2, 1, autoreset_mode="Disabled", reset_masks=True
    )
    envs.reset()
    envs.send(np.zeros((1, 1), np.float32), [0])
    result = envs.reset(options={"reset_mask": np.array([False, True])})
    assert result.observation.tolist() == [[1], [0]]
    with pytest.raises(ResetNeeded, match="Environment 0 has finished"):
        envs.send(np.zeros((1, 1), np.float32), [0])


def test_an_error_is_raised_though_others_are_slow(make_workers, gate):
    """With its environment named; then all is broken, and closing is quick."""
    fns = [partial(Gated, gate), faulty(partial(Gated, gate, "never"), "step", raising(KeyError))]
    envs = make_workers(fns, 1)
    envs.reset()
    envs.send(np.zeros((2, 1), np.float32), [0, 1])
    with pytest.raises(WorkerRaised, match="Environment 1"):
        envs.recv(2)
    started = time.perf_counter()
    envs.close()
    assert time.perf_counter() - started < 3


def test_what_came_before_an_error_counts_no_more(make):
    """In this process, too."""
    envs = make([Walk, faulty(Walk, "step", raising(KeyError))], 1)
    envs.reset()
    envs.send(walk_actions(1, 2)[0], [0, 1])
    with pytest.raises(WorkerRaised, match="Environment 1"):
        envs.recv()
