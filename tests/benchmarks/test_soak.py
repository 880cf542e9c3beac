"""The soak at a size that fits: our vector is flat, and each kind of leak is found."""

from __future__ import annotations

import fcntl
import gc
import json
import mmap
import os
import sys
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import soak
from holdings import judge
from soak import Busy, make_vector, soak_cycles, soak_steps
from superdex.vector import HybridVectorEnv

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is counted is in /proc")

FLOOR = 2**20
"""In a few seconds an allocator's noise weighs more than in a long run."""


@pytest.fixture(autouse=True)
def _small_heap():
    """Set what earlier tests left aside: garbage is collected before everything is measured."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _alone_with_names():
    """Wait for these tests in other processes: one makes names in /dev/shm, which all see."""
    folder = os.open("/dev/shm", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    yield
    os.close(folder)


class Leaking(Busy):
    """Keeps some memory of every step."""

    kept: list[np.ndarray] = []  # noqa: RUF012  # shared on purpose, as a leak is

    def step(self, action):
        self.kept.append(np.ones(512))
        return super().step(action)


class LeakingDescriptors(Busy):
    """Opens a pipe in every episode."""

    def reset(self, **kwargs):
        os.pipe()
        return super().reset(**kwargs)


def of(env_class):
    """Return a function that makes a small vector of that class."""
    return partial(HybridVectorEnv, [env_class] * 4, num_workers=2)


def growing(series):
    """Return the names of what grows."""
    return {name for name, growth in judge(series, floor=FLOOR).items() if growth.grows}


def test_a_vector_that_steps_for_long_is_flat():
    """Memory, descriptors, threads, blocks, children and names."""
    series = soak_steps(partial(make_vector, 8, 2), 3000, samples=50)
    assert growing(series) == set()
    assert len(series.x) == 50
    assert not any(np.isnan(values).any() for values in series.quantities.values())
    assert series.quantities["worker 1 blocks"].min() > 0


def test_vectors_made_and_closed_leave_nothing():
    """The parent's descriptors, blocks and children are those of before."""
    series = soak_cycles(partial(make_vector, 8, 2), 6)
    assert growing(series) == set()
    assert not series.quantities["parent blocks"].any()


def test_an_environment_that_keeps_memory_is_found():
    """In its worker, and nowhere else."""
    found = growing(soak_steps(of(Leaking), 1000, samples=20))
    assert found == {"worker 0 memory", "worker 1 memory"}


def test_an_environment_that_keeps_descriptors_is_found():
    """In its worker, and nowhere else."""
    found = growing(soak_steps(of(LeakingDescriptors), 500, samples=10))
    assert found == {"worker 0 descriptors", "worker 1 descriptors"}


@pytest.fixture
def kept():
    """Takes down functions that give back what a test leaks."""
    with ExitStack() as stack:
        yield stack


def test_a_parent_that_keeps_something_of_each_vector_is_found(kept):
    """Memory, a descriptor, a mapped block and a name; and nothing else is."""

    def make():
        # pages of its own, since the heap may have room left from other tests
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        kept.enter_context(mmap.mmap(-1, 2**22, flags=private)).write(bytes(2**22))
        block = os.memfd_create("kept")
        kept.callback(os.close, block)
        os.truncate(block, 2**22)
        pages = kept.enter_context(mmap.mmap(block, 2**22))
        pages.write(bytes(2**22))
        kept.enter_context(TemporaryDirectory(dir="/dev/shm"))
        return of(Busy)()

    assert growing(soak_cycles(make, 6)) == {
        "parent memory",
        "parent shared memory",
        "parent descriptors",
        "parent blocks",
        "names left in /dev/shm",
    }


def run_soak(monkeypatch, tmp_path, env_class, arguments):
    """Run the command; return its exit code and the parts of its JSON."""
    monkeypatch.setattr(soak, "make_vector", lambda *_: of(env_class)())
    monkeypatch.setattr(soak, "FLOOR_BYTES", FLOOR)
    path = tmp_path / "soak.json"
    code = soak.main(["--json", str(path), "--steps", "40", *arguments])
    return code, json.loads(path.read_text())["parts"]


def test_a_soak_that_is_flat_exits_with_0(monkeypatch, tmp_path, capsys):
    """And the tables, the JSON and the picture show it."""
    picture = tmp_path / "soak.png"
    arguments = ["--cycles", "5", "--plot", str(picture)]
    code, (steps, cycles) = run_soak(monkeypatch, tmp_path, Busy, arguments)
    assert code == 0
    assert (steps["unit"], cycles["unit"]) == ("steps", "cycles")
    assert not any(
        growth["grows"] for part in (steps, cycles) for growth in part["growth"].values()
    )
    assert "grows" not in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_soak_in_which_something_grows_exits_with_1(monkeypatch, tmp_path, capsys):
    """And the tables and the JSON show it."""
    code, parts = run_soak(monkeypatch, tmp_path, LeakingDescriptors, ["--cycles", "0"])
    assert code == 1
    assert [part["unit"] for part in parts] == ["steps"]
    assert parts[0]["growth"]["worker 0 descriptors"]["grows"]
    assert "grows" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--steps", "9"], ["--cycles", "4"], ["--num_envs", "0"]])
def test_a_size_that_says_nothing_is_refused(arguments, capsys):
    """Before anything is started."""
    with pytest.raises(SystemExit):
        soak.main(arguments)
    assert "expected a whole number of at least" in capsys.readouterr().err
