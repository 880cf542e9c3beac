"""One block of memory that two processes map."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box

from superdex.vector._block import Block
from superdex.vector._layout import batch_layout

SPACE = Box(-1, 1, (2,), np.float32)
LAYOUT = batch_layout(1, 3, SPACE, SPACE)


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_new_block_is_zero():
    """Nothing uninitialised is ever shown."""
    with Block(LAYOUT) as block:
        assert all(not array.any() for array in block.arrays.values())


def test_a_second_map_sees_the_same_memory():
    """What one process writes, the other reads."""
    with Block(LAYOUT) as ours, Block(LAYOUT, os.dup(ours.fd)) as theirs:
        ours.arrays["action"][1] = [3, 4]
        assert theirs.arrays["action"][1].tolist() == [3, 4]


def test_close_gives_the_descriptor_back():
    """A closed block holds no descriptor, and closing twice does nothing."""
    before = open_descriptors()
    block = Block(LAYOUT)
    assert open_descriptors() != before
    block.close()
    block.close()
    assert open_descriptors() == before


def test_views_outlive_the_block():
    """An array that somebody still holds stays readable after close."""
    block = Block(LAYOUT)
    reward = block.arrays["reward"]
    reward[0, 1] = 7
    block.close()
    assert reward[0, 1] == 7


def test_the_block_has_no_name_to_leave_behind():
    """Its file is found nowhere, even while it is open."""
    with Block(LAYOUT) as block:
        assert os.readlink(f"/proc/self/fd/{block.fd}").endswith("(deleted)")  # noqa: PTH115
        assert os.fstat(block.fd).st_nlink == 0


LARGE = batch_layout(1, 1000, Box(0, 255, (84, 84, 4), np.uint8), SPACE)


def test_a_block_larger_than_memory_is_refused_with_both_numbers(monkeypatch):
    """What does not fit is an error with both numbers, before the first touch."""
    few = psutil.virtual_memory()._replace(available=2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: few)
    monkeypatch.setattr("superdex._limits.container_memory", lambda root: 2**63 - 4096)
    before = open_descriptors()
    with pytest.raises(MemoryError, match=r"block of \d+ MiB and the machine has 1 MiB available"):
        Block(LARGE)
    assert open_descriptors() == before


def test_a_block_larger_than_the_containers_limit_is_refused_with_both_numbers(monkeypatch):
    """The message says that it is the container's, which the user may raise."""
    monkeypatch.setattr("superdex._limits.container_memory", lambda root: 3 * 2**20)
    monkeypatch.setattr("superdex._memory.container_memory", lambda: 3 * 2**20)
    before = open_descriptors()
    with pytest.raises(
        MemoryError,
        match=r"block of \d+ MiB and the memory limit of its container .* 3 MiB\. Raise",
    ):
        Block(LARGE)
    assert open_descriptors() == before


def test_a_block_that_just_fits_is_made(monkeypatch):
    """Only what is larger is refused, not counting pages that may never be touched."""
    needed = LAYOUT.nbytes - LAYOUT.nbytes_untouched
    monkeypatch.setattr("superdex._memory.available_memory", lambda: needed)
    Block(LAYOUT).close()
    monkeypatch.setattr("superdex._memory.available_memory", lambda: needed - 1)
    with pytest.raises(MemoryError):
        Block(LAYOUT)


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_FSIZE"])
def test_a_limit_of_the_process_is_an_error_that_names_the_size(limit):
    """Whether the file may not grow or not be mapped, no descriptor is left over."""
    program = """
        import os, resource, sys
        import numpy as np
        from gymnasium.spaces import Box
        from superdex.vector._block import Block
        from superdex.vector._layout import batch_layout

        space = Box(0, 255, (84, 84, 4), np.uint8)
        layout = batch_layout(1, 500, space, space)
        before = os.listdir("/proc/self/fd")
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        room = {"RLIMIT_AS": used + 2**20, "RLIMIT_FSIZE": 2**20}[sys.argv[1]]
        resource.setrlimit(getattr(resource, sys.argv[1]), (room, room))
        try:
            Block(layout)
        except MemoryError as error:
            print(error)
        print(os.listdir("/proc/self/fd") == before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), limit],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.match(r"The batch needs a block of \d+ MiB, which the system refused", done.stdout)
    assert done.stdout.endswith("\nTrue\n")
    assert done.stderr == ""


def without_memfd(monkeypatch, folder: Path) -> None:
    """Be on a system that has no `memfd`, with temporary files in that folder."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


def refused(name: str, flags: int) -> int:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_temporary_file_takes_over_where_there_is_no_memfd(monkeypatch, tmp_path):
    """It has no name either."""
    without_memfd(monkeypatch, tmp_path)
    with Block(LAYOUT) as ours, Block(LAYOUT, os.dup(ours.fd)) as theirs:
        ours.arrays["action"][1] = [3, 4]
        assert theirs.arrays["action"][1].tolist() == [3, 4]
        assert os.fstat(ours.fd).st_nlink == 0
        assert list(tmp_path.iterdir()) == []


def test_a_temporary_file_takes_over_where_a_sandbox_forbids_memfd(monkeypatch, tmp_path):
    """A refusal of the kernel is no failure."""
    monkeypatch.setattr(os, "memfd_create", refused)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Block(LAYOUT) as block:
        assert not block.arrays["action"].any()
        assert os.readlink(f"/proc/self/fd/{block.fd}").startswith(str(tmp_path))  # noqa: PTH115


def test_a_block_larger_than_the_temporary_disk_is_refused_with_both_numbers(monkeypatch, tmp_path):
    """Else it would end in a bus error when the disk is full."""
    without_memfd(monkeypatch, tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=2 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(MemoryError, match=r"block of \d+ MiB and /.* has 2 MiB free.*TMPDIR"):
        Block(LARGE)
    assert list(tmp_path.iterdir()) == []
