"""Functions in processes of their own."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from superdex.bench._child import ChildFailed, run_in_child


def double(number: int) -> int:
    return 2 * number


def own_pid() -> int:
    return os.getpid()


def fail() -> None:
    raise LookupError("not here")


def fail_twice() -> None:
    raise ExceptionGroup("two", [LookupError("not here"), ValueError("nor there")])


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
