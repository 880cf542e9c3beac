"""Functions in processes of their own."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import psutil
import pytest

from superdex.bench._child import ChildFailed, run_in_child
from superdex.errors import WorkerRaised


def double(number: int) -> int:
    return 2 * number


def own_pid() -> int:
    return os.getpid()


def fail() -> None:
    raise LookupError("not here")


def fail_twice() -> None:
    raise ExceptionGroup("two", [LookupError("not here"), ValueError("nor there")])


def fail_in_worker() -> None:
    raise WorkerRaised(1, 7, "step", "LookupError: not here", "Traceback: line 3")


def leave() -> None:
    os._exit(3)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def complain_and_die() -> None:
    os.write(2, b"out of luck")
    os._exit(3)


def complain() -> None:
    os.write(1, b"a printed line")
    os.write(2, b"a native warning")


def wait_for_ever(started: Path, ended: Path) -> None:
    started.touch()
    try:
        time.sleep(600)
    finally:
        ended.touch()


PARENT = """
import os, subprocess, sys, time
from pathlib import Path

from superdex.bench._child import run_in_child


def wait_with_a_process(pids):
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    temporary = Path(pids + ".new")
    temporary.write_text(f"{os.getpid()} {started.pid}")
    temporary.rename(pids)
    time.sleep(600)


if __name__ == "__main__":
    run_in_child(wait_with_a_process, sys.argv[1])
"""


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_result_comes_back():
    """The function runs with its arguments, in another process."""
    assert run_in_child(double, 21) == 42
    assert run_in_child(own_pid) != os.getpid()


def test_exception_comes_back_as_text():
    """Whatever it raised is told by type and text."""
    with pytest.raises(ChildFailed, match="LookupError: not here"):
        run_in_child(fail)


def test_all_exceptions_of_a_group_come_back():
    """Of several failures none is left out."""
    with pytest.raises(ChildFailed, match=r"(?s)LookupError: not here.*ValueError: nor there"):
        run_in_child(fail_twice)


def test_traceback_comes_apart_from_the_message():
    """The message is type and text alone; where it was raised is there for who asks."""
    with pytest.raises(ChildFailed) as caught:
        run_in_child(fail)
    assert str(caught.value) == "LookupError: not here"
    assert "in fail" in (caught.value.traceback or "")


def test_worker_error_names_the_environment_without_its_traceback():
    """Of an error in a worker, the message has the environment and what it raised."""
    with pytest.raises(ChildFailed) as caught:
        run_in_child(fail_in_worker)
    assert str(caught.value) == "Environment 7 (worker 1) raised in step: LookupError: not here"
    assert "Traceback: line 3" in (caught.value.traceback or "")


def test_early_exit_is_named_by_code():
    """A process that leaves without an answer is noticed at once."""
    with pytest.raises(ChildFailed, match="exit code 3"):
        run_in_child(leave)


def test_last_words_of_a_process_are_told():
    """What it printed before it ended without an answer is part of the message."""
    with pytest.raises(ChildFailed, match="out of luck"):
        run_in_child(complain_and_die)


def test_chatter_stays_out_of_the_terminal(capfd):
    """What an environment or its engine prints does not get between tables and progress."""
    run_in_child(complain)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(os.name != "posix", reason="Windows has no signals to die of")
def test_death_is_named_by_signal():
    """A process that is killed is noticed at once."""
    with pytest.raises(ChildFailed, match="SIGKILL"):
        run_in_child(die)


@pytest.mark.skipif(os.name != "posix", reason="Windows sends Ctrl-C in another way")
def test_interrupt_ends_the_process_and_lets_it_clean_up(tmp_path):
    """After Ctrl-C no process is left, and what the function held has been closed."""
    started, ended = tmp_path / "started", tmp_path / "ended"

    def interrupt() -> None:
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_in_child(wait_for_ever, started, ended)
    thread.join()
    assert ended.exists()
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(os.name != "posix", reason="Windows sends Ctrl-C in another way")
def test_interrupt_waits_until_the_process_has_started(monkeypatch):
    """Ctrl-C that another thread takes cuts no start short, and still ends the process."""
    started = []
    start = SpawnProcess.start

    def interrupted_start(process: SpawnProcess) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        start(process)
        started.append(process)

    monkeypatch.setattr(SpawnProcess, "start", interrupted_start)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)  # it does not block the signal
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_child(time.sleep, 600)
    finally:
        ended.set()
        thread.join()
    assert len(started) == 1
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(os.name != "posix", reason="Windows has no process groups of this kind")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_process_ends_with_its_parent(signum: signal.Signals, tmp_path):
    """Where the parent is killed, the process and what it started are gone within two seconds."""
    script, pids = tmp_path / "parent.py", tmp_path / "pids"
    script.write_text(PARENT)
    environ = {**os.environ, "TMPDIR": str(tmp_path)}  # it can't remove its folder when killed
    with subprocess.Popen([sys.executable, str(script), str(pids)], env=environ) as parent:
        while not pids.exists():
            assert parent.poll() is None
            time.sleep(0.01)
        parent.send_signal(signum)
    left = [int(pid) for pid in pids.read_text().split()]
    deadline = time.monotonic() + 2.0
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if is_running(pid)]
        time.sleep(0.02)
    assert left == []
