"""From a new process to a worker that takes commands, step by step.

::

    caller                                   worker
    ──────                                   ──────
    start the process ─────────────────────► import the main module
                      ◄────────────── "here"
    its construction  ─────────────────────► build the environments
                      ◄────────────── spaces, or what went wrong
    layouts, blocks, revival ──────────────► map the blocks
                      ◄────────────── "attached"

All workers are started before any is waited for; a restarted one goes through this alone. The wait
can be cut short by a timeout or Ctrl-C and taken up again, since each worker's stage says what
comes next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from math import inf
from multiprocessing.connection import wait
from multiprocessing.reduction import send_handle
from time import perf_counter
from typing import Any

from superdex.errors import CallTimeout, StartupError, WorkerDied
from superdex.vector import _remote
from superdex.vector._block import Block
from superdex.vector._episodes import Revival
from superdex.vector._layout import Layout
from superdex.vector._link import Stage, WorkerLink, place_of
from superdex.vector._process import (
    KILL_SECONDS,
    LONGEST_POLL,
    MAIN_GUARD_EXIT_CODE,
    MAIN_GUARD_HINT,
    ctrl_c_held_back,
)
from superdex.vector._protocol import Construction
from superdex.vector._remote import Failure
from superdex.vector._spaces import SpaceReport
from superdex.vector._warnings import warn_caller

__all__ = ["ASKS_AFTER", "GRACE_SECONDS", "PATIENCE", "StartUp", "raise_all"]

GRACE_SECONDS = 0.05
"""For how long further failures are gathered after the first."""

ASKS_AFTER = 0.1
"""Timeouts shorter than this many seconds are taken for polling, which is not held up."""

PATIENCE = 0.2
"""Seconds for a busy worker to say what it is doing."""


class StartUp:
    """Brings workers up.

    Args:
        links: The workers' links; an entry may be replaced by that of another process.
        constructions: One for each worker.
        slow_after: Seconds after which a start that takes long is reported; infinity for never.

    Attributes:
        spaces: What each worker that has come that far said of its spaces.
    """

    def __init__(
        self,
        links: list[WorkerLink],
        constructions: Sequence[Construction],
        slow_after: float,
    ) -> None:
        self.spaces: dict[int, SpaceReport] = {}
        self.messages = 0
        self._links = links
        self._constructions = constructions
        self._slow_after = slow_after
        self._block: tuple[Layout, Block] | None = None
        self.segments: dict[int, tuple[Layout, Block]] = {}
        """Further buffers of outputs by number."""

    def drive(
        self,
        workers: Sequence[int],
        until: Stage,
        revival: Callable[[int], Revival | None],
        timeout: tuple[str, float, float] | None = None,
    ) -> None:
        """Go on until these workers have come to a stage.

        Args:
            workers: Their numbers.
            until: The stage.
            revival: What a worker goes on from; None for a fresh start.
            timeout: The call that waits, its limit in seconds, and its deadline.

        Raises:
            CallTimeout: At the deadline; another call goes on.
            WorkerDied, StartupError: If one of them died.
            WorkerRaised, TypeError, ValueError: If one could not build its environments.
        """
        failures: dict[int, Failure | Exception] = {}
        started = perf_counter()
        ends = {"slow": started + self._slow_after}
        if timeout is not None:
            ends["timeout"] = timeout[2]
        while behind := [w for w in workers if w not in failures and self._links[w].stage < until]:
            messages: dict[Any, int] = {self._links[w].connection: w for w in behind}
            messages |= {self._links[w].process.exit_notice: w for w in behind}
            first = min(ends, key=lambda end: ends[end])
            patience = min(max(0.0, ends[first] - perf_counter()), LONGEST_POLL)
            ready = wait([*messages], patience)
            if ready:
                for worker in {messages[end] for end in ready}:
                    with ctrl_c_held_back():
                        failure = self._advance(worker, workers, revival)
                    if failure is not None:
                        failures[worker] = failure
                        ends.setdefault("grace", perf_counter() + GRACE_SECONDS)
            elif perf_counter() < ends[first]:
                continue
            elif first == "slow":
                ends["slow"] = inf
                self._report_slow(behind, perf_counter() - started)
            elif first == "timeout":
                assert timeout is not None
                call, seconds, _ = timeout
                places = self._places(behind) if seconds >= ASKS_AFTER else []
                raise CallTimeout(call, seconds, behind, places)
            else:
                break
        self._raise(failures)

    def _advance(
        self, worker: int, workers: Sequence[int], revival: Callable[[int], Revival | None]
    ) -> Failure | Exception | None:
        """Take the next message of a worker and answer it; return what it says went wrong."""
        link = self._links[worker]
        answer = link.receive()
        self.messages += 1
        if answer is None:
            self._raise_dead(worker, workers)
        if isinstance(answer, Failure | Exception):
            return answer
        if link.stage is Stage.STARTED:
            link.unlink()
            link.stage = Stage.PRESENT
            if self._block is not None:
                self._build(worker)
        elif link.stage is Stage.BUILDING:
            if worker in self.spaces:
                self.spaces[worker].check_same(answer)
            self.spaces[worker] = answer
            link.stage = Stage.BUILT
            if self._block is not None:
                self._attach(worker, revival(worker))
        else:
            link.stage = Stage.READY
        return None

    def build(self) -> None:
        """Have all workers build their environments; `drive` waits for them.

        They begin together, so that those who fail do so at about the same time.
        """
        for worker in range(len(self._links)):
            self._build(worker)

    def _build(self, worker: int) -> None:
        self._links[worker].send(_remote.dumps(self._constructions[worker]))
        self._links[worker].stage = Stage.BUILDING
        self.messages += 1

    def attach(self, layout: Layout, block: Block) -> None:
        """Have all workers map the block, now and after a restart; `drive` waits for them."""
        self._block = layout, block
        for worker in range(len(self._links)):
            self._attach(worker, None)

    def _attach(self, worker: int, revival: Revival | None) -> None:
        assert self._block is not None
        link, (layout, block) = self._links[worker], self._block
        link.stage = Stage.ATTACHING
        try:
            segments = [(buffer, segment) for buffer, (segment, _) in self.segments.items()]
            link.connection.send_bytes(_remote.dumps((layout, segments)))
            send_handle(link.connection, block.fd, link.process.pid)
            for buffer in self.segments:
                self.send_segment(worker, buffer)
            link.connection.send_bytes(_remote.dumps(revival))
        except ConnectionError:
            pass  # its death is noticed by `drive`
        self.messages += 2

    def send_segment(self, worker: int, buffer: int) -> None:
        """Send a worker the descriptor of a further buffer of outputs, unless it is gone."""
        link, (_, block) = self._links[worker], self.segments[buffer]
        with contextlib.suppress(ConnectionError):
            send_handle(link.connection, block.fd, link.process.pid)

    # ── what can go wrong ───────────────────────────────────────────────────────────────────────

    def _raise_dead(self, worker: int, workers: Sequence[int]) -> None:
        """Raise for a worker that is gone, and for others that are gone by now."""
        deadline = perf_counter() + GRACE_SECONDS
        exits = {}
        for other in workers:
            patience = KILL_SECONDS if other == worker else deadline - perf_counter()
            exits[other] = self._links[other].process.wait(patience)
        if MAIN_GUARD_EXIT_CODE in exits.values():
            raise StartupError(MAIN_GUARD_HINT)
        dead = [w for w in workers if exits[w] is not None or w == worker]
        raise_all([self._death(w, exits[w]) for w in dead])

    def _death(self, worker: int, exitcode: int | None) -> WorkerDied:
        call, hint = "construct", ""
        if self._links[worker].stage is Stage.STARTED:
            call = "start"
            hint = (
                ". It did not get as far as building environments: importing the main module or "
                "one of its imports may have failed, as shown above"
            )
        return WorkerDied(worker, self._constructions[worker].indices, exitcode, call, hint)

    def _raise(self, failures: dict[int, Failure | Exception]) -> None:
        ordered = sorted(failures.items())
        for _, failure in ordered:
            if isinstance(failure, Exception):  # our own words for what the caller passed
                raise failure
        raise_all([f.to_error(w) for w, f in ordered if isinstance(f, Failure)])

    def _report_slow(self, workers: Sequence[int], seconds: float) -> None:
        warn_caller(
            f"{len(workers)} of {len(self._links)} workers have not started after {seconds:.1f} s: "
            f"{'; '.join(self._places(workers))}. They are waited for. (slow_after= sets when this "
            "warning comes.)",
            RuntimeWarning,
        )

    def _places(self, workers: Sequence[int]) -> list[str]:
        """Return in words what some workers are busy with; of many, the first ones."""
        places = []
        for worker in workers[:3]:
            link, indices = self._links[worker], self._constructions[worker].indices
            if link.stage is Stage.STARTED:
                places.append(f"worker {worker} is still importing the main module")
                continue
            where = link.ask_whereabouts(PATIENCE)
            places.append(place_of(worker, indices, where, "construct"))
        return [*places, f"and {len(workers) - 3} more workers"] if len(workers) > 3 else places


def raise_all(failures: Sequence[Exception]) -> None:
    """Raise the only failure as it is, several as an `ExceptionGroup`, and nothing for none."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        first = str(failures[0]).partition("\n")[0]
        raise ExceptionGroup(
            f"{len(failures)} failures in workers; the first: {first}", list(failures)
        )
