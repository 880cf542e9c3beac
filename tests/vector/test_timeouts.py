"""Limits on how long calls are waited for, and words about what takes long."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import math
import os
import re
import signal
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv

from superdex.errors import CallTimeout
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Walk, raising

pytestmark = pytest.mark.usefixtures("nothing_remains")

ACTIONS = np.zeros((2, 1), np.float32)
SHORT = 0.15
"""A limit long enough that what is slow is asked what it does."""


class Gated(Walk):
    """Waits at one point of its life until a file exists; observes how often it was stepped.

    Args:
        gate: The file.
        at: "construct", "reset", "autoreset", "step" or "method".
        native: Hold the GIL meanwhile, as some native code does.
    """

    def __init__(self, gate: Path, at: str = "step", native: bool = False):
        super().__init__()
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.gate, self.at, self.native = gate, at, native
        self.steps, self.resets = 0, 0
        self.wait("construct")

    def wait(self, at):
        while self.at == at and not self.gate.exists():
            if self.native:
                ctypes.PyDLL(None).usleep(20_000_000)
            time.sleep(0.005)

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        self.wait("reset" if self.resets == 1 else "autoreset")
        return np.full(3, self.steps, np.float32), {}

    def step(self, action):
        self.wait("step")
        self.steps += 1
        return np.full(3, self.steps, np.float32), 0.0, self.at == "autoreset", False, {}

    def method(self):
        self.wait("method")
        return self.steps


def line_of(function) -> str:
    """Return where a call by name of `time.sleep` stands, as messages give it."""
    lines, first = inspect.getsourcelines(function)
    number = next(first + i for i, line in enumerate(lines) if "time.sleep" in line)
    return f"{__file__}:{number}"


@pytest.fixture
def gate(tmp_path):
    """Yields a path that is made at the end at the latest."""
    path = tmp_path / "open"
    yield path
    path.touch()


@pytest.fixture
def gated(make_workers, gate):
    """Makes vectors of a plain environment and a gated one, in two workers."""

    def build(at="step", native=False, **kwargs):
        env_fns = [partial(Gated, gate, "never"), partial(Gated, gate, at, native)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # slow_after holds for the start as well
            return make_workers(env_fns, 1, **kwargs)

    return build


@pytest.fixture
def open_later(gate):
    """Starts a timer that opens the gate."""
    timers = []

    def start(seconds=0.4):
        timers.append(threading.Timer(seconds, gate.touch))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join()


# ── limits ──────────────────────────────────────────────────────────────────────────────────────

CALLS = {
    "step": (lambda envs, **kwargs: envs.step(ACTIONS, **kwargs), "step_wait"),
    "reset": (lambda envs, **kwargs: envs.reset(**kwargs), "reset_wait"),
    "reset_envs": (lambda envs, **kwargs: envs.reset_envs([1], **kwargs), "reset_wait"),
}


@pytest.mark.parametrize("call", ["step", "reset_envs"])
def test_limits_of_the_constructor_and_of_the_call(gated, gate, open_later, call):
    """None is the constructor's, any other number is the call's own, infinity is none."""
    use, wait = CALLS[call]
    envs = gated("step" if call == "step" else "reset", timeout=SHORT)
    if call == "step":
        envs.reset()
    with pytest.raises(CallTimeout, match=rf"did not finish within {SHORT} s") as caught:
        use(envs)
    assert (caught.value.timeout, caught.value.workers) == (SHORT, (1,))
    with pytest.raises(CallTimeout) as caught:
        getattr(envs, wait)(timeout=0.25)
    assert caught.value.timeout == 0.25
    with pytest.raises(CallTimeout) as caught:
        getattr(envs, wait)()
    assert caught.value.timeout == SHORT
    open_later()
    assert getattr(envs, wait)(math.inf).observation[1, 0] == (call == "step")


def test_the_calls_own_limit_wins_over_a_longer_one(gated):
    """And is gone with the call."""
    envs = gated(timeout=60)
    envs.reset()
    started = time.perf_counter()
    with pytest.raises(CallTimeout) as caught:
        envs.step(ACTIONS, timeout=SHORT)
    assert SHORT <= time.perf_counter() - started < 20
    assert caught.value.timeout == SHORT


@pytest.mark.parametrize("timeout", [1e300, np.float16(50), np.int8(50)])
def test_a_limit_is_any_number(gated, open_later, timeout):
    """However large and of whatever kind."""
    envs = gated(timeout=timeout, slow_after=None)
    envs.reset(timeout=timeout)
    open_later(0.1)
    assert envs.step(ACTIONS).observation[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize("timeout", [np.float32(0.2)])
def test_a_short_limit_of_low_precision_is_kept(gated, timeout):
    """A clock that counts from the start of the machine has more digits than it."""
    envs = gated()
    envs.reset()
    started = time.perf_counter()
    with pytest.raises(CallTimeout):
        envs.step(ACTIONS, timeout=timeout)
    assert float(timeout) <= time.perf_counter() - started < 20


def test_what_is_no_limit_is_refused_before_anything_moves(gated, gate):
    """By constructor and calls alike."""
    gate.touch()
    envs = gated()
    for timeout in ("1", True, math.nan, [1]):
        for use in (gated, *(partial(use, envs) for use, _ in CALLS.values())):
            with pytest.raises(ValueError, match="timeout must be a number of seconds or None"):
                use(timeout=timeout)
    envs.reset()
    assert envs.step(ACTIONS).observation[:, 0].tolist() == [1, 1]


def test_nothing_shifts_by_one(gated, gate):
    """Whatever times out in between, the n-th step returns the n-th result."""
    envs = gated()
    envs.reset()
    for step in range(1, 6):
        gate.unlink(missing_ok=True)
        with pytest.raises(CallTimeout):
            envs.step(ACTIONS, timeout=0.01)
        with pytest.raises(CallTimeout):
            envs.step_wait(timeout=0)
        gate.touch()
        assert envs.step_wait().observation[:, 0].tolist() == [step, step]
    assert envs.call("method") == (5, 5)
    assert envs.statistics().steps == 5


@pytest.mark.parametrize("native", [False, True])
def test_polling_is_quick(gated, native):
    """A limit of nothing looks and returns; nobody is asked what takes so long."""
    envs = gated(native=native)
    envs.reset()
    envs.step_async(ACTIONS)
    started = time.perf_counter()
    for _ in range(300):
        with pytest.raises(CallTimeout) as caught:
            envs.step_wait(timeout=0)
    assert time.perf_counter() - started < 5
    assert caught.value.places == ()
    envs.close(timeout=0)


# ── what takes long ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("at", "call"), [("step", "step"), ("autoreset", "step")])
def test_a_slow_environment_is_named_with_its_line(gated, at, call):
    """An autoreset is part of the step; the line says that it is one."""
    envs = gated(at, autoreset_mode="same_step" if at == "autoreset" else "NextStep")
    envs.reset()
    with pytest.raises(CallTimeout) as caught:
        envs.step(ACTIONS, timeout=SHORT)
    place = f"environment 1 (worker 1) is in {call}, in Gated.wait, {line_of(Gated.wait)}"
    assert caught.value.places == (place,)
    assert str(caught.value) == (
        f"step did not finish within {SHORT} s: no reply yet from worker 1 ({place}). "
        "Nothing is lost; wait again for the same reply."
    )


def test_a_slow_reset_is_named_with_its_line(gated):
    """As a slow step is."""
    envs = gated("reset")
    with pytest.raises(CallTimeout) as caught:
        envs.reset(timeout=SHORT)
    assert caught.value.places == (
        f"environment 1 (worker 1) is in reset, in Gated.wait, {line_of(Gated.wait)}",
    )


def test_native_code_that_holds_the_gil_is_named_as_such(gated):
    """Nothing else can be known of it."""
    envs = gated(native=True)
    envs.reset()
    with pytest.raises(CallTimeout) as caught:
        envs.step(ACTIONS, timeout=SHORT)
    assert caught.value.places == (
        "worker 1 (environment 1) gives no answer, as in native code that holds the GIL",
    )
    envs.close(timeout=0)


def test_an_inner_layer_of_another_class_is_named_with_its_line(make_workers, gate):
    """It does not say which of its environments it is at."""
    envs = make_workers([partial(Gated, gate)] * 2, 2, inner_env_cls=SyncVectorEnv)
    envs.reset()
    with pytest.raises(CallTimeout) as caught:
        envs.step(ACTIONS, timeout=SHORT)
    line = line_of(Gated.wait)
    assert caught.value.places == (f"worker 0 (environments 0 to 1), in Gated.wait, {line}",)


def test_of_many_slow_workers_the_first_are_described(make_workers, gate):
    """All are counted."""
    envs = make_workers([partial(Gated, gate)] * 5, 1)
    envs.reset()
    with pytest.raises(CallTimeout, match="from workers 0, 1, 2, 3, 4") as caught:
        envs.step(np.zeros((5, 1), np.float32), timeout=SHORT)
    assert len(caught.value.places) == 4
    assert caught.value.places[-1] == "and 2 more workers"


def test_a_slow_restart_can_time_out_too(make_workers, tmp_path, gate):
    """Naming who builds what; waiting again returns the step."""
    built = tmp_path / "built"

    def build():
        at = "construct" if built.exists() else "never"
        built.touch()
        return Gated(gate, at)

    env_fns = [partial(Gated, gate, "never"), build]
    envs = make_workers(env_fns, 1, on_worker_failure="restart")
    envs.reset()
    os.kill(envs.worker_pids[1], signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="Worker 1 .* is restarted"), pytest.raises(CallTimeout):
        envs.step(ACTIONS, timeout=SHORT)
    places = ()
    while "is in construct" not in str(places):  # it imports first
        with pytest.raises(CallTimeout) as caught:
            envs.step_wait(timeout=SHORT)
        places = caught.value.places
    assert places == (
        f"environment 1 (worker 1) is in construct, in Gated.wait, {line_of(Gated.wait)}",
    )
    gate.touch()
    assert envs.step_wait().truncated.tolist() == [False, True]
    assert envs.step(ACTIONS).truncated.tolist() == [False, False]


# ── reports ─────────────────────────────────────────────────────────────────────────────────────


def reports_of(function) -> list[warnings.WarningMessage]:
    """Return what a function warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return caught


