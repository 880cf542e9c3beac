"""Many games of one kind, played through the C interface; arrays are checked here, once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from superdex.buffers import BatchSpec, allocate
from superdex.errors import BrokenError, ClosedError, GameLibraryError, StaleStateError
from superdex.games._arguments import as_integers, as_mask, check_count, hint
from superdex.games._description import GameDescription
from superdex.games._interface import AUTO_RESET, KEEP_ILLEGAL, MOST_THREADS, Settings, Status
from superdex.games._outputs import BoundOutputs, check_outputs, output_spec

__all__ = ["GameBatch"]

Rows = Sequence[int] | np.ndarray | None

# What the engine adds stays below 2**44.
_MOST_FIRST_ID = 2**64 - 2**44


class _Handle:
    """The engine's batch: given back when the last call that uses it has ended."""

    __slots__ = ("_free", "address")

    def __init__(self, address: ctypes.c_void_p, free: Callable[[ctypes.c_void_p], None]) -> None:
        self.address = address
        self._free = free

    def __del__(self) -> None:
        self._free(self.address)


class GameBatch:
    """Many games of one kind; made by `GameLibrary.create`.

    Rows are named by `rows`, integers without repeats, or all of them in order where it is None.
    Threads may call at the same time; calls that share a row run one after the other. After
    `os.fork` the child can't use the batch.

    Attributes:
        description: What the arrays look like.
        num_games: Rows.
        num_threads: Threads that play.
        max_actions: Rows of actions in the outputs.
        event_history: Events that a seat is shown.
    """

    def __init__(
        self,
        functions: ctypes.CDLL,
        game: int,
        description: GameDescription,
        *,
        num_games: int,
        seeds: Sequence[int] | np.ndarray | None,
        num_threads: int,
        max_actions: int,
        event_history: int,
        max_episode_steps: int | None,
        first_state_id: int,
        first_episode_id: int,
    ) -> None:
        self.description = description
        self.num_games = check_count("num_games", num_games, 1)
        self.num_threads = check_count("num_threads", num_threads, 1, MOST_THREADS)
        self.max_actions = check_count("max_actions", max_actions, 1)
        self.event_history = check_count("event_history", event_history, 0)
        if max_episode_steps is not None:
            check_count("max_episode_steps", max_episode_steps, 1)
        self._functions = functions
        settings = Settings(
            size=ctypes.sizeof(Settings),
            num_games=self.num_games,
            num_threads=self.num_threads,
            max_actions=self.max_actions,
            event_history=self.event_history,
            max_episode_steps=max_episode_steps or 0,
            first_state_id=check_count("first_state_id", first_state_id, 0, _MOST_FIRST_ID),
            first_episode_id=check_count("first_episode_id", first_episode_id, 0, _MOST_FIRST_ID),
        )
        options = list(description.options.values())
        address = ctypes.c_void_p()
        seeds = np.arange(self.num_games) if seeds is None else seeds
        given = as_integers(seeds, np.uint64, "seeds", self.num_games)
        self._handle: _Handle | None = None
        self._check(
            functions.sdg_create(
                game,
                (ctypes.c_int64 * max(1, len(options)))(*options),
                settings,
                given.ctypes.data,
                address,
            )
        )
        if address.value is None:
            raise GameLibraryError(f"The engine of {description.name} made no batch and said OK.")
        self._handle = _Handle(address, functions.sdg_free)

    def close(self) -> None:
        """Give the games back; calls that run in other threads come to their end first."""
        self._handle = None

    def __enter__(self) -> GameBatch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "A GameBatch can't be copied or pickled, for its games lie in an engine. Create "
            "another one, and bring the games over with capture and restore."
        )

    def spec(self, rows: int | None = None) -> BatchSpec:
        """Return shape and dtype of every output, for so many rows (all where none is given)."""
        count = self.num_games if rows is None else rows
        return output_spec(self.description, count, self.max_actions, self.event_history)

    def allocate(self, rows: int | None = None, names: Sequence[str] | None = None) -> BoundOutputs:
        """Return new arrays of zeros, bound; only those named, where `names` is given."""
        spec = self.spec(rows)
        wanted = spec if names is None else {name: spec[name] for name in names}
        return BoundOutputs(allocate(wanted), self.num_games if rows is None else rows)

    def bind(self, arrays: Mapping[str, np.ndarray], rows: int | None = None) -> BoundOutputs:
        """Check the caller's arrays and return them as outputs; what is missing is left out.

        Raises:
            ValueError: If an array has an unknown name, or is not as `spec` says, C-contiguous,
                aligned and writable, or overlaps another.
        """
        check_outputs(arrays, self.spec(rows))
        return BoundOutputs(arrays, self.num_games if rows is None else rows)

    def reset(
        self,
        seeds: Sequence[int] | np.ndarray | None = None,
        outputs: BoundOutputs | None = None,
        *,
        rows: Rows = None,
        seeded: np.ndarray | None = None,
    ) -> None:
        """Begin new episodes, with these seeds, or with each row's next one.

        Args:
            seeds: One for each row; None where no row has one.
            outputs: Where the results go.
            rows: The rows.
            seeded: (rows,) bool, which rows have a seed; the seeds of others are not looked at.
        """
        numbers, address, count = self._rows(rows, outputs)
        given = None if seeds is None else as_integers(seeds, np.uint64, "seeds", count)
        where = None if given is None else given.ctypes.data
        mask = as_mask(seeded, "seeded", count)
        which = None if mask is None else mask.ctypes.data
        self._call("sdg_reset", address, count, where, which, _address(outputs))
        del numbers, given, mask

    def step(
        self,
        actions: Sequence[int] | np.ndarray,
        outputs: BoundOutputs | None = None,
        *,
        rows: Rows = None,
        state_ids: np.ndarray | None = None,
        auto_reset: bool = False,
        keep_illegal: bool = True,
    ) -> None:
        """Play one action per row.

        Args:
            actions: Action ids, one per row.
            outputs: Where the results go.
            rows: The rows.
            state_ids: The positions that the actions are meant for, uint64; all are compared first.
            auto_reset: Whether a game that ends begins anew before it is observed.
            keep_illegal: Whether an illegal action leaves its game as it is; else the game's rules
                say what it leads to.

        Raises:
            StaleStateError: If a row has another state id. Nothing moved.
        """
        numbers, address, count = self._rows(rows, outputs)
        given = as_integers(actions, np.int32, "actions", count)
        ids = None if state_ids is None else as_integers(state_ids, np.uint64, "state_ids", count)
        handle = self._handle or self._closed()
        status = self._functions.sdg_step(
            handle.address,
            address,
            count,
            given.ctypes.data,
            None if ids is None else ids.ctypes.data,
            _flags(auto_reset=auto_reset, keep_illegal=keep_illegal),
            _address(outputs),
        )
        if status == Status.STALE and ids is not None:
            raise self._stale(ids, numbers)
        self._check(status)

    def _stale(self, got: np.ndarray, rows: np.ndarray | None) -> StaleStateError:
        """Say which ids are no present ones; once stale they stay so, whatever moves meanwhile."""
        now = self.allocate(len(got), ["state_id"])
        self.observe(now, rows=rows)
        expected = now.arrays["state_id"]
        differ = expected != got
        where = np.arange(len(got)) if rows is None else rows
        return StaleStateError(
            where[differ].tolist(), expected[differ].tolist(), got[differ].tolist()
        )

    def stepper(
        self, actions: np.ndarray, outputs: BoundOutputs, *, auto_reset: bool, keep_illegal: bool
    ) -> Callable[[], None]:
        """Return a function that steps all rows with what `actions` then holds: the quickest way.

        Args:
            actions: An int32 array of (num_games,), C-contiguous; filled by the caller.
            outputs: Where the results go, bound for all rows.
            auto_reset: As for `step`.
            keep_illegal: As for `step`.
        """
        if actions.dtype != np.int32 or actions.shape != (self.num_games,):
            raise ValueError(f"actions must be an int32 array of shape ({self.num_games},).")
        if not actions.flags.c_contiguous or outputs.rows != self.num_games:
            raise ValueError("actions must be contiguous, and outputs bound for all rows.")
        call, where = self._functions.sdg_step, ctypes.c_void_p(actions.ctypes.data)
        count, results = ctypes.c_int32(self.num_games), outputs.address
        flags = ctypes.c_int32(_flags(auto_reset=auto_reset, keep_illegal=keep_illegal))

        def step() -> None:
            handle = self._handle or self._closed()
            status = call(handle.address, None, count, where, None, flags, results)
            if status:
                self._check(status)

        # The arrays behind the addresses live as long as the function does.
        step.__dict__["held"] = (actions, outputs)
        return step

    def observe(self, outputs: BoundOutputs, *, rows: Rows = None) -> None:
        """Write the rows' present results again; nothing moves."""
        numbers, address, count = self._rows(rows, outputs)
        self._call("sdg_observe", address, count, outputs.address)
        del numbers

    def records(self, rows: Rows = None) -> dict[str, np.ndarray]:
        """Return new arrays: plies, seat (to move), over, and scores (rows, num_seats)."""
        count = self.num_games if rows is None else len(rows)
        outputs = self.allocate(count, ("plies", "seat", "over", "scores"))
        self.observe(outputs, rows=rows)
        return outputs.arrays

    def capture(self, rows: Rows = None) -> np.ndarray:
        """Return the rows' whole states as bytes, uint8 of (rows, state size)."""
        numbers, address, count = self._rows(rows, None)
        states = np.empty((count, self._state_size()), np.uint8)
        self._call("sdg_capture", address, count, states.ctypes.data)
        del numbers
        return states

    def restore(self, states: np.ndarray, *, rows: Rows = None) -> None:
        """Put captured states into rows; they get new state and episode ids.

        Raises:
            ValueError: If a state is damaged, or of another game or other options. Nothing changed.
        """
        numbers, address, count = self._rows(rows, None)
        shape = (count, self._state_size())
        # A copy: nobody may change the bytes between the engine's checks and their use.
        given = np.array(states, order="C")
        if given.dtype != np.uint8 or given.shape != shape:
            raise ValueError(
                f"states must be uint8 of shape {shape}, got {given.dtype} of {given.shape}."
            )
        self._call("sdg_restore", address, count, given.ctypes.data)
        del numbers

    def bot_moves(
        self,
        bot: str,
        wanted: np.ndarray | None = None,
        *,
        rows: Rows = None,
        depth: int = 0,
        nodes: int = 0,
    ) -> np.ndarray:
        """Return a bot's moves, int32 of (rows,); −1 where none is wanted or the game has ended.

        Args:
            bot: One of `description.bots`.
            wanted: Which rows to move in, boolean; all where none is given.
            rows: The rows.
            depth: Plies that a searching bot looks ahead; 0 for its default.
            nodes: Positions it may look at for one move; 0 for its default.
        """
        if not self.description.bots:
            raise NotImplementedError(f"The engine has no bots for {self.description.name}.")
        if bot not in self.description.bots:
            raise ValueError(
                f"There is no bot {bot!r}, only {list(self.description.bots)}."
                f"{hint(bot, self.description.bots)}"
            )
        numbers, address, count = self._rows(rows, None)
        moves = np.empty(count, np.int32)
        mask = as_mask(wanted, "wanted", count)
        number = self.description.bots.index(bot)
        depth, nodes = check_count("depth", depth, 0), check_count("nodes", nodes, 0)
        handle = self._handle or self._closed()
        self._check(
            self._functions.sdg_bot_moves(
                handle.address, number, depth, nodes, address, count,
                None if mask is None else mask.ctypes.data, moves.ctypes.data,
            )
        )  # fmt: skip
        del numbers
        return moves

    def _rows(
        self, rows: Rows, outputs: BoundOutputs | None
    ) -> tuple[np.ndarray | None, int | None, int]:
        """Return the rows' array, to be held during the call, its address and length."""
        numbers = None if rows is None else as_integers(rows, np.int32, "rows", None)
        count = self.num_games if numbers is None else len(numbers)
        if outputs is not None and outputs.rows != count:
            raise ValueError(
                f"The outputs are bound for {outputs.rows} rows, the call has {count}."
            )
        return numbers, None if numbers is None else numbers.ctypes.data, count

    def _state_size(self) -> int:
        handle = self._handle or self._closed()
        size = int(self._functions.sdg_state_size(handle.address))
        if size < 1 or size % 8:
            raise GameLibraryError(
                f"The engine of {self.description.name} has states of {size} bytes, against "
                "superdex_game.h: expected a multiple of 8."
            )
        return size

    def _call(self, name: str, *arguments: Any) -> None:
        handle = self._handle or self._closed()
        self._check(getattr(self._functions, name)(handle.address, *arguments))

    def _closed(self) -> _Handle:
        raise ClosedError("The batch of games is closed.")

    def _check(self, status: int) -> None:
        if status == Status.OK:
            return
        if status == Status.FORKED:
            raise BrokenError(
                "The batch was made before this process was forked off, and its threads are not "
                "here. Make batches in the process that uses them, or start it by spawning."
            )
        error, text = _REFUSALS.get(status, (RuntimeError, f"it returned status {status}"))
        raise error(f"The engine of {self.description.name} refused the call: {text}.")


_REFUSALS: dict[int, tuple[type[Exception], str]] = {
    Status.BAD_ARGUMENT: (ValueError, "an argument is missing or out of range"),
    Status.BAD_OPTION: (ValueError, "an option is out of its range"),
    Status.BAD_ROW: (ValueError, "rows must be numbers of games of the batch"),
    Status.DUPLICATE_ROW: (ValueError, "a row is named twice"),
    Status.NO_MEMORY: (MemoryError, "memory or threads could not be had"),
    Status.BAD_STATE: (
        ValueError,
        "a captured state is damaged, or of another game, options or event_history",
    ),
    Status.UNSUPPORTED: (NotImplementedError, "the game does not offer this"),
    Status.EXHAUSTED: (OverflowError, "all numbers of positions are used up: make a new batch"),
    Status.INTERNAL: (RuntimeError, "a fault of the engine"),
}


def _address(outputs: BoundOutputs | None) -> ctypes.c_void_p | None:
    return None if outputs is None else outputs.address


def _flags(*, auto_reset: bool, keep_illegal: bool) -> int:
    return (AUTO_RESET if auto_reset else 0) | (KEEP_ILLEGAL if keep_illegal else 0)
