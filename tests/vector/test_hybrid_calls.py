"""Calls of methods, attributes, pictures, and the numbers of it all."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.errors import ClosedError, WorkerRaised
from superdex.scenes import live_scene_count
from superdex.vector import HybridVectorEnv, Statistics
from tests.vector.envs import Acting, Fixed, TwoArguments, Walk, raising, walk_actions, walks


class Asked(Walk):
    """Answers all sorts of questions."""

    def lock(self):
        return threading.Lock()

    def large(self):
        return np.full(200_000, float(self.tag))

    def local(self):
        class Local:
            tag = self.tag

        return Local()

    def leave(self):
        raise SystemExit(3)

    def fail(self, *, tag):
        if self.tag in tag:
            raise TwoArguments(self.tag, "call")


def asked(tag):
    return gym.wrappers.TimeLimit(Asked(tag), 50)


@pytest.fixture(scope="module", params=[True, False], ids=["in process", "workers"])
def envs(request):
    """Five wrapped environments over two workers, used by all tests of this module."""
    env_fns = [partial(asked, tag) for tag in range(5)]
    with HybridVectorEnv(env_fns, num_workers=2, in_process=request.param) as envs:
        yield envs


@pytest.fixture(autouse=True)
def _tags(request):
    if "envs" in request.fixturenames:
        envs = request.getfixturevalue("envs")
        envs.set_attr("tag", list(range(5)))
        yield
        envs.reset()
        envs.step(np.zeros((5, 2), np.float32))  # usable, whatever the test did
    else:
        yield


def test_results_are_flat_and_in_index_order(envs):
    """One for each environment, whatever the split."""
    assert envs.call("add", 10, b=100) == (110, 111, 112, 113, 114)


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([3, 1], (3, 1)),
        ([4, 0, 3], (4, 0, 3)),
        ([2], (2,)),
        ([], ()),
        (np.array([1, 0]), (1, 0)),
        (np.array([True, False, False, True, False]), (0, 3)),
    ],
    ids=str,
)
def test_indices_choose_and_order(envs, indices, expected):
    """The result of 3, then of 1."""
    assert envs.call("add", 0, indices=indices) == expected
    assert envs.get_attr("tag", indices) == expected
    pictures = envs.render(indices)
    assert type(pictures) is tuple
    assert tuple(int(picture[0, 0, 0]) for picture in pictures) == expected


@pytest.mark.parametrize("indices", [[5], [-1], [1, 1], [True], 3, ["1"]], ids=str)
def test_odd_indices_are_refused(envs, indices):
    """Duplicates, negative ones and those out of range."""
    for ask in (
        partial(envs.call, "add", 1, indices=indices),
        partial(envs.get_attr, "tag", indices),
        partial(envs.render, indices),
        partial(envs.set_attr, "tag", 1, indices),
    ):
        with pytest.raises(ValueError, match=r"Index|indices|mask"):
            ask()


def test_an_attribute_is_read_where_it_lives(envs):
    """Behind wrappers, and a wrapper's own too."""
    assert envs.get_attr("tag") == (0, 1, 2, 3, 4)
    assert envs.get_attr("_max_episode_steps") == (50,) * 5


def test_an_attribute_is_set_where_it_lives(envs):
    """So that the environment sees it."""
    envs.set_attr("tag", [9, 8, 7, 6, 5])
    assert envs.call("add", 0) == (9, 8, 7, 6, 5)


def test_one_value_is_set_for_all(envs):
    """What is no list or tuple, as in Gymnasium."""
    envs.set_attr("tag", 7)
    assert envs.get_attr("tag") == (7,) * 5


def test_an_attribute_of_some_is_set(envs):
    """Values go by the order of indices."""
    envs.set_attr("tag", [30, 10], indices=[3, 1])
    assert envs.get_attr("tag") == (0, 10, 2, 30, 4)
    envs.set_attr("tag", 99, indices=[0])
    assert envs.get_attr("tag") == (99, 10, 2, 30, 4)
    envs.set_attr("tag", [], indices=[])
    assert envs.get_attr("tag") == (99, 10, 2, 30, 4)


