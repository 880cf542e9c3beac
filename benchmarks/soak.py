"""Run a vector for very long and see whether anything grows: memory, descriptors, threads, blocks.

    python benchmarks/soak.py --steps 1000000 --cycles 200 --num_workers 2 --plot soak.png

First one vector takes all the steps, with infos of every kind, episode ends, calls, renderings and
partial resets in between. Then vectors are made, reset, stepped a little and closed, over and over.
The parent and its workers are measured all along: their own memory (anonymous, swapped out too),
their share of the shared memory, descriptors, threads, mapped blocks, children, names in /dev/shm.
Memory grows if the 99 % interval of its slope lies above zero and what it gains over the measured
part is above a floor, which the allocator needs for itself. Counts have no floor. The exit code is
1 if anything grows. What is measured comes from /proc, so this runs on Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
from gymnasium.spaces import Box
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from growth import Growth
from holdings import MEMORY, Names, Series, judge, measure_parent, measure_workers
from superdex.bench import describe_commit, describe_machine, describe_versions
from superdex.vector import HybridVectorEnv

__all__ = ["Busy", "make_vector", "soak_cycles", "soak_steps"]

# glibc's arenas grow and shrink by about this much with no leak at all. Over a million steps it is
# a quarter of a byte a step, less than any object that could be left behind each time.
FLOOR_BYTES = 256 * 1024
_SAMPLES = 200
_STEPS_PER_CYCLE = 20


class Busy(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Costs little and gives everything: infos of every kind and episodes of 5 to 24 steps.

    Args:
        tag: Differs from one environment to the next, so that infos do.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as in the base class

    def __init__(self, tag: int = 0) -> None:
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.render_mode = "rgb_array"
        self.tag = tag
        self.gain = 1.0
        self._steps = 0
        self._length = 5

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw the length of an episode and begin it."""
        super().reset(seed=seed)
        self._steps = 0
        self._length = int(self.np_random.integers(5, 25))
        return np.zeros(4, np.float32), {"length": self._length}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Return noise, with infos that differ in kind, length and presence from step to step."""
        self._steps += 1
        observation = self.np_random.normal(size=4).astype(np.float32)
        info: dict[str, Any] = {
            "energy": float(action @ action) * self.gain,
            "steps": self._steps,
            "word": "ab" * (self._steps % 5),
            "ragged": observation[: 1 + (self._steps + self.tag) % 4],
            "nested": {"half": self._steps / 2, "name": f"env {self.tag}"},
        }
        if self._steps % 7 == 0:
            info["sometimes"] = None if self._steps % 2 else [self._steps]
        ended = self._steps >= self._length
        terminated = ended and self._length % 2 == 0
        return observation, 1.0, terminated, ended and not terminated, info

    def render(self) -> NDArray[np.uint8]:
        """Return a small picture."""
        return np.full((8, 8, 3), self.tag, np.uint8)

    def add(self, number: int) -> int:
        """Return a sum."""
        return self.tag + number


def soak_steps(
    make: Callable[[], HybridVectorEnv],
    steps: int,
    *,
    samples: int = _SAMPLES,
    advance: Callable[[int], object] = lambda _: None,
) -> Series:
    """Step one vector so often, using its other calls in between, and measure all along.

    Args:
        make: Makes the vector, of environments like `Busy`.
        steps: Calls of `step`.
        samples: How often to measure, evenly.
        advance: Called with the number of steps done since its last call.
    """
    every = max(1, steps // samples)
    series = Series("steps", per=100_000, size=steps // every)
    names = Names()
    with make() as vector:
        workers = [psutil.Process(pid) for pid in vector.worker_pids]
        actions = _draw_actions(vector)
        vector.reset(seed=0)
        for step in range(1, steps + 1):
            vector.step(actions[step % len(actions)])
            _use_other_calls(vector, step)
            if step % every == 0:
                names.look()
                series.add(step, measure_parent() | measure_workers(workers))
                advance(every)
    series.quantities["names left in /dev/shm"] = np.array(names.count_left(), np.float64)
    return series


def soak_cycles(
    make: Callable[[], HybridVectorEnv],
    cycles: int,
    *,
    advance: Callable[[int], object] = lambda _: None,
) -> Series:
    """Make, reset, step and close so many vectors; measure workers before each close, all after it.

    Args:
        make: Makes the vector, of environments like `Busy`.
        cycles: How many vectors.
        advance: Called with 1 after each.
    """
    series = Series("cycles", per=100, size=cycles)
    names = Names()
    for cycle in range(1, cycles + 1):
        with make() as vector:
            actions = _draw_actions(vector)
            vector.reset(seed=cycle)
            for step in range(1, _STEPS_PER_CYCLE + 1):
                vector.step(actions[step % len(actions)])
            _use_other_calls(vector, 0)  # a multiple of everything: each call once
            workers = measure_workers([psutil.Process(pid) for pid in vector.worker_pids])
        del vector
        names.look()
        series.add(cycle, measure_parent() | workers)
        advance(1)
    series.quantities["names left in /dev/shm"] = np.array(names.count_left(), np.float64)
    return series


def _use_other_calls(vector: HybridVectorEnv, step: int) -> None:
    """Make now and then the calls that a training makes now and then."""
    if step % 50 == 0:
        vector.call("add", step)
    if step % 70 == 0:
        vector.reset_envs([0, vector.num_envs - 1], options={"step": step})
    if step % 90 == 0:
        vector.set_attr("gain", 1.0 + step % 3)
    if step % 200 == 0:
        vector.render()
    if step % 1000 == 0:
        vector.reset(seed=step)


def _draw_actions(vector: HybridVectorEnv) -> list[NDArray[Any]]:
    vector.action_space.seed(0)
    return [vector.action_space.sample() for _ in range(16)]


def make_vector(num_envs: int, num_workers: int) -> HybridVectorEnv:
    """Return a vector of `Busy` environments."""
    return HybridVectorEnv([partial(Busy, tag) for tag in range(num_envs)], num_workers=num_workers)


def render(series: Series, verdicts: dict[str, Growth]) -> Table:
    """Return a table of one part: each quantity's slope, its interval and the verdict."""
    table = Table(title=f"{series.x[-1]:,.0f} {series.unit}", title_justify="left")
    table.add_column("Quantity", no_wrap=True)
    for heading in ("First", "Last", f"Slope per {series.per:,} {series.unit}", "Verdict"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, growth in verdicts.items():
        values = series.quantities[name]
        if name.endswith(MEMORY):
            first, last = (f"{value / 1024:,.0f} KiB" for value in (values[0], values[-1]))
            slope = f"{growth.slope * series.per / 1024:+.1f} ± "
            slope += f"{growth.error * series.per / 1024:.1f} KiB"
        else:
            first, last = (f"{value:.0f}" for value in (values[0], values[-1]))
            slope = f"{growth.slope * series.per:+.1f}"
        verdict = "[bold red]grows" if growth.grows else "[green]flat"
        table.add_row(name, first, last, slope, verdict)
    return table


def plot(parts: Sequence[Series], path: Path) -> None:
    """Draw all curves, a row for each part and a column for each kind of quantity."""
    from matplotlib.figure import Figure

    kinds = (" shared memory", " memory", " descriptors", " threads", " blocks")
    figure = Figure(figsize=(4 * (len(kinds) + 1), 3.5 * len(parts)), layout="constrained")
    grid = figure.subplots(len(parts), len(kinds) + 1, squeeze=False)
    for row, series in zip(grid, parts, strict=True):
        left = dict(series.quantities)
        for axes, kind in zip(row, (*kinds, ""), strict=True):
            scale = 2**20 if kind.endswith(MEMORY) else 1
            for name in [name for name in left if name.endswith(kind)]:
                axes.plot(series.x, left.pop(name) / scale, label=name.removesuffix(kind))
            title = kind.strip() or "others"
            axes.set(title=f"{title}, MiB" if scale > 1 else title, xlabel=series.unit)
            axes.legend()
    figure.savefig(path)


def main(argv: Sequence[str] | None = None) -> int:
    """Soak as the command line asks, show the slopes, and return 1 if anything grows."""
    arguments = _build_parser().parse_args(argv)
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 120
    make = partial(make_vector, arguments.num_envs, arguments.num_workers)
    columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
    parts: list[Series] = []
    with Progress(*columns, console=errors) as progress:
        if arguments.steps:
            task = progress.add_task("steps", total=arguments.steps)
            advance = partial(progress.advance, task)
            parts.append(soak_steps(make, arguments.steps, advance=advance))
        if arguments.cycles:
            task = progress.add_task("cycles", total=arguments.cycles)
            advance = partial(progress.advance, task)
            parts.append(soak_cycles(make, arguments.cycles, advance=advance))
    verdicts = [judge(series, floor=FLOOR_BYTES) for series in parts]
    for series, growths in zip(parts, verdicts, strict=True):
        console.print(render(series, growths))
    if arguments.json is not None:
        report = {
            "machine": describe_machine(),
            "versions": describe_versions(),
            "commit": describe_commit(),
            "num_envs": arguments.num_envs,
            "num_workers": arguments.num_workers,
            "floor_bytes": FLOOR_BYTES,
            "parts": [
                series.to_dict() | {"growth": {name: asdict(g) for name, g in growths.items()}}
                for series, growths in zip(parts, verdicts, strict=True)
            ],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        plot(parts, arguments.plot)
    return int(any(growth.grows for growths in verdicts for growth in growths.values()))


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Run a vector for very long and see whether anything grows.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--steps",
        type=_count(10, or_zero=True),
        default=1_000_000,
        help="calls of step; 0 leaves this part out",
    )
    parser.add_argument(
        "--cycles",
        type=_count(5, or_zero=True),
        default=200,
        help="vectors made and closed; 0 leaves this part out",
    )
    parser.add_argument("--num_envs", type=_count(1), default=8, help="environments of a vector")
    parser.add_argument("--num_workers", type=_count(1), default=2, help="its workers")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="PATH", help="draw all curves, with matplotlib"
    )
    return parser


def _count(least: int, *, or_zero: bool = False) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if text.isdecimal() else -1
        if number >= least or (or_zero and number == 0):
            return number
        expected = f"a whole number of at least {least}" + (", or 0" if or_zero else "")
        raise argparse.ArgumentTypeError(f"expected {expected}; got {text!r}")

    return parse


if __name__ == "__main__":
    sys.exit(main())
