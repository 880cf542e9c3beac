"""Sweeps over real environments, as small as they can be."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from superdex.bench import SweepSettings, measure, plan, sweep
from superdex.bench._measure import measure_bare, measure_vector, probe
from superdex.bench._sweep import split_warning

SHORT: dict[str, Any] = {"min_time": 0.0, "max_time": 5.0, "min_iterations": 10}


class EndsSoon(gymnasium.Env):
    """Each episode has two steps."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._steps += 1
        return np.zeros(2, np.float32), 0.0, self._steps == 2, False, {}


class RaisesInStep(EndsSoon):
    """Its first step fails."""

    def step(self, action):
        raise LookupError("lost the ball")


class RaisesInConstructor(EndsSoon):
    """It can't even be built."""

    def __init__(self):
        raise LookupError("lost the model")


@pytest.fixture(autouse=True)
def _registered():
    """Register the environments above for one test; processes get their specifications."""
    ids = {
        "test/EndsSoon-v0": EndsSoon,
        "test/RaisesInStep-v0": RaisesInStep,
        "test/RaisesInConstructor-v0": RaisesInConstructor,
    }
    for env_id, env_class in ids.items():
        gymnasium.register(env_id, entry_point=env_class)
    yield
    for env_id in ids:
        del gymnasium.registry[env_id]


def test_sweep_has_a_row_for_every_split():
    """Rows come in order, one by one, and each has all its figures."""
    settings = SweepSettings(
        env="cart_pole", num_workers=(1, 2), num_envs_per_worker=(1, 3), **SHORT
    )
    seen = []
    report = sweep(settings, on_row=seen.append)
    assert list(report.rows) == seen
    splits = [(row.case.num_workers, row.case.num_envs_per_worker) for row in seen]
    assert splits == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for row in seen:
        assert row.error is None
        assert row.control_fps is not None
        assert row.simulation_fps == pytest.approx(2 * row.control_fps)
        assert row.measurement is not None
        assert row.measurement.iterations == 10
        assert row.measurement.memory_bytes > 2**20


def test_threads_are_swept_where_environments_are_stepped_at_once():
    """Where they are stepped one by one, the first number of threads stands for all."""
    settings = SweepSettings(
        env=("cart_pole", "test/EndsSoon-v0"),
        num_workers=(1,),
        num_envs_per_worker=(2, 8),
        num_threads_per_worker=(1, 2),
        **SHORT,
    )
    seen = [
        (row.case.num_envs_per_worker, row.case.num_threads_per_worker, row.measurement)
        for row in sweep(settings).rows
    ]
    assert [(envs, threads, m.steps_at_once) for envs, threads, m in seen if m is not None] == [
        *((1, 1, False), (2, 1, False), (8, 1, True), (8, 2, True)),
        *((1, 1, False), (2, 1, False), (8, 1, False)),
    ]


def test_only_one_environment_is_bare():
    """One environment in one worker is the plain loop; one in each of two workers is not."""
    settings = SweepSettings(env="x", num_workers=(1, 2), num_envs_per_worker=(1,))
    cases = plan(
        SweepSettings(
            env="Pendulum-v1",
            num_workers=settings.num_workers,
            num_envs_per_worker=settings.num_envs_per_worker,
        )
    )
    assert [case.is_bare for case in cases] == [True, False]


def test_environment_under_two_names_is_measured_once():
    """A short name and the id that it stands for give one row for each split."""
    cases = plan(
        SweepSettings(
            env=("cart_pole", "superdex_gym/CartPole-v0", "superdex.envs:superdex_gym/CartPole-v0"),
            num_workers=(1,),
            num_envs_per_worker=(1, 2),
        )
    )
    assert [case.num_envs for case in cases] == [1, 2]


def test_rows_that_only_reset_are_no_steps():
    """With episodes of two steps every third row takes no action, and is not counted."""
    settings = SweepSettings(env="test/EndsSoon-v0", **{**SHORT, "min_iterations": 30})
    measurement = measure_vector(gymnasium.spec("test/EndsSoon-v0"), 1, 2, settings)
    assert measurement.iterations == 30
    assert measurement.env_steps == 2 * 20


def test_bare_loop_counts_every_step():
    """A plain loop resets between its steps, so all of them are steps."""
    settings = SweepSettings(env="test/EndsSoon-v0", **{**SHORT, "min_iterations": 30})
    measurement = measure_bare(gymnasium.spec("test/EndsSoon-v0"), settings)
    assert (measurement.iterations, measurement.env_steps) == (30, 30)


