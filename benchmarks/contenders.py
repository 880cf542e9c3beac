"""The vectorizers that are compared, behind one small interface.

A contender is built off the clock and then idles until its turn comes: `run` steps for a while and
returns environment steps per second. Only real steps count; a row whose action was ignored because
its environment reset instead is no step.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from superdex.vector import HybridVectorEnv
from tasks import TASKS, Task

__all__ = [
    "CONTENDERS",
    "Contender",
    "Field",
    "FreeProcesses",
    "Hybrid",
    "HybridInto",
    "Loop",
    "take_rounds",
    "warm_up",
    "why_not",
]

_SEED = 0
_ACTION_BATCHES = 16
# Every turn begins with uncounted batches, because caches and clocks are cold after idling: with so
# many, or fewer where they take longer than this.
_WARM_UP_BATCHES = 2
_WARM_UP_SECONDS = 0.1


@dataclass(frozen=True)
class Field:
    """What every contender of one comparison has in common."""

    task: Task
    num_envs: int
    num_workers: int

    @property
    def env_fns(self) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
        """One factory per environment."""
        return [self.task.make] * self.num_envs


class Contender(ABC):
    """A vectorizer that is ready to step."""

    @abstractmethod
    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second."""

    @abstractmethod
    def close(self) -> None:
        """End what was started."""


def take_rounds(
    ready: Mapping[str, Contender],
    *,
    rounds: int,
    seconds: float,
    go_on: Callable[[int], bool] | None = None,
) -> dict[str, list[float]]:
    """Give every contender a turn in each round, and return their rates round by round.

    The order rotates from round to round. The first round warms up and is left out.

    Args:
        ready: The contenders, built.
        rounds: Rounds that count, at most.
        seconds: Length of a turn.
        go_on: Called before each round with the number of those that were counted; ends the
            rounds if false.
    """
    names = list(ready)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        if go_on is not None and not go_on(max(0, number - 1)):
            break
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            rate = ready[name].run(seconds)
            if number > 0:
                rates[name].append(rate)
    return rates


class Loop(Contender):
    """What steps in a process of its own, and can be held back until all of them are warm."""

    @abstractmethod
    def run(self, seconds: float, *, begin: Callable[[], object] = lambda: None) -> float:
        """Warm up, call `begin`, step for that long; return environment steps per second."""


class BareLoop(Loop):
    """A plain loop over the environments, into arrays allocated once, in this process."""

    def __init__(self, field: Field) -> None:
        self._envs = [make() for make in field.env_fns]
        space = self._envs[0].observation_space
        assert space.shape is not None
        self._actions = _draw_actions(self._envs[0].action_space, field.num_envs)
        self._observations = np.zeros((field.num_envs, *space.shape), space.dtype)
        self._rewards = np.zeros(field.num_envs)
        self._terminated = np.zeros(field.num_envs, bool)
        self._truncated = np.zeros(field.num_envs, bool)
        for index, env in enumerate(self._envs):
            self._observations[index], _ = env.reset(seed=_SEED + index)

    def run(self, seconds: float, *, begin: Callable[[], object] = lambda: None) -> float:
        """Step for that long after calling `begin`; return environment steps per second."""
        warm_up(self._step)
        begin()
        batches = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            self._step()
            batches += 1
        return batches * len(self._envs) / elapsed

    def _step(self) -> None:
        observations, rewards = self._observations, self._rewards
        terminated, truncated = self._terminated, self._truncated
        index = 0
        for env, action in zip(self._envs, next(self._actions), strict=True):
            observation, reward, has_terminated, has_truncated, _ = env.step(action)
            if has_terminated or has_truncated:
                observation, _ = env.reset()
            observations[index] = observation
            rewards[index] = reward
            terminated[index] = has_terminated
            truncated[index] = has_truncated
            index += 1  # noqa: SIM113 - enumerate would build a tuple for every step

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()


class FreeProcesses(Contender):
    """Processes that each run a loop of their own and never wait for each other.

    They start together at a barrier and are measured over the same window; their rates add up to
    what so many cores can do.

    Args:
        loops: What builds the loop of each process; it is pickled.
    """

    def __init__(self, loops: Sequence[Callable[[], Loop]]) -> None:
        context = multiprocessing.get_context("spawn")
        # Kept, because its shared memory is given to others as soon as this process forgets it.
        self._barrier = context.Barrier(len(loops))
        self._pipes: list[Connection] = []
        self._processes = []
        for make in loops:
            here, there = context.Pipe()
            process = context.Process(target=_run_loop, args=(there, self._barrier, make))
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second, of all processes."""
        for pipe in self._pipes:
            pipe.send(seconds)
        return sum(float(pipe.recv()) for pipe in self._pipes)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


def _run_loop(pipe: Connection, barrier: Barrier, make: Callable[[], Loop]) -> None:
    loop = make()
    pipe.send("ready")
    while True:
        try:
            seconds = pipe.recv()
        except EOFError:
            break
        pipe.send(loop.run(seconds, begin=barrier.wait))
    loop.close()


def _make_free_loops(field: Field) -> Contender:
    halves = [field.num_envs // 2, field.num_envs - field.num_envs // 2]
    return FreeProcesses([partial(BareLoop, replace(field, num_envs=half)) for half in halves])


class Hybrid(Contender):
    """Our own `HybridVectorEnv`, with arguments of its constructor."""

    def __init__(self, field: Field, **arguments: Any) -> None:
        arguments.setdefault("num_workers", field.num_workers)
        self._vector = HybridVectorEnv(field.env_fns, **arguments)
        self._actions = _draw_actions(self._vector.single_action_space, field.num_envs)
        self._vector.reset(seed=_SEED)

    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second."""
        warm_up(self.step)
        before = self._vector.statistics().env_steps
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            self.step()
        return (self._vector.statistics().env_steps - before) / elapsed

    def step(self) -> None:
        """Step all environments once."""
        self._vector.step(next(self._actions))

    def close(self) -> None:
        """Close the vector."""
        self._vector.close()


