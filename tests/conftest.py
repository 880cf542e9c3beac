"""Settings that hold for every test."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Test modules are found from the checkout's root, here and in the workers that tests spawn (they
# inherit sys.path). It goes last, so that `superdex` is still the one that is installed.
sys.path.append(str(ROOT))

# Without a display MuJoCo draws through EGL; a choice made outside is respected.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")


def pytest_xdist_auto_num_workers(config):
    """Run the whole suite in two processes, since it waits as much as it computes; parts in one."""
    return 2 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


def pytest_configure(config):
    """Have a checkout tested with the engine of its own sources; a compiler builds it once."""
    from tests.games.engines import Builder

    where = importlib.util.find_spec("superdex")
    if where and where.origin and Path(where.origin).is_relative_to(ROOT / "superdex"):
        builder = Builder(config.cache.mkdir("games"))
        if builder.compiler:
            os.environ.setdefault("SUPERDEX_GAMES_LIBRARY", str(builder("games")))


def pytest_ignore_collect(collection_path):
    """Leave out the tests of games where superdex was installed without a compiler."""
    if collection_path != ROOT / "tests" / "games":
        return None
    from superdex.errors import GameLibraryError

    try:
        import superdex.games  # noqa: F401 - importing it looks for the engine
    except GameLibraryError:
        return True
    return None
