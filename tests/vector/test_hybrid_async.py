"""Calls in two halves, waits that end early, and Ctrl-C while waiting."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

from superdex.buffers import allocate
from superdex.errors import BrokenError, CallPending, CallTimeout, ClosedError, ResetNeeded
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Acting, Fixed, Walk, walk_actions, walks

NO_ACTIONS = np.zeros((2, 1), np.float32)


class Gate(Fixed):
    """Waits in step, reset or method until a file exists."""

    def __init__(self, path, at="step"):
        super().__init__()
        self.path, self.at = path, at

    def wait(self, at):
        while self.at == at and not self.path.exists():
            time.sleep(0.005)

    def reset(self, **kwargs):
        self.wait("reset")
        return super().reset(**kwargs)

    def step(self, action):
        self.wait("step")
        return super().step(action)

    def method(self):
        self.wait("method")
        return self.steps


@pytest.fixture
def gate(tmp_path):
    return tmp_path / "open"


@pytest.fixture
def gated(make_workers, gate):
    """A vector whose second environment waits in step until the gate is open."""
    envs = make_workers([Fixed, partial(Gate, gate)], 1)
    envs.reset()
    yield envs
    gate.touch()


@pytest.fixture
def interrupt():
    """Starts a timer that sends Ctrl-C to this process."""
    timers = []

    def start(seconds=0.2):
        timers.append(threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join()


@pytest.mark.parametrize("in_process", [True, False])
def test_halves_give_what_whole_calls_give(make, in_process):
    """step is step_async and step_wait; reset likewise."""
    halves, whole = make(walks(2), in_process=in_process), make(walks(2))
    halves.reset_async(seed=3)
    np.testing.assert_array_equal(halves.reset_wait().observation, whole.reset(seed=3).observation)
    for batch in walk_actions(6, 2):
        halves.step_async(batch)
        got, expected = halves.step_wait(), whole.step(batch)
        for one, other in zip(got[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("in_process", [True, False])
def test_another_call_while_one_is_in_flight_is_refused(make, in_process):
    """reset too; and the call in flight is not lost."""
    envs = make([Fixed] * 2, in_process=in_process)
    envs.reset()
    envs.step_async(NO_ACTIONS)
    for use in (
        envs.reset,
        envs.reset_async,
        envs.reset_wait,
        partial(envs.reset_envs, [0]),
        partial(envs.step, NO_ACTIONS),
        partial(envs.step_async, NO_ACTIONS),
        partial(envs.call, "method"),
        partial(envs.get_attr, "steps"),
        partial(envs.set_attr, "steps", 1),
        envs.render,
    ):
        with pytest.raises(CallPending, match="while a step is in flight"):
            use()
    assert envs.step_wait().observation.tolist() == [[1], [1]]
    envs.reset_async()
    for use in (envs.step_wait, partial(envs.step, NO_ACTIONS), envs.reset_async):
        with pytest.raises(CallPending, match="while a reset is in flight"):
            use()
    assert envs.reset_wait().observation.tolist() == [[0], [0]]


def test_a_refusal_names_the_call_that_was_made(make):
    """The first half of a call is not the whole of it."""
    envs = make([Fixed] * 2)
    with pytest.raises(ResetNeeded, match=r"^step_async was called before the first reset"):
        envs.step_async(NO_ACTIONS)
    with pytest.raises(ResetNeeded, match=r"^step was called before the first reset"):
        envs.step(NO_ACTIONS)
    envs.reset()
    envs.step_async(NO_ACTIONS)
    for use in (partial(envs.step_async, NO_ACTIONS), envs.reset_async, envs.reset):
        with pytest.raises(CallPending, match=f"^{getattr(use, 'func', use).__name__} was called"):
            use()
    envs.step_wait()


def test_waiting_for_nothing_is_refused(make):
    """There is nothing in flight."""
    envs = make([Fixed] * 2)
    with pytest.raises(RuntimeError, match=r"nothing in flight: call step_async\(\) first"):
        envs.step_wait()
    with pytest.raises(RuntimeError, match=r"nothing in flight: call reset_async\(\) first"):
        envs.reset_wait()
    envs.reset()
    with pytest.raises(RuntimeError, match="nothing in flight"):
        envs.step_wait()


def test_a_wait_that_times_out_loses_nothing(gated, gate):
    """Waiting again returns that same reply, and every step counts once."""
    gated.step_async(NO_ACTIONS)
    for _ in range(3):
        with pytest.raises(CallTimeout, match=r"step did not finish within 0\.05 s") as caught:
            gated.step_wait(timeout=0.05)
    assert caught.value.workers == (1,)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(CallPending):
        gated.reset()
    gate.touch()
    assert gated.step_wait(timeout=30).observation.tolist() == [[1], [1]]
    assert gated.step(NO_ACTIONS).observation.tolist() == [[2], [2]]
    assert gated.statistics().steps == 2


def test_a_wait_of_no_time_only_looks(gated):
    """timeout=0 returns at once."""
    gated.step_async(NO_ACTIONS)
    started = time.perf_counter()
    with pytest.raises(CallTimeout):
        gated.step_wait(timeout=0)
    assert time.perf_counter() - started < 2


def test_a_reset_can_time_out_too(make_workers, gate):
    """And is waited for again."""
    envs = make_workers([partial(Gate, gate, "reset"), Fixed], 1)
    envs.reset_async()
    with pytest.raises(CallTimeout, match="reset did not finish") as caught:
        envs.reset_wait(timeout=0.05)
    assert caught.value.workers == (0,)
    gate.touch()
    assert envs.reset_wait().observation.tolist() == [[0], [0]]


def test_a_slow_environment_is_waited_for(make_workers):
    """Silence is no death."""
    envs = make_workers([partial(Acting, "step", partial(time.sleep, 1.5)), Walk], 1)
    envs.reset()
    assert envs.step(np.zeros((2, 2), np.float32)).observation.shape == (2, 3)


def test_ctrl_c_while_waiting_leaves_the_call_pending(gated, gate, interrupt):
    """Waiting again returns its reply."""
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        gated.step(NO_ACTIONS)
    with pytest.raises(CallPending, match=r"step_wait\(\), or reset\(\)"):
        gated.step(NO_ACTIONS)
    gate.touch()
    assert gated.step_wait().observation.tolist() == [[1], [1]]
    assert gated.step(NO_ACTIONS).observation.tolist() == [[2], [2]]


def test_reset_drains_an_interrupted_step(gated, gate, interrupt):
    """It waits for that step, drops its result and resets."""
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        gated.step(NO_ACTIONS)
    gate.touch()
    assert gated.reset().observation.tolist() == [[0], [0]]
    assert gated.step(NO_ACTIONS).observation.tolist() == [[1], [1]]


@pytest.mark.parametrize("allocated", [False, True])
def test_a_step_into_buffers_that_was_interrupted_is_waited_for_or_drained(
    gated, gate, interrupt, allocated
):
    """As a step is: its result comes from `step_wait`, or `reset_into` drops it."""
    spec = gated.batch_spec()
    buffers = gated.allocate_buffers(1)[0] if allocated else allocate(spec)
    handle = gated.bind(buffers)
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        handle.step(NO_ACTIONS)
    with pytest.raises(CallPending):
        handle.step(NO_ACTIONS)
    gate.touch()
    assert gated.step_wait().observation.tolist() == [[1], [1]]
    assert (buffers["observation"] == allocated).all()
    gate.unlink()
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        handle.step(NO_ACTIONS)
    gate.touch()
    handle.reset()
    assert buffers["observation"].tolist() == [[0], [0]]
    handle.step(NO_ACTIONS)
    assert buffers["observation"].tolist() == [[1], [1]]


def test_a_partial_reset_shows_the_others_after_the_step_that_it_drained(
    make_workers, gate, interrupt
):
    """They have made that step, so theirs is its observation."""
    envs = make_workers([Fixed, partial(Gate, gate)], 1, reset_masks=True)
    envs.reset()
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        envs.step(NO_ACTIONS)
    gate.touch()
    mask = np.array([False, True])
    assert envs.reset(options={"reset_mask": mask}).observation.tolist() == [[1], [0]]
    assert envs.step(NO_ACTIONS).observation.tolist() == [[2], [1]]


def test_reset_drains_an_interrupted_call(make_workers, gate, interrupt):
    """Its results are dropped."""
    envs = make_workers([partial(Gate, gate, "method"), partial(Gate, gate, "method")], 1)
    envs.reset()
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        envs.call("method")
    with pytest.raises(CallPending, match="while a call is in flight"):
        envs.get_attr("steps")
    gate.touch()
    envs.reset()
    assert envs.get_attr("steps") == (0, 0)


def test_an_interrupted_reset_can_be_drained_by_another(make_workers, gate, interrupt):
    """Or waited for."""
    envs = make_workers([partial(Gate, gate, "reset")] * 2, 2)
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        envs.reset(seed=1)
    gate.touch()
    assert envs.reset(seed=2).observation.tolist() == [[0], [0]]


def test_many_interrupts_lose_nothing(make_workers):
    """Wherever they come: results stay in step with a plain loop."""
    envs, alone = make_workers(walks(4), 2), Walk()
    envs.reset(seed=0)
    alone.reset(seed=0)
    ended, interrupts = False, 0
    for number, batch in enumerate(walk_actions(60, 4)):
        timer = threading.Timer(0.0003 * (number % 7), os.kill, (os.getpid(), signal.SIGINT))
        in_flight = False
        try:
            timer.start()
            envs.step_async(batch)
            in_flight = True
            timer.join()
            time.sleep(0.002)  # so that it comes here at the latest
            result = envs.step_wait()
        except KeyboardInterrupt:
            interrupts += 1
            timer.join()
            try:
                result = envs.step_wait()
            except RuntimeError:  # it came before anything was sent, or after it was taken
                if in_flight:
                    pytest.fail("the step in flight was lost")
                result = envs.step(batch)
        observation = alone.reset()[0] if ended else alone.step(batch[0])[0]
        np.testing.assert_array_equal(result.observation[0], observation)
        ended = bool(result.terminated[0] or result.truncated[0])
    assert interrupts > 10


@pytest.mark.parametrize("call", ["step", "reset"])
def test_ctrl_c_at_any_line_of_sending_and_waiting_loses_nothing(
    make_workers, ctrl_c_at_line, call
):
    """With a message for each worker or none: waiting again returns the reply, done once."""
    envs = make_workers([Fixed] * 2, 1)
    envs.reset()
    line = 1
    use = partial(envs.step, NO_ACTIONS) if call == "step" else envs.reset
    while ctrl_c_at_line(line, use, ("wake", "wait")):
        wait = envs.step_wait if call == "step" else envs.reset_wait
        result = wait(timeout=20)
        assert result.observation.tolist() == [[line], [line]] if call == "step" else [[0], [0]]
        assert set(envs.get_attr("calls")) == {line + 1}
        line += 1
    assert line > 10


@pytest.mark.parametrize("call", ["step", "reset", "reset_envs", "call"])
def test_reset_recovers_from_ctrl_c_at_any_line(make_workers, ctrl_c_at_line, call):
    """Wherever it came, the next reset and step are in order."""
    envs = make_workers([partial(Fixed, [{"word": "x"}] * 9999)] * 2, 1)
    envs.reset()
    use = {
        "step": partial(envs.step, NO_ACTIONS),
        "reset": envs.reset,
        "reset_envs": partial(envs.reset_envs, [1]),
        "call": partial(envs.get_attr, "steps"),
    }
    line = 1
    while ctrl_c_at_line(line, use[call]):
        assert envs.reset().observation.tolist() == [[0], [0]]
        assert envs.step(NO_ACTIONS).observation.tolist() == [[1], [1]]
        assert envs.get_attr("steps") == (1, 1)
        line += 1
    assert line > 50


def test_close_ends_an_interrupted_call(gated, interrupt):
    """Within its bound, with the environment still busy."""
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        gated.step(NO_ACTIONS)
    started = time.perf_counter()
    gated.close(timeout=0.3)
    assert time.perf_counter() - started < 10
    with pytest.raises(ValueError, match="after close"):
        gated.reset()


@pytest.mark.parametrize("call", ["reset", "step", "call"])
@pytest.mark.parametrize("after", [0, 1])
def test_ctrl_c_in_process_interrupts_the_environment_and_breaks_the_vector(make, call, after):
    """It was left in the middle, in the first call as in the next, which tells of no columns."""
    finished = []

    def act():
        signal.raise_signal(signal.SIGINT)
        finished.append(call)

    envs = make([partial(Acting, "method" if call == "call" else call, act, after)])
    uses = {
        "reset": envs.reset,
        "step": partial(envs.step, np.zeros((1, 2), np.float32)),
        "call": partial(envs.call, "visit", "method"),
    }
    if call != "reset":
        envs.reset()
    for _ in range(after):
        uses[call]()
    with pytest.raises(KeyboardInterrupt):
        uses[call]()
    assert finished == []
    with pytest.raises(BrokenError) as caught:
        envs.reset()
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)


def test_a_call_from_another_thread_works(make_workers):
    """Signals are the main thread's affair, calls are not."""
    envs = make_workers([Fixed] * 2, 2)
    results = []

    def use():
        envs.reset()
        results.append(envs.step(NO_ACTIONS))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(30)
    assert results[0].observation.tolist() == [[1], [1]]


