"""Deaths and exceptions at every point of a worker's life, and what is left afterwards: nothing."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from superdex.errors import BrokenError, RemoteError, WorkerDied, WorkerRaised
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Acting, Fixed, TwoArguments, Unpicklable, Walk, raising, walks
from tests.vector.leftovers import remains

pytestmark = pytest.mark.usefixtures("nothing_remains")

ACTIONS = np.zeros((4, 2), np.float32)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    ctypes.string_at(0)


def hang() -> None:
    time.sleep(60)


def with_bad(at: str, do: Callable[[], Any], after: int = 0) -> list[Callable[[], Walk]]:
    """Return four functions of which the third builds an environment that misbehaves."""
    return [Walk, Walk, partial(Acting, at, do, after), Walk]


def died_in(function: Callable[[], Any], within: float = 3.0) -> WorkerDied:
    """Return the WorkerDied that a call raises; by contract within a second, here with slack."""
    started = time.perf_counter()
    with pytest.raises(WorkerDied) as caught:
        function()
    assert time.perf_counter() - started < within
    return caught.value


def assert_broken(envs: HybridVectorEnv, cause: BaseException) -> None:
    """Every call but close and statistics is a BrokenError with the first failure as cause."""
    for use in (
        envs.reset,
        envs.reset_async,
        envs.reset_wait,
        partial(envs.reset_envs, [0]),
        partial(envs.step, ACTIONS),
        partial(envs.step_async, ACTIONS),
        envs.step_wait,
        partial(envs.call, "add", 1),
        partial(envs.get_attr, "tag"),
        partial(envs.set_attr, "tag", 1),
        envs.render,
    ):
        with pytest.raises(BrokenError) as caught:
            use()
        assert caught.value.__cause__ is cause
    envs.statistics()
    envs.close()
    assert envs.closed


# ── death ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("do", "exitcode", "text"),
    [
        (kill_self, -signal.SIGKILL, "signal SIGKILL .*out of memory"),
        (partial(os._exit, 3), 3, "exit code 3"),
        (crash, -signal.SIGSEGV, "signal SIGSEGV .*native code"),
        (partial(os._exit, 0), 0, "exit code 0"),
    ],
    ids=["kill", "exit", "segfault", "exit 0"],
)
def test_a_worker_that_dies_in_a_step_is_named(make_workers, do, exitcode, text):
    """With its environments, exit code or signal, and the call; everything else is broken."""
    envs = make_workers(with_bad("step", do, after=1), 2)
    envs.reset()
    envs.step(ACTIONS)
    error = died_in(partial(envs.step, ACTIONS))
    assert (error.worker, error.env_indices, error.call) == (1, range(2, 4), "step")
    assert error.exitcode == exitcode
    assert str(error).startswith("Worker 1 (environments 2 to 3) died during step: ")
    with pytest.raises(WorkerDied, match=text):
        raise error
    assert_broken(envs, error)


@pytest.mark.parametrize(("at", "call"), [("reset", "reset"), ("method", "method")])
def test_a_worker_that_dies_in_another_call_is_named(make_workers, at, call):
    """A call that kills a worker breaks the vector too."""
    envs = make_workers(with_bad(at, kill_self), 2)
    if at == "reset":
        error = died_in(envs.reset)
    else:
        envs.reset()
        error = died_in(partial(envs.call, "method", indices=[2]))
    assert (error.worker, error.call) == (1, call)
    assert_broken(envs, error)


def test_a_worker_that_dies_while_others_are_busy_is_noticed_at_once(make_workers):
    """Nobody waits for the slow one."""
    envs = make_workers([partial(Acting, "step", hang), partial(Acting, "step", kill_self)], 1)
    envs.reset()
    error = died_in(partial(envs.step, ACTIONS[:2]))
    assert error.worker == 1
    envs.close(timeout=0.1)


def test_a_worker_killed_from_outside_in_a_step_is_noticed(make_workers):
    """Though it can't say a word."""
    envs = make_workers([partial(Acting, "step", hang)] * 2, 1)
    envs.reset()
    timer = threading.Timer(0.2, os.kill, (envs.worker_pids[0], signal.SIGKILL))
    timer.start()
    error = died_in(partial(envs.step, ACTIONS[:2]))
    timer.join()
    assert (error.worker, error.exitcode) == (0, -signal.SIGKILL)
    envs.close(timeout=0.1)


