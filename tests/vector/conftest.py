"""Fixtures for tests of vector environments."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
