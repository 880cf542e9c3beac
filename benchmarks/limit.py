"""What MuJoCo itself can do with the physics of a task: the limit, and a bare batch.

Both step the model of the task as often per environment step as the task does, with actions that
change from step to step, and do nothing else: no observations, rewards, ends or infos. They start
from the task's own resets and go back to one where an episode would have ended on average, so that
their states age as those of the environments do. Actions and resets are set off the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from contenders import Contender, Field, FreeProcesses, Loop, warm_up
from tasks import Task

__all__ = ["BareBatch", "Simulation", "StepLoop", "free_steps"]

_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
_NUM_STARTS = 64
_STEPS_TO_LOOK_AT = 1000
MAX_STATES = 1024
"""Of one process: more would take gigabytes, and make the limit slower."""


@dataclass(frozen=True)
class Simulation:
    """The physics of a task.

    Attributes:
        model: The model.
        num_substeps: Physics steps per environment step.
        starts: (B, size of the state), the states after B resets.
        controls: (S, nu), what random actions became, step by step.
        episode: Environment steps after which an episode ends on average.
    """

    model: mujoco.MjModel
    num_substeps: int
    starts: NDArray[np.float64]
    controls: NDArray[np.float64]
    episode: int

    @classmethod
    def of(cls, task: Task) -> Simulation:
        """Look at an environment of the task for a while."""
        env = task.make()
        env.action_space.seed(0)
        inner: Any = env.unwrapped
        starts = []
        for seed in range(_NUM_STARTS):
            env.reset(seed=seed)
            model, data = _physics(env)
            state = np.empty(mujoco.mj_stateSize(model, _STATE))
            mujoco.mj_getState(model, data, state, _STATE)
            starts.append(state)
        lengths, controls, length = [], [], 0
        for _ in range(_STEPS_TO_LOOK_AT):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            controls.append(data.ctrl.copy())
            length += 1
            if terminated or truncated:
                lengths.append(length)
                length = 0
                env.reset()
        episode = round(float(np.mean(lengths))) if lengths else _STEPS_TO_LOOK_AT
        num_substeps = inner.cfg.num_substeps if hasattr(inner, "cfg") else int(inner.frame_skip)
        return cls(model, num_substeps, np.array(starts), np.array(controls), episode)

    def controls_of(self, step: int, count: int) -> NDArray[np.float64]:
        """Return the controls of so many simulations in their step of that number, (count, nu)."""
        # of a step and of the next: rows far apart in the record, so that none follows another
        rows = (step + 7 * np.arange(count)) % len(self.controls)
        return self.controls[rows]

    def ended(self, step: int, count: int) -> NDArray[np.intp]:
        """Return which simulations start anew before their step of that number."""
        if step == 0:
            return np.arange(count)
        return np.flatnonzero((step + np.arange(count)) % self.episode == 0)


class StepLoop(Loop):
    """A loop of `mj_step` over the data of many simulations, in this process."""

    def __init__(self, task: Task, num_envs: int) -> None:
        self._simulation = Simulation.of(task)
        model = self._simulation.model
        self._data = [mujoco.MjData(model) for _ in range(min(num_envs, MAX_STATES))]
        self._controls = [data.ctrl for data in self._data]
        self._steps = 0

    def run(self, seconds: float, *, begin: Callable[[], object] = lambda: None) -> float:
        """Step for that long after calling `begin`; return environment steps per second."""
        warm_up(self.step)
        begin()
        steps, elapsed = 0, 0.0
        while elapsed < seconds:
            elapsed += self.step()
            steps += len(self._data)
        return steps / elapsed

    def step(self) -> float:
        """Step all simulations once, and return the seconds that took without what is set up."""
        simulation, count = self._simulation, len(self._data)
        model, num_substeps, mj_step = simulation.model, simulation.num_substeps, mujoco.mj_step
        for index in simulation.ended(self._steps, count):
            start = simulation.starts[index % _NUM_STARTS]
            mujoco.mj_setState(model, self._data[index], start, _STATE)
        for control, value in zip(
            self._controls, simulation.controls_of(self._steps, count), strict=True
        ):
            control[:] = value
        self._steps += 1
        start_time = time.perf_counter()
        for data in self._data:
            mj_step(model, data, num_substeps)
        return time.perf_counter() - start_time

    def close(self) -> None:
        """Nothing was started."""


def free_steps(field: Field) -> Contender:
    """Return as many free-running loops of `mj_step` as cores, each over its share."""
    cores = field.num_workers
    shares = [len(part) for part in np.array_split(np.arange(field.num_envs), cores)]
    return FreeProcesses([partial(StepLoop, field.task, share) for share in shares if share])


class BareBatch(Contender):
    """A `mujoco.batch.Batch` with as many threads as cores, in this process."""

    def __init__(self, field: Field) -> None:
        self._simulation = Simulation.of(field.task)
        self._batch: Any = Batch(self._simulation.model, field.num_envs, field.num_workers)
        self._states, self._controls = self._batch.state, self._batch.ctrl
        self._num_envs = field.num_envs
        self._steps = 0

    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second."""
        warm_up(self.step)
        steps, elapsed = 0, 0.0
        while elapsed < seconds:
            elapsed += self.step()
            steps += self._num_envs
        return steps / elapsed

    def step(self) -> float:
        """Step all simulations once, and return the seconds that took without what is set up."""
        simulation = self._simulation
        ended = simulation.ended(self._steps, self._num_envs)
        self._states[ended] = simulation.starts[ended % _NUM_STARTS]
        self._controls[:] = simulation.controls_of(self._steps, self._num_envs)
        self._steps += 1
        start_time = time.perf_counter()
        self._batch.step(None, simulation.num_substeps)
        return time.perf_counter() - start_time

    def close(self) -> None:
        """Nothing was started that does not end by itself."""


def _physics(env: gymnasium.Env[Any, Any]) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Return model and data of one of our environments, or of Gymnasium's."""
    inner: Any = env.unwrapped
    holder = inner._scene if hasattr(inner, "cfg") else inner
    return holder.model, holder.data