@pytest.mark.parametrize("pause", [0.0, 0.3])
@pytest.mark.parametrize("call", ["step", "reset", "call", "reset_envs"])
def test_a_worker_killed_while_idle_is_noticed_by_the_next_call(make_workers, call, pause):
    """Whether the death is known by then or not; the call is named."""
    envs = make_workers(walks(4), 2)
    envs.reset()
    os.kill(envs.worker_pids[1], signal.SIGKILL)
    time.sleep(pause)
    use = {
        "step": partial(envs.step, ACTIONS),
        "reset": envs.reset,
        "call": partial(envs.call, "add", 1),
        "reset_envs": partial(envs.reset_envs, [0]),
    }
    error = died_in(use[call])
    assert (error.worker, error.exitcode) == (1, -signal.SIGKILL)
    assert_broken(envs, error)


@pytest.mark.parametrize("policy", ["raise", "restart"])
def test_a_death_is_noticed_though_another_takes_the_exit_code(make_workers, policy):
    """As a part of the program does that waits for all of its children, or ignores SIGCHLD."""
    envs = make_workers(walks(2), 1, on_worker_failure=policy)
    envs.reset()
    os.kill(envs.worker_pids[1], signal.SIGKILL)
    psutil.Process(envs.worker_pids[1]).wait(20)
    if policy == "raise":
        error = died_in(partial(envs.step, ACTIONS[:2]))
        assert (error.worker, error.exitcode) == (1, None)
        assert str(error).endswith("its exit code is unknown")
    else:
        with pytest.warns(RuntimeWarning, match="exit code is unknown. It is restarted"):
            assert envs.step(ACTIONS[:2]).truncated.tolist() == [False, True]
    started = time.perf_counter()
    envs.close()
    assert time.perf_counter() - started < 3


def test_close_is_quiet_after_a_death_while_idle(make_workers, capfd):
    """The sibling ends too, and nothing is printed."""
    envs = make_workers(walks(4), 2)
    envs.reset()
    os.kill(envs.worker_pids[0], signal.SIGKILL)
    envs.close()
    assert not any(psutil.pid_exists(pid) for pid in envs.worker_pids)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("do", "exitcode"),
    [(kill_self, -signal.SIGKILL), (partial(os._exit, 5), 5), (crash, -signal.SIGSEGV)],
    ids=["kill", "exit", "segfault"],
)
def test_a_worker_that_dies_in_construction_is_named(do, exitcode):
    """And all others end."""
    error = died_in(lambda: HybridVectorEnv(with_bad("construct", do), 2), within=15)
    assert (error.worker, error.env_indices, error.exitcode) == (1, range(2, 4), exitcode)
    assert error.call == "construct"


def test_a_worker_that_dies_in_close_ends_close_all_the_same(make_workers):
    """Closing is bounded and complete."""
    envs = make_workers(with_bad("close", kill_self), 2)
    envs.reset()
    envs.close()
    assert envs.closed


def test_an_environment_that_hangs_in_close_is_killed(make_workers):
    """After the time it was given."""
    envs = make_workers(with_bad("close", hang), 2)
    envs.reset()
    started = time.perf_counter()
    envs.close(timeout=0.3)
    assert time.perf_counter() - started < 6


def test_a_worker_that_ignores_terminate_is_killed(make_workers):
    """Asked, terminated, killed."""

    def ignore_and_hang():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)

    envs = make_workers([partial(Acting, "step", ignore_and_hang)])
    envs.reset()
    envs.step_async(ACTIONS[:1])
    time.sleep(0.3)
    started = time.perf_counter()
    envs.close(timeout=0.2)
    assert time.perf_counter() - started < 8


