"""A group's environments captured and restored, and resets that take a state from a bank.

A row is more than its environment: where it stands in its sequence of episodes, whether a reset is
due to it, whether it lost an episode and has not said so yet. All of it goes with its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from superdex.errors import ResetNeeded, StateCaptureUnsupported
from superdex.states._codec import Unencodable, decode, encode
from superdex.states._env_state import EnvState, difference
from superdex.vector._episodes import Episode
from superdex.vector._remote import env_failure

if TYPE_CHECKING:
    from superdex.vector._group import EnvGroup

__all__ = ["Bank", "Captured", "GroupStates", "RestoreRequest", "episode_of"]


_PARTS: dict[str, Any] = {
    "env": dict,
    "episode": list,
    "pending": bool,
    "lost": str | None,
    "marks": dict | None,
    "new": bool,
    "bare": bool,
    "attributes": dict,
}
"""What a row's state consists of."""


@dataclass(frozen=True)
class Captured:
    """One row as a worker captured it.

    Attributes:
        state: All of it as bytes.
        tag: What must be equal where it is put.
        pending: Whether a reset is due to it.
    """

    state: bytes
    tag: dict[str, str]
    pending: bool


@dataclass(frozen=True)
class RestoreRequest:
    """What to restore.

    Attributes:
        rows: Rows of the group.
        which: For each of them, the number of a state.
        states: As bytes, each once.
        tags: Of each state.
    """

    rows: list[int]
    which: list[int]
    states: list[bytes]
    tags: list[dict[str, str]]


@dataclass(frozen=True)
class Bank:
    """States that episodes begin with.

    Attributes:
        states: As bytes.
        tags: Of each.
        observations: Of each, (states, …).
        choose: Returns the number of a state for (index, episode); None for a draw of our own.
    """

    states: Sequence[bytes]
    tags: Sequence[dict[str, str]]
    observations: np.ndarray
    choose: Callable[[int, int], int] | None

    def row_for(self, index: int, episode: Episode) -> int:
        """Return the number of the state that an episode begins with.

        Raises:
            ValueError: If `choose` returns something else than such a number.
        """
        count = len(self.states)
        if self.choose is None:
            seed = index if episode.seed is None else episode.seed
            sequence = np.random.SeedSequence([seed, episode.number])
            return int(np.random.Generator(np.random.PCG64(sequence)).integers(count))
        row = self.choose(index, episode.number)
        is_number = isinstance(row, int | np.integer) and not isinstance(row, bool)
        if not is_number or not 0 <= row < count:
            raise ValueError(
                f"choose({index}, {episode.number}) must return a row of the bank, 0 to "
                f"{count - 1}, got {row!r}."
            )
        return int(row)


