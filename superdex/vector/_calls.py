"""Calls to single environments: dealt out to their workers, and put together in the order asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from superdex.errors import WorkerDied, WorkerRaised
from superdex.vector import _remote
from superdex.vector._flight import Flight
from superdex.vector._notices import Notice
from superdex.vector._protocol import Command, Reply
from superdex.vector._split import Split

__all__ = ["EnvCalls", "one_for_each"]

_OWN_CALLS = {"reset", "step", "close"}


def one_for_each(values: Any, rows: Sequence[int]) -> list[Any]:
    """Return one value for each of the rows: a list or tuple of them, or the same for all.

    Raises:
        ValueError: If the number of values is another.
    """
    if not isinstance(values, list | tuple):
        return [values] * len(rows)
    if len(values) != len(rows):
        raise ValueError(
            f"values must hold one value per environment: expected {len(rows)}, got {len(values)}."
        )
    return list(values)


class EnvCalls:
    """Calls to single environments.

    Args:
        flight: The way to the workers.
        split: Which worker holds which environments.
        warn: Told of what workers have to say.
    """

    def __init__(
        self, flight: Flight, split: Split, warn: Callable[[Sequence[Notice]], None]
    ) -> None:
        self._flight = flight
        self._split = split
        self._warn = warn

    def call(
        self,
        method: str,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rows: Sequence[int],
    ) -> tuple[Any, ...]:
        """Return what a method of these environments returns, or an attribute is.

        Args:
            method: What the caller called, for errors.
            name: The method or attribute.
            args: Its arguments.
            kwargs: Its arguments by name.
            rows: The environments' indices.

        Raises:
            ValueError: For reset, step and close, which have calls of their own.
        """
        if name in _OWN_CALLS:
            raise ValueError(
                f"{method}({name!r}) is refused: use {name}() of the vector environment."
            )
        positions = self._split.by_worker(rows)
        replies = self.ask(
            name,
            Command.CALL,
            {w: (self.slots(w, rows, at), name, args, kwargs) for w, at in positions.items()},
        )
        results: list[Any] = [None] * len(rows)
        for worker, reply in replies:
            for position, result in zip(positions[worker], reply.results, strict=True):
                results[position] = _remote.loads(result)
        return tuple(results)

    def set_attr(self, name: str, values: Sequence[Any], rows: Sequence[int]) -> None:
        """Set an attribute of these environments, to one value for each."""
        requests = {
            worker: (self.slots(worker, rows, at), name, [values[position] for position in at])
            for worker, at in self._split.by_worker(rows).items()
        }
        self.ask(f"set_attr({name!r})", Command.SET_ATTR, requests)

    def tell_all(self, name: str, command: int, *payload: Any) -> None:
        """Have every worker do a command that the environments don't notice."""
        self.ask(name, command, dict.fromkeys(range(self._split.num_workers), payload))

    def left_out(self, failure: Exception, rows: Sequence[int]) -> set[int]:
        """Return those of the rows that a call did not reach because of its failure."""
        failures = failure.exceptions if isinstance(failure, ExceptionGroup) else [failure]
        left: set[int] = set()
        for error in failures:
            if not isinstance(error, WorkerDied | WorkerRaised):
                return set(rows)  # it was refused
            asked = [row for row in rows if row in self._split.ranges[error.worker]]
            first = error.env_index if isinstance(error, WorkerRaised) else None
            left.update(asked[asked.index(first) :] if first in asked else asked)
        return left

    def slots(self, worker: int, rows: Sequence[int], positions: Sequence[int]) -> list[int]:
        """Return the slots in a worker of the environments at some positions of `rows`."""
        start = self._split.ranges[worker].start
        return [rows[position] - start for position in positions]

    def ask(self, name: str, command: int, requests: Mapping[int, Any]) -> list[tuple[int, Reply]]:
        """Send some workers a request each, wait for all of them, and return their replies."""
        payloads = _remote.dump_requests(requests.values(), f"arguments of {name}")
        self._flight.check_alive(name, restart=True)
        if not requests:
            return []
        try:
            self._flight.start("call", command, payloads=payloads, workers=list(requests))
            replies = self._flight.finish("call", name=name)
        except KeyboardInterrupt:
            self._flight.interrupt()
            raise
        for _, reply in replies:
            self._warn(reply.notices)
        return replies
