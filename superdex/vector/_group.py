"""K environments of one process, stepped one at a time, or at once where they offer it.

This is the inner, synchronous layer, and the only place where autoreset and the seeding of episodes
exist. A worker runs it on its rows of the shared block; with `in_process=True` the caller's process
runs the very same code, for a debugger.

Environments take turns: each one's step is done, and all it returned is taken, before the next
begins. So they may share a physics scene, where each restores its own state first, and even return
views of memory that the next one overwrites. Where they can all be stepped at once instead
(`_batched`), the results are the same.

An environment may be *new* in the place of another: its worker was restarted, or it raised and was
built anew. If that cut an episode short, the row is *lost*, and the next step says so instead of
stepping it: its last observation, reward 0, truncated. From there everything goes on as after any
other end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from itertools import chain
from time import monotonic, perf_counter
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from superdex._batching import NotBatchable, RowError
from superdex.vector import _remote
from superdex.vector._batched import BatchedStep, batched_step, slower
from superdex.vector._columns import InfoWriter, snapshot
from superdex.vector._episodes import Episode, Revival
from superdex.vector._faults import ENV_ERROR, WORKER_RESTARTED, RestartBudget
from superdex.vector._group_states import GroupStates
from superdex.vector._notices import Notices
from superdex.vector._remote import EnvFailure, env_failure, summary_of
from superdex.vector._returns import (
    ObservationCast,
    as_reward,
    checked_info,
    end_reasons,
    explained,
)
from superdex.vector._rows import GroupArrays
from superdex.vector._seeding import derived_seed, drawn_seed
from superdex.vector._settings import GroupSettings
from superdex.vector._spaces import SpaceReport, report_spaces
from superdex.vector._timing import EnvClock

__all__ = ["EnvGroup", "check_new"]

_WHERE_TO_REGISTER = (
    "If you register it: workers import the main module, but not what runs under its guard. "
    "Register the id in a module and import that inside the function that builds the environment, "
    "or register it at the top level of the main module."
)

_SMALL_BYTES = 1024
"""The largest observation that is taken as bytes."""


class EnvGroup:
    """K environments of one process, stepped one at a time, or at once where they offer it.

    Args:
        env_fns: One function per environment; all are called at once.
        indices: The environments' indices in the whole batch.
        settings: Autoreset mode, seeds, options, and what happens when an environment raises.

    Raises:
        EnvFailure: If a function raises; its `__cause__` is the function's own exception.
        TypeError: If a function returns no environment, or one object twice; if a space is no
            `Box`.
        ValueError: If spaces differ in shape or dtype.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        indices: range,
        settings: GroupSettings | None = None,
    ) -> None:
        self.indices = indices
        self.settings = settings or GroupSettings()
        self.notices = Notices()
        self.env_steps = 0
        self.env_errors = 0
        self.envs: list[gym.Env[Any, Any]] = []
        self._ids: set[int] = set()
        self._env_fns = env_fns
        try:
            for index, env_fn in zip(indices, env_fns, strict=True):
                self.envs.append(self._build(index, env_fn))
            self.spaces: SpaceReport = report_spaces(self.envs, indices.start)
        except BaseException:
            for env in self.envs:
                _close_quietly(env)  # the first failure is the one to report
            raise
        self._steps = [env.step for env in self.envs]
        self._turns = [_turn_of(env) for env in self.envs]
        self.clock = EnvClock(self._steps)
        self._episodes = [Episode() for _ in self.envs]
        self.episodes = np.zeros(len(self.envs), np.int64)
        """How many episodes each environment has begun, ever."""
        self._pending: set[int] = set()
        self._lost: dict[int, str] = {}
        """Rows whose episode was cut short and who have not said so yet, with the reason."""
        self._marks: dict[int, dict[str, Any]] = {}
        """What the next infos of a row say of a fault."""
        self._new: set[int] = set()
        """Rows whose environment is new in the place of another and has begun no episode yet."""
        self._bare: set[int] = set()
        """Those of them whose environment was not reset at all."""
        self._attributes: list[dict[str, Any]] = [{} for _ in self.envs]
        self._budget = RestartBudget(self.settings.faults)
        self._cast = ObservationCast(self.spaces.observation.space, indices, self.notices)
        # Bytes joined and copied at once are 2 to 4 times quicker than rows assigned one by one,
        # until the second copy of a large observation costs more than the call that it saves.
        nbytes = self._cast.dtype.itemsize * math.prod(self._cast.shape)
        self._small = nbytes <= _SMALL_BYTES
        self._batched = self._make_batched()
        self.states = GroupStates(self)
        """Captures and restores environments."""

    @property
    def steps_at_once(self) -> bool:
        """Whether all environments are stepped at once, by hooks written for arrays."""
        return self._batched is not None

    def _make_batched(self) -> BatchedStep | None:
        """Return what steps all environments at once, if they offer it."""
        return batched_step(self, self.settings.num_threads)

    def _build(self, index: int, env_fn: Callable[[], gym.Env[Any, Any]]) -> gym.Env[Any, Any]:
        try:
            env = env_fn()
        except BaseException as error:
            if isinstance(error, gym.error.UnregisteredEnv):
                error.add_note(_WHERE_TO_REGISTER)
            raise env_failure(index, "construct", error) from error
        if not isinstance(env, gym.Env):
            raise TypeError(
                f"The function for environment {index} returned {env!r}, which is no "
                "gymnasium.Env: pass a function that builds an environment."
            )
        check_new(env, self._ids, index)
        self._ids.add(id(env))
        return env

    # ── stepping ────────────────────────────────────────────────────────────────────────────────

    def step(
        self,
        actions: np.ndarray,
        out: GroupArrays,
        infos: InfoWriter,
        rows: np.ndarray | None = None,
    ) -> None:
        """Step every environment once, or some; autoreset as the mode says.

        Args:
            actions: One for each that is stepped, (K, …) if all are; owned by the group:
                environments may keep views of it.
            out: Written in full, or those rows of it.
            infos: Takes each environment's info.
            rows: Which environments, sorted, intp; all if None. The others rest.

        Raises:
            EnvFailure: At the first environment that raises, if that is not to be contained.
        """
        if self._batched is not None:
            self._step_at_once(self._batched, actions, out, infos, rows)
        else:
            self._step_one_by_one(actions, out, infos, rows)

    def _step_at_once(
        self,
        batched: BatchedStep,
        actions: np.ndarray,
        out: GroupArrays,
        infos: InfoWriter,
        rows: np.ndarray | None,
    ) -> None:
        out.clear_flags(rows)
        idle = self._idle_rows(rows)
        # the batch writes all rows, and `out` may be where the last observations are
        last = [(row, out.last_observation(row).copy()) for row in self._lost if row in idle]
        try:
            ended = batched.step(actions, out, infos, idle, rows)
        except RowError as failure:  # nothing has moved yet
            self._replace(failure.row, "step", failure.__cause__ or failure)
            self._lose(failure.row, ENV_ERROR)
            return self.step(actions, out, infos, rows)
        except EnvFailure:
            raise
        except BaseException as error:
            raise env_failure(None, "step", error) from error
        for row, observation in last:
            out.observation[row] = observation
        for row in sorted(idle):
            observation, info = self._step_idle(row, ended, out)
            out.observation[row], out.reward[row] = observation, 0.0
            if info:
                infos.add(row, info)
        self._finish_step(ended, idle, out, rows)
        return None

    def _idle_rows(self, rows: np.ndarray | None) -> Set[int]:
        """Return those of the rows that are not stepped: they are reset, or say they are lost."""
        idle = self._pending
        if self._lost:
            idle = idle.union(self._lost)
        if rows is not None and idle:
            idle = idle.intersection(rows.tolist())
        return idle

    def _finish_step(
        self, ended: list[int], idle: Set[int], out: GroupArrays, rows: np.ndarray | None
    ) -> None:
        self.env_steps += (len(self.envs) if rows is None else len(rows)) - len(idle)
        if ended or idle:
            out.flagged = True
            resting = set() if rows is None else self._pending.difference(rows.tolist())
            self._pending = resting | set(ended) if self._autoresets_next_step else set()

    def _step_one_by_one(
        self, actions: np.ndarray, out: GroupArrays, infos: InfoWriter, rows: np.ndarray | None
    ) -> None:
        out.clear_flags(rows)
        steps = self.clock.steps if self.clock.due else self._steps
        idle = self._idle_rows(rows)
        ended: list[int] = []
        rewards: list[float] = []
        pieces: list[bytes] = []
        where: Any = slice(None) if rows is None else rows
        asked: Sequence[int] = range(len(steps)) if rows is None else rows.tolist()
        if rows is not None:
            steps = [steps[row] for row in asked]
        turns: Any = zip(asked, zip(steps, actions, strict=True), strict=True)
        while True:
            try:
                self._step_rows(turns, idle, out, infos, ended, rewards, pieces)
                break
            except EnvFailure:
                raise
            except BaseException as error:
                row = asked[len(rewards)]
                self._replace(row, "step", error)
                self._lose(row, ENV_ERROR)
                # the same row again, which is lost now
                idle = idle | {row}
                ended = [other for other in ended if other != row]
                turns = chain([(row, (None, None))], turns)
        if self._small:
            joined = np.frombuffer(b"".join(pieces), self._cast.dtype)
            out.observation[where] = joined.reshape(len(rewards), *self._cast.shape)
        out.reward[where] = rewards
        self._finish_step(ended, idle, out, rows)

    def _step_rows(
        self,
        turns: Iterable[tuple[int, tuple[Any, Any]]],
        idle: Set[int],
        out: GroupArrays,
        infos: InfoWriter,
        ended: list[int],
        rewards: list[float],
        pieces: list[bytes],
    ) -> None:
        """Give rows their turn; `rewards` gets longer with each that is done."""
        shape, dtype, small = self._cast.shape, self._cast.dtype, self._small
        array, float64 = np.ndarray, np.float64
        reward: Any
        for row, (step, action) in turns:
            if idle and row in idle:
                reward = 0.0
                observation, info = self._step_idle(row, ended, out)
            else:
                observation, reward, terminated, truncated, info = step(action)
                if reward.__class__ is not float and reward.__class__ is not float64:
                    reward = as_reward(reward)
                if terminated or truncated:
                    ended.append(row)
                    out.terminated[row] = bool(terminated)
                    out.truncated[row] = bool(truncated)
                    observation, info = self.end_episode(row, observation, info, out)
            if not (
                observation.__class__ is array
                and observation.shape == shape
                and observation.dtype is dtype
            ):
                observation = self._cast(row, observation)
            if info.__class__ is not dict:
                info = checked_info(info)
            if info:
                infos.add(row, info)
            if small:
                pieces.append(observation.tobytes())
            else:
                out.observation[row] = observation
            rewards.append(reward)

    @property
    def _autoresets_next_step(self) -> bool:
        return self.settings.autoreset_mode is AutoresetMode.NEXT_STEP

    def _step_idle(self, row: int, ended: list[int], out: GroupArrays) -> tuple[Any, Any]:
        """Return what a row shows that is not stepped: its reset, or that its episode is lost."""
        out.action_valid[row] = False
        if row not in self._lost:
            out.autoreset[row] = True
            return self._autoreset(row)
        reason = self._lost.pop(row)
        ended.append(row)
        out.terminated[row], out.truncated[row] = False, True
        marks = self._marks.pop(row, {})
        info = {"truncated_reason": reason, **marks}
        return self.end_episode(row, out.last_observation(row), info, out, marks)

    def end_episode(
        self,
        row: int,
        observation: Any,
        info: Any,
        out: GroupArrays,
        marks: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Any, dict[Any, Any]]:
        """An episode of `row` ended: give reasons, and start the next one if the mode says so.

        `marks` are shown with the first observation of that one, too.
        """
        info = checked_info(info)
        reasons = end_reasons(info, out.terminated[row], out.truncated[row])
        if out.final_observation is None:
            return observation, {**info, **reasons}
        out.final_observation[row] = self._cast(row, observation)
        final_info = {key: snapshot(value) for key, value in info.items()}
        observation, info = self._autoreset(row)
        out.autoreset[row] = True
        return observation, {**info, **marks, **reasons, "final_info": final_info}

    def _autoreset(self, row: int) -> tuple[Any, dict[Any, Any]]:
        """Start the next episode of `row` by the environment's own reset."""
        episode = self._episodes[row]
        episode.number += 1
        self.episodes[row] += 1
        arguments: dict[str, Any] = {}
        seed = self._derived_seed(row)
        if seed is not None:
            arguments["seed"] = seed
        options = self.settings.autoreset_options
        if options == "last":
            arguments["options"] = episode.options
        elif callable(options):
            try:
                arguments["options"] = options(self.indices[row], episode.number)
            except BaseException as error:
                raise env_failure(self.indices[row], "reset", error) from error
        return self._reset(row, arguments)

    def _derived_seed(self, row: int) -> int | None:
        """Return the seed of a later episode, where it gets one.

        A new environment has lost its generator's state. It gets one too, so that a run with
        faults can be repeated.
        """
        episode = self._episodes[row]
        if episode.seed is None or not (self.settings.episode_seeds or row in self._new):
            return None
        return derived_seed(episode.seed, episode.number)

    # ── resetting ───────────────────────────────────────────────────────────────────────────────

    def reset(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
        out: GroupArrays,
        infos: InfoWriter,
        *,
        others_rest: bool = False,
    ) -> None:
        """Reset the environments at `rows` and clear their pending autoresets.

        Other rows of `out` are left as they are, except that the rewards and flags of all are zero,
        unless those are to be left alone too.

        Raises:
            EnvFailure: At the first environment that raises, if that is not to be contained.
        """
        out.clear_results(np.array(rows, np.intp) if others_rest else None)
        for row, seed, chosen in zip(rows, seeds, options, strict=True):
            self._pending.discard(row)
            self._lost.pop(row, None)
            seed = self._begin(row, seed, chosen)
            observation, info = self._reset(row, {"seed": seed, "options": chosen})
            out.observation[row] = observation
            if info:
                infos.add(row, info)

    def _begin(self, row: int, seed: int | None, options: dict[str, Any] | None) -> int | None:
        """Note a reset by the caller; return the seed that the environment gets."""
        episode = self._episodes[row]
        episode.options = snapshot(options)  # the environment may change what it is given
        self.episodes[row] += 1
        if seed is None and episode.seed is None and self.settings.episode_seeds:
            seed = drawn_seed()
        if seed is not None:
            episode.seed, episode.number = seed, 0
            return seed
        episode.number += 1
        return self._derived_seed(row)

    def _reset(self, row: int, arguments: dict[str, Any]) -> tuple[np.ndarray, dict[Any, Any]]:
        """Reset one environment; one that raises may be built anew and tried once more."""
        try:
            observation, info = self._reset_once(row, arguments)
        except BaseException as error:
            self._replace(row, "reset", error)
            if arguments.get("seed") is None and (seed := self._derived_seed(row)) is not None:
                arguments = {**arguments, "seed": seed}  # it is new since they were put together
            try:
                observation, info = self._reset_once(row, arguments)
            except BaseException as again:
                raise self._failure(row, "reset", again) from again
        self._new.discard(row)
        return observation, {**info, **self._marks.pop(row)} if row in self._marks else info

    def _reset_once(self, row: int, arguments: dict[str, Any]) -> tuple[np.ndarray, dict[Any, Any]]:
        # of its own for each, since environments may change what they are given
        own = {key: snapshot(value) for key, value in arguments.items()}
        started = perf_counter()
        if self.states.bank is None:
            observation, info = self.envs[row].reset(**own)
        else:
            observation, info = self.states.reset(row, own.get("seed"))
        self.clock.note_reset(row, perf_counter() - started)
        observation, info = self._cast(row, observation), checked_info(info)
        self._bare.discard(row)
        if self._batched is not None:
            self._adopt(self._batched, row)
        return observation, info

    # ── in and out of the batch ─────────────────────────────────────────────────────────────────

    @contextmanager
    def _turn(self, row: int) -> Iterator[None]:
        """Inside, an environment is used by itself, with its own state in its scene."""
        batched = self._batched
        if batched is not None:
            batched.hand_back(row)
        try:
            with self._turns[row]():
                yield
        finally:
            if batched is not None:
                self._adopt(batched, row)

    def _adopt(self, batched: BatchedStep, row: int) -> None:
        """Take an environment that was used by itself into the batch, or give the batch up."""
        try:
            batched.adopt(row)
        except NotBatchable as why:
            self.notices.once("not batched", slower(why))
            self._leave_batch(batched, except_for=row)

    def _leave_batch(self, batched: BatchedStep, *, except_for: int) -> None:
        self._batched = None
        for row in range(len(self.envs)):
            if row != except_for:
                batched.hand_back(row)

    # ── faults ──────────────────────────────────────────────────────────────────────────────────

    def _failure(self, row: int, call: str, error: BaseException) -> EnvFailure:
        """Return what to raise for an exception of an environment; `__cause__` says which."""
        expected = {
            "step": "(observation, reward, terminated, truncated, info)",
            "reset": "(observation, info)",
        }
        failure = env_failure(self.indices[row], call, error)
        failure.__cause__ = explained(error, call, expected[call])
        return failure

    def _replace(self, row: int, call: str, error: BaseException) -> None:
        """Build an environment that raised anew, or raise what it raised.

        Raises:
            EnvFailure: If errors are not to be contained, or too many were; or if building fails.
        """
        faults, index = self.settings.faults, self.indices[row]
        failure = self._failure(row, call, error)
        cause = failure.__cause__ or error
        if not faults.truncates_episodes:
            raise failure from cause
        if not self._budget.spend(row, monotonic()):
            cause.add_note(
                f"Environment {index} was built anew as often as allowed ({faults.limit}). Repair "
                "what raises there, or raise the limit."
            )
            raise failure from cause
        summary = summary_of(cause)
        then = "its episode is truncated" if call == "step" else "reset again"
        self.notices.each(
            f"Environment {index} raised in {call}: {summary}. It is built anew, and {then}.\n\n"
            f"{_remote.traceback_of(cause)}"
        )
        self.env_errors += 1
        self.build_anew(row)
        self._new.add(row)
        self._bare.add(row)
        self._marks[row] = {"env_error": summary}

    def build_anew(self, row: int) -> None:
        """Put a new environment in the place of one, with the attributes that were set in it.

        Raises:
            EnvFailure: If building fails.
        """
        index = self.indices[row]
        if (batched := self._batched) is not None:
            self._leave_batch(batched, except_for=row)
        _close_quietly(self.envs[row])  # it may be broken
        self._ids.discard(id(self.envs[row]))
        env = self._build(index, self._env_fns[row])
        try:
            self.spaces.check_same(report_spaces([env], index))
            for name, value in self._attributes[row].items():
                env.set_wrapper_attr(name, snapshot(value))
        except BaseException as again:
            _close_quietly(env)
            raise env_failure(index, "construct", again) from again
        self.envs[row] = env
        self._steps[row] = env.step
        self._turns[row] = _turn_of(env)
        if batched is not None and (anew := self._make_batched()) is not None:
            for other in range(len(self.envs)):
                anew.adopt(other)
            self._batched = anew

    def _lose(self, row: int, reason: str) -> None:
        """The episode of `row` was cut short; the next step is to say so."""
        self._pending.discard(row)
        self._lost[row] = reason

    def revive(self, revival: Revival) -> None:
        """Go on in the place of a group that is gone."""
        for row, attributes in enumerate(revival.attributes):
            for name, value in attributes.items():
                self.set_attr([row], name, [value])
        self._episodes = revival.episodes
        self._new = {*revival.lost, *revival.ended}
        self._bare = set(self._new)
        self._marks = {row: {"worker_restarted": True} for row in range(len(self.envs))}
        for row in revival.lost:
            self._lose(row, WORKER_RESTARTED)
        if self._autoresets_next_step:
            self._pending = set(revival.ended)

    # ── everything else ─────────────────────────────────────────────────────────────────────────

    def call(
        self, rows: Sequence[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[bytes]:
        """Return what each environment's attribute is, or returns if it can be called, pickled.

        Each is asked, and its result pickled, while the scene holds its own state.

        Raises:
            EnvFailure: At the first environment that raises or whose result can't be pickled.
        """
        results = []
        for row in rows:
            try:
                self._settle(row)
                with self._turn(row):
                    value = self.envs[row].get_wrapper_attr(name)
                    if callable(value):
                        # of its own for each, so that what one does to it is not seen by the next
                        own_args, own_kwargs = snapshot((args, kwargs))
                        value = value(*own_args, **own_kwargs)
                    results.append(_remote.dumps(value))
            except BaseException as error:
                raise env_failure(self.indices[row], name, error) from error
        return results

    def set_attr(self, rows: Sequence[int], name: str, values: Sequence[Any]) -> None:
        """Set an attribute where it lives: on the wrapper or environment that has it."""
        for row, value in zip(rows, values, strict=True):
            try:
                self._settle(row)
                with self._turn(row):
                    self.envs[row].set_wrapper_attr(name, snapshot(value))
            except BaseException as error:
                raise env_failure(self.indices[row], f"set_attr({name!r})", error) from error
            self._attributes[row].pop(name, None)  # the last one set is the last one to set again
            self._attributes[row][name] = value

    def _settle(self, row: int) -> None:
        """Reset a new environment, which was reset before as far as the caller knows.

        This is no episode: the next one has the same seed with and without it.
        """
        if row in self._bare:
            episode = self._episodes[row]
            self._reset_once(row, {"seed": self._derived_seed(row), "options": episode.options})

    def close(self) -> list[EnvFailure]:
        """Close each environment once; return the failures instead of raising at the first."""
        failures = []
        envs, self.envs = self.envs, []
        for index, env in zip(self.indices, envs, strict=False):
            try:
                env.close()
            except BaseException as error:
                failure = env_failure(index, "close", error)
                failure.__cause__ = error
                failures.append(failure)
        return failures


def _close_quietly(env: gym.Env[Any, Any]) -> None:
    """Close an environment whose own failures are of no interest, not even a `SystemExit`."""
    try:
        env.close()
    except BaseException as error:
        env_failure(None, "close", error)  # raises Ctrl-C on where it is the caller's


def _turn_of(env: gym.Env[Any, Any]) -> Callable[[], Any]:
    """Return the context in which the environment's own state is in its scene."""
    turn: Callable[[], Any] = getattr(env.unwrapped, "own_state", nullcontext)
    return turn


def check_new(env: gym.Env[Any, Any], others: Container[int], index: int) -> None:
    """Raise `TypeError` if the id of an environment is one of the others'."""
    if id(env) in others:
        raise TypeError(
            f"The function for environment {index} returned an object that another function "
            "returned already: pass a function that builds an environment of its own."
        )
