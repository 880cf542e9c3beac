"""K environments of one process, stepped one at a time.

This is the inner, synchronous layer, and the only place where autoreset, seeding of episodes and
reasons for episode ends exist. A worker runs it on its rows of the shared block; with
`in_process=True` the caller's process runs the very same code, for a debugger.

Environments take turns: each one's step is done, and all it returned is taken, before the next
begins. So they may share a physics scene, where each restores its own state first, and even return
views of memory that the next one overwrites.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.vector import _remote
from superdex.vector._columns import InfoWriter, snapshot
from superdex.vector._remote import EnvFailure, env_failure
from superdex.vector._seeding import derived_seed
from superdex.vector._spaces import SpaceReport, report_spaces

__all__ = [
    "AutoresetOptions",
    "EnvGroup",
    "GroupArrays",
    "GroupSettings",
    "Notices",
    "check_new",
    "end_reasons",
]

AutoresetOptions: TypeAlias = Callable[[int, int], dict[str, Any] | None] | str | None


_WHERE_TO_REGISTER = (
    "Workers import the main module, but not what runs under its guard. Register the id in a "
    "module and import that inside the function that builds the environment, or register it at the "
    "top level of the main module."
)

_SMALL_BYTES = 1024
"""The largest observation that is taken as bytes."""


@dataclass(frozen=True)
class GroupSettings:
    """How a group treats its environments.

    Attributes:
        autoreset_mode: What happens after an episode's end.
        episode_seeds: Whether every episode's seed is derived from the environment's.
        autoreset_options: Options of autoresets: None, "last", or a function of (index, episode).
    """

    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    episode_seeds: bool = False
    autoreset_options: AutoresetOptions = None


@dataclass
class GroupArrays:
    """The rows of one group in one of the two buffers; the group writes them all.

    Attributes:
        final_observation: With SAME_STEP only.
        flagged: Whether `terminated`, `truncated` or `autoreset` may hold a True; where not, a step
            leaves their cache lines, which a neighbouring worker may be writing, alone.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    autoreset: np.ndarray
    final_observation: np.ndarray | None = None
    flagged: bool = field(default=True, init=False)

    def clear_flags(self) -> None:
        """Set all flags to False."""
        if self.flagged:
            self.terminated.fill(False)
            self.truncated.fill(False)
            self.autoreset.fill(False)
            self.flagged = False


@dataclass
class _Episode:
    """Where one environment stands in its sequence of episodes."""

    seed: int | None = None
    number: int = -1
    options: dict[str, Any] | None = None


