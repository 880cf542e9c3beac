"""K environments of one class stepped together, where their hooks are written for arrays.

The hooks run on a *body*: an instance of the class whose scene and agent are a batch, so that
everything they read and write has a leading axis of environments. What the environments remember
beside the physics, their attributes named in `array_fields`, are arrays there.

The physics of environment k is row k of the batch. It moves to the environment's own place in the
scene and back when the environment itself is used: by a reset, a call, a look at an attribute.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from superdex._batching import NotBatchable, RowError, Transitions
from superdex.envs._outcome import in_words
from superdex.envs._returned import (
    WithoutAgent,
    check_observed,
    check_stop,
    check_terms,
    explain_observation,
    explain_terms,
)

if TYPE_CHECKING:
    from superdex.envs._scene_env import SceneEnv

__all__ = ["UNSTABLE_REASON", "SceneEnvBatch", "refuse_own_steps", "rows_of"]


UNSTABLE_REASON = "simulation diverged"
"""Why an episode ends whose physics MuJoCo had to reset."""

_TAKES_ONE = "incompatible function arguments"
"""What a function of MuJoCo says that is given something else than `MjData`."""

_OWN = {
    *("_action_layout", "_observation_layout", "_share", "_np_random", "_np_random_seed"),
    *("_elapsed_steps", "reset_options", "_stopwatch", "_closed", "spec"),
    *("observation_space", "action_space", "metadata", "render_mode", "_rendering"),
}
"""Attributes of every environment that its hooks don't depend on in a step."""


