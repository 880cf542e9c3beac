"""`superdex games play`: two bots play Tron light cycles, drawn in the terminal move by move."""

from __future__ import annotations

import difflib
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from superdex.games import GameLibrary

__all__ = ["Job", "execute", "prepare"]

_COLOURS = ("cyan", "magenta")
_ARROWS = "▲▶▼◀"
_LONGEST_DELAY = 3600
_CAUSES = {1: "the wall", 2: "its own trail", 3: "the other's trail"}


@dataclass(frozen=True)
class Job:
    """A game that has been checked.

    Attributes:
        bots: Who plays seat 0 and who seat 1.
        options: Of the game; what is left out has its default.
        seed: Of the start.
        delay: Seconds between moves, where they can be watched.
    """

    engine: GameLibrary
    bots: tuple[str, str]
    options: dict[str, int]
    seed: int
    delay: float


@dataclass(frozen=True)
class Position:
    """What a spectator sees.

    Attributes:
        trails: The seat whose trail a cell is on, −1 where it is free; int8 of (height, width).
        heads: The cell of each seat's cycle.
        directions: Where each faces: up, right, down, left.
        plies: Moves made.
        winner: The seat that has won, −1 where none has.
        over: Whether the game has ended.
        cause: What the loser ran into.
    """

    trails: np.ndarray
    heads: tuple[int, int]
    directions: tuple[int, int]
    plies: int
    winner: int
    over: bool
    cause: str


def prepare(
    bots: Sequence[str],
    *,
    seed: int | None,
    width: int | None,
    height: int | None,
    vision_radius: int,
    opening_plies: int,
    delay: float,
) -> Job:
    """Check everything that can be wrong before the game begins.

    Raises:
        ValueError: If a bot is unknown, or the board or the delay can't be.
        GameLibraryError: If there is no engine.
    """
    from superdex.games import library

    engine = library()
    given = {
        "width": width,
        "height": height,
        "vision_radius": vision_radius,
        "opening_plies": opening_plies,
    }
    options = {name: value for name, value in given.items() if value is not None}
    known = engine.describe("tron", options).bots
    if not 0 <= delay <= _LONGEST_DELAY:
        raise ValueError(
            f"The delay must be a number of seconds, 0 or more and at most {_LONGEST_DELAY}; got "
            f"{delay:g}."
        )
    if seed is not None and seed >= 2**64:
        raise ValueError(f"The seed must have at most 64 bits; got {seed}.")
    first, second = (_find_bot(bot, known) for bot in bots)
    return Job(
        engine=engine,
        bots=(first, second),
        options=options,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        delay=delay,
    )


def execute(job: Job) -> int:
    """Play the game and return the exit code; without a terminal only its end is shown."""
    output = Console(highlight=False)
    game = _play(job)
    position = next(game)
    if output.is_terminal:
        with Live(_draw(job, position, output), console=output, auto_refresh=False) as live:
            for position in game:
                live.update(_draw(job, position, output), refresh=True)
                time.sleep(job.delay)
    else:
        *_, position = position, *game
        output.print(_draw(job, position, output), soft_wrap=True)
    output.print(_tell_result(job, position, output), soft_wrap=True)
    return 0


def _find_bot(name: str, known: Sequence[str]) -> str:
    """Return the engine's name of a bot, however its words are joined: alphabeta, alpha-beta."""
    plain = {bot.replace("_", ""): bot for bot in known}
    wanted = name.lower().replace("_", "").replace("-", "")
    if wanted not in plain:
        close = difflib.get_close_matches(wanted, plain, n=1)
        hint = f" Did you mean {plain[close[0]]}?" if close else ""
        raise ValueError(f"There is no bot {name!r}; expected one of {', '.join(known)}.{hint}")
    return plain[wanted]


def _play(job: Job) -> Iterator[Position]:
    """Yield every position: the bots play under the options' fog, the spectator sees all."""
    clear = {**job.options, "vision_radius": 0}
    with (
        job.engine.create(1, "tron", job.options, seeds=[job.seed]) as played,
        job.engine.create(1, "tron", clear, seeds=[job.seed], event_history=1) as watched,
    ):
        outputs = watched.allocate()
        watched.observe(outputs)
        about = watched.description
        while True:
            arrays = {name: array[0] for name, array in outputs.arrays.items()}
            state = dict(zip(about.state_fields, arrays["state"].tolist(), strict=True))
            planes = dict(zip(about.board_channels, arrays["board"], strict=True))
            events = dict(zip(about.event_features, arrays["event_features"][-1], strict=True))
            seat, over = state["seat"], bool(state["over"])
            trails = np.full(about.board_shape[1:], -1, np.int8)
            trails[planes["own_trail"] > 0] = seat
            trails[planes["other_trail"] > 0] = 1 - seat
            own_first = slice(None, None, 1 if seat == 0 else -1)
            heads = (state["own_cell"], state["other_cell"])[own_first]
            directions = (state["own_direction"], state["other_direction"])[own_first]
            yield Position(
                trails=trails,
                heads=(heads[0], heads[1]),
                directions=(directions[0], directions[1]),
                plies=state["ply"],
                winner=state["winner"],
                over=over,
                cause=_CAUSES.get(int(events["cause"]), ""),
            )
            if over:
                return
            moves = played.bot_moves(job.bots[seat])
            played.step(moves)
            watched.step(moves, outputs)


def _draw(job: Job, position: Position, console: Console) -> Group:
    """Return names and board; a cell is two characters wide where that fits, and so square."""
    height, width = position.trails.shape
    size = 2 if console.width >= 2 * width + 2 or not console.is_terminal else 1
    plain = console.options.ascii_only
    fill = ("#o" if plain else "█▒", " ." if plain else " ·")
    arrows = "^>v<" if plain else _ARROWS
    names = Text("  ").join(
        Text(f"{fill[0][seat] * 2} {job.bots[seat]}", _COLOURS[seat]) for seat in (0, 1)
    )
    names.append(f"  move {position.plies}", "dim")
    rows = [names]
    for y in range(height):
        row = Text(no_wrap=True)
        for x in range(width):
            seat = int(position.trails[y, x])
            if seat < 0:
                row.append(fill[1][-size:], "dim")
            elif position.heads[seat] == y * width + x:
                row.append(arrows[position.directions[seat]] * size, f"bold {_COLOURS[seat]}")
            else:
                row.append(fill[0][seat] * size, _COLOURS[seat])
        rows.append(row)
    return Group(*rows)


def _tell_result(job: Job, position: Position, console: Console) -> str:
    """Return who won and how to play the game again."""
    height, width = position.trails.shape
    radius = job.options["vision_radius"]
    fog = f"vision radius {radius}, " if radius else ""
    opening = job.options["opening_plies"]
    drawn = f"opening plies {opening}, " if opening else ""
    times = "x" if console.options.ascii_only else "×"
    again = f"board {width} {times} {height}, {fog}{drawn}seed {job.seed}"
    if position.winner < 0:
        return f"A draw after {position.plies} moves ({again})."
    winner, loser = position.winner, 1 - position.winner
    return (
        f"{job.bots[winner]} (seat {winner}) won after {position.plies} moves: {job.bots[loser]} "
        f"(seat {loser}) ran into {position.cause} ({again})."
    )
