"""The tree of errors, their messages and attributes."""

from __future__ import annotations

import copy
import pickle
import signal

import pytest

from superdex import errors
from superdex.errors import (
    BrokenError,
    CallPending,
    CallTimeout,
    ClosedError,
    RemoteError,
    ResetNeeded,
    SceneMismatch,
    StaleStateError,
    StartupError,
    StateCaptureUnsupported,
    SuperdexError,
    WorkerDied,
    WorkerRaised,
)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (ClosedError, ValueError),
        (BrokenError, RuntimeError),
        (CallPending, RuntimeError),
        (CallTimeout, TimeoutError),
        (ResetNeeded, RuntimeError),
        (StartupError, RuntimeError),
        (WorkerDied, RuntimeError),
        (WorkerRaised, RuntimeError),
        (RemoteError, Exception),
        (SceneMismatch, ValueError),
        (StateCaptureUnsupported, NotImplementedError),
        (StaleStateError, ValueError),
    ],
)
def test_each_is_also_what_a_caller_would_catch(cls, builtin):
    """SuperdexError and a builtin."""
    assert issubclass(cls, SuperdexError)
    assert issubclass(cls, builtin)


def test_all_names_every_error():
    """No class is left out of __all__."""
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, SuperdexError)
    }
    assert classes == set(errors.__all__)


def test_the_tree_in_the_docstring_is_complete():
    """Each class is drawn with its builtin."""
    assert errors.__doc__ is not None
    for name in set(errors.__all__) - {"SuperdexError"}:
        assert f"── {name} " in errors.__doc__


def test_a_death_tells_worker_environments_cause_and_call():
    """In words and as attributes."""
    error = WorkerDied(1, range(2, 4), -signal.SIGKILL, "step")
    assert str(error).startswith(
        "Worker 1 (environments 2 to 3) died during step: signal SIGKILL (killed; "
    )
    assert (error.worker, error.env_indices, error.exitcode, error.call) == (
        1,
        range(2, 4),
        -9,
        "step",
    )


def test_a_worker_of_one_environment_names_it():
    """Not "environments 4 to 4"."""
    assert "(environment 4) died" in str(WorkerDied(4, range(4, 5), 1, "reset"))


def test_a_failure_tells_environment_worker_call_and_traceback():
    """In words and as attributes."""
    error = WorkerRaised(1, 5, "step", "KeyError: 'k'", "Traceback…\nKeyError: 'k'\n")
    assert str(error) == (
        "Environment 5 (worker 1) raised in step: KeyError: 'k'\n\n"
        "Traceback in the worker:\nTraceback…\nKeyError: 'k'"
    )
    assert (error.worker, error.env_index, error.call) == (1, 5, "step")


def test_a_failure_of_no_single_environment_says_so():
    """Where an inner layer does not tell which."""
    assert str(WorkerRaised(1, None, "step", "x", "")).startswith("An environment (worker 1)")


@pytest.mark.parametrize(
    ("workers", "text"), [([3], "worker 3."), ([0, 2], "workers 0, 2.")], ids=str
)
def test_a_timeout_tells_who_has_not_replied(workers, text):
    """And that nothing is lost."""
    error = CallTimeout("step", 0.5, workers)
    assert str(error).startswith(f"step did not finish within 0.5 s: no reply yet from {text}")
    assert "wait again" in str(error)
    assert (error.call, error.timeout, error.workers) == ("step", 0.5, tuple(workers))


@pytest.mark.parametrize(
    ("exitcode", "text"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-signal.SIGKILL, "signal SIGKILL (killed; "),
        (-signal.SIGSEGV, "signal SIGSEGV (a segmentation fault"),
        (-signal.SIGUSR1, "signal SIGUSR1"),
        (-250, "signal 250"),
        (None, "its exit code is unknown"),
    ],
)
def test_exit_codes_are_told_in_words(exitcode, text):
    """With the likely cause where a signal has one."""
    assert f"died during step: {text}" in str(WorkerDied(0, range(1), exitcode, "step"))


@pytest.mark.parametrize(
    "error",
    [
        ClosedError("a"),
        SceneMismatch("b"),
        WorkerDied(1, range(2, 4), -9, "step", " hint"),
        WorkerRaised(1, 5, "step", "x", "y"),
        CallTimeout("step", 0.5, [1]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("again", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_errors_can_be_copied_and_pickled(error, again):
    """With text and attributes."""
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)
