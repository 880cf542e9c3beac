"""What every row of a batch must show, faults and all: a model to compare a vector with.

Each row is a plain loop over one environment. A fault replaces its environment, and that is all a
model knows of faults: rows that are never replaced show what they show in a run without any.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.testing import row_info
from superdex.testing._equivalence import _same
from superdex.vector import HybridVectorEnv
from superdex.vector._seeding import derived_seed
from tests.vector.envs import OddInfos

WORKER_RESTARTED = {"worker_restarted": True}


def kill_self() -> None:
    """End this process as the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def stumble() -> None:
    """Raise what an environment with an error raises."""
    raise RuntimeError("stumbled")


class Faulty(gym.Wrapper):
    """Does something bad at one point of its life, once or again and again.

    Args:
        env: The environment.
        at: "construct", "reset", "step", "method", "set" or "close".
        do: What it does there.
        after: Earlier visits to that point, which pass.
        fuse: A file that is made then, and after which all goes well; None for every time anew.
    """

    def __init__(self, env, at: str, do: Callable[[], Any], after: int = 0, fuse: Any = None):
        super().__init__(env)
        self.at, self.do, self.after, self.fuse = at, do, after, fuse
        self.visit("construct")

    def visit(self, point):
        if self.at != point or (self.fuse is not None and Path(self.fuse).exists()):
            return
        self.after -= 1
        if self.after < 0:
            if self.fuse is not None:
                Path(self.fuse).touch()
            self.do()

    def reset(self, **kwargs):
        self.visit("reset")
        return super().reset(**kwargs)

    def step(self, action):
        self.visit("step")
        return super().step(action)

    def method(self):
        self.visit("method")
        return 1

    def set_wrapper_attr(self, name, value, *, force=True):
        if name == "trap":
            self.visit("set")
        return super().set_wrapper_attr(name, value, force=force)

    def close(self):
        self.visit("close")
        super().close()


def faulty(build: Callable[[], gym.Env], *args: Any, **kwargs: Any) -> Callable[[], gym.Env]:
    """Return a function for such an environment."""
    return partial(_build_faulty, build, *args, **kwargs)


def _build_faulty(build, *args, **kwargs):
    return Faulty(build(), *args, **kwargs)


class Row:
    """What one row shows.

    Args:
        build: Builds its environment, without the fault.
        mode: The autoreset mode.
        episode_seeds: As of the vector.
        options: Of autoresets, as a function of the episode, or "last".
    """

    def __init__(self, build, mode, *, episode_seeds=False, options: Any = None):
        self.build, self.mode, self.env = build, mode, build()
        self.episode_seeds, self.options = episode_seeds, options
        self.seed: int | None = None
        self.number = -1
        self.last_options: Any = None
        self.ended = self.new = False
        self.lost: str | None = None
        self.marks: dict[str, Any] = {}
        self.stumbles: dict[str, Any] | None = None
        """Marks of an error that its next reset begins with."""

    def replace(self, marks, reason="worker restarted", *, lost=True):
        """Put a new environment in the place of the one that is gone."""
        self.env.close()
        self.env = self.build()
        self.marks = dict(marks)
        if self.number >= 0:
            self.new = True
            if not self.ended and lost:
                self.lost = reason

    def reset(self, seed=None, options=None):
        """Return the first observation and info, as after a reset by the caller."""
        self.last_options = deepcopy(options)
        return self._reset(seed, options)

    def _reset(self, seed, options):
        self.number += 1
        if self.stumbles is not None:
            self.replace(self.stumbles, lost=False)
            self.stumbles = None
        if seed is not None:
            self.seed, self.number = seed, 0
        elif self.seed is not None and (self.episode_seeds or self.new):
            seed = derived_seed(self.seed, self.number)
        observation, info = self.env.reset(seed=seed, options=options)
        info = {**info, **self.marks}
        self.ended, self.new, self.lost, self.marks = False, False, None, {}
        self.last = self._taken(observation)
        return self.last, info

    def settle(self):
        """Reset a new environment that is called before its first episode."""
        if self.new:
            seed = None if self.seed is None else derived_seed(self.seed, self.number)
            self.env.reset(seed=seed, options=self.last_options)

    def _autoreset(self):
        options = self.options
        if options == "last":
            options = self.last_options
        elif options is not None:
            options = options(self.number + 1)
        return self._reset(None, options)

    def _taken(self, observation):
        return np.array(observation, dtype=self.env.observation_space.dtype)

    def step(self, action) -> dict[str, Any]:
        """Return all that the row shows in a step."""
        shown: dict[str, Any] = {"reward": 0.0, "terminated": False, "truncated": False}
        shown["autoreset"] = False
        own: dict[Any, Any] = {}
        if self.lost is not None:
            shown["truncated"] = True
            info = {"truncated_reason": self.lost, **self.marks}
            own = self.marks
            self.lost, self.marks = None, {}
        elif self.ended and self.mode is AutoresetMode.NEXT_STEP:
            _, info = self._autoreset()
            shown["autoreset"] = True
        else:
            observation, reward, terminated, truncated, info = self.env.step(action.copy())
            self.last, info = self._taken(observation), deepcopy(info)
            shown |= {"reward": float(np.asarray(reward).item())}
            shown |= {"terminated": bool(terminated), "truncated": bool(truncated)}
        self.ended = shown["terminated"] or shown["truncated"]
        reasons = {}
        for flag, plain in (("terminated", "terminated"), ("truncated", "time limit")):
            if shown[flag]:
                reasons[f"{flag}_reason"] = info.get(f"{flag}_reason") or plain
        if self.ended and self.mode is AutoresetMode.SAME_STEP:
            extra = {"final_obs": self.last, "final_info": info}
            _, info = self._autoreset()
            info = {**info, **own, **extra}
            shown["autoreset"] = True
        shown["observation"], shown["info"] = self.last, {**info, **reasons}
        return shown


