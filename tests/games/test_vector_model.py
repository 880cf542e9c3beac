"""VectorGameEnv against a model in plain Python, over random calls in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superdex.buffers import allocate
from superdex.games import GameLibrary, VectorGameEnv
from tests.games.game_model import ModelRow, compare

RULES = [
    {"width": 6, "height": 5},
    {"width": 5, "height": 4, "vision_radius": 2, "max_plies": 11},
    {"width": 4, "height": 4},
    {"width": 6, "height": 5, "opening_plies": 5, "max_plies": 6},
]
SEEDS = (0, 5, 2**63, 2**64 - 8)


class Pair:
    """An environment and its model, given the same calls.

    Args:
        number: Decides on settings and calls.
        library: The engine.
    """

    def __init__(self, number: int, library: GameLibrary) -> None:
        self.rng = rng = np.random.default_rng(number)
        count, history = int(rng.integers(1, 7)), int(rng.integers(4))
        seed, rules = SEEDS[number % len(SEEDS)], RULES[number % len(RULES)]
        settings: dict[str, Any] = {
            "max_actions": int(rng.integers(1, 6)),
            "auto_reset": number % 2 == 0,
            "max_episode_steps": (None, None, 1, 9)[int(rng.integers(4))],
        }
        self.env = VectorGameEnv(
            "tron",
            count,
            seed,
            library=library,
            options=rules,
            visible_event_history=history,
            final_observation=True,
            num_threads=1 + number % 2,
            **settings,
        )
        self.rows = [
            ModelRow(row, seed + row, rules | {"history": history}, **settings)
            for row in range(count)
        ]
        self.bound = self.garbage(count)
        self.handle = self.env.bind(self.bound)
        self.kept = self.env.capture_states(), [row.capture() for row in self.rows]
        self.used = {*self.env.state_ids.tolist()}, {*self.env.episode_ids.tolist()}

    def garbage(self, count: int) -> dict[str, np.ndarray]:
        """Return arrays for so many rows that hold anything: all but final rows is written."""
        buffers = allocate(self.env.slot_batch_spec(count))
        for array in buffers.values():
            array.reshape(-1).view(np.uint8)[:] = self.rng.integers(0, 256, array.nbytes)
        return buffers

    def actions(self, rows: list[ModelRow]) -> np.ndarray:
        """Return legal ids for most rows, others for the rest."""
        chosen = []
        for row in rows:
            legal = row.game.legal()
            bad = row.ended or not legal or self.rng.random() < 0.15
            chosen.append(self.rng.choice([-1, 4, 2**31 - 1, -(2**31), 0, 1] if bad else legal))
        return np.array(chosen, np.int32).reshape(len(rows))

    def seeds(self, rows: list[ModelRow]) -> tuple[Any, list[int | None]]:
        """Return seeds as they may be given, and that of each row."""
        kind = self.rng.integers(4)
        if kind == 0:
            return None, [None] * len(rows)
        if kind == 1:
            first = SEEDS[int(self.rng.integers(len(SEEDS)))]
            return first, [first + row.row for row in rows]
        each = [None if self.rng.random() < 0.5 else int(self.rng.integers(2**60)) for _ in rows]
        if kind == 2 and None not in each:
            return np.array(each, np.uint64), each
        return each, each

    def call(self) -> None:
        """Make one call of any kind, and compare all that it gives and leaves."""
        count = len(self.rows)
        slot = self.rng.permutation(count)[: self.rng.integers(count + 1)]
        ids, episodes = self.env.state_ids, self.env.episode_ids
        moved, begun = np.zeros((2, count), bool)
        kind = self.rng.choice([*["step"] * 7, "reset", "restore", "capture"])
        if kind == "capture":
            self.kept = self.env.capture_states(), [row.capture() for row in self.rows]
        elif kind == "restore":
            states, models = self.kept
            self.env.restore_states(states[: len(slot)], slot)
            for row, captured in zip(slot, models, strict=False):
                self.rows[row].restore(captured)
            moved[slot] = begun[slot] = True
        else:
            how = str(self.rng.choice(["slot", "into", "bound"]))
            rows = self.rows if how != "slot" else [self.rows[row] for row in slot]
            into = self.bound if how == "bound" else self.garbage(len(rows))
            before = {key: array.copy() for key, array in into.items()}
            play = self.reset if kind == "reset" else self.step
            for row, changes in zip(rows, play(how, rows, into), strict=True):
                moved[row.row], begun[row.row] = changes
            compare(into, before, rows)
        everything = self.env.observe()
        compare(everything, allocate(self.env.batch_spec()), self.rows)
        self.compare_ids(0, ids, everything["state_id"], moved)
        self.compare_ids(1, episodes, everything["episode_id"], begun)

    def reset(
        self, how: str, rows: list[ModelRow], into: dict[str, np.ndarray]
    ) -> list[tuple[bool, bool]]:
        """Reset rows; return whether the position and whether the episode is another one now."""
        given, each = self.seeds(rows)
        if how == "slot":
            self.env.reset_slots_into([row.row for row in rows], into, given)
        elif how == "bound":
            self.handle.reset(seed=given)
        else:
            self.env.reset_into(into, seed=given)
        for row, seed in zip(rows, each, strict=True):
            row.reset(seed)
        return [(True, True)] * len(rows)

    def step(
        self, how: str, rows: list[ModelRow], into: dict[str, np.ndarray]
    ) -> list[tuple[bool, bool]]:
        """Step rows; else as `reset`."""
        actions = self.actions(rows)
        if how == "slot":
            numbers = [row.row for row in rows]
            ids = self.env.state_ids[numbers]
            self.env.step_slots_into_checked(numbers, actions, ids, into)
        elif how == "bound":
            self.handle.step(actions)
        else:
            self.env.step_into(actions, into)
        return [row.step(action) for row, action in zip(rows, actions.tolist(), strict=True)]

    def compare_ids(self, kind: int, old: np.ndarray, new: np.ndarray, changed: np.ndarray) -> None:
        """Compare which ids are others now; they never come back."""
        np.testing.assert_array_equal(new != old, changed)
        fresh = {*new[changed].tolist()}
        assert len(fresh) == changed.sum()
        assert not fresh & self.used[kind]
        self.used[kind].update(fresh)


@pytest.mark.parametrize("number", range(12))
def test_calls_in_any_order_give_what_the_model_gives(tron, number):
    """Steps, resets, captured games, of all rows and of slots; ids change with moves, for ever."""
    pair = Pair(number, tron)
    for _ in range(60):
        pair.call()
