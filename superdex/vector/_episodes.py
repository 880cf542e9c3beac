"""Where every environment stands in its sequence of episodes.

A worker knows it of its own environments. The caller's process keeps a `Ledger` of all of them
where workers may be restarted: a worker that was killed can't be asked, and what counts then is
what the caller was told.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.vector._columns import snapshot
from superdex.vector._seeding import drawn_seed

__all__ = ["Episode", "Ledger", "Revival"]


@dataclass
class Episode:
    """Where one environment stands.

    Attributes:
        seed: The last seed that it was given.
        number: Of the episode in progress, 0 for the one that began with that seed; −1 before the
            first reset.
        options: Of its last reset by the caller.
    """

    seed: int | None = None
    number: int = -1
    options: dict[str, Any] | None = None


@dataclass(frozen=True)
class Revival:
    """What a restarted worker needs to go on in the place of the one before.

    Attributes:
        episodes: Of each of its environments.
        lost: Rows whose episode was cut short; the next step says so.
        ended: Rows whose episode had ended before.
        attributes: What `set_attr` had set, by name, for each environment.
        columns: The info columns in use.
        bank: The bank of states that episodes begin with, pickled; None for none.
    """

    episodes: list[Episode]
    lost: list[int]
    ended: list[int]
    attributes: list[dict[str, Any]]
    columns: Any = None
    bank: bytes | None = None


@dataclass
class Ledger:
    """What the caller was told of every environment.

    Args:
        num_envs: All environments.
        autoreset_mode: Of the vector environment.
        episode_seeds: Whether environments that are given no seed need one.
    """

    num_envs: int
    autoreset_mode: AutoresetMode
    episode_seeds: bool
    _resetting: tuple[Sequence[int], Sequence[int | None], Sequence[Any]] = field(
        default=((), (), ()), init=False
    )
    _setting: tuple[Sequence[int], str, Sequence[Any]] = field(default=((), "", ()), init=False)

    bank: bytes | None = field(default=None, init=False)
    """The bank of states that episodes begin with, pickled."""

    def __post_init__(self) -> None:
        self._seeds: list[int | None] = [None] * self.num_envs
        self._options: list[dict[str, Any] | None] = [None] * self.num_envs
        self._attributes: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self._numbers = np.full(self.num_envs, -1, np.int64)
        self._ended = np.zeros(self.num_envs, np.bool_)

    def begin_reset(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
    ) -> list[int | None]:
        """Note what a reset asks for, until `finish_reset`; return the seeds to use.

        They are those given, and with `episode_seeds` a drawn one for each environment that never
        had any.
        """
        chosen = self.seeds_for(rows, seeds)
        # the caller may change what it passed
        kept = {id(entry): snapshot(entry) for entry in options}
        self._resetting = rows, chosen, [kept[id(entry)] for entry in options]
        return chosen

    def seeds_for(self, rows: Sequence[int], seeds: Sequence[int | None]) -> list[int | None]:
        """Return the seeds that a reset uses; see `begin_reset`."""
        chosen = list(seeds)
        if self.episode_seeds:
            for position, row in enumerate(rows):
                if chosen[position] is None and self._seeds[row] is None:
                    chosen[position] = drawn_seed()
        return chosen

    def finish_reset(self) -> None:
        """The reset that was begun came to its end."""
        self.note_reset(*self._resetting)
        self._resetting = (), (), ()

    def note_reset(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
    ) -> None:
        """Note that some environments were reset, with these seeds and options."""
        for row, seed, chosen in zip(rows, seeds, options, strict=True):
            self._options[row] = chosen
            self._ended[row] = False
            self._numbers[row] += 1
            if seed is not None:
                self._seeds[row], self._numbers[row] = seed, 0

    def note_step(
        self, ended: np.ndarray, autoreset: np.ndarray, rows: np.ndarray | None = None
    ) -> None:
        """Note which episodes ended in a step and which environments it reset.

        Args:
            ended: (rows,) bool.
            autoreset: (rows,) bool.
            rows: The environments that were stepped; all if None.
        """
        where: Any = slice(None) if rows is None else rows
        self._numbers[where] += autoreset
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._ended[where] = ended

    def begin_set(self, rows: Sequence[int], name: str, values: Sequence[Any]) -> None:
        """Note what `set_attr` is to set, until `finish_set`."""
        self._setting = rows, name, [snapshot(value) for value in values]

    def finish_set(self, left_out: Collection[int] = ()) -> None:
        """It came to its end, and set all of that but in some rows."""
        rows, name, values = self._setting
        for row, value in zip(rows, values, strict=True):
            if row not in left_out:
                self._attributes[row].pop(name, None)  # those set last are set again last
                self._attributes[row][name] = value
        self._setting = (), "", ()

    def adopt(self, row: int, episode: Episode, attributes: dict[str, Any], *, ended: bool) -> None:
        """Note that a captured state was put into a row."""
        self._seeds[row], self._numbers[row] = episode.seed, episode.number
        self._options[row], self._attributes[row] = episode.options, dict(attributes)
        self._ended[row] = ended

    def revival(self, rows: range, columns: Any = None) -> Revival:
        """Return what the worker of these environments needs after a restart."""
        begun = self._numbers[rows.start : rows.stop] >= 0
        ended = self._ended[rows.start : rows.stop]
        return Revival(
            [Episode(self._seeds[r], int(self._numbers[r]), self._options[r]) for r in rows],
            np.flatnonzero(begun & ~ended).tolist(),
            np.flatnonzero(ended).tolist(),
            [self._attributes[r] for r in rows],
            columns,
            self.bank,
        )