class Run:
    """A vector and its model, driven together and compared at every call.

    Args:
        envs: The vector.
        builds: Functions for its environments without their faults.
        options: Of autoresets, as in `Row`.
        stumbling: The row whose environment raises, if any does.
        in_reset: Whether it does so in reset, and not in step.
        error: What it raises, as infos give it.
    """

    def __init__(
        self,
        envs: HybridVectorEnv,
        builds: Sequence[Callable[[], gym.Env]],
        *,
        episode_seeds: bool = False,
        options: Callable[[int], Any] | str | None = None,
        stumbling: int = -1,
        in_reset: bool = False,
        error: str = "RuntimeError: stumbled",
    ):
        self.envs, self.mode = envs, envs.metadata["autoreset_mode"]
        self.rows = [
            Row(
                build,
                self.mode,
                episode_seeds=episode_seeds,
                options=partial(options, index) if callable(options) else options,
            )
            for index, build in enumerate(builds)
        ]
        self.stumbling, self.in_reset = stumbling, in_reset
        self.marks = {"env_error": error}
        self.restarts = [0] * envs.num_workers
        self.errors = 0
        self.steps = 0

    def note_faults(self) -> None:
        """Replace environments in the model where the vector has replaced them."""
        statistics = self.envs.statistics()
        for worker, count in enumerate(statistics.worker_restarts):
            if count > self.restarts[worker]:
                for index in self.envs._split.ranges[worker]:
                    self.rows[index].replace(WORKER_RESTARTED)
        self.restarts = list(statistics.worker_restarts)
        if statistics.env_errors > self.errors:
            row = self.rows[self.stumbling]
            if self.in_reset:
                row.stumbles = self.marks
            else:
                row.replace(self.marks, "environment error")
        self.errors = statistics.env_errors

    def reset(self, rows: Sequence[int] | None = None, seed: int | None = None, options=None):
        """Reset some environments, or all."""
        if rows is None:
            result = self.envs.reset(seed=seed, options=options)
            rows = range(self.envs.num_envs)
        else:
            result = self.envs.reset_envs(rows, seed=seed, options=options)
        self.note_faults()
        for index in range(self.envs.num_envs):
            row, at = self.rows[index], f"after step {self.steps}, reset, environment {index}"
            info = {}
            if index in rows:
                _, info = row.reset(None if seed is None else seed + index, options)
            _same(result.observation[index], row.last, f"{at}: observation")
            _same(row_info(result.info, index), info, f"{at}: info")
        assert not self.envs.autoreset_mask.any()

    def step(self, actions: np.ndarray, *, step: Callable[..., Any] | None = None):
        """Step all environments, and reset those that need it in the mode DISABLED."""
        result = (step or self.envs.step)(actions)
        self.steps += 1
        self.note_faults()
        autoreset = self.envs.autoreset_mask
        for index, row in enumerate(self.rows):
            expected = row.step(actions[index])
            at = f"step {self.steps}, environment {index}"
            for key in ("observation", "reward", "terminated", "truncated"):
                _same(getattr(result, key)[index], expected[key], f"{at}: {key}")
            _same(bool(autoreset[index]), expected["autoreset"], f"{at}: autoreset")
            _same(row_info(result.info, index), expected["info"], f"{at}: info")
        ended = np.flatnonzero(result.terminated | result.truncated)
        if self.mode is AutoresetMode.DISABLED and ended.size:
            self.reset(ended.tolist())
        return result

    def run(self, actions: np.ndarray) -> None:
        """Step once for each batch of actions."""
        for batch in actions:
            self.step(batch)


def odd(count: int) -> list[Callable[[], gym.Env]]:
    """Return functions for walks whose infos hold everything that an info can hold."""
    return [partial(OddInfos, tag) for tag in range(count)]
