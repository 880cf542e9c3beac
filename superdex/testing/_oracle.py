"""The oracle: one environment in a plain loop, written as simply as can be.

It shares no code with the vector environment, so that the two can disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

__all__ = ["PlainLoop", "Transition", "row_info"]


@dataclass
class Transition:
    """What one environment gave in one step of the batch.

    Attributes:
        observation: The observation that the batch shows.
        reward: The reward; 0 where the action was ignored.
        terminated: Whether the episode terminated.
        truncated: Whether the episode was truncated.
        info: The info that the batch shows.
        final_observation: The last one of an episode, where the mode resets within the step.
        final_info: The info that came with it.
    """

    observation: np.ndarray
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[Any, Any] = field(default_factory=dict)
    final_observation: np.ndarray | None = None
    final_info: dict[Any, Any] | None = None


class PlainLoop:
    """One environment, stepped as the batch would step it in the same autoreset mode.

    Args:
        env: The environment, which nobody else uses.
        autoreset_mode: The mode. With DISABLED the caller resets.

    Example:
        >>> loop = PlainLoop(gym.make("Pendulum-v1"), AutoresetMode.NEXT_STEP)
        >>> loop.reset(seed=3).observation.shape
        (3,)
    """

    def __init__(self, env: gym.Env[Any, Any], autoreset_mode: AutoresetMode) -> None:
        self.env = env
        self.mode = autoreset_mode
        self._ended = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Transition:
        """Reset the environment."""
        self._ended = False
        observation, info = self.env.reset(seed=seed, options=options)
        return Transition(self._taken(observation), info=deepcopy(info))

    def step(self, action: np.ndarray) -> Transition:
        """Step the environment, or reset it where its episode has ended."""
        if self._ended and self.mode is AutoresetMode.NEXT_STEP:
            return self.reset()
        observation, reward, terminated, truncated, info = self.env.step(action.copy())
        transition = Transition(
            self._taken(observation),
            float(np.asarray(reward).item()),
            bool(terminated),
            bool(truncated),
            deepcopy(info),
        )
        self._ended = transition.terminated or transition.truncated
        if self._ended and self.mode is AutoresetMode.SAME_STEP:
            transition.final_observation = transition.observation
            transition.final_info = transition.info
            first = self.reset()
            transition.observation, transition.info = first.observation, first.info
        return transition

    def _taken(self, observation: Any) -> np.ndarray:
        return np.array(observation, dtype=self.env.observation_space.dtype)


def row_info(info: Mapping[Any, Any], index: int) -> dict[Any, Any]:
    """Return what environment `index` gave, read back from a batched info by its masks."""
    result: dict[Any, Any] = {}
    for key, values in info.items():
        mask = info.get(f"_{key}")
        if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask[index]:
            result[key] = row_info(values, index) if isinstance(values, dict) else values[index]
    return result
