"""A wrapper that turns any space which can be flattened into one `Box`, and actions back."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

__all__ = ["BoxSpaces"]


class BoxSpaces(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Flattens an environment's observation and action spaces to `Box`es.

    Observations are flattened as by `gymnasium.spaces.flatten` (one-hot for `Discrete`). Actions
    are read back leniently, so that any point of the box is an action, and so are logits: the
    largest entry chooses in a `Discrete` or `MultiDiscrete`, a `MultiBinary` entry is on from 0.5,
    a `Box` entry is clipped to its bounds. A space that is a `Box` already stays as it is.

    Args:
        env: The environment.

    Raises:
        TypeError: If a space has no fixed flat size, such as `Text`, `Sequence` or `Graph`.

    Example:
        >>> env = BoxSpaces(gym.make("CartPole-v1"))
        >>> env.action_space.shape, env.observation_space.shape
        ((2,), (4,))
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._flat_observations = not isinstance(env.observation_space, spaces.Box)
        self._flat_actions = not isinstance(env.action_space, spaces.Box)
        if self._flat_observations:
            self.observation_space = _flatten_space(env.observation_space, "observation")
        if self._flat_actions:
            _check_invertible(env.action_space, env.action_space)
            # floats, so that a policy's logits are actions
            self.action_space = _as_floats(_flatten_space(env.action_space, "action"))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; the observation is flat."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._observation(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment with a flat action; the observation is flat."""
        if self._flat_actions:
            action, _ = _read(self.env.action_space, np.asarray(action).ravel())
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._observation(observation), reward, terminated, truncated, info

    def _observation(self, observation: Any) -> Any:
        if not self._flat_observations:
            return observation
        return spaces.flatten(self.env.observation_space, observation)


def _flatten_space(space: gym.Space[Any], role: str) -> spaces.Box:
    flat = spaces.flatten_space(space) if space.is_np_flattenable else None
    if not isinstance(flat, spaces.Box):
        raise TypeError(
            f"The {role} space {space} has no fixed flat size, so it can't become a Box."
        )
    return flat


def _as_floats(box: spaces.Box) -> spaces.Box:
    """Return the box with float entries, of a dtype that holds its bounds exactly."""
    if box.dtype.kind == "f":
        return box
    exact = max(abs(int(box.low.min(initial=0))), abs(int(box.high.max(initial=0)))) < 2**24
    dtype: Any = np.float32 if exact else np.float64
    return spaces.Box(box.low.astype(dtype), box.high.astype(dtype), dtype=dtype)


def _check_invertible(space: gym.Space[Any], whole: gym.Space[Any]) -> None:
    if isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            _check_invertible(part, whole)
    elif isinstance(space, spaces.Tuple):
        for part in space.spaces:
            _check_invertible(part, whole)
    elif not isinstance(
        space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    ):
        raise TypeError(f"{type(space).__name__} in the action space {whole} can't become a Box.")


def _read(space: gym.Space[Any], flat: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the action that the front of `flat` stands for, and the rest of `flat`."""
    if isinstance(space, spaces.Dict):
        parts = {}
        for key, part in space.spaces.items():
            parts[key], flat = _read(part, flat)
        return parts, flat
    if isinstance(space, spaces.Tuple):
        items = []
        for part in space.spaces:
            item, flat = _read(part, flat)
            items.append(item)
        return tuple(items), flat
    if isinstance(space, spaces.Discrete):
        size = int(space.n)
        return space.start + np.int64(np.argmax(flat[:size])), flat[size:]
    if isinstance(space, spaces.MultiDiscrete):
        choices = []
        for size in space.nvec.ravel():
            choices.append(np.argmax(flat[:size]))
            flat = flat[size:]
        action = np.asarray(choices, space.dtype).reshape(space.nvec.shape) + space.start
        return action.astype(space.dtype), flat
    size = spaces.flatdim(space)
    shape = space.shape or ()
    if isinstance(space, spaces.MultiBinary):
        return (flat[:size] >= 0.5).astype(space.dtype).reshape(shape), flat[size:]
    assert isinstance(space, spaces.Box)
    values = np.clip(flat[:size].reshape(shape), space.low, space.high)
    if space.dtype.kind in "iu":
        values = np.rint(values)
    return values.astype(space.dtype), flat[size:]
