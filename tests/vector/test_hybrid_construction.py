"""How a vector environment is made, what it says of itself, and what it refuses."""

from __future__ import annotations

import os
import sys
import threading
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from superdex.errors import WorkerRaised
from superdex.vector import HybridVectorEnv
from superdex.vector._process import warn_of_crowd
from tests.vector.envs import Acting, Fixed, Unpicklable, Walk, raising, walk_actions, walks


def test_it_is_a_gymnasium_vector_environment(make):
    """With the attributes that Gymnasium's wrappers and users rely on."""
    envs = make(walks(6), 2)
    assert isinstance(envs, gym.vector.VectorEnv)
    assert envs.unwrapped is envs
    assert envs.num_envs == 6
    assert envs.metadata == {
        "render_modes": ["rgb_array"],
        "render_fps": 7,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }
    assert envs.render_mode == "rgb_array"
    assert envs.spec is None
    assert envs.closed is False


@pytest.mark.parametrize("mode", [*AutoresetMode, "NextStep", "SameStep", "Disabled"])
def test_the_autoreset_mode_is_in_the_metadata(make, mode):
    """As a member, where it was given by its value too."""
    assert make(walks(1), autoreset_mode=mode).metadata["autoreset_mode"] is AutoresetMode(mode)


def test_class_metadata_is_not_changed(make):
    """The environment class's own dict stays as it was."""
    before = dict(Walk.metadata)
    make(walks(1))
    assert Walk.metadata == before


def test_spaces_are_batched_and_always_the_same_objects(make):
    """So that seeding their samples has an effect."""
    envs = make(walks(6), 2)
    assert envs.single_observation_space == Walk().observation_space
    assert envs.single_action_space == Walk().action_space
    assert envs.observation_space == batch_space(Walk().observation_space, 6)
    assert envs.action_space == batch_space(Walk().action_space, 6)
    for name in ("observation_space", "action_space", "single_observation_space"):
        assert getattr(envs, name) is getattr(envs, name)
    envs.action_space.seed(4)
    first = envs.action_space.sample()
    envs.action_space.seed(4)
    np.testing.assert_array_equal(envs.action_space.sample(), first)


@pytest.mark.parametrize("in_process", [True, False])
def test_bounds_may_differ_per_environment(make, in_process):
    """They appear in the batched space; the single one is environment 0's."""
    env_fns = [partial(Walk, bound=bound) for bound in (1.0, 2.0, 3.0)]
    envs = make(env_fns, num_workers=2, in_process=in_process)
    assert envs.action_space.high[:, 0].tolist() == [1, 2, 3]
    assert envs.single_action_space.high[0] == 1


@pytest.mark.parametrize(
    ("kwargs", "workers", "largest"),
    [
        ({}, 12, 1),
        ({"num_envs_per_worker": 4}, 3, 4),
        ({"num_envs_per_worker": 12}, 1, 12),
        ({"num_workers": 4}, 4, 3),
        ({"num_workers": 5}, 5, 3),
        ({"num_workers": 7}, 7, 2),
    ],
    ids=repr,
)
def test_the_split_is_as_asked_for(make, kwargs, workers, largest):
    """num_envs_per_worker is the largest group's."""
    envs = make(walks(12), **kwargs)
    assert (envs.num_workers, envs.num_envs_per_worker) == (workers, largest)
    assert envs.get_attr("tag") == tuple(range(12))


def test_environments_live_in_their_workers(make_workers):
    """Environment i in worker i // K, and none in the parent."""
    envs = make_workers([partial(ProcessId)] * 4, 2)
    pids = envs.get_attr("pid")
    assert pids == (envs.worker_pids[0],) * 2 + (envs.worker_pids[1],) * 2
    assert os.getpid() not in pids


class ProcessId(Walk):
    @property
    def pid(self):
        return os.getpid()


def test_in_process_there_are_no_workers(make):
    """The very environments are here, for a debugger."""
    assert make(walks(4), 2).worker_pids == ()


def test_the_parent_never_builds_an_environment(make_workers):
    """A function that fails in the parent's process works."""
    parent = os.getpid()

    def build():
        if os.getpid() == parent:
            raise RuntimeError("built in the parent")
        return Walk()

    assert make_workers([build] * 2, 2).num_envs == 2


def test_lambdas_partials_closures_and_local_classes_travel(make_workers):
    """By cloudpickle."""
    number = 4

    class Local(Walk):
        def __init__(self):
            super().__init__(number)

    env_fns = [lambda: Walk(1), partial(Walk, 2), lambda: Walk(number - 1), Local, Walk]
    assert make_workers(env_fns, num_workers=2).get_attr("tag") == (1, 2, 3, 4, 0)