@pytest.mark.parametrize("call", ["step", "step_wait", "reset_envs", "call"])
def test_a_slow_call_is_reported_once_at_the_callers_line(gated, gate, open_later, call):
    """With worker, environment, line and seconds; then it goes on as if nothing had been."""
    envs = gated("autoreset" if call == "reset_envs" else "step", slow_after=0.2)
    if call == "call":
        envs.set_attr("at", "method", indices=[1])
    envs.reset()
    if call == "step_wait":
        envs.step_async(ACTIONS)
    use = {
        "step": lambda: envs.step(ACTIONS),
        "reset_envs": lambda: envs.reset_envs([1]),
        "call": lambda: envs.call("method"),
        "step_wait": lambda: envs.step_wait(),
    }[call]
    name = {"reset_envs": "reset", "call": "method"}.get(call, "step")
    open_later(0.7)
    [report] = reports_of(use)
    assert report.category is RuntimeWarning
    assert (report.filename, report.lineno) == (__file__, use.__code__.co_firstlineno)
    found = re.fullmatch(
        rf"{name} has been under way for (\d\.\d) s: environment 1 \(worker 1\) is in {name}, "
        rf"in Gated.wait, {line_of(Gated.wait)}\. It is waited for\. "
        r"\(slow_after= sets when this warning comes\.\)",
        str(report.message),
    )
    assert found
    assert 0.2 <= float(found[1]) < 0.7
    envs.reset()
    assert reports_of(lambda: envs.step(ACTIONS)) == []


