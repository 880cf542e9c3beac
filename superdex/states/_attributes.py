"""What an object remembers in its attributes ↔ a tree of plain values.

Attributes that hold plain values are its state, configuration included: what `set_attr` set goes
with it. What else an attribute holds is one of these: part of how it is built (spaces, loggers) or
drawn, and left alone; a live view of a simulation, whose state is captured elsewhere; a constant
that may be exchanged for another, such as a function (`_constants`); or something that may hold
state of its own, which can't be captured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Hashable, Iterator
from functools import cache
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.utils import RunningMeanStd

from superdex.errors import StateCaptureUnsupported
from superdex.states._codec import Unencodable, encode
from superdex.states._constants import CONSTANTS, pack_constant, unpack_constant

__all__ = [
    "attributes_of",
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

_DRAWN_BY = frozenset("cv2 glfw gymnasium imageio matplotlib mujoco pygame PIL".split())
"""The packages whose objects are left alone there."""

_ATOMS = (bool, int, float, str, bytes, complex)
_CONFIGURATION = (gym.Space, logging.Logger, gym.envs.registration.EnvSpec)
_RUNNING, _ELAPSED = "running mean", "elapsed"
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
        if type(value) is RunningMeanStd:
            captured[name] = [_RUNNING, [value.mean, value.var, value.count]]
        elif name == "episode_start_time" and isinstance(owner, RecordEpisodeStatistics):
            # a clock means nothing elsewhere: what counts is how long ago it was
            captured[name] = [_ELAPSED, -1.0 if value < 0 else time.perf_counter() - value]
        else:
            try:
                captured[name] = pack_constant(value, owner) or [None, value]
            except Unencodable as why:
                raise _unsupported(owner, name, why) from why
    return captured


def attributes_of(owner: Any) -> dict[str, Any]:
    """Return all attributes of an object, those in slots too."""
    missing = object()
    slots: dict[str, Any] = {
        name: getattr(owner, name, missing) for name in _slots_of(cast(Hashable, type(owner)))
    }
    present = {name: value for name, value in slots.items() if value is not missing}
    return {**present, **vars(owner)}


@cache
def _slots_of(cls: Hashable) -> frozenset[str]:
    """Return the attributes of a class's objects that are not in their `__dict__`."""
    names = set()
    for base in cast(type, cls).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            names.add(f"_{base.__name__.lstrip('_')}{name}" if is_private else name)
    return frozenset(names - {"__dict__", "__weakref__"})


def _remembered(owner: Any, left_out: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, value in attributes_of(owner).items():
        if name in _MACHINERY or name in left_out:
            continue
        if value is None or isinstance(value, _ATOMS):
            is_left = name in _DRAWING and (value is None or isinstance(value, bool))
        elif isinstance(value, gym.Env):
            # another one has a state of its own
            is_left = value.unwrapped is owner.unwrapped
        else:
            is_left = isinstance(value, _CONFIGURATION) or _is_of_mujoco(value, owner)
            is_left = is_left or _is_live(value) or (name in _DRAWING and _is_drawn_by(value))
        if not is_left:
            yield name, value


def _is_drawn_by(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in _DRAWN_BY


def _is_live(value: Any) -> bool:
    """Return whether an array, or all arrays in a container, show a simulation's memory."""
    if type(value) in (list, tuple, dict):
        parts = list(value.values() if type(value) is dict else value)
        return bool(parts) and all(_is_live(part) for part in parts)
    base: Any = value if isinstance(value, np.ndarray) else None
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
            return _unsupported(owner, name, why)
    return StateCaptureUnsupported(f"The state of {type(owner).__name__} can't be captured.")


def _unsupported(owner: Any, name: str, why: Unencodable) -> StateCaptureUnsupported:
    return StateCaptureUnsupported(
        f"The state of {type(owner).__name__} can't be captured: its attribute {name!r} "
        f"is no plain value ({why}). Define get_state() and set_state(state) in "
        f"{type(owner).__name__}, with a state of plain values: numbers, strings, lists, "
        "dicts, NumPy arrays and random generators."
    )


def check_attributes(owner: Any, captured: dict[str, Any], left_out: Collection[str] = ()) -> None:
    """Check that captured attributes fit an object.

    Raises:
        ValueError: If something that can't be changed differs, or is none of them.
    """
    foreign = [name for name in captured if name in _MACHINERY or name in left_out]
    if foreign:
        raise ValueError(
            f"The state is damaged: {foreign[0]!r} of {type(owner).__name__} is no part of a state."
        )
    attributes = attributes_of(owner)
    for name, (kind, value) in captured.items():
        present: Any = attributes.get(name)
        if kind in CONSTANTS:
            try:
                unpack_constant(kind, value, present, owner)
            except ValueError as why:
                raise ValueError(
                    f"The state is of another {type(owner).__name__}, with another {name!r}: {why}."
                ) from None
        if kind == _RUNNING and type(present) is not RunningMeanStd:
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
    attributes = attributes_of(owner)
    for name, (kind, value) in captured.items():
        if new_episode and _is_lasting(name, kind, value):
            continue
        present: Any = attributes.get(name)
        if kind in CONSTANTS:
            _put(owner, name, unpack_constant(kind, value, present, owner))
        elif kind == _RUNNING:
            present.mean, present.var, present.count = value
        elif kind == _ELAPSED:
            _put(owner, name, -1.0 if value < 0 else time.perf_counter() - value)
        elif not _may_stay(present, value):
            _put(owner, name, value)
    others = [(n, value) for n, value in _remembered(owner, left_out) if n not in captured]
    for name, value in others:
        if _is_plain(value):
            _drop(owner, name)


def _is_lasting(name: str, kind: str | None, value: Any) -> bool:
    """Return whether an attribute goes on from episode to episode."""
    return kind == _RUNNING or name in _LIFETIME or isinstance(value, np.random.Generator)


def _put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute past properties of the same name."""
    if name in _slots_of(cast(Hashable, type(owner))):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value


def _drop(owner: Any, name: str) -> None:
    if name in vars(owner):
        del vars(owner)[name]
    else:
        delattr(owner, name)  # it is in a slot


def _may_stay(present: Any, value: Any) -> bool:
    """Return whether an array is what it should be: it may be large, and shared with others."""
    if not (isinstance(present, np.ndarray) and isinstance(value, np.ndarray)):
        return False
    are_alike = present.dtype == value.dtype and present.shape == value.shape
    # one with a base shares its memory with others of the state
    return value.base is None and are_alike and present.tobytes() == value.tobytes()
