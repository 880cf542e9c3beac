"""A report as files: JSON, and a heat map as a picture."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from superdex.bench._report import SweepReport, SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_picture_path", "check_writable", "write_heat_map", "write_json"]

_PICTURES = (".png", ".svg", ".pdf")


def check_writable(path: str | Path) -> Path:
    """Return the path if a file can be written there; changes nothing.

    Raises:
        ValueError: If it can't; the message says why.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the path of a file.")
    if not path.parent.is_dir():
        raise ValueError(f"The folder {path.parent} does not exist; create it first.")
    if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise ValueError(f"{path} is write-protected; choose another path or allow writing to it.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"No file can be written to the folder {path.parent}: {error.strerror}."
        ) from error
    return path


def check_picture_path(path: str | Path) -> Path:
    """Return the path if a heat map can be drawn and written there.

    Raises:
        ValueError: If it can't be written, its ending is no picture's, or matplotlib is missing.
    """
    path = Path(path)
    if path.suffix.lower() not in _PICTURES:
        raise ValueError(f"A heat map ends in {', '.join(_PICTURES)}; got {path.name!r}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "A heat map needs matplotlib, which is not installed: pip install "
            "'superdex-vector[plot]'."
        )
    return check_writable(path)


def write_json(report: SweepReport, path: str | Path) -> None:
    """Write the report as JSON; an existing file is replaced whole or not at all."""
    text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_heat_map(report: SweepReport, path: str | Path) -> None:
    """Draw environment steps per second over workers × environments, one panel per environment.

    Workers with several numbers of threads have a line for each; splits that were left out because
    threads change nothing are blank. Splits of one number of environments have a line each, and
    threads a column. The best split is framed; a failed one says so. Where the bare environment is
    no place of the map, its speed stands above. Needs matplotlib (the extra "plot").
    """
    from matplotlib.figure import Figure

    env_ids = report.env_ids
    placed = [row for row in report.rows if _is_placed(row, report)]
    places = [_place(row, report) for row in placed]
    workers = sorted({line for line, _ in places})
    per_worker = sorted({column for _, column in places})
    columns = min(2, len(env_ids))
    lines = -(-len(env_ids) // columns)
    panel_size = (max(5.0, 1.1 * len(per_worker) + 1.6), max(2.4, 0.7 * len(workers) + 1.5))
    figure = Figure(figsize=(columns * panel_size[0], lines * panel_size[1]), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for panel, env_id in zip(panels, env_ids, strict=False):
        _draw_panel(panel, report, env_id, workers, per_worker)
    for panel in panels[len(env_ids) :]:
        panel.set_axis_off()
    figure.supxlabel(_caption(report), fontsize=7.5, color="#666666")
    with _replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=Path(path).suffix[1:].lower())


def _draw_panel(
    panel: Axes,
    report: SweepReport,
    env_id: str,
    workers: list[tuple[int, int]],
    per_worker: list[int],
) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import EngFormatter

    rows = {_place(row, report): row for row in report.rows_of(env_id) if _is_placed(row, report)}
    speeds = np.full((len(workers), len(per_worker)), np.nan)
    for (workers_and_threads, num_envs_per_worker), row in rows.items():
        if row.control_fps is not None:
            cell = workers.index(workers_and_threads), per_worker.index(num_envs_per_worker)
            speeds[cell] = row.control_fps
    image = panel.imshow(np.ma.masked_invalid(speeds), cmap="viridis", vmin=0, aspect="auto")
    panel.set_facecolor("#dddddd")
    best = report.winner(env_id)
    for line, workers_and_threads in enumerate(workers):
        for column, num_envs_per_worker in enumerate(per_worker):
            if (workers_and_threads, num_envs_per_worker) not in rows:
                continue
            row = rows[workers_and_threads, num_envs_per_worker]
            red, green, blue, _ = image.to_rgba(speeds[line, column])
            light = row.control_fps is None or 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
            panel.text(
                column,
                line,
                _label(row, is_best=row is best),
                ha="center",
                va="center",
                color="black" if light else "white",
                fontsize=9,
                fontweight="bold" if row is best else "normal",
            )
            if row is best:
                panel.add_patch(
                    Rectangle(
                        (column - 0.47, line - 0.47),
                        0.94,
                        0.94,
                        fill=False,
                        color="#d62728",
                        lw=2.5,
                    )
                )
    panel.set_title(_title(report, env_id), fontsize=11)
    panel.set_xticks(range(len(per_worker)), [str(count) for count in per_worker])
    of_one_number = report.settings.num_envs is not None
    with_second = of_one_number or any(second > 1 for _, second in workers)
    names = [
        f"{count} × {second}" if of_one_number or second > 1 else f"{count}"
        for count, second in workers
    ]
    panel.set_yticks(range(len(workers)), names)
    second = "environments" if of_one_number else "threads"
    panel.set_xlabel("threads per worker" if of_one_number else "environments per worker")
    panel.set_ylabel(f"workers × {second}" if with_second else "workers")
    panel.figure.colorbar(image, ax=panel, format=EngFormatter(), label="control FPS")


def _place(row: SweepRow, report: SweepReport) -> tuple[tuple[int, int], int]:
    """Return the line and the column of a split."""
    case = row.case
    if report.settings.num_envs is not None:
        return (case.num_workers, case.num_envs_per_worker), case.num_threads_per_worker
    return (case.num_workers, case.num_threads_per_worker), case.num_envs_per_worker


def _is_placed(row: SweepRow, report: SweepReport) -> bool:
    """Return whether a row is among the splits asked for; the bare one is measured in any event."""
    if not row.case.is_bare or all(other.case.is_bare for other in report.rows):
        return True
    settings = report.settings
    asked = 1 in settings.num_workers and 1 in settings.num_envs_per_worker
    return asked and settings.num_envs is None


def _title(report: SweepReport, env_id: str) -> str:
    for row in report.rows_of(env_id):
        if not _is_placed(row, report) and row.control_fps is not None:
            best = ", best" if row is report.winner(env_id) else ""
            return f"{env_id} (bare loop: {_short(row.control_fps)}{best})"
    return env_id


def _label(row: SweepRow, *, is_best: bool) -> str:
    if row.control_fps is None:
        return "failed"
    notes = ["best"] * is_best + ["bare loop"] * row.case.is_bare
    return "\n".join([_short(row.control_fps), *notes])


def _short(number: float) -> str:
    """Return three digits and a unit, such as 71.2 k."""
    for unit, name in ((1e6, " M"), (1e3, " k"), (1.0, "")):
        if number >= unit:
            digits = max(0, 2 - int(math.log10(number / unit)))
            return f"{number / unit:.{digits}f}{name}"
    return f"{number:.2g}"


def _caption(report: SweepReport) -> str:
    machine = report.machine
    commit = f", commit {report.commit[:8]}" if report.commit else ""
    return (
        f"{machine['processor']}, {machine['physical_cores']} cores · "
        f"superdex {report.versions['superdex']}{commit}"
    )


@contextlib.contextmanager
def _replacing(path: str | Path) -> Iterator[Path]:
    """Give a path to write to; what is there at the end replaces the file in one go."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
