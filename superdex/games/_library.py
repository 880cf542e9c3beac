"""Opens game engines: a library is checked once, and everything about a game is asked from it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from superdex.errors import GameLibraryError
from superdex.games._arguments import check_count, hint
from superdex.games._batch import GameBatch
from superdex.games._description import GameDescription, describe, read_names
from superdex.games._elf import is_cut_short
from superdex.games._interface import (
    INTERFACE_VERSION,
    OPTIONAL,
    SIGNATURES,
    STAMP,
    Description,
    Kind,
    Status,
)

__all__ = ["GameLibrary", "load"]


class GameLibrary:
    """An opened engine with one or more games; made by `load`.

    Attributes:
        path: The file it was loaded from.
        games: The names of its games.
    """

    def __init__(self, path: Path, functions: ctypes.CDLL) -> None:
        self.path = path
        self._functions = functions
        self.games = read_names(str(path), functions.sdg_game_name, "games", unique=True)
        if not self.games:
            raise GameLibraryError(f"{path} offers no game.")

    def __reduce__(self) -> tuple[Callable[[Path], GameLibrary], tuple[Path]]:
        """Have it opened anew from its file, where it is unpickled."""
        return load, (self.path,)

    def __repr__(self) -> str:
        return f"GameLibrary({str(self.path)!r}, games={self.games})"

    def options(self, game: str | None = None) -> dict[str, tuple[int, int, int]]:
        """Return each option's default, least and greatest value."""
        number = self._number(game)
        names = self._unique_names(number, Kind.OPTION, "options", "sdg_option_range")
        found = {}
        values = (ctypes.c_int64 * 3)()
        for index, name in enumerate(names):
            self._check(self._functions.sdg_option_range(number, index, values))
            usual, least, greatest = values
            if not least <= usual <= greatest:
                raise GameLibraryError(
                    f"{self.path} contradicts itself: its option {name} is {usual} where none is "
                    f"given, and has to lie in {least} to {greatest}. Correct its sdg_option_range."
                )
            found[name] = (usual, least, greatest)
        return found

    def describe(
        self, game: str | None = None, options: Mapping[str, int] | None = None
    ) -> GameDescription:
        """Return what the game's arrays look like.

        Args:
            game: Its name; the library's first where none is given.
            options: Values of options; the others have their defaults.

        Raises:
            ValueError: If there is no such game or option, or a value is out of its range.
            GameLibraryError: If the library contradicts itself.
        """
        number = self._number(game)
        values = self._values(number, options)
        about = Description(size=ctypes.sizeof(Description))
        packed = (ctypes.c_int64 * max(1, len(values)))(*values.values())
        self._check(self._functions.sdg_describe(number, packed, about))
        bots = self._unique_names(number, Kind.BOT, "bots", "sdg_bot_moves")

        def name_at(kind: int, index: int) -> bytes | None:
            name: bytes | None = self._functions.sdg_name(number, kind, index)
            return name

        return describe(str(self.path), self.games[number], values, about, bots, name_at)

    def create(
        self,
        num_games: int,
        game: str | None = None,
        options: Mapping[str, int] | None = None,
        *,
        seeds: Sequence[int] | np.ndarray | None = None,
        num_threads: int = 1,
        max_actions: int | None = None,
        event_history: int = 0,
        max_episode_steps: int | None = None,
        first_state_id: int = 0,
        first_episode_id: int = 0,
    ) -> GameBatch:
        """Return a batch of games, each begun.

        Args:
            num_games: How many.
            game: The game's name; the library's first where none is given.
            options: Values of its options.
            seeds: One for each game; row numbers where none are given.
            num_threads: Threads that play, the caller's own included.
            max_actions: Rows of actions in the outputs; room for all where none is given.
            event_history: Events that a seat is shown.
            max_episode_steps: Actions after which an episode is truncated.
            first_state_id: Added to every state id.
            first_episode_id: Added to every episode id.

        Raises:
            ValueError: If an argument is out of its range.
            MemoryError: If memory or threads can't be had.
        """
        description = self.describe(game, options)
        return GameBatch(
            self._functions,
            self._number(game),
            description,
            num_games=num_games,
            seeds=seeds,
            num_threads=num_threads,
            max_actions=description.most_legal_actions if max_actions is None else max_actions,
            event_history=event_history,
            max_episode_steps=max_episode_steps,
            first_state_id=first_state_id,
            first_episode_id=first_episode_id,
        )

    def _check(self, status: int) -> None:
        if status != Status.OK:
            raise GameLibraryError(f"{self.path} could not describe its game: status {status}.")

    def _number(self, game: str | None) -> int:
        if game is None:
            return 0
        if game not in self.games:
            raise ValueError(
                f"{self.path} has no game {game!r}, only {list(self.games)}."
                f"{hint(game, self.games)}"
            )
        return self.games.index(game)

    def _values(self, number: int, options: Mapping[str, int] | None) -> dict[str, int]:
        known = self.options(self.games[number])
        values = {name: usual for name, (usual, _, _) in known.items()}
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(
                f"options must be a dict of numbers by name, with some of {list(known)}, got "
                f"{options!r}."
            )
        for name, value in (options or {}).items():
            if name not in known:
                raise ValueError(
                    f"{self.games[number]} has no option {name!r}, only {list(known)}."
                    f"{hint(name, known)}"
                )
            _, least, greatest = known[name]
            what = f"Option {name} of {self.games[number]}"
            values[name] = check_count(what, value, least, greatest)
        return values

    def _unique_names(self, game: int, kind: int, what: str, function: str) -> tuple[str, ...]:
        """Return the names of things that only libraries with a certain function may have."""
        names = read_names(
            str(self.path),
            lambda index: self._functions.sdg_name(game, kind, index),
            what,
            unique=True,
        )
        if names and not hasattr(self._functions, function):
            raise GameLibraryError(
                f"{self.path} contradicts itself: it names the {what} {list(names)} and has no "
                f"function {function}. Define it, or leave the names out."
            )
        return names


