"""What an object remembers in its attributes ↔ a tree of plain values.

Attributes that hold plain values are its state, configuration included: what `set_attr` set goes
with it. What else an attribute holds is one of these: part of how it is built (spaces, functions,
modules) or drawn, and left alone; a live view of a simulation, whose state is captured elsewhere;
or something that may hold state of its own, which can't be captured.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import time
import types
from collections.abc import Collection, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.utils import RunningMeanStd

from superdex.errors import StateCaptureUnsupported
from superdex.states._codec import Unencodable, encode

__all__ = [
    "capture_attributes",
    "check_attributes",
    "explain_unencodable",
    "restore_attributes",
]

_MACHINERY = frozenset(
    {
        *("env", "spec", "metadata", "render_mode", "_metadata", "_cached_spec"),
        *("_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs", "_action_space"),
        *("_observation_space", "_seated", "_seat", "_leave", "__class__"),
    }
)
"""How an environment or a wrapper is put together: the same for all that one function builds."""

_DRAWING = frozenset(
    "screen clock surf isopen window viewer renderer mujoco_renderer recorded_frames".split()
)
"""What is drawn with. A plain value under such a name is state, and is kept."""

_ATOMS = (bool, int, float, str, bytes, complex)
_CONFIGURATION = (
    gym.Space,
    gym.Env,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    functools.partial,
    np.ufunc,
    logging.Logger,
    gym.envs.registration.EnvSpec,
)
_RUNNING, _LITERAL, _ELAPSED = "running mean", "literal", "elapsed"
_LIFETIME = frozenset("episode_count time_queue return_queue length_queue episode_id".split())
"""What goes on from episode to episode, beside running means."""


def capture_attributes(owner: Any, left_out: Collection[str] = ()) -> dict[str, Any]:
    """Return what an object remembers: name → (kind, value), or a plain value.

    Args:
        owner: The object.
        left_out: Attributes that are captured in another way, or not at all.

    Raises:
        StateCaptureUnsupported: If an attribute may hold state that can't be captured; it names
            class and attribute.
    """
    captured: dict[str, Any] = {}
    for name, value in _remembered(owner, left_out):
        kind = type(value)
        if kind is RunningMeanStd:
            captured[name] = [_RUNNING, [value.mean, value.var, value.count]]
        elif name == "episode_start_time" and isinstance(owner, RecordEpisodeStatistics):
            # a clock means nothing elsewhere: what counts is how long ago it was
            captured[name] = [_ELAPSED, -1.0 if value < 0 else time.perf_counter() - value]
        elif _is_constant(value):
            captured[name] = [_LITERAL, repr(value)]
        else:
            captured[name] = [None, value]
    return captured


def _remembered(owner: Any, left_out: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        if name in _MACHINERY or name in left_out:
            continue
        if value is None or isinstance(value, _ATOMS):
            is_left = name in _DRAWING and (value is None or isinstance(value, bool))
        elif isinstance(value, np.ndarray):
            is_left = _is_live(value)
        else:
            is_left = isinstance(value, _CONFIGURATION) or _is_of_mujoco(value, owner)
            is_left = is_left or (name in _DRAWING and not _is_plain(value))
        if not is_left:
            yield name, value


def _is_live(array: np.ndarray) -> bool:
    """Return whether an array shows memory that belongs to a simulation."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    kind = type(base)
    return base is not None and (kind.__module__.startswith("mujoco") or "apsule" in kind.__name__)


def _is_of_mujoco(value: Any, owner: Any) -> bool:
    """Return whether a value of MuJoCo's is part of the owner's own simulation, or of drawing."""
    kind = type(value)
    if not kind.__module__.startswith("mujoco"):
        return False
    # a second simulation has a state of its own, which nobody captures
    return kind.__name__ not in ("MjData", "Batch") or value is getattr(owner, "data", None)


def _is_constant(value: Any) -> bool:
    """Return whether a value never changes and is told by its `repr`."""
    if isinstance(value, enum.Enum):
        return True
    parameters = getattr(type(value), "__dataclass_params__", None)
    return dataclasses.is_dataclass(value) and bool(parameters and parameters.frozen)


def _is_plain(value: Any) -> bool:
    try:
        encode(value)
    except Unencodable:
        return False
    return True


def explain_unencodable(owner: Any, captured: dict[str, Any]) -> StateCaptureUnsupported:
    """Return the error for an object one of whose captured attributes can't be encoded."""
    for name, entry in captured.items():
        try:
            encode(entry)
        except Unencodable as why:
            return StateCaptureUnsupported(
                f"The state of {type(owner).__name__} can't be captured: its attribute {name!r} "
                f"is no plain value ({why}). Define get_state() and set_state(state) in "
                f"{type(owner).__name__}, with a state of plain values: numbers, strings, lists, "
                "dicts, NumPy arrays and random generators."
            )
    return StateCaptureUnsupported(f"The state of {type(owner).__name__} can't be captured.")


def check_attributes(owner: Any, captured: dict[str, Any]) -> None:
    """Check that captured attributes fit an object.

    Raises:
        ValueError: If something that can't be changed differs.
    """
    for name, (kind, value) in captured.items():
        if kind == _LITERAL and repr(getattr(owner, name, None)) != value:
            raise ValueError(
                f"The state is of another {type(owner).__name__}: expected {name}="
                f"{getattr(owner, name, None)!r}, as here, got {value}."
            )
        if kind == _RUNNING and type(getattr(owner, name, None)) is not RunningMeanStd:
            raise ValueError(
                f"The state is of another {type(owner).__name__}: it has a running mean {name!r}, "
                "which is missing here."
            )


def restore_attributes(
    owner: Any, captured: dict[str, Any], left_out: Collection[str], *, new_episode: bool
) -> None:
    """Have an object remember what was captured, and nothing else.

    Args:
        owner: The object.
        captured: What `capture_attributes` returned; the values become the object's own.
        left_out: As there.
        new_episode: Leave alone what goes on from episode to episode.
    """
    attributes = vars(owner)
    for name, (kind, value) in captured.items():
        if kind == _LITERAL or (new_episode and _is_lasting(name, kind, value)):
            continue
        if kind == _RUNNING:
            running = attributes[name]
            running.mean, running.var, running.count = value
        elif kind == _ELAPSED:
            attributes[name] = -1.0 if value < 0 else time.perf_counter() - value
        else:
            _set(attributes, name, value)
    others = [(n, value) for n, value in _remembered(owner, left_out) if n not in captured]
    for name, value in others:
        if _is_plain(value):
            del attributes[name]


def _is_lasting(name: str, kind: str | None, value: Any) -> bool:
    """Return whether an attribute goes on from episode to episode."""
    return kind == _RUNNING or name in _LIFETIME or isinstance(value, np.random.Generator)


def _set(attributes: dict[str, Any], name: str, value: Any) -> None:
    present: Any = attributes.get(name)
    if _are_alike(present, value):
        if present.tobytes() == value.tobytes():
            return  # it may be shared with others
        if present.base is not None and present.flags.writeable:
            present[...] = value  # others see it through what it is a view of
            return
    attributes[name] = value


def _are_alike(one: Any, other: Any) -> bool:
    """Return whether both are arrays of one shape and dtype."""
    are_arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return are_arrays and one.dtype == other.dtype and one.shape == other.shape
