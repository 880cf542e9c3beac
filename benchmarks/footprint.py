"""Start-up time and memory of vectors of the built-in environments.

For each class: how long it takes to construct and reset so many, what the whole process tree takes
then (PSS, which counts a page shared by n processes as 1/n each), and what each further environment
costs in its worker, as the difference between two sizes of one worker.

    python benchmarks/footprint.py --num_envs 1000 --num_workers 8
"""

from __future__ import annotations

import argparse
import statistics
import time

import psutil
from rich.console import Console
from rich.table import Table

from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv, SceneEnv
from superdex.vector import HybridVectorEnv

ENVS: tuple[type[SceneEnv], ...] = (CartPoleEnv, HalfCheetahEnv, AntEnv)
SIZES = (250, 1250)


def tree_mib() -> float:
    """Return the PSS of this process and all below it, in MiB."""
    process = psutil.Process()
    tree = [process, *process.children(recursive=True)]
    return float(sum(p.memory_full_info().pss for p in tree)) / 2**20


def start(env_class: type[SceneEnv], num_envs: int, num_workers: int) -> tuple[float, float]:
    """Return the seconds to construct and reset, and the MiB of the tree then."""
    started = time.perf_counter()
    with HybridVectorEnv([env_class] * num_envs, num_workers=num_workers) as envs:
        envs.reset(seed=0)
        return time.perf_counter() - started, tree_mib()


def worker_bytes(env_class: type[SceneEnv], num_envs: int) -> int:
    """Return the USS of one worker with so many environments, after some steps."""
    with HybridVectorEnv([env_class] * num_envs, num_workers=1) as envs:
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(envs.action_space.sample())
        return int(psutil.Process(envs.worker_pids[0]).memory_full_info().uss)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_envs", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--num_workers", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    settings = parser.parse_args()

    table = Table(title=f"{settings.num_envs} environments, {settings.num_workers} workers")
    for column in ("Environment", "Ready in s", "Tree, MiB", "Each further, KiB"):
        table.add_column(column, justify="left" if column == "Environment" else "right")
    for env_class in ENVS:
        rounds = [
            start(env_class, settings.num_envs, settings.num_workers)
            for _ in range(settings.rounds)
        ]
        small, large = (worker_bytes(env_class, size) for size in SIZES)
        table.add_row(
            env_class.__name__,
            f"{statistics.median(seconds for seconds, _ in rounds):.2f}",
            f"{statistics.median(mib for _, mib in rounds):.0f}",
            f"{(large - small) / (SIZES[1] - SIZES[0]) / 1024:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
