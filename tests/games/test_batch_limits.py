"""Batches where memory, threads or numbers run out."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from superdex.games import load

CODE = """
import resource, sys
from pathlib import Path
from superdex.games import load
library = load(sys.argv[1])
batch = library.create(8, num_threads=2)
threads = lambda: len(list(Path("/proc/self/task").iterdir()))
before = threads()
limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (128 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for settings in eval(sys.argv[2]):
    try:
        library.create(**settings)
    except MemoryError as error:
        print(error)
print(threads() - before)
batch.step([0] * 8)
library.create(8, num_threads=2).step([0] * 8)
"""


def refused(path, *settings):
    """Return what a process of little memory prints that tries to make these batches."""
    command = [sys.executable, "-c", CODE, path, repr(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="limits and threads are read as Linux has them")
@pytest.mark.parametrize("name", ["games", "corridor", "rust"])
def test_memory_that_can_not_be_had_is_an_error(build, name):
    """The process goes on, and so do its batches."""
    path = build.rust() if name == "rust" else build(name)
    (error, _) = refused(path, {"num_games": 4_000_000})
    assert "memory or threads could not be had" in error


@pytest.mark.skipif(sys.platform != "linux", reason="limits and threads are read as Linux has them")
def test_threads_that_can_not_be_had_are_an_error(build):
    """Those that had begun have ended when it is raised."""
    (error, left) = refused(build("games"), {"num_games": 8, "num_threads": 1000})
    assert "memory or threads could not be had" in error
    assert left == "0"


def test_searches_take_no_numbers_that_wrap(tron):
    """2**32 + 1 plies are refused, not taken for one."""
    batch = tron.create(2)
    for bounds in ({"depth": 2**32 + 1}, {"nodes": 2**32 + 1}, {"depth": -1}, {"nodes": 1.0}):
        with pytest.raises(ValueError, match=next(iter(bounds))):
            batch.bot_moves("alpha_beta", **bounds)


def test_no_rows_are_none_of_the_games(tron):
    """Every call takes an empty list of rows, and does nothing."""
    batch = tron.create(3)
    before = batch.capture()
    nothing = batch.allocate(0)
    batch.step([], nothing, rows=[])
    batch.reset(None, nothing, rows=[])
    batch.observe(nothing, rows=[])
    batch.restore(batch.capture([]), rows=[])
    assert len(batch.bot_moves("random", rows=[])) == 0
    np.testing.assert_array_equal(batch.capture(), before)


@pytest.mark.parametrize("name", ["corridor", "rust"])
def test_states_that_would_overflow_are_refused(build, name):
    """Counts of steps near the greatest number are no state that playing leads to."""
    library = load(build.rust() if name == "rust" else build(name))
    batch = library.create(1)
    state = batch.capture()
    steps = state.view(np.int32)[0]
    assert steps[4:8].tolist() == [4, steps[5], 0, 0]
    for count in (-1, 2**31 - 1):
        steps[6] = count
        with pytest.raises(ValueError, match="damaged"):
            batch.restore(state)