class HybridInto(Hybrid):
    """Our own, with workers that write to two buffers of the caller's in turn."""

    def __init__(self, field: Field, **arguments: Any) -> None:
        super().__init__(field, **arguments)
        handles = map(self._vector.bind, self._vector.allocate_buffers(2))
        self._handles = itertools.cycle(list(handles))

    def step(self) -> None:
        """Step all environments once."""
        next(self._handles).step(next(self._actions))

    def close(self) -> None:
        """Close the vector."""
        del self._handles  # which hold its memory
        super().close()


class NextStep(Contender):
    """A Gymnasium vector whose step after an episode's end resets and is no step."""

    def __init__(self, vector: gymnasium.vector.VectorEnv[Any, Any, Any], field: Field) -> None:
        self._vector = vector
        self._actions = _draw_actions(vector.single_action_space, field.num_envs)
        self._vector.reset(seed=_SEED)
        self._ended = 0

    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second."""
        warm_up(self._step)
        steps = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            steps += self._step()
        return steps / elapsed

    def _step(self) -> int:
        actions = next(self._actions)
        _, _, terminated, truncated, _ = self._vector.step(actions)
        real = len(actions) - self._ended
        self._ended = int(np.count_nonzero(terminated | truncated))
        return real

    def close(self) -> None:
        """Close the vector."""
        self._vector.close()


class StableBaselines(Contender):
    """SB3's `SubprocVecEnv`: a process for each environment, which resets within the step."""

    def __init__(self, field: Field) -> None:
        subproc = importlib.import_module("stable_baselines3.common.vec_env").SubprocVecEnv
        self._vector = subproc(field.env_fns, start_method="spawn")
        self._actions = _draw_actions(self._vector.action_space, field.num_envs)
        self._num_envs = field.num_envs
        self._vector.seed(_SEED)
        self._vector.reset()

    def run(self, seconds: float) -> float:
        """Step for that long and return environment steps per second."""
        warm_up(lambda: self._vector.step(next(self._actions)))
        steps = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            self._vector.step(next(self._actions))
            steps += self._num_envs
        return steps / elapsed

    def close(self) -> None:
        """Close the vector."""
        self._vector.close()


def _make_with_infos(field: Field) -> Contender:
    return Hybrid(replace(field, task=TASKS[field.task.name + "i"]), copy=True)


def _make_sync(field: Field) -> Contender:
    return NextStep(gymnasium.vector.SyncVectorEnv(field.env_fns), field)


def _make_async(field: Field) -> Contender:
    return NextStep(gymnasium.vector.AsyncVectorEnv(field.env_fns, context="spawn"), field)


def _make_envpool(field: Field) -> Contender:
    envpool = importlib.import_module("envpool")
    vector = envpool.make_gymnasium(
        field.task.envpool_id,
        num_envs=field.num_envs,
        num_threads=field.num_workers,
        seed=_SEED,
        **field.task.envpool_settings,
    )
    return EnvPool(vector, field)


class EnvPool(NextStep):
    """EnvPool's own C++ version, which is a Gymnasium vector in all but its constructor."""

    def __init__(self, vector: Any, field: Field) -> None:
        self._vector = vector
        self._actions = _draw_actions(vector.action_space, field.num_envs)
        self._vector.reset()
        self._ended = 0


CONTENDERS: dict[str, tuple[str, Callable[[Field], Contender]]] = {
    "bare": ("bare loop", BareLoop),
    "bare2": ("two free-running loops", _make_free_loops),
    "ours": ("ours: HybridVectorEnv", lambda field: Hybrid(field, copy=True)),
    "ours_view": ("ours, copy=False", lambda field: Hybrid(field, copy=False)),
    "ours_into": ("ours, step_into", HybridInto),
    "ours_infos": ("ours, two infos", _make_with_infos),
    "sync": ("SyncVectorEnv", _make_sync),
    "async": ("AsyncVectorEnv", _make_async),
    "sb3": ("SB3 SubprocVecEnv", StableBaselines),
    "envpool": ("EnvPool (C++)", _make_envpool),
}

_PROCESS_EACH = ("async", "sb3")
_MODULES = {"sb3": "stable_baselines3", "envpool": "envpool"}


def why_not(name: str, field: Field, max_processes: int) -> str | None:
    """Return why a contender can't take part in this comparison, or None if it can."""
    module = _MODULES.get(name)
    if module is not None and importlib.util.find_spec(module) is None:
        return f"{module} is not installed"
    if name in _PROCESS_EACH and field.num_envs > max_processes:
        return f"{field.num_envs} processes exceed --max_processes {max_processes}"
    if name == "ours_infos" and field.task.name + "i" not in TASKS:
        return "the task has no version with infos"
    if name == "envpool" and field.task.envpool_id is None:
        return "it has no such environment"
    return None


def warm_up(step: Callable[[], object]) -> None:
    """Step a few times, and once only where that takes long."""
    start = time.perf_counter()
    for _ in range(_WARM_UP_BATCHES):
        step()
        if time.perf_counter() - start > _WARM_UP_SECONDS:
            break


def _draw_actions(space: gymnasium.Space[Any], num_envs: int) -> Iterator[NDArray[Any]]:
    """Return batches of actions without end, all drawn now and the same for every contender."""
    batched = batch_space(space, num_envs)
    batched.seed(_SEED)
    return itertools.cycle([batched.sample() for _ in range(_ACTION_BATCHES)])