@pytest.mark.parametrize("values", [[1], [1] * 6, ()], ids=len)
def test_another_number_of_values_is_refused(envs, values):
    """Nothing is set."""
    with pytest.raises(ValueError, match=rf"expected 5, got {len(values)}"):
        envs.set_attr("tag", values)
    assert envs.get_attr("tag") == (0, 1, 2, 3, 4)


def test_a_missing_attribute_names_environment_and_call(envs):
    """As its own AttributeError."""
    with pytest.raises(WorkerRaised) as caught:
        envs.get_attr("nowhere", indices=[2])
    assert (caught.value.env_index, caught.value.call) == (2, "nowhere")
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_failing_method_names_the_environment(envs):
    """With its own exception, whatever its constructor takes."""
    with pytest.raises(WorkerRaised) as caught:
        envs.call("fail", tag=[1])
    assert (caught.value.worker, caught.value.env_index, caught.value.call) == (0, 1, "fail")
    cause = caught.value.__cause__
    assert isinstance(cause, TwoArguments)
    assert (cause.what, cause.where) == (1, "call")


def test_failures_in_several_workers_are_all_shown(envs):
    """The first of each worker."""
    with pytest.raises(ExceptionGroup) as caught:
        envs.call("fail", tag=[1, 2, 4])
    errors = caught.value.exceptions
    assert [error.env_index for error in errors if isinstance(error, WorkerRaised)] == [1, 4]


def test_leaving_is_a_failure_of_that_call(envs):
    """sys.exit ends no worker."""
    with pytest.raises(WorkerRaised) as caught:
        envs.call("leave", indices=[0])
    assert repr(caught.value.__cause__) == "SystemExit(3)"


def test_a_result_that_cant_be_pickled_fails_that_call(envs):
    """By name, and the vector stays usable."""
    with pytest.raises(WorkerRaised, match=r"Environment 3 .* raised in lock: .*pickle"):
        envs.call("lock", indices=[3])
    assert envs.get_attr("tag", [3]) == (3,)


