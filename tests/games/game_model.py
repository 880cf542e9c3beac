"""What `VectorGameEnv` promises of Tron in plain Python: the twin's rules, seeds and episodes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from superdex.games._keys import _OUTPUT_OF
from tests.games.tron_twin import MASK, TronTwin, episode_seed

NOTHING: dict[str, Any] = {
    "reward": 0.0,
    "seat_reward": (0.0, 0.0),
    "acting_seat": -1,
    "terminated": 0,
    "truncated": 0,
    "action_valid": 0,
}
"""What a call that is no step gives."""


class ModelRow:
    """One environment.

    Args:
        row: Its number.
        seed: Of its first episode.
        rules: Arguments of the twin.
        max_actions: As in `VectorGameEnv`.
        auto_reset: As in `VectorGameEnv`.
        max_episode_steps: As in `VectorGameEnv`.
    """

    def __init__(
        self,
        row: int,
        seed: int,
        rules: dict[str, int],
        *,
        max_actions: int,
        auto_reset: bool,
        max_episode_steps: int | None,
    ) -> None:
        self.row, self.rules, self.max_actions = row, rules, max_actions
        self.auto_reset, self.max_episode_steps = auto_reset, max_episode_steps
        self.reset(seed)

    def reset(self, seed: int | None) -> None:
        if seed is None:
            self._begin_next()
        else:
            self.base, self.episode = (seed - self.row) & MASK, 0
            self._begin(seed)
        self.last = dict(NOTHING)
        self.final: dict[str, Any] | None = None

    def _begin(self, seed: int) -> None:
        self.game, self.steps, self.ended = TronTwin(seed, **self.rules), 0, False

    def _begin_next(self) -> None:
        self.episode += 1
        self._begin(episode_seed(self.base, self.row, self.episode))

    def step(self, action: int) -> tuple[bool, bool]:
        """Play; return whether the position and whether the episode is another one now."""
        self.final = None
        if self.ended:
            flags = {key: self.last[key] for key in ("terminated", "truncated")}
            self.last = NOTHING | flags
            return False, False
        seat = self.game.seat
        self.last = NOTHING | {"acting_seat": seat}
        if action not in self.game.legal():
            return False, False
        self.game.play(action)
        self.steps += 1
        over, winner = self.game.over, self.game.winner
        scores = [0.0 if winner < 0 else 1.0 if winner == who else -1.0 for who in (0, 1)]
        late = not over and self.max_episode_steps is not None
        truncated = late and self.steps >= (self.max_episode_steps or 0)
        self.last |= {
            "reward": scores[seat],
            "seat_reward": scores,
            "terminated": int(over),
            "truncated": int(truncated),
            "action_valid": 1,
        }
        self.ended = over or truncated
        begun = self.ended and self.auto_reset
        if self.ended:
            self.final = self.game.observe(self.max_actions)
        if begun:
            self._begin_next()
        return True, begun

    def capture(self) -> dict[str, Any]:
        return copy.deepcopy(vars(self))

    def restore(self, captured: dict[str, Any]) -> None:
        vars(self).update(copy.deepcopy(captured) | {"row": self.row, "final": None})

    def observe(self) -> dict[str, Any]:
        """Return a row of a batch by the names that the engine has for its arrays."""
        seen = self.game.observe(self.max_actions)
        if self.ended:
            for name in seen:
                if name.startswith("action_") or name.endswith("legal_action_count"):
                    seen[name] = np.zeros_like(seen[name]) - (name == "action_id")
        return seen | self.last | {"env_id": self.row}


def compare(
    got: dict[str, np.ndarray], before: dict[str, np.ndarray], rows: Sequence[ModelRow]
) -> None:
    """Compare a batch, or a slot, and what its arrays held before, with rows; ids are left out."""
    expected = [row.observe() for row in rows]
    for key, array in got.items():
        name = _OUTPUT_OF[key]
        if key in ("state_id", "episode_id"):
            continue
        for entry, old, row, seen in zip(array, before[key], rows, expected, strict=True):
            wanted = seen.get(name)
            if name.startswith("final_"):
                wanted = old if row.final is None else row.final[name.removeprefix("final_")]
            np.testing.assert_array_equal(entry, wanted, err_msg=f"{key} of row {row.row}")
