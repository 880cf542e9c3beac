"""The calls on parts of a batch: rows in any order, each once."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from superdex.buffers._checks import check_buffers, check_env_ids, check_rows
from superdex.buffers._primitives import BatchPrimitives, Buffers
from superdex.buffers._slots import SlotBatch, slot_partitions
from superdex.buffers._spec import ArraySpec, BatchSpec, allocate

__all__ = ["SlotSteps"]


class SlotSteps(BatchPrimitives):
    """The calls on slots, over the primitives; a part of `BufferedSteps`."""

    def slot_partitions(self, n: int) -> tuple[np.ndarray, ...]:
        """Return n balanced slots of contiguous environments: (rows,) int32, larger ones first.

        Raises:
            ValueError: If n is no integer from 1 to `num_envs`.
        """
        return slot_partitions(self.num_envs, n)

    def slot_batch_spec(self, rows: int) -> BatchSpec:
        """Return the arrays of a slot of that many environments, as `batch_spec` does.

        Raises:
            ValueError: If `rows` is no integer from 0 to `num_envs`.
        """
        check_rows(rows, self.num_envs)
        return {
            name: ArraySpec((int(rows), *shape[1:]), dtype)
            for name, (shape, dtype) in self.batch_spec().items()
        }

    def observe_slots(self, env_ids: Any) -> Any:
        """Return the last results of some environments; nothing moves.

        Args:
            env_ids: A sequence or array of integers, in any order, none twice.

        Returns:
            A `SlotBatch` whose rows are in the order of `env_ids`; without infos.

        Raises:
            ValueError: If `env_ids` are not as above.
        """
        self._check_can("observe_slots")
        rows = self._checked_rows("observe_slots", env_ids)
        return self._slot(rows, {})

    def observe_slots_into(self, env_ids: Any, buffers: Buffers) -> None:
        """Write the last results of some environments to buffers; nothing moves.

        Args:
            env_ids: As in `observe_slots`.
            buffers: Arrays as `slot_batch_spec` says.

        Raises:
            ValueError: If the arguments are not as above.
        """
        self._check_can("observe_slots_into")
        rows = self._checked_rows("observe_slots_into", env_ids)
        check_buffers(buffers, self.slot_batch_spec(len(rows)))
        self._write_rows(rows, buffers, None)

    def step_slots(self, env_ids: Any, actions: np.ndarray) -> Any:
        """Step some environments once; the others rest.

        Args:
            env_ids: A sequence or array of integers, in any order, none twice.
            actions: (rows, …), in that order. They are copied first.

        Returns:
            A `SlotBatch` whose rows are in that order.

        Raises:
            ValueError: If the arguments are not as above; nothing was stepped then.
        """
        rows = self._checked_slot("step_slots", env_ids, actions)
        arrays = self._slot_arrays(len(rows))
        return self._slot_batch(arrays, self._step_to(rows, arrays, actions))

    def step_slots_checked(self, env_ids: Any, actions: np.ndarray, state_ids: np.ndarray) -> Any:
        """Do as `step_slots`, if these actions are for where the environments are now.

        Args:
            env_ids: As in `step_slots`.
            actions: As in `step_slots`.
            state_ids: (rows,) uint64, the ids of the positions that the actions are for.

        Raises:
            StaleStateError: If one of them has moved on; it names them, and nothing was stepped.
            ValueError: If the arguments are not as above; nothing was stepped then.
        """
        rows = self._checked_slot("step_slots_checked", env_ids, actions, state_ids)
        arrays = self._slot_arrays(len(rows))
        return self._slot_batch(arrays, self._step_to(rows, arrays, actions, state_ids))

    def step_slots_into(self, env_ids: Any, actions: np.ndarray, buffers: Buffers) -> Any:
        """Step some environments once and write their results to buffers.

        Args:
            env_ids: As in `step_slots`.
            actions: As in `step_slots`.
            buffers: Arrays as `slot_batch_spec` says; else as in `step_into`.

        Returns:
            The info, its rows in the order of `env_ids`.

        Raises:
            ValueError: If the arguments are not as above; nothing was stepped then.
        """
        rows = self._checked_slot("step_slots_into", env_ids, actions)
        check_buffers(buffers, self.slot_batch_spec(len(rows)))
        return self._step_to(rows, buffers, actions)

    def step_slots_into_checked(
        self, env_ids: Any, actions: np.ndarray, state_ids: np.ndarray, buffers: Buffers
    ) -> Any:
        """Do as `step_slots_into`, if these actions are for where the environments are now.

        Raises:
            StaleStateError: If one of them has moved on; nothing was stepped or written.
            ValueError: If the arguments are not as in `step_slots_into`; nothing was stepped then.
        """
        rows = self._checked_slot("step_slots_into_checked", env_ids, actions, state_ids)
        check_buffers(buffers, self.slot_batch_spec(len(rows)))
        return self._step_to(rows, buffers, actions, state_ids)

    def reset_slots(self, env_ids: Any, seeds: Any = None, *, options: Any = None) -> Any:
        """Reset some environments; the others rest.

        Args:
            env_ids: As in `step_slots`.
            seeds: As in `reset_envs`: None, an int, or one seed or None for each row.
            options: As in `reset_envs`: one dict, or a list of one for each row.

        Returns:
            A `SlotBatch` whose rows are in the order of `env_ids`.

        Raises:
            ValueError: If the arguments are not as above; nothing was reset then.
        """
        self._check_can("reset_slots")
        rows = self._checked_rows("reset_slots", env_ids)
        arrays = self._slot_arrays(len(rows))
        return self._slot_batch(arrays, self._reset_to(rows, arrays, seeds, options))

    def reset_slots_into(
        self, env_ids: Any, buffers: Buffers, seeds: Any = None, *, options: Any = None
    ) -> Any:
        """Reset some environments and write their results to buffers.

        Args:
            env_ids: As in `step_slots`.
            buffers: Arrays as `slot_batch_spec` says.
            seeds: As in `reset_slots`.
            options: As in `reset_slots`.

        Returns:
            The info, its rows in the order of `env_ids`.

        Raises:
            ValueError: If the arguments are not as above; nothing was reset then.
        """
        self._check_can("reset_slots_into")
        rows = self._checked_rows("reset_slots_into", env_ids)
        check_buffers(buffers, self.slot_batch_spec(len(rows)))
        return self._reset_to(rows, buffers, seeds, options)

    def _checked_rows(self, call: str, env_ids: Any) -> np.ndarray:
        rows = check_env_ids(env_ids, self.num_envs)
        self._check_rows(call, rows)
        return rows

    def _checked_slot(
        self, call: str, env_ids: Any, actions: np.ndarray, *state_ids: Any
    ) -> np.ndarray:
        """Check everything about a slot but its buffers; return its rows as intp."""
        self._check_can(call)
        try:
            rows = self._checked_rows(call, env_ids)
        except ValueError as error:
            if not self._are_swapped(env_ids, actions):
                raise
            order = ", ".join(inspect.signature(getattr(self, call)).parameters)
            raise ValueError(
                f"{error} The arguments seem to be swapped: it is {call}({order})."
            ) from None
        self._check_actions(actions, rows)
        for ids in state_ids:  # one or none
            self._ids.check(ids, rows)
        return rows

    def _are_swapped(self, env_ids: Any, actions: Any) -> bool:
        """Return whether each of two arguments would do as the other."""
        try:
            self._check_actions(env_ids, check_env_ids(actions, self.num_envs))
        except ValueError:
            return False
        return True

    def _slot_arrays(self, rows: int) -> dict[str, np.ndarray]:
        """Return new arrays for the results of a slot."""
        spec = self.slot_batch_spec(rows)
        spec.pop("action", None)
        return allocate(spec)

    def _slot(self, rows: np.ndarray, info: Any) -> Any:
        """Return the last results of rows in arrays of their own."""
        arrays = self._slot_arrays(len(rows))
        self._write_rows(rows, arrays, None)
        return self._slot_batch(arrays, info)

    def _slot_batch(self, arrays: dict[str, np.ndarray], info: Any) -> Any:
        """Return the arrays of a slot as the caller gets them."""
        rest: dict[str, Any] = {"final_observation": None, "info": info}
        return SlotBatch(**(rest | arrays))
