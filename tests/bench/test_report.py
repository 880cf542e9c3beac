"""What a report says about its rows."""

from __future__ import annotations

import gymnasium

from superdex.bench import Measurement, SweepCase, SweepReport, SweepRow, SweepSettings

PENDULUM = gymnasium.spec("Pendulum-v1")


def row(num_workers: int, num_envs_per_worker: int, env_steps: int, **case) -> SweepRow:
    """Return a row of 10 calls in 2 seconds."""
    measurement = Measurement(
        init_seconds=0.5, memory_bytes=2**20, iterations=10, env_steps=env_steps, seconds=2.0
    )
    return SweepRow(SweepCase(PENDULUM, num_workers, num_envs_per_worker, **case), measurement)


def failed(num_workers: int, num_envs_per_worker: int) -> SweepRow:
    """Return a row of a case that failed."""
    return SweepRow(SweepCase(PENDULUM, num_workers, num_envs_per_worker), error="it broke")


def report(*rows: SweepRow) -> SweepReport:
    """Return a report of these rows."""
    settings = SweepSettings(env="Pendulum-v1")
    return SweepReport(
        settings, {"processor": "P", "physical_cores": 2}, {"superdex": "0"}, None, rows
    )


def test_rates_are_per_second_and_times_per_call():
    """Control FPS counts environment steps, the mean step counts calls."""
    measured = row(1, 4, env_steps=40).measurement
    assert measured is not None
    assert measured.control_fps == 20.0
    assert measured.mean_step_ms == 200.0


def test_simulation_fps_is_control_fps_times_substeps():
    """An environment that does not say how often it steps its physics has none."""
    assert row(1, 4, env_steps=40, substeps=5).simulation_fps == 100.0
    assert row(1, 4, env_steps=40).simulation_fps is None


def test_best_is_the_row_with_most_environment_steps_per_second():
    """Rows that failed never win."""
    winner = row(2, 2, env_steps=50)
    assert report(row(1, 4, env_steps=40), winner, failed(4, 1)).best("Pendulum-v1") is winner
    assert report(failed(1, 1)).best("Pendulum-v1") is None


def test_code_builds_the_split():
    """The line shown is Python that builds exactly that split."""
    code = row(2, 3, env_steps=1).case.code
    calls = []

    def hybrid(env_fns, num_envs_per_worker):
        calls.append((env_fns[0]().spec.id, len(env_fns), num_envs_per_worker))

    exec(code, {"HybridVectorEnv": hybrid, "gymnasium": gymnasium})
    assert calls == [("Pendulum-v1", 6, 3)]
    assert row(1, 1, env_steps=1).case.code == 'env = gymnasium.make("Pendulum-v1")'


def test_code_names_the_threads_where_there_are_several():
    """One thread is the default and is left out."""
    assert row(2, 8, env_steps=1, num_threads_per_worker=2).case.code.endswith(
        "num_envs_per_worker=8, num_threads_per_worker=2)"
    )
    assert "threads" not in row(2, 8, env_steps=1).case.code


def test_failed_row_keeps_its_place_and_its_error():
    """The record of a failed case has the same keys, with the error and without figures."""
    good, bad = report(row(1, 4, env_steps=40), failed(2, 4)).to_dict()["rows"]
    assert good.keys() == bad.keys()
    assert bad["error"] == "it broke"
    assert bad["control_fps"] is None
    assert bad["num_envs"] == 8


def test_code_imports_the_module_that_registers_the_environment():
    """The line that is recommended runs as it is."""
    spec = gymnasium.spec("Pendulum-v1")
    for size in (1, 4):
        case = SweepCase(spec, 1, size, module="my_module")
        assert 'gymnasium.make("my_module:Pendulum-v1")' in case.code