def test_each_call_is_reported_once_however_often_it_is_waited_for(gated, gate, open_later):
    """Its seconds count from its start, and the next one may be slow again."""
    envs = gated(slow_after=0.3)
    envs.reset()
    envs.step_async(ACTIONS)
    reports: list[warnings.WarningMessage] = []

    def poll():
        with pytest.raises(CallTimeout):
            envs.step_wait(timeout=0.06)

    for _ in range(12):
        reports += reports_of(poll)
    assert len(reports) == 1
    gate.touch()
    envs.step_wait()
    gate.unlink()
    open_later(0.5)
    assert len(reports_of(lambda: envs.step(ACTIONS))) == 1


@pytest.mark.parametrize("slow_after", [None, math.inf, 1e8])
def test_what_is_not_slow_yet_is_not_reported(gated, open_later, slow_after):
    """None and infinity mean never; no number is too large."""
    envs = gated(slow_after=slow_after)
    envs.reset()
    open_later(0.3)
    assert reports_of(lambda: envs.step(ACTIONS)) == []


def test_a_slow_constructor_is_reported_at_the_callers_line(gate, open_later):
    """With the environment that is being built; others are said to be there."""
    env_fns = [partial(Gated, gate, "never"), partial(Gated, gate, "construct")]
    open_later(2.5)

    def use():
        HybridVectorEnv(env_fns, 1, slow_after=1.5).close()

    [report] = reports_of(use)
    assert report.filename == __file__
    assert re.fullmatch(
        r"1 of 2 workers have not started after 1\.[5-9] s: environment 1 \(worker 1\) is in "
        rf"construct, in Gated.wait, {line_of(Gated.wait)}\. They are waited for\. .*",
        str(report.message),
    )


