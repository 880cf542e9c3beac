"""Calls of a vector environment that capture states and put them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.errors import ResetNeeded, StateCaptureUnsupported, WorkerRaised
from superdex.states import VectorState
from superdex.vector import _remote
from superdex.vector._arguments import check_travels
from superdex.vector._group_states import Bank, Captured, RestoreRequest, episode_of
from superdex.vector._protocol import Command
from superdex.vector._results import BatchedResetResult
from superdex.vector._seeding import select_rows

if TYPE_CHECKING:
    from superdex.buffers import Ids
    from superdex.vector._calls import EnvCalls
    from superdex.vector._collector import Collector
    from superdex.vector._episodes import Ledger
    from superdex.vector._flight import Flight
    from superdex.vector._settings import GroupSettings
    from superdex.vector._split import Split

__all__ = ["StateCalls"]

_FORMAT = "superdex.vector.HybridVectorEnv"
_VERSION = 1


class _Restore(NamedTuple):
    """What is being restored, until the workers have done it."""

    rows: list[int]
    state: VectorState


class StateCalls:
    """Captures and restores environments; a part of `HybridVectorEnv`."""

    num_envs: int
    _split: Split
    _mode: AutoresetMode
    _settings: GroupSettings
    _flight: Flight
    _calls: EnvCalls
    _collector: Collector
    _action: np.ndarray
    _ids: Ids
    _ledger: Ledger | None
    _unready: np.ndarray | None
    _steps: int
    _restore: _Restore | None = None
    _bank: VectorState | None = None
    _bank_in_use: bytes | None = None

    # ── states ──────────────────────────────────────────────────────────────────────────────────

    def capture_states(self, indices: Sequence[int] | np.ndarray | None = None) -> VectorState:
        """Return the states of environments: all that their futures depend on.

        That is physics, random generators, counters of time limits and wrappers, pending
        autoresets, seeds and numbers of episodes, and what each one showed last. Nothing changes.
        What is supported: `SceneEnv`s, Gymnasium's MuJoCo and classic-control environments,
        Gymnasium's wrappers, and every environment or wrapper with `get_state()` and
        `set_state(state)`.

        Args:
            indices: Which environments, in which order, or a mask; all if None.

        Returns:
            A value that shares nothing with this vector environment; see
            `superdex.states.VectorState`.

        Raises:
            StateCaptureUnsupported: If an environment or wrapper may hold state that can't be
                captured; it is named. The vector environment stays usable.
            ResetNeeded: If one was never reset.
        """
        self._flight.lifecycle.check("call", "capture_states")
        rows = self._rows(indices)
        if self._unready is not None and self._mode is not AutoresetMode.DISABLED:
            for row in rows:
                if self._unready[row]:
                    raise ResetNeeded(
                        f"Environment {row} was never reset, or was not restored to the end: it "
                        "has no state to capture. Reset it first."
                    )
        positions = self._split.by_worker(rows)
        with _own_words():
            replies = self._calls.ask(
                "capture_states",
                Command.CAPTURE,
                {w: self._calls.slots(w, rows, at) for w, at in positions.items()},
            )
        captured: list[Captured] = [_NOTHING] * len(rows)
        for worker, reply in replies:
            for position, one in zip(
                positions[worker], _remote.loads(reply.results[0]), strict=True
            ):
                captured[position] = one
        results = self._collector.outputs.last_results(np.array(rows, np.intp))
        results["ended"] = np.array([one.pending for one in captured], np.bool_)
        if self._mode is AutoresetMode.DISABLED and self._unready is not None:
            results["ended"] = self._unready[rows]
        mode = {"autoreset_mode": self._mode.value}
        return VectorState(
            tuple(one.tag | mode for one in captured),
            tuple(one.state for one in captured),
            results,
        )

    def restore_states(
        self, state: VectorState, indices: Sequence[int] | np.ndarray | None = None
    ) -> BatchedResetResult:
        """Put states in the place of environments; the others are left alone.

        From there on they do what those did that the states were captured of, to the bit, under
        the same actions. A state fits any environment of the same class, wrappers, spaces, settings
        and model, in any worker. First every state is checked in its worker; only then any is put
        in place. It is a new position and a new episode for the caller: ids change.

        Args:
            state: From `capture_states`, here or elsewhere.
            indices: Where to put them, one environment for each, in their order, or a mask; all if
                None.

        Returns:
            (num_envs, …) observations: those of the states in the rows restored, the last ones in
            the others. Infos are empty.

        Raises:
            TypeError: If `state` is no `VectorState`.
            ValueError: If the number of states is another, or one does not fit; nothing was
                restored then.
            WorkerRaised: If an environment's own `set_state` raises; the environments named must be
                reset, and the vector environment stays usable.
        """
        self._flight.lifecycle.check("call", "restore_states")
        if not isinstance(state, VectorState):
            raise TypeError(
                f"restore_states takes a VectorState, got {type(state).__name__}; "
                "load_state_dict takes what state_dict returned."
            )
        rows = self._rows(indices)
        if len(rows) != state.num_envs:
            raise ValueError(
                f"Expected one state for each environment named, {len(rows)}, got "
                f"{state.num_envs}. fork puts one state into many."
            )
        self._check_modes(state)
        self._restore_rows(rows, state)
        return self._collector.last_observations()

    def fork(
        self, state: VectorState, indices: Sequence[int] | np.ndarray | None = None
    ) -> BatchedResetResult:
        """Put one state into many environments, generator included; as `restore_states`.

        Under the same actions all of them do the same. Different actions have them part, and so do
        generators of their own: `set_attr("np_random", …)`. A reset throws the state away.

        Args:
            state: Of one environment.
            indices: Where to put it, or a mask; all if None.

        Raises:
            TypeError: If `state` is no `VectorState`.
            ValueError: If it holds several states, or does not fit; nothing was restored then.
        """
        self._flight.lifecycle.check("call", "fork")
        if not isinstance(state, VectorState):
            raise TypeError(
                f"fork takes a VectorState of one environment, got {type(state).__name__}."
            )
        if state.num_envs != 1:
            raise ValueError(
                f"fork takes the state of one environment, got {state.num_envs}: choose one with "
                "state[i], or put each in its place with restore_states."
            )
        rows = self._rows(indices)
        return self.restore_states(state[[0] * len(rows)], rows)

    def _restore_rows(self, rows: list[int], state: VectorState) -> None:
        requests = {}
        for worker, at in self._split.by_worker(rows).items():
            unique = {id(state.rows[i]): i for i in at}
            number = {key: n for n, key in enumerate(unique)}
            requests[worker] = RestoreRequest(
                self._calls.slots(worker, rows, at),
                [number[id(state.rows[i])] for i in at],
                [state.rows[i] for i in unique.values()],
                [_without_mode(state.tags[i]) for i in unique.values()],
            )
        with _own_words(ValueError):
            self._calls.ask("restore_states", Command.STAGE, requests)
        if not rows:
            return
        self._collector.outputs.check(state.results)
        self._ids.advance(np.array(rows, np.intp))
        self._restore = _Restore(rows, state)
        try:
            asked = {worker: request.rows for worker, request in requests.items()}
            self._calls.ask("restore_states", Command.RESTORE, asked)
        except Exception:
            # which of them were reached is not worth knowing: none may be stepped as it is
            self._restore = None
            if self._unready is None:
                self._unready = np.zeros(self.num_envs, np.bool_)
            self._unready[rows] = True
            raise
        except KeyboardInterrupt:
            if not self._flight.lifecycle.in_flight:
                self._restore = None  # it came before the workers were told
            raise
        self._finish_restore()

    def _finish_restore(self) -> None:
        """Note a restore that came to its end, if one did."""
        restore, self._restore = self._restore, None
        if restore is None:
            return
        rows, state = restore
        self._collector.outputs.put(np.array(rows, np.intp), state.results)
        self._action[rows] = 0
        ended = state.results["ended"]
        if self._mode is AutoresetMode.DISABLED or self._unready is not None:
            if self._unready is None:
                self._unready = np.zeros(self.num_envs, np.bool_)
            self._unready[rows] = ended & (self._mode is AutoresetMode.DISABLED)
            if self._mode is not AutoresetMode.DISABLED and not self._unready.any():
                self._unready = None
        if self._ledger is not None:
            for row, one, over in zip(rows, state.rows, ended, strict=True):
                self._ledger.adopt(row, *episode_of(one), ended=bool(over))
        self._flight.lifecycle.note_reset()

    def _check_modes(self, state: VectorState) -> None:
        for index, tag in enumerate(state.tags):
            mode = tag.get("autoreset_mode")
            if mode != self._mode.value:
                raise ValueError(
                    f"State {index} was captured with another autoreset mode: expected "
                    f"{self._mode.value}, got {mode}."
                )

    def _rows(self, indices: Sequence[int] | np.ndarray | None) -> list[int]:
        return [*range(self.num_envs)] if indices is None else select_rows(indices, self.num_envs)

    # ── the bank ────────────────────────────────────────────────────────────────────────────────

    def use_episode_bank(
        self, bank: VectorState | None, choose: Callable[[int, int], int] | None = None
    ) -> None:
        """Have every reset, autoresets too, put a state of a bank in place of a reset.

        The environment's own `reset` does not run. It keeps its random generator, which a reset
        with a seed begins anew; so do wrappers keep what they count over episodes. Infos of resets
        hold `bank_row`, the row of the bank, and nothing else. Options have no effect.

        Args:
            bank: States that fit every environment, each amid an episode; None for resets as usual.
            choose: Called in workers as `choose(index, episode)`, returns a row of the bank. None
                for a draw that depends only on the environment's seed (its index where it has none)
                and the episode's number.

        Raises:
            TypeError: If `bank` is no `VectorState`, or `choose` can't be pickled.
            ValueError: If it is empty, or a state does not fit an environment, or is of an episode
                that is over; the bank in use stays in use then.
        """
        self._flight.lifecycle.check("call", "use_episode_bank")
        payload = None
        if bank is not None:
            _check_bank(bank, choose)
            self._collector.outputs.check(bank.results, ["observation"])
            check_travels(choose=choose)
            tags = [_without_mode(tag) for tag in bank.tags]
            payload = _remote.dumps(Bank(bank.rows, tags, bank.results["observation"], choose))
        elif choose is not None:
            raise ValueError("choose was given without a bank to choose from.")
        with _own_words(ValueError):
            try:
                self._tell_of_bank(payload)
            except Exception:
                if not self._flight.lifecycle.is_broken:
                    self._tell_of_bank(self._bank_in_use)  # those that took it take the one before
                raise
        self._bank, self._bank_in_use = bank, payload

    def _tell_of_bank(self, payload: bytes | None) -> None:
        if self._ledger is not None:
            self._ledger.bank = payload
        everyone = dict.fromkeys(range(self._split.num_workers), payload)
        self._calls.ask("use_episode_bank", Command.BANK, everyone)

    # ── all of it ───────────────────────────────────────────────────────────────────────────────

    def state_dict(self) -> dict[str, Any]:
        """Return all that the future of this vector environment depends on.

        A new vector environment made by the same constructor arguments, in any process and with any
        split, goes on from it to the bit.

        Returns:
            A dict of numbers, strings, lists and bytes, which `torch.save`, `pickle` or msgpack
            keeps; for JSON encode the value of "states" in base64.

        Raises:
            StateCaptureUnsupported, ResetNeeded: As in `capture_states`.
        """
        self._flight.lifecycle.check("call", "state_dict")
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "num_envs": self.num_envs,
            "steps": self._steps,
            "settings": self._lasting_settings(),
            "states": self.capture_states().to_bytes(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> BatchedResetResult:
        """Go on from where `state_dict` was called, here or in another process.

        Args:
            state: What it returned.

        Returns:
            The observations that every environment showed last, (num_envs, …); infos are empty.

        Raises:
            TypeError, ValueError: If it is no such dict, of a newer version, damaged, or of another
                vector environment; nothing was changed then.
        """
        self._flight.lifecycle.check("call", "load_state_dict")
        if not isinstance(state, Mapping):
            raise TypeError(
                f"load_state_dict takes what state_dict returned, got {type(state).__name__}."
            )
        _check_dict(state)
        here = {"num_envs": self.num_envs, **self._lasting_settings()}
        there = {"num_envs": state["num_envs"], **state["settings"]}
        for key, value in here.items():
            if there.get(key) != value:
                raise ValueError(
                    f"The state is of another vector environment: expected {key}={value!r}, as "
                    f"here, got {there.get(key)!r}."
                )
        result = self.restore_states(VectorState.from_bytes(state["states"]))
        self._steps = state["steps"]
        return result

    def _lasting_settings(self) -> dict[str, Any]:
        """Return what the future depends on beside the environments, and which is no state."""
        options = self._settings.autoreset_options
        return {
            "episode_seeds": self._settings.episode_seeds,
            "autoreset_options": options if options is None or isinstance(options, str) else "own",
            "episode_bank": None if self._bank is None else self._bank.digest,
        }


_NOTHING = Captured(b"", {}, pending=False)


def _without_mode(tag: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in tag.items() if key != "autoreset_mode"}


_KEYS: dict[str, Any] = {
    "format": str,
    "version": int,
    "num_envs": int,
    "steps": int,
    "settings": Mapping,
    "states": bytes | bytearray,
}
"""Of what `state_dict` returns, with the types of the values."""


def _check_dict(state: Mapping[str, Any]) -> None:
    """Check that something is what `state_dict` returned, in a version that can be read.

    Raises:
        TypeError, ValueError: It is not.
    """
    missing = [key for key in _KEYS if key not in state]
    if missing or state["format"] != _FORMAT:
        raise ValueError(
            f"This is not what state_dict returned: expected the keys {', '.join(_KEYS)} and "
            f"format {_FORMAT!r}, got {sorted(map(str, state))}."
        )
    for key, kind in _KEYS.items():
        if not isinstance(state[key], kind):
            hint = " Decode it from base64." if key == "states" else ""
            raise ValueError(
                f"This is not what state_dict returned: expected {key} of type "
                f"{getattr(kind, '__name__', kind)}, got {type(state[key]).__name__}.{hint}"
            )
    if state["version"] > _VERSION:
        raise ValueError(
            f"The state has version {state['version']}, written by a newer version of superdex;"
            f" this one reads up to {_VERSION}. Update superdex."
        )
    if state["version"] < 1 or state["steps"] < 0:
        raise ValueError(
            "The state is damaged: expected a version of 1 or more and a number of steps, got "
            f"{state['version']} and {state['steps']}."
        )


def _check_bank(bank: Any, choose: Any) -> None:
    if not isinstance(bank, VectorState):
        raise TypeError(f"The bank must be a VectorState or None, got {type(bank).__name__}.")
    if choose is not None and not callable(choose):
        raise TypeError(f"choose must be a function of (index, episode), got {choose!r}.")
    if bank.num_envs == 0:
        raise ValueError("The bank is empty: expected one state at least.")
    # flags of an autoreset in the same step are of the episode before
    over = np.flatnonzero(bank.results["ended"])
    if over.size:
        raise ValueError(
            f"State {over[0]} of the bank is of an episode that is over: expected states amid "
            "an episode."
        )


@contextmanager
def _own_words(*more: type[Exception]) -> Iterator[None]:
    """Raise what we say of states ourselves as it is, and not as an environment's exception.

    Args:
        *more: Exceptions that are ours too, in a call that runs no code of an environment.
    """
    try:
        yield
    except (WorkerRaised, ExceptionGroup) as failure:
        first = failure.exceptions[0] if isinstance(failure, ExceptionGroup) else failure
        cause = first.__cause__
        ours: tuple[type[Exception], ...] = (StateCaptureUnsupported, ResetNeeded, *more)
        if isinstance(first, WorkerRaised) and isinstance(cause, ours):
            who = f"Environment {first.env_index}: " if first.env_index is not None else ""
            kind = next(kind for kind in ours if isinstance(cause, kind))
            raise kind(f"{who}{cause}") from first
        raise