@pytest.mark.parametrize(
    ("limits", "iterations"),
    [
        ({"min_time": 0.0, "min_iterations": 7}, 7),
        ({"min_time": 5.0, "min_iterations": 7, "max_iterations": 9, "max_time": 5.0}, 9),
    ],
)
def test_iterations_keep_within_their_limits(limits: dict[str, Any], iterations: int):
    """Both minimums are met, and a maximum wins over a minimum of time."""
    settings = SweepSettings(env="test/EndsSoon-v0", **limits)
    measurement = measure_bare(gymnasium.spec("test/EndsSoon-v0"), settings)
    assert measurement.iterations == iterations


def test_time_keeps_within_its_limits(monkeypatch):
    """The minimum of time is met by the clock, and its maximum stops a case short of its calls."""
    clock = itertools.count()
    monkeypatch.setattr("superdex.bench._measure.time.perf_counter", lambda: float(next(clock)))
    spec = gymnasium.spec("test/EndsSoon-v0")
    until_min = measure_bare(
        spec, SweepSettings(env="x", min_time=4.0, max_time=9.0, min_iterations=1)
    )
    until_max = measure_bare(
        spec, SweepSettings(env="x", min_time=4.0, max_time=9.0, min_iterations=1000)
    )
    assert (until_min.seconds, until_max.seconds) == (4.0, 9.0)


def test_case_that_raises_is_a_row_with_the_error():
    """The sweep goes on, and the error names what happened in the environment."""
    settings = SweepSettings(
        env=("test/RaisesInStep-v0", "test/EndsSoon-v0"),
        num_workers=(1,),
        num_envs_per_worker=(1, 2),
        **SHORT,
    )
    rows = sweep(settings).rows
    assert [row.error is None for row in rows] == [False, False, True, True]
    bare, vectorized = rows[:2]
    assert bare.error == "LookupError: lost the ball"
    assert vectorized.error is not None
    assert vectorized.error.startswith("Environment ")
    assert vectorized.error.endswith("raised in step: LookupError: lost the ball")
    assert all("in step" in (row.traceback or "") for row in rows[:2])


def test_environment_that_cannot_be_built_fails_all_its_cases():
    """It is looked at once, and what that said is the error of each case."""
    settings = SweepSettings(
        env="test/RaisesInConstructor-v0", num_workers=(1,), num_envs_per_worker=(1, 2), **SHORT
    )
    for case in plan(settings):
        row = measure(case, settings)
        assert row.error == "LookupError: lost the model"
        assert "in __init__" in row.to_dict()["traceback"]


def test_spaces_that_are_no_boxes_are_refused_before_anything_runs():
    """The message names the space and the wrapper that helps."""
    with pytest.raises(TypeError, match=r"action space is Discrete\(2\)(?s:.*)BoxSpaces"):
        plan(SweepSettings(env="CartPole-v1"))


def test_unknown_environment_is_refused_before_anything_runs():
    """The name is looked up before the first process starts."""
    with pytest.raises(ValueError, match="Did you mean 'cart_pole'"):
        plan(SweepSettings(env=("Pendulum-v1", "cart_pol")))


def test_substeps_come_from_the_configuration_or_from_frame_skip():
    """Ours say it by their frequencies, Gymnasium's by frame_skip, and others not at all."""
    spec = gymnasium.spec("superdex_gym/CartPole-v0")
    assert probe(spec).substeps == 2
    assert probe(gymnasium.spec("HalfCheetah-v5")).substeps == 5
    assert probe(gymnasium.spec("Pendulum-v1")).substeps is None


def test_more_workers_than_cores_are_warned_of(monkeypatch):
    """The warning names the splits and the cores; there is none where all fit."""
    monkeypatch.setattr("superdex.bench._sweep.physical_cores", lambda: 2)
    assert split_warning(SweepSettings(env="x", num_workers=(1, 2))) is None
    warning = split_warning(SweepSettings(env="x", num_workers=(2, 4, 8)))
    assert warning is not None
    assert "4, 8 workers exceed the 2 physical cores" in warning
    warning = split_warning(
        SweepSettings(env="x", num_workers=(1, 2), num_threads_per_worker=(1, 2))
    )
    assert warning is not None
    assert "2 × 2 threads of all workers exceed the 2 physical cores" in warning
