"""K of Gymnasium's MuJoCo environments stepped together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from superdex._batching import Transitions
from superdex.envs._batch import SceneEnvBatch, rows_of

if TYPE_CHECKING:
    from superdex.envs._scene_env import SceneEnv
    from superdex.envs.mujoco._mujoco_env import MujocoEnv

__all__ = ["UNHEALTHY_REASON", "MujocoEnvBatch"]

UNHEALTHY_REASON = "Unhealthy"
"""Why an episode ends that Gymnasium terminates."""


class MujocoEnvBatch(SceneEnvBatch):
    """Environments stepped together, by their hooks for arrays.

    Args:
        envs: The environments, `MujocoEnv`s.
        num_threads: Native threads that step the physics.

    Raises:
        NotBatchable: If they differ in class, scene or settings, or read contact forces.
    """

    def __init__(self, envs: Sequence[SceneEnv], num_threads: int = 1) -> None:
        super().__init__(envs, num_threads)
        self._hooks = cast("MujocoEnv", self._body)

    def _hooks_in_order(self, body: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
        action = np.zeros_like(body._agent.ctrl)
        before: list[Any] = []
        yield "_measured_before", lambda: before.append(body._measured_before())
        yield "_observed", body._observed
        yield "_judge", lambda: body._judge(action, before[0])

    def step(
        self,
        actions: NDArray[Any],
        observation: NDArray[Any],
        reward: NDArray[np.float64],
        rows: NDArray[np.int32] | None = None,
    ) -> Transitions:
        """Step environments once; see `EnvBatch.step`. No action is refused, as in Gymnasium."""
        hooks, batch, count = self._hooks, self._batch, len(self._envs)
        controls = hooks._agent.ctrl
        before = hooks._measured_before()
        if rows is None:
            controls[:] = actions
            self._elapsed_steps += 1
        else:
            controls[rows] = actions[rows]
            self._elapsed_steps[rows] += 1
            # what is ignored may be anything, and must not overflow below
            ignored = np.ones(count, np.bool_)
            ignored[rows] = False
            actions[ignored] = 0.0
        batch.step(hooks._dt, hooks.frame_skip, rows)
        start = 0
        for part in hooks._observed():
            flat = part.reshape(count, -1)
            observation[:, start : start + flat.shape[1]] = flat
            start += flat.shape[1]
        reward[:], unhealthy, info = hooks._judge(actions, before)
        info = {name: rows_of(value, count) for name, value in info.items()}
        reasons = None
        if np.any(unhealthy):
            reasons = np.full(count, None)
            reasons[unhealthy] = UNHEALTHY_REASON
        return self._transitions(info, reasons, None)