def load(path: str | Path) -> GameLibrary:
    """Open a game engine that implements `superdex_game.h`.

    Every function is declared with its signature, and the library's version and struct sizes are
    compared with those of this package. The GIL is released during its calls.

    Raises:
        GameLibraryError: If there is no such library, or it lacks a function, or it was built for
            another version of the interface.
    """
    path = Path(path).resolve()
    if is_cut_short(path):
        raise GameLibraryError(
            f"The game library {path} is cut short: {path.stat().st_size} bytes are not all that "
            "it needs. Copy or build it anew."
        )
    try:
        functions = ctypes.CDLL(str(path))
    except OSError as error:
        raise GameLibraryError(f"The game library {path} could not be opened: {error}.") from error
    for name, (result, arguments) in SIGNATURES.items():
        try:
            function = getattr(functions, name)
        except AttributeError as error:
            if name in OPTIONAL:
                continue
            raise GameLibraryError(
                f"{path} is no game library of interface version {INTERFACE_VERSION}: it has no "
                f"function {name}. Define it as superdex_game.h says, which lies in "
                "superdex.games.include_dir(); a game on superdex's C++ headers is built together "
                "with interface.cpp, in the folder src beside it."
            ) from error
        function.restype = result
        function.argtypes = arguments
    stamp = functions.sdg_interface_stamp()
    if stamp != STAMP:
        raise GameLibraryError(
            f"{path} was built with another superdex_game.h: {_read_stamp(stamp)}; expected "
            f"{_read_stamp(STAMP)}. Build it anew with the one that lies in "
            "superdex.games.include_dir()."
        )
    return GameLibrary(path, functions)


def _read_stamp(stamp: int) -> str:
    sizes = [stamp >> shift & 0xFFFF for shift in (32, 16, 0)]
    return f"version {stamp >> 48}, structs of {sizes[0]}, {sizes[1]} and {sizes[2]} bytes"
