"""What `games.py` found, as tables and as a plot. Nothing here measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from speed_report import label_logarithmic, quartiles, ratios

__all__ = ["draw", "fixed_cost", "tables"]

_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def tables(report: Mapping[str, Any]) -> str:
    """Return the tables in Markdown: medians, with quartiles in brackets."""
    parts = [_steps_table(report)]
    with_bots = [each for each in report["comparisons"] if _has_bots(each)]
    if with_bots:
        parts.append(_bots_table(report, with_bots))
    fixed = fixed_cost(report)
    if fixed is not None:
        parts.append(
            f"With one game a call through a bound handle takes {fixed:.2g} µs more than a game "
            "takes among many, on one thread."
        )
    return "\n\n".join(parts)


def fixed_cost(report: Mapping[str, Any]) -> float | None:
    """Return µs per call with one game, less what a game costs among many; None if unmeasured."""
    costs = {
        each["num_envs"]: 1e6 / quartiles(each["env_steps_per_second"]["into_1"])[1]
        for each in report["comparisons"]
        if each["env_steps_per_second"].get("into_1")
    }
    many = [size for size in costs if size >= 64]
    return costs[1] - costs[min(many)] if 1 in costs and many else None


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw environment steps per second, and what a step is spent on, over the number of games."""
    from matplotlib.figure import Figure

    comparisons = report["comparisons"]
    sizes = [each["num_envs"] for each in comparisons]
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    speed, cost = figure.subplots(1, 2)
    for threads, colour in zip(report["num_threads"], _COLOURS, strict=False):
        plural = "s" if threads > 1 else ""
        for name, style, label in (
            ("into", "-o", "into the same arrays"),
            ("step", "--s", "into new arrays"),
            ("rules", ":^", "rules alone"),
        ):
            points = [
                (each["num_envs"], *quartiles(rates))
                for each in comparisons
                if (rates := each["env_steps_per_second"].get(f"{name}_{threads}"))
            ]
            if not points:
                continue
            where, low, middle, high = np.array(points).T
            text = f"{label}, {threads} thread{plural}"
            speed.plot(where, middle, style, color=colour, label=text, markersize=4, linewidth=1.3)
            speed.fill_between(where, low, high, color=colour, alpha=0.12, linewidth=0)
            if name != "step":
                cost.plot(where, 1e6 / middle, style, color=colour, label=text, markersize=4)
    python = [_median(each["env_steps_per_second"]["python"]) for each in comparisons]
    speed.plot(sizes, python, "-x", color="black", label="plain Python", markersize=4)
    speed.set_ylabel("environment steps per second")
    cost.set_ylabel("µs per environment step")
    for panel in (speed, cost):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        label_logarithmic(panel)
        panel.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
        panel.minorticks_off()
        panel.set_xlabel("games, N")
        panel.grid(visible=True, which="major", alpha=0.3)
    lines, labels = speed.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=8)
    processor = report["machine"]["processor"]
    figure.suptitle(f"Tron, {processor}; medians and quartiles", fontsize=9, color="#666666")
    figure.savefig(path, dpi=100)


def _steps_table(report: Mapping[str, Any]) -> str:
    threads = report["num_threads"]
    most = max(threads)
    headings = ["N", *[f"steps/s, {count} thr." for count in threads], "µs per env-step", "games/s"]
    headings += [f"{count} ÷ 1 thr." for count in threads if count > 1]
    headings += ["encoding", "same ÷ new arrays", "× plain Python"]
    lines = [_line(headings), _line(["---:"] * len(headings))]
    for each in report["comparisons"]:
        rates = each["env_steps_per_second"]
        best = max(
            (name for name in rates if name.startswith("into_")),
            key=lambda name: _median(rates[name]),
        )
        fastest = _median(rates[best])
        cells = [f"{each['num_envs']:,}"]
        cells += [_rate(rates.get(f"into_{count}")) for count in threads]
        cells += [f"{1e6 / fastest:.3g}", f"{fastest * each['games_per_env_step']:,.0f}"]
        cells += [
            _with_quartiles(ratios(each, f"into_{count}", "into_1"))
            for count in threads
            if count > 1
        ]
        shares = ratios(each, "into_1", "rules_1")
        cells += [_percent(None if shares is None else [1 - share for share in shares])]
        same = best.rpartition("_")[2]
        cells += [_with_quartiles(ratios(each, best, f"step_{same}"))]
        cells += [_times(ratios(each, best, "python"))]
        lines.append(_line(cells))
    title = f"**Tron**, random moves; the best of up to {most} threads where none are named"
    return "\n".join([title, "", *lines])


def _bots_table(report: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]]) -> str:
    threads = report["num_threads"]
    headings = ["N", *[f"steps/s, {count} thr." for count in threads]]
    headings += [f"{count} ÷ 1 thr." for count in threads if count > 1]
    lines = [_line(headings), _line(["---:"] * len(headings))]
    for each in comparisons:
        rates = each["env_steps_per_second"]
        cells = [f"{each['num_envs']:,}", *[_rate(rates.get(f"bots_{count}")) for count in threads]]
        cells += [
            _with_quartiles(ratios(each, f"bots_{count}", "bots_1"))
            for count in threads
            if count > 1
        ]
        lines.append(_line(cells))
    return "\n".join(["**Tron**, alpha-beta against itself", "", *lines])


def _has_bots(comparison: Mapping[str, Any]) -> bool:
    return any(name.startswith("bots_") for name in comparison["env_steps_per_second"])


def _median(values: Sequence[float]) -> float:
    return quartiles(values)[1]


def _rate(values: Sequence[float] | None) -> str:
    return "–" if not values else f"{_median(values):,.0f}"


def _with_quartiles(values: Sequence[float] | None) -> str:
    if values is None:
        return "–"
    first, median, third = quartiles(values)
    return f"{median:.2f} [{first:.2f}, {third:.2f}]"


def _percent(values: Sequence[float] | None) -> str:
    return "–" if values is None else f"{100 * _median(values):.0f} %"


def _times(values: Sequence[float] | None) -> str:
    return "–" if values is None else f"{_median(values):,.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
