"""Evaluation of a policy, without a bias towards short episodes.

Who steps N environments and stops after the first M episodes has mostly seen short ones: long ones
were still going on. Here every environment plays the same number of episodes, and then rests::

    environment 0   ├─ episode 0 ─┼──────── episode 1 ────────┤
    environment 1   ├──── 0 ────┼── 1 ──┤                          not stepped any more
    environment 2   ├────────────── 0 ──────────────┼─── 1 ───┤

Every episode begins with a reset that names its seed, whatever the autoreset mode. So the three
modes and all splits give the same results, no step is spent on a reset, and each episode can be
played again by its seed alone, in a plain loop too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from superdex.buffers import BufferedSteps
from superdex.vector._seeding import (
    Options,
    Seed,
    derived_seed,
    drawn_seed,
    normalize_options,
    normalize_seeds,
)
from superdex.vector._split import check_count

__all__ = ["Evaluation", "evaluate"]

Policy: TypeAlias = Callable[[np.ndarray], Any]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the episodes of an evaluation came to: read-only arrays of (num_envs, episodes_per_env).

    Row i has the episodes of environment i, in the order in which they were played. `ravel()` makes
    one list of them.

    Attributes:
        returns: float64, the sum of each episode's rewards, undiscounted.
        lengths: int64, its steps.
        seeds: The seed that it began with; int64, or objects where one is too large for that.
        reasons: Why it ended, as text: `terminated_reason` where it terminated, else
            `truncated_reason`.
        terminated: bool.
        truncated: bool.
    """

    returns: np.ndarray
    lengths: np.ndarray
    seeds: np.ndarray
    reasons: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).flags.writeable = False

    @property
    def num_episodes(self) -> int:
        """All episodes together."""
        return self.returns.size

    @property
    def env_steps(self) -> int:
        """The steps of all episodes together."""
        return int(self.lengths.sum())

    @property
    def mean_return(self) -> float:
        """The mean of the returns."""
        return float(self.returns.mean())

    @property
    def std_return(self) -> float:
        """The sample standard deviation of the returns, over n − 1; NaN for a single episode."""
        return float(self.returns.std(ddof=1)) if self.returns.size > 1 else float("nan")

    @property
    def standard_error(self) -> float:
        """That of `mean_return`: `std_return` / √n; NaN for a single episode."""
        return self.std_return / float(np.sqrt(self.num_episodes))

    @property
    def mean_length(self) -> float:
        """The mean of the lengths, in steps."""
        return float(self.lengths.mean())

    @property
    def reason_counts(self) -> dict[str, int]:
        """How many episodes ended for which reason, the most frequent first."""
        return dict(Counter(self.reasons.ravel().tolist()).most_common())

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in self.reason_counts.items())
        return (
            f"{self.num_episodes} episodes: return {self.mean_return:.6g} ± "
            f"{self.standard_error:.2g}, length {self.mean_length:.6g}; {reasons}"
        )


