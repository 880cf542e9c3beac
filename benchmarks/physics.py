"""Compare superdex on physics with MuJoCo's own speed and with other vectorizers, in one run.

    python benchmarks/physics.py --docs
    python benchmarks/physics.py --quick --json speed.json --plot speed.png

For each number of environments and each task, every round gives each contender one turn, in an
order that rotates; ratios are taken within a round. The first round warms up and is left out.
Rounds go on until there are enough or the time is up; what there is no time for is left out, and
said so. `--docs` writes figures, plot and tables into the documentation; `--from` does so for
figures that were measured before.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from rich.console import Console

from contenders import CONTENDERS, Contender, Field, Hybrid, take_rounds, why_not
from limit import BareBatch, free_steps
from physics_tasks import PHYSICS_TASKS, PhysicsTask
from report_command import add_options, as_command, counts, given_options, publish
from speed_report import draw, tables
from superdex.bench import describe_commit, describe_machine, describe_versions

_RIVALS = ("envpool", "stable-baselines3", "torch")
_FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        num_envs: Environments in all.
        tasks: Names of tasks.
        rounds: Rounds of each comparison, at most.
        seconds: Length of a turn, at least one step of all environments.
        minutes: What the whole run may take.
    """

    num_envs: Sequence[int]
    tasks: Sequence[str]
    rounds: int
    seconds: float
    minutes: float


FULL = Plan((16, 64, 256, 1024, 8192), tuple(PHYSICS_TASKS), rounds=7, seconds=0.25, minutes=7.0)
QUICK = Plan((64, 512), tuple(PHYSICS_TASKS), rounds=3, seconds=0.1, minutes=0.8)

# What takes long to build, in processes or memory, stops at so many environments.
_LARGEST = {"async": 16, "sb3": 16, "sync": 256, "shared": 1024, "envpool": 1024}
_PROCESS_EACH = ("async", "sb3")
_TASK_OF_PROCESS_EACH = "half_cheetah"
# A share of the time grows with the number of environments above this one.
_LARGE = 2048
_LINES_SHOWN = 20


def build_contenders(cores: int) -> dict[str, Callable[[Field], Contender]]:
    """Return what builds each contender, for a machine of so many cores."""

    def ours(field: Field, **arguments: Any) -> Contender:
        assert isinstance(field.task, PhysicsTask)
        assert field.task.make_ours is not None
        return Hybrid(
            replace(field, task=replace(field.task, make=field.task.make_ours)), **arguments
        )

    def shared(field: Field) -> Contender:
        assert isinstance(field.task, PhysicsTask)
        assert field.task.make_shared is not None
        return Hybrid(replace(field, task=replace(field.task, make=field.task.make_shared)))

    return {
        "limit": free_steps,
        "batch": BareBatch,
        "workers": lambda field: ours(field, num_workers=field.num_workers),
        "threads": lambda field: ours(field, num_workers=1, num_threads_per_worker=cores),
        "in_process": lambda field: ours(
            field, num_workers=1, num_threads_per_worker=cores, in_process=True
        ),
        "shared": shared,
        **{name: CONTENDERS[name][1] for name in ("envpool", "sync", "async", "sb3")},
    }


def why_absent(name: str, field: Field) -> str | None:
    """Return why a contender can't take part in a comparison, or None if it can."""
    task = field.task
    assert isinstance(task, PhysicsTask)
    if name in ("workers", "threads", "in_process") and task.make_ours is None:
        return "superdex has no version of its own"
    if name == "shared" and task.make_shared is None:
        return "it is for Gymnasium's environments"
    if name in CONTENDERS and (reason := why_not(name, field, max_processes=sys.maxsize)):
        return reason
    if name in _PROCESS_EACH and task.name != _TASK_OF_PROCESS_EACH:
        return f"a process for each environment is started on {_TASK_OF_PROCESS_EACH} only"
    if field.num_envs > _LARGEST.get(name, sys.maxsize):
        return f"not beyond {_LARGEST[name]} environments"
    return None