def test_close_while_a_step_is_in_flight_is_bounded(make_workers, gate):
    """The worker is asked, terminated, then killed."""
    envs = make_workers([partial(Gate, gate)] * 2, 1)
    envs.reset()
    envs.step_async(NO_ACTIONS)
    started = time.perf_counter()
    envs.close(timeout=0.2)
    assert time.perf_counter() - started < 8


@pytest.mark.parametrize("by", ["thread", "signal"])
@pytest.mark.parametrize("call", ["step", "reset", "call"])
def test_who_waits_while_it_is_closed_waits_no_longer(make_workers, gate, call, by):
    """A watchdog or a handler of SIGTERM may close it; nothing says otherwise that it is over."""
    at = "method" if call == "call" else call
    envs = make_workers([Fixed, partial(Gate, gate, at)], 1, slow_after=None)
    if call != "reset":
        envs.reset()
    use = {
        "step": partial(envs.step, NO_ACTIONS),
        "reset": envs.reset,
        "call": partial(envs.call, "method", indices=[1]),
    }
    previous = signal.signal(signal.SIGALRM, lambda *arguments: envs.close(0.2))
    if by == "thread":
        threading.Timer(0.2, envs.close, [0.2]).start()
    else:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
    started = time.perf_counter()
    with pytest.raises(ClosedError, match="while this call was in flight"):
        use[call]()
    assert time.perf_counter() - started < 5
    signal.signal(signal.SIGALRM, previous)


def test_large_replies_do_not_hold_close_up():
    """A reply that nobody took is larger than the pipe."""
    infos = [{}] + [{"word": "x" * 1_000_000}] * 3
    with HybridVectorEnv([partial(Fixed, infos)] * 2, 1) as envs:
        envs.reset()
        envs.step_async(NO_ACTIONS)
        started = time.perf_counter()
        envs.close()
        assert time.perf_counter() - started < 4