def evaluate(
    env: BufferedSteps,
    policy: Policy,
    *,
    episodes_per_env: int = 1,
    seed: Seed = None,
    options: Options = None,
    fixed_batch: bool = False,
    on_episode_start: Callable[[np.ndarray], object] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Play the same number of episodes in each environment and return what they came to.

    An environment that has played them is not stepped any more, so each is stepped exactly as often
    as its episodes need. All environments are reset at the beginning. Afterwards each stands where
    its last step left it: with NEXT_STEP the next `step` resets it, with SAME_STEP it was reset,
    and with DISABLED it must be reset. After an exception, call `reset`.

    An episode that a restarted worker or an environment error has cut short (see
    `on_worker_failure` and `on_env_error`) is played once more from its seed. If that fails too, it
    stays as it is, with the reason.

    Args:
        env: A `HybridVectorEnv`, or another class with slots, in any autoreset mode. Not a vector
            wrapper: those don't see slots.
        policy: Takes observations (rows, …), a copy, and returns actions (rows, …) for them: an
            array, or what `np.asarray` makes one of, such as a tensor in the CPU's memory. `rows`
            are the environments that still play, in their order.
        episodes_per_env: How many episodes each plays.
        seed: Of the first episodes: an int s, so that environment i gets s + i; or a sequence of
            one seed or None for each. None is a seed drawn from the system's entropy. Episode
            e ≥ 1 gets one derived from that and e, as with `episode_seeds=True`.
        options: Of all resets: one dict for all environments, or a list of one dict or None for
            each.
        fixed_batch: True: `policy` always gets all (num_envs, …) rows, row i being environment i,
            and returns as many actions. Rows that don't play any more keep their last observation,
            and their actions are dropped. For policies that are compiled for one shape, or that
            have a memory.
        on_episode_start: Called with the indices (rows,) int32 of environments that have just been
            reset, before the policy sees them. A policy with a memory clears those rows of it.
        progress: Show a bar on the terminal.

    Returns:
        Returns, lengths, seeds and reasons of all episodes.

    Raises:
        TypeError: If `env` has no slots, or `policy` can't be called.
        ValueError: If the other arguments are not as above; nothing was reset then. If the policy
            returns actions of another shape or kind; nothing was stepped then. With an
            `inner_env_cls`, when some environments of a worker have finished and others have not.
        CallPending: If environments are in flight.
        ClosedError: After `close`.
        CallTimeout, WorkerRaised, WorkerDied: As `step_slots`.

    Example:
        >>> import gymnasium
        >>> from superdex.vector import HybridVectorEnv
        >>> env_fns = [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=20)] * 4
        >>> with HybridVectorEnv(env_fns, num_workers=2) as envs:
        ...     result = evaluate(
        ...         envs, lambda seen: -seen[:, 2:], episodes_per_env=3, seed=1
        ...     )
        >>> result.returns.shape, result.env_steps, result.reason_counts
        ((4, 3), 240, {'time limit': 12})
    """
    if not isinstance(env, BufferedSteps):
        raise TypeError(
            f"evaluate needs a vector environment with slots, such as HybridVectorEnv, got {env!r}."
            " Vector wrappers don't see slots: wrap each environment in its function instead, and "
            "pass the HybridVectorEnv itself."
        )
    if not callable(policy):
        raise TypeError(f"policy must be a function of observations, got {policy!r}.")
    check_count("episodes_per_env", episodes_per_env)
    run = _Run(env, int(episodes_per_env), seed, options)
    with _progress_bar(env.num_envs * run.episodes_per_env, shown=progress) as advance:
        while run.playing.size:
            begun = run.begin_episodes()
            if begun.size and on_episode_start is not None:
                on_episode_start(begun.astype(np.int32))
            advance(run.step(policy, fixed_batch=fixed_batch))
    return Evaluation(
        run.returns, run.lengths, run.seeds, run.reasons, run.terminated, run.truncated
    )


class _Run:
    """Where an evaluation stands.

    Attributes:
        playing: The environments that still play, sorted.
    """

    def __init__(
        self, env: BufferedSteps, episodes_per_env: int, seed: Seed, options: Options
    ) -> None:
        num_envs = env.num_envs
        self.episodes_per_env = episodes_per_env
        shape = num_envs, episodes_per_env
        self.returns = np.zeros(shape)
        self.lengths = np.zeros(shape, np.int64)
        self.seeds = _episode_seeds(normalize_seeds(seed, range(num_envs)), episodes_per_env)
        self.reasons = np.full(shape, None, object)
        self.terminated = np.zeros(shape, np.bool_)
        self.truncated = np.zeros(shape, np.bool_)
        self.playing = np.arange(num_envs)
        self._env = env
        self._options = normalize_options(options, num_envs)
        self._starting = self.playing
        """The environments whose next episode is to begin."""
        self._episode = np.zeros(num_envs, np.intp)
        """Which one each of them plays."""
        self._second_try = np.zeros(num_envs, np.bool_)
        spec = env.batch_spec()
        self._observations = np.zeros(*spec["observation"])
        self._action_shape = spec["action"].shape[1:]

    def begin_episodes(self) -> np.ndarray:
        """Reset the environments whose next episode is due; return which."""
        rows = self._starting
        if rows.size:
            seeds = self.seeds[rows, self._episode[rows]].tolist()
            options = [self._options[row] for row in rows]
            self._observations[rows] = self._env.reset_slots(
                rows, seeds, options=options
            ).observation
        self._starting = rows[:0]
        return rows

    def step(self, policy: Policy, *, fixed_batch: bool) -> int:
        """Step all that play once; return how many episodes have come to their end."""
        rows = self.playing
        seen = self._observations.copy() if fixed_batch else self._observations[rows]
        actions = np.asarray(policy(seen))
        expected = (len(seen), *self._action_shape)
        if actions.shape != expected:
            raise ValueError(
                f"policy must return one action for each row of its observations, {seen.shape}: "
                f"expected the shape {expected}, got {actions.shape}. Nothing was stepped. The "
                "rows get fewer as environments finish, unless fixed_batch=True."
            )
        batch = self._env.step_slots(rows, actions[rows] if fixed_batch else actions)
        self._observations[rows] = batch.observation
        episode = self._episode[rows]
        self.returns[rows, episode] += batch.reward
        self.lengths[rows, episode] += batch.action_valid
        ended = np.flatnonzero(batch.terminated | batch.truncated)
        return self._finish(rows[ended], ended, batch) if ended.size else 0

    def _finish(self, rows: np.ndarray, positions: np.ndarray, batch: Any) -> int:
        """Note how the episodes of some rows ended; return how many count."""
        # an episode ends without a step where a fault cut it short
        again = ~batch.action_valid[positions] & ~self._second_try[rows]
        where = rows[again], self._episode[rows[again]]
        self.returns[where], self.lengths[where] = 0.0, 0
        self._second_try[rows] = again
        done, positions = rows[~again], positions[~again]
        where = done, self._episode[done]
        self.terminated[where] = batch.terminated[positions]
        self.truncated[where] = batch.truncated[positions]
        for row, position in zip(done.tolist(), positions.tolist(), strict=True):
            why = "terminated" if batch.terminated[position] else "truncated"
            given = batch.info.get(f"{why}_reason")
            self.reasons[row, self._episode[row]] = why if given is None else str(given[position])
        self._episode[done] += 1
        self._starting = rows[self._episode[rows] < self.episodes_per_env]
        if len(self._starting) < len(rows):
            self.playing = self.playing[self._episode[self.playing] < self.episodes_per_env]
        return len(done)


def _episode_seeds(first: list[int | None], count: int) -> np.ndarray:
    """Return the seeds of `count` episodes of each environment: (num_envs, count)."""
    seeds = []
    for given in first:
        seed = drawn_seed() if given is None else given
        seeds.append([seed, *(derived_seed(seed, episode) for episode in range(1, count))])
    largest = max(max(row) for row in seeds)
    return np.array(seeds, np.int64 if largest <= np.iinfo(np.int64).max else object)


@contextmanager
def _progress_bar(total: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """Give a function that is told of finished episodes; a bar shows them on a terminal."""
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console  # every worker would pay for it
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("episodes", total=total)
        yield lambda count: bar.advance(task, count)