def test_a_sequence_of_any_kind_is_taken(make):
    """A tuple or a generator too."""
    assert make(tuple(walks(2))).num_envs == 2
    assert make(function for function in walks(2)).num_envs == 2


@pytest.mark.parametrize("context", [None, "spawn"])
def test_spawn_is_the_context(make, context):
    """Without a word."""
    make(walks(1), context=context)


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_another_context_is_a_warning(make, context):
    """It names spawn, and spawn is used."""
    with pytest.warns(RuntimeWarning, match=f"started with spawn; context='{context}' is ignored"):
        make(walks(1), context=context)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def test_an_indivisible_number_is_refused():
    """With the documented message."""
    with pytest.raises(
        ValueError,
        match=r"The total number of environments must be divisible by the number of environments "
        r"per process\.",
    ):
        HybridVectorEnv(walks(5), 2)


@pytest.mark.parametrize(
    "kwargs",
    [{"num_workers": 6}, {"num_workers": 2, "num_envs_per_worker": 2}, {"num_workers": 0}],
    ids=repr,
)
def test_an_impossible_split_is_refused(kwargs):
    """Before any process is started."""
    with pytest.raises(ValueError, match="num_workers"):
        HybridVectorEnv(walks(4), **kwargs)


def test_an_environment_instead_of_a_function_is_refused():
    """The message says what to pass."""
    with pytest.raises(TypeError, match=r"env_fns\[1\] .* pass a function that builds"):
        HybridVectorEnv([Walk, Walk()])


def test_one_function_instead_of_a_sequence_is_refused():
    """Nothing says how many to build."""
    with pytest.raises(TypeError, match="sequence of functions"):
        HybridVectorEnv(Walk)
    with pytest.raises(TypeError, match="sequence of functions"):
        HybridVectorEnv(Walk())


@pytest.mark.parametrize("num_workers", [1, 2])
def test_one_object_from_two_functions_is_refused(make, num_workers):
    """Within a worker, and between workers that no process parts."""
    env = Walk()
    with pytest.raises(TypeError, match=r"environment 1 returned an object .* of its own"):
        make([lambda: env] * 2, num_workers=num_workers)


def test_a_function_that_cant_be_pickled_is_named():
    """By index and itself."""
    lock = threading.Lock()

    def build_with_lock():
        return Walk(lock)

    with pytest.raises(TypeError, match=r"environment 1, <function .*build_with_lock.* pickled"):
        HybridVectorEnv([Walk, build_with_lock], 2)


@pytest.mark.parametrize("name", ["autoreset_options", "inner_env_kwargs"])
def test_another_argument_that_cant_be_pickled_is_named(name):
    """Before any process is started."""
    lock = threading.Lock()
    arguments = {
        "autoreset_options": {"autoreset_options": lambda index, episode: {"lock": lock}},
        "inner_env_kwargs": {"inner_env_cls": SyncVectorEnv, "inner_env_kwargs": {"lock": lock}},
    }
    with pytest.raises(TypeError, match=rf"{name}, .* can't be pickled for the workers"):
        HybridVectorEnv(walks(2), 2, **arguments[name])


@pytest.mark.parametrize("in_process", [True, False])
@pytest.mark.parametrize("role", ["observation", "action"])
def test_other_spaces_than_boxes_are_refused(make, in_process, role):
    """The message names environment, space and the wrapper that helps."""
    space = Discrete(3) if role == "action" else Dict({"a": Box(0, 1)})

    def build():
        env = Walk()
        setattr(env, f"{role}_space", space)
        return env

    with pytest.raises(TypeError) as caught:
        make([Walk, build], 1, in_process=in_process)
    message = str(caught.value)
    assert f"Environment 1 has a {type(space).__name__} {role} space, {space}" in message
    assert "superdex.vector.BoxSpaces" in message


@pytest.mark.parametrize("num_workers", [1, 2])
def test_spaces_of_several_shapes_are_refused(make, num_workers):
    """Within a worker and between workers."""
    env_fns = [partial(Fixed, shape=(2,)), partial(Fixed, shape=(3,))]
    with pytest.raises(ValueError, match=r"environment 0 has \(2,\) float32, environment 1 has"):
        make(env_fns, num_workers=num_workers)


def test_a_function_that_returns_no_environment_is_refused(make_workers):
    """As it would be in this process."""
    with pytest.raises(TypeError, match=r"environment 1 returned 5, which is no gymnasium\.Env"):
        make_workers([Walk, lambda: 5], 2)


@pytest.mark.parametrize("options", ["first", 5, {}])
def test_odd_autoreset_options_are_refused(options):
    """None, "last" or a function."""
    with pytest.raises(ValueError, match="autoreset_options must be None, 'last' or a function"):
        HybridVectorEnv(walks(1), autoreset_options=options)