@pytest.mark.parametrize(
    ("at", "do", "error"),
    [
        ("step", kill_self, WorkerDied),
        ("step", partial(os._exit, 3), WorkerDied),
        ("step", crash, WorkerDied),
        ("step", raising(TwoArguments, "spring", "knee"), WorkerRaised),
        ("step", raising(Unpicklable), WorkerRaised),
        ("reset", kill_self, WorkerDied),
        ("method", kill_self, WorkerDied),
    ],
    ids=["kill", "exit", "segfault", "two arguments", "unpicklable", "kill reset", "kill call"],
)
def test_a_with_block_is_left_within_two_seconds_of_a_failure(at, do, error):
    """Though other workers are busy for a minute with what failed."""
    env_fns = [partial(Busy, at), partial(Acting, at, do), partial(Busy, at)]
    failed_at = []

    def use():
        with HybridVectorEnv(env_fns, 1) as envs:
            if at != "reset":
                envs.reset()
            calls = {"reset": envs.reset, "method": partial(envs.call, "method")}
            try:
                calls.get(at, partial(envs.step, ACTIONS[:3]))()
            finally:
                failed_at.append(time.perf_counter())

    with pytest.raises(error):
        use()
    assert time.perf_counter() - failed_at[0] < 2


class Busy(Acting):
    """Takes a minute at one point."""

    def __init__(self, at):
        super().__init__(at, hang)


def test_a_worker_that_closes_after_a_failure_gets_its_time(make_workers, tmp_path):
    """What is cut short is the call that failed; an environment that takes long to close may."""
    path = tmp_path / "closed"

    def close_slowly():
        time.sleep(1.2)
        touch(path)

    slow = partial(Acting, "close", close_slowly)
    envs = make_workers([slow, partial(Acting, "step", raising(KeyError, "k"))], 1)
    envs.reset()
    with pytest.raises(WorkerRaised):
        envs.step(ACTIONS[:2])
    envs.close()
    assert path.read_text() == "closed\n"


def test_two_workers_killed_from_outside_in_a_step_are_both_reported(make_workers):
    """As an ExceptionGroup; the one that is left over ends in time."""
    envs = make_workers([partial(Busy, "step")] * 3, 1)
    envs.reset()
    killed = envs.worker_pids[:2]
    timer = threading.Timer(0.2, lambda: [os.kill(pid, signal.SIGKILL) for pid in killed])
    timer.start()
    with pytest.raises(ExceptionGroup) as caught:
        envs.step(ACTIONS[:3])
    timer.join()
    errors = caught.value.exceptions
    assert [(type(error), error.worker) for error in errors] == [(WorkerDied, 0), (WorkerDied, 1)]


def test_two_workers_killed_while_idle_are_both_reported(make_workers):
    """By the next call."""
    envs = make_workers(walks(3), 1)
    envs.reset()
    for pid in envs.worker_pids[:2]:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    with pytest.raises(ExceptionGroup) as caught:
        envs.step(ACTIONS[:3])
    assert [error.worker for error in caught.value.exceptions] == [0, 1]
    assert_broken(envs, caught.value)


@pytest.mark.parametrize("count", [1, 2])
def test_workers_killed_while_they_close_are_no_failure(make_workers, tmp_path, count):
    """They were to end anyway; close waits for nobody who is dead."""

    def note_and_hang():
        touch(tmp_path / f"closing{os.getpid()}")
        hang()

    envs = make_workers([partial(Acting, "close", note_and_hang)] * count + [Walk], 1)
    envs.reset()

    def kill_closing():
        while len(list(tmp_path.iterdir())) < count:
            time.sleep(0.01)
        for pid in envs.worker_pids[:count]:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_closing)
    started = time.perf_counter()
    thread.start()
    envs.close(timeout=30)
    thread.join()
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("timeout", [float("inf"), 1e9])
def test_close_takes_any_limit_and_still_tells_what_failed(make_workers, timeout):
    """Longer than the system can count, too."""
    envs = make_workers([partial(Acting, "close", raising(KeyError, "k"))])
    envs.reset()
    with pytest.raises(WorkerRaised, match="raised in close: KeyError"):
        envs.close(timeout=timeout)


def test_all_workers_that_died_are_reported(make_workers):
    """As an ExceptionGroup."""
    envs = make_workers([partial(Acting, "step", kill_self)] * 2, 1)
    envs.reset()
    envs.step_async(ACTIONS[:2])
    time.sleep(0.3)
    with pytest.raises(ExceptionGroup) as caught:
        envs.step_wait()
    assert [type(error) for error in caught.value.exceptions] == [WorkerDied, WorkerDied]


