"""What the terminal shows of a report."""

from __future__ import annotations

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


def shown(*rows: SweepRow) -> str:
    """Return the report of these rows as it is printed."""
    report = SweepReport(SweepSettings(env="Pendulum-v1"), {}, {}, None, rows)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render_report(report))
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


def test_failure_is_shown_without_its_traceback():
    """Cases that failed alike share a line of type and message."""
    text = shown(failed(1, 4), failed(2, 4))
    assert "Failed (1 × 4, 2 × 4): LookupError: lost\n" in text
    assert "line 3" not in text
