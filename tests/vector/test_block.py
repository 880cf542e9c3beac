"""One block of memory that two processes map."""

from __future__ import annotations

import os
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


def test_a_block_larger_than_memory_is_refused_with_both_numbers(monkeypatch):
    """What does not fit is an error with both numbers, before the first touch."""
    few = psutil.virtual_memory()._replace(available=2**10)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: few)
    large = batch_layout(1, 1000, Box(0, 255, (84, 84, 4), np.uint8), SPACE)
    before = open_descriptors()
    with pytest.raises(MemoryError, match=r"block of \d+ MiB .* has 0 MiB available"):
        Block(large)
    assert open_descriptors() == before
