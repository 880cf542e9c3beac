"""What a library says of a game, and whether that can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["GameDescription", "find_contradiction"]


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


def find_contradiction(about: GameDescription, num_action_args: int) -> str | None:
    """Return what can't be in a description, in words; None if it fits together."""
    channels, names = len(about.board_channels), len(about.action_names)
    if min(about.board_shape) < 1:
        return f"a board of shape {about.board_shape}"
    if channels not in (0, about.board_shape[0]):
        return f"{channels} names for the {about.board_shape[0]} channels of its board"
    if about.num_seats < 1:
        return f"{about.num_seats} seats"
    if not 1 <= about.most_legal_actions <= about.num_actions:
        return f"{about.most_legal_actions} of {about.num_actions} actions as legal at once"
    if names not in (0, about.num_actions):
        return f"{names} names for its {about.num_actions} actions"
    if not -1 <= about.progress_action < about.num_actions:
        return f"action {about.progress_action} of {about.num_actions} as its progress action"
    if num_action_args != len(about.action_args):
        return f"{num_action_args} arguments among {len(about.action_features)} action features"
    if about.num_affected < 0:
        return f"{about.num_affected} sub-records of an event"
    return None
