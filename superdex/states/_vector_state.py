"""States of many environments, as a value that can be kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from superdex.states._codec import decode, encode
from superdex.states._sealed import seal, unseal, write_whole

__all__ = ["RESULTS", "VectorState"]

_MAGIC = b"superdex-state\x00\x00"
_VERSION = 1

RESULTS = ("observation", "reward", "terminated", "truncated", "autoreset", "action_valid", "ended")
"""The results of a row that are kept with its state. "ended" is True where its episode is over and
the next one has not begun. With SAME_STEP there is "final_observation" too."""

_FLAGS = ("terminated", "truncated", "autoreset", "action_valid", "ended")
"""Those that are bools, one for each row."""


@dataclass(frozen=True, eq=False)
class VectorState:
    """States of environments of a vector environment: all that their futures depend on.

    `HybridVectorEnv.capture_states` makes one. It is a value: it shares nothing with the
    environments it is of, and fits any environment of the same class, in any worker and any run.
    Two are equal where their bytes are.

    Attributes:
        tags: Of each environment, what must be equal where its state is put: class and wrappers,
            spaces, settings, the scene's model, the autoreset mode.
        rows: Of each environment, its state as bytes.
        results: What each one showed last, (num_envs, …) arrays by name, read-only.

    Example:
        >>> from superdex.envs import CartPoleEnv
        >>> from superdex.states import VectorState
        >>> from superdex.vector import HybridVectorEnv
        >>> with HybridVectorEnv([CartPoleEnv] * 4, in_process=True) as envs:
        ...     observations, _ = envs.reset(seed=0)
        ...     state = envs.capture_states()
        ...     _ = envs.step(envs.action_space.sample())
        ...     again, _ = envs.restore_states(state)
        >>> bool((again == observations).all())
        True
        >>> state.num_envs, state[[0, 0, 3]].num_envs
        (4, 3)
        >>> VectorState.from_bytes(state.to_bytes()) == state
        True
    """

    tags: tuple[dict[str, str], ...]
    rows: tuple[bytes, ...]
    results: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        for array in self.results.values():
            array.flags.writeable = False

    @property
    def num_envs(self) -> int:
        """How many environments' states it holds."""
        return len(self.rows)

    @property
    def version(self) -> int:
        """Of the format that it is written in."""
        return _VERSION

    @property
    def nbytes(self) -> int:
        """Bytes of the states and results."""
        return sum(map(len, self.rows)) + sum(array.nbytes for array in self.results.values())

    @property
    def digest(self) -> str:
        """A short name for what it holds: equal for equal states."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:16]

    def __len__(self) -> int:
        return self.num_envs

    def __getitem__(self, indices: int | slice | Sequence[int] | np.ndarray) -> VectorState:
        """Return the states of some, in that order: by a number, a slice, numbers, or a mask.

        A number may be named more than once. The arrays are copies.
        """
        chosen = np.arange(self.num_envs)[indices]
        at = np.atleast_1d(np.asarray(chosen, np.int64))
        return VectorState(
            tuple(self.tags[i] for i in at),
            tuple(self.rows[i] for i in at),
            {name: array[at] for name, array in self.results.items()},
        )

    @classmethod
    def concatenate(cls, states: Iterable[VectorState]) -> Self:
        """Return the states of several captures as one, in their order.

        Raises:
            TypeError: If one is no `VectorState`.
            ValueError: If there is none, or if what environments showed last differs in names,
                dtypes or shapes, as it does between classes and autoreset modes.
        """
        states = list(states)
        for state in states:
            if not isinstance(state, VectorState):
                raise TypeError(f"concatenate takes VectorStates, got {type(state).__name__}.")
        forms = [
            {name: (array.dtype, array.shape[1:]) for name, array in state.results.items()}
            for state in states
        ]
        if not states or any(form != forms[0] for form in forms):
            raise ValueError(
                "concatenate takes one or more VectorStates of environments with the same "
                f"observations and the same autoreset mode, got {states!r}."
            )
        return cls(
            tuple(tag for state in states for tag in state.tags),
            tuple(row for state in states for row in state.rows),
            {name: np.concatenate([s.results[name] for s in states]) for name in forms[0]},
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VectorState):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash((self.rows, len(self.tags)))

    def __repr__(self) -> str:
        names = sorted({tag.get("environment", "").rpartition(".")[2] for tag in self.tags})
        return f"VectorState({self.num_envs} × {', '.join(names)}, {self.nbytes} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return VectorState.from_bytes, (self.to_bytes(),)

    # ── bytes and files ─────────────────────────────────────────────────────────────────────────

    def to_bytes(self) -> bytes:
        """Return it as bytes, with version and checksum."""
        return seal(_MAGIC, _VERSION, encode(self._to_tree()))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the states that `to_bytes` made these bytes of; no code in them is run.

        Raises:
            TypeError: They are no bytes.
            ValueError: They are no states, of a newer version, cut short or damaged; the message
                says which.
        """
        return cls._from_tree(decode(unseal(_MAGIC, _VERSION, data, "state of environments")))

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file, whole or not at all: a file that is there already stays until then.

        Raises:
            OSError: If it can't be written.
        """
        write_whole(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the states that `save` wrote; as `from_bytes`.

        Raises:
            OSError: If it can't be read.
            ValueError: As in `from_bytes`, and the message names the file.
        """
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{Path(path)}: {error}") from error

    def _to_tree(self) -> dict[str, Any]:
        unique: list[dict[str, str]] = []
        which = [_index_of(tag, unique) for tag in self.tags]
        return {"tags": unique, "tag": which, "rows": list(self.rows), "results": self.results}

    @classmethod
    def _from_tree(cls, tree: Any) -> Self:
        try:
            tags, results = tree["tags"], tree["results"]
            state = cls(tuple(tags[i] for i in tree["tag"]), tuple(tree["rows"]), dict(results))
            fits = len(state.tags) == len(state.rows) and set(results) - {
                "final_observation"
            } == set(RESULTS)
            fits &= all(len(array) == len(state.rows) for array in results.values())
            fits &= all(isinstance(row, bytes) for row in state.rows)
            fits &= all(isinstance(tag, dict) for tag in state.tags)
            fits &= all(
                results[name].dtype == np.bool_ and results[name].ndim == 1 for name in _FLAGS
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"The state of environments is damaged: {error!r}.") from error
        if not fits:
            raise ValueError("The state of environments is damaged: its parts don't fit together.")
        return state


def _index_of(tag: dict[str, str], unique: list[dict[str, str]]) -> int:
    for index, known in enumerate(unique):
        if known is tag or known == tag:
            return index
    unique.append(tag)
    return len(unique) - 1
