"""On which CPUs workers run.

A process inherits the affinity of the thread that starts it. So a worker is put on its CPUs by
starting it from a thread that runs on them, and is there before it imports anything: libraries
that count CPUs at their import see those that it has.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["checked_affinity", "running_on"]

_TOPOLOGY = Path("/sys/devices/system/cpu")


def checked_affinity(worker_affinity: Any, num_workers: int) -> tuple[frozenset[int], ...] | None:
    """Return the CPUs of each worker, or None to leave them where the system puts them.

    Args:
        worker_affinity: None; "spread" for one CPU per worker, each on a physical core of its own
            as long as there are any; or a list whose entries are a CPU or a collection of CPUs.
            Workers take the CPUs or the entries in turn, and begin again after the last.
        num_workers: All workers, W.

    Raises:
        ValueError: If it is anything else, or names a CPU that this process may not use.
        NotImplementedError: If the system can't do it.
    """
    if worker_affinity is None:
        return None
    if not hasattr(os, "sched_setaffinity"):
        raise NotImplementedError(
            f"worker_affinity needs sched_setaffinity, which {sys.platform} does not have; "
            "expected None."
        )
    usable = os.sched_getaffinity(0)
    if isinstance(worker_affinity, str) and worker_affinity == "spread":
        entries = [frozenset([cpu]) for cpu in spread_order(usable)]
    else:
        entries = _checked_entries(worker_affinity, usable)
    return tuple(entries[worker % len(entries)] for worker in range(num_workers))


@contextlib.contextmanager
def running_on(cpus: Collection[int] | None) -> Iterator[None]:
    """Run the calling thread, and processes and threads that it starts, on these CPUs.

    At the end the thread, but nothing that it started, is back where it was. None changes nothing.
    Only the calling thread is concerned: others of the process stay where they are.

    Raises:
        OSError: If the thread may not run on any of them, for instance as they went offline.
    """
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            raise OSError(
                error.errno,
                f"A worker can't be put on CPUs {_ranges(cpus)} ({error.strerror}); usable are "
                f"{_ranges(before)}",
            ) from error
        yield
    finally:
        os.sched_setaffinity(0, before)


def spread_order(cpus: Iterable[int], topology: Path = _TOPOLOGY) -> list[int]:
    """Return CPUs with the first of each physical core first, then the second of each, and so on.

    Args:
        cpus: Which.
        topology: The folder in which the system describes its CPUs. One that is not described there
            counts as a core of its own.
    """
    ranks: dict[int, int] = {}
    seen: dict[str, int] = {}
    for cpu in sorted(cpus):
        core = _core(cpu, topology)
        ranks[cpu] = seen[core] = seen.get(core, -1) + 1
    return sorted(ranks, key=lambda cpu: (ranks[cpu], cpu))


def _core(cpu: int, topology: Path) -> str:
    """Return a text that all CPUs of one physical core have in common, and no others."""
    for name in ("core_cpus_list", "thread_siblings_list"):  # the second is the older name
        with contextlib.suppress(OSError, ValueError):
            siblings = (topology / f"cpu{cpu}" / "topology" / name).read_text().strip()
            if siblings:
                return siblings
    return f"{cpu}"


def _checked_entries(worker_affinity: Any, usable: set[int]) -> list[frozenset[int]]:
    if not _is_list(worker_affinity):
        raise ValueError(
            "worker_affinity must be None, 'spread' or a list whose entries are a CPU or a "
            f"collection of CPUs, got {worker_affinity!r}."
        )
    if len(worker_affinity) == 0:
        raise ValueError(
            "worker_affinity is empty: expected a CPU or a collection of CPUs for each worker, "
            f"which may use CPUs {_ranges(usable)}."
        )
    return [
        _checked_entry(f"worker_affinity[{index}]", entry, usable)
        for index, entry in enumerate(worker_affinity)
    ]


def _checked_entry(name: str, entry: Any, usable: set[int]) -> frozenset[int]:
    """Return the CPUs that one entry names."""
    cpus = list(entry) if _is_list(entry) or isinstance(entry, set | frozenset) else [entry]
    if not cpus:
        raise ValueError(
            f"{name} is empty: expected a CPU or a collection of CPUs; usable are "
            f"{_ranges(usable)}."
        )
    for cpu in cpus:
        if isinstance(cpu, bool) or not isinstance(cpu, int | np.integer) or cpu < 0:
            raise ValueError(
                f"{name} must be a CPU, an integer of at least 0, or a collection of CPUs, got "
                f"{entry!r}."
            )
        if cpu not in usable:
            raise ValueError(
                f"{name} names CPU {cpu}, which this process may not use or which is not there; "
                f"usable are {_ranges(usable)}."
            )
    return frozenset(int(cpu) for cpu in cpus)


def _is_list(value: Any) -> bool:
    """Return whether it is an array or a sequence, and no text."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _ranges(cpus: Iterable[int]) -> str:
    """Return CPUs as the system writes them: "0-3, 8"."""
    runs = [
        [cpu for _, cpu in run]
        for _, run in groupby(enumerate(sorted(cpus)), lambda item: item[1] - item[0])
    ]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