class GroupStates:
    """What a group does with states.

    Args:
        group: The group.
    """

    def __init__(self, group: EnvGroup) -> None:
        self._group = group
        self._known: dict[int, EnvState] = {}
        self._staged: list[tuple[int, Any]] = []
        self.bank: Bank | None = None
        """What resets take their states from."""

    def _env_state(self, row: int) -> EnvState:
        """Return what captures an environment; it may be new since the last time."""
        known, env = self._known.get(row), self._group.envs[row]
        if known is None or known.env is not env:
            known = self._known[row] = EnvState(env)
        return known

    # ── capture ─────────────────────────────────────────────────────────────────────────────────

    def capture(self, rows: Sequence[int]) -> list[Captured]:
        """Return rows as they are now; nothing of them changes.

        Raises:
            EnvFailure: At the first one that can't be captured.
        """
        captured = []
        for row in rows:
            try:
                captured.append(self._capture(row))
            except BaseException as error:
                index = self._group.indices[row]
                raise env_failure(index, "capture_states", error) from error
        return captured

    def _capture(self, row: int) -> Captured:
        group = self._group
        episode = group._episodes[row]
        if episode.number < 0:
            raise ResetNeeded("it was never reset, and has no state to capture: reset it first.")
        env_state = self._env_state(row)
        if group._batched is not None:
            group._batched.hand_back(row)
        tree = {
            "env": env_state.capture(bare=row in group._bare),
            "episode": [episode.seed, episode.number, episode.options],
            "pending": row in group._pending,
            "lost": group._lost.get(row),
            "marks": group._marks.get(row),
            "new": row in group._new,
            "bare": row in group._bare,
            "attributes": _plain(group._attributes[row], bare=row in group._bare),
        }
        return Captured(env_state.encode(tree), env_state.tag(), row in group._pending)

    # ── restore ─────────────────────────────────────────────────────────────────────────────────

    def stage(self, request: RestoreRequest) -> None:
        """Decode and check what `restore` is to put in place; nothing moves yet.

        Raises:
            EnvFailure: At the first row whose state does not fit.
        """
        self._staged = []
        staged = []
        for row, which in zip(request.rows, request.which, strict=True):
            try:
                # decoded anew for each, since what is decoded becomes the environment's own
                tree = _decoded(request.states[which])
                self._check(row, tree, request.tags[which])
            except BaseException as error:
                index = self._group.indices[row]
                raise env_failure(index, "restore_states", error) from error
            staged.append((row, tree))
        self._staged = staged

    def _check(self, row: int, tree: Any, tag: dict[str, str]) -> None:
        env_state = self._env_state(row)
        differs = difference(env_state.tag(), tag)
        if differs is not None:
            raise ValueError(f"The state does not fit: it is of {differs}.")
        _check_env(env_state, tree)

    def restore(self, rows: Sequence[int]) -> None:
        """Put what was staged for these rows in place.

        Raises:
            EnvFailure: At the first environment whose own `set_state` raises; or if nothing was
                staged for them, because this worker is new.
        """
        staged, self._staged = self._staged, []
        if [row for row, _ in staged] != [*rows]:
            error = RuntimeError("the worker was restarted after the states were checked")
            raise env_failure(None, "restore_states", error) from error
        for row, tree in staged:
            try:
                self._restore(row, tree)
            except BaseException as error:
                index = self._group.indices[row]
                raise env_failure(index, "restore_states", error) from error

    def _restore(self, row: int, tree: Any) -> None:
        group = self._group
        group._attributes[row] = dict(tree["attributes"])
        if tree["bare"]:
            group.build_anew(row)  # as new as the one that was captured
        elif group._batched is not None:
            group._batched.hand_back(row)
        try:
            self._env_state(row).restore(tree["env"])
        finally:
            if group._batched is not None:
                group._adopt(group._batched, row)
        group._episodes[row] = Episode(*tree["episode"])
        group.episodes[row] += 1
        for name, rows in (("pending", group._pending), ("new", group._new), ("bare", group._bare)):
            (rows.add if tree[name] else rows.discard)(row)
        kept: Any
        for name, kept in (("lost", group._lost), ("marks", group._marks)):
            kept.pop(row, None)
            if tree[name] is not None:
                kept[row] = tree[name]

    # ── the bank ────────────────────────────────────────────────────────────────────────────────

    def use_bank(self, bank: Bank | None) -> None:
        """Have resets take their states from a bank from now on; None for the usual resets.

        Raises:
            EnvFailure: If a state does not fit an environment; the bank in use stays then.
        """
        if bank is not None:
            numbers = {tuple(tag.items()): n for n, tag in reversed([*enumerate(bank.tags)])}
            distinct = {number: bank.tags[number] for number in sorted(numbers.values())}
            for row in range(len(self._group.envs)):
                try:
                    self._check_bank(row, bank, distinct)
                except BaseException as error:
                    index = self._group.indices[row]
                    raise env_failure(index, "use_episode_bank", error) from error
        self.bank = bank

    def _check_bank(self, row: int, bank: Bank, distinct: dict[int, dict[str, str]]) -> None:
        env_state = self._env_state(row)
        here = env_state.tag()
        for number, tag in distinct.items():
            differs = difference(here, tag)
            if differs is not None:
                raise ValueError(f"State {number} of the bank does not fit: it is of {differs}.")
        if row > 0:
            return  # tags say the same of all of them
        for number, state in enumerate(bank.states):
            tree = _decoded(state)
            _check_env(env_state, tree)
            if tree["lost"] is not None or tree["bare"]:
                raise ValueError(
                    f"State {number} of the bank is of an environment whose worker was restarted, "
                    "before its next reset: no episode can begin with it."
                )

    def reset(self, row: int, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with a state of the bank; return what a reset returns.

        Args:
            row: Of the group.
            seed: What the environment's generator begins anew from; None to go on with it.
        """
        bank, group = self.bank, self._group
        assert bank is not None, "resets come here while there is a bank"
        number = bank.row_for(group.indices[row], group._episodes[row])
        env_state = self._env_state(row)
        env_state.restore(decode(bank.states[number])["env"], new_episode=True)
        env_state.seed(seed)
        return bank.observations[number].copy(), {"bank_row": number}


def _decoded(state: bytes) -> dict[str, Any]:
    """Return a row as it was captured.

    Raises:
        ValueError: If it is something else.
    """
    tree = decode(state)
    if not isinstance(tree, dict) or tree.keys() != _PARTS.keys():
        got = ", ".join(map(str, tree)) if isinstance(tree, dict) else type(tree).__name__
        raise ValueError(
            f"The state is damaged: expected its parts to be {', '.join(_PARTS)}, got {got}."
        )
    wrong = [name for name, kind in _PARTS.items() if not isinstance(tree[name], kind)]
    numbers = tree["episode"]
    if wrong or len(numbers) != 3 or not isinstance(numbers[1], int):
        name = wrong[0] if wrong else "episode"
        raise ValueError(f"The state is damaged: its part {name!r} is {tree[name]!r:.80}.")
    return tree


def _check_env(env_state: EnvState, tree: dict[str, Any]) -> None:
    """Check that the state of an environment fits.

    Raises:
        ValueError: It does not, or is none.
    """
    try:
        env_state.check(tree["env"])
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"The state is damaged: {error!r}.") from error


def episode_of(state: bytes) -> tuple[Episode, dict[str, Any]]:
    """Return where a captured row stood, and what `set_attr` had set in it."""
    tree = decode(state)
    return Episode(*tree["episode"]), tree["attributes"]


def _plain(attributes: dict[str, Any], *, bare: bool) -> dict[str, Any]:
    """Return what `set_attr` had set, as far as it is plain.

    It is for an environment that is built anew after a failure. The environment's own state holds
    the values otherwise, and says so where it can't.

    Args:
        attributes: What was set.
        bare: The environment was not asked for its state.

    Raises:
        StateCaptureUnsupported: If a value is held nowhere else.
    """
    plain = {}
    for name, value in attributes.items():
        try:
            encode(value)
        except Unencodable as why:
            if not bare:
                continue
            raise StateCaptureUnsupported(
                f"The attribute {name!r}, which was set before its worker was restarted, can't be "
                f"captured: {why}. Reset the environment first."
            ) from why
        plain[name] = value
    return plain
