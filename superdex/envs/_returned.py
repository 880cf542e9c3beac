"""What hooks must return, and the errors that say what one returned instead.

A step looks at types in place, which costs tens of nanoseconds, and calls these only where one is
not the usual one.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from superdex.envs._layout import BoxLayout

__all__ = [
    "WithoutAgent",
    "check_camera",
    "check_frame",
    "check_observed",
    "check_stop",
    "check_terms",
    "check_values",
    "explain_observation",
    "explain_terms",
]


def check_observed(env: object, returned: Any) -> None:
    """Check that `_make_observation` returned two dicts.

    Raises:
        TypeError: It did not.
    """
    expected = "(observation, info), two dicts"
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        hint = "; return observation, {} where there is no info" if _is_dict(returned) else ""
        raise _wrong(env, "_make_observation", expected, returned, hint)
    for part, value in zip(("observation", "info"), returned, strict=True):
        if not _is_dict(value):
            hint = f"; its {part} is no dict"
            raise _wrong(env, "_make_observation", expected, returned, hint)


def check_terms(env: object, terms: Any) -> None:
    """Check that `_compute_reward_terms` returned a dict.

    Raises:
        TypeError: It did not.
    """
    if not _is_dict(terms):
        hint = "; one number needs a name, as in {'progress': number}"
        raise _wrong(env, "_compute_reward_terms", "a dict of numbers by name", terms, hint)


def check_stop(env: object, stop: Any) -> None:
    """Check that `_check_stop_criteria` returned a pair; None is seen to elsewhere.

    Raises:
        TypeError: It did not.
    """
    if not isinstance(stop, tuple | list) or len(stop) != 2:
        hint = "; for a reason and its condition, StopReasons.where(terminated={'Fell': fell})"
        raise _wrong(
            env,
            "_check_stop_criteria",
            "StopReasons(terminated, truncated), each a reason or None, or None to go on",
            stop,
            hint if isinstance(stop, bool | np.bool_ | np.ndarray) else "",
        )


def check_values(env: object, values: Any) -> None:
    """Check that `_draw_physics` returned a dict.

    Raises:
        TypeError: It did not.
    """
    if not _is_dict(values):
        expected = "a dict with values of some of varied_fields by name, {} for the model's own"
        raise _wrong(env, "_draw_physics", expected, values)


def check_camera(env: object, camera: Any) -> None:
    """Check that `_render_camera` returned something; which kinds there are, its scene knows.

    Raises:
        TypeError: It did not.
    """
    if camera is None:
        expected = "a camera's name, its number or the scene's own kind of camera"
        raise _wrong(env, "_render_camera", expected, camera)


def check_frame(env: object, frame: Any) -> None:
    """Check that `_render_frame` returned a picture.

    Raises:
        TypeError: It did not.
    """
    if (
        not isinstance(frame, np.ndarray)
        or frame.ndim != 3
        or frame.shape[2] != 3
        or frame.dtype != np.uint8
    ):
        raise _wrong(env, "_render_frame", "an array (height, width, 3) of uint8", frame)


def explain_observation(
    env: object, layout: BoxLayout, observation: Mapping[str, Any], rows: int | None = None
) -> None:
    """Raise the error that says why an observation could not be flattened, if that can be told.

    Args:
        env: Whose `_make_observation` returned it.
        layout: What it should be.
        observation: By name.
        rows: The length of its leading axis, where it is of a batch.

    Raises:
        ValueError: It has other names or shapes than were declared.
        TypeError: A value holds no numbers.
    """
    layout.check(observation, f"{_hook(env, '_make_observation')}'s observation", rows)
    for name, value in observation.items():
        if np.asarray(value).dtype.kind not in "biuf":
            raise TypeError(
                f"{_hook(env, '_make_observation')} must return numbers; its observation "
                f"{name!r} is {_in_short(value)}"
            )


def explain_terms(env: object, terms: Mapping[Any, Any], rows: int | None = None) -> None:
    """Raise the error that says why reward terms could not be added up, if that can be told.

    Args:
        env: Whose `_compute_reward_terms` returned them.
        terms: By name.
        rows: The number of environments, where they are of a batch.

    Raises:
        TypeError: A name is no string, or a term is no number.
        ValueError: A term holds several numbers.
    """
    hook = _hook(env, "_compute_reward_terms")
    each = "one number" if rows is None else f"numbers of shape ({rows},)"
    for name, term in terms.items():
        if not isinstance(name, str):
            raise TypeError(f"{hook} must return terms by name, got the name {name!r}")
        try:
            array = np.asarray(term)
        except ValueError:  # a ragged list
            array = np.asarray(None)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{hook}: the term {name!r} must be {each}, got {_in_short(term)}")
        if array.size != 1 if rows is None else array.shape not in ((), (1,), (rows,)):
            raise ValueError(f"{hook}: the term {name!r} must be {each}, got shape {array.shape}")


class WithoutAgent:
    """Stands in for the agent of a batch that `_find_agent` does not give; any use says so."""

    def __init__(self, env: object) -> None:
        self.__dict__["_hook"] = _hook(env, "_find_agent")

    def __getattr__(self, name: str) -> Any:
        raise TypeError(
            f"{self._hook} must return the agent of the scene that it is given, which may be a "
            f"batch; it returned None, and a hook asked for the agent's {name!r}. An agent that "
            "the builder of _load_scene returns is of the scene alone: return (scene, None) there, "
            "and make the agent in _find_agent(scene)."
        )


def _wrong(env: object, hook: str, expected: str, returned: Any, hint: str = "") -> TypeError:
    return TypeError(f"{_hook(env, hook)} must return {expected}; got {_in_short(returned)}{hint}")


def _hook(env: object, hook: str) -> str:
    return f"{type(env).__name__}.{hook}()"


def _is_dict(value: Any) -> bool:
    return isinstance(value, Mapping)


def _in_short(value: Any) -> str:
    """Return what a value is, such as "the float 0.5" or "a tuple of 3"."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a {type(value).__name__} of {len(value)}: {reprlib.repr(value)}"
    return f"the {type(value).__name__} {reprlib.repr(value)}"