def test_a_with_block_ends_after_a_death():
    """And shows the death, not a failure of the block's end."""
    ended = False
    try:
        with HybridVectorEnv(with_bad("step", kill_self), 2) as envs:
            envs.reset()
            envs.step(ACTIONS)
    except WorkerDied:
        ended = envs.closed
    assert ended


# ── exceptions ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("in_process", [True, False])
@pytest.mark.parametrize("at", ["reset", "step"])
def test_an_exception_is_raised_with_its_environment(make, at, in_process):
    """Its own exception is the cause, and the vector is broken."""
    envs = make(with_bad(at, raising(TwoArguments, "spring", "knee")), 2, in_process=in_process)
    if at == "step":
        envs.reset()
    with pytest.raises(WorkerRaised) as caught:
        envs.reset() if at == "reset" else envs.step(ACTIONS)
    error = caught.value
    assert (error.worker, error.env_index, error.call) == (1, 2, at)
    assert str(error).startswith(f"Environment 2 (worker 1) raised in {at}: ")
    assert "TwoArguments: spring at knee" in str(error)
    assert "in do" in error.remote_traceback
    assert isinstance(error.__cause__, TwoArguments)
    assert (error.__cause__.what, error.__cause__.where) == ("spring", "knee")
    assert_broken(envs, error)


def test_an_exception_that_cant_be_pickled_is_replaced_by_its_text(make_workers):
    """RemoteError with the traceback."""
    envs = make_workers(with_bad("step", raising(Unpicklable)), 2)
    envs.reset()
    with pytest.raises(WorkerRaised, match="Unpicklable: holds a lock") as caught:
        envs.step(ACTIONS)
    assert type(caught.value.__cause__) is RemoteError
    assert "Unpicklable: holds a lock" in str(caught.value.__cause__)


@pytest.mark.parametrize("in_process", [True, False])
def test_leaving_is_an_exception_like_others(make, in_process):
    """sys.exit in an environment."""
    envs = make(with_bad("step", partial(sys.exit, 4)), 2, in_process=in_process)
    envs.reset()
    with pytest.raises(WorkerRaised) as caught:
        envs.step(ACTIONS)
    assert repr(caught.value.__cause__) == "SystemExit(4)"


def test_two_workers_at_once_are_both_reported(make_workers):
    """Each with its own exception."""
    env_fns = [
        partial(Acting, "step", raising(KeyError, "a")),
        partial(Acting, "step", raising(TwoArguments, "b", "c")),
    ]
    envs = make_workers(env_fns, 1)
    envs.reset()
    envs.step_async(ACTIONS[:2])
    time.sleep(0.3)
    with pytest.raises(ExceptionGroup) as caught:
        envs.step_wait()
    group = caught.value
    assert [type(error.__cause__) for error in group.exceptions] == [KeyError, TwoArguments]
    assert_broken(envs, group)


def test_an_exception_is_raised_while_others_are_busy(make_workers):
    """Nobody waits for the slow one."""
    env_fns = [partial(Acting, "step", hang), partial(Acting, "step", raising(KeyError, "k"))]
    envs = make_workers(env_fns, 1)
    envs.reset()
    started = time.perf_counter()
    with pytest.raises(WorkerRaised) as caught:
        envs.step(ACTIONS[:2])
    assert time.perf_counter() - started < 3
    assert caught.value.env_index == 1
    envs.close(timeout=0.1)


def test_an_exception_and_a_death_are_both_reported(make_workers):
    """In one ExceptionGroup."""
    env_fns = [
        partial(Acting, "step", raising(KeyError, "k")),
        partial(Acting, "step", kill_self),
    ]
    envs = make_workers(env_fns, 1)
    envs.reset()
    envs.step_async(ACTIONS[:2])
    time.sleep(0.3)
    with pytest.raises(ExceptionGroup) as caught:
        envs.step_wait()
    assert {type(error) for error in caught.value.exceptions} == {WorkerRaised, WorkerDied}


