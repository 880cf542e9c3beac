"""Slots in flight: parts of the batch that are stepped while the caller thinks about others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.buffers import check_buffers
from superdex.buffers._primitives import Buffers
from superdex.buffers._slots import slot_partitions
from superdex.vector._arguments import check_timeout
from superdex.vector._into import BufferCalls
from superdex.vector._lifecycle import State
from superdex.vector._process import ctrl_c_held_back
from superdex.vector._protocol import Command
from superdex.vector._row_calls import Piece, Slot
from superdex.vector._seeding import normalize_options, normalize_seeds
from superdex.vector._split import Split

__all__ = ["SlotCalls", "Ticket"]


class Ticket:
    """A slot in flight, which `wait_slots` gives the results for.

    Attributes:
        env_ids: Its environments, (rows,) int32, in the order in which they were named.
    """

    def __init__(self, slot: Slot, owner: object) -> None:
        self.env_ids = slot.rows.astype(np.int32)
        self.env_ids.flags.writeable = False
        self._slot = slot
        self._owner = owner
        self._end: str | None = None
        """What became of it; None as long as it is open."""

    def __repr__(self) -> str:
        return f"<Ticket for {len(self.env_ids)} environments, {self._end or 'in flight'}>"


class SlotCalls(BufferCalls):
    """Slots in flight; a part of the whole."""

    _split: Split
    _mode: AutoresetMode
    _tickets: list[Ticket]

    def slot_partitions(self, n: int, *, across_workers: bool = False) -> tuple[np.ndarray, ...]:
        """Return n balanced slots: (rows,) int32 each, larger ones first.

        Args:
            n: How many.
            across_workers: False: slots of contiguous environments, of as few workers as can be, so
                that two slots run at the same time. True: each slot takes its share of every
                worker, so that all workers are at each slot, and one slot after the other.

        Raises:
            ValueError: If n is no integer from 1 to `num_envs`.
        """
        self._flight.lifecycle.check_usable("slot_partitions")
        slots = slot_partitions(self.num_envs, n)
        if not across_workers:
            return slots
        # dealt out in turn, each worker's environments go to all slots, and shares are equal
        rows = np.arange(self.num_envs, dtype=np.int32)
        return tuple(rows[first::n].copy() for first in range(n))

    @property
    def open_tickets(self) -> tuple[Ticket, ...]:
        """The tickets of slots in flight, oldest first.

        A `step_slots` or `reset_slots` that was interrupted or ran out of time has one too.
        """
        self._check_can("open_tickets")
        return tuple(self._tickets)

    def submit_slots(
        self, env_ids: Any, actions: np.ndarray, state_ids: np.ndarray | None = None
    ) -> Ticket:
        """Start to step some environments once, and return at once.

        Slots of different workers run at the same time; those that share a worker queue up there.
        An environment is in flight until its slot is waited for.

        Args:
            env_ids: A sequence or array of integers, in any order, none twice, none in flight.
            actions: (rows, …), in that order. They are copied.
            state_ids: (rows,) uint64, the ids of the positions that the actions are for, to be
                compared first; None for no look.

        Returns:
            What `wait_slots` takes.

        Raises:
            StaleStateError: If one of them has moved on; it names them, and nothing was stepped.
            ValueError: If the arguments are not as above; nothing was stepped then.
            CallPending: If one of them is in flight; nothing was stepped then.
            ResetNeeded: If one of them must be reset first; nothing was stepped then.

        Example:
            >>> import gymnasium
            >>> from superdex.vector import HybridVectorEnv
            >>> env_fns = [lambda: gymnasium.make("Pendulum-v1")] * 4
            >>> with HybridVectorEnv(env_fns, num_workers=2) as envs:
            ...     _ = envs.reset(seed=1)
            ...     left, right = envs.slot_partitions(2)
            ...     ticket = envs.submit_slots(left, np.zeros((2, 1), np.float32))
            ...     other = envs.step_slots(right, np.ones((2, 1), np.float32))
            ...     envs.wait_slots(ticket).env_id
            array([0, 1], dtype=int32)
        """
        ids = () if state_ids is None else (state_ids,)
        rows = self._checked_slot("submit_slots", env_ids, actions, *ids)
        return self._submit_step("submit_slots", rows, actions)

    def wait_slots(
        self, ticket: Ticket, buffers: Buffers | None = None, *, timeout: float | None = None
    ) -> Any:
        """Wait for a slot in flight and return its results.

        Args:
            ticket: Of any slot in flight; they may be waited for in any order.
            buffers: Arrays as `slot_batch_spec` says, to be written to.
            timeout: In seconds; None for the constructor's, infinity for none. When it runs out the
                slot stays in flight, to be waited for again.

        Returns:
            A `SlotBatch` whose rows are in the order of `env_ids`; with `buffers` the info alone.

        Raises:
            CallTimeout: When the time is up; it says what is slow.
            RuntimeError: If the slot was waited for before, or a reset dropped it.
            ValueError: If it belongs to another vector environment, or buffers are not as expected;
                nothing was taken then.
            WorkerRaised, WorkerDied: If an environment fails; then all is broken.
        """
        self._check_can("wait_slots")
        check_timeout(timeout)
        self._check_ticket(ticket)
        rows = ticket._slot.rows
        if buffers is not None:
            check_buffers(buffers, self.slot_batch_spec(len(rows)))
        info = self._wait_for("wait_slots", ticket, timeout)
        result: Any = info
        if buffers is None:
            result = self._slot(rows, info)
        else:
            self._write_rows(rows, buffers, None)
        self._take(ticket)
        return result

    def _check_ticket(self, ticket: Any) -> None:
        if not isinstance(ticket, Ticket):
            raise ValueError(
                f"ticket must be what submit_slots returned, got {type(ticket)}. Nothing was taken."
            )
        if ticket._owner is not self._row_calls:
            raise ValueError(
                "ticket belongs to another vector environment. Pass it to the one whose "
                "submit_slots returned it."
            )
        if ticket._end is not None:
            raise RuntimeError(
                f"wait_slots was called with a ticket that was {ticket._end}: it has no results "
                "any more. observe_slots gives the last ones of its environments."
            )

    # ── a slot's way ────────────────────────────────────────────────────────────────────────────

    def _submit_step(self, call: str, rows: np.ndarray, actions: np.ndarray) -> Ticket:
        def accept(slot: Slot) -> None:
            self._accept_step(rows, actions)
            self._tickets.append(Ticket(slot, self._row_calls))

        slot = self._row_calls.ask(call, Command.STEP_ROWS, rows, accept=accept)
        return self._ticket_of(slot)

    def _ticket_of(self, slot: Slot) -> Ticket:
        return next(ticket for ticket in reversed(self._tickets) if ticket._slot is slot)

    def _accept_step(self, rows: np.ndarray, actions: np.ndarray) -> None:
        """A step of some rows is accepted: from here on they are somewhere else."""
        self._ids.advance(rows)
        self._action[rows] = actions
        self._steps += 1

    def _wait_for(self, call: str, ticket: Ticket, timeout: float | None) -> dict[Any, Any]:
        """Wait for a slot and return its info; its results stay where they are."""
        slot = ticket._slot
        limit = self._timeout if timeout is None else timeout
        self._row_calls.wait_for(call, slot, limit)
        return self._row_calls.info(slot.pieces, len(slot.rows))

    def _take(self, ticket: Ticket) -> None:
        """Take the results of a slot, whose rows are free from here on."""
        with ctrl_c_held_back():
            self._note_rows(ticket._slot.pieces)
            self._row_calls.finish(ticket._slot.pieces)
            self._tickets.remove(ticket)
            ticket._end = "waited for before"

    def _note_rows(self, pieces: Sequence[Piece]) -> None:
        """Note which rows must be reset before they are stepped again."""
        if self._unready is None:
            return
        no_autoreset = self._mode is AutoresetMode.DISABLED
        for piece in pieces:
            rows = piece.rows
            self._unready[rows] = (
                self._collector.outputs.ended_rows(rows) if no_autoreset else False
            )
        if not (no_autoreset or self._unready.any()):
            self._unready = None

    def _drop_slots(self, timeout: float | None) -> None:
        """Wait for all slots in flight and drop their results.

        Raises:
            CallTimeout: When the time is up; nothing was dropped then.
        """
        lifecycle = self._flight.lifecycle
        if lifecycle.state is State.SLOTS:
            self._row_calls.flush(self._drop, timeout)
        elif not lifecycle.in_flight:
            self._drop(())  # slots of no environments, which put nothing in flight

    def _drop(self, pieces: Sequence[Piece]) -> None:
        """Note that these were dropped, all there was in flight."""
        self._note_rows(pieces)
        for ticket in self._tickets:
            ticket._end = "dropped by a reset"
        self._tickets.clear()

    # ── slots that are waited for at once ───────────────────────────────────────────────────────

    def _step_some(self, rows: np.ndarray, actions: np.ndarray) -> dict[Any, Any]:
        ticket = self._submit_step("step_slots", rows, actions)
        info = self._wait_for("step_slots", ticket, None)
        self._take(ticket)
        return info

    def _reset_some(self, rows: np.ndarray, seeds: Any, options: Any) -> dict[Any, Any]:
        def accept(slot: Slot) -> None:
            self._ids.advance(rows)
            self._action[rows] = 0
            self._tickets.append(Ticket(slot, self._row_calls))

        indices = rows.tolist()
        slot = self._row_calls.ask(
            "reset_slots",
            Command.RESET_ROWS,
            rows,
            normalize_seeds(seeds, indices),
            normalize_options(options, len(indices)),
            accept=accept,
        )
        ticket = self._ticket_of(slot)
        info = self._wait_for("reset_slots", ticket, None)
        self._take(ticket)
        return info
