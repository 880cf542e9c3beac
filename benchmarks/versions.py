"""Compare the vector of this checkout with that of another revision, in one interleaved run.

    python benchmarks/versions.py --baseline HEAD~5 --tasks T0 --num_envs 256 --num_workers 2

The other revision is checked out to a temporary worktree, which is removed at the end. Every round
runs both versions, each in a process of its own that is set up and warmed up off the clock; which
goes first alternates. What counts is the ratio within a round: a machine that slows down does so
for both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rich.console import Console
from rich.table import Table

from tasks import TASKS

__all__ = ["Rounds", "measure", "worktree"]

_ROOT = Path(__file__).resolve().parents[1]
_WARM_UP_SECONDS = 0.2


@dataclass
class Rounds:
    """The rates of both versions on one task, in environment steps per second.

    Attributes:
        task: The task's name.
        num_envs: Environments in all.
        baseline: The other revision's rate in each round.
        checkout: This checkout's rate in each round.
    """

    task: str
    num_envs: int
    baseline: list[float] = field(default_factory=list)
    checkout: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Checkout / baseline of each round."""
        return [new / old for new, old in zip(self.checkout, self.baseline, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "task": self.task,
            "num_envs": self.num_envs,
            "env_steps_per_second": {"baseline": self.baseline, "checkout": self.checkout},
            "ratio": dict(zip(("q1", "median", "q3"), _quartiles(self.ratios), strict=True)),
        }


@contextlib.contextmanager
def worktree(repository: Path, revision: str) -> Iterator[Path]:
    """Check a revision out to a temporary folder, and remove it whatever happens.

    Raises:
        ValueError: If the repository knows no such revision.
    """
    commit = _git(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if commit is None:
        raise ValueError(f"{revision!r} names no commit of {repository}.")
    with tempfile.TemporaryDirectory(prefix="superdex-") as folder:
        tree = Path(folder, "tree")
        try:
            if _git(repository, "worktree", "add", "--detach", str(tree), commit) is None:
                raise RuntimeError(f"git could not check {commit} out to {tree}.")
            yield tree
        finally:
            _git(repository, "worktree", "remove", "-ff", str(tree))


def measure(tree: Path, task: str, num_envs: int, num_workers: int, seconds: float) -> float:
    """Return the rate of the package in that folder, from a process of its own.

    Raises:
        RuntimeError: If that process fails, or takes its package from elsewhere.
    """
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    turn = {
        "task": task,
        "num_envs": num_envs,
        "num_workers": num_workers,
        "seconds": seconds,
    }
    done = subprocess.run(
        [sys.executable, __file__, "--turn", json.dumps(turn)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"A turn of the version in {tree} ended with code {done.returncode}.")
    answer = json.loads(done.stdout.splitlines()[-1])
    if not Path(answer["package"]).resolve().is_relative_to(tree.resolve()):
        raise RuntimeError(
            f"The version in {tree} was asked for, and that of {answer['package']} answered: an "
            "installation comes before PYTHONPATH. Uninstall it."
        )
    return float(answer["rate"])


def take_turn(turn: Mapping[str, Any]) -> None:
    """Run the version that this process imports, and print its rate as JSON.

    Only the constructor's oldest arguments are used, so that any revision can answer.
    """
    # Imported here: in a turn it is another version's package, which may lack what is newer.
    import superdex
    from contenders import Field, NextStep
    from superdex.vector import HybridVectorEnv

    field = Field(TASKS[turn["task"]], turn["num_envs"], turn["num_workers"])
    contender = NextStep(HybridVectorEnv(field.env_fns, num_workers=field.num_workers), field)
    try:
        contender.run(_WARM_UP_SECONDS)
        rate = contender.run(turn["seconds"])
    finally:
        contender.close()
    json.dump({"rate": rate, "package": superdex.__file__}, sys.stdout)


def render(rounds: Sequence[Rounds], baseline: str) -> Table:
    """Return a table of medians, with quartiles in brackets."""
    table = Table(title=f"This checkout against {baseline}", title_justify="left")
    table.add_column("Task", no_wrap=True)
    for heading in ("N", "baseline, env steps/s", "checkout, env steps/s", "ratio per round"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in rounds:
        cells = []
        for rates in (each.baseline, each.checkout):
            first, median, third = _quartiles(rates)
            cells.append(f"{median:,.0f} [{first:,.0f}, {third:,.0f}]")
        first, median, third = _quartiles(each.ratios)
        ratio = f"{median:.3f} [{first:.3f}, {third:.3f}]"
        table.add_row(each.task, str(each.num_envs), *cells, ratio, style="bold")
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison that the command line asks for."""
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    if arguments.turn is not None:
        take_turn(arguments.turn)
        return 0
    if arguments.baseline is None:
        parser.error("--baseline is missing: name a revision, such as HEAD~1")
    # The default would end this process without a chance to remove the worktree.
    signal.signal(signal.SIGTERM, _leave)
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 120
    results: list[Rounds] = []
    try:
        with worktree(_ROOT, arguments.baseline) as tree, errors.status("") as status:
            trees = {"baseline": tree, "checkout": _ROOT}
            for task in arguments.tasks:
                for num_envs in arguments.num_envs:
                    result = Rounds(task, num_envs)
                    for number in range(arguments.rounds):
                        status.update(f"{task}, {num_envs} envs: round {number + 1}")
                        for name in sorted(trees, reverse=number % 2 == 1):
                            rate = measure(
                                trees[name],
                                task,
                                num_envs,
                                arguments.num_workers,
                                arguments.seconds,
                            )
                            getattr(result, name).append(rate)
                    results.append(result)
    except (ValueError, RuntimeError) as error:
        errors.print(str(error), style="red")
        return 1
    console.print(render(results, arguments.baseline))
    if arguments.json is not None:
        _write_json(arguments, results)
    return 0


def _write_json(arguments: argparse.Namespace, results: Sequence[Rounds]) -> None:
    from superdex.bench import describe_commit, describe_machine, describe_versions

    report = {
        "machine": describe_machine(),
        "versions": describe_versions(),
        "commit": describe_commit(),
        "baseline": _git(_ROOT, "rev-parse", arguments.baseline),
        "num_workers": arguments.num_workers,
        "seconds": arguments.seconds,
        "comparisons": [result.to_dict() for result in results],
    }
    arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Compare the vector of this checkout with that of another revision.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--baseline", metavar="REV", help="the other revision")
    parser.add_argument(
        "--tasks", type=_tasks, default=["T0"], metavar="T[,T…]", help=f"of {', '.join(TASKS)}"
    )
    parser.add_argument(
        "--num_envs", type=_counts, default=[256], metavar="N[,N…]", help="environments in all"
    )
    parser.add_argument("--num_workers", type=_count, default=2, help="workers")
    parser.add_argument("--rounds", type=_count, default=11, help="turns of each version")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one turn")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything as JSON")
    parser.add_argument("--turn", type=json.loads, help=argparse.SUPPRESS)
    return parser


def _quartiles(values: Sequence[float]) -> list[float]:
    return [float(value) for value in np.percentile(values, (25, 50, 75))]


def _tasks(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in TASKS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(TASKS)}")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1; got {text!r}")
    return int(text)


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


def _git(folder: Path, *args: str) -> str | None:
    """Return what git says, or None where it fails."""
    done = subprocess.run(
        ["git", "-C", str(folder), *args], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def _leave(signum: int, _frame: object) -> NoReturn:
    sys.exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
