"""`superdex bench`: progress while the sweep runs, then tables, files and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from superdex.bench._interruption import exit_code
from superdex.bench._output import (
    check_picture_path,
    check_writable,
    write_heat_map,
    write_json,
)
from superdex.bench._report import SweepCase, SweepRow
from superdex.bench._settings import SweepSettings
from superdex.bench._sweep import is_redundant, measure, plan, split_warning, to_report
from superdex.bench._tables import render_report

__all__ = ["Job", "execute", "prepare"]

# Wide enough for the tables where the output is a file or a pipe.
_WIDTH_WITHOUT_TERMINAL = 120


@dataclass(frozen=True)
class Job:
    """A sweep that has been checked and can run."""

    settings: SweepSettings
    cases: tuple[SweepCase, ...]
    json_path: Path | None
    picture_path: Path | None


def prepare(settings: SweepSettings, json_path: str | None, picture_path: str | None) -> Job:
    """Check everything that can be wrong before the first measurement.

    Raises:
        ValueError: If an environment is unknown or a file can't be written.
        TypeError: If an environment's spaces are no Boxes.
    """
    json_file = None if json_path is None else check_writable(json_path)
    picture = None if picture_path is None else check_picture_path(picture_path)
    with Console(stderr=True).status("Looking at the environments"):
        cases = plan(settings)
    return Job(settings, cases, json_file, picture)


def execute(job: Job) -> int:
    """Run the sweep, show and write what it found, and return the exit code."""
    errors = Console(stderr=True, markup=False, highlight=False)
    output = Console(highlight=False)
    if not output.is_terminal:
        output.width = _WIDTH_WITHOUT_TERMINAL
    warning = split_warning(job.settings)
    if warning is not None:
        errors.print(f"Warning: {warning}", style="yellow")

    rows: list[SweepRow] = []
    ended_early: int | None = None
    try:
        _measure_all(job, rows, errors)
    except KeyboardInterrupt as interruption:
        ended_early = exit_code(interruption)
        errors.print(
            f"Interrupted after {len(rows)} of {len(job.cases)} cases.",
            style="yellow",
        )
    if rows:
        report = to_report(job.settings, rows)
        output.print(render_report(report), crop=False)
        if job.json_path is not None:
            write_json(report, job.json_path)
            errors.print(f"Wrote {job.json_path}", soft_wrap=True)
        if job.picture_path is not None:
            write_heat_map(report, job.picture_path)
            errors.print(f"Wrote {job.picture_path}", soft_wrap=True)
    if ended_early is not None:
        return ended_early
    return 1 if any(row.error is not None for row in rows) else 0


def _measure_all(job: Job, rows: list[SweepRow], console: Console) -> None:
    """Append each row as soon as it is measured, so that an interruption loses one at most."""
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=len(job.cases))
        for case in job.cases:
            progress.update(task, description=f"{case.env_id}  {case.split}")
            if not is_redundant(case, rows):
                rows.append(measure(case, job.settings))
            progress.advance(task)
