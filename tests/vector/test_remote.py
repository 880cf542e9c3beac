"""What travels between processes, and what happens to what can't."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

from superdex.errors import (
    BrokenError,
    CallTimeout,
    RemoteError,
    StartupError,
    WorkerDied,
    WorkerRaised,
)
from superdex.vector._remote import EnvFailure, Failure, dump_env_fns, dumps, dumps_entries, loads
from tests.vector.envs import TwoArguments, Unpicklable


def travelled(error: BaseException) -> Any:
    """Return the cause that the parent shows for what an environment raised."""
    return loads(dumps(Failure.of(caught(error), "step"))).to_error(2).__cause__


def caught(error: BaseException) -> EnvFailure:
    """Return an environment's failure with such a cause and a traceback."""
    try:
        try:
            raise error
        except BaseException as cause:
            raise EnvFailure(7, "step") from cause
    except EnvFailure as failure:
        return failure


class Prefixing(ValueError):
    """Changes its argument, so that its own constructor would do so twice."""

    def __init__(self, text):
        super().__init__(f"bad: {text}")


class BadReduce(Exception):
    def __reduce__(self):
        return (int, ("x",))


class WithoutText(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        KeyError("key"),
        TwoArguments("spring", "knee"),
        Prefixing("text"),
        FileNotFoundError(2, "No such file", "model.xml"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        StopIteration(3),
        SystemExit(4),
        ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
        ModuleNotFoundError("No module named 'x'", name="x"),
        BadReduce("kept"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_arrives_as_it_was(error):
    """Class, arguments, text and attributes, whatever its constructor takes."""
    arrived = travelled(error)
    assert type(arrived) is type(error)
    assert arrived is not error
    assert repr(arrived) == repr(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
    for name in ("code", "value", "filename", "reason", "name", "errno"):
        assert getattr(arrived, name, None) == getattr(error, name, None)


def test_notes_travel_with_an_exception():
    """What was added on the way is not lost."""
    error = ValueError("plain")
    error.add_note("look here")
    assert getattr(travelled(error), "__notes__", None) == ["look here"]


def test_an_exception_that_cant_be_pickled_is_replaced_by_its_text():
    """RemoteError shows the traceback."""
    arrived = travelled(Unpicklable())
    assert type(arrived) is RemoteError
    assert "Unpicklable: holds a lock" in str(arrived)


def test_an_exception_without_text_still_arrives():
    """Even where str() of it raises."""
    failure = Failure.of(caught(WithoutText()), "step")
    assert "WithoutText" in str(failure.to_error(0))


def test_the_error_names_environment_worker_and_call():
    """In its text and as attributes, with the remote traceback."""
    error = Failure.of(caught(ValueError("plain")), "reset").to_error(3)
    assert type(error) is WorkerRaised
    assert (error.worker, error.env_index, error.call) == (3, 7, "step")
    assert str(error).startswith("Environment 7 (worker 3) raised in step: ValueError: plain\n")
    assert "test_remote.py" in error.remote_traceback
    assert error.remote_traceback.strip() in str(error)


def test_an_error_outside_of_environments_names_none():
    """The call is the one that was asked for."""
    error = Failure.of(ValueError("plain"), "reset").to_error(3)
    assert (error.env_index, error.call) == (None, "reset")
    assert str(error).startswith("An environment (worker 3) raised in reset: ValueError: plain")


@pytest.mark.parametrize(
    "error",
    [
        WorkerRaised(1, 2, "step", "ValueError: x", "trace"),
        WorkerDied(1, range(2, 4), -9, "step"),
        CallTimeout("step", 1.5, [0, 2]),
        StartupError("no"),
        BrokenError("broken"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_our_own_errors_can_be_pickled(error):
    """With text and attributes, so that they cross further process borders."""
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_functions_travel():
    """Lambdas, closures and local classes."""
    number = 5

    class Local:
        value = number

    functions = loads(dump_env_fns([lambda: number, lambda: Local().value], 0))
    assert [function() for function in functions] == [5, 5]


def test_a_function_that_cant_be_pickled_is_named():
    """By the environment's index and itself, with a way out."""
    lock = threading.Lock()

    def build_with_lock():
        return lock

    with pytest.raises(TypeError) as caught:
        dump_env_fns([lambda: 1, build_with_lock], 6)
    message = str(caught.value)
    assert "environment 7" in message
    assert "build_with_lock" in message
    assert "lock" in message
    assert "inside the function" in message


def test_infos_travel_whole():
    """As they are, where they can be pickled."""
    entries: list[Any] = [(3, {"a": 1, "b": {"c": "x"}}), (4, {5: None})]
    assert loads(dumps_entries(entries, pytest.fail)) == entries


def test_an_info_that_cant_be_pickled_arrives_as_its_repr():
    """Only that value, on any level, with a notice that names environment and key."""
    lock = threading.Lock()
    notices: list[str] = []
    entries = [(3, {"a": 1, "b": {"c": lock, "d": 2}}), (4, {"e": np.ones(2), "f": [lock]})]
    first, second = loads(dumps_entries(entries, notices.append))
    assert first == (3, {"a": 1, "b": {"c": repr(lock), "d": 2}})
    assert second[1]["e"].tolist() == [1, 1]
    assert second[1]["f"] == repr([lock])
    assert len(notices) == 2
    assert "Environment 3" in notices[0]
    assert "'c'" in notices[0]