# ── warnings that the user makes errors of ──────────────────────────────────────────────────────
# This is how the tests run anyway.


def test_a_report_raised_as_an_error_leaves_the_step_in_flight(gated, gate):
    """Waiting again returns its reply."""
    envs = gated(slow_after=0.1)
    envs.reset()
    with pytest.raises(RuntimeWarning, match="step has been under way"):
        envs.step(ACTIONS)
    gate.touch()
    assert envs.step_wait().observation[:, 0].tolist() == [1, 1]
    assert envs.step(ACTIONS).observation[:, 0].tolist() == [2, 2]


@pytest.mark.parametrize("at", ["step", "method"])
def test_reset_drains_a_call_whose_report_was_raised_as_an_error(gated, gate, at):
    """As after Ctrl-C."""
    envs = gated(at, slow_after=0.1)
    envs.reset()
    with pytest.raises(RuntimeWarning, match="has been under way"):
        envs.call("method") if at == "method" else envs.step(ACTIONS)
    gate.touch()
    envs.reset()
    steps = int(at == "step")
    assert envs.step(ACTIONS).observation[:, 0].tolist() == [steps + 1, steps + 1]
    assert envs.call("method") == (steps + 1, steps + 1)


def test_a_start_whose_report_is_raised_as_an_error_leaves_nothing(gate):
    """The fixture looks for what could be left."""
    with pytest.raises(RuntimeWarning, match="have not started after"):
        HybridVectorEnv([partial(Gated, gate, "construct")] * 2, 1, slow_after=0.3)


def test_a_restart_whose_report_is_raised_as_an_error_goes_on_later(gated, gate):
    """Every worker is reported and restarted once, and the step returned."""
    gate.touch()
    envs = gated(on_worker_failure="restart")
    envs.reset()
    envs.step(ACTIONS)
    for pid in envs.worker_pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeWarning, match="It is restarted"):
        envs.step(ACTIONS)
    result = None
    while result is None:
        with contextlib.suppress(RuntimeWarning):
            result = envs.step_wait()
    assert result.truncated.tolist() == [True, True]
    assert envs.step(ACTIONS).truncated.tolist() == [False, False]
    assert envs.statistics().worker_restarts == (1, 1)


def test_a_restart_before_a_call_goes_on_later_too(gated, gate):
    """Nothing was sent yet; the next call finds the worker restarted."""
    gate.touch()
    envs = gated(on_worker_failure="restart")
    envs.reset()
    os.kill(envs.worker_pids[1], signal.SIGKILL)
    time.sleep(0.3)
    with pytest.raises(RuntimeWarning, match="It is restarted"):
        envs.call("method")
    assert envs.call("method") == (0, 0)
    assert envs.statistics().worker_restarts == (0, 1)


def test_an_error_reported_as_an_error_leaves_the_vector_usable(make_workers, gate):
    """The step was made; only its result is lost."""
    gate.touch()

    class Stumbling(Gated):
        def step(self, action):
            if self.steps == 1:
                raising(KeyError, "k")()
            return super().step(action)

    envs = make_workers([partial(Stumbling, gate)] * 2, 1, on_env_error="truncate")
    envs.reset()
    envs.step(ACTIONS)
    with pytest.raises(RuntimeWarning, match="raised in step: KeyError"):
        envs.step(ACTIONS)
    envs.step(ACTIONS)
    assert envs.call("method") == (0, 0)
    assert envs.step(ACTIONS).observation[:, 0].tolist() == [1, 1]
