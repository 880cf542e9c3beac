"""The tasks that vectorizers are compared on, from no work at all to real physics.

Workers import this module by name, which costs them Gymnasium and NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

__all__ = ["TASKS", "NoWork", "Pixels", "Task"]


class NoWork(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Four floats that never change: what is left is the vectorizer's own cost.

    Args:
        num_infos: How many numbers each step reports as info.
    """

    def __init__(self, num_infos: int = 0) -> None:
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self._observation = np.zeros(4, np.float32)
        self._names = [f"number_{index}" for index in range(num_infos)]
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Return the observation."""
        super().reset(seed=seed)
        return self._observation, {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Return the observation, and the infos asked for; no episode ends."""
        if not self._names:
            return self._observation, 0.0, False, False, {}
        self._steps += 1
        return self._observation, 0.0, False, False, dict.fromkeys(self._names, self._steps * 0.5)


class Pixels(gymnasium.Env[NDArray[np.uint8], NDArray[np.float32]]):
    """A stack of four 84 × 84 frames that never change: what is left is moving 28 KB."""

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self._observation = np.full((84, 84, 4), 127, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Return the frames."""
        super().reset(seed=seed)
        return self._observation, {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Return the frames; no episode ends."""
        return self._observation, 0.0, False, False, {}


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: What it is called on the command line.
        title: What it is, for the table.
        make: Builds one environment; importable by workers.
        envpool_id: The id of EnvPool's own version, or None where it has none.
        envpool_settings: Its settings that differ from EnvPool's own.
    """

    name: str
    title: str
    make: Callable[[], gymnasium.Env[Any, Any]]
    envpool_id: str | None = None
    envpool_settings: Mapping[str, Any] = field(default_factory=dict)


_ALL = (
    Task("T0", "no work, 4 floats", NoWork),
    Task("T0i", "no work, 4 floats, two numeric infos a step", partial(NoWork, num_infos=2)),
    Task(
        "T1",
        "Pendulum-v1",
        partial(gymnasium.make, "Pendulum-v1", disable_env_checker=True),
        envpool_id="Pendulum-v1",
    ),
    Task(
        "T2",
        "HalfCheetah-v5",
        partial(gymnasium.make, "HalfCheetah-v5", disable_env_checker=True),
        envpool_id="HalfCheetah-v5",
    ),
    Task("T3", "84 × 84 × 4 bytes of pixels", Pixels),
)
TASKS = {task.name: task for task in _ALL}
