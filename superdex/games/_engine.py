"""Finds the engine that superdex ships, which is built when superdex is installed.

It lies beside this package, in the folder that an installation fills; `SUPERDEX_GAMES_LIBRARY`
names another file, for work on the engine in a checkout. An installation without a C++ compiler has
none; then importing `superdex.games` fails at once, and says what to do.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from superdex.errors import GameLibraryError
from superdex.games._library import GameLibrary, load

__all__ = ["find_library", "include_dir", "library"]

_NAME = "lib/libsuperdex_games.so"
_VARIABLE = "SUPERDEX_GAMES_LIBRARY"
_CPP = Path(__file__).parent / "cpp"


def find_library() -> Path:
    """Return where the engine lies; it is not opened.

    Raises:
        GameLibraryError: If there is none.
    """
    if chosen := os.environ.get(_VARIABLE):
        return Path(chosen)
    # In an editable installation the package has two folders: its sources' and what was built.
    for folder in sys.modules["superdex.games"].__path__:
        path = Path(folder, _NAME)
        if path.is_file():
            return path
    raise GameLibraryError(_advice())


@functools.cache
def library() -> GameLibrary:
    """Return superdex's own games, opened once in a process.

    >>> library().games
    ('tron',)

    Raises:
        GameLibraryError: If the engine is missing, or was built from older sources.
    """
    return load(find_library())


def include_dir() -> Path:
    """Return the folder with `superdex_game.h`, for a compiler that builds an engine."""
    return _CPP / "include"


def _advice() -> str:
    checkout = _CPP.parents[2]
    is_checkout = checkout.joinpath("pyproject.toml").is_file()
    what = f"'{checkout}'" if is_checkout else "superdex-vector (in a clone: . for the name)"
    return (
        "superdex.games needs its engine, and there is none: it is built when superdex is "
        "installed, which takes a compiler for C++20. Install one (Debian and Ubuntu: apt-get "
        "install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), then superdex "
        f"once more: pip install --force-reinstall --no-deps --no-cache-dir {what}. With -v "
        "pip shows why a build failed. The rest of superdex works without the engine. "
        f"{_VARIABLE} may name one that was built elsewhere."
    )
