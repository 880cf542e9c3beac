"""Opens game engines: a library is checked once, and everything about a game is asked from it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from superdex.errors import GameLibraryError
from superdex.games._batch import GameBatch
from superdex.games._interface import (
    BOARD_DTYPES,
    INTERFACE_VERSION,
    OPTIONAL,
    SIGNATURES,
    STAMP,
    Description,
    Kind,
    Status,
)

__all__ = ["GameDescription", "GameLibrary", "load"]


@dataclass(frozen=True)
class GameDescription:
    """What a game's arrays look like under given options, as its library says.

    Attributes:
        name: The game.
        options: Every option with its value.
        num_seats: Players.
        board_shape: Shape of one board.
        board_dtype: Its dtype, uint8 or int32.
        board_channels: Names along the board's first axis; empty where the game names none.
        state_fields: Names of the compact state's entries.
        num_actions: Action ids are 0 … num_actions − 1.
        action_names: Names of the ids; empty where the game names none.
        most_legal_actions: As many as a position can have.
        progress_action: The action kept where the rows are too few for all; −1 for none.
        action_features: Names of an action row's features.
        action_args: The first of those, which are the action's arguments.
        event_features: Names of an event's features.
        num_affected: Sub-records of an event, at most.
        affected_features: Names of a sub-record's features.
        most_plies: Of an episode; 0 where nothing bounds it.
        bots: Names of the players that the engine offers, weakest first.
    """

    name: str
    options: Mapping[str, int]
    num_seats: int
    board_shape: tuple[int, ...]
    board_dtype: np.dtype
    board_channels: tuple[str, ...]
    state_fields: tuple[str, ...]
    num_actions: int
    action_names: tuple[str, ...]
    most_legal_actions: int
    progress_action: int
    action_features: tuple[str, ...]
    action_args: tuple[str, ...]
    event_features: tuple[str, ...]
    num_affected: int
    affected_features: tuple[str, ...]
    most_plies: int
    bots: tuple[str, ...]


class GameLibrary:
    """An opened engine with one or more games; made by `load`.

    Attributes:
        path: The file it was loaded from.
        games: The names of its games.
    """

    def __init__(self, path: Path, functions: ctypes.CDLL) -> None:
        self.path = path
        self._functions = functions
        self.games = self._all_names(functions.sdg_game_name)
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
        found = {}
        values = (ctypes.c_int64 * 3)()
        for index, name in enumerate(self._names(number, Kind.OPTION)):
            self._check(self._functions.sdg_option_range(number, index, values))
            found[name] = (values[0], values[1], values[2])
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
        features = self._counted(number, Kind.ACTION_FEATURE, about.num_action_features)
        if not 1 <= about.board_ndim <= 4 or about.board_dtype not in BOARD_DTYPES:
            raise GameLibraryError(
                f"{self.path} describes a board of {about.board_ndim} axes and dtype number "
                f"{about.board_dtype}; expected 1 to 4 axes and a dtype of {sorted(BOARD_DTYPES)}."
            )
        description = GameDescription(
            name=self.games[number],
            options=values,
            num_seats=about.num_seats,
            board_shape=tuple(about.board_shape[: about.board_ndim]),
            board_dtype=BOARD_DTYPES[about.board_dtype],
            board_channels=self._names(number, Kind.BOARD_CHANNEL),
            state_fields=self._counted(number, Kind.STATE_FIELD, about.num_state_fields),
            num_actions=about.num_actions,
            action_names=self._names(number, Kind.ACTION),
            most_legal_actions=about.most_legal_actions,
            progress_action=about.progress_action,
            action_features=features,
            action_args=features[: about.num_action_args],
            event_features=self._counted(number, Kind.EVENT_FEATURE, about.num_event_features),
            num_affected=about.num_affected,
            affected_features=self._counted(
                number, Kind.AFFECTED_FEATURE, about.num_affected_features
            ),
            most_plies=about.most_plies,
            bots=self._names(number, Kind.BOT),
        )
        sizes = (*description.board_shape, about.num_seats, about.num_actions)
        if min(sizes) < 1 or about.most_legal_actions < 1 or about.num_affected < 0:
            raise GameLibraryError(f"{self.path} describes arrays of impossible sizes: {sizes}.")
        return description

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
        number = self._number(game)
        description = self.describe(game, options)
        return GameBatch(
            self._functions,
            number,
            description,
            num_games=num_games,
            seeds=np.arange(num_games) if seeds is None else seeds,
            num_threads=num_threads,
            max_actions=description.most_legal_actions if max_actions is None else max_actions,
            event_history=event_history,
            max_episode_steps=max_episode_steps or 0,
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
                f"{_hint(game, self.games)}"
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
                    f"{_hint(name, known)}"
                )
            _, least, greatest = known[name]
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole or not least <= value <= greatest:
                raise ValueError(
                    f"Option {name} of {self.games[number]} must be a whole number from {least} to "
                    f"{greatest}, got {value!r}."
                )
            values[name] = int(value)
        return values

    def _names(self, game: int, kind: int) -> tuple[str, ...]:
        return self._all_names(lambda index: self._functions.sdg_name(game, kind, index))

    def _counted(self, game: int, kind: int, count: int) -> tuple[str, ...]:
        names = self._names(game, kind)
        if len(names) != count:
            raise GameLibraryError(
                f"{self.path} contradicts itself: it names {len(names)} things of kind {kind} and "
                f"describes {count}. Build it anew."
            )
        return names

    @staticmethod
    def _all_names(name_at: Callable[[int], bytes | None]) -> tuple[str, ...]:
        names: list[str] = []
        while (name := name_at(len(names))) is not None:
            names.append(name.decode())
        return tuple(names)


def load(path: str | Path) -> GameLibrary:
    """Open a game engine that implements `superdex_game.h`.

    Every function is declared with its signature, and the library's version and struct sizes are
    compared with those of this package. The GIL is released during its calls.

    Raises:
        GameLibraryError: If there is no such library, or it lacks a function, or it was built for
            another version of the interface.
    """
    path = Path(path).resolve()
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
                f"function {name}. Build it against superdex_game.h as it is now."
            ) from error
        function.restype = result
        function.argtypes = arguments
    stamp = functions.sdg_interface_stamp()
    if stamp != STAMP:
        raise GameLibraryError(
            f"{path} implements version {stamp >> 48} of the game interface (stamp {stamp:#x}), "
            f"expected version {INTERFACE_VERSION} ({STAMP:#x}). Build it anew against "
            "superdex_game.h as it is now."
        )
    return GameLibrary(path, functions)


def _hint(name: object, known: Mapping[str, object] | Sequence[str]) -> str:
    close = get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
