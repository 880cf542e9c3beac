"""What a vector environment did so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superdex.vector._local import LocalPool
from superdex.vector._pool import WorkerPool
from superdex.vector._protocol import Word
from superdex.vector._split import Split
from superdex.vector._timing import Record

__all__ = ["EnvTiming", "Statistics", "pool_statistics"]


@dataclass(frozen=True)
class EnvTiming:
    """How long one environment takes, in seconds.

    Steps are timed all the time where they take more than 20 µs on average, else one in 128;
    resets always.

    Attributes:
        env_index: Its index in the batch.
        worker: The worker that holds it.
        step_seconds: The mean of its timed steps.
        longest_step: The longest of them.
        reset_seconds: The mean of its resets.
        longest_reset: The longest of them.
    """

    env_index: int
    worker: int
    step_seconds: float
    longest_step: float
    reset_seconds: float
    longest_reset: float


@dataclass(frozen=True)
class Statistics:
    """What a vector environment did since it was made.

    A worker's time since it was ready is the sum of the three fields `seconds_in_envs`,
    `seconds_idle` and `seconds_in_transport`, up to the part of the last one that overlaps with
    the second: how long a reply takes to be noticed.

    Attributes:
        steps: Calls of `step`.
        env_steps: Steps of single environments, without rows whose action was ignored.
        messages: Messages over the workers' pipes, both ways. A step whose infos are numbers sends
            none, once their columns are learned.
        copies: Arrays copied in the parent for the caller.
        bytes_copied: Their bytes.
        seconds_waiting: Per worker, the time the parent waited for its replies, in seconds. Workers
            run at the same time and are waited for in order, so a later one's wait is what it took
            longer than those before.
        seconds_in_envs: Per worker, the time its environments took, resets and calls included.
        seconds_in_transport: Per worker, the time between a command's sending and its arrival, and
            between a reply and its being noticed, where the caller was waiting for it.
        seconds_idle: Per worker, the time it waited for the next command: for the policy, or for a
            slower worker.
        slowest_env: The environment that takes longest per step, its resets shared out over the
            steps; None before the first step, and where no step is an environment's own: with
            environments that are stepped at once, or an inner layer of another class.
        steps_at_once: Per worker, whether its environments are stepped at once, by hooks written
            for arrays.
        live_scenes: Per worker, the physics scenes alive in its process; 0 after close.
        worker_restarts: Per worker, how often it was restarted.
        env_errors: How often an environment raised and was built anew.
    """

    steps: int
    env_steps: int
    messages: int
    copies: int
    bytes_copied: int
    seconds_waiting: tuple[float, ...]
    seconds_in_envs: tuple[float, ...]
    seconds_in_transport: tuple[float, ...]
    seconds_idle: tuple[float, ...]
    slowest_env: EnvTiming | None
    steps_at_once: tuple[bool, ...]
    live_scenes: tuple[int, ...]
    worker_restarts: tuple[int, ...]
    env_errors: int


def pool_statistics(
    pool: WorkerPool | LocalPool,
    split: Split,
    records: np.ndarray,
    *,
    steps: int,
    copies: int,
    bytes_copied: int,
) -> Statistics:
    """Return the statistics of a pool; `records` are those of its environments' clocks."""
    arriving = zip(pool.words(Word.TRANSPORT_NS), pool.nanoseconds_returning, strict=True)
    return Statistics(
        steps=steps,
        env_steps=sum(pool.words(Word.ENV_STEPS)),
        messages=pool.messages,
        copies=copies,
        bytes_copied=bytes_copied,
        seconds_waiting=_seconds(pool.nanoseconds_waiting),
        seconds_in_envs=_seconds(pool.words(Word.BUSY_NS)),
        seconds_in_transport=_seconds([there + back for there, back in arriving]),
        seconds_idle=_seconds(pool.words(Word.IDLE_NS)),
        slowest_env=slowest_env(records, split, steps),
        steps_at_once=tuple(map(bool, pool.words(Word.AT_ONCE))),
        live_scenes=tuple(pool.words(Word.LIVE_SCENES)),
        worker_restarts=tuple(pool.restarts),
        env_errors=sum(pool.words(Word.ENV_ERRORS)),
    )


def _seconds(nanoseconds: list[int]) -> tuple[float, ...]:
    return tuple(value * 1e-9 for value in nanoseconds)


def slowest_env(records: np.ndarray, split: Split, calls: int) -> EnvTiming | None:
    """Return the environment that takes longest per step.

    Args:
        records: (num_envs, `Record.LENGTH`) sums; not every step was timed.
        split: Which worker holds which environment.
        calls: Steps that all environments made, timed or not.
    """
    steps = np.maximum(records[:, Record.STEPS], 1.0)
    resets = np.maximum(records[:, Record.RESETS], 1.0)
    if not records[:, Record.STEPS].any():
        return None
    step_seconds = records[:, Record.STEP_SECONDS] / steps
    share = records[:, Record.RESET_SECONDS] / max(calls, 1)
    slowest = int(np.argmax(step_seconds + share))
    return EnvTiming(
        env_index=slowest,
        worker=split.locate(slowest)[0],
        step_seconds=float(step_seconds[slowest]),
        longest_step=float(records[slowest, Record.LONGEST_STEP]),
        reset_seconds=float(records[slowest, Record.RESET_SECONDS] / resets[slowest]),
        longest_reset=float(records[slowest, Record.LONGEST_RESET]),
    )
