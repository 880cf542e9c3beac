"""What the commands share that measure and report: their options, and where a report goes."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from speed_report import describe_run, write_page

__all__ = ["add_options", "as_command", "counts", "given_options", "publish"]

_DOCS = Path(__file__).resolve().parents[1] / "docs"


def add_options(parser: argparse.ArgumentParser, plot: str) -> None:
    """Add the options of every such command; `plot` is an example of a picture's name."""
    parser.add_argument("--quick", action="store_true", help="a glance, in less than a minute")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison, at most")
    parser.add_argument("--seconds", type=float, help="length of one turn")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures as JSON")
    parser.add_argument("--plot", type=Path, metavar="PATH", help=f"draw them, such as {plot}")
    parser.add_argument(
        "--docs", action="store_true", help="write figures, plot and tables into docs/"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="JSON",
        help="measure nothing, and take what was measured before",
    )


def counts(text: str) -> list[int]:
    """Return numbers that are separated by commas.

    Raises:
        argparse.ArgumentTypeError: If one is no whole number of at least 1.
    """
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(
            f"expected whole numbers of at least 1 separated by commas; got {text!r}"
        )
    return [int(part) for part in parts]


def given_options(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of the named options that were given."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def as_command(script: str, given: Mapping[str, Any], *, quick: bool) -> str:
    """Return the command that measures the same, wherever it writes to."""
    words = ["python", f"benchmarks/{script}", *["--quick"] * quick]
    for name, value in given.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words += [f"--{name}", text]
    return shlex.join(words)


def publish(
    report: Mapping[str, Any],
    tables: str,
    draw: Callable[[Mapping[str, Any], Path], None],
    arguments: argparse.Namespace,
    page: str,
    name: str,
) -> None:
    """Show a report, and write it where the options say.

    Args:
        report: Plain values.
        tables: The same in Markdown.
        draw: Draws it to a file.
        arguments: The options of `add_options`.
        page: The explanation in the documentation that has the tables.
        name: What its figures and picture are called there.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    measured = f"{tables}\n\n{describe_run(report)}"
    console.print(Markdown(measured))
    json_paths, plots = [arguments.json], [arguments.plot]
    if arguments.docs:
        json_paths.append(_DOCS / "_static" / f"{name}.json")
        plots.append(_DOCS / "_static" / f"{name}.png")
        write_page(measured, _DOCS / "explanation" / page)
    for path in filter(None, json_paths):
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for path in filter(None, plots):
        draw(report, path)
