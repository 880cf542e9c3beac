"""The engines that the tests play with."""

from __future__ import annotations

from functools import partial

import pytest

from tests.games.engines import Builder

# superdex.games is imported where it is used: this file is read before there need be an engine.


@pytest.fixture(scope="session")
def build(request) -> Builder:
    """What compiles engines; results are kept in pytest's cache for the next run."""
    return Builder(request.config.cache.mkdir("games"))


@pytest.fixture(scope="session")
def tron():
    """The library with superdex's own games, as it is installed."""
    from superdex.games import library

    return library()


@pytest.fixture(scope="session")
def countdown(build):
    """A game with many legal actions whose progress action sorts last."""
    from superdex.games import load

    return load(build("countdown"))


@pytest.fixture(scope="session")
def corridor(build):
    """The engine in one file of C++."""
    from superdex.games import load

    return load(build("corridor"))


@pytest.fixture
def make(tron):
    """Makes small games of Tron, as `VectorGameEnv` does."""
    from superdex.games import VectorGameEnv

    options = {"width": 9, "height": 8}
    return partial(VectorGameEnv, "tron", library=tron, options=options, num_threads=1)
