"""What a caller may pass, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from superdex.vector._remote import dumps
from superdex.vector._settings import GroupSettings
from superdex.vector._split import check_count

__all__ = [
    "check_actions",
    "check_reset_mask",
    "check_settings",
    "check_timeout",
    "check_travels",
    "checked_functions",
    "checked_mode",
]


def checked_functions(env_fns: Any) -> list[Callable[[], gym.Env[Any, Any]]]:
    """Return the functions as a list.

    Raises:
        TypeError: If it is no sequence of functions; the message says how to make one.
    """
    if callable(env_fns) or isinstance(env_fns, gym.Env | str):
        hint = "such as [lambda: gymnasium.make(…)] * 8"
        if callable(env_fns) and not isinstance(env_fns, gym.Env):
            hint = "such as [env_fn] * 8 for eight environments of one function"
        raise TypeError(
            f"env_fns must be a sequence of functions, one per environment, {hint}; "
            f"got {env_fns!r}."
        )
    functions = list(env_fns)
    for index, env_fn in enumerate(functions):
        if isinstance(env_fn, gym.Env) or not callable(env_fn):
            raise TypeError(
                f"env_fns[{index}] is {env_fn!r}: pass a function that builds an environment, "
                "such as lambda: gymnasium.make(…)."
            )
    return functions


def checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return an autoreset mode by its value or its name, in whichever case.

    Raises:
        ValueError: If there is no such mode; the message lists them.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for known in AutoresetMode:
        if isinstance(mode, str) and mode.lower() in (known.value.lower(), known.name.lower()):
            return known
    names = ", ".join(repr(known.value) for known in AutoresetMode)
    raise ValueError(f"autoreset_mode must be one of {names}, got {mode!r}.")


def check_settings(
    settings: GroupSettings,
    inner_env_cls: type[VectorEnv[Any, Any, Any]] | None,
    inner_env_kwargs: Mapping[str, Any] | None,
) -> None:
    check_count("num_threads_per_worker", settings.num_threads)
    options = settings.autoreset_options
    if not (options is None or options == "last" or callable(options)):
        raise ValueError(f"autoreset_options must be None, 'last' or a function, got {options!r}.")
    if inner_env_cls is None:
        if inner_env_kwargs:
            raise ValueError("inner_env_kwargs needs inner_env_cls.")
    elif settings.faults.truncates_episodes:
        raise ValueError(
            "on_env_error='truncate' needs the inner layer of superdex; an inner_env_cls steps its "
            "environments itself."
        )
    elif settings.episode_seeds or options is not None:
        raise ValueError(
            "episode_seeds and autoreset_options need the inner layer of superdex; an "
            "inner_env_cls resets its environments itself."
        )


def check_travels(**arguments: Any) -> None:
    """Raise `TypeError`, and name the argument, if one can't be pickled for the workers."""
    for name, value in arguments.items():
        try:
            dumps(value)
        except Exception as error:
            raise TypeError(
                f"{name}, {value!r}, can't be pickled for the workers: {error}."
            ) from error


def check_actions(actions: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise `ValueError` unless the actions have that shape and can be cast to that dtype."""
    if not isinstance(actions, np.ndarray):
        raise ValueError(
            f"actions must be a NumPy array of shape {shape}, got {type(actions)}: use np.asarray. "
            "Nothing was stepped."
        )
    if actions.shape != shape:
        raise ValueError(
            f"actions must have the shape of action_space, {shape}, got {actions.shape}. "
            "Nothing was stepped."
        )
    if actions.dtype != dtype and not np.can_cast(actions.dtype, dtype, "same_kind"):
        raise ValueError(
            f"actions of dtype {actions.dtype} can't be cast to the action space's {dtype} by "
            "NumPy's same_kind rule. Nothing was stepped."
        )


def check_timeout(timeout: object, name: str = "timeout") -> None:
    """Raise `ValueError` unless it is None or a number that is not NaN."""
    number = isinstance(timeout, int | float | np.integer | np.floating)
    if timeout is not None and (not number or isinstance(timeout, bool) or timeout != timeout):
        raise ValueError(f"{name} must be a number of seconds or None, got {timeout!r}.")


def check_reset_mask(mask: Any, num_envs: int, *, supported: bool) -> None:
    """Raise as Gymnasium does unless the mask is a boolean array with a True value."""
    if not supported:
        raise ValueError(
            "Reset mask is not supported for this vectorization. Use reset_envs(mask), or make the "
            "vector environment with reset_masks=True."
        )
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"options['reset_mask'] must be a NumPy array, got {type(mask)}.")
    if mask.shape != (num_envs,):
        raise ValueError(f"options['reset_mask'] must have shape ({num_envs},), got {mask.shape}.")
    if mask.dtype != np.bool_:
        raise TypeError(f"options['reset_mask'] must have dtype bool, got {mask.dtype}.")
    if not mask.any():
        raise ValueError("options['reset_mask'] must have at least one True value.")
