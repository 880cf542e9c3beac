"""What `physics.py` found, as tables and as a plot. Nothing here measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "best_of_ours",
    "describe_run",
    "draw",
    "label_logarithmic",
    "quartiles",
    "ratios",
    "tables",
    "write_page",
]

_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
_OURS = ("workers", "threads", "in_process")
_RIVALS = {
    "envpool": "EnvPool",
    "sync": "SyncVectorEnv",
    "async": "AsyncVectorEnv",
    "sb3": "SB3 SubprocVecEnv",
}
_NAMES = {
    "limit": "MuJoCo, free-running",
    "batch": "bare mujoco.batch",
    "workers": "superdex, W × 1",
    "threads": "superdex, 1 × W",
    "in_process": "superdex, 0 × W",
    "shared": "superdex with Gymnasium's objects",
    **_RIVALS,
}
_STYLES: dict[str, dict[str, Any]] = {
    "limit": {"color": "black", "linestyle": "--", "marker": "x"},
    "batch": {"color": "#777777", "linestyle": ":", "marker": "+"},
    "workers": {"color": "#d62728", "marker": "o"},
    "threads": {"color": "#ff7f0e", "marker": "o"},
    "in_process": {"color": "#8c564b", "marker": "o"},
    "shared": {"color": "#e377c2", "marker": "s"},
    "envpool": {"color": "#1f77b4", "marker": "^"},
    "sync": {"color": "#2ca02c", "marker": "v"},
    "async": {"color": "#17becf", "marker": "<"},
    "sb3": {"color": "#9467bd", "marker": ">"},
}


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return first quartile, median and third quartile."""
    first, median, third = np.percentile(values, (25, 50, 75))
    return float(first), float(median), float(third)


def ratios(comparison: Mapping[str, Any], name: str, base: str) -> list[float] | None:
    """Return rate / base's rate of each round, or None where either did not take part."""
    rates = comparison["env_steps_per_second"]
    if not rates.get(name) or not rates.get(base):
        return None
    return [mine / its for mine, its in zip(rates[name], rates[base], strict=True)]


def best_of_ours(comparison: Mapping[str, Any]) -> str | None:
    """Return the split of ours with the largest median; None where there is none."""
    rates = comparison["env_steps_per_second"]
    present = [name for name in _OURS if rates.get(name)]
    return max(present, key=lambda name: quartiles(rates[name])[1], default=None)


def tables(report: Mapping[str, Any]) -> str:
    """Return a table for each task, in Markdown: medians, with quartiles in brackets."""
    cores = report["machine"]["physical_cores"]
    tasks = dict.fromkeys(each["task"] for each in report["comparisons"])
    return "\n\n".join(_table(report, task, cores) for task in tasks)


