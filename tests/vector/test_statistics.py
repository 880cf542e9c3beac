"""What a vector environment says of its own time."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import numpy as np
import pytest

from superdex.errors import CallTimeout
from superdex.vector._split import split_envs
from superdex.vector._statistics import slowest_env
from superdex.vector._timing import Record
from tests.vector.envs import Fixed

PAUSE = 0.02


class Slow(Fixed):
    """Takes a while in step or reset.

    Args:
        step: Seconds of each step.
        reset: Seconds of each reset.
        length: Steps of an episode.
    """

    def __init__(self, step=0.0, reset=0.0, length=10**9):
        super().__init__(length=length)
        self.seconds_of_step, self.seconds_of_reset = step, reset

    def reset(self, **kwargs):
        time.sleep(self.seconds_of_reset)
        return super().reset(**kwargs)

    def step(self, action):
        time.sleep(self.seconds_of_step)
        return super().step(action)


def actions(envs):
    return np.zeros(envs.action_space.shape, np.float32)


def test_times_are_where_they_were_spent(make_workers):
    """In environments what they slept; idle what the policy took and a slower worker needed."""
    env_fns = [partial(Slow, PAUSE)] * 2 + [Slow] * 2
    envs = make_workers(env_fns, 2)
    envs.reset()
    before = envs.statistics()
    started = time.perf_counter()
    for _ in range(10):
        time.sleep(PAUSE)
        envs.step(actions(envs))
    elapsed = time.perf_counter() - started
    after = envs.statistics()

    def spent(name):
        return np.subtract(getattr(after, name), getattr(before, name))

    slow, quick = spent("seconds_in_envs")
    assert 20 * PAUSE <= slow <= elapsed - 10 * PAUSE
    assert quick < slow / 2
    idle_beside_slow, idle_beside_quick = spent("seconds_idle")
    assert 10 * PAUSE * 0.9 <= idle_beside_slow <= elapsed - slow
    assert idle_beside_quick >= 20 * PAUSE * 0.9
    transport = spent("seconds_in_transport")
    assert (transport > 0).all()
    assert transport.max() < elapsed / 4
    total = spent("seconds_in_envs") + spent("seconds_idle") + transport
    assert (total > 0.8 * elapsed).all()
    assert 20 * PAUSE * 0.9 <= sum(spent("seconds_waiting")) <= elapsed - 10 * PAUSE


@pytest.mark.parametrize("in_process", [True, False])
def test_the_environment_that_is_slow_in_step_is_found(make, in_process):
    """With its worker and what its steps take."""
    env_fns = [Slow, Slow, partial(Slow, PAUSE), partial(Slow, reset=0.001, length=3)]
    envs = make(env_fns, 2, in_process=in_process)
    assert envs.statistics().slowest_env is None
    envs.reset()
    for _ in range(8):
        envs.step(actions(envs))
    slowest = envs.statistics().slowest_env
    assert slowest is not None
    assert (slowest.env_index, slowest.worker) == (2, 1)
    assert PAUSE <= slowest.step_seconds <= slowest.longest_step
    assert 0 < slowest.reset_seconds <= slowest.longest_reset
    assert sum(envs.statistics().seconds_in_envs) >= 8 * PAUSE
    envs.close()
    assert envs.statistics().slowest_env == slowest


@pytest.mark.parametrize("in_process", [True, False])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_environment_that_is_slow_in_reset_is_found(make, in_process, mode):
    """Its resets are shared out over the steps."""
    env_fns = [partial(Slow, length=4), partial(Slow, reset=4 * PAUSE, length=4), Slow]
    envs = make(env_fns, num_workers=2, in_process=in_process, autoreset_mode=mode)
    envs.reset()
    for _ in range(9):
        envs.step(actions(envs))
    slowest = envs.statistics().slowest_env
    assert slowest is not None
    assert (slowest.env_index, slowest.worker) == (1, 0)
    assert slowest.reset_seconds >= 4 * PAUSE
    assert slowest.step_seconds < 4 * PAUSE


def test_resets_are_shared_out_over_all_steps_timed_or_not():
    """Of quick steps few are timed; that makes no reset longer."""
    records = np.zeros((2, Record.LENGTH))
    records[:, Record.STEPS] = 32  # of 1024
    records[:, Record.RESETS] = 1
    records[0, Record.STEP_SECONDS], records[0, Record.RESET_SECONDS] = 32 * 5e-6, 1e-3
    records[1, Record.STEP_SECONDS] = 32 * 10e-6
    slowest = slowest_env(records, split_envs(2, 1, 1), 1024)
    assert slowest is not None
    assert slowest.env_index == 1
    assert slowest.step_seconds == pytest.approx(10e-6)


def test_numbers_go_on_over_a_restart_and_stay_after_close(make_workers):
    """Nothing starts over with the new process."""
    envs = make_workers([partial(Slow, PAUSE), Slow], 1, on_worker_failure="restart")
    envs.reset()
    for _ in range(5):
        envs.step(actions(envs))
    before = envs.statistics()
    os.kill(envs.worker_pids[0], signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="It is restarted"):
        envs.step(actions(envs))
    for _ in range(2):
        envs.step(actions(envs))
    after = envs.statistics()
    assert (before.worker_restarts, after.worker_restarts) == ((0, 0), (1, 0))
    assert (after.steps, after.env_errors) == (8, 0)
    # of the first, one step said that its episode was cut short, and one reset it
    assert after.env_steps == before.env_steps + 3 + 1
    for name in ("seconds_in_envs", "seconds_idle", "seconds_in_transport", "seconds_waiting"):
        assert all(np.greater_equal(getattr(after, name), getattr(before, name)))
    assert after.seconds_in_envs[0] >= before.seconds_in_envs[0] + PAUSE
    assert after.messages > before.messages
    assert after.slowest_env is not None
    assert after.slowest_env.env_index == 0
    envs.close()
    closed = envs.statistics()
    assert closed.seconds_in_envs == after.seconds_in_envs
    assert (closed.worker_restarts, closed.slowest_env) == ((1, 0), after.slowest_env)


def test_time_waited_counts_though_the_wait_ended_early(make_workers):
    """All of it, when the reply is there at last."""
    envs = make_workers([partial(Slow, 0.5)])
    envs.reset()
    envs.step_async(actions(envs))
    for _ in range(3):
        with pytest.raises(CallTimeout):
            envs.step_wait(timeout=0.09)
    assert envs.statistics().seconds_waiting[0] >= 0.27
    envs.step_wait()
    assert envs.statistics().seconds_waiting[0] >= 0.49
