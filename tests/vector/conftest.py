"""Fixtures for tests of vector environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from superdex.vector import HybridVectorEnv


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