def compare(
    field: Field,
    build: Mapping[str, Callable[[Field], Contender]],
    plan: Plan,
    deadline: float,
) -> dict[str, Any]:
    """Return the rates of all contenders on a task, as plain values.

    Args:
        field: The task and its size.
        build: What builds each contender.
        plan: Rounds and seconds.
        deadline: When, by `time.monotonic`, no round should begin any more; a few are run anyway.
    """
    reasons = {name: why_absent(name, field) for name in build}
    ready: dict[str, Contender] = {}
    try:
        for name, reason in reasons.items():
            if reason is None:
                ready[name] = build[name](field)
        rates = take_rounds(
            ready,
            rounds=plan.rounds,
            seconds=plan.seconds,
            go_on=lambda number: number < _FEWEST_ROUNDS or time.monotonic() < deadline,
        )
    finally:
        for contender in ready.values():
            contender.close()
    return {
        "task": field.task.name,
        "title": field.task.title,
        "num_envs": field.num_envs,
        "env_steps_per_second": rates,
        "absent": {name: reason for name, reason in reasons.items() if reason is not None},
    }


def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Run all comparisons that there is time for, and return the report as plain values."""
    machine = describe_machine()
    cores = int(machine["physical_cores"])
    build = build_contenders(cores)
    todo = [(num_envs, task) for num_envs in plan.num_envs for task in plan.tasks]
    started = time.monotonic()
    end = started + 60 * plan.minutes
    comparisons, left_out = [], []
    needed: dict[str, float] = {}
    with console.status("") as status:
        for number, (num_envs, task) in enumerate(todo):
            now = time.monotonic()
            if now + needed.get(task, 0.0) > end:
                left_out.append(f"{task} with {num_envs}")
                continue
            status.update(f"{task}, {num_envs} environments ({number + 1} of {len(todo)})")
            field = Field(PHYSICS_TASKS[task], num_envs, min(cores, num_envs))
            weights = [max(1.0, size / _LARGE) for size, _ in todo[number:]]
            deadline = now + (end - now) * weights[0] / sum(weights)
            comparisons.append(compare(field, build, plan, deadline))
            larger = [size for size, name in todo[number + 1 :] if name == task]
            needed[task] = max(
                time.monotonic() - now,
                _fewest_seconds(comparisons[-1], max(larger[:1], default=0)),
            )
    return {
        "machine": machine,
        "versions": describe_versions() | _rival_versions(),
        "commit": describe_commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "minutes": (time.monotonic() - started) / 60,
        "seconds": plan.seconds,
        "comparisons": comparisons,
        "left_out": left_out,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured, then show and write it."""
    arguments = _build_parser().parse_args(argv)
    if arguments.source is not None:
        report = json.loads(arguments.source.read_text(encoding="utf-8"))
    else:
        plan = QUICK if arguments.quick else FULL
        given = given_options(arguments, "tasks", "num_envs", "rounds", "seconds", "minutes")
        with _native_messages_held() as terminal:
            report = measure(replace(plan, **given), Console(file=terminal, highlight=False))
        report["command"] = as_command("physics.py", given, quick=arguments.quick)
    publish(report, tables(report), draw, arguments, page="speed.md", name="speed")
    return 0


def _fewest_seconds(smaller: Mapping[str, Any], num_envs: int) -> float:
    """Return what a comparison takes at least, if rates are those of fewer environments.

    Each turn is one step to warm up and one that counts.
    """
    rates = smaller["env_steps_per_second"]
    field = Field(PHYSICS_TASKS[smaller["task"]], num_envs, 1)
    turns = [2 * num_envs / min(rates[name]) for name in rates if why_absent(name, field) is None]
    return float((_FEWEST_ROUNDS + 1) * sum(turns))


@contextlib.contextmanager
def _native_messages_held() -> Iterator[TextIO]:
    """Keep what native code and other processes print from the terminal; give a way to it.

    MuJoCo warns of each model that Gymnasium compiles. What was printed last is shown if it all
    ends with an exception.
    """
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w") as terminal, tempfile.TemporaryFile("w+") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield terminal
        except BaseException:
            held.seek(0)
            terminal.writelines(held.readlines()[-_LINES_SHOWN:])
            raise
        finally:
            sys.stderr.flush()
            os.dup2(terminal.fileno(), 2)


def _rival_versions() -> dict[str, str]:
    versions = {}
    for name in _RIVALS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Compare superdex on physics with MuJoCo's own speed and other vectorizers."
    )
    parser.add_argument(
        "--tasks",
        type=_tasks,
        metavar="T[,T…]",
        help="; ".join(f"{task.name}: {task.title}" for task in PHYSICS_TASKS.values()),
    )
    parser.add_argument("--num_envs", type=counts, metavar="N[,N…]", help="environments in all")
    parser.add_argument("--minutes", type=float, help="what the whole run may take")
    add_options(parser, plot="speed.png")
    return parser


def _tasks(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PHYSICS_TASKS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PHYSICS_TASKS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
