"""What a vector environment must give, faults and all: a plain loop over the same environments.

It shares no code with the library, so that the two can disagree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.errors import WorkerDied, WorkerRaised
from tests.vector.puppets import Config, Gone, Held, ModelPuppet, Puppet


@dataclass
class Row:
    """One environment, and where it stands as far as the caller knows."""

    env: Puppet
    seed: int | None = None
    number: int = -1
    options: dict[str, Any] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    observation: np.ndarray = field(default_factory=lambda: np.zeros(4, np.float32))
    ended: bool = False
    lost: str = ""
    """Why its episode was cut short, if the next step has to say so."""
    new: bool = False
    """Whether its environment is another one that has begun no episode yet."""
    bare: bool = False
    """Whether that one was never reset at all."""
    mark: dict[str, Any] = field(default_factory=dict)
    errors: int = 0


@dataclass
class Shown:
    """What the batch shows of one environment."""

    observation: np.ndarray
    info: dict[Any, Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    autoreset: bool = False
    final_observation: np.ndarray | None = None


class Failure(Exception):
    """What a worker's part of a call raises: a class of errors, and the worker."""

    def __init__(self, kind: type[Exception], worker: int):
        super().__init__(kind, worker)
        self.what = kind, worker


@dataclass
class Outcome:
    """How a call ends.

    Attributes:
        shown: What it shows by row, or its results by row, as far as workers came.
        failures: What it raises, by the errors' class and worker.
        restarts: How many workers it restarts.
        errors: How many environments it builds anew.
    """

    shown: dict[int, Any] = field(default_factory=dict)
    failures: set[tuple[type[Exception], int]] = field(default_factory=set)
    restarts: int = 0
    errors: int = 0


