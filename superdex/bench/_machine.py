"""What a sweep ran on: the machine, the versions and the commit."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

import superdex
from superdex._limits import usable_cpus

__all__ = ["describe_commit", "describe_machine", "describe_versions", "physical_cores"]

_DISTRIBUTIONS = ("gymnasium", "mujoco", "numpy")


def physical_cores() -> int:
    """Return how many physical cores this process may use, as far as the system says."""
    logical = psutil.cpu_count(logical=True) or 1
    cores = psutil.cpu_count(logical=False) or logical
    return min(cores, usable_cpus())


def describe_machine() -> dict[str, Any]:
    """Return the processor, cores, memory and system, as plain values."""
    return {
        "processor": _processor(),
        "physical_cores": physical_cores(),
        "logical_cores": psutil.cpu_count(logical=True),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
    }


def describe_versions() -> dict[str, str]:
    """Return the versions of Python, this package and what it stands on."""
    versions = {"python": platform.python_version(), "superdex": superdex.__version__}
    for name in _DISTRIBUTIONS:
        versions[name] = importlib.metadata.version(name)
    return versions


def describe_commit() -> str | None:
    """Return the checkout's commit, "+" added where files differ from it; None without a checkout.

    The checkout is the one that tracks this package; an installed package has none, and then it is
    the one that the working directory belongs to.
    """
    package = Path(superdex.__file__).parent
    tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None
    folder = package if tracked else Path.cwd()
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return commit + ("+" if _git(folder, "status", "--porcelain") else "")


def _git(folder: Path, *args: str) -> str | None:
    """Return what git says, or None where it fails or isn't there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    """Return the processor's name; Linux keeps it where `platform` doesn't look."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
