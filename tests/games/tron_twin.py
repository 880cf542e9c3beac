"""Tron light cycles in plain Python: the rules once more, slowly, to compare the engine with."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

MASK = 2**64 - 1
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # up, right, down, left
Cell = tuple[int, int]


def mix(x: int) -> int:
    """Return SplitMix64's output for a counter, as published."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def episode_seed(base: int, row: int, episode: int) -> int:
    """Return the seed of a row's e-th episode after a seeded reset, e from 1."""
    return mix((mix((base + row * 0x9E3779B97F4A7C15) & MASK) + episode) & MASK)


class TronTwin:
    """One game."""

    def __init__(
        self,
        seed: int,
        width: int = 30,
        height: int = 20,
        vision_radius: int = 0,
        max_plies: int = 0,
        opening_plies: int = 0,
        history: int = 0,
    ) -> None:
        self.width, self.height = width, height
        self.vision_radius, self.history = vision_radius, history
        self.last_ply = max_plies and opening_plies + max_plies
        counter = seed & MASK

        def below(bound: int) -> int:
            nonlocal counter
            draw = mix(counter) >> 32
            counter = (counter + 0x9E3779B97F4A7C15) & MASK
            return draw * bound >> 32

        x = 1 + below(width // 2 - 1)
        y = 1 + below(height - 2)
        direction = below(4)
        self.heads = [(x, y), (width - 1 - x, height - 1 - y)]
        self.directions = [direction, (direction + 2) % 4]
        self.trails = [{self.heads[0]}, {self.heads[1]}]
        self.seat = self.plies = 0
        self.over, self.winner = False, -1
        self.events: list[list[tuple[Any, ...]]] = [[], []]
        self.actions = 0
        for _ in range(opening_plies):
            around = self.neighbours(self.heads[self.seat])
            safe = [move for move in range(4) if self.is_free(around[move])]
            if not safe:
                break
            self.enter(safe[below(len(safe))])
            self.plies += 1
            self.seat = 1 - self.seat

    def inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.width and 0 <= cell[1] < self.height

    def number(self, cell: Cell | None) -> int:
        return -1 if cell is None or not self.inside(cell) else cell[1] * self.width + cell[0]

    def sees(self, seat: int, cell: Cell) -> bool:
        head = self.heads[seat]
        far = max(abs(cell[0] - head[0]), abs(cell[1] - head[1]))
        return self.vision_radius == 0 or far <= self.vision_radius

    def neighbours(self, cell: Cell) -> list[Cell]:
        return [(cell[0] + dx, cell[1] + dy) for dx, dy in STEPS]

    def is_free(self, cell: Cell) -> bool:
        return self.inside(cell) and cell not in self.trails[0] | self.trails[1]

    def legal(self) -> list[int]:
        if self.over:
            return []
        around = self.neighbours(self.heads[self.seat])
        safe = [move for move, cell in enumerate(around) if self.is_free(cell)]
        return safe or [self.directions[self.seat]]

    def enter(self, move: int) -> None:
        cell = self.neighbours(self.heads[self.seat])[move]
        self.directions[self.seat] = move
        self.heads[self.seat] = cell
        self.trails[self.seat].add(cell)

    def play(self, move: int) -> None:
        mover, source = self.seat, self.heads[self.seat]
        target = self.neighbours(source)[move] if 0 <= move < 4 else None
        if target is None:
            cause = 4
        elif not self.inside(target):
            cause = 1
        elif target in self.trails[mover]:
            cause = 2
        elif target in self.trails[1 - mover]:
            cause = 3
        else:
            cause = 0
        if target is not None:
            self.directions[mover] = move
        if cause == 0:
            self.enter(move)
        else:
            self.over, self.winner = True, 1 - mover
        self.actions += 1
        self.tell(mover, source, target, -1 if target is None else move, cause)
        self.plies += 1
        self.seat = 1 - mover
        if self.last_ply and self.plies >= self.last_ply:
            self.over = True

    def tell(self, mover: int, source: Cell, target: Cell | None, move: int, cause: int) -> None:
        end = target if target is not None and self.inside(target) else None
        for seat in (0, 1):
            sees_source = seat == mover or self.sees(seat, source)
            sees_target = end is not None and (seat == mover or self.sees(seat, end))
            if not sees_source and not sees_target:
                continue
            whole = sees_source and (sees_target or end is None)
            features = (
                self.plies,
                int(cause > 0),
                mover,
                self.number(source) if sees_source else -1,
                self.number(target) if sees_target else -1,
                move if whole else -1,
                cause if whole or sees_target else -1,
            )
            affected = []
            if cause == 0 and sees_target:
                affected.append((mover, self.number(target), 1))
            if cause > 0 and sees_source:
                affected.append((mover, self.number(source), 0))
            if cause == 3 and sees_target:
                affected.append((1 - mover, self.number(target), 1))
            self.events[seat].append((self.actions, features, affected))

    # What the seat to move sees.

    def perceived(self) -> tuple[set[Cell], set[Cell], Cell | None]:
        """Return the cells it sees, those that count as free, and the other head if it is seen."""
        board = {(x, y) for x in range(self.width) for y in range(self.height)}
        seen = {cell for cell in board if self.sees(self.seat, cell)}
        other = self.heads[1 - self.seat]
        taken = (self.trails[0] | self.trails[1]) & seen
        return seen, board - taken, other if other in seen else None

    def flood(self, free: set[Cell], start: Cell) -> int:
        """Count the free cells connected with a cell, that one left out."""
        found, queue = {start}, deque([start])
        while queue:
            for cell in self.neighbours(queue.popleft()):
                if cell in free and cell not in found:
                    found.add(cell)
                    queue.append(cell)
        return len(found) - 1

    def divide(self, free: set[Cell], first: Cell | None, second: Cell | None) -> list[set[Cell]]:
        """Let both spread over the free cells in turn; return what each entered first."""
        open_cells = set(free)
        fronts = [{first} if first else set(), {second} if second else set()]
        taken: list[set[Cell]] = [set(), set()]
        while fronts[0] or fronts[1]:
            for side in (0, 1):
                reached = {n for cell in fronts[side] for n in self.neighbours(cell)} & open_cells
                open_cells -= reached
                taken[side] |= reached
                fronts[side] = reached
        return taken

    def outlooks(self) -> list[tuple[int, int]]:
        """Return room and margin of each move."""
        if self.over:
            return [(0, 0)] * 4
        _, free, other = self.perceived()
        found = []
        for cell in self.neighbours(self.heads[self.seat]):
            if cell not in free:
                found.append((0, -self.width * self.height))
                continue
            theirs, ours = self.divide(free - {cell}, other, cell)
            found.append((self.flood(free, cell), len(ours) - len(theirs)))
        return found

    def observe(self, max_actions: int = 4) -> dict[str, Any]:
        """Return what the engine writes for one row, episodes and numbers left out."""
        seen, free, other = self.perceived()
        own, seat = self.heads[self.seat], self.seat
        mine, theirs = self.divide(free, own, other)
        planes = [
            {own}, self.trails[seat] & seen, {other} if other else set(),
            self.trails[1 - seat] & seen, free & seen, seen, mine, theirs,
        ]  # fmt: skip
        board = np.zeros((8, self.height, self.width), np.uint8)
        for plane, cells in zip(board, planes, strict=True):
            for x, y in cells:
                plane[y, x] = 1
        around, legal, outlooks = self.neighbours(own), self.legal(), self.outlooks()
        state = [
            self.plies, seat, int(self.over), self.winner, self.number(own), self.directions[seat],
            self.number(other), self.directions[1 - seat] if other else -1,
            *(self.number(cell) for cell in around), *(int(m in legal) for m in range(4)),
            *(room for room, _ in outlooks), *(margin for _, margin in outlooks),
        ]  # fmt: skip
        features = np.zeros((max_actions, 6), np.int32)
        args = np.zeros((max_actions, 2), np.uint8)
        ids = np.full(max_actions, -1, np.int32)
        for row, move in enumerate(legal[:max_actions]):
            ids[row] = move
            turn, crash = (move - self.directions[seat]) % 4, int(around[move] not in free)
            features[row] = (move, self.number(around[move]), turn, crash, *outlooks[move])
            args[row] = (1, self.inside(around[move]))
        return {
            "board": board,
            "state": np.array(state, np.int32),
            "action_id": ids,
            "action_features": features,
            "action_arg_mask": args,
            "action_mask": (ids >= 0).astype(np.uint8),
            "legal_action_count": np.int32(min(len(legal), max_actions)),
            "total_legal_action_count": np.int32(len(legal)),
            "action_truncated": np.uint8(len(legal) > max_actions),
            "plies": np.int32(self.plies),
            "seat": np.int32(seat),
            "over": np.uint8(self.over),
            **self.window(),
        }

    def window(self) -> dict[str, np.ndarray]:
        """Return the last events that the seat to move saw, right-aligned."""
        k = self.history
        arrays: dict[str, np.ndarray] = {
            "event_features": np.zeros((k, 7), np.int32),
            "event_sequence": np.zeros(k, np.uint64),
            "event_action_sequence": np.zeros(k, np.uint64),
            "event_mask": np.zeros(k, np.uint8),
            "event_affected": np.zeros((k, 2, 3), np.int32),
            "event_affected_mask": np.zeros((k, 2), np.uint8),
        }
        events = self.events[self.seat]
        for back in range(1, min(k, len(events)) + 1):
            action, features, affected = events[-back]
            arrays["event_features"][-back] = features
            arrays["event_sequence"][-back] = len(events) - back + 1
            arrays["event_action_sequence"][-back] = action
            arrays["event_mask"][-back] = 1
            for place, record in enumerate(affected):
                arrays["event_affected"][-back, place] = record
                arrays["event_affected_mask"][-back, place] = 1
        return arrays
