"""Another `VectorEnv` class as the inner layer of a worker, in the place of `EnvGroup`.

It is built as `cls(env_fns, autoreset_mode=…, **inner_env_kwargs)` and does its own autoresets; its
batched infos are taken apart by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from superdex.errors import StateCaptureUnsupported
from superdex.vector import _remote
from superdex.vector._columns import InfoWriter
from superdex.vector._episodes import Revival
from superdex.vector._faults import WORKER_RESTARTED
from superdex.vector._notices import Notices
from superdex.vector._remote import EnvFailure, env_failure
from superdex.vector._returns import end_reasons
from superdex.vector._rows import GroupArrays
from superdex.vector._seeding import derived_seed
from superdex.vector._settings import GroupSettings
from superdex.vector._spaces import BoxReport, SpaceReport
from superdex.vector._timing import EnvClock

__all__ = ["VectorEnvGroup"]


class VectorEnvGroup:
    """The environments of one process inside a `VectorEnv` of the caller's choice.

    Args:
        cls: The class.
        env_fns: One function per environment.
        indices: The environments' indices in the whole batch.
        settings: Autoreset mode; the class knows no episode seeds and no autoreset options.
        kwargs: Further arguments of the class.
    """

    def __init__(
        self,
        cls: Callable[..., Any],
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        indices: range,
        settings: GroupSettings,
        kwargs: dict[str, Any],
    ) -> None:
        self.indices = indices
        self.settings = settings
        self.notices = Notices()
        self.clock = EnvClock(())  # of no single environment
        self.env_steps = 0
        self.env_errors = 0
        self.episodes = np.zeros(len(indices), np.int64)
        """How many episodes each environment has begun, ever."""
        try:
            self._env: Any = cls(env_fns, autoreset_mode=settings.autoreset_mode, **kwargs)
        except BaseException as error:
            raise env_failure(None, "construct", error) from error
        self.spaces = SpaceReport(
            _report(self.env.single_observation_space, self.env.observation_space, "observation"),
            _report(self.env.single_action_space, self.env.action_space, "action"),
            {k: v for k, v in self.env.metadata.items() if k != "autoreset_mode"},
            self.env.render_mode,
        )
        self.states = _NoStates(cls)
        self._ended = np.zeros(len(indices), np.bool_)
        self._lost: set[int] = set()
        """Rows whose episode was cut short and who have not said so yet."""
        self._due: set[int] = set()
        """Rows that said so in the last step and are reset in the next one."""
        self._marks: dict[int, dict[str, Any]] = {}
        """What the next infos of a row say of a fault."""

    steps_at_once = False

    @property
    def env(self) -> Any:
        """The inner vector environment. Its `call` and `set_attr` are in no base class."""
        assert self._env is not None, "used after close"
        return self._env

    def step(
        self,
        actions: np.ndarray,
        out: GroupArrays,
        infos: InfoWriter,
        rows: np.ndarray | None = None,
    ) -> None:
        """Step all environments; as `EnvGroup.step`, but that `rows` name all if any."""
        if rows is not None:  # `out` may hold their last results
            assert len(rows) == len(self.indices), "the class steps all or none"
            scratch = out.scratch()
            self.step(actions, scratch, infos)
            out.take(scratch)
            return
        try:
            observation, reward, terminated, truncated, info = self.env.step(actions)
        except BaseException as error:
            raise env_failure(None, "step", error) from error
        out.observation[:] = observation
        out.reward[:] = reward
        out.terminated[:] = terminated
        out.truncated[:] = truncated
        out.action_valid.fill(True)
        out.flagged = True
        ended = out.terminated | out.truncated
        mode = self.settings.autoreset_mode
        idle = 0
        if mode is AutoresetMode.NEXT_STEP:
            out.autoreset[:] = self._ended
            out.action_valid[self._ended] = False
            idle = int(self._ended.sum())
        else:
            out.autoreset[:] = ended & (mode is AutoresetMode.SAME_STEP)
        if out.final_observation is not None:
            self._take_final_observations(info, ended, out.final_observation)
        entries = {row: _row_info(info, row) for row in range(len(self.indices))}
        if self._lost or self._due:
            idle += len(self._lost)
            entries |= self._make_up(out)
            ended = out.terminated | out.truncated
        for row, entry in entries.items():
            if ended[row]:
                own = entry.get("final_info", entry)
                entry |= end_reasons(own, out.terminated[row], out.truncated[row])
            if entry:
                infos.add(row, entry)
        self.env_steps += len(ended) - idle
        self.episodes += out.autoreset
        self._ended = ended

    def _make_up(self, out: GroupArrays) -> dict[int, dict[Any, Any]]:
        """Say which episodes were cut short, and reset the environments that are due.

        The inner class has stepped them as if nothing had been; what it gave for them is replaced.
        Returns their infos.
        """
        same_step = self.settings.autoreset_mode is AutoresetMode.SAME_STEP
        lost, due = self._lost, self._due
        entries = {row: self._lost_info(row) for row in lost}
        for row in lost:
            out.observation[row] = observation = out.last_observation(row)
            if out.final_observation is not None:
                out.final_observation[row] = observation
        fresh = due | lost if same_step else due
        if fresh:
            mask = np.isin(np.arange(len(self.indices)), [*fresh])
            try:
                observation, info = self.env.reset(options={"reset_mask": mask})
            except BaseException as error:
                raise env_failure(None, "reset", error) from error
            for row in fresh:
                out.observation[row] = observation[row]
                entry = {**_row_info(info, row), **self._marks.pop(row, {})}
                own = entries.get(row)
                entries[row] = entry if own is None else {**entry, **own, "final_info": own.copy()}
        rows = [*lost, *due]
        out.reward[rows] = 0.0
        out.terminated[rows] = False
        out.truncated[rows] = [row in lost for row in rows]
        out.autoreset[rows] = [row in fresh for row in rows]
        out.action_valid[rows] = False
        next_step = self.settings.autoreset_mode is AutoresetMode.NEXT_STEP
        self._lost, self._due = set(), lost if next_step else set()
        return entries

    def _lost_info(self, row: int) -> dict[Any, Any]:
        return {"truncated_reason": WORKER_RESTARTED, **self._marks.pop(row, {})}

    def revive(self, revival: Revival) -> None:
        """Go on in the place of a group that is gone; as `EnvGroup.revive`.

        The inner class steps all of its environments or none, so all are reset at once.
        """
        rows = range(len(self.indices))
        for name in revival.attributes[0]:
            self.set_attr(rows, name, [attributes[name] for attributes in revival.attributes])
        self._marks = {row: {"worker_restarted": True} for row in rows}
        if not (revival.lost or revival.ended):
            return
        seeds = [
            None if episode.seed is None else derived_seed(episode.seed, episode.number + 1)
            for episode in revival.episodes
        ]
        try:
            self.env.reset(seed=seeds)
        except BaseException as error:
            raise env_failure(None, "reset", error) from error
        self._lost = set(revival.lost)
        if self.settings.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._due = set(revival.ended)
            self._ended[revival.ended] = True

    def _take_final_observations(
        self, info: dict[str, Any], ended: np.ndarray, out: np.ndarray
    ) -> None:
        finals = info.pop("final_obs", None)
        info.pop("_final_obs", None)
        for row in np.flatnonzero(ended) if finals is not None else ():
            out[row] = finals[row]

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
        """Reset the environments at `rows`; as `EnvGroup.reset`, with the same options for all."""
        out.clear_results(np.array(rows, np.intp) if others_rest else None)
        if not rows:
            return
        if any(entry != options[0] for entry in options):
            error = ValueError(f"{type(self.env).__name__} takes the same options for all.")
            raise env_failure(None, "reset", error) from error
        seed: list[int | None] = [None] * len(self.indices)
        mask = np.zeros(len(self.indices), np.bool_)
        for row, chosen_seed in zip(rows, seeds, strict=True):
            seed[row], mask[row] = chosen_seed, True
        chosen = options[0] if mask.all() else {**(options[0] or {}), "reset_mask": mask.copy()}
        try:
            observation, info = self.env.reset(seed=seed, options=chosen)
        except BaseException as error:
            raise env_failure(None, "reset", error) from error
        self._ended[mask] = False
        self._lost.difference_update(rows)
        self._due.difference_update(rows)
        self.episodes[rows] += 1
        out.observation[mask] = np.asarray(observation)[mask]
        for row in rows:
            if entry := {**_row_info(info, row), **self._marks.pop(row, {})}:
                infos.add(row, entry)

    def call(
        self, rows: Sequence[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[bytes]:
        """Return the results of the inner vector environment's own `call` or `render`, pickled."""
        try:
            if name == "render":
                results = self.env.render()
            elif len(rows) == len(self.indices):
                results = self.env.call(name, *args, **kwargs)
            else:
                results = self._call_some(rows, name, args, kwargs)
            return [_remote.dumps(results[row]) for row in rows]
        except BaseException as error:
            raise env_failure(None, name, error) from error

    def _call_some(
        self, rows: Sequence[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[int, Any]:
        """Call some environments, which works where the class keeps them in `envs`."""
        if not hasattr(self.env, "envs"):
            raise ValueError(f"{type(self.env).__name__} calls all environments or none.")
        results = {}
        for row in rows:
            value = self.env.envs[row].get_wrapper_attr(name)
            results[row] = value(*args, **kwargs) if callable(value) else value
        return results

    def set_attr(self, rows: Sequence[int], name: str, values: Sequence[Any]) -> None:
        """Set an attribute of all environments through the inner vector environment."""
        try:
            if len(rows) != len(self.indices):
                raise ValueError(f"{type(self.env).__name__} sets attributes of all or none.")
            ordered: list[Any] = [None] * len(rows)
            for row, value in zip(rows, values, strict=True):
                ordered[row] = value
            self.env.set_attr(name, ordered)
        except BaseException as error:
            raise env_failure(None, f"set_attr({name!r})", error) from error

    def close(self) -> list[EnvFailure]:
        """Close the inner vector environment once."""
        env, self._env = self._env, None
        try:
            if env is not None:
                env.close()
        except BaseException as error:
            failure = env_failure(None, "close", error)
            failure.__cause__ = error
            return [failure]
        return []


class _NoStates:
    """In the place of `GroupStates`: nothing is known of the states of another class."""

    def __init__(self, cls: Any) -> None:
        self._name = getattr(cls, "__name__", repr(cls))

    def capture(self, rows: Sequence[int]) -> list[Any]:
        raise self._refusal()

    def stage(self, request: Any) -> None:
        raise self._refusal()

    def restore(self, rows: Sequence[int]) -> None:
        raise self._refusal()

    def use_bank(self, bank: Any) -> None:
        if bank is not None:
            raise self._refusal()

    def _refusal(self) -> EnvFailure:
        error = StateCaptureUnsupported(
            f"The states of environments inside {self._name} (inner_env_cls) can't be captured: "
            "leave inner_env_cls out."
        )
        failure = env_failure(None, "capture_states", error)
        failure.__cause__ = error
        return failure


def _report(single: gym.Space[Any], batched: gym.Space[Any], role: str) -> BoxReport:
    if not isinstance(single, Box) or not isinstance(batched, Box):
        raise TypeError(
            f"The inner vector environment has a {type(single).__name__} {role} space, {single}; "
            "expected a Box. Wrap its environments in their functions: "
            "superdex.vector.BoxSpaces(env) flattens it to one."
        )
    same = (batched.low == single.low).all() and (batched.high == single.high).all()
    return BoxReport(single, None if same else (batched.low, batched.high))


def _row_info(info: dict[Any, Any], row: int) -> dict[Any, Any]:
    """Return what the environment at `row` gave, out of a batched info."""
    result = {}
    for key, value in info.items():
        mask = info.get(f"_{key}")
        is_mask = isinstance(key, str) and key.startswith("_") and key[1:] in info
        if is_mask or (isinstance(mask, np.ndarray) and not mask[row]):
            continue
        result[key] = _row_info(value, row) if isinstance(value, dict) else value[row]
    return result
