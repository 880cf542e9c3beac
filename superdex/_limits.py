"""How many CPUs and how much memory this process may use, in a container too.

A container, a batch queue or a service manager limits its processes by control groups (cgroups),
of which neither `os.cpu_count` nor the free memory of the machine knows. A process is in one cgroup
of each hierarchy, and the limits of that cgroup and of all its ancestors hold. What is looked up::

    /proc/self/cgroup      in which cgroup the process is
    /proc/self/mountinfo   where its hierarchy is mounted, and which part of it
    cpu.max, memory.max    the limits, version 2
    cpu.cfs_quota_us, …    the limits, version 1

Files and their formats: `cgroups(7)`, `proc(5)` and the kernel's `cgroup-v2.rst`. What is missing
or can't be read limits nothing. `root` is the folder that takes the place of `/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

__all__ = ["available_memory", "container_memory", "usable_cpus"]

_ROOT = Path("/")

_MEMORY_FILES = (
    # limit, usage, and the file cache in it that is given up at once
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def usable_cpus(root: Path = _ROOT) -> int:
    """Return how many CPUs this process may use: by its affinity and by its cgroups' quota.

    A quota of one and a half CPUs counts as two.
    """
    affinity = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    quotas = (_cpu_quota(folder) for folder in _cgroup_folders(root, "cpu"))
    return min([cpus, *(quota for quota in quotas if quota is not None)])


def available_memory(root: Path = _ROOT) -> int:
    """Return how many bytes can be used without swapping, by the machine and by the cgroups."""
    machine: int = psutil.virtual_memory().available
    container = container_memory(root)
    return machine if container is None else min(machine, container)


def container_memory(root: Path = _ROOT) -> int | None:
    """Return how many bytes the limits of this process's cgroups leave; None without a limit.

    Version 1 writes "no limit" as a number near 2⁶³, which is returned as what it is.
    """
    lefts = (_memory_left(folder) for folder in _cgroup_folders(root, "memory"))
    return min((left for left in lefts if left is not None), default=None)


def _cpu_quota(folder: Path) -> int | None:
    """Return a cgroup's CPU quota in CPUs, rounded up."""
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    if not quota:
        quota = _read(folder / "cpu.cfs_quota_us")
        period = _read(folder / "cpu.cfs_period_us")
    microseconds, per = _number(quota), _number(period)
    return -(-microseconds // per) if microseconds and per else None


def _memory_left(folder: Path) -> int | None:
    """Return what a cgroup's memory limit leaves, in bytes."""
    for limit_name, usage_name, cache_name in _MEMORY_FILES:
        limit = _number(_read(folder / limit_name))
        if limit is not None:
            usage = _number(_read(folder / usage_name)) or 0
            stat = dict(re.findall(r"^(\w+) (\d+)$", _read(folder / "memory.stat"), re.MULTILINE))
            used = max(0, usage - int(stat.get(cache_name, 0)))
            return max(0, limit - used)
    return None


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups that may limit something, and their ancestors.

    Those of version 2, whatever they control, and of version 1 that of the controller.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not name or (controllers and controller not in controllers.split(",")):
            continue
        path = PurePosixPath(name)
        mounts = list(_mounts(root, controller if controllers else None))
        # Within a container the path may be the host's, outside of what is mounted; then the mount
        # is the container's own cgroup.
        below = [(point, path.relative_to(top)) for top, point in mounts if _holds(top, path)]
        for point, relative in below or [(point, PurePosixPath()) for _, point in mounts]:
            for ancestor in (relative, *relative.parents):
                yield point / ancestor


def _holds(top: PurePosixPath, path: PurePosixPath) -> bool:
    """Return whether a path is below the top of a mount; ".." leads out of a cgroup namespace."""
    return path.is_relative_to(top) and ".." not in path.parts


def _mounts(root: Path, controller: str | None) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield which part of the hierarchy is mounted, and where; version 2 without a controller."""
    for line in _read(root / "proc/self/mountinfo").splitlines():
        mount, _, file_system = line.partition(" - ")
        fields, words = mount.split(), file_system.split()
        if len(fields) < 5 or not words:
            continue
        wanted = (
            words[0] == "cgroup2"
            if controller is None
            else words[0] == "cgroup" and controller in words[-1].split(",")
        )
        if wanted:
            top, point = (_unescape(field) for field in fields[3:5])
            yield PurePosixPath(top), root / point.lstrip("/")


def _unescape(field: str) -> str:
    """Return a path of mountinfo, where spaces are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _read(path: Path) -> str:
    """Return what a file holds, or nothing where it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """Return a number of at least 0; None for "max", "-1" and nothing."""
    return int(text) if text.isdecimal() else None
