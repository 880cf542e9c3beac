"""Which of the caller's buffers workers can write straight to.

Each dict of allocated arrays lies in a segment that all workers map, as one more buffer of outputs
with a number. It is known by the identity of its arrays, which are held weakly: when the caller has
dropped one of them, nobody can pass the buffer any more, and the workers are told to forget it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

__all__ = ["AllocatedBuffers"]


class AllocatedBuffers:
    """The allocated buffers that the caller still has.

    Args:
        first: The lowest number that one may have.
        outputs: The names of the arrays that workers write.
    """

    def __init__(self, first: int, outputs: Iterable[str]) -> None:
        self._first = first
        self._outputs = tuple(outputs)
        self._references: dict[int, dict[str, ReferenceType[np.ndarray]]] = {}
        self._numbers: dict[int, int] = {}
        """The number of each buffer, by the id of its observations."""
        self.dropped: list[int] = []
        """Numbers that the caller can't pass any more; some may come twice."""

    def new_number(self) -> int:
        """Return the lowest number that is free."""
        number = self._first
        while number in self._references:
            number += 1
        self._references[number] = {}
        return number

    def add(self, number: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Know these arrays as the buffer of that number."""
        # It runs wherever the last reference goes, in any thread: it notes the number, no more.
        drop = partial(_note, self.dropped, number)
        self._references[number] = {name: ref(arrays[name], drop) for name in self._outputs}
        self._numbers[id(arrays[self._outputs[0]])] = number

    def find(self, buffers: Mapping[str, Any]) -> int | None:
        """Return the number of the buffer that these arrays are, None for others."""
        number = self._numbers.get(id(buffers[self._outputs[0]]))
        if number is None:
            return None
        references = self._references[number].items()
        return number if all(held() is buffers[name] for name, held in references) else None

    def forget_dropped(self, in_use: Iterable[int]) -> list[int]:
        """Forget the buffers that the caller dropped, but for some; return their numbers."""
        count = len(self.dropped)  # what is dropped meanwhile comes after those
        dropped, kept = set(self.dropped[:count]), set(in_use)
        gone = sorted(dropped - kept)
        self.dropped[:count] = sorted(dropped & kept)
        for number in gone:
            self._references.pop(number, None)
        self._numbers = {key: n for key, n in self._numbers.items() if n not in gone}
        return gone


def _note(dropped: list[int], number: int, _: ReferenceType[np.ndarray]) -> None:
    dropped.append(number)
