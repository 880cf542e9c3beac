"""Fixtures for tests of vector environments."""

from __future__ import annotations

import gc
import inspect
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from superdex.vector import HybridVectorEnv
from tests.vector.envs import walks
from tests.vector.leftovers import remains


@pytest.fixture
def make() -> Iterator[Callable[..., HybridVectorEnv]]:
    """Makes vector environments in this process, unless told otherwise, and closes them."""
    with ExitStack() as stack:

        def build(*args: Any, in_process: bool = True, **kwargs: Any) -> HybridVectorEnv:
            envs = HybridVectorEnv(*args, in_process=in_process, **kwargs)
            return stack.enter_context(envs)

        yield build


@pytest.fixture
def make_workers() -> Iterator[Callable[..., HybridVectorEnv]]:
    """Makes vector environments in worker processes, and closes them."""
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(HybridVectorEnv(*args, **kwargs))


@pytest.fixture(scope="session")
def _warm() -> None:
    """The first vector starts what stays: multiprocessing's resource tracker."""
    with HybridVectorEnv(walks(1)) as envs:
        envs.reset()


@pytest.fixture
def nothing_remains(_warm: None) -> Iterator[None]:
    """After the test there is no child, no descriptor, no shared memory and no thread of it."""
    gc.collect()
    before = remains()
    yield
    gc.collect()
    deadline = time.monotonic() + 3
    while remains() != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert remains() == before


@pytest.fixture
def ctrl_c_at_line() -> Iterator[Callable[..., bool]]:
    """Runs functions with Ctrl-C at a line.

    No garbage is collected meanwhile, or what earlier tests left would be interrupted. It is
    collected once, not before each line: that takes as long as many of them.
    """
    gc.collect()
    gc.disable()
    yield run_with_ctrl_c_at_line
    gc.enable()


def run_with_ctrl_c_at_line(
    number: int, function: Callable[[], object], names: Sequence[str] = ()
) -> bool:
    """Run a function, with Ctrl-C at a line of ours or of functions so named; return if it came."""
    seen = 0
    ours = str(Path(inspect.getfile(HybridVectorEnv)).parent)

    def trace(frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(ours) or (names and code.co_name not in names):
            return None
        return trace_line

    def trace_line(frame, event, arg):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == number:
                signal.raise_signal(signal.SIGINT)
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
