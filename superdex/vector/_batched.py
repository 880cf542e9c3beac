"""Stepping all environments of a group at once, where they offer it.

It gives what stepping them one by one gives, to the bit; whatever is not a step (resets, calls,
attributes) stays the environment's own, and moves it out of the batch and back.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from superdex._batching import EnvBatch, NotBatchable, Transitions
from superdex.vector._columns import InfoWriter
from superdex.vector._returns import end_reasons

if TYPE_CHECKING:
    from superdex.vector._group import EnvGroup
    from superdex.vector._rows import GroupArrays

__all__ = ["BatchedStep", "batched_step"]

_FEWEST = 4
"""Fewer environments are quicker one by one."""


def batched_step(group: EnvGroup, num_threads: int) -> BatchedStep | None:
    """Return what steps the environments of a group at once, or None where they don't offer it.

    Where they declare that they do, but can't, a notice says why.
    """
    bare = [env.unwrapped for env in group.envs]
    if not all(getattr(env, "array_hooks", False) for env in bare) or len(bare) < _FEWEST:
        return None
    try:
        limits = [_time_limits(env) for env in group.envs]
        batch = type(bare[0]).make_batch(bare, num_threads)  # type: ignore[attr-defined]
        return BatchedStep(group, batch, limits)
    except NotBatchable as why:
        group.notices.once("not batched", slower(why))
        return None


def slower(why: NotBatchable) -> str:
    """Return what to tell the user of environments that are stepped one by one after all."""
    return (
        f"Environments with array hooks are stepped one by one in a group, because {why}. The "
        "results are the same; it is slower."
    )


def _time_limits(env: gym.Env[Any, Any]) -> list[TimeLimit[Any, Any]]:
    """Return the time limits around an environment.

    Raises:
        NotBatchable: If there are wrappers that would see no step.
    """
    limits = []
    while env is not env.unwrapped:
        assert isinstance(env, gym.Wrapper)
        if type(env) is TimeLimit:
            limits.append(env)
        elif type(env) not in (OrderEnforcing, PassiveEnvChecker):
            raise NotBatchable(f"they are wrapped in {type(env).__name__}")
        env = env.env
    return limits


class BatchedStep:
    """Steps the environments of a group at once.

    Args:
        group: The group, which does everything else.
        batch: Its environments.
        limits: The time limits around each of them.
    """

    def __init__(
        self, group: EnvGroup, batch: EnvBatch, limits: Sequence[list[TimeLimit[Any, Any]]]
    ) -> None:
        self._group = group
        self._batch = batch
        self._limits = limits
        # a wrapper's limit holds for all of its steps; of several the first to come counts
        shortest = [min((w._max_episode_steps for w in each), default=0) for each in limits]
        self._shortest = np.array(shortest) if any(shortest) else None
        self._elapsed = np.zeros(len(limits), np.int64)
        self._reward = np.zeros(len(limits))
        self._all = np.ones(len(limits), np.bool_)

    def step(
        self,
        actions: np.ndarray,
        out: GroupArrays,
        infos: InfoWriter,
        idle: Set[int],
        rows: np.ndarray | None = None,
    ) -> list[int]:
        """Step the environments that are not idle; return those whose episode ended.

        Rows of `out` that are idle are left to the caller.

        Args:
            actions: One for each environment, idle or not; if some rest, for those that don't.
            out: Where results go.
            infos: Takes infos.
            idle: Rows that are not stepped.
            rows: The environments that don't rest; all if None.

        Raises:
            RowError: If one can't be stepped; nothing has moved then.
        """
        active, stepped = self._all, None
        if idle or rows is not None:
            active = self._all.copy() if rows is None else self._mask(rows)
            active[list(idle)] = False
            stepped = np.flatnonzero(active).astype(np.int32)
            if stepped.size == 0:
                return []
        if rows is None:
            taken = self._batch.step(actions, out.observation, self._reward, stepped)
            out.reward[:] = self._reward
        else:
            taken = self._step_some(actions, rows, stepped, out)
        terminated, truncated = taken.terminated & active, taken.truncated & active
        if self._shortest is not None:
            self._elapsed += active
            truncated |= active & (self._shortest > 0) & (self._elapsed >= self._shortest)
        ended = terminated | truncated
        if not ended.any():
            infos.add_rows(taken.info, active)
            return []
        where: Any = slice(None) if rows is None else rows
        out.terminated[where], out.truncated[where] = terminated[where], truncated[where]
        rows_ended: list[int] = np.flatnonzero(ended).tolist()
        same_step = out.final_observation is not None
        infos.add_rows(taken.info, active & ~ended if same_step else active)
        for row in rows_ended:
            reasons = taken.reasons.get(row, {})
            if not same_step:
                infos.add(row, end_reasons(reasons, terminated[row], truncated[row]))
                continue
            info = {key: values[row] for key, values in taken.info.items()} | reasons
            observation, info = self._group.end_episode(row, out.observation[row].copy(), info, out)
            out.observation[row] = observation
            infos.add(row, info)
        return rows_ended

    def _mask(self, rows: np.ndarray) -> np.ndarray:
        mask = np.zeros_like(self._all)
        mask[rows] = True
        return mask

    def _step_some(
        self, actions: np.ndarray, rows: np.ndarray, stepped: Any, out: GroupArrays
    ) -> Transitions:
        """Step environments while others rest, whose rows of `out` are left as they are."""
        together = np.zeros((len(self._all), *actions.shape[1:]), actions.dtype)
        together[rows] = actions
        observation = np.empty_like(out.observation)
        with self._batch.others_at_rest(stepped):
            taken = self._batch.step(together, observation, self._reward, stepped)
        out.observation[stepped] = observation[stepped]
        out.reward[stepped] = self._reward[stepped]
        return taken

    def adopt(self, row: int) -> None:
        """Go on from where an environment is that was reset or used by itself."""
        self._elapsed[row] = max((w._elapsed_steps or 0 for w in self._limits[row]), default=0)
        self._batch.adopt(row)

    def hand_back(self, row: int) -> None:
        """Bring an environment to where it is in the batch."""
        for wrapper in self._limits[row]:
            if wrapper._elapsed_steps is not None:
                wrapper._elapsed_steps = int(self._elapsed[row])
        self._batch.hand_back(row)
