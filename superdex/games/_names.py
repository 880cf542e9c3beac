"""What the entries of a batch's arrays are called."""

from __future__ import annotations

from superdex.games._description import GameDescription

__all__ = ["FeatureNames"]


class FeatureNames:
    """Names along the axes of a batch's arrays, as the engine gives them; a part of the whole.

    Attributes:
        description: Of the game.
    """

    description: GameDescription

    @property
    def board_channel_names(self) -> tuple[str, ...]:
        """Names along the first axis of a board; empty where the game names none."""
        return self.description.board_channels

    @property
    def state_feature_names(self) -> tuple[str, ...]:
        """Names of the entries of `state`."""
        return self.description.state_fields

    @property
    def action_feature_names(self) -> tuple[str, ...]:
        """Names of the last axis of `action_features`."""
        return self.description.action_features

    @property
    def action_arg_names(self) -> tuple[str, ...]:
        """Names of the last axis of `action_arg_mask`: the first of the action features."""
        return self.description.action_args

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the action ids; empty where the game names none."""
        return self.description.action_names

    @property
    def visible_event_feature_names(self) -> tuple[str, ...]:
        """Names of the last axis of `visible_event_features`."""
        return self.description.event_features

    @property
    def visible_event_affected_feature_names(self) -> tuple[str, ...]:
        """Names of the last axis of `visible_event_affected`."""
        return self.description.affected_features