class Model:
    """The vector environment as a plain loop.

    Attributes:
        dead: Workers that died while nothing was in flight, or after their reply.
        broken: Whether a call failed such that nothing goes on.
    """

    def __init__(self, config: Config):
        self.config = config
        self.rows = [Row(ModelPuppet(index, "")) for index in range(config.num_envs)]
        small, larger = divmod(config.num_envs, config.num_workers)
        starts = [w * small + min(w, larger) for w in range(config.num_workers + 1)]
        self.ranges = [range(*pair) for pair in pairwise(starts)]
        self.dead: set[int] = set()
        self.broken = False
        self.steps = 0
        self.env_steps = [0] * config.num_workers
        self.env_errors = [0] * config.num_workers
        self.restarts = [0] * config.num_workers

    @property
    def unready(self) -> list[int]:
        """Environments that must be reset before a step."""
        disabled = self.config.mode is AutoresetMode.DISABLED
        return [i for i, row in enumerate(self.rows) if row.number < 0 or (disabled and row.ended)]

    # ── calls ───────────────────────────────────────────────────────────────────────────────────

    def step(self, actions: np.ndarray, killed: Iterable[int] = ()) -> Outcome:
        """Step all; workers in `killed` die on the way."""
        outcome = self._ask_all(lambda w: self._step_worker(w, actions), killed)
        if not outcome.failures:
            self.steps += 1
            for i, shown in outcome.shown.items():
                self.rows[i].observation = shown.observation
        return outcome

    def step_slots(self, slots: Iterable[dict[int, np.ndarray]]) -> Outcome:
        """Step some environments by their actions, then others: in each worker in that order."""
        outcome = Outcome()
        restarts, errors = sum(self.restarts), sum(self.env_errors)
        if not self.config.restart:  # a death of before is any call's failure
            for w in sorted(self.dead):
                self._try(w, self._restart, outcome, fatal=True)
        for actions in slots:
            for w, rows in enumerate(self.ranges):
                if chosen := [i for i in rows if i in actions]:
                    work = partial(self._step_some, rows=chosen, actions=actions)
                    self._try(w, partial(self._do, work=work, dies=False), outcome, fatal=True)
            self.steps += not outcome.failures
            for i in actions:
                if i in outcome.shown:
                    self.rows[i].observation = outcome.shown[i].observation
        outcome.restarts = sum(self.restarts) - restarts
        outcome.errors = sum(self.env_errors) - errors
        return outcome

    def _step_some(
        self, w: int, *, rows: Sequence[int], actions: dict[int, np.ndarray]
    ) -> dict[int, Any]:
        return {i: self._step_row(w, i, actions[i]) for i in rows}

    def reset(
        self,
        indices: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
        killed: Iterable[int] = (),
    ) -> Outcome:
        """Reset some environments, in that order; workers in `killed` die on the way."""
        requests = list(zip(indices, seeds, options, strict=True))
        outcome = self._ask_all(lambda w: self._reset_worker(w, requests), killed)
        if not outcome.failures:
            for i, shown in outcome.shown.items():
                self.rows[i].observation = shown.observation
        return outcome

    def call(self, name: str, *args: Any, indices: Sequence[int]) -> Outcome:
        """Call a method of some environments. What one raises leaves all usable."""
        outcome = Outcome()
        restarts = sum(self.restarts)
        for w in sorted(self.dead):
            self._try(w, self._restart, outcome, fatal=True)
        for w, rows in enumerate(self.ranges):
            if (chosen := [i for i in indices if i in rows]) and not self.broken:
                work = partial(self._call_worker, name=name, args=args, indices=chosen)
                self._try(w, work, outcome)
        outcome.restarts = sum(self.restarts) - restarts
        return outcome

    def set_attr(self, name: str, values: dict[int, Any]) -> None:
        """Set an attribute."""
        for w in sorted(self.dead):
            self._restart(w)
        for i, value in values.items():
            self.settle(i)
            setattr(self.rows[i].env, name, value)
            self.rows[i].attributes[name] = value

    def settle(self, i: int) -> None:
        """Reset a new environment, since it was reset before as far as the caller knows."""
        row = self.rows[i]
        if row.bare:
            row.env.reset(seed=self._later_seed(row), options=row.options)
            row.bare = False

    def held(self, call: Callable[[Model], Outcome]) -> set[int] | None:
        """Return the workers that such a call holds up, or None if any of them comes to grief."""
        trial = copy.deepcopy(self)
        if trial.dead:
            return None
        trial._held = set()
        for row in trial.rows:
            row.env.holds = True  # type: ignore[attr-defined]
        failures = call(trial).failures
        same = (trial.restarts, trial.env_errors) == (self.restarts, self.env_errors)
        return trial._held if same and not failures else None

    _held: set[int]

    def _ask_all(self, work: Callable[[int], dict[int, Any]], killed: Iterable[int]) -> Outcome:
        outcome = Outcome()
        restarts, errors = sum(self.restarts), sum(self.env_errors)
        for w in range(len(self.ranges)):
            self._try(w, partial(self._do, work=work, dies=w in killed), outcome, fatal=True)
        outcome.restarts = sum(self.restarts) - restarts
        outcome.errors = sum(self.env_errors) - errors
        return outcome

    def _try(
        self,
        w: int,
        work: Callable[[int], dict[int, Any]],
        outcome: Outcome,
        *,
        fatal: bool = False,
    ) -> None:
        try:
            outcome.shown |= work(w)
        except Held:
            self._held.add(w)
        except Failure as failure:
            outcome.failures.add(failure.what)
            self.broken = self.broken or fatal

    def _do(self, w: int, *, work: Callable[[int], dict[int, Any]], dies: bool) -> dict[int, Any]:
        """Have a worker do its part; if it dies, have another one do it."""
        if dies or w in self.dead:
            self._restart(w)
        before = [replace(self.rows[i]) for i in self.ranges[w]]
        counts = self.env_steps[w], self.env_errors[w]
        try:
            return work(w)
        except Gone:
            self.rows[self.ranges[w].start : self.ranges[w].stop] = before
            self.env_steps[w], self.env_errors[w] = counts
            self._restart(w)
            return work(w)

    def _restart(self, w: int) -> dict[int, Any]:
        """Another process takes a worker's place: episodes in progress are lost."""
        self.dead.discard(w)
        if not self.config.restart or self.restarts[w] >= self.config.max_restarts:
            self.broken = True
            raise Failure(WorkerDied, w)
        self.restarts[w] += 1
        for i in self.ranges[w]:
            row = self.rows[i]
            self._rebuild(i)
            begun = row.number >= 0
            row.new = row.bare = begun
            row.lost = "worker restarted" if begun and not row.ended else ""
            row.mark = {"worker_restarted": True}
            row.errors = 0
        return {}

    def _rebuild(self, i: int) -> None:
        self.rows[i].env = ModelPuppet(i, "")
        for name, value in self.rows[i].attributes.items():
            setattr(self.rows[i].env, name, value)

    # ── one worker ──────────────────────────────────────────────────────────────────────────────

    def _step_worker(self, w: int, actions: np.ndarray) -> dict[int, Any]:
        return {i: self._step_row(w, i, actions[i]) for i in self.ranges[w]}

    def _step_row(self, w: int, i: int, action: np.ndarray) -> Shown:
        row = self.rows[i]
        if row.lost:
            reason, row.lost = row.lost, ""
            info = {"truncated_reason": reason, **row.mark}
            row.mark = {}
            return self._end(w, i, Shown(row.observation, info, truncated=True))
        if row.ended:
            row.ended = False
            observation, info = self._next_episode(w, i)
            return Shown(observation, info, autoreset=True)
        try:
            observation, reward, terminated, truncated, info = row.env.step(action.copy())
        except Exception as error:
            self._build_anew(w, i, error)
            row.lost = "environment error"
            return self._step_row(w, i, action)
        self.env_steps[w] += 1
        shown = Shown(observation, info, reward, terminated, truncated)
        return self._end(w, i, shown) if terminated or truncated else shown

    def _end(self, w: int, i: int, shown: Shown) -> Shown:
        reasons = {}
        if shown.terminated:
            reasons["terminated_reason"] = shown.info.get("terminated_reason", "terminated")
        if shown.truncated:
            reasons["truncated_reason"] = shown.info.get("truncated_reason", "time limit")
        if self.config.mode is not AutoresetMode.SAME_STEP:
            self.rows[i].ended = True
            return replace(shown, info={**shown.info, **reasons})
        marks = {key: shown.info[key] for key in MARKS if key in shown.info}
        observation, info = self._next_episode(w, i)
        info = {**info, **marks, **reasons, "final_info": shown.info}
        return replace(
            shown,
            observation=observation,
            info=info,
            autoreset=True,
            final_observation=shown.observation,
        )

    def _next_episode(self, w: int, i: int) -> tuple[np.ndarray, dict[Any, Any]]:
        row = self.rows[i]
        row.number += 1
        chosen = None
        if callable(self.config.autoreset_options):
            chosen = self.config.autoreset_options(i, row.number)
        elif self.config.autoreset_options == "last":
            chosen = row.options
        return self._reset_env(w, i, self._later_seed(row), chosen)

    def _later_seed(self, row: Row) -> int | None:
        """Return the seed of an episode that was given none."""
        if not (self.config.episode_seeds or row.new):
            return None
        assert row.seed is not None, "every first reset has a seed"
        return int(np.random.SeedSequence([row.seed, row.number]).generate_state(1)[0])

    def _reset_worker(
        self, w: int, requests: Iterable[tuple[int, int | None, dict[str, Any] | None]]
    ) -> dict[int, Any]:
        shown = {}
        for i, seed, options in requests:
            if i not in self.ranges[w]:
                continue
            row = self.rows[i]
            row.ended, row.lost, row.options = False, "", options
            if seed is not None:
                row.seed, row.number = seed, 0
            else:
                row.number += 1
                seed = self._later_seed(row)
            shown[i] = Shown(*self._reset_env(w, i, seed, options))
        return shown

    def _reset_env(
        self, w: int, i: int, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[np.ndarray, dict[Any, Any]]:
        row = self.rows[i]
        try:
            observation, info = row.env.reset(seed=seed, options=options)
        except Exception as error:
            self._build_anew(w, i, error)
            seed = self._later_seed(row) if seed is None else seed
            try:
                observation, info = row.env.reset(seed=seed, options=options)
            except Exception as again:
                raise Failure(WorkerRaised, w) from again
        row.new = row.bare = False
        info, row.mark = {**info, **row.mark}, {}
        return observation, info

    def _build_anew(self, w: int, i: int, error: Exception) -> None:
        row = self.rows[i]
        if not self.config.truncate or row.errors >= self.config.max_restarts:
            raise Failure(WorkerRaised, w) from error
        self._rebuild(i)
        row.errors += 1
        self.env_errors[w] += 1
        row.new = row.bare = True
        row.mark = {"env_error": f"{type(error).__name__}: {error}"}

    def _call_worker(
        self, w: int, name: str, args: tuple[Any, ...], indices: Sequence[int]
    ) -> dict[int, Any]:
        results = {}
        for i in indices:
            row = self.rows[i]
            try:
                self.settle(i)
                value = row.env.get_wrapper_attr(name)
                results[i] = value(*args) if callable(value) else value
                if name == "unpicklable":
                    raise TypeError
            except Gone:
                self._restart(w)
                raise Failure(WorkerDied, w) from None
            except Exception as error:
                raise Failure(WorkerRaised, w) from error
        return results


MARKS = ("worker_restarted", "env_error")


def batched(infos: dict[int, Any], num_envs: int) -> dict[Any, Any]:
    """Return the infos of some rows as arrays by key, with their masks."""
    batch: dict[Any, Any] = {}
    for key in dict.fromkeys(key for info in infos.values() for key in info):
        given = {i: info[key] for i, info in infos.items() if key in info}
        values = list(given.values())
        mask = np.zeros(num_envs, np.bool_)
        mask[[*given]] = True
        batch[f"_{key}"] = mask
        if all(isinstance(value, dict) for value in values):
            batch[key] = batched(given, num_envs)
            continue
        numbers = all(isinstance(value, bool | int | float | np.ndarray) for value in values)
        dtype = np.result_type(*(np.asarray(v).dtype for v in values)) if numbers else object
        shape = np.shape(values[0]) if numbers else ()
        batch[key] = np.full((num_envs, *shape), None if dtype is object else 0, dtype)
        for i, value in given.items():
            batch[key][i] = value
    return batch
