"""Start-up time and memory of vectors of the built-in environments.

For each class: how long it takes to start, construct and reset so many; how much of that is left
once the first worker is up, with Python and MuJoCo loaded; what the whole process tree takes then
(PSS, which counts a page shared by n processes as 1/n each); and what each further environment
costs in its worker, as the difference between two sizes of one worker.

    python benchmarks/footprint.py --num_envs 4096 --num_workers 2
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from superdex.bench import describe_commit, describe_machine, describe_versions
from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv, SceneEnv
from superdex.vector import HybridVectorEnv

ENVS: tuple[type[SceneEnv], ...] = (CartPoleEnv, HalfCheetahEnv, AntEnv)
SIZES = (250, 1250)


@dataclass(frozen=True)
class Start:
    """What a start took.

    Attributes:
        seconds: From the call of the constructor to the end of the first reset.
        seconds_once_up: The part of them after the first worker was up.
        tree_mib: The memory of all processes then.
    """

    seconds: float
    seconds_once_up: float
    tree_mib: float


@dataclass(frozen=True)
class Timed:
    """Builds an environment, and notes when its process was about to build the first.

    Attributes:
        env_class: The environment's class.
        folder: Where each process leaves its time.
    """

    env_class: type[SceneEnv]
    folder: str

    def __call__(self) -> SceneEnv:
        """Build one."""
        note = Path(self.folder, str(os.getpid()))
        if not note.exists():
            importlib.import_module("mujoco")
            # of one clock for all processes of the machine
            note.write_text(repr(time.monotonic()), encoding="utf-8")
        return self.env_class()


def tree_mib() -> float:
    """Return the PSS of this process and all below it, in MiB."""
    process = psutil.Process()
    tree = [process, *process.children(recursive=True)]
    return float(sum(p.memory_full_info().pss for p in tree)) / 2**20


def start(env_class: type[SceneEnv], num_envs: int, num_workers: int) -> Start:
    """Start a vector, reset it, and return what that took."""
    with tempfile.TemporaryDirectory(prefix="superdex-") as folder:
        env_fns = [Timed(env_class, folder)] * num_envs
        started = time.monotonic()
        with HybridVectorEnv(env_fns, num_workers=num_workers) as envs:
            envs.reset(seed=0)
            ready = time.monotonic()
            up = min(float(note.read_text(encoding="utf-8")) for note in Path(folder).iterdir())
            return Start(ready - started, ready - up, tree_mib())


def worker_bytes(env_class: type[SceneEnv], num_envs: int) -> int:
    """Return the USS of one worker with so many environments, after some steps."""
    with HybridVectorEnv([env_class] * num_envs, num_workers=1) as envs:
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(envs.action_space.sample())
        return int(psutil.Process(envs.worker_pids[0]).memory_full_info().uss)


def main() -> None:
    """Measure and print the table."""
    known = {env_class.__name__: env_class for env_class in ENVS}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_envs", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--num_workers", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument(
        "--envs",
        type=lambda text: [known[name] for name in text.split(",")],
        default=list(ENVS),
        metavar="E[,E…]",
        help=f"of {', '.join(known)} (default: all)",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures as JSON")
    settings = parser.parse_args()

    table = Table(title=f"{settings.num_envs} environments, {settings.num_workers} workers")
    headings = ("Environment", "Ready in s", "Of that once up, s", "Tree, MiB", "Each further, KiB")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "Environment" else "right")
    rows = []
    for env_class in settings.envs:
        rounds = [
            start(env_class, settings.num_envs, settings.num_workers)
            for _ in range(settings.rounds)
        ]
        small, large = (worker_bytes(env_class, size) for size in SIZES)
        each_kib = (large - small) / (SIZES[1] - SIZES[0]) / 1024
        table.add_row(
            env_class.__name__,
            f"{statistics.median(each.seconds for each in rounds):.2f}",
            f"{statistics.median(each.seconds_once_up for each in rounds):.2f}",
            f"{statistics.median(each.tree_mib for each in rounds):.0f}",
            f"{each_kib:.1f}",
        )
        rows.append(
            {
                "env": env_class.__name__,
                "rounds": [asdict(each) for each in rounds],
                "each_further_kib": each_kib,
            }
        )
    Console().print(table)
    if settings.json is not None:
        report = {
            "machine": describe_machine(),
            "versions": describe_versions(),
            "commit": describe_commit(),
            "num_envs": settings.num_envs,
            "num_workers": settings.num_workers,
            "rows": rows,
        }
        settings.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
