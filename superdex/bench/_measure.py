"""What runs in a sweep's own process: look at an environment, or time it.

Each case has a fresh process, which stands for the user's program: the memory of that process and
of its workers is the memory of the case, and nothing is left over from the case before.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import psutil
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Space

from superdex.bench._report import Measurement
from superdex.bench._settings import SweepSettings

__all__ = ["Probe", "measure_bare", "measure_vector", "probe"]

_SEED = 0
_WARM_UP_CALLS = 5
# Actions are drawn before the clock starts, and used in turn.
_ACTION_BATCHES = 32


@dataclass(frozen=True)
class Probe:
    """What one environment says about itself.

    Attributes:
        substeps: Physics steps per control step, or None where the environment does not say.
        not_box: The first space that is no Box, in words, or None.
    """

    substeps: int | None
    not_box: str | None


def probe(spec: EnvSpec) -> Probe:
    """Build one environment, look at it and close it."""
    with contextlib.closing(_make(spec)) as env:
        return Probe(substeps=_substeps(env), not_box=_not_box(env))


def measure_bare(spec: EnvSpec, settings: SweepSettings) -> Measurement:
    """Time one environment in a plain loop, without a vectorizer."""
    start = time.perf_counter()
    with contextlib.closing(_make(spec)) as env:
        env.reset(seed=_SEED)
        init_seconds = time.perf_counter() - start
        actions = _draw_actions(env.action_space)

        def step() -> None:
            _, _, terminated, truncated, _ = env.step(next(actions))
            if terminated or truncated:
                env.reset()

        iterations, seconds = _time_loop(step, settings)
        return Measurement(
            init_seconds=init_seconds,
            memory_bytes=_tree_memory(),
            iterations=iterations,
            env_steps=iterations,
            seconds=seconds,
        )


def measure_vector(
    spec: EnvSpec,
    num_workers: int,
    num_envs_per_worker: int,
    settings: SweepSettings,
    num_threads_per_worker: int = 1,
) -> Measurement:
    """Time a `HybridVectorEnv` of that split; rows that only reset don't count."""
    from superdex.vector import HybridVectorEnv

    env_fns = [functools.partial(_make, spec)] * (num_workers * num_envs_per_worker)
    start = time.perf_counter()
    with HybridVectorEnv(
        env_fns,
        num_envs_per_worker=num_envs_per_worker,
        num_threads_per_worker=num_threads_per_worker,
    ) as env:
        env.reset(seed=_SEED)
        init_seconds = time.perf_counter() - start
        actions = _draw_actions(env.action_space)
        env_steps_before = 0

        def begin() -> None:
            nonlocal env_steps_before
            env_steps_before = env.statistics().env_steps

        iterations, seconds = _time_loop(lambda: env.step(next(actions)), settings, begin=begin)
        return Measurement(
            init_seconds=init_seconds,
            memory_bytes=_tree_memory(),
            iterations=iterations,
            env_steps=env.statistics().env_steps - env_steps_before,
            seconds=seconds,
            steps_at_once=all(env.statistics().steps_at_once),
        )


def _make(spec: EnvSpec) -> gymnasium.Env[Any, Any]:
    """Build the environment without Gymnasium's checker, which only costs time here."""
    return gymnasium.make(spec, disable_env_checker=True)


def _draw_actions(space: Space[Any]) -> itertools.cycle[Any]:
    space.seed(_SEED)
    return itertools.cycle([space.sample() for _ in range(_ACTION_BATCHES)])


def _time_loop(
    step: Callable[[], object],
    settings: SweepSettings,
    *,
    begin: Callable[[], None] = lambda: None,
) -> tuple[int, float]:
    """Step as long as the settings say, and return (calls, seconds), the warm-up left out."""
    for _ in range(_WARM_UP_CALLS):
        step()
    begin()
    max_iterations = settings.max_iterations or float("inf")
    iterations = 0
    start = time.perf_counter()
    while True:
        step()
        iterations += 1
        seconds = time.perf_counter() - start
        if seconds >= settings.max_time or iterations >= max_iterations:
            return iterations, seconds
        if seconds >= settings.min_time and iterations >= settings.min_iterations:
            return iterations, seconds


def _substeps(env: gymnasium.Env[Any, Any]) -> int | None:
    """Return physics steps per control step, by our configuration or by Gymnasium's frame_skip."""
    inner = env.unwrapped
    cfg = getattr(inner, "cfg", None)
    for holder in (cfg, inner):
        simulation = getattr(holder, "simulation_frequency", None)
        control = getattr(holder, "control_frequency", None)
        if simulation and control:
            return int(simulation / control + 0.5)
    frame_skip = getattr(inner, "frame_skip", None)
    return int(frame_skip) if isinstance(frame_skip, int | np.integer) else None


def _not_box(env: gymnasium.Env[Any, Any]) -> str | None:
    for kind, space in (("observation", env.observation_space), ("action", env.action_space)):
        if not isinstance(space, Box):
            return f"its {kind} space is {space}"
    return None


def _tree_memory() -> int:
    """Return the memory of this process and all below it, in bytes.

    On Linux that is the PSS, in which a page shared by several processes counts once in all. Where
    the system has none it is the USS, which leaves shared pages out.
    """
    me = psutil.Process()
    total = 0
    for process in (me, *me.children(recursive=True)):
        # A process that an environment started may be gone by now.
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.uss)
    return total
