"""Many games as one batch of arrays: the calls of `superdex.buffers` over an engine's batch.

One native call plays the actions, begins new episodes, and writes everything that the players see
straight into the caller's arrays::

    step(actions) ──► checks ──► sdg_step(rows, actions, ids, outputs) ──► {key: array}
                      └ Python: once per call ┘   └ engine: per game, over its threads

Python keeps nothing of a batch: positions, results of the last step, ids and seeds to come lie in
the engine. So threads may call on disjoint slots without a lock here, and what an interrupted call
gave can be observed again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from superdex._limits import usable_cpus
from superdex._memory import check_memory
from superdex.buffers import BatchSpec, BoundBuffers, BufferedSteps, allocate
from superdex.buffers._ids import first_id
from superdex.buffers._primitives import Buffers
from superdex.errors import ClosedError
from superdex.games._arguments import (
    as_actions,
    check_actions,
    check_count,
    check_seed,
    normalize_seeds,
)
from superdex.games._bound import BoundGames
from superdex.games._engine import library as shipped_library
from superdex.games._interface import MOST_THREADS
from superdex.games._keys import GameIds, bind_outputs, game_batch_spec
from superdex.games._library import GameLibrary, load
from superdex.games._names import FeatureNames
from superdex.games._outputs import BoundOutputs, output_spec

__all__ = ["VectorGameEnv"]


class VectorGameEnv(FeatureNames, BufferedSteps):
    """Many games of one kind, played by threads of the engine, as one batch of NumPy arrays.

    Every call gives a dict of arrays, one row per game, as the seat to move sees it; `batch_spec`
    has their shapes and dtypes. Choose one of `action_id` in each row, and step.

    Environment i starts from `seed + i`. Its e-th later episode starts from a 64-bit mix of the
    seed, i and e, so runs are repeatable whatever happens in other games.

    An action that is not legal leaves its game as it is: `action_valid` is 0, the reward 0, and the
    state id the same. Legal actions that did not fit into `max_actions` rows are accepted.

    Calls that write to buffers return None, for there are no infos; those for a slot return a dict
    like that of `step`, with the slot's rows.

    Threads may call at the same time on disjoint slots. Calls that share a game run one after the
    other. A handle of `bind` is for one thread at a time. After `os.fork`, the child can't use it.

    Args:
        game: Its name.
        num_envs: Games.
        seed: Of environment 0; random where it is None. No number has a special meaning.
        library: An engine, or the path of one; superdex's own where it is None.
        options: Values of the game's options; the others have their defaults.
        num_threads: Threads that play, the caller's own included; as many as there are CPUs to use
            where it is None.
        max_actions: Rows of actions in a batch; room for all legal ones where it is None. Where
            they are too few, the first ones are shown, and the last row is kept for the action that
            always moves the game on, if the game has one.
        auto_reset: Whether a game that ends begins anew within the step. Reward and flags are then
            those of the step, the observation is of the next episode. Else a finished game has no
            legal actions, stays as it is and pays nothing, until it is reset.
        visible_event_history: Events that are shown to a seat, the last ones; 0 for none.
        max_episode_steps: Accepted actions after which an episode is truncated; None for no limit.
        final_observation: Whether batches have `final_board_tokens` and `final_state`: what the
            seat to move would have seen at the end. Rows are written where an episode ended.

    Attributes:
        num_envs: Games.
        seed: Of environment 0, at the last time that all began from it.
        num_threads: Threads that play.
        max_actions: Rows of actions.
        auto_reset: As above.
        visible_event_history: As above.
        max_episode_steps: As above.
        final_observation: As above.
        description: Shapes, names and options of the game.

    Raises:
        ValueError: If an argument is out of its range, or there is no such game or option.
        NotImplementedError: If events are asked for that the game doesn't have.
        GameLibraryError: If there is no engine that can be used.
        MemoryError: If a batch doesn't fit into memory, or threads can't be had.

    Example:
        >>> from superdex.games import VectorGameEnv
        >>> with VectorGameEnv("tron", 4, seed=7) as env:
        ...     batch = env.reset()
        ...     while not batch["terminated"].any():
        ...         batch = env.step(batch["action_id"][:, 0])
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        seed: int | None = None,
        *,
        library: GameLibrary | str | Path | None = None,
        options: Mapping[str, int] | None = None,
        num_threads: int | None = None,
        max_actions: int | None = None,
        auto_reset: bool = True,
        visible_event_history: int = 0,
        max_episode_steps: int | None = None,
        final_observation: bool = False,
    ) -> None:
        self.num_envs = check_count("num_envs", num_envs, 1)
        self.seed = self._seed_of(seed)
        if num_threads is None:
            num_threads = min(usable_cpus(), self.num_envs, MOST_THREADS)
        history = check_count("visible_event_history", visible_event_history, 0)
        if max_actions is not None:
            check_count("max_actions", max_actions, 1)
        if library is None:
            library = shipped_library()
        elif not isinstance(library, GameLibrary):
            library = load(library)
        self.description = library.describe(game, options)
        self.max_actions = max_actions or self.description.most_legal_actions
        self.final_observation = bool(final_observation)
        outputs = output_spec(self.description, self.num_envs, self.max_actions, history)
        self._spec = game_batch_spec(outputs, final_observation=self.final_observation)
        check_memory(sum(math.prod(a.shape) * a.dtype.itemsize for a in self._spec.values()))
        first = first_id()
        self._batch = library.create(
            self.num_envs,
            game,
            options,
            seeds=self._all_seeds(),
            num_threads=num_threads,
            max_actions=self.max_actions,
            event_history=history,
            max_episode_steps=max_episode_steps,
            first_state_id=first,
            first_episode_id=first,
        )
        self._ids = GameIds(self._batch, first)
        self.auto_reset = bool(auto_reset)
        self.visible_event_history = history
        self.num_threads = self._batch.num_threads
        self.max_episode_steps = max_episode_steps
        self._closed = False

    # ── what it is ──────────────────────────────────────────────────────────────────────────────

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "A VectorGameEnv can't be copied or pickled, for its games lie in an engine. Make "
            "another one, and bring the games over with capture_states and restore_states."
        )

    def __repr__(self) -> str:
        return f"<VectorGameEnv of {self.num_envs} games of {self.description.name}>"

    def batch_spec(self) -> BatchSpec:
        """Return shape and dtype of every array of a batch, by key.

        B is `num_envs`, A `max_actions`, K `visible_event_history`; masks and flags are uint8,
        numbers int32, rewards float32, ids and sequences uint64, boards uint8 or int32.

        Returns:
            `board_tokens` (B, …), `state` (B, fields), `action_id` (B, A), `action_features`
            (B, A, features), `action_arg_mask` (B, A, args), `action_mask` (B, A),
            `legal_action_count`, `total_legal_action_count` and `action_truncated` (B,),
            `visible_event_features` (B, K, features), `visible_event_sequence`,
            `visible_event_action_sequence` and `visible_event_mask` (B, K),
            `visible_event_affected` (B, K, sub-records, features), `visible_event_affected_mask`
            (B, K, sub-records), `reward` (B,), `seat_reward` (B, seats), `acting_seat`, `seat` (to
            move), `terminated`, `truncated`, `action_valid`, `env_id`, `state_id` and `episode_id`
            (B,); with `final_observation` also `final_board_tokens` and `final_state`.
        """
        return dict(self._spec)

    # ── playing ─────────────────────────────────────────────────────────────────────────────────

    def reset(self, *, seed: Any = None, options: Any = None) -> dict[str, np.ndarray]:
        """Begin a new episode in every game.

        Args:
            seed: None: each game goes on to its next episode. An int: environment i begins from
                seed + i, and later episodes follow from it. Or one of them for each environment.
            options: None. Options of the game are given once, to the constructor.

        Returns:
            New arrays; reward, flags and `action_valid` are 0, `acting_seat` is −1.

        Raises:
            ValueError: If the arguments are not as above; nothing was reset then.
        """
        self._check_can("reset")
        arrays = allocate(self._spec)
        self._reset_to(None, arrays, seed, options)
        return arrays

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Play one action in every game.

        Args:
            actions: (num_envs,) int32, ids of actions. Other integers are taken where an int32 can
                hold them.

        Returns:
            New arrays.

        Raises:
            ValueError: If the actions are not as above; nothing was stepped then.
        """
        self._check_step("step", actions)
        arrays = allocate(self._spec)
        self._step_to(None, arrays, actions)
        return arrays

    def observe(self) -> dict[str, np.ndarray]:
        """Return the last batch again, in new arrays; nothing moves.

        This is where a call that was interrupted left its results.
        """
        self._check_can("observe")
        arrays = allocate(self._spec)
        self._write_rows(None, arrays, None)
        return arrays

    def bot_moves(
        self,
        bot: str,
        wanted: np.ndarray | None = None,
        *,
        env_ids: Sequence[int] | np.ndarray | None = None,
        depth: int = 0,
        nodes: int = 0,
    ) -> np.ndarray:
        """Return the moves that a bot of the engine would make, over the engine's threads.

        Args:
            bot: One of `description.bots`.
            wanted: (rows,) bool, where moves are wanted; everywhere if None.
            env_ids: The rows, all if None.
            depth: Plies that a searching bot looks ahead; 0 for its default.
            nodes: Positions that it may look at for one move; 0 for its default.

        Returns:
            (rows,) int32; −1 where none is wanted, and in games that have ended.

        Raises:
            ValueError: If an argument is not as above.
            NotImplementedError: If the engine has no bots.
        """
        self._check_can("bot_moves")
        rows = self._rows_or_all("bot_moves", env_ids)
        return self._batch.bot_moves(bot, wanted, rows=rows, depth=depth, nodes=nodes)

    def capture_states(self, env_ids: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """Return whole games as bytes, (rows, bytes) uint8; all if `env_ids` is None.

        What their last step gave, their events and the seeds of later episodes are in them too.
        """
        self._check_can("capture_states")
        return self._batch.capture(self._rows_or_all("capture_states", env_ids))

    def restore_states(
        self, states: np.ndarray, env_ids: Sequence[int] | np.ndarray | None = None
    ) -> None:
        """Put captured games into rows, all if `env_ids` is None; observe them afterwards.

        They may come from other rows, or from another vector of the same game, options and
        `visible_event_history`. The rows get new state ids and episode ids.

        Raises:
            ValueError: If a state is damaged or of another kind; nothing has changed then.
        """
        self._check_can("restore_states")
        self._batch.restore(states, rows=self._rows_or_all("restore_states", env_ids))

    def close(self) -> None:
        """Give games and threads back; calls that run in other threads come to their end first."""
        self._closed = True
        self._batch.close()

    def __enter__(self) -> VectorGameEnv:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    # ── the primitives of `BufferedSteps` ───────────────────────────────────────────────────────

    def _check_can(self, call: str) -> None:
        if self._closed:
            raise ClosedError(f"{call} was called on a VectorGameEnv that is closed.")

    def _check_rows(self, call: str, rows: np.ndarray | None) -> None:
        """Do nothing: games can be stepped and reset at any time."""

    def _check_actions(self, actions: Any, rows: np.ndarray | None) -> None:
        check_actions(actions, self.num_envs if rows is None else len(rows))

    def _step_rows(self, rows: np.ndarray | None, actions: np.ndarray, place: BoundOutputs) -> None:
        self._batch.step(as_actions(actions), place, rows=rows, auto_reset=self.auto_reset)

    def _step_rows_checked(
        self, rows: np.ndarray | None, actions: np.ndarray, state_ids: Any, place: BoundOutputs
    ) -> None:
        self._batch.step(
            as_actions(actions),
            place,
            rows=rows,
            state_ids=np.asarray(state_ids),
            auto_reset=self.auto_reset,
        )

    def _step_all_checked(self, actions: np.ndarray, state_ids: Any) -> dict[str, np.ndarray]:
        arrays = allocate(self._spec)
        self._step_to(None, arrays, actions, state_ids)
        return arrays

    def _reset_rows(
        self, rows: np.ndarray | None, seeds: Any, options: Any, place: BoundOutputs
    ) -> None:
        if options:
            raise ValueError(
                f"options must be None: those of the game are given to the constructor, and "
                f"reset_slots resets some of the games; got {options!r}. Nothing was reset."
            )
        named = np.arange(self.num_envs) if rows is None else rows
        has_one, numbers = normalize_seeds(seeds, named, self.num_envs)
        self._batch.reset(numbers, place, rows=rows, seeded=has_one)
        if rows is None and isinstance(seeds, int | np.integer):
            self.seed = int(seeds)

    def _write_rows(
        self, rows: np.ndarray | None, buffers: Buffers, place: BoundOutputs | None
    ) -> None:
        if place is None:
            self._batch.observe(self._place_of(buffers, rows), rows=rows)

    def _place_of(self, buffers: Buffers, rows: np.ndarray | None) -> BoundOutputs:
        wanted = {key: buffers[key] for key in self._spec if key in buffers}
        return bind_outputs(wanted, self.num_envs if rows is None else len(rows))

    def _slot_batch(self, arrays: dict[str, np.ndarray], info: Any) -> dict[str, np.ndarray]:
        return arrays

    def _bound(self, buffers: dict[str, np.ndarray]) -> BoundBuffers:
        return BoundGames(self, buffers, self._batch, auto_reset=self.auto_reset)

    def _legal_actions(self, call: str) -> dict[str, np.ndarray]:
        """Return `action_id` and `action_mask` of the present positions, without their features."""
        self._check_can(call)
        outputs = self._batch.allocate(names=("action_id", "action_mask"))
        self._batch.observe(outputs)
        return outputs.arrays

    # ── seeds and rows ──────────────────────────────────────────────────────────────────────────

    def _seed_of(self, seed: int | None) -> int:
        if seed is None:
            return secrets.randbelow(2**63)
        return check_seed(seed, self.num_envs)

    def _all_seeds(self) -> np.ndarray:
        return np.arange(self.num_envs, dtype=np.uint64) + np.uint64(self.seed)

    def _rows_or_all(self, call: str, env_ids: Any) -> np.ndarray | None:
        return None if env_ids is None else self._checked_rows(call, env_ids)
