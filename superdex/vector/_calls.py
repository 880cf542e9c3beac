"""Calls to single environments: dealt out to their workers, and put together in the order asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from superdex.vector import _remote
from superdex.vector._flight import Flight
from superdex.vector._notices import Notice
from superdex.vector._protocol import Command, Reply
from superdex.vector._split import Split

__all__ = ["EnvCalls"]

_OWN_CALLS = {"reset", "step", "close"}


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
        replies = self._ask(
            name,
            Command.CALL,
            {w: (self._slots(w, rows, at), name, args, kwargs) for w, at in positions.items()},
        )
        results: list[Any] = [None] * len(rows)
        for worker, reply in replies:
            for position, result in zip(positions[worker], reply.results, strict=True):
                results[position] = _remote.loads(result)
        return tuple(results)

    def set_attr(self, name: str, values: Any, rows: Sequence[int]) -> list[Any]:
        """Set an attribute of these environments; return the value that each one got.

        Raises:
            ValueError: If the number of values is another; nothing was set then.
        """
        if not isinstance(values, list | tuple):
            values = [values] * len(rows)
        if len(values) != len(rows):
            raise ValueError(
                f"values must hold one value per environment: expected {len(rows)}, "
                f"got {len(values)}."
            )
        requests = {
            worker: (self._slots(worker, rows, at), name, [values[position] for position in at])
            for worker, at in self._split.by_worker(rows).items()
        }
        self._ask(f"set_attr({name!r})", Command.SET_ATTR, requests)
        return list(values)

    def _slots(self, worker: int, rows: Sequence[int], positions: Sequence[int]) -> list[int]:
        """Return the slots in a worker of the environments at some positions of `rows`."""
        start = self._split.ranges[worker].start
        return [rows[position] - start for position in positions]

    def _ask(
        self, name: str, command: int, requests: dict[int, tuple[Any, ...]]
    ) -> list[tuple[int, Reply]]:
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
