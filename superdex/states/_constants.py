"""Values that don't change themselves, but may be exchanged for others, ↔ plain values.

`self.phase = Phase.WALK` and `self.behaviour = self._walk` are state, though neither is plain. An
own method and an enumeration's member are kept by name, a frozen data class by its fields. Of a
function or class it is kept which one it is, with all that it has bound: another one in its place
is noticed. What a function may draw or count with can't be captured, so such a function is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import PurePath
from typing import Any

import gymnasium as gym
import numpy as np

from superdex.states._codec import Unencodable, encode

__all__ = ["CONSTANTS", "describe", "pack_constant", "title_of", "unpack_constant"]

_FUNCTION, _METHOD, _MEMBER, _FROZEN = "function", "method", "member", "frozen"

CONSTANTS = frozenset({_FUNCTION, _METHOD, _MEMBER, _FROZEN})
"""The kinds that `pack_constant` returns."""

_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
)
_FIXED = (type, types.ModuleType, np.ufunc, np.dtype, PurePath)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.ndarray)


def title_of(thing: Any) -> str:
    """Return the name of a class or function; the same in the main module of any process."""
    module = str(thing.__module__)
    # what a spawned process calls the main module of its parent
    module = "__main__" if module == "__mp_main__" else module
    return f"{module}.{thing.__qualname__}"


def pack_constant(value: Any, owner: Any) -> list[Any] | None:
    """Return the kind of a value and what is kept of it; None if it is no constant.

    Args:
        value: Of an attribute.
        owner: The environment or wrapper that has it.

    Raises:
        Unencodable: If it may hold state.
    """
    if isinstance(value, types.MethodType) and value.__self__ is owner:
        name = value.__func__.__name__
        if getattr(type(owner), name, None) is value.__func__:
            return [_METHOD, name]
    if isinstance(value, _FUNCTIONS + _FIXED):
        try:
            return [_FUNCTION, describe(value, owner)]
        except RecursionError:
            raise Unencodable("functions that have bound one another") from None
    if isinstance(value, enum.Enum):
        flags = value.value if isinstance(value, enum.Flag) else None
        return [_MEMBER, [title_of(type(value)), value.name, flags]]
    if _is_frozen(type(value)):
        fields = {
            field.name: pack_constant(part := getattr(value, field.name), owner) or [None, part]
            for field in dataclasses.fields(value)
        }
        return [_FROZEN, [title_of(type(value)), fields]]
    return None


def unpack_constant(kind: str, kept: Any, present: Any, owner: Any) -> Any:
    """Return the value that something was kept of.

    Args:
        kind: One of `CONSTANTS`.
        kept: What was kept.
        present: What the attribute holds.
        owner: As in `pack_constant`.

    Raises:
        ValueError: If there is none here.
    """
    if kind == _METHOD and isinstance(getattr(type(owner), kept, None), types.FunctionType):
        return getattr(owner, kept)
    if kind == _FUNCTION and _description(present, owner) == kept:
        return present
    if kind == _MEMBER and (cls := _class_titled(kept[0], present)) is not None:
        members = {member.name: member for member in cls} if issubclass(cls, enum.Enum) else {}
        if kept[1] in members:
            return members[kept[1]]
        if issubclass(cls, enum.Flag):  # several of them together have no name of their own
            return cls(kept[2])
    if kind == _FROZEN and (cls := _class_titled(kept[0], present)) is not None:
        names = {field.name for field in dataclasses.fields(cls)} if _is_frozen(cls) else None
        if names == kept[1].keys():
            value = object.__new__(cls)
            for name, (part_kind, part) in kept[1].items():
                if part_kind in CONSTANTS:
                    part = unpack_constant(part_kind, part, getattr(present, name, None), owner)
                object.__setattr__(value, name, part)
            return value
    raise ValueError(f"expected {_description(present, owner)}, as here, got {kept}")


def describe(value: Any, owner: Any) -> str:
    """Return a text that tells a value from others, with all that it has bound.

    Raises:
        Unencodable: If it may hold state.
    """
    if isinstance(value, gym.Env):
        if value.unwrapped is owner.unwrapped:
            return "the environment"
        raise Unencodable(f"another environment, {type(value).__name__}, has a state of its own")
    if isinstance(value, _FUNCTIONS):
        return _function(value, owner)
    if isinstance(value, type):
        return title_of(value)
    if isinstance(value, types.ModuleType | np.ufunc):
        return value.__name__
    if isinstance(value, gym.Space | enum.Enum | logging.Logger | np.dtype | PurePath):
        return str(value)
    if _is_frozen(type(value)):
        values = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return f"{title_of(type(value))} with {_parts(values, owner)}"
    if type(value) in (list, tuple):
        return _parts(value, owner)
    if type(value) is dict:
        return _parts([*value, *value.values()], owner)
    if not isinstance(value, _PLAIN) and type(value) not in (set, frozenset):
        kind = type(value)
        raise Unencodable(
            f"a function has bound a {kind.__module__}.{kind.__qualname__}, which may have a state"
        )
    return f"{type(value).__name__} {sha256(encode(value)).hexdigest()[:12]}"


def _function(value: Any, owner: Any) -> str:
    if isinstance(value, types.MethodType):
        return f"{value.__func__.__name__} of {describe(value.__self__, owner)}"
    if isinstance(value, types.BuiltinFunctionType):
        # a method of an object written in C is of this type too
        holder = value.__self__
        if isinstance(holder, list | dict | set | deque | bytearray | np.ndarray):
            raise Unencodable(f"a method of a {type(holder).__name__}, which may change")
        of = "" if holder is None else f" of {describe(holder, owner)}"
        return f"{value.__qualname__}{of}"
    if isinstance(value, functools.partial):
        return _parts([value.func, *value.args, value.keywords, vars(value)], owner)
    bound = [*_free_variables(value), *(value.__defaults__ or ())]
    bound += [value.__kwdefaults__ or {}, vars(value)]
    return f"{title_of(value)} with {_parts(bound, owner)}"


def _free_variables(function: types.FunctionType) -> Iterator[Any]:
    """Return what a function has bound by name, but itself."""
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # nothing yet
            continue
        if value is not function:
            yield value


def _parts(values: Iterable[Any], owner: Any) -> str:
    return f"({', '.join(describe(value, owner) for value in values)})"


def _description(value: Any, owner: Any) -> str:
    try:
        return describe(value, owner)
    except Unencodable as why:
        return str(why)


def _is_frozen(cls: type) -> bool:
    """Return whether a class is one of frozen data."""
    parameters = getattr(cls, "__dataclass_params__", None)
    return dataclasses.is_dataclass(cls) and bool(parameters and parameters.frozen)


def _class_titled(title: str, present: Any) -> Any:
    """Return the class of a name, if it is that of `present` or in a module that is loaded."""
    if title_of(type(present)) == title:
        return type(present)
    module, _, path = title.rpartition(".")
    while module and module not in sys.modules:
        module, _, first = module.rpartition(".")
        path = f"{first}.{path}"
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = vars(found).get(name) if found is not None else None
    return found if isinstance(found, type) else None