def test_a_failing_call_leaves_it_usable(make_workers):
    """Several times, between steps, and with one worker slower than the other."""
    slow = partial(Acting, "method", partial(time.sleep, 0.2))
    envs = make_workers([partial(Acting, "method", raising(KeyError, "k")), slow], 1)
    envs.reset(seed=1)
    alone = HybridVectorEnv(walks(2), 1, in_process=True)
    alone.reset(seed=1)
    for _ in range(3):
        with pytest.raises(WorkerRaised):
            envs.call("method")
        expected = alone.step(ACTIONS[:2]).observation
        np.testing.assert_array_equal(envs.step(ACTIONS[:2]).observation, expected)
    assert envs.get_attr("tag") == (0, 0)
    alone.close()


def test_a_constructor_that_raises_does_not_wait_for_slow_ones():
    """The failure is there at once, and the slow one ends."""
    started = time.perf_counter()
    env_fns = [partial(Acting, "construct", hang), raising(KeyError, "k")]
    with pytest.raises(WorkerRaised) as caught:
        HybridVectorEnv(env_fns, 1)
    assert time.perf_counter() - started < 15
    assert (caught.value.env_index, caught.value.call) == (1, "construct")


def test_odd_rewards_and_observations_break_with_the_environment_named(make_workers):
    """As exceptions of that environment's step."""
    envs = make_workers([Fixed, partial(Fixed, reward=[1.0])], 2)
    envs.reset()
    with pytest.raises(WorkerRaised, match=r"Environment 1 .* The reward must be a number"):
        envs.step(np.zeros((2, 1), np.float32))


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


def test_close_leaves_nothing(make_workers):
    """While the vector object is still held; the fixture of this module looks."""
    before = remains()
    envs = make_workers(walks(4), 2)
    envs.reset()
    result = envs.step(ACTIONS)
    assert remains() != before
    envs.close()
    assert remains() == before
    assert result.observation.shape == (4, 3)


def test_twenty_vectors_one_after_the_other_leave_nothing():
    """No descriptor is lost on the way."""
    before = remains()
    for _ in range(20):
        with HybridVectorEnv(walks(1)) as envs:
            envs.reset()
    assert remains() == before


def test_a_forgotten_vector_is_closed_when_it_is_collected(tmp_path):
    """Its environments too, once."""
    path = tmp_path / "closed"
    envs = HybridVectorEnv([partial(Acting, "close", partial(touch, path))] * 2, 2)
    envs.reset()
    gone = weakref.ref(envs)
    pids = envs.worker_pids
    del envs
    gc.collect()
    assert gone() is None
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert path.read_text() == "closed\n" * 2


def touch(path: Path) -> None:
    with path.open("a") as file:
        file.write("closed\n")


@pytest.mark.parametrize("in_process", [True, False])
def test_a_failing_close_is_quiet_at_collection(in_process, capfd):
    """Nobody could catch it there; an unraisable warning would fail this test."""
    bad = partial(Acting, "close", raising(KeyError, "k"))
    envs = HybridVectorEnv([bad] * 2, 2, in_process=in_process)
    envs.reset()
    del envs
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_a_failed_construction_is_quiet_at_collection(capfd):
    """The half-made object has nothing left to close."""
    for env_fns in ([raising(KeyError, "k")] * 2, [1], []):
        with pytest.raises((WorkerRaised, TypeError, ValueError)):
            HybridVectorEnv(env_fns, 2)
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_a_worker_has_two_threads(make_workers):
    """The environments' and the one that watches the parent; none of numeric libraries."""
    envs = make_workers(walks(2), 1)
    envs.reset()
    for pid in envs.worker_pids:
        assert psutil.Process(pid).num_threads() <= 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, BaseException])
def test_an_exception_outside_of_exception_is_that_of_its_environment(make_workers, capfd, error):
    """It ends no worker and prints nothing (asyncio.CancelledError is such a one)."""
    envs = make_workers([Walk, partial(Acting, "step", raising(error, "x"))], 2)
    envs.reset()
    with pytest.raises(WorkerRaised, match="Environment 1 "):
        envs.step(np.zeros((2, 2), np.float32))
    assert capfd.readouterr() == ("", "")