@pytest.mark.parametrize("in_process", [True, False])
def test_a_failing_constructor_is_named(make, in_process):
    """With its own exception as cause, and the remote traceback."""
    env_fns = [Walk, partial(Acting, "construct", raising(KeyError, "knee"))]
    with pytest.raises(WorkerRaised) as caught:
        make(env_fns, 1, in_process=in_process)
    error = caught.value
    assert (error.worker, error.env_index, error.call) == (1, 1, "construct")
    assert repr(error.__cause__) == "KeyError('knee')"
    assert "envs.py" in error.remote_traceback


def test_several_failing_constructors_are_all_shown(make_workers):
    """One failure for each worker."""
    env_fns = [raising(KeyError, "a"), raising(Unpicklable)]
    with pytest.raises(ExceptionGroup) as caught:
        make_workers(env_fns, 1)
    first, second = caught.value.exceptions
    assert isinstance(first, WorkerRaised)
    assert isinstance(second, WorkerRaised)
    assert (first.env_index, second.env_index) == (0, 1)


def test_environments_of_a_failed_construction_are_closed(make):
    """Those that were built."""
    closed: list[int] = []
    env_fns = [partial(Acting, "close", lambda: closed.append(0)), raising(KeyError, "k")]
    with pytest.raises(WorkerRaised):
        make(env_fns, 1)
    assert closed == [0]


def test_both_kinds_give_the_same(make, make_workers):
    """In process and in workers, bit for bit."""
    local, remote = make(walks(5), num_workers=2), make_workers(walks(5), num_workers=2)
    np.testing.assert_array_equal(local.reset(seed=1)[0], remote.reset(seed=1)[0])
    for batch in walk_actions(10, 5):
        for one, other in zip(local.step(batch)[:4], remote.step(batch)[:4], strict=True):
            np.testing.assert_array_equal(one, other)


class BadUnpickle:
    def __init__(self, *what):
        self.what = what

    def __reduce__(self):
        return self.what


@pytest.mark.parametrize(
    ("what", "text"),
    [((int, ("x",)), "invalid literal"), ((sys.exit, ("no licence",)), "SystemExit: no licence")],
)
def test_a_function_that_cant_be_unpickled_shows_the_workers_traceback(make_workers, what, text):
    """A bare ValueError or exit code from nowhere would say neither worker nor environments."""
    with pytest.raises(WorkerRaised, match=text) as caught:
        make_workers([partial(Walk, BadUnpickle(*what))], 1)
    assert (caught.value.worker, caught.value.call) == (0, "construct")
    assert "in _build" in caught.value.remote_traceback


def test_each_function_is_called_once(make_workers, tmp_path):
    """Nobody builds an environment only to read its spaces; each may need a licence or a GPU."""

    def build(index):
        with (tmp_path / str(index)).open("a") as file:
            file.write("built ")
        return Walk()

    envs = make_workers([partial(build, index) for index in range(5)], num_workers=2)
    envs.reset()
    envs.step(walk_actions(1, 5)[0])
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["built "] * 5


def test_metadata_that_cant_be_pickled_is_an_error_not_a_death(make_workers):
    """It is named."""

    def build():
        env = Walk()
        env.metadata = {"lock": threading.Lock()}
        return env

    with pytest.raises(TypeError, match="metadata"):
        make_workers([build], 1)


@pytest.mark.parametrize("mode", ["SameStep", "same_step", "SAME_STEP", AutoresetMode.SAME_STEP])
def test_an_autoreset_mode_goes_by_value_or_name(make, mode):
    """In whichever case."""
    assert make(walks(1), autoreset_mode=mode).metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_an_unknown_autoreset_mode_is_refused_with_those_that_are(make):
    """So that a typo costs no search."""
    with pytest.raises(ValueError, match="'NextStep', 'SameStep', 'Disabled', got 'sometimes'"):
        make(walks(1), autoreset_mode="sometimes")


def test_far_more_workers_than_processors_are_warned_of(monkeypatch):
    """The default split gives each environment a process of its own."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    with pytest.warns(RuntimeWarning, match="17 workers on 2 CPUs.*num_workers=2"):
        warn_of_crowd(17)
    warn_of_crowd(16)


def test_one_function_is_refused_with_how_to_repeat_it(make):
    """And so is an id."""
    with pytest.raises(TypeError, match=r"such as \[env_fn\] \* 8"):
        make(Walk)
    with pytest.raises(TypeError, match="env_fns must be a sequence of functions"):
        make("Pendulum-v1")


def test_several_failures_are_told_by_the_first(make_workers):
    """A log that shows only the group's text still says what is wrong."""
    with pytest.raises(
        ExceptionGroup, match=r"2 failures in workers; the first: Environment 0 .*no"
    ):
        make_workers([partial(Acting, "construct", raising(RuntimeError, "no"))] * 2, 1)
