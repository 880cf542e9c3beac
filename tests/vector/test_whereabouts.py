"""What a worker's main thread is said to be doing."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from superdex.vector import HybridVectorEnv
from superdex.vector._link import place_of
from superdex.vector._whereabouts import Whereabouts, whereabouts
from tests.vector.envs import Acting, Walk, raising

QUIET = partial(Acting, "nowhere", int)
ACTIONS = np.zeros((3, 2), np.float32)


class Looking(Acting):
    """Has another thread look where it is at one point of its life, and write that down."""

    seen: list[Whereabouts] = []  # noqa: RUF012  # all of them together

    def __init__(self, at):
        super().__init__(at, self.look)

    def look(self):
        ready: list[bool] = []
        before = len(self.seen)

        def write_down():
            while not ready:
                time.sleep(0.001)
            time.sleep(0.001)  # the loop below is the line to find
            self.seen.append(whereabouts())

        thread = threading.Thread(target=write_down)
        thread.start()
        ready.append(True)
        while len(self.seen) == before:
            time.sleep(0.001)
        thread.join()


class Ending(Looking):
    """Ends its episode with every step."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, True, False, info


@pytest.fixture(autouse=True)
def seen():
    Looking.seen.clear()
    return Looking.seen


@pytest.mark.parametrize("at", ["construct", "reset", "step", "method", "close"])
def test_the_environment_at_work_is_told_with_its_line(seen, at):
    """By its index in the whole batch, wherever it is in its life."""
    with HybridVectorEnv([QUIET, QUIET, partial(Looking, at)], num_workers=2, in_process=True) as e:
        e.reset()
        e.step(ACTIONS)
        if at == "method":
            e.call("method")
    [where] = set(seen)
    assert where.env_index == 2
    assert re.fullmatch(rf"in Looking\.look, {re.escape(__file__)}:\d+", where.line)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_autoreset_is_told_with_its_environment(seen, mode):
    """It happens inside of a step."""
    env_fns = [Walk, partial(Ending, "reset")]
    with HybridVectorEnv(env_fns, 2, in_process=True, autoreset_mode=mode) as envs:
        envs.reset()
        seen.clear()
        envs.step(ACTIONS[:2])
        envs.step(ACTIONS[:2])
    assert [where.env_index for where in seen] == ([1] if mode == "NextStep" else [1, 1])


def test_an_environment_that_is_built_anew_is_told(seen):
    """Inside of the step in which it raised."""
    built: list[int] = []

    def build():
        built.append(len(built))
        return Looking("construct") if len(built) > 1 else Acting("step", raising(KeyError, "k"))

    env_fns = [Walk, build]
    with HybridVectorEnv(env_fns, 2, in_process=True, on_env_error="truncate") as envs:
        envs.reset()
        with pytest.warns(RuntimeWarning, match="built anew"):
            envs.step(ACTIONS[:2])
    assert [where.env_index for where in seen] == [1]


@pytest.mark.parametrize("at", ["construct", "reset", "step", "method"])
def test_an_inner_layer_of_another_class_tells_only_the_line(seen, at):
    """Which of its environments it is at is its own affair."""
    kwargs = {"inner_env_cls": SyncVectorEnv, "in_process": True}
    with HybridVectorEnv([QUIET, partial(Looking, at)], 2, **kwargs) as envs:
        envs.reset()
        envs.step(ACTIONS[:2])
        envs.call("method") if at == "method" else None
    assert {where.env_index for where in seen} == {None}
    assert all("in Looking.look, " in where.line for where in seen)


def test_outside_of_environments_there_is_nothing_to_tell():
    """A worker that waits is nowhere."""
    assert whereabouts() == Whereabouts(None, "")


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Whereabouts(4, "in f, a.py:1"), "environment 4 (worker 2) is in step, in f, a.py:1"),
        (Whereabouts(4), "environment 4 (worker 2) is in step"),
        (Whereabouts(None, "in f, a.py:1"), "worker 2 (environments 4 to 5), in f, a.py:1"),
        (Whereabouts(), "worker 2 (environments 4 to 5)"),
        (
            None,
            "worker 2 (environments 4 to 5) gives no answer, as in native code that holds the GIL",
        ),
    ],
    ids=str,
)
def test_a_place_in_words(where, text):
    """As much as is known."""
    assert place_of(2, range(4, 6), where, "step") == text


def hold_gil(path: Path) -> None:
    """Hold the GIL for a while, after saying so."""
    path.touch()
    ctypes.PyDLL(None).usleep(1_500_000)


def test_questions_that_nobody_answers_do_not_pile_up(make_workers, tmp_path):
    """A pipe full of them would hold the caller up; the answer that comes late is dropped."""
    envs = make_workers([partial(Acting, "step", partial(hold_gil, tmp_path / "held"))])
    envs.reset()
    envs.step_async(ACTIONS[:1])
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    link = envs._pool._links[0]
    assert {link.ask_whereabouts(0.0) for _ in range(3000)} == {None}
    envs.step_wait()
    assert link.ask_whereabouts(20.0) == Whereabouts()
    assert link.ask_whereabouts(20.0) == Whereabouts()
    os.kill(envs.worker_pids[0], 9)
    envs._pool._links[0].process.wait(20.0)
    assert link.ask_whereabouts(20.0) is None