def test_an_argument_that_cant_be_pickled_is_refused(envs):
    """Before anything is sent."""
    with pytest.raises(TypeError, match="pickle"):
        envs.call("add", threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        envs.set_attr("tag", threading.Lock())


def test_large_results_arrive_whole(envs):
    """Larger than a pipe holds."""
    results = envs.call("large")
    assert [float(result.sum()) for result in results] == [200_000.0 * tag for tag in range(5)]


def test_results_of_local_classes_arrive(envs):
    """By cloudpickle."""
    assert [result.tag for result in envs.call("local")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["reset", "step", "close"])
def test_calls_that_have_their_own_method_are_refused(envs, name):
    """They would go past the vector's own bookkeeping."""
    with pytest.raises(ValueError, match=rf"use {name}\(\)"):
        envs.call(name)


def test_calls_work_before_the_first_reset(make):
    """Attributes exist from construction on."""
    assert make(walks(2)).get_attr("tag") == (0, 1)


def test_pictures_are_each_environments_own(envs):
    """Drawn by itself."""
    for tag, picture in enumerate(envs.render()):
        assert picture.shape == (2, 2, 3)
        assert np.all(picture == tag)


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("in_process", [True, False])
def test_statistics_count_what_was_done(make, in_process):
    """Steps, steps of environments without ignored rows, copies, waits."""
    envs = make([partial(Fixed, length=n) for n in (1, 9)], 1, in_process=in_process)
    envs.reset()
    for _ in range(4):
        envs.step(np.zeros((2, 1), np.float32))
    numbers = envs.statistics()
    assert numbers.steps == 4
    assert numbers.env_steps == 2 + 4
    assert numbers.copies >= 4 * 4 + 1
    assert numbers.bytes_copied >= 4 * 2 * (4 + 8 + 1 + 1)
    assert len(numbers.seconds_waiting) == 2
    assert all(seconds > 0 for seconds in numbers.seconds_waiting)
    # in process, scenes of whoever used this process before count as well
    assert numbers.live_scenes == (live_scene_count() if in_process else 0,) * 2
    assert (numbers.messages == 0) == in_process


def test_views_cost_no_copies(make):
    """copy=False copies nothing in a step."""
    envs = make([Fixed] * 2, copy=False)
    envs.reset()
    before = envs.statistics()
    envs.step(np.zeros((2, 1), np.float32))
    after = envs.statistics()
    assert (after.copies, after.bytes_copied) == (before.copies, before.bytes_copied)


def test_statistics_are_a_frozen_record(make):
    """A value, not a view."""
    numbers = make(walks(1)).statistics()
    assert isinstance(numbers, Statistics)
    with pytest.raises(AttributeError):
        numbers.steps = 3


@pytest.mark.parametrize("in_process", [True, False])
def test_statistics_work_after_close(make, in_process):
    """As they were, and no scene is left."""
    envs = make(walks(2), in_process=in_process)
    envs.reset()
    envs.step(walk_actions(1, 2)[0])
    before = envs.statistics()
    envs.close()
    assert envs.statistics() == replace(before, live_scenes=(0, 0))


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("in_process", [True, False])
def test_every_method_after_close_is_a_closed_error(make, in_process):
    """But statistics and close."""
    envs = make(walks(2), in_process=in_process)
    envs.reset()
    envs.close()
    actions = np.zeros((2, 2), np.float32)
    for use in (
        envs.reset,
        envs.reset_async,
        envs.reset_wait,
        partial(envs.reset_envs, [0]),
        partial(envs.step, actions),
        partial(envs.step_async, actions),
        envs.step_wait,
        partial(envs.call, "add", 1),
        partial(envs.get_attr, "tag"),
        partial(envs.set_attr, "tag", 1),
        envs.render,
        lambda: envs.autoreset_mask,
    ):
        with pytest.raises(ClosedError):
            use()
    envs.close()
    assert envs.closed


@pytest.mark.parametrize("in_process", [True, False])
def test_each_environment_is_closed_once(make, in_process, tmp_path):
    """Whatever way it ends, and however often it is asked to."""
    path = tmp_path / "closed"
    with make([partial(Noting, path, tag) for tag in range(3)], 1, in_process=in_process) as envs:
        envs.reset()
        envs.close()
        envs.close()
    assert sorted(path.read_text().split()) == ["0", "1", "2"]


class Noting(Walk):
    """Writes a line to a file when it is closed."""

    def __init__(self, path, tag):
        super().__init__(tag)
        self.path = path

    def close(self):
        with self.path.open("a") as file:
            file.write(f"{self.tag}\n")


@pytest.mark.parametrize("in_process", [True, False])
def test_a_failing_close_raises_after_everything_is_cleaned_up(make, in_process, tmp_path):
    """The others are closed, and a second close is quiet."""
    path = tmp_path / "closed"
    env_fns = [
        partial(Noting, path, 0),
        partial(Acting, "close", raising(TwoArguments, "stuck", "knee")),
        partial(Noting, path, 2),
    ]
    envs = make(env_fns, num_workers=2, in_process=in_process)
    with pytest.raises(WorkerRaised) as caught:
        envs.close()
    assert (caught.value.env_index, caught.value.call) == (1, "close")
    assert isinstance(caught.value.__cause__, TwoArguments)
    assert sorted(path.read_text().split()) == ["0", "2"]
    assert envs.closed
    envs.close()


@pytest.mark.parametrize("in_process", [True, False])
def test_a_failing_close_ends_a_with_block_that_went_well(in_process):
    """Nobody else would see it."""
    env_fns = [Walk, partial(Acting, "close", raising(KeyError, "k"))]
    with (
        pytest.raises(WorkerRaised),
        HybridVectorEnv(env_fns, 2, in_process=in_process) as envs,
    ):
        envs.reset()


def test_a_failing_close_never_hides_the_bodys_exception():
    """That is the one to see."""
    env_fns = [partial(Acting, "close", raising(KeyError, "k"))]
    with (
        pytest.raises(ZeroDivisionError),
        HybridVectorEnv(env_fns, in_process=True),
    ):
        1 / 0  # noqa: B018  # the body's own exception


def test_failing_closes_of_several_workers_are_all_shown(make):
    """As an ExceptionGroup."""
    envs = make([partial(Acting, "close", raising(KeyError, "k"))] * 2, 1)
    with pytest.raises(ExceptionGroup) as caught:
        envs.close()
    assert len(caught.value.exceptions) == 2


class Mutating(Walk):
    def push(self, numbers):
        numbers.append(1)
        return len(numbers)


@pytest.mark.parametrize("num_envs_per_worker", [1, 2])
def test_each_environment_is_called_with_arguments_of_its_own(make_workers, num_envs_per_worker):
    """What one does to them is not seen by the next, whatever the split."""
    envs = make_workers([Mutating] * 2, num_envs_per_worker)
    assert envs.call("push", [0]) == (2, 2)


def test_arguments_that_cant_be_pickled_are_named(make_workers):
    """And the vector stays usable."""
    envs = make_workers(walks(2), 1)
    with pytest.raises(TypeError, match="arguments of push can't be pickled"):
        envs.call("push", threading.Lock())
    with pytest.raises(TypeError, match="options of reset can't be pickled"):
        envs.reset(options={"lock": threading.Lock()})
    envs.reset()


@pytest.mark.parametrize("timeout", ["soon", float("nan"), True])
def test_closing_refuses_a_timeout_that_is_no_number(make_workers, timeout):
    """Before anything is closed; None is the default."""
    envs = make_workers(walks(1), 1)
    with pytest.raises(ValueError, match="timeout must be a number"):
        envs.close(timeout=timeout)
    envs.reset()
    envs.close(timeout=None)


def test_closing_does_not_wait_for_a_process_that_the_caller_forked(make_workers):
    """A fork holds copies of every pipe, whose end is therefore not seen."""
    envs = make_workers(walks(2), 1)
    envs.reset()
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        started = time.monotonic()
        envs.close()
        assert time.monotonic() - started < 5
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_repr_tells_split_mode_and_state(make):
    """From the first moment to the last, and no environment is asked."""
    envs = make([Walk] * 6, num_workers=2, autoreset_mode=AutoresetMode.SAME_STEP)
    assert repr(envs) == "HybridVectorEnv(num_envs=6, 2 × 3, SAME_STEP, not reset yet)"
    envs.reset(seed=0)
    assert repr(envs) == "HybridVectorEnv(num_envs=6, 2 × 3, SAME_STEP, idle)"
    envs.step_async(envs.action_space.sample())
    assert repr(envs).endswith("step pending)")
    envs.step_wait()
    envs.reset_async()
    assert repr(envs).endswith("reset pending)")
    envs.reset_wait()
    envs.close()
    assert repr(envs) == "HybridVectorEnv(num_envs=6, 2 × 3, SAME_STEP, closed)"


def test_repr_tells_an_uneven_split_and_what_broke_it(make):
    """Fewest to most environments of a worker; the failure by its class."""

    class Fails(Walk):
        def step(self, action):
            raise LookupError

    envs = make([Fails] * 5, num_workers=2)
    assert "5, 2 × 2–3, NEXT_STEP" in repr(envs)
    envs.reset(seed=0)
    with pytest.raises(Exception):  # noqa: B017, PT011 - what is raised is another test's
        envs.step(envs.action_space.sample())
    assert "broken by " in repr(envs)


def test_repr_names_the_id_that_it_was_made_by():
    """As Gymnasium's own vectors do."""
    with gym.make_vec("superdex/Hopper-v5", num_envs=2) as envs:
        assert repr(envs.unwrapped).startswith(
            "HybridVectorEnv(superdex/Hopper-v5, num_envs=2, 1 × 2"
        )


def test_repr_before_the_constructor_is_through():
    """A debugger may look at any moment."""
    envs = object.__new__(HybridVectorEnv)
    assert repr(envs) == "HybridVectorEnv(not built)"
