"""What the sweep shows on a terminal: a table, and which split was best."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from superdex.bench._report import SweepReport, SweepRow

_MIB = 1024 * 1024


def render_report(report: SweepReport) -> RenderableType:
    """Return tables, failures and verdicts of all environments; print it without cropping."""
    parts: list[RenderableType] = []
    for env_id in report.env_ids:
        parts += [_render_table(report, env_id), *_render_note(report, env_id)]
        parts += _render_failures(report, env_id)
        parts += [*_render_verdict(report, env_id), Text()]
    return Group(*parts[:-1])


def _render_table(report: SweepReport, env_id: str) -> Table:
    table = Table(title=env_id, title_justify="left", title_style="bold")
    with_threads = report.uses_threads(env_id)
    split = ["Workers", "Envs per\nworker", *["Threads per\nworker"] * with_threads, "Envs"]
    figures = ("Init\ns", "Memory\nMiB", "Control\nFPS", "Simulation\nFPS", "Mean step\nms")
    for heading in (*split, *figures):
        table.add_column(heading, justify="right", no_wrap=True)
    best = report.winner(env_id)
    for row in report.rows_of(env_id):
        table.add_row(
            *_cells(row, with_threads=with_threads), style="bold green" if row is best else None
        )
    return table


def _cells(row: SweepRow, *, with_threads: bool) -> list[str]:
    case, measured = row.case, row.measurement
    workers = "bare" if case.is_bare else str(case.num_workers)
    split = [workers, str(case.num_envs_per_worker), str(case.num_envs)]
    if with_threads:
        unused = measured is not None and not measured.steps_at_once
        split.insert(2, "–" if unused else str(case.num_threads_per_worker))
    if measured is None:
        return [*split, "", "", "failed", "", ""]
    simulation = "–" if row.simulation_fps is None else f"{row.simulation_fps:,.0f}"
    return [
        *split,
        f"{measured.init_seconds:.2f}",
        f"{measured.memory_bytes / _MIB:,.0f}",
        f"{measured.control_fps:,.0f}",
        simulation,
        f"{measured.mean_step_ms:.3g}",
    ]


def _render_note(report: SweepReport, env_id: str) -> list[Text]:
    """Return what to say of splits that were measured with one number of threads only."""
    if report.settings.num_threads_per_worker == (1,):
        return []
    splits = [
        f"{row.case.num_workers} × {row.case.num_envs_per_worker}"
        for row in report.rows_of(env_id)
        if row.measurement is not None and not row.measurement.steps_at_once
    ]
    if not splits:
        return []
    which = ", ".join(dict.fromkeys(splits))
    note = "environments are stepped one by one, and take no notice of num_threads_per_worker"
    return [Text(f"Measured once ({which}): {note}.", style="dim")]


def _render_failures(report: SweepReport, env_id: str) -> list[Text]:
    lines: dict[str, list[str]] = {}
    for row in report.rows_of(env_id):
        if row.error is not None:
            lines.setdefault(row.error.strip(), []).append(row.case.split)
    return [
        Text(f"Failed ({', '.join(splits)}): {error}", style="red")
        for error, splits in lines.items()
    ]


def _render_verdict(report: SweepReport, env_id: str) -> list[Text]:
    best, split = report.winner(env_id), report.best(env_id, vectorized=True)
    if report.best(env_id) is None:
        return [Text(f"No split of {env_id} could be measured.", style="red")]
    lines = []
    bare_wins = best is not None and best.case.is_bare
    if best is not None and bare_wins:
        bare = f"the bare environment, without a vectorizer, at {_speed(best)}:"
        lines += [Text.assemble(("Best: ", "bold"), bare), _render_code(best)]
    if split is None:
        tried = any(not row.case.is_bare for row in report.rows_of(env_id))
        why = "all of them failed" if tried else "none was measured"
        lines.append(Text.assemble(("Best split into workers: ", "bold"), f"{why}."))
    else:
        total = report.settings.num_envs
        of_all = "" if total is None else f" split of {total} environments"
        heading = "Best split into workers: " if bare_wins else f"Best{of_all}: "
        bare_row = next((row for row in report.rows_of(env_id) if row.case.is_bare), None)
        what = f"{_describe_split(split)}, at {_speed(split)}{_gain(split, bare_row)}:"
        lines += [Text.assemble((heading, "bold"), what), _render_code(split)]
    return lines


def _render_code(row: SweepRow) -> Text:
    """Return the code on one line, however long, so that it can be copied."""
    return Text(f"    {row.case.code}", style="cyan", no_wrap=True, overflow="ignore")


def _describe_split(row: SweepRow) -> str:
    workers, per_worker = row.case.num_workers, row.case.num_envs_per_worker
    threads = row.case.num_threads_per_worker
    each = "" if threads == 1 else f", {threads} threads in each worker"
    return f"{_count(workers, 'worker')} × {_count(per_worker, 'environment')}{each}"


def _speed(row: SweepRow) -> str:
    return f"{row.control_fps:,.0f} env steps per second"


def _gain(row: SweepRow, bare: SweepRow | None) -> str:
    if row.control_fps is None or bare is None or bare.control_fps is None:
        return ""
    return f", {row.control_fps / bare.control_fps:.3g} × the bare environment"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
