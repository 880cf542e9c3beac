"""Semaphores that wake the other process."""

from __future__ import annotations

import _multiprocessing
import errno
import gc
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest

from superdex.errors import StartupError
from superdex.vector._signal import Signal


def names() -> set[Path]:
    """Return the semaphores of this process that have a name."""
    return set(Path("/dev/shm").glob(f"*-{os.getpid()}-*"))


def answer(request: Signal, reply: Signal) -> None:
    """Wake once for each time woken, twice."""
    for _ in range(2):
        request.wait()
        reply.release()


def test_a_release_before_the_wait_is_not_lost():
    """Wake-ups are counted."""
    signal = Signal()
    signal.release()
    signal.release()
    now = perf_counter()
    assert signal.wait(now)
    assert signal.wait(now)
    assert not signal.wait(now)
    signal.unlink()


def test_a_wait_ends_at_its_deadline():
    """Without a wake-up a wait returns False, not before the deadline."""
    signal = Signal()
    deadline = perf_counter() + 0.02
    assert not signal.wait(deadline)
    assert perf_counter() >= deadline
    signal.unlink()


def test_a_deadline_in_the_past_is_no_error():
    """It only looks."""
    signal = Signal()
    assert not signal.wait(perf_counter() - 5)
    signal.unlink()


def test_a_release_wakes_a_blocked_wait():
    """A wait that blocks, long after its spin, ends when it is woken."""
    signal = Signal()
    timer = threading.Timer(0.05, signal.release)
    timer.start()
    assert signal.wait(perf_counter() + 10)
    timer.join()
    signal.unlink()


def test_a_spawned_process_gets_the_same_semaphore():
    """Wake-ups cross the process boundary, after the name is given up too."""
    context = multiprocessing.get_context("spawn")
    request, reply = Signal(), Signal()
    process = context.Process(target=answer, args=(request, reply))
    process.start()
    request.release()
    assert reply.wait(perf_counter() + 30)
    request.unlink()
    reply.unlink()
    request.release()
    assert reply.wait(perf_counter() + 30)
    process.join(10)
    assert process.exitcode == 0
    process.close()


def test_unlinking_removes_the_name():
    """Nothing of it is left in /dev/shm, and unlinking twice does nothing."""
    before = names()
    signal = Signal()
    assert len(names() - before) == 1
    signal.unlink()
    signal.unlink()
    assert names() == before


def test_waiting_leaves_the_processor_alone():
    """A blocked wait costs next to no processor time."""
    signal = Signal()
    started = time.thread_time()
    signal.wait(perf_counter() + 0.2)
    assert time.thread_time() - started < 0.1
    signal.unlink()


def test_a_forgotten_signal_takes_its_name_along():
    """As one is that was made when its twin could not be."""
    before = names()
    signal = Signal()
    assert len(names() - before) == 1
    del signal
    gc.collect()
    assert names() == before


def test_a_fork_of_the_owner_does_not_take_the_name():
    """What a forked process collects is still the owner's."""
    before = names()
    signal = Signal()
    child = os.fork()
    if child == 0:
        signal.__del__()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(names() - before) == 1
    signal.unlink()


# ── where there is no room for semaphores ───────────────────────────────────────────────────────


def failing(number: int) -> Callable[..., object]:
    """Return what makes semaphores on a system that says no."""

    def make(*arguments: object) -> object:
        raise OSError(number, os.strerror(number))

    return make


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            errno.ENOENT,
            r"/dev/shm: No such file or directory\. Mount it: mkdir -p /dev/shm &&",
        ),
        (errno.ENOSYS, r"/dev/shm: .*\. Mount it: mkdir -p /dev/shm && mount -t tmpfs tmpfs"),
        (errno.EROFS, r"/dev/shm: Read-only file system\. Make it writable: mount -o remount,rw"),
        (errno.EACCES, r"/dev/shm: Permission denied\. Let this user write there: chmod 1777"),
        (errno.ENOSPC, r"No space .* Free are \d+ of \d+ KiB and .* needs \d+ KiB .*--shm-size="),
    ],
    ids=errno.errorcode.get,
)
def test_a_folder_without_room_is_named_with_what_to_do(monkeypatch, number, message):
    """The error says what is wrong with the folder, and how to do without."""
    monkeypatch.setattr(_multiprocessing, "SemLock", failing(number))
    with pytest.raises(StartupError, match=message) as caught:
        Signal()
    assert str(caught.value).endswith("With in_process=True none are needed.")
    assert isinstance(caught.value.__cause__, OSError)


