"""What the processes of a vector hold: memory, descriptors, threads, mapped blocks, names.

Everything is read from /proc, so this is for Linux.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from growth import Growth, count_growth, memory_growth

__all__ = ["MEMORY", "Names", "Series", "judge", "measure_parent", "measure_workers"]

# How the names of quantities in bytes end; the others are counts.
MEMORY = "memory"
_PATIENCE_SECONDS = 2.0


class Series:
    """What was measured in one part of the soak, in arrays that are there from the start.

    A list that grew would be growth of the parent's memory itself.

    Args:
        unit: What x counts: "steps" or "cycles".
        per: How many of them the slope is given for.
        size: How many measurements there will be.

    Attributes:
        x: Where it was measured.
        quantities: Name → one value for each x; bytes where the name ends in "memory".
    """

    def __init__(self, unit: str, *, per: int, size: int) -> None:
        self.unit, self.per = unit, per
        self.x = np.zeros(size)
        self.quantities: dict[str, NDArray[np.float64]] = {}
        self._taken = 0

    def add(self, x: int, values: dict[str, float]) -> None:
        """Take down one measurement of everything."""
        self.x[self._taken] = x
        for name, value in values.items():
            if name not in self.quantities:
                self.quantities[name] = np.full(len(self.x), np.nan)
            self.quantities[name][self._taken] = value
        self._taken += 1

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "unit": self.unit,
            "per": self.per,
            "x": self.x.tolist(),
            "quantities": {name: values.tolist() for name, values in self.quantities.items()},
        }


def judge(series: Series, *, floor: float) -> dict[str, Growth]:
    """Return for each quantity whether it grows; of memory, `floor` bytes are the allocator's."""
    return {
        name: memory_growth(series.x, values, floor=floor)
        if name.endswith(MEMORY)
        else count_growth(series.x, values)
        for name, values in series.quantities.items()
    }


def measure_parent() -> dict[str, float]:
    """Return what this process holds now, and how many processes are below it."""
    # What is garbage by now is no leak, and when it is collected is chance.
    gc.collect()
    parent = psutil.Process()
    return {
        **_measure(parent, "parent"),
        "children": len(parent.children(recursive=True)),
    }


def measure_workers(workers: Sequence[psutil.Process]) -> dict[str, float]:
    """Return what each worker holds now."""
    values: dict[str, float] = {}
    for index, worker in enumerate(workers):
        values |= _measure(worker, f"worker {index}")
    return values


def _measure(process: psutil.Process, name: str) -> dict[str, float]:
    folder = Path(f"/proc/{process.pid}")
    lines = (folder / "smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]
    kib = {key: int(value.split()[0]) for key, _, value in (line.partition(":") for line in lines)}
    maps = (folder / "maps").read_text(encoding="utf-8").splitlines()
    return {
        # Not USS: it has the pages of libraries too, whenever no other process on the machine maps
        # them.
        f"{name} memory": 1024 * (kib["Anonymous"] + kib["Swap"]),
        f"{name} shared memory": 1024 * kib["Pss_Shmem"],
        f"{name} descriptors": process.num_fds(),
        f"{name} threads": process.num_threads(),
        f"{name} blocks": sum("/memfd:" in line or "/dev/shm/" in line for line in maps),
    }


class Names:
    """Counts what is left in /dev/shm.

    Other programs use it too, for moments or seconds: what counts is new since the start and still
    there when all is over and some time has passed.
    """

    def __init__(self) -> None:
        self._before = self._all()
        self._looks = 0
        # Name → the look that saw it first; those that are gone again are forgotten, since notes
        # that grew would be growth of the parent's memory itself.
        self._first: dict[str, int] = {}

    def look(self) -> None:
        """Take down what is there now."""
        new = self._all() - self._before
        self._first = {name: self._first.get(name, self._looks) for name in new}
        self._looks += 1

    def count_left(self) -> list[int]:
        """Return for each look how many of the names seen by then were never removed."""
        left = self._all() - self._before
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left and time.monotonic() < deadline:
            time.sleep(0.1)
            left &= self._all()
        first = [self._first[name] for name in left if name in self._first]
        return [sum(number <= look for number in first) for look in range(self._looks)]

    def _all(self) -> frozenset[str]:
        return frozenset(path.name for path in Path("/dev/shm").iterdir())
