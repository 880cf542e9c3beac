"""The first promise: a batch gives, bit for bit, what a plain loop over each environment gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from superdex.testing._differences import (
    differing_entries,
    differing_terms,
    equal,
    observation_labels,
)
from superdex.testing._oracle import PlainLoop, Transition, row_info
from superdex.vector import HybridVectorEnv

__all__ = ["check_equivalence"]

_REASONS = ("terminated_reason", "truncated_reason")


def check_equivalence(
    env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
    splits: Sequence[tuple[int, int]],
    *,
    num_steps: int = 100,
    seed: int = 0,
    autoreset_modes: Sequence[AutoresetMode] = tuple(AutoresetMode),
    actions: np.ndarray | None = None,
    in_process: bool = False,
) -> None:
    """Check that every split and autoreset mode gives what a plain loop gives, bit for bit.

    Observations, rewards, flags, infos, final observations and final infos are compared at every
    step. With DISABLED, finished environments are reset one by one by `reset_envs`.

    Args:
        env_fns: One function per environment. The plain loop calls them in this process.
        splits: (num_workers, num_envs_per_worker) pairs, each over all environments. An uneven
            split has the number of the largest worker.
        num_steps: Steps for each.
        seed: Of the reset and of the random actions.
        autoreset_modes: The modes.
        actions: (num_steps, num_envs, …) to use in place of random ones.
        in_process: Run the workers in this process, which is quicker and proves less.

    Raises:
        AssertionError: At the first difference; it names split, mode, step, environment and value.
        ValueError: If a split does not fit the number of environments, or there is nothing to
            check.
    """
    if not env_fns or not splits or not autoreset_modes:
        raise ValueError(
            "check_equivalence needs at least one environment, one split and one autoreset mode, "
            f"got {len(env_fns)}, {len(splits)} and {len(autoreset_modes)}"
        )
    for num_workers, num_envs_per_worker in splits:
        if -(-len(env_fns) // num_workers) != num_envs_per_worker:
            raise ValueError(
                f"The split ({num_workers}, {num_envs_per_worker}) does not hold "
                f"{len(env_fns)} environments."
            )
    for mode in autoreset_modes:
        if actions is None:
            actions = _random_actions(env_fns, num_steps, seed)
        labels, expected = _plain_rollout(env_fns, mode, seed, actions)
        for num_workers, num_envs_per_worker in splits:
            where = f"{num_workers} x {num_envs_per_worker}, {mode.name}"
            with HybridVectorEnv(
                env_fns, num_workers=num_workers, autoreset_mode=mode, in_process=in_process
            ) as envs:
                _compare(envs, mode, seed, actions, expected, labels, where)


def _random_actions(
    env_fns: Sequence[Callable[[], gym.Env[Any, Any]]], num_steps: int, seed: int
) -> np.ndarray:
    env = env_fns[0]()
    try:
        env.action_space.seed(seed)
        samples = [env.action_space.sample() for _ in range(num_steps * len(env_fns))]
    finally:
        env.close()
    return np.stack(samples).reshape(num_steps, len(env_fns), *samples[0].shape)


def _plain_rollout(
    env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
    mode: AutoresetMode,
    seed: int,
    actions: np.ndarray,
) -> tuple[list[str] | None, list[list[Transition]]]:
    """Return the transitions of each environment, each run alone from first to last.

    Returns:
        Names of an observation's entries, where there are any, and the transitions.
    """
    labels, rollouts = None, []
    for index, env_fn in enumerate(env_fns):
        env = env_fn()
        try:
            labels = observation_labels(env)
            loop = PlainLoop(env, mode)
            transitions = [loop.reset(seed=seed + index)]
            for action in actions[:, index]:
                transitions.append(loop.step(action))
                if mode is AutoresetMode.DISABLED and (
                    transitions[-1].terminated or transitions[-1].truncated
                ):
                    transitions[-1].final_observation = loop.reset().observation
            rollouts.append(transitions)
        finally:
            env.close()
    return labels, rollouts


def _compare(
    envs: HybridVectorEnv,
    mode: AutoresetMode,
    seed: int,
    actions: np.ndarray,
    expected: list[list[Transition]],
    labels: list[str] | None,
    where: str,
) -> None:
    observation, info = envs.reset(seed=seed)
    for index, transitions in enumerate(expected):
        at = f"{where}, reset, environment {index}"
        _same(observation[index], transitions[0].observation, f"{at}: observation", labels)
        _same(row_info(info, index), transitions[0].info, f"{at}: info")
    for number, batch in enumerate(actions, 1):
        observation, reward, terminated, truncated, info = envs.step(batch)
        for index, transitions in enumerate(expected):
            at = f"{where}, step {number}, environment {index}"
            one = transitions[number]
            _same(observation[index], one.observation, f"{at}: observation", labels)
            if not equal(reward[index], one.reward):
                own = one.info if one.final_info is None else one.final_info
                told = row_info(info, index)
                terms = differing_terms(told.get("final_info", told), own)
                _differ(reward[index], one.reward, f"{at}: reward", terms)
            _same(terminated[index], one.terminated, f"{at}: terminated")
            _same(truncated[index], one.truncated, f"{at}: truncated")
            _compare_infos(row_info(info, index), one, mode, at)
        ended = np.flatnonzero(terminated | truncated)
        if mode is AutoresetMode.DISABLED and ended.size:
            firsts, _ = envs.reset_envs(ended)
            for index in map(int, ended):
                at = f"{where}, reset after step {number}, environment {index}"
                final = expected[index][number].final_observation
                _same(firsts[index], final, f"{at}: observation", labels)


def _compare_infos(info: dict[Any, Any], one: Transition, mode: AutoresetMode, at: str) -> None:
    own = one.info if one.final_info is None else one.final_info
    for flag, key in zip((one.terminated, one.truncated), _REASONS, strict=True):
        if flag:
            reason = info.get(key)
            assert isinstance(reason, str), f"{at}: {key} is {reason!r}, expected a reason"
            assert reason, f"{at}: {key} is empty, expected a reason"
            if key not in own or not own[key]:  # a plain reason was added
                info.pop(key)
            elif one.final_info is not None:
                _same(info.pop(key), own[key], f"{at}: {key}")
    if mode is AutoresetMode.SAME_STEP:
        _same(info.pop("final_obs", None), one.final_observation, f"{at}: final_obs")
        _same(info.pop("final_info", None), one.final_info, f"{at}: final_info")
    _same(info, one.info, f"{at}: info")


def _same(got: Any, expected: Any, what: str, labels: list[str] | None = None) -> None:
    if not equal(got, expected):
        _differ(got, expected, what, differing_entries(got, expected, labels))


def _differ(got: Any, expected: Any, what: str, entries: str) -> NoReturn:
    raise AssertionError(
        f"{what} differs{f' in {entries}' if entries else ''}.\n  got:      {got!r}\n"
        f"  expected: {expected!r}"
    )
