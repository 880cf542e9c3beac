"""Workers on their way up: slow, killed, out of room; and what is left then: nothing."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from functools import partial

import numpy as np
import psutil
import pytest

from superdex.errors import BrokenError, WorkerDied
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Acting, Walk, walks
from tests.vector.leftovers import remains

pytestmark = pytest.mark.usefixtures("nothing_remains")

ACTIONS = np.zeros((2, 2), np.float32)


def note_and_hang(folder) -> None:
    """Say which process builds, and don't come to an end."""
    (folder / str(os.getpid())).touch()
    time.sleep(60)


@pytest.mark.parametrize("count", [1, 2])
def test_workers_killed_while_they_build_are_named(tmp_path, count):
    """At once, though a third one still builds for long; and that one ends."""
    env_fns = [partial(Acting, "construct", partial(note_and_hang, tmp_path))] * 3
    killed_at = []

    def kill_builders():
        while len(pids := sorted(int(path.name) for path in tmp_path.iterdir())) < 3:
            time.sleep(0.01)
        killed_at.append(time.perf_counter())
        for pid in pids[:count]:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_builders)
    thread.start()
    with pytest.raises((WorkerDied, ExceptionGroup)) as caught:
        HybridVectorEnv(env_fns, 1)
    thread.join()
    assert time.perf_counter() - killed_at[0] < 3
    errors = getattr(caught.value, "exceptions", [caught.value])
    assert [type(error) for error in errors] == [WorkerDied] * count
    assert {(error.call, error.exitcode) for error in errors} == {("construct", -9)}


def test_a_worker_killed_before_it_builds_is_named():
    """As one that did not get as far; what its main module may have printed is above."""
    before = remains().children

    def kill_first():
        while not (new := remains().children - before):
            time.sleep(0.005)
        os.kill(min(new), signal.SIGKILL)

    thread = threading.Thread(target=kill_first)
    thread.start()
    with pytest.raises(WorkerDied, match=r"died during start: .*not get as far as building"):
        HybridVectorEnv(walks(2), 1)
    thread.join()


def test_a_worker_that_cant_be_started_again_is_an_error_that_leaves_nothing(make_workers):
    """As where all descriptors are in use; the others are closed as ever."""
    envs = make_workers(walks(2), 1, on_worker_failure="restart")
    envs.reset()
    pids = envs.worker_pids
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.kill(pids[1], signal.SIGKILL)
    time.sleep(0.3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(remains().descriptors), limit[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            envs.step(ACTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    with pytest.raises(BrokenError):
        envs.step(ACTIONS)
    envs.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_finds_no_descriptors_is_not_left_behind():
    """However far its start came."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(remains().descriptors)
    for more in range(4, 24, 2):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, limit[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                HybridVectorEnv([Walk] * 4, 1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
