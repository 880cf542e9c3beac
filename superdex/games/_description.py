"""What a game's arrays look like, as its library says; one that contradicts itself is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from superdex.errors import GameLibraryError
from superdex.games._interface import BOARD_DTYPES, Description, Kind

__all__ = ["GameDescription", "describe", "read_names"]

_MOST_NAMES = 1 << 16
"""More than so many is a library that never says which name is the last."""


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


def read_names(
    library: str,
    name_at: Callable[[int], bytes | None],
    what: str,
    most: int = _MOST_NAMES,
    *,
    unique: bool = False,
) -> tuple[str, ...]:
    """Return the names that a library gives one by one.

    Args:
        library: Where it lies, for messages.
        name_at: Returns a name by number; None past the last.
        what: What the names are of, for messages.
        most: As many as there can be.
        unique: Whether things are told apart by them.

    Raises:
        GameLibraryError: If there are more, or one is no UTF-8, or two are the same and must not.
    """
    names: list[str] = []
    while (name := name_at(len(names))) is not None:
        if len(names) == most:
            raise GameLibraryError(
                f"{library} contradicts itself: it has {most} {what} at most, and names more. "
                "Correct what it describes, or return null past the last name."
            )
        try:
            names.append(name.decode())
        except UnicodeDecodeError as error:
            raise GameLibraryError(
                f"{library} has {what} whose names are no UTF-8: number {len(names)} is {name!r}."
            ) from error
    if unique and len(set(names)) != len(names):
        raise GameLibraryError(f"{library} has {what} of the same name: {names}.")
    return tuple(names)


def describe(
    library: str,
    game: str,
    options: Mapping[str, int],
    about: Description,
    bots: tuple[str, ...],
    name_at: Callable[[int, int], bytes | None],
) -> GameDescription:
    """Return what the library wrote into `about`, with names, all of it checked.

    Args:
        library: Where it lies, for messages.
        game: The game.
        options: The values of its options.
        about: As `sdg_describe` filled it.
        bots: The names of its bots.
        name_at: Returns a name by kind and number.

    Raises:
        GameLibraryError: If arrays made from this would not be what the engine writes.
    """
    shape = tuple(about.board_shape[: max(0, about.board_ndim)])
    possible = {
        "board_ndim": 1 <= about.board_ndim <= len(about.board_shape),
        "board_dtype": about.board_dtype in BOARD_DTYPES,
        "board_shape": min(shape, default=0) >= 1 and math.prod(shape) < 2**31,
        "num_seats": about.num_seats >= 1,
        "num_actions": about.num_actions >= 1,
        "most_legal_actions": 1 <= about.most_legal_actions <= about.num_actions,
        "progress_action": -1 <= about.progress_action < about.num_actions,
        "num_action_args": 0 <= about.num_action_args <= about.num_action_features,
        "num_affected": about.num_affected >= 0,
        "most_plies": about.most_plies >= 0,
    }
    for field, so in possible.items():
        if not so:
            value = shape if field == "board_shape" else getattr(about, field)
            raise GameLibraryError(
                f"{library} describes arrays of impossible sizes: {field} of {game} is {value}, "
                "against superdex_game.h. Correct its sdg_describe."
            )

    def named(kind: int, what: str, count: int, *, optional: bool = False) -> tuple[str, ...]:
        names = read_names(library, lambda index: name_at(kind, index), what, max(0, count))
        if len(names) != count and (names or not optional):
            raise GameLibraryError(
                f"{library} contradicts itself: it names {len(names)} {what} of {game} and "
                f"describes {count}. Make sdg_describe and sdg_name agree."
            )
        return names

    action_features = named(Kind.ACTION_FEATURE, "action features", about.num_action_features)
    return GameDescription(
        name=game,
        options=options,
        num_seats=about.num_seats,
        board_shape=shape,
        board_dtype=BOARD_DTYPES[about.board_dtype],
        board_channels=named(Kind.BOARD_CHANNEL, "board channels", shape[0], optional=True),
        state_fields=named(Kind.STATE_FIELD, "state fields", about.num_state_fields),
        num_actions=about.num_actions,
        action_names=named(Kind.ACTION, "actions", about.num_actions, optional=True),
        most_legal_actions=about.most_legal_actions,
        progress_action=about.progress_action,
        action_features=action_features,
        action_args=action_features[: about.num_action_args],
        event_features=named(Kind.EVENT_FEATURE, "event features", about.num_event_features),
        num_affected=about.num_affected,
        affected_features=named(
            Kind.AFFECTED_FEATURE, "affected features", about.num_affected_features
        ),
        most_plies=about.most_plies,
        bots=bots,
    )
