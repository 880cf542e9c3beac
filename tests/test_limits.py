"""How many CPUs and how much memory this process may use, in a container too."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex._limits import available_memory, container_memory, usable_cpus
from superdex.bench._machine import physical_cores
from superdex.vector import suggest_split
from superdex.vector._process import warn_of_crowd

MIB = 2**20
V1_UNLIMITED = 2**63 - 4096


class Machine:
    """A made-up file system with cgroups; `root` takes the place of `/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/self/cgroup", "")
        self.write("proc/self/mountinfo", "")

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")

    def append(self, path: str, line: str) -> None:
        with self.root.joinpath(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def version_2(self, path: str, top: str = "/", point: str = "/sys/fs/cgroup") -> None:
        """Be in that cgroup of version 2, with the part below `top` mounted at `point`."""
        self.append("proc/self/cgroup", f"0::{path}")
        self.append(
            "proc/self/mountinfo",
            f"30 23 0:26 {top} {point} rw,nosuid shared:4 - cgroup2 cgroup rw",
        )

    def version_1(self, controllers: str, path: str, top: str = "/") -> None:
        """Be in that cgroup of version 1."""
        self.append("proc/self/cgroup", f"4:{controllers}:{path}")
        self.append(
            "proc/self/mountinfo",
            f"36 31 0:31 {top} /sys/fs/cgroup/{controllers} rw - cgroup cgroup rw,{controllers}",
        )

    def memory(self, folder: str, limit: object, usage: object, inactive: int = 0) -> None:
        self.write(f"{folder}/memory.max", limit)
        self.write(f"{folder}/memory.current", usage)
        self.write(f"{folder}/memory.stat", f"anon 5\nfile 7\ninactive_file {inactive}\nslab 1")


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    """Return a machine with 16 CPUs for this process and 1000 MiB of free memory."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    free = psutil.virtual_memory()._replace(available=1000 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    return Machine(tmp_path)


def test_without_cgroups_affinity_and_free_memory_count(tmp_path, machine):
    """Where there is no such file at all, nothing is limited."""
    nothing = tmp_path / "nothing"
    assert usable_cpus(nothing) == 16
    assert available_memory(nothing) == 1000 * MIB
    assert container_memory(nothing) is None
    assert usable_cpus(machine.root) == 16


def test_without_affinity_all_cpus_count(tmp_path, monkeypatch):
    """Systems that have none let a process run everywhere."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cpus(tmp_path) == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus(tmp_path) == 1


def test_this_machine_has_both():
    """On a real system both are at least one and at most what the machine has."""
    assert 1 <= usable_cpus() <= (os.cpu_count() or 1)
    assert 0 < available_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("400000 100000", 4),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("9900000 100000", 16),
        ("max 100000", 16),
        ("", 16),
        ("nonsense", 16),
        ("100000 0", 16),
    ],
)
def test_quota_of_version_2_is_rounded_up(machine, text, cpus):
    """The quota counts where it is below the affinity, and one CPU at least is left."""
    machine.version_2("/job")
    machine.write("sys/fs/cgroup/job/cpu.max", text)
    assert usable_cpus(machine.root) == cpus


def test_quota_counts_wherever_cpus_are_counted(monkeypatch):
    """In the suggested split, in the warning of a crowd, and in what a sweep calls spare cores."""
    monkeypatch.setattr("superdex._limits._cpu_quota", lambda folder: 1)
    monkeypatch.setattr("superdex._limits._cgroup_folders", lambda root, controller: [root])
    assert suggest_split(10) == (1, 10)
    assert physical_cores() == 1
    with pytest.warns(RuntimeWarning, match=r"17 workers on 1 CPUs"):
        warn_of_crowd(17)


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [(400000, 100000, 4), (50000, 100000, 1), (250000, 100000, 3), (-1, 100000, 16), (1, "", 16)],
)
def test_quota_of_version_1_is_rounded_up(machine, quota, period, cpus):
    """Version 1 has two files, and −1 for no quota."""
    machine.version_1("cpu,cpuacct", "/job")
    machine.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", quota)
    machine.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", period)
    assert usable_cpus(machine.root) == cpus


def test_smallest_limit_of_the_ancestors_counts(machine):
    """What holds for a slice or a pod holds for what is in it."""
    machine.version_2("/slice/pod/job")
    machine.write("sys/fs/cgroup/slice/pod/job/cpu.max", "800000 100000")
    machine.write("sys/fs/cgroup/slice/pod/cpu.max", "max 100000")
    machine.write("sys/fs/cgroup/slice/cpu.max", "300000 100000")
    machine.memory("sys/fs/cgroup/slice/pod/job", 500 * MIB, 100 * MIB)
    machine.memory("sys/fs/cgroup/slice", 600 * MIB, 550 * MIB)
    assert usable_cpus(machine.root) == 3
    assert available_memory(machine.root) == 50 * MIB


def test_siblings_and_descendants_do_not_count(machine):
    """Only the way from the process's cgroup to the top does."""
    machine.version_2("/slice/job")
    for folder in ("slice/other", "slice/job/child", "elsewhere"):
        machine.write(f"sys/fs/cgroup/{folder}/cpu.max", "100000 100000")
        machine.memory(f"sys/fs/cgroup/{folder}", MIB, MIB)
    assert usable_cpus(machine.root) == 16
    assert container_memory(machine.root) is None


def test_memory_of_version_2_is_the_limit_less_what_is_used(machine):
    """The file cache that is given up at once is not used."""
    machine.version_2("/")
    machine.memory("sys/fs/cgroup", 300 * MIB, 120 * MIB, inactive=20 * MIB)
    assert container_memory(machine.root) == 200 * MIB
    assert available_memory(machine.root) == 200 * MIB


def test_memory_of_version_1_is_the_limit_less_what_is_used(machine):
    """Its files have other names."""
    machine.version_1("memory", "/job")
    folder = "sys/fs/cgroup/memory/job"
    machine.write(f"{folder}/memory.limit_in_bytes", 300 * MIB)
    machine.write(f"{folder}/memory.usage_in_bytes", 120 * MIB)
    machine.write(f"{folder}/memory.stat", f"inactive_file {MIB}\ntotal_inactive_file {20 * MIB}\n")
    assert container_memory(machine.root) == 200 * MIB


def test_no_limit_of_version_1_leaves_the_machines_memory(machine):
    """It is written as a number that no machine has."""
    machine.version_1("memory", "/")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_UNLIMITED)
    machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", 120 * MIB)
    assert available_memory(machine.root) == 1000 * MIB


def test_free_memory_of_the_machine_counts_where_it_is_less(machine):
    """A limit promises nothing."""
    machine.version_2("/")
    machine.memory("sys/fs/cgroup", 9000 * MIB, MIB)
    assert available_memory(machine.root) == 1000 * MIB


def test_a_limit_that_is_overdrawn_leaves_nothing(machine):
    """It is zero, never below."""
    machine.version_2("/")
    machine.memory("sys/fs/cgroup", 100 * MIB, 120 * MIB)
    assert available_memory(machine.root) == 0


def test_a_limit_without_usage_counts_whole(machine):
    """Usage that can't be read is taken for none, and a cache above the usage too."""
    machine.version_2("/")
    machine.write("sys/fs/cgroup/memory.max", 100 * MIB)
    assert available_memory(machine.root) == 100 * MIB
    machine.memory("sys/fs/cgroup", 100 * MIB, 5, inactive=10)
    assert available_memory(machine.root) == 100 * MIB


@pytest.mark.parametrize("limit", ["max", "", "nonsense", "-1"])
def test_no_limit_of_version_2_is_none(machine, limit):
    """And so is what can't be understood."""
    machine.version_2("/")
    machine.memory("sys/fs/cgroup", limit, 5)
    assert container_memory(machine.root) is None


def test_a_container_that_sees_its_own_cgroup_as_the_top_is_limited(machine):
    """In a cgroup namespace the path is "/", and what is mounted is the container's part."""
    machine.version_2("/", top="/")
    machine.write("sys/fs/cgroup/cpu.max", "200000 100000")
    assert usable_cpus(machine.root) == 2


@pytest.mark.parametrize("path", ["/docker/1234/job", "/docker/1234"])
def test_a_container_that_sees_the_hosts_path_is_limited(machine, path):
    """Without a cgroup namespace the path is the host's, and only a part of it is mounted."""
    machine.version_1("cpu", path, top="/docker/1234")
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", 200000)
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000)
    assert usable_cpus(machine.root) == 2


@pytest.mark.parametrize(("path", "top"), [("/../other", "/"), ("/other", "/docker/1234")])
def test_a_cgroup_outside_of_what_is_mounted_is_limited_by_the_mount(machine, path, top):
    """Its own files can't be seen, and no way leads out of the mount."""
    machine.version_2(path, top=top)
    machine.write("sys/fs/cgroup/cpu.max", "200000 100000")
    machine.write("sys/fs/other/cpu.max", "100000 100000")
    assert usable_cpus(machine.root) == 2


def test_a_mount_of_a_part_where_the_process_is_not_does_not_count(machine):
    """Where one mount shows the process's cgroup, another of the same kind says nothing."""
    machine.version_2("/job")
    machine.append(
        "proc/self/mountinfo", "31 23 0:26 /other /mnt/other rw - cgroup2 cgroup rw,nsdelegate"
    )
    machine.write("mnt/other/cpu.max", "100000 100000")
    assert usable_cpus(machine.root) == 16


def test_both_versions_count_side_by_side(machine):
    """Where a system has both, the smaller limit holds."""
    machine.version_1("cpu", "/job")
    machine.version_2("/job", point="/sys/fs/cgroup/unified")
    machine.write("sys/fs/cgroup/unified/job/cpu.max", "500000 100000")
    assert usable_cpus(machine.root) == 5
    machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", 300000)
    machine.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", 100000)
    assert usable_cpus(machine.root) == 3


def test_a_mount_point_with_a_space_is_found(machine):
    """The kernel writes it as an octal number."""
    machine.version_2("/job", point="/my\\040cgroups")
    machine.write("my cgroups/job/cpu.max", "200000 100000")
    assert usable_cpus(machine.root) == 2


@given(st.text(max_size=60), st.text(max_size=60))
def test_odd_files_limit_nothing(tmp_path_factory, cgroup, mountinfo):
    """What can't be parsed is no error."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.root.joinpath("proc/self/cgroup").write_bytes(cgroup.encode("utf-8", "replace"))
    machine.root.joinpath("proc/self/mountinfo").write_bytes(mountinfo.encode("utf-8", "replace"))
    assert usable_cpus(machine.root) >= 1
    assert container_memory(machine.root) is None