class SceneEnvBatch:
    """Environments stepped together.

    Args:
        envs: The environments.
        num_threads: Native threads that step the physics.

    Raises:
        NotBatchable: If they differ in class, scene or settings, or their hooks are not written
            for arrays.
    """

    def __init__(self, envs: Sequence[SceneEnv], num_threads: int = 1) -> None:
        from superdex.scenes._batch import MujocoBatch

        first = envs[0]
        self._check(envs)
        self._envs = envs
        self._batch = MujocoBatch(first._scene, len(envs), num_threads, first.varied_fields)
        self._batch.read_from(self._read_derived)
        self._body = _body(first, self._batch)
        self._adopt_fields(envs)
        self._set_anew = _set_by_before_step(self._body)
        self._check_reads()
        self._adopt_fields(envs)
        self._check_memories(envs)
        self._remember(first)
        self._variations: list[Any] = [None] * len(envs)
        self._elapsed_steps = np.zeros(len(envs), np.int64)
        self._limit = first.cfg.steps_per_episode
        self._calls = 1 if first.holds_action else first._num_substeps
        self._substeps = first._num_substeps // self._calls

    @staticmethod
    def _check(envs: Sequence[SceneEnv]) -> None:
        from superdex.scenes import MujocoScene

        first = envs[0]
        cls = type(first)
        if not first.array_hooks:
            raise NotBatchable(f"{cls.__name__} does not declare array_hooks")
        for env in envs:
            if type(env) is not cls:
                raise NotBatchable(f"it holds a {type(env).__name__} beside a {cls.__name__}")
            if env._scene is not first._scene:
                raise NotBatchable(f"its {cls.__name__}s do not share one scene")
            if env.cfg != first.cfg:
                raise NotBatchable(f"its {cls.__name__}s have different settings")
        if type(first._scene) is not MujocoScene:
            raise NotBatchable(f"a {type(first._scene).__name__} is no MujocoScene")
        if not first._loaded_share().is_shared:
            raise NotBatchable(f"its {cls.__name__} has a scene of its own")

    def _check_reads(self) -> None:
        """Check that the hooks read nothing that a batch does not have.

        Raises:
            TypeError: One of them does.
        """
        if not self._batch.is_exact:
            return  # a class whose reads are known
        from superdex.scenes._batch_data import NotInBatchError

        body = self._body
        attributes = vars(body)
        before = dict(attributes)
        try:
            for name, hook in self._hooks_in_order(body):
                try:
                    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                        hook()
                except NotInBatchError as error:
                    raise TypeError(f"{type(body).__name__}.{name} can't run: {error}.") from None
                except TypeError as error:
                    if _TAKES_ONE not in str(error) or "BatchData" not in str(error):
                        return
                    raise TypeError(
                        f"{type(body).__name__}.{name} can't run: it passes the data of a batch to "
                        "a function of MuJoCo, which takes one simulation. Compute the quantity "
                        "from fields, measure it with a sensor, or let the class have "
                        "array_hooks = False."
                    ) from error
                except Exception:  # the first step will say what is wrong with the hook
                    return
        finally:
            attributes.clear()
            attributes.update(before)

    def _hooks_in_order(self, body: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield the hooks of a step as functions to try, each with what those before returned."""
        action = body._action_layout.rows(np.zeros((len(self._envs), body._action_layout.size)))
        yield "_before_step", body._before_step
        yield "_apply_action", lambda: body._apply_action(action)
        seen: list[Any] = []
        yield "_make_observation", lambda: seen.extend(body._make_observation())
        if len(seen) != 2:
            return  # the first step will say so
        observation, info = seen
        yield (
            "_compute_reward_terms",
            lambda: body._compute_reward_terms(action, observation, info),
        )
        yield "_check_stop_criteria", lambda: body._check_stop_criteria(observation, info)

    def _adopt_fields(self, envs: Sequence[SceneEnv]) -> None:
        for name in envs[0].array_fields:
            values = [np.asarray(getattr(env, name)) for env in envs]
            setattr(self._body, name, np.stack(values))

    def _check_memories(self, envs: Sequence[SceneEnv]) -> None:
        memory = self._memory(envs[0])
        for env in envs:
            for name, value in memory.items():
                if not _same(vars(env).get(name), value):
                    raise NotBatchable(
                        f"its {type(env).__name__}s differ in {name}, which is not among "
                        "array_fields"
                    )

    def step(
        self,
        actions: NDArray[Any],
        observation: NDArray[Any],
        reward: NDArray[np.float64],
        rows: NDArray[np.int32] | None = None,
    ) -> Transitions:
        """Step environments once.

        Args:
            actions: (K, size), of the action space's dtype.
            observation: (K, size), written in full; rows that were not stepped hold no meaning.
            reward: (K,), likewise.
            rows: Which environments, sorted; all if None.

        Raises:
            RowError: If an action is not finite; nothing has moved then.
        """
        body, batch = self._body, self._batch
        self._check_finite(actions, rows)
        structured_action = body._action_layout.rows(body._action_layout.clipped_rows(actions))
        body._before_step()
        for _ in range(self._calls):
            body._apply_action(structured_action)
            batch.step(body._dt, self._substeps, rows)
        count = len(self._envs)
        returned = body._make_observation()
        check_observed(body, returned)
        structured, info = returned
        try:
            body._observation_layout.flatten_rows(structured, observation)
        except Exception:
            explain_observation(body, body._observation_layout, structured, count)
            raise
        terms = body._compute_reward_terms(structured_action, structured, info)
        check_terms(body, terms)
        stop: Any = body._check_stop_criteria(structured, info)
        if stop is None:
            stop = (None, None)
        check_stop(body, stop)
        info = {name: rows_of(value, count) for name, value in info.items()}
        reward.fill(0.0)
        try:
            for name, term in terms.items():
                reward += term
                info["reward_" + name] = rows_of(np.asarray(term, np.float64), count)
        except Exception:
            explain_terms(body, terms, count)
            raise
        if rows is None:
            self._elapsed_steps += 1
        else:
            self._elapsed_steps[rows] += 1
        return self._transitions(info, *stop)

    @contextmanager
    def others_at_rest(self, rows: NDArray[np.int32]) -> Iterator[None]:
        """Inside, a step may write to all environments; those not in `rows` are as before after it.

        A hook writes a whole array: the action of all, say, which is part of the physics' state.
        """
        body, states = self._body, self._batch.states
        resting = np.ones(len(self._envs), np.bool_)
        resting[rows] = False
        kept = states[resting]
        remembered = {name: getattr(body, name)[resting] for name in body.array_fields}
        try:
            yield
        finally:
            states[resting] = kept
            for name, values in remembered.items():
                together = np.array(getattr(body, name))
                together[resting] = values
                setattr(body, name, together)

    def _transitions(self, info: dict[str, Any], terminated: Any, truncated: Any) -> Transitions:
        count = len(self._envs)
        reasons: dict[int, dict[str, str]] = {}
        flags = []
        for key, plain, reason in (
            ("terminated_reason", "terminated", terminated),
            ("truncated_reason", "time limit", truncated),
        ):
            ended = np.zeros(count, np.bool_)
            if reason is not None:
                each = np.broadcast_to(np.asarray(reason, object), (count,))
                for row in np.flatnonzero(each != None):  # noqa: E711  # of each element
                    ended[row] = True
                    reasons.setdefault(int(row), {})[key] = in_words(each[row], plain)
            flags.append(ended)
        unstable = self._batch.take_unstable()
        if unstable is not None:
            flags[0] |= unstable
            for row in np.flatnonzero(unstable):
                reasons.setdefault(int(row), {})["terminated_reason"] = UNSTABLE_REASON
        if self._limit > 0:
            late = self._elapsed_steps >= self._limit
            if late.any():
                flags[1] |= late
                for row in np.flatnonzero(late):
                    reasons.setdefault(int(row), {}).setdefault("truncated_reason", "time limit")
        return Transitions(flags[0], flags[1], info, reasons)

    def _check_finite(self, actions: NDArray[Any], rows: NDArray[np.int32] | None) -> None:
        if np.isfinite(actions).all():
            return
        bad = ~np.isfinite(actions).all(axis=1)
        if rows is not None:
            stepped = np.zeros(len(bad), np.bool_)
            stepped[rows] = True
            bad &= stepped
            # an action that is ignored may be anything, but not get into the physics
            actions[~stepped] = 0.0
        for row in np.flatnonzero(bad):
            cause = ValueError(f"The action must be finite, got {actions[row]}")
            raise RowError(int(row)) from cause

    # ── from a row to the environment and back ──────────────────────────────────────────────────

    def adopt(self, row: int) -> None:
        """Go on from where the environment of a row is, which was reset or used by itself."""
        env = self._envs[row]
        if env._elapsed_steps is None:
            return  # it was never reset
        self._check_memory(env)
        share = env._loaded_share()
        self._batch.take(row, share.read_state())
        if share.variation is not self._variations[row]:
            self._variations[row] = share.variation
            self._batch.vary(env.varied_fields, row, share.variation)
        self._elapsed_steps[row] = env._elapsed_steps or 0
        for name in env.array_fields:
            getattr(self._body, name)[row] = getattr(env, name)

    def _read_derived(self, row: int, name: str) -> Any:
        """Return a derived quantity in the scene's state of an environment; None without one."""
        env = self._envs[row]
        return None if env._elapsed_steps is None else env._loaded_share().read_derived(name)

    def _remember(self, env: SceneEnv) -> None:
        """Remember what an environment remembers, to compare others with."""
        self._remembered = self._memory(env)
        names = list(self._remembered)
        # one name would give the bare value
        self._recall = itemgetter(*names, *names[:1])
        self._recalled = self._recall(self._remembered)
        self._recalled_of = len(vars(env))

    def _check_memory(self, env: SceneEnv) -> None:
        """Raise `NotBatchable` if an environment remembers what its siblings don't."""
        attributes = vars(env)
        try:
            # tuples compare by identity first, and all at once
            if self._recall(attributes) == self._recalled and len(attributes) == self._recalled_of:
                return
        except Exception:  # an attribute that is gone, or arrays, which don't compare to one bool
            pass
        for name, value in self._memory(env).items():
            if not _same(value, self._remembered.get(name)):
                raise NotBatchable(
                    f"{type(env).__name__}.{name} was set in one of them, and is not among "
                    "array_fields"
                )
        self._recalled_of = len(attributes)  # one that is its own came with a first reset

    def _memory(self, env: SceneEnv) -> dict[str, Any]:
        """Return the attributes that the body shares with all environments."""
        left_out = _OWN | self._set_anew
        return {
            name: value
            for name, value in vars(env).items()
            if name not in left_out and name not in env.array_fields
        }

    def hand_back(self, row: int) -> None:
        """Bring the environment of a row to where the batch is, before it is used by itself."""
        env = self._envs[row]
        share = env._loaded_share()
        if env._elapsed_steps is None:
            return
        share.go_on(self._batch.origin_of(row), self._batch.states[row])
        env._elapsed_steps = int(self._elapsed_steps[row])
        for name in env.array_fields:
            value = getattr(self._body, name)[row]
            setattr(env, name, value.copy() if isinstance(value, np.ndarray) else value)


def refuse_own_steps(cls: type, base: type) -> None:
    """Raise `NotBatchable` if a class has a `step` or `reset` of its own, which a batch leaves out.

    Args:
        cls: The class of the environments.
        base: The one whose `step` and `reset` the batch stands for.
    """
    for method in ("reset", "step"):
        if getattr(cls, method) is not getattr(base, method):
            raise NotBatchable(f"{cls.__name__} has a {method} of its own")


def _set_by_before_step(body: SceneEnv) -> frozenset[str]:
    """Return the attributes that `_before_step` sets anew in each step, whatever they were.

    What they hold between two steps means nothing, and environments may differ in it: one that came
    to its state by another way than the batch did, say.
    """
    attributes = vars(body)
    before = dict(attributes)
    try:
        with np.errstate(all="ignore"):
            body._before_step()
            once = dict(attributes)
            body._before_step()
        # what counts or adds up is something else each time
        names = [n for n, value in attributes.items() if value is not before.get(n)]
        return frozenset(name for name in names if _same(attributes[name], once[name]))
    except Exception:  # the first step will say what is wrong with the hook
        return frozenset()
    finally:
        attributes.clear()
        attributes.update(before)


def _same(one: Any, other: Any) -> bool:
    """Return whether two attributes of environments are the same, as far as can be told."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    try:
        return bool(one == other)
    except Exception:  # what can't be compared is not the same
        return False


class _NoGenerator:
    """Stands in for the random generator of the body, which would serve all environments."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f"np_random.{name} was used outside of reset. Array hooks run for all environments at "
            "once, and each one's generator is its own: draw in _reset_scene, and keep what was "
            "drawn in an attribute named in array_fields."
        )


def rows_of(value: Any, count: int) -> NDArray[Any]:
    """Return an info of a batch as an array (K, …) that no later step changes."""
    array = np.asarray(value)
    if array.ndim == 0 or len(array) != count:
        array = np.broadcast_to(array, (count, *array.shape))
    return array.copy()


def _body(env: SceneEnv, batch: Any) -> SceneEnv:
    """Return an instance for the hooks to run on."""
    body = object.__new__(type(env))
    body.__dict__.update(env.__dict__)
    body._scene = batch
    body._agent = env._find_agent(batch)
    if body._agent is None and env._agent is not None:
        body._agent = WithoutAgent(env)
    body._share = None  # nothing to give back
    body._closed = True
    body._np_random = _NoGenerator()  # type: ignore[assignment]
    return body
