"""Environments that do what they are told: end, raise, hold, or leave their process.

So a fault happens at one planned point, in a worker as in a plain loop, and everything after it can
be compared bit for bit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode


class Code(IntEnum):
    """What the second number of an action tells a puppet to do."""

    GO = 0
    TERMINATE = 1
    TRUNCATE = 2
    RAISE = 3
    LEAVE = 4
    HOLD = 5


class Puppet(gym.Env):
    """A noisy walk with episodes of 2 to 7 steps that does what it is told to.

    Options of reset: "raise" and "leave" do so, unless this object was never reset before, so that
    one built anew does better; "raise": "always" does so in any case; "hold" holds.

    Args:
        index: Of the environment.
        gate: A path; to hold is to wait while something is there.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012  # as in the base class

    def __init__(self, index, gate):
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = Box(-10, 10, (2,), np.float32)
        self.render_mode = "rgb_array"
        self.index, self.gate = index, gate
        self._weight = 1.0
        self.resets = self.steps = self.length = 0
        self.position = 0.0

    def leave(self):
        os._exit(3)

    def hold(self):
        while Path(self.gate).exists():
            time.sleep(0.002)

    @property
    def weight(self):
        """How far an action moves it."""
        return self._weight

    @weight.setter
    def weight(self, value):
        if value < 0:
            raise ValueError(f"a weight of {value}")
        self._weight = value

    def reset(self, *, seed=None, options=None):
        told = options or {}
        if told.get("raise") == "always" or (self.resets and told.get("raise")):
            raise ArithmeticError(f"reset {self.resets} of {self.index}")
        if self.resets and told.get("leave"):
            self.leave()
        if told.get("hold"):
            self.hold()
        super().reset(seed=seed)
        self.resets += 1
        self.steps = 0
        self.length = int(self.np_random.integers(2, 8))
        self.position = float(self.np_random.normal())
        info = {"length": self.length, "seed": -1 if seed is None else seed}
        return self.observe(), {**info, "shift": told["shift"]} if "shift" in told else info

    def step(self, action):
        code = Code(int(action[1]))
        self.steps += 1
        if code is Code.RAISE:
            raise ArithmeticError(f"step {self.steps} of {self.index}")
        if code is Code.LEAVE:
            self.leave()
        if code is Code.HOLD:
            self.hold()
        self.position += float(action[0]) * self.weight + float(self.np_random.normal())
        over = self.steps >= self.length
        terminated = code is Code.TERMINATE or (over and self.length % 2 == 0)
        truncated = code is Code.TRUNCATE or (over and self.length % 2 == 1)
        return self.observe(), self.position, terminated, truncated, self.info(terminated)

    def observe(self):
        return np.array([self.position, self.steps, self.resets, self.weight], np.float32)

    def info(self, terminated):
        """Return numbers, a key of two types, and what comes now and then."""
        info: dict[Any, Any] = {"position": self.position, "odd": bool(self.steps % 2)}
        info["mixed"] = self.steps if self.steps % 2 else self.steps + 0.5
        if (self.steps + self.index) % 3 == 0:
            info["label"] = "x" * (self.steps + self.index)
            info["array"] = np.arange(2) * self.position
        if self.steps % 2:
            info["nested"] = {"steps": self.steps, "word": f"w{self.index}"}
        if terminated and self.index % 2:
            info["terminated_reason"] = "told to"
        return info

    def render(self):
        return np.full((2, 2, 3), self.steps, np.uint8)

    def tell(self, more=0):
        """Return all there is to know, and move on in the random numbers."""
        draw = float(self.np_random.normal()) if self.resets else None
        return self.index, self.resets, self.steps, self.position, self.weight, more, draw

    def fail(self):
        raise ArithmeticError(f"call of {self.index}")

    def unpicklable(self):
        return (number for number in range(3))


class Gone(BaseException):
    """A puppet of the model left its worker."""


class Held(BaseException):
    """A puppet of the model holds, where that is asked about."""


class ModelPuppet(Puppet):
    """A puppet that only says that it leaves or holds."""

    holds = False

    def leave(self):
        raise Gone

    def hold(self):
        if self.holds:
            raise Held


def options_by_number(index, episode):
    """Return options for autoresets."""
    return {"shift": index + 10 * episode} if episode % 2 else None


@dataclass(frozen=True)
class Config:
    """A vector environment of puppets."""

    num_envs: int
    num_workers: int
    mode: AutoresetMode = AutoresetMode.NEXT_STEP
    copy: bool = True
    in_process: bool = False
    restart: bool = False
    truncate: bool = False
    max_restarts: int = 10**6
    episode_seeds: bool = False
    autoreset_options: Callable[[int, int], dict[str, Any] | None] | str | None = None
    reset_masks: bool = False

    def env_fns(self, gate: str) -> list[Callable[[], gym.Env]]:
        return [partial(Puppet, index, gate) for index in range(self.num_envs)]

    def arguments(self) -> dict[str, Any]:
        return {
            "num_workers": self.num_workers,
            "autoreset_mode": self.mode,
            "copy": self.copy,
            "in_process": self.in_process,
            "on_worker_failure": "restart" if self.restart else "raise",
            "on_env_error": "truncate" if self.truncate else "raise",
            "max_restarts": self.max_restarts,
            "restart_window": np.inf,
            "slow_after": None,  # so that a wait in vain is a hang
            "episode_seeds": self.episode_seeds,
            "autoreset_options": self.autoreset_options,
            "reset_masks": self.reset_masks,
        }
