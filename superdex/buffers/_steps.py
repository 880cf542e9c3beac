"""The calls that fill the caller's arrays, compare ids and move parts of a batch.

One class has all the rules, over a few primitives that say what a batch is and move it::

    lifecycle → env_ids → actions → state ids → buffers → move → write
    └──────────── refused: nothing has changed ────────┘

Everything is looked at before anything moves, in that order. Actions are copied before anything is
written, so they may be a view of an array that is written to.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from superdex.buffers._checks import check_buffers, check_env_ids, check_rows
from superdex.buffers._ids import IdSource
from superdex.buffers._slots import SlotBatch, slot_partitions
from superdex.buffers._spec import ArraySpec, BatchSpec, allocate

__all__ = ["BoundBuffers", "BufferedSteps", "Buffers"]

Buffers = Mapping[str, np.ndarray]
"""Arrays by name, as a batch spec has them. They are written to."""


class BufferedSteps:
    """Gives a class with a few primitives all calls with buffers, ids and slots.

    The primitives are the abstract methods, and an attribute `_ids`. `HybridVectorEnv` and
    `VectorGameEnv` are such classes.

    Attributes:
        num_envs: N.

    Example:
        >>> import gymnasium
        >>> from superdex.vector import HybridVectorEnv
        >>> env_fns = [lambda: gymnasium.make("Pendulum-v1")] * 4
        >>> with HybridVectorEnv(env_fns, num_workers=2) as envs:
        ...     buffers = allocate(envs.batch_spec())
        ...     info = envs.reset_into(buffers, seed=1)
        ...     info = envs.step_into(np.zeros((4, 1), np.float32), buffers)
        >>> buffers["observation"].shape, buffers["action_valid"]
        ((4, 3), array([ True,  True,  True,  True]))
    """

    num_envs: int
    _ids: IdSource

    # ── primitives ──────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def batch_spec(self) -> BatchSpec:
        """Return the arrays of a batch: their shapes and dtypes by name."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> Any:
        """Step all environments once."""

    @abstractmethod
    def _check_can(self, call: str) -> None:
        """Raise if `call`, the name of a public method, is illegal now."""

    @abstractmethod
    def _check_rows(self, call: str, rows: np.ndarray | None) -> None:
        """Raise if one of these rows, all if None, can't do that now."""

    @abstractmethod
    def _check_actions(self, actions: Any, rows: np.ndarray | None) -> None:
        """Raise `ValueError` unless these are actions for rows, (rows, …), all if None."""

    @abstractmethod
    def _step_rows(self, rows: np.ndarray | None, actions: np.ndarray, place: Any) -> Any:
        """Step rows, all if None, wait, and return their info.

        It gives the rows new state ids and takes a copy of the actions before it writes anything.
        `place` is what `_place_of` returned.
        """

    @abstractmethod
    def _reset_rows(self, rows: np.ndarray | None, seeds: Any, options: Any, place: Any) -> Any:
        """Reset rows, all if None, wait, and return their info; else as `_step_rows`."""

    @abstractmethod
    def _write_rows(self, rows: np.ndarray | None, buffers: Buffers, place: Any) -> None:
        """Write the last results of rows, all if None, to buffers (rows, …).

        Results that lie in `place` are there already. `action` and `env_id` may be missing.
        """

    def _check_step(self, call: str, actions: Any) -> None:
        """Raise unless all rows can be stepped now, with these actions."""
        self._check_can(call)
        self._check_rows(call, None)
        self._check_actions(actions, None)

    def _place_of(self, buffers: Buffers, rows: np.ndarray | None) -> Any:
        """Return where results of rows, all if None, can be written straight away; None: nowhere.

        The buffers were checked, or were made as the spec says.
        """
        return None

    def _step_rows_checked(
        self, rows: np.ndarray | None, actions: np.ndarray, state_ids: np.ndarray, place: Any
    ) -> Any:
        """Do as `_step_rows`, for state ids that were compared with the rows' own.

        Where several threads may step, they are compared once more, at the moment of the step.
        """
        return self._step_rows(rows, actions, place)

    def _step_all_checked(self, actions: np.ndarray, state_ids: np.ndarray) -> Any:
        """Do as `step`, for state ids that were compared; else as `_step_rows_checked`."""
        return self.step(actions)

    def _bound(self, buffers: dict[str, np.ndarray]) -> BoundBuffers:
        """Return the handle for buffers that were checked."""
        return BoundBuffers(self, buffers)

    # ── full batches ────────────────────────────────────────────────────────────────────────────

    @property
    def state_ids(self) -> np.ndarray:
        """The ids of the present positions, (num_envs,) uint64, a copy.

        They change with every step and reset, of the rows that it is for, and never come back.
        """
        self._check_can("state_ids")
        return self._ids.state()

    @property
    def episode_ids(self) -> np.ndarray:
        """The ids of the episodes that the last observations are of, (num_envs,) uint64, a copy."""
        self._check_can("episode_ids")
        return self._ids.episode()

    def reset_into(self, buffers: Buffers, *, seed: Any = None, options: Any = None) -> Any:
        """Reset all environments and write the first observations to buffers.

        Rewards and flags are written too: zeros, and False for `action_valid` too, since
        there was no action. So is `action`, with zeros, unless it is missing.

        Args:
            buffers: Arrays as `batch_spec` says; no reference to them is kept.
            seed: As in `reset`.
            options: As in `reset`.

        Returns:
            The info, as `reset` returns it.

        Raises:
            ValueError: If buffers, seeds or options are not as expected; nothing was reset then.
        """
        self._check_can("reset_into")
        check_buffers(buffers, self.batch_spec())
        return self._reset_to(None, buffers, seed, options)

    def step_into(self, actions: np.ndarray, buffers: Buffers) -> Any:
        """Step all environments once and write the results to buffers.

        Args:
            actions: As in `step`. They are copied first, and may be a view of a buffer.
            buffers: Arrays as `batch_spec` says; no reference to them is kept. `action` may be
                missing; where it is not, it gets the actions as they were applied. Rows of
                `final_observation` are written where an episode ended; others keep what they held.

        Returns:
            The info, as `step` returns it.

        Raises:
            ValueError: If actions or buffers are not as expected; nothing was stepped then.
        """
        return self._step_all("step_into", actions, buffers)

    def step_checked(self, actions: np.ndarray, state_ids: np.ndarray) -> Any:
        """Step all environments once, if these actions are for where they are now.

        Args:
            actions: As in `step`.
            state_ids: (num_envs,) uint64, the ids of the positions that the actions are for.

        Returns:
            The result of `step`.

        Raises:
            StaleStateError: If a row has moved on; it names the rows, and nothing was stepped.
            ValueError: If the arguments are not as above; nothing was stepped then.
        """
        self._check_step("step_checked", actions)
        self._ids.check(state_ids)
        return self._step_all_checked(actions, state_ids)

    def step_into_checked(
        self, actions: np.ndarray, state_ids: np.ndarray, buffers: Buffers
    ) -> Any:
        """Do as `step_into`, if these actions are for where the environments are now.

        Raises:
            StaleStateError: If a row has moved on; it names the rows, and nothing was stepped or
                written.
            ValueError: If the arguments are not as in `step_into`; nothing was stepped then.
        """
        return self._step_all("step_into_checked", actions, buffers, state_ids)

    def _step_all(self, call: str, actions: Any, buffers: Any, *state_ids: Any) -> Any:
        self._check_step(call, actions)
        for ids in state_ids:  # one or none
            self._ids.check(ids)
        check_buffers(buffers, self.batch_spec())
        return self._step_to(None, buffers, actions, *state_ids)

    def bind(self, buffers: Buffers) -> BoundBuffers:
        """Check buffers once and return a handle whose `step` writes to them without looking again.

        Args:
            buffers: Arrays as `batch_spec` says. The handle holds them; keep them as they are.
                `env_id`, which never changes, is written now.

        Raises:
            ValueError: If they are not as expected.
        """
        self._check_can("bind")
        check_buffers(buffers, self.batch_spec())
        buffers["env_id"][:] = np.arange(self.num_envs)
        return self._bound(dict(buffers))

    # ── slots ───────────────────────────────────────────────────────────────────────────────────

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

    # ── moving and writing ──────────────────────────────────────────────────────────────────────

    def _step_to(
        self, rows: np.ndarray | None, buffers: Buffers, actions: np.ndarray, *state_ids: Any
    ) -> Any:
        """Step rows, all if None, and write their results; everything was checked."""
        place = self._place_of(buffers, rows)
        if state_ids:
            info = self._step_rows_checked(rows, actions, state_ids[0], place)
        else:
            info = self._step_rows(rows, actions, place)
        self._write_rows(rows, buffers, place)
        return info

    def _reset_to(self, rows: np.ndarray | None, buffers: Buffers, seeds: Any, options: Any) -> Any:
        """Reset rows, all if None, and write their results; everything but seeds was checked."""
        place = self._place_of(buffers, rows)
        info = self._reset_rows(rows, seeds, options, place)
        self._write_rows(rows, buffers, place)
        return info

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


