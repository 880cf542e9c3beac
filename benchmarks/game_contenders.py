"""Who plays in `games.py`: the ways to call superdex's engine, and the same rules in plain Python.

All but the bots play the same games, move by move, from a tape: what is compared is then the cost
of a step, not the luck of a policy, and choosing an action costs nobody anything.
"""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contenders import Contender, warm_up
from superdex.buffers import allocate
from superdex.games import VectorGameEnv, library

# The twin of the rules is what the tests compare the engine with.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.games.tron_twin import TronTwin, episode_seed

__all__ = ["Allocating", "Bots", "Into", "PlainPython", "Replay", "Rules", "Tape", "record"]

_SEED = 0
# Between two looks at the clock at least so many games are stepped.
_ENV_STEPS_PER_LOOK = 512


@dataclass(frozen=True)
class Tape:
    """Random games from the start on, which can be played again.

    Attributes:
        actions: Legal actions, int32 of (steps, num_envs).
        games: How many games ended.
    """

    actions: np.ndarray
    games: int

    @property
    def num_envs(self) -> int:
        """Games that are played at a time."""
        return int(self.actions.shape[1])

    @property
    def games_per_env_step(self) -> float:
        """Games that end with a step of one game, on average."""
        return self.games / self.actions.size


def record(num_envs: int, steps: int) -> Tape:
    """Play random legal actions and return them."""
    rng = np.random.default_rng(_SEED)
    actions = np.empty((steps, num_envs), np.int32)
    rows, games = np.arange(num_envs), 0
    with VectorGameEnv("tron", num_envs, _SEED) as env:
        batch = env.reset(seed=_SEED)
        for step in range(steps):
            column = (rng.random(num_envs) * batch["legal_action_count"]).astype(np.int64)
            actions[step] = batch["action_id"][rows, column]
            batch = env.step(actions[step])
            games += int(batch["terminated"].sum())
    return Tape(actions, games)


class Replay(Contender):
    """Plays a tape over and over; beginning it again is not counted."""

    def __init__(self, tape: Tape) -> None:
        self._rows = list(tape.actions)
        self._num_envs = tape.num_envs
        self._at_once = max(1, _ENV_STEPS_PER_LOOK // tape.num_envs)
        self._next = len(self._rows)

    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second."""
        warm_up(self._play_some)
        steps, elapsed = 0, 0.0
        while elapsed < seconds:
            played, needed = self._play_some()
            steps += played
            elapsed += needed
        return steps * self._num_envs / elapsed

    def _play_some(self) -> tuple[int, float]:
        """Play the next steps; return how many, and the time they took."""
        if self._next == len(self._rows):
            self.begin()
            self._next = 0
        some = self._rows[self._next : self._next + self._at_once]
        self._next += len(some)
        step = self.step
        start = time.perf_counter()
        for actions in some:
            step(actions)
        return len(some), time.perf_counter() - start

    @abstractmethod
    def begin(self) -> None:
        """Go to where the tape starts."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> None:
        """Play one action in every game."""


class Allocating(Replay):
    """`VectorGameEnv.step`: new arrays from every call."""

    def __init__(self, tape: Tape, num_threads: int) -> None:
        super().__init__(tape)
        self._env = VectorGameEnv("tron", tape.num_envs, _SEED, num_threads=num_threads)

    def begin(self) -> None:
        """Go to where the tape starts."""
        self._env.reset(seed=_SEED)

    def step(self, actions: np.ndarray) -> None:
        """Play one action in every game."""
        self._env.step(actions)

    def close(self) -> None:
        """Give the games back."""
        self._env.close()


class Into(Allocating):
    """The same through a bound handle: always into the same arrays."""

    def __init__(self, tape: Tape, num_threads: int) -> None:
        super().__init__(tape, num_threads)
        # The handle's own method is called, without one of ours around it.
        self.step = self._env.bind(allocate(self._env.batch_spec())).step  # type: ignore[method-assign]


class Rules(Replay):
    """The engine without an observation: the moves, the ends and the new games."""

    def __init__(self, tape: Tape, num_threads: int) -> None:
        super().__init__(tape)
        self._seeds = _SEED + np.arange(tape.num_envs)
        self._batch = library().create(
            tape.num_envs, "tron", seeds=self._seeds, num_threads=num_threads
        )
        self._actions = np.empty(tape.num_envs, np.int32)
        self._play = self._batch.stepper(
            self._actions,
            self._batch.allocate(names=["terminated"]),
            auto_reset=True,
            keep_illegal=True,
        )

    def begin(self) -> None:
        """Go to where the tape starts."""
        self._batch.reset(self._seeds)

    def step(self, actions: np.ndarray) -> None:
        """Play one action in every game."""
        self._actions[...] = actions
        self._play()

    def close(self) -> None:
        """Give the games back."""
        self._batch.close()


class Bots(Contender):
    """The alpha-beta bot plays against itself; a step is its search and the step of the games."""

    def __init__(self, num_envs: int, num_threads: int) -> None:
        self._env = VectorGameEnv("tron", num_envs, _SEED, num_threads=num_threads)
        self._handle = self._env.bind(allocate(self._env.batch_spec()))

    def run(self, seconds: float) -> float:
        """Step for that long, from the same starts every time."""
        self._env.reset(seed=_SEED)
        self._step()
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            self._step()
            steps += 1
        return steps * self._env.num_envs / elapsed

    def _step(self) -> None:
        self._handle.step(self._env.bot_moves("alpha_beta"))

    def close(self) -> None:
        """Give the games back."""
        self._env.close()


class PlainPython(Contender):
    """A loop over games in plain Python, each moved and observed; it goes on where it stopped."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._next = 0
        self._begin()

    @property
    def games(self) -> int:
        """Games that have ended since the tape began."""
        return sum(self._episodes)

    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second."""
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            self.step_one()
            steps += 1
        return steps / elapsed

    def step_one(self) -> None:
        """Play the next move of the tape, in one of the games."""
        if self._next == self._tape.actions.size:
            self._begin()
            self._next = 0
        step, row = divmod(self._next, self._tape.num_envs)
        self._next += 1
        twin = self._twins[row]
        twin.play(int(self._tape.actions[step, row]))
        if twin.over:
            self._episodes[row] += 1
            twin = TronTwin(episode_seed(_SEED, row, self._episodes[row]))
            self._twins[row] = twin
        twin.observe()

    def _begin(self) -> None:
        self._twins = [TronTwin(_SEED + row) for row in range(self._tape.num_envs)]
        self._episodes = [0] * self._tape.num_envs

    def close(self) -> None:
        """Do nothing: there are only objects."""