def test_another_refusal_stays_what_it_is(monkeypatch):
    """Too many open files are nothing that the folder can help."""
    monkeypatch.setattr(_multiprocessing, "SemLock", failing(errno.EMFILE))
    with pytest.raises(OSError, match="Too many open files"):
        Signal()


@pytest.fixture(scope="module")
def unshare() -> list[str]:
    """Return the command that gives a program mounts of its own."""
    for flags in ("-m", "-rm"):  # as root, and as a user who may be root of a namespace
        command = ["unshare", flags, "sh", "-ec", 'eval "$0"; exec "$@"']
        trial = [*command, "mount -t tmpfs tmpfs /dev/shm", "true"]
        try:
            if subprocess.run(trial, capture_output=True, timeout=30, check=False).returncode == 0:
                return command
        except OSError:
            break
    pytest.skip("needs the right to mount")


def run_where(command: list[str], mounts: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program after those mounts, with this process's modules at hand."""
    return subprocess.run(
        [*command, mounts, sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("mounts", "message"),
    [
        ("mount -t tmpfs -o ro tmpfs /dev/shm", "Read-only file system. Make it writable"),
        ("mount -t tmpfs -o size=4k tmpfs /dev/shm", "Free are 0 of "),
        ("mount -t tmpfs -o nr_inodes=2 tmpfs /dev/shm", " of 2 files; each worker needs "),
        ("mount --rbind {folder} /dev", "No such file or directory. Mount it"),
    ],
    ids=["read-only", "full", "out of files", "missing"],
)
def test_a_start_without_room_ends_in_an_error_and_leaves_nothing(
    unshare, tmp_path, mounts, message
):
    """No process, no descriptor, no name, and no word of the resource tracker."""
    for device in ("null", "urandom"):
        (tmp_path / device).touch()
        bind = f"mount --bind /dev/{device} {tmp_path / device}"
        mounts = f"{bind}; {mounts}" if "{folder}" in mounts else mounts
    done = run_where(
        unshare,
        mounts.format(folder=tmp_path),
        """
        import gc, multiprocessing, os
        import gymnasium
        from multiprocessing import resource_tracker
        from superdex.errors import StartupError
        from superdex.vector import HybridVectorEnv

        resource_tracker.ensure_running()
        before = os.listdir("/proc/self/fd")
        try:
            HybridVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * 2, num_workers=2)
        except StartupError as error:
            print(error)
        gc.collect()
        print(os.listdir("/proc/self/fd") == before, multiprocessing.active_children())
        print(os.listdir("/dev/shm") if os.path.exists("/dev/shm") else [])
        """,
    )
    assert done.stderr == ""
    first, *rest = done.stdout.splitlines()
    assert first.startswith("A worker's semaphores could not be made in /dev/shm: ")
    assert message in first
    assert rest == ["True []", "[]"]


def test_a_batch_larger_than_the_folder_runs(unshare):
    """Only names need room there: 64 KiB do for a batch of some MiB, and are free again at once."""
    done = run_where(
        unshare,
        "mount -t tmpfs -o size=64k tmpfs /dev/shm",
        """
        import os
        import gymnasium
        import numpy as np
        from superdex.vector import HybridVectorEnv

        class Pictures(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
            action_space = gymnasium.spaces.Box(-1, 1, (1,))

            def reset(self, *, seed=None, options=None):
                return np.full((84, 84, 4), 7, np.uint8), {}

            def step(self, action):
                return np.full((84, 84, 4), 8, np.uint8), 0.0, False, False, {}

        with HybridVectorEnv([Pictures] * 100, num_workers=2) as envs:
            envs.reset(seed=0)
            print(os.listdir("/dev/shm"))
            observations = envs.step(envs.action_space.sample())[0]
            print(observations.nbytes > 2**20, (observations == 8).all())
        """,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[]", "True True"]
