"""What the terminal shows of a report."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import pytest
from rich.console import Console

from superdex.bench import Measurement, SweepCase, SweepReport, SweepRow, SweepSettings
from superdex.bench._tables import render_report

PENDULUM = gymnasium.spec("Pendulum-v1")


def row(num_workers: int, num_envs_per_worker: int, env_steps: int) -> SweepRow:
    """Return a row of 10 calls in 2 seconds."""
    measurement = Measurement(
        init_seconds=0.5, memory_bytes=2**20, iterations=10, env_steps=env_steps, seconds=2.0
    )
    return SweepRow(SweepCase(PENDULUM, num_workers, num_envs_per_worker), measurement)


def failed(num_workers: int, num_envs_per_worker: int) -> SweepRow:
    """Return a row of a case that failed."""
    case = SweepCase(PENDULUM, num_workers, num_envs_per_worker)
    return SweepRow(case, error="LookupError: lost", traceback="File x, line 3")


def shown(*rows: SweepRow, threads: tuple[int, ...] = (1,)) -> str:
    """Return the report of these rows as it is printed."""
    settings = SweepSettings(env="Pendulum-v1", num_threads_per_worker=threads)
    report = SweepReport(settings, {}, {}, None, rows)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render_report(report), crop=False)
    return capture.get()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ((row(1, 1, 50), row(1, 4, 40)), "Best split into workers: 1 worker × 4 environments, at"),
        ((row(1, 1, 50), row(1, 4, 90)), "Best: 1 worker × 4 environments, at"),
        ((row(1, 1, 50),), "Best split into workers: none was measured."),
        ((row(1, 1, 50), failed(1, 4)), "Best split into workers: all of them failed."),
        ((failed(1, 1), failed(1, 4)), "No split of Pendulum-v1 could be measured."),
    ],
)
def test_there_is_always_a_sentence_on_the_best_split(rows: tuple[SweepRow, ...], sentence: str):
    """Where the bare environment was fastest, or nothing else was measured, that is told too."""
    assert sentence in shown(*rows)


def test_of_one_number_the_best_is_a_split_of_it():
    """The bare environment is there to compare with, and is no answer to the question."""
    settings = SweepSettings(env="Pendulum-v1", num_envs=8, num_workers=(1, 2))
    rows = (row(1, 1, 500), row(1, 8, 90), row(2, 4, 120))
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render_report(SweepReport(settings, {}, {}, None, rows)), crop=False)
    said = capture.get()
    assert "Best split of 8 environments: 2 workers × 4 environments, at 60 env steps" in said
    assert "0.24 × the bare environment" in said
    assert "Best: " not in said


def at_once(num_threads_per_worker: int, env_steps: int) -> SweepRow:
    """Return a row of 1 × 64 environments that are stepped at once."""
    made = row(1, 64, env_steps)
    assert made.measurement is not None
    return SweepRow(
        replace(made.case, num_threads_per_worker=num_threads_per_worker),
        replace(made.measurement, steps_at_once=True),
    )


def test_threads_have_a_column_where_they_are_used():
    """The best line names them, and a split that does not use them has a dash."""
    text = shown(row(1, 2, 10), at_once(1, 40), at_once(2, 90), threads=(1, 2))
    assert "Threads per" in text
    assert "Best: 1 worker × 64 environments, 2 threads in each worker, at" in text
    assert "num_envs_per_worker=64, num_threads_per_worker=2)" in text
    assert "Measured once (1 × 2): environments are stepped one by one" in text


def test_threads_have_no_column_where_they_are_not_used():
    """Without array hooks there is a line that says so; without the question there is neither."""
    text = shown(row(1, 2, 10), row(1, 64, 40), threads=(1, 2))
    assert "Threads per" not in text
    assert "Measured once (1 × 2, 1 × 64)" in text
    text = shown(at_once(1, 40))
    assert "Threads per" not in text
    assert "Measured once" not in text


def test_failure_is_shown_without_its_traceback():
    """Cases that failed alike share a line of type and message."""
    text = shown(failed(1, 4), failed(2, 4))
    assert "Failed (1 × 4, 2 × 4): LookupError: lost\n" in text
    assert "line 3" not in text
