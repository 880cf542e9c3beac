"""Small environments that the tests of vector environments share.

Workers import this module by name: they inherit `sys.path`, which holds the checkout's root.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Walk(gym.Env):
    """A noisy walk whose episodes last 2 to 6 steps and end in one way or the other.

    The observation is (position, steps of the episode, number of the episode).
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012  # as in the base class

    def __init__(self, tag=0, bound=1.0):
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = Box(-bound, bound, (2,), np.float32)
        self.render_mode = "rgb_array"
        self.tag = tag
        self.seeds: list[int | None] = []
        self.options: list[dict[str, Any] | None] = []
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options.append(options)
        self.episode += 1
        self.steps = 0
        self.length = int(self.np_random.integers(2, 7))
        self.position = float(self.np_random.normal())
        return self.observe(), {"length": self.length}

    def step(self, action):
        self.steps += 1
        self.position += float(action.sum()) + 0.1 * float(self.np_random.normal())
        ended = self.steps >= self.length
        terminated = ended and self.length % 2 == 0
        info = {"position": self.position, "steps": self.steps}
        return self.observe(), self.position, terminated, ended and not terminated, info

    def observe(self):
        return np.array([self.position, self.steps, self.episode], np.float32)

    def render(self):
        return np.full((2, 2, 3), self.tag, np.uint8)

    def add(self, a, b=0):
        """Return a sum with the tag."""
        return self.tag + a + b


class OddInfos(Walk):
    """A walk with everything in its infos that an info can hold."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        step, tag = self.steps, self.tag
        info["number"] = step if (step + tag) % 3 else step + 0.25
        info["label"] = "x" * (1 + step * (tag + 1))
        info["array"] = np.arange(3) * step
        info["ragged"] = np.ones(1 + (step + tag) % 3)
        info["nothing"] = None if step % 2 else tag
        info["big"] = 10 ** (step * (5 + tag))
        info["flag"] = bool(step % 2)
        info["small"] = np.float32(step / 3)
        info["nested"] = {"deep": {"step": step}, "word": f"w{tag}", 7: tag}
        info["mixed"] = {"a": step} if (step + tag) % 2 else step
        info[5] = step
        info[("a", tag % 2)] = [step, tag]
        if (step + tag) % 2:
            info["sometimes"] = step
        if terminated and tag % 2:
            info["terminated_reason"] = f"odd {tag}"
        return observation, reward, terminated, truncated, info


class Fixed(gym.Env):
    """Gives what it is told to give.

    Args:
        infos: The info of each step, the first one at reset; then none.
        length: Steps of each episode.
        shape: Of the observation, which is full of the number of the step.
    """

    def __init__(self, infos=(), length=10**9, shape=(1,), dtype=np.float32, reward: Any = 0.0):
        self.observation_space = Box(0, 100, shape, dtype)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.infos, self.length, self.reward = infos, length, reward
        self.calls = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), self.info()

    def step(self, action):
        self.steps += 1
        return self.observe(), self.reward, self.steps >= self.length, False, self.info()

    def observe(self):
        space = self.observation_space
        return np.full(space.shape, self.steps, space.dtype)

    def info(self):
        self.calls += 1
        return dict(self.infos[self.calls - 1]) if self.calls <= len(self.infos) else {}


class Acting(Walk):
    """A walk that calls a function at one point of its life.

    Args:
        at: "construct", "reset", "step", "close" or "method".
        do: The function.
        after: Earlier visits to that point, which pass.
    """

    def __init__(self, at: str, do: Callable[[], Any], after: int = 0):
        super().__init__()
        self.at, self.do, self.after = at, do, after
        self.visit("construct")

    def visit(self, point):
        if self.at == point:
            if self.after == 0:
                return self.do()
            self.after -= 1
        return None

    def reset(self, **kwargs):
        self.visit("reset")
        return super().reset(**kwargs)

    def step(self, action):
        self.visit("step")
        return super().step(action)

    def close(self):
        self.visit("close")

    def method(self):
        return self.visit("method")


class TwoArguments(Exception):
    """Can't be rebuilt from its `args` by its own constructor."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")
        self.what, self.where = what, where


class Unpicklable(Exception):
    """Holds what no pickle can carry."""

    def __init__(self, message="holds a lock"):
        super().__init__(message)
        self.lock = threading.Lock()


def raising(error: type[BaseException], *args: Any) -> Callable[[], None]:
    """Return a function that raises such an error."""

    def do():
        raise error(*args)

    return do


def walks(count: int) -> list[Callable[[], gym.Env]]:
    """Return functions that build walks tagged by their index."""
    return [partial(Walk, tag) for tag in range(count)]


def walk_actions(steps: int, count: int, seed: int = 5) -> np.ndarray:
    """Return actions for walks, (steps, count, 2)."""
    return np.random.default_rng(seed).uniform(-1, 1, (steps, count, 2)).astype(np.float32)