def _table(report: Mapping[str, Any], task: str, cores: int) -> str:
    comparisons = [each for each in report["comparisons"] if each["task"] == task]
    rivals = [
        name
        for name in _RIVALS
        if any(each["env_steps_per_second"].get(name) for each in comparisons)
    ]
    has_shared = any(each["env_steps_per_second"].get("shared") for each in comparisons)
    headings = ["N", "MuJoCo", "superdex", "µs per env-step", "of MuJoCo", "split"]
    headings += [*_splits_in_short(cores).values(), "bare batch"]
    headings += ["Gymnasium's objects"] * has_shared + [f"× {_RIVALS[name]}" for name in rivals]
    lines = [f"**{task}**, {comparisons[0]['title']}", ""]
    lines += [_line(headings), _line(["---:"] * len(headings))]
    for each in comparisons:
        rates = each["env_steps_per_second"]
        best = best_of_ours(each)
        fastest = _rate(rates, best)
        cells = [f"{each['num_envs']:,}", _number(_rate(rates, "limit")), _number(fastest)]
        cells += ["–" if fastest is None else f"{1e6 / fastest:.3g}"]
        cells += [_with_quartiles(ratios(each, best or "", "limit"))]
        cells += [_splits_in_short(cores).get(best or "", "–")]
        of_limit = [*_OURS, "batch", *["shared"] * has_shared]
        cells += [_median(ratios(each, name, "limit")) for name in of_limit]
        cells += [_median(ratios(each, best or "", name)) for name in rivals]
        lines.append(_line(cells))
    notes = _absences(comparisons)
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _absences(comparisons: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return who took no part in any comparison of a task, and why."""
    reasons: dict[str, set[str]] = {}
    for each in comparisons:
        for name, reason in each["absent"].items():
            reasons.setdefault(name, set()).add(reason)
    everywhere = {
        name
        for name in set(reasons) - {"shared"}
        if all(name in each["absent"] for each in comparisons)
    }
    return [
        f"Without {', '.join(_NAMES[name] for name in names)}: {reason}."
        for reason in sorted({min(reasons[name]) for name in everywhere})
        if (names := [name for name in _NAMES if name in everywhere and reason in reasons[name]])
    ]


def describe_run(report: Mapping[str, Any]) -> str:
    """Return machine, versions and command in sentences."""
    machine, versions = report["machine"], report["versions"]
    commit = (report["commit"] or "none")[:8] + (
        "+" if (report["commit"] or "")[-1:] == "+" else ""
    )
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    text = (
        f"Machine: {machine['processor']}, {machine['physical_cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}. Versions: {named}; "
        f"commit {commit}. {report['date']}, {report['minutes']:.1f} minutes. Command: "
        f"`{report['command']}`"
    )
    if report["left_out"]:
        text += f"\n\nThere was no time for {', '.join(report['left_out'])} environments."
    return text


def write_page(measured: str, page: Path) -> None:
    """Replace what stands between the markers of a page.

    Raises:
        ValueError: If the page lacks them.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page} has no lines {_BEGIN} and {_END}, between which figures belong.")
    page.write_text(f"{before}{begin}\n{measured}\n{end}{after}", encoding="utf-8")


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw environment steps per second, and µs per environment step, over N."""
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(each["task"] for each in report["comparisons"]))
    figure = Figure(figsize=(3.6 * len(tasks) + 0.8, 7.4), layout="constrained")
    panels = figure.subplots(2, len(tasks), squeeze=False)
    sizes = sorted({each["num_envs"] for each in report["comparisons"]})
    for column, task in enumerate(tasks):
        comparisons = [each for each in report["comparisons"] if each["task"] == task]
        for name, style in _STYLES.items():
            _draw_line(list(panels[:, column]), comparisons, name, style)
        panels[0, column].set_title(task, fontsize=11)
        panels[1, column].set_xlabel("environments, N")
        for panel in panels[:, column]:
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(sizes, [str(size) for size in sizes])
            panel.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
            panel.minorticks_off()
            panel.grid(visible=True, which="major", alpha=0.3)
        label_logarithmic(panels[0, column])
        label_logarithmic(panels[1, column])
    panels[0, 0].set_ylabel("environment steps per second")
    panels[1, 0].set_ylabel("µs per environment step")
    shown = {
        line.get_label(): line
        for panel in panels[0]
        for line in panel.get_legend_handles_labels()[0]
    }
    by_name = {_NAMES[name]: shown[_NAMES[name]] for name in _STYLES if _NAMES[name] in shown}
    figure.legend(by_name.values(), by_name.keys(), loc="outside lower center", ncols=4, fontsize=8)
    machine = report["machine"]
    caption = f"{machine['processor']}, W = {machine['physical_cores']} cores"
    figure.suptitle(f"{caption}; medians and quartiles", fontsize=9, color="#666666")
    figure.savefig(path, dpi=100)


def _draw_line(
    panels: Iterable[Axes],
    comparisons: Sequence[Mapping[str, Any]],
    name: str,
    style: Mapping[str, Any],
) -> None:
    points = [
        (each["num_envs"], *quartiles(each["env_steps_per_second"][name]))
        for each in comparisons
        if each["env_steps_per_second"].get(name)
    ]
    if not points:
        return
    sizes, first, median, third = np.array(points).T
    for panel, (low, middle, high) in zip(
        panels, ((first, median, third), (1e6 / third, 1e6 / median, 1e6 / first)), strict=True
    ):
        panel.plot(sizes, middle, label=_NAMES[name], markersize=4, linewidth=1.4, **style)
        panel.fill_between(sizes, low, high, color=style["color"], alpha=0.12, linewidth=0)


def label_logarithmic(panel: Axes) -> None:
    """Give a logarithmic axis a few plain numbers, such as 0.5, 20 and 1k."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator

    large = EngFormatter(sep="")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(
        FuncFormatter(lambda value, position: f"{value:g}" if value < 1 else large(value, position))
    )


def _splits_in_short(cores: int) -> dict[str, str]:
    return {
        "workers": f"{cores} × 1",
        "threads": f"1 × {cores}",
        "in_process": f"0 × {cores}",
    }


def _rate(rates: Mapping[str, Sequence[float]], name: str | None) -> float | None:
    values = rates.get(name or "")
    return quartiles(values)[1] if values else None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _median(values: Sequence[float] | None) -> str:
    return "–" if values is None else f"{quartiles(values)[1]:.2f}"


def _with_quartiles(values: Sequence[float] | None) -> str:
    if values is None:
        return "–"
    first, median, third = quartiles(values)
    return f"{median:.2f} [{first:.2f}, {third:.2f}]"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