@dataclass
class Notices:
    """Messages for the user, each kind once; the parent turns them into warnings."""

    pending: list[tuple[str, str]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def seen(self, kind: str) -> bool:
        return kind in self._seen

    def once(self, kind: str, message: str) -> None:
        if kind not in self._seen:
            self._seen.add(kind)
            self.pending.append((kind, message))

    def take(self) -> list[tuple[str, str]]:
        """Return what is pending, as (kind, message), and forget it."""
        taken, self.pending = self.pending, []
        return taken


class EnvGroup:
    """K environments of one process, stepped one at a time.

    Args:
        env_fns: One function per environment; all are called at once.
        indices: The environments' indices in the whole batch.
        settings: Autoreset mode, seeds and options.

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
        self.envs: list[gym.Env[Any, Any]] = []
        try:
            for index, env_fn in zip(indices, env_fns, strict=True):
                self._construct(index, env_fn)
            self.spaces: SpaceReport = report_spaces(self.envs, indices.start)
        except BaseException:
            for env in self.envs:
                try:
                    env.close()
                except Exception:  # the first failure is the one to report
                    continue
            raise
        self._steps = [env.step for env in self.envs]
        self._turns = [getattr(env.unwrapped, "own_state", nullcontext) for env in self.envs]
        self._episodes = [_Episode() for _ in self.envs]
        self._pending: set[int] = set()
        box = self.spaces.observation.space
        # the canonical object of the dtype, so that the hot path can compare by identity
        self._dtype = np.dtype(box.dtype.type)
        self._shape = box.shape
        # Bytes joined and copied at once are 2 to 4 times quicker than rows assigned one by one,
        # until the second copy of a large observation costs more than the call that it saves.
        self._small = self._dtype.itemsize * math.prod(self._shape) <= _SMALL_BYTES

    def _construct(self, index: int, env_fn: Callable[[], gym.Env[Any, Any]]) -> None:
        try:
            env = env_fn()
        except BaseException as error:
            if isinstance(error, gym.error.UnregisteredEnv) and "Did you mean" not in str(error):
                error.add_note(_WHERE_TO_REGISTER)
            raise env_failure(index, "construct", error) from error
        if not isinstance(env, gym.Env):
            raise TypeError(
                f"The function for environment {index} returned {env!r}, which is no "
                "gymnasium.Env: pass a function that builds an environment."
            )
        check_new(env, self.envs, index)
        self.envs.append(env)

    # ── stepping ────────────────────────────────────────────────────────────────────────────────

    def step(self, actions: np.ndarray, out: GroupArrays, infos: InfoWriter) -> None:
        """Step every environment once; autoreset as the mode says.

        Args:
            actions: (K, …), owned by the group: environments may keep views of it.
            out: Written in full.
            infos: Takes each environment's info.

        Raises:
            EnvFailure: At the first environment that raises.
        """
        out.clear_flags()
        shape, dtype, small = self._shape, self._dtype, self._small
        pending, ended = self._pending, []
        rewards: list[float] = []
        pieces: list[bytes] = []
        row = -1
        try:
            for row, (step, action) in enumerate(zip(self._steps, actions, strict=True)):
                if pending and row in pending:
                    observation, info = self._autoreset(row)
                    out.autoreset[row] = True
                    rewards.append(0.0)
                else:
                    observation, reward, terminated, truncated, info = step(action)
                    rewards.append(reward if reward.__class__ is float else _as_reward(reward))
                    if terminated or truncated:
                        ended.append(row)
                        out.terminated[row] = bool(terminated)
                        out.truncated[row] = bool(truncated)
                        observation, info = self._end(row, observation, info, out)
                if not (
                    observation.__class__ is np.ndarray
                    and observation.shape == shape
                    and observation.dtype is dtype
                ):
                    observation = self._converted(row, observation)
                if small:
                    pieces.append(observation.tobytes())
                else:
                    out.observation[row] = observation
                if info.__class__ is not dict:
                    info = _checked_info(info)
                if info:
                    infos.add(row, info)
        except EnvFailure:
            raise
        except BaseException as error:
            error = _explained(error, "step", "(observation, reward, terminated, truncated, info)")
            raise env_failure(self.indices[row], "step", error) from error
        if small:
            joined = np.frombuffer(b"".join(pieces), dtype)
            out.observation[:] = joined.reshape(out.observation.shape)
        out.reward[:] = rewards
        self.env_steps += len(self.envs) - len(pending)
        if ended or pending:
            out.flagged = True
            self._pending = set(ended) if self._autoresets_next_step else set()

    @property
    def _autoresets_next_step(self) -> bool:
        return self.settings.autoreset_mode is AutoresetMode.NEXT_STEP

    def _end(
        self, row: int, observation: Any, info: Any, out: GroupArrays
    ) -> tuple[Any, dict[Any, Any]]:
        """An episode of `row` ended: give reasons, and start the next one if the mode says so."""
        info = _checked_info(info)
        reasons = end_reasons(info, out.terminated[row], out.truncated[row])
        if out.final_observation is None:
            return observation, {**info, **reasons}
        out.final_observation[row] = self._converted(row, observation)
        final_info = {key: snapshot(value) for key, value in info.items()}
        observation, info = self._autoreset(row)
        out.autoreset[row] = True
        return observation, {**_checked_info(info), **reasons, "final_info": final_info}

    def _autoreset(self, row: int) -> tuple[Any, Any]:
        """Start the next episode of `row` by the environment's own reset."""
        episode = self._episodes[row]
        arguments: dict[str, Any] = {}
        try:
            episode.number += 1
            if self.settings.episode_seeds and episode.seed is not None:
                arguments["seed"] = derived_seed(episode.seed, episode.number)
            options = self.settings.autoreset_options
            if options == "last":
                arguments["options"] = snapshot(episode.options)
            elif callable(options):
                arguments["options"] = options(self.indices[row], episode.number)
            observation, info = self.envs[row].reset(**arguments)
            return observation, info
        except BaseException as error:
            error = _explained(error, "reset", "(observation, info)")
            raise env_failure(self.indices[row], "reset", error) from error

    def _converted(self, row: int, observation: Any) -> np.ndarray:
        """Return an observation in its space's dtype, or say what is wrong with it."""
        array = np.asarray(observation)
        if array.shape != self._shape:
            raise ValueError(
                f"The observation has shape {array.shape}, its space has {self._shape}."
            )
        if array.dtype.kind not in "biuf":
            raise TypeError(
                f"The observation has dtype {array.dtype}, its space has {self._dtype}."
            )
        with np.errstate(invalid="ignore", over="ignore"):
            converted = array.astype(self._dtype, copy=False)
        if not np.can_cast(array.dtype, self._dtype, "safe"):
            self._check_lossless(row, array, converted)
        return converted

    def _check_lossless(self, row: int, array: np.ndarray, converted: np.ndarray) -> None:
        if self.notices.seen("lossy observation"):
            return
        with np.errstate(invalid="ignore"):
            lossless = np.array_equal(converted.astype(array.dtype), array, equal_nan=True)
        if not lossless:
            self.notices.once(
                "lossy observation",
                f"Environment {self.indices[row]} returns observations of dtype {array.dtype}; "
                f"they are cast to its space's dtype, {self._dtype}, which loses digits.",
            )

    # ── resetting ───────────────────────────────────────────────────────────────────────────────

    def reset(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
        out: GroupArrays,
        infos: InfoWriter,
    ) -> None:
        """Reset the environments at `rows` and clear their pending autoresets.

        Other rows of `out` are left as they are, except that the rewards and flags of all are zero.

        Raises:
            EnvFailure: At the first environment that raises.
        """
        out.reward.fill(0.0)
        out.clear_flags()
        row = -1
        try:
            for row, seed, chosen in zip(rows, seeds, options, strict=True):
                self._pending.discard(row)
                seed = self._begin(self._episodes[row], seed, chosen)
                observation, info = self.envs[row].reset(seed=seed, options=snapshot(chosen))
                out.observation[row] = self._converted(row, observation)
                if info := _checked_info(info):
                    infos.add(row, info)
        except BaseException as error:
            error = _explained(error, "reset", "(observation, info)")
            raise env_failure(self.indices[row], "reset", error) from error

    def _begin(
        self, episode: _Episode, seed: int | None, options: dict[str, Any] | None
    ) -> int | None:
        """Note a reset by the caller; return the seed that the environment gets."""
        episode.options = snapshot(options)  # the environment may change what it is given
        if seed is not None:
            episode.seed, episode.number = seed, 0
            return seed
        episode.number += 1
        if not self.settings.episode_seeds:
            return None
        if episode.seed is None:
            episode.seed = int(np.random.SeedSequence().generate_state(1)[0])
            episode.number = 0
            return episode.seed
        return derived_seed(episode.seed, episode.number)

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
                with self._turns[row]():
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
                with self._turns[row]():
                    self.envs[row].set_wrapper_attr(name, snapshot(value))
            except BaseException as error:
                raise env_failure(self.indices[row], f"set_attr({name!r})", error) from error

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


def check_new(env: gym.Env[Any, Any], others: Sequence[gym.Env[Any, Any]], index: int) -> None:
    """Raise `TypeError` if an environment is one of the others."""
    if any(env is other for other in others):
        raise TypeError(
            f"The function for environment {index} returned an object that another function "
            "returned already: pass a function that builds an environment of its own."
        )


def end_reasons(info: dict[Any, Any], terminated: Any, truncated: Any) -> dict[str, str]:
    """Return why an episode ended: the environment's own words, else plain ones."""
    reasons = {}
    for flag, key, plain in (
        (terminated, "terminated_reason", "terminated"),
        (truncated, "truncated_reason", "time limit"),
    ):
        if flag:
            reason = info.get(key)
            reasons[key] = reason if isinstance(reason, str) and reason else plain
    return reasons


def _explained(error: BaseException, call: str, expected: str) -> BaseException:
    """Return the error in plain words where unpacking what a call returned is what failed."""
    ours = error.__traceback__ is not None and error.__traceback__.tb_next is None
    if ours and isinstance(error, TypeError | ValueError) and "unpack" in str(error):
        return TypeError(f"{call} must return {expected}: {error}")
    return error


def _as_reward(reward: Any) -> float:
    """Return a scalar-like reward as a float.

    Raises:
        TypeError: If it is none of a number, a 0-d array or an array of shape (1,).
    """
    if (
        isinstance(reward, np.ndarray)
        and reward.shape in ((), (1,))
        and reward.dtype.kind in "biuf"
    ):
        return float(reward.item())
    if isinstance(reward, bool | int | float | np.bool_ | np.integer | np.floating):
        return float(reward)
    raise TypeError(f"The reward must be a number or an array of shape () or (1,), got {reward!r}.")


def _checked_info(info: Any) -> dict[Any, Any]:
    """Return the info as a plain dict: a `Counter`, say, makes values up for keys it lacks."""
    if not isinstance(info, dict):
        raise TypeError(f"The info must be a dict, got {info!r}.")
    return info if type(info) is dict else dict(info)
