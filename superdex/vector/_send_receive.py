"""Partial batches: actions sent as they are known, and results received as they are there."""

from __future__ import annotations

from typing import Any

import numpy as np

from superdex.vector._arguments import check_timeout
from superdex.vector._process import ctrl_c_held_back
from superdex.vector._protocol import Command
from superdex.vector._slots import SlotCalls
from superdex.vector._split import check_count

__all__ = ["SendReceiveCalls"]


class SendReceiveCalls(SlotCalls):
    """Partial batches; a part of the whole."""

    @property
    def in_flight(self) -> np.ndarray:
        """The environments that were sent and not received yet: (rows,) int32, sorted, a copy."""
        self._check_can("in_flight")
        return self._row_calls.sent

    def send(self, actions: np.ndarray, env_ids: Any) -> None:
        """Start to step some environments once, and return at once; `recv` gives the results.

        Those that are in one worker are stepped together, and received together.

        Args:
            actions: (rows, …), in the order of `env_ids`. They are copied.
            env_ids: A sequence or array of integers, in any order, none twice, none in flight.

        Raises:
            ValueError: If the arguments are not as above; nothing was stepped then.
            CallPending: If one of them is in flight; nothing was stepped then.
            ResetNeeded: If one of them must be reset first; nothing was stepped then.

        Example:
            >>> import gymnasium
            >>> from superdex.vector import HybridVectorEnv
            >>> env_fns = [lambda: gymnasium.make("Pendulum-v1")] * 4
            >>> with HybridVectorEnv(env_fns, num_workers=2) as envs:
            ...     _ = envs.reset(seed=1)
            ...     envs.send(np.zeros((4, 1), np.float32), range(4))
            ...     first = envs.recv(min_envs=2)
            ...     rest = envs.recv(min_envs=len(envs.in_flight)) if envs.in_flight.size else None
            >>> len(first.env_id) in (2, 4)
            True
        """
        rows = self._checked_slot("send", env_ids, actions)
        self._row_calls.ask(
            "send",
            Command.STEP_ROWS,
            rows,
            accept=lambda _: self._accept_step(rows, actions),
            send=True,
        )

    def recv(
        self, min_envs: int = 1, max_envs: int | None = None, *, timeout: float | None = None
    ) -> Any:
        """Return the results of environments that were sent, in the order in which they came.

        Args:
            min_envs: Wait for that many.
            max_envs: Return no more than that many; the others stay, for the next call. None for
                all that are there.
            timeout: In seconds; None for the constructor's, infinity for none. When it runs out all
                stay in flight.

        Returns:
            A `SlotBatch`; `env_id` says which environments.

        Raises:
            RuntimeError: If nothing is in flight.
            ValueError: If fewer than `min_envs` are, or the numbers make no sense.
            CallTimeout: When the time is up; it says what is slow.
            WorkerRaised, WorkerDied: If an environment fails; then all is broken.
        """
        self._check_can("recv")
        check_count("min_envs", min_envs)
        if max_envs is not None:
            check_count("max_envs", max_envs, at_least=min_envs)
        check_timeout(timeout)
        calls = self._row_calls
        if calls.num_sent == 0:
            raise RuntimeError("recv was called with nothing in flight: call send() first.")
        if min_envs > calls.num_sent:
            raise ValueError(
                f"min_envs must be at most the number of environments in flight, expected at most "
                f"{calls.num_sent}, got {min_envs}. Nothing was received."
            )
        calls.wait_for_sent("recv", min_envs, self._timeout if timeout is None else timeout)
        pieces = calls.received(self.num_envs if max_envs is None else max_envs)
        rows = np.concatenate([piece.rows for piece in pieces])
        result = self._slot(rows, calls.info(pieces, len(rows)))
        with ctrl_c_held_back():
            self._note_rows(pieces)
            calls.finish(pieces)
        return result
