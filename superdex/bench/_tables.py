"""What the sweep shows on a terminal: a table, and which split was best."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from superdex.bench._report import SweepReport, SweepRow

_MIB = 1024 * 1024


def render_report(report: SweepReport) -> RenderableType:
    """Return tables, failures and verdicts of all environments."""
    parts: list[RenderableType] = []
    for env_id in report.env_ids:
        parts += [_render_table(report, env_id), *_render_failures(report, env_id)]
        parts += [_render_verdict(report, env_id), Text()]
    return Group(*parts[:-1])


def _render_table(report: SweepReport, env_id: str) -> Table:
    table = Table(title=env_id, title_justify="left", title_style="bold")
    headings = ("Workers", "Envs per\nworker", "Envs", "Init\ns", "Memory\nMiB")
    for heading in (*headings, "Control\nFPS", "Simulation\nFPS", "Mean step\nms"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = report.best(env_id)
    for row in report.rows_of(env_id):
        table.add_row(*_cells(row), style="bold green" if row is best else None)
    return table


def _cells(row: SweepRow) -> list[str]:
    case, measured = row.case, row.measurement
    workers = "bare" if case.is_bare else str(case.num_workers)
    split = [workers, str(case.num_envs_per_worker), str(case.num_envs)]
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


def _render_failures(report: SweepReport, env_id: str) -> list[Text]:
    lines: dict[str, list[str]] = {}
    for row in report.rows_of(env_id):
        if row.error is not None:
            split = f"{row.case.num_workers} × {row.case.num_envs_per_worker}"
            lines.setdefault(row.error.strip(), []).append(split)
    return [
        Text(f"Failed ({', '.join(splits)}): {error}", style="red")
        for error, splits in lines.items()
    ]


def _render_verdict(report: SweepReport, env_id: str) -> Text:
    best = report.best(env_id)
    if best is None or best.measurement is None:
        return Text(f"No split of {env_id} could be measured.", style="red")
    case = best.case
    split = (
        "the bare environment, without a vectorizer"
        if case.is_bare
        else f"{case.num_workers} {_plural(case.num_workers, 'worker')} × "
        f"{case.num_envs_per_worker} {_plural(case.num_envs_per_worker, 'environment')}"
    )
    bare = next((row for row in report.rows_of(env_id) if row.case.is_bare), None)
    gain = ""
    if bare is not None and bare.measurement is not None and bare is not best:
        ratio = best.measurement.control_fps / bare.measurement.control_fps
        gain = f", {ratio:.3g} × the bare environment"
    return Text.assemble(
        ("Best: ", "bold"),
        f"{split}, at {best.measurement.control_fps:,.0f} env steps per second{gain}:\n    ",
        (case.code, "cyan"),
    )


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
