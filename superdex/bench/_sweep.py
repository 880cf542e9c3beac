"""Plan a sweep, measure its cases one after another, and gather the report.

    settings ─ plan() ─> cases ─ measure() each, in a process of its own ─> rows ─> report

`sweep` is the whole; the command line calls the parts, to show progress between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gymnasium.envs.registration import EnvSpec

from superdex.bench._child import ChildFailed, run_in_child
from superdex.bench._machine import (
    describe_commit,
    describe_machine,
    describe_versions,
    physical_cores,
)
from superdex.bench._measure import Probe, measure_bare, measure_vector, probe
from superdex.bench._names import find_spec
from superdex.bench._report import SweepCase, SweepReport, SweepRow
from superdex.bench._settings import SweepSettings

__all__ = ["is_redundant", "measure", "plan", "split_warning", "sweep", "to_report"]


def sweep(
    settings: SweepSettings, *, on_row: Callable[[SweepRow], object] | None = None
) -> SweepReport:
    """Measure every split that the settings name, and return the report.

    A case whose environment raises gives a row with the error, and the sweep goes on. Where the
    environments of a split turn out to be stepped one by one, further numbers of threads are left
    out, because they change nothing. Call it under `if __name__ == "__main__":`, because its
    processes import your script again.

    Args:
        settings: What to measure.
        on_row: Called with each row as soon as it is there.

    Raises:
        ValueError: If an environment is unknown.
        TypeError: If its spaces are no Boxes.

    Example:
        >>> settings = SweepSettings(env="cart_pole", num_workers=(2,), num_envs_per_worker=(25,))
        >>> report = sweep(settings)  # doctest: +SKIP
        >>> report.best("superdex_gym/CartPole-v0").control_fps  # doctest: +SKIP
        71234.5
    """
    rows: list[SweepRow] = []
    for case in plan(settings):
        if is_redundant(case, rows):
            continue
        row = measure(case, settings)
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return to_report(settings, rows)


def plan(settings: SweepSettings) -> tuple[SweepCase, ...]:
    """Return the cases to measure, each environment having been looked at once.

    Raises:
        ValueError: If an environment is unknown.
        TypeError: If its spaces are no Boxes.
    """
    # A short name and an id may mean the same environment.
    specs: dict[str, tuple[EnvSpec, str]] = {}
    for name in settings.envs:
        spec = find_spec(name)
        specs.setdefault(spec.id, (spec, name.rpartition(":")[0]))
    cases = []
    for spec, module in specs.values():
        problem = problem_traceback = None
        try:
            seen = run_in_child(probe, spec)
        except ChildFailed as failure:
            seen = Probe(substeps=None, not_box=None)
            problem, problem_traceback = str(failure), failure.traceback
        if seen.not_box:
            raise TypeError(
                f"{spec.id} can't be vectorized as it is: {seen.not_box}, and a Box is needed. "
                "Wrap the environment in superdex.vector.BoxSpaces, which flattens its spaces, and "
                "register the wrapped one."
            )
        cases += [
            SweepCase(
                spec,
                workers,
                per_worker,
                seen.substeps,
                problem,
                problem_traceback,
                module,
                threads,
            )
            for workers, per_worker, threads in settings.splits
        ]
    return tuple(cases)


def is_redundant(case: SweepCase, rows: Sequence[SweepRow]) -> bool:
    """Return whether a case differs from a measured one by threads only, which it does not use."""
    return any(
        row.measurement is not None
        and not row.measurement.steps_at_once
        and replace(row.case, num_threads_per_worker=case.num_threads_per_worker) == case
        for row in rows
    )


def measure(case: SweepCase, settings: SweepSettings) -> SweepRow:
    """Measure one case in a process of its own; a failure becomes the row's error."""
    if case.problem is not None:
        return SweepRow(case, error=case.problem, traceback=case.problem_traceback)
    try:
        if case.is_bare:
            measurement = run_in_child(measure_bare, case.spec, settings)
        else:
            measurement = run_in_child(
                measure_vector,
                case.spec,
                case.num_workers,
                case.num_envs_per_worker,
                settings,
                case.num_threads_per_worker,
            )
    except ChildFailed as failure:
        return SweepRow(case, error=str(failure), traceback=failure.traceback)
    return SweepRow(case, measurement)


def to_report(settings: SweepSettings, rows: Sequence[SweepRow]) -> SweepReport:
    """Return the report of these rows, with the machine, versions and commit of this moment."""
    return SweepReport(
        settings=settings,
        machine=describe_machine(),
        versions=describe_versions(),
        commit=describe_commit(),
        rows=tuple(rows),
    )


def split_warning(settings: SweepSettings) -> str | None:
    """Return what to say where a split has more workers than there are cores, else None."""
    cores = physical_cores()
    above = [str(workers) for workers in settings.num_workers if workers > cores]
    what = f"{', '.join(above)} workers"
    if not above:
        above = [
            f"{workers} × {threads}"
            for workers in settings.num_workers
            for threads in settings.num_threads_per_worker
            if workers * threads > cores
        ]
        what = f"{', '.join(above)} threads of all workers"
    if not above:
        return None
    return (
        f"{what} exceed the {cores} physical cores that this process may use: they take turns, and "
        "their figures say little about larger machines."
    )