class BoundBuffers:
    """Buffers that were checked once, with the calls that write to them; see `BufferedSteps.bind`.

    Attributes:
        buffers: The arrays by name.

    Example:
        >>> import gymnasium
        >>> from superdex.vector import HybridVectorEnv
        >>> env_fns = [lambda: gymnasium.make("Pendulum-v1")] * 4
        >>> with HybridVectorEnv(env_fns, num_workers=2) as envs:
        ...     handle = envs.bind(envs.allocate_buffers(1)[0])
        ...     info = handle.reset(seed=1)
        ...     info = handle.step(np.zeros((4, 1), np.float32))
        >>> handle.buffers["reward"].shape
        (4,)
    """

    def __init__(self, owner: BufferedSteps, buffers: dict[str, np.ndarray]) -> None:
        self.buffers = buffers
        self._written = {name: array for name, array in buffers.items() if name != "env_id"}
        self._owner = owner
        self._place = owner._place_of(self._written, None)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Do as `reset_into`."""
        owner = self._owner
        owner._check_can("reset_into")
        info = owner._reset_rows(None, seed, options, self._place)
        owner._write_rows(None, self._written, self._place)
        return info

    def step(self, actions: np.ndarray) -> Any:
        """Do as `step_into`."""
        owner = self._owner
        owner._check_step("step_into", actions)
        info = owner._step_rows(None, actions, self._place)
        owner._write_rows(None, self._written, self._place)
        return info

    def step_checked(self, actions: np.ndarray, state_ids: np.ndarray) -> Any:
        """Do as `step_into_checked`."""
        owner = self._owner
        owner._check_step("step_into_checked", actions)
        owner._ids.check(state_ids)
        info = owner._step_rows_checked(None, actions, state_ids, self._place)
        owner._write_rows(None, self._written, self._place)
        return info
