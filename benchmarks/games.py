"""Measure games in batches: how many steps per second, on how many threads, and for what.

    python benchmarks/games.py --docs
    python benchmarks/games.py --quick --json games.json --plot games.png

For each number of games every round gives each contender one turn, in an order that rotates;
ratios are taken within a round. The first round warms up and is left out. `--docs` writes figures,
plot and tables into the documentation; `--from` does so for figures that were measured before.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from contenders import Contender, take_rounds
from game_contenders import Allocating, Bots, Into, PlainPython, Rules, record
from games_report import draw, tables
from report_command import add_options, as_command, counts, given_options, publish
from superdex.bench import describe_commit, describe_machine, describe_versions

# A tape has so many steps, and more of few games: their ends are counted.
_FEWEST_STEPS, _FEWEST_ENV_STEPS = 200, 20_000


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        num_envs: Games at a time.
        num_threads: Threads of the engine.
        with_bots: With so many games the bots are measured too.
        rounds: Rounds of each comparison.
        seconds: Length of a turn.
    """

    num_envs: Sequence[int]
    num_threads: Sequence[int]
    with_bots: int
    rounds: int
    seconds: float


FULL = Plan((1, 16, 64, 256, 512, 1024, 4096), (1, 2), with_bots=256, rounds=7, seconds=0.25)
QUICK = Plan((1, 16, 256, 1024), (1, 2), with_bots=256, rounds=3, seconds=0.1)


def compare(num_envs: int, plan: Plan) -> dict[str, Any]:
    """Return the rates of all contenders with so many games, as plain values."""
    tape = record(num_envs, max(_FEWEST_STEPS, _FEWEST_ENV_STEPS // num_envs))
    ready: dict[str, Contender] = {}
    try:
        for threads in plan.num_threads:
            if threads > num_envs:
                continue
            ready[f"into_{threads}"] = Into(tape, threads)
            ready[f"step_{threads}"] = Allocating(tape, threads)
            ready[f"rules_{threads}"] = Rules(tape, threads)
            if num_envs == plan.with_bots:
                ready[f"bots_{threads}"] = Bots(num_envs, threads)
        ready["python"] = PlainPython(tape)
        rates = take_rounds(ready, rounds=plan.rounds, seconds=plan.seconds)
    finally:
        for contender in ready.values():
            contender.close()
    return {
        "num_envs": num_envs,
        "games_per_env_step": tape.games_per_env_step,
        "env_steps_per_second": rates,
    }


def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Run all comparisons and return the report as plain values."""
    started = time.monotonic()
    comparisons = []
    with console.status("") as status:
        for num_envs in plan.num_envs:
            status.update(f"{num_envs} games")
            comparisons.append(compare(num_envs, plan))
    return {
        "machine": describe_machine(),
        "versions": describe_versions(),
        "commit": describe_commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "minutes": (time.monotonic() - started) / 60,
        "seconds": plan.seconds,
        "num_threads": list(plan.num_threads),
        "comparisons": comparisons,
        "left_out": [],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured, then show and write it."""
    arguments = _build_parser().parse_args(argv)
    if arguments.source is not None:
        report = json.loads(arguments.source.read_text(encoding="utf-8"))
    else:
        given = given_options(arguments, "num_envs", "num_threads", "rounds", "seconds")
        plan = replace(QUICK if arguments.quick else FULL, **given)
        report = measure(plan, Console(stderr=True, highlight=False))
        report["command"] = as_command("games.py", given, quick=arguments.quick)
    publish(report, tables(report), draw, arguments, page="games_speed.md", name="games")
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure games in batches, by threads, and against plain Python."
    )
    parser.add_argument("--num_envs", type=counts, metavar="N[,N…]", help="games at a time")
    parser.add_argument("--num_threads", type=counts, metavar="T[,T…]", help="of the engine")
    add_options(parser, plot="games.png")
    return parser


if __name__ == "__main__":
    sys.exit(main())
