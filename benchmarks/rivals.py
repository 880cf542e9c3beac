"""Compare vectorizers on the same tasks, in one run, by ratios taken within a round.

    python benchmarks/rivals.py --tasks T0,T2 --num_envs 64,256 --num_workers 2

Every round gives each contender one turn, in an order that rotates from round to round, so that a
machine that slows down or speeds up does so for all. The first round warms up and is left out. What
is shown is the median over rounds of each ratio, with its quartiles; the rates themselves only
describe this machine at this time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from contenders import CONTENDERS, Contender, Field, take_rounds, why_not
from superdex.bench import describe_commit, describe_machine, describe_versions
from tasks import TASKS

# What ratios are taken to. The machine's limit is the bare loop times the cores in use.
_LIMIT = "limit"
_BASES = ("bare", "bare2", "ours", _LIMIT)


@dataclass(frozen=True)
class Comparison:
    """The rates of all contenders on one task, round by round.

    Attributes:
        field: The task and its size.
        rates: Contender → environment steps per second in each round.
        cores: Physical cores of the machine.
        absent: Contender → why it did not take part.
    """

    field: Field
    rates: Mapping[str, Sequence[float]]
    cores: int
    absent: Mapping[str, str]

    def ratios(self, name: str, base: str) -> list[float] | None:
        """Return rate / base's rate for each round, or None where the base did not take part.

        The limit is the bare loop times the cores that the workers can use.
        """
        if base == _LIMIT:
            ratios = self.ratios(name, "bare")
            cores = min(self.cores, self.field.num_workers)
            return None if ratios is None else [ratio / cores for ratio in ratios]
        if base not in self.rates:
            return None
        return [mine / its for mine, its in zip(self.rates[name], self.rates[base], strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        ratios = {
            base: {
                name: dict(zip(("q1", "median", "q3"), quartiles(values), strict=True))
                for name in self.rates
                if (values := self.ratios(name, base)) is not None
            }
            for base in _BASES
        }
        return {
            "task": self.field.task.name,
            "num_envs": self.field.num_envs,
            "num_workers": self.field.num_workers,
            "env_steps_per_second": {name: list(rates) for name, rates in self.rates.items()},
            "ratios": ratios,
            "absent": dict(self.absent),
        }


def compare(
    field: Field,
    names: Sequence[str],
    *,
    rounds: int,
    seconds: float,
    max_processes: int,
    cores: int,
    console: Console,
) -> Comparison:
    """Build the contenders, run all rounds and close them."""
    absent = {name: reason for name in names if (reason := why_not(name, field, max_processes))}
    present = [name for name in names if name not in absent]
    ready: dict[str, Contender] = {}
    with console.status("") as status:
        try:
            for name in present:
                status.update(f"{field.task.name}, {field.num_envs} envs: building {name}")
                ready[name] = CONTENDERS[name][1](field)
            status.update(f"{field.task.name}, {field.num_envs} envs: {rounds} rounds")
            rates = take_rounds(ready, rounds=rounds, seconds=seconds)
        finally:
            for contender in ready.values():
                contender.close()
    return Comparison(field, rates, cores, absent)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return first quartile, median and third quartile; of a single value, that value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, median, third


def render(comparison: Comparison) -> Table:
    """Return the table of one comparison: medians, with quartiles in brackets."""
    field = comparison.field
    table = Table(
        title=f"{field.task.name}, {field.task.title}: {field.num_envs} environments, "
        f"{field.num_workers} workers",
        title_justify="left",
        caption="\n".join(
            f"{CONTENDERS[name][0]}: {reason}" for name, reason in comparison.absent.items()
        ),
        caption_justify="left",
    )
    table.add_column("Contender", no_wrap=True)
    for heading in ("env steps/s", *(f"of {base}" for base in _BASES)):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, rates in comparison.rates.items():
        cells = [f"{statistics.median(rates):,.0f}"]
        for base in _BASES:
            ratios = comparison.ratios(name, base)
            if ratios is None:
                cells.append("–")
                continue
            first, median, third = quartiles(ratios)
            cells.append(f"{median:.3f} [{first:.2f}, {third:.2f}]")
        style = "bold" if name.startswith("ours") else None
        table.add_row(CONTENDERS[name][0], *cells, style=style)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison that the command line asks for."""
    arguments = _build_parser().parse_args(argv)
    machine = describe_machine()
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 140
    comparisons = []
    for task in arguments.tasks:
        for num_envs in arguments.num_envs:
            comparison = compare(
                Field(TASKS[task], num_envs, arguments.num_workers),
                arguments.contenders,
                rounds=arguments.rounds,
                seconds=arguments.seconds,
                max_processes=arguments.max_processes,
                cores=machine["physical_cores"],
                console=errors,
            )
            comparisons.append(comparison)
            console.print(render(comparison))
    if arguments.json is not None:
        report = {
            "machine": machine,
            "versions": describe_versions(),
            "commit": describe_commit(),
            "rounds": arguments.rounds,
            "seconds": arguments.seconds,
            "comparisons": [comparison.to_dict() for comparison in comparisons],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Compare vectorizers on the same tasks, by ratios taken within a round.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    tasks = "; ".join(f"{task.name}: {task.title}" for task in TASKS.values())
    parser.add_argument(
        "--tasks", type=_choices(TASKS), default=list(TASKS), metavar="T[,T…]", help=tasks
    )
    parser.add_argument(
        "--num_envs", type=_counts, default=[64, 256], metavar="N[,N…]", help="environments in all"
    )
    parser.add_argument("--num_workers", type=_count, default=2, help="workers of ours")
    parser.add_argument("--rounds", type=_count, default=7, help="rounds, without the warm-up")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one turn")
    parser.add_argument(
        "--contenders",
        type=_choices(CONTENDERS),
        default=list(CONTENDERS),
        metavar="C[,C…]",
        help=f"those that take part, of {', '.join(CONTENDERS)}",
    )
    parser.add_argument(
        "--max_processes",
        type=_count,
        default=32,
        help="leave out a contender that needs more processes: one for each environment is heavy",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything as JSON")
    return parser


def _choices(known: Mapping[str, object]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1; got {text!r}")
    return int(text)


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
