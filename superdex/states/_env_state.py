"""The state of one environment with its wrappers ↔ bytes.

::

    wrapper ─ wrapper ─ … ─ environment
       │         │             ├─ attributes: plain values, random generators
       │         │             ├─ or get_state() / set_state(state), where it defines them
       │         │             └─ physics, where it has any
       └─────────┴─ attributes, or get_state() / set_state(state)

Exactness comes first: what may hold state that nobody captures is refused, and named.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.wrappers import PassiveEnvChecker, TimeLimit

from superdex.errors import StateCaptureUnsupported
from superdex.states._attributes import (
    attributes_of,
    capture_attributes,
    check_attributes,
    explain_unencodable,
    restore_attributes,
)
from superdex.states._codec import Unencodable, encode
from superdex.states._constants import title_of
from superdex.states._physics import Physics, physics_of

__all__ = ["EnvState", "difference"]

_TRANSFORMS = (gym.ObservationWrapper, gym.ActionWrapper, gym.RewardWrapper)
_GENERATOR = ("_np_random", "_np_random_seed")


class EnvState:
    """Captures and restores one environment.

    Args:
        env: The environment, in its wrappers.

    Raises:
        StateCaptureUnsupported: If it, or a wrapper, may hold state that can't be captured.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        layers: list[_Layer] = []
        physics: Physics | None = None
        while isinstance(env, gym.Wrapper):
            layers.append(_wrapper_layer(env))
            env = env.env
        physics = physics_of(env)
        layers.append(_base_layer(env, physics))
        self._layers = layers
        self._physics = physics
        self._base = env
        self._spaces = [space for layer in layers for space in _spaces_of(layer.owner)]
        self._fixed_tag = {
            "environment": " > ".join(layer.title for layer in layers),
            "spaces": f"{_title(self.env.observation_space)}, {_title(self.env.action_space)}",
        }

    def tag(self) -> dict[str, str]:
        """Return what must be equal in two environments that exchange states."""
        return self._fixed_tag | (self._physics.tag() if self._physics is not None else {})

    def capture(self, *, bare: bool = False) -> Any:
        """Return the state as a tree that `encode` takes, with live arrays in it.

        Args:
            bare: It was never reset, so that there is nothing to ask `get_state` for.

        Raises:
            StateCaptureUnsupported: If something in it can't be captured.
        """
        return {
            "layers": [layer.capture(bare=bare) for layer in self._layers],
            "physics": None if self._physics is None else self._physics.capture(),
            "spaces": [space._np_random for space in self._spaces],
        }

    def encode(self, tree: Any) -> bytes:
        """Return bytes of a tree that holds what `capture` returned as "env".

        Raises:
            StateCaptureUnsupported: If an attribute is no plain value; it is named.
        """
        try:
            return encode(tree)
        except Unencodable as why:
            for layer, captured in zip(self._layers, tree["env"]["layers"], strict=True):
                layer.explain(captured)
            rest = {key: value for key, value in tree.items() if key != "env"}
            raise StateCaptureUnsupported(
                f"What is kept beside the state of {type(self._base).__name__} can't be captured, "
                f"such as the options of its last reset: {why} in {rest}."
            ) from why

    def check(self, state: Any) -> None:
        """Check that a captured state fits, after its tag was compared; change nothing.

        Raises:
            ValueError: It does not.
        """
        fits = len(state["layers"]) == len(self._layers)
        if not fits or len(state["spaces"]) != len(self._spaces):
            raise ValueError(
                "The state has other wrappers or spaces: expected "
                f"{len(self._layers)} and {len(self._spaces)}, got {len(state['layers'])} and "
                f"{len(state['spaces'])}."
            )
        for layer, captured in zip(self._layers, state["layers"], strict=True):
            layer.check(captured)
        if self._physics is not None:
            self._physics.check(state["physics"])

    def restore(self, state: Any, *, new_episode: bool = False) -> None:
        """Put a state that was checked in its place; what it holds becomes the environment's own.

        Args:
            state: As decoded, and used once.
            new_episode: It is where an episode begins: the environment's generator, and what
                wrappers keep from episode to episode, go on as they are.
        """
        generator = {name: vars(self._base).get(name) for name in _GENERATOR}
        for layer, captured in zip(self._layers, state["layers"], strict=True):
            layer.restore(captured, new_episode=new_episode)
        if new_episode:
            vars(self._base).update(generator)
        # last, since set_state may go through methods that move the simulation
        if self._physics is not None:
            self._physics.restore(state["physics"])
        if not new_episode:
            for space, own in zip(self._spaces, state["spaces"], strict=True):
                space._np_random = own

    def seed(self, seed: int | None) -> None:
        """Give the environment a new random generator, as `reset(seed=…)` does; none for None."""
        if seed is not None:
            self._base._np_random, self._base._np_random_seed = seeding.np_random(seed)


def difference(here: dict[str, str], tag: dict[str, str]) -> str | None:
    """Return in words where a state's tag differs from that of the place it is for."""
    for key in [*here, *(key for key in tag if key not in here)]:
        if here.get(key) != tag.get(key):
            what = key.replace("_", " ")
            hint = ""
            if what == "scene":
                what = "model of the scene"
                hint = (
                    ". Something that moves the physics is not as it was where the state was "
                    "captured. What _draw_physics draws goes with a state; what is changed in the "
                    "model otherwise must be changed alike before the state is restored"
                )
            return f"another {what}: expected {here.get(key)}, got {tag.get(key)}{hint}"
    return None


class _Layer:
    """One wrapper, or the environment.

    Args:
        owner: The object.
        physics: The environment's.
        own_methods: Whether it has get_state and set_state.
    """

    def __init__(self, owner: Any, physics: Physics | None = None, *, own_methods: bool) -> None:
        self.owner = owner
        self._own_methods = own_methods
        self._turn: Any = nullcontext if physics is None else physics.turn
        self._left_out = frozenset() if physics is None else physics.left_out
        self.title = title_of(type(owner))
        if isinstance(owner, TimeLimit):
            self.title += f"(max_episode_steps={owner._max_episode_steps})"

    def capture(self, *, bare: bool) -> Any:
        if not self._own_methods:
            return capture_attributes(self.owner, self._left_out)
        generator = {name: vars(self.owner).get(name) for name in _GENERATOR}
        if bare:
            return {"generator": generator}
        with self._turn():
            return {"own": self.owner.get_state(), "generator": generator}

    def explain(self, captured: Any) -> None:
        """Raise what to tell the user, if this is what can't be encoded."""
        try:
            encode(captured)
        except Unencodable as why:
            if not self._own_methods:
                raise explain_unencodable(self.owner, captured) from why
            raise StateCaptureUnsupported(
                f"What {type(self.owner).__name__}.get_state() returned can't be captured: {why}. "
                "Return numbers, strings, lists, dicts, NumPy arrays and random generators."
            ) from why

    def check(self, captured: Any) -> None:
        if not self._own_methods:
            check_attributes(self.owner, captured, self._left_out)

    def restore(self, captured: Any, *, new_episode: bool) -> None:
        if not self._own_methods:
            restore_attributes(self.owner, captured, self._left_out, new_episode=new_episode)
            return
        for name, value in captured["generator"].items():
            if value is not None or name in vars(self.owner):
                setattr(self.owner, name, value)
        if "own" in captured:
            with self._turn():
                self.owner.set_state(captured["own"])


class _CheckerLayer(_Layer):
    """`PassiveEnvChecker`, which looks at the first calls only, and warns."""

    def capture(self, *, bare: bool) -> Any:
        return {}

    def restore(self, captured: Any, *, new_episode: bool) -> None:
        for name in ("checked_reset", "checked_step", "checked_data_reuse"):
            if name in vars(self.owner):
                setattr(self.owner, name, True)
        if "_previous_data" in vars(self.owner):
            self.owner._previous_data = None


def _wrapper_layer(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> _Layer:
    if isinstance(wrapper, PassiveEnvChecker):
        return _CheckerLayer(wrapper, own_methods=False)
    if _has_own_methods(wrapper):
        return _Layer(wrapper, own_methods=True)
    cls = type(wrapper)
    known = cls.__module__.partition(".")[0] in ("gymnasium", "superdex")
    if known or isinstance(wrapper, _TRANSFORMS) or _is_of_known(cls):
        return _Layer(wrapper, own_methods=False)
    plain = vars(gym.Wrapper(wrapper.env)).keys() | {"_saved_kwargs", "_seated"}
    if attributes_of(wrapper).keys() <= plain:
        return _Layer(wrapper, own_methods=False)
    raise _unsupported(wrapper, "wrapper")


def _is_of_known(cls: type) -> bool:
    """Return whether a wrapper's class derives from one of Gymnasium's that keep a state."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("gymnasium.wrappers")]
    return bool(bases)


def _base_layer(env: gym.Env[Any, Any], physics: Physics | None) -> _Layer:
    if _has_own_methods(env):
        return _Layer(env, physics, own_methods=True)
    classic = "gymnasium.envs.classic_control"
    if physics is None and not any(c.__module__.startswith(classic) for c in type(env).__mro__):
        raise _unsupported(env, "environment")
    return _Layer(env, physics, own_methods=False)


def _has_own_methods(owner: Any) -> bool:
    """Return whether an object has get_state() and set_state(state).

    A `set_state(qpos, qvel)`, as MuJoCo environments have, is another method.
    """
    get, put = getattr(owner, "get_state", None), getattr(owner, "set_state", None)
    if not callable(get) or not callable(put):
        return False
    try:
        inspect.signature(get).bind()
        inspect.signature(put).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def _unsupported(owner: Any, kind: str) -> StateCaptureUnsupported:
    name = type(owner).__name__
    return StateCaptureUnsupported(
        f"The state of {name} can't be captured: nothing is known of what this {kind} holds. "
        f"Define get_state() and set_state(state) in {name}, with a state of plain values: "
        "numbers, strings, lists, dicts, NumPy arrays and random generators."
    )


def _spaces_of(owner: Any) -> Iterator[gym.Space[Any]]:
    """Return the spaces of an object, each of which has a random generator."""
    for value in vars(owner).values():
        if isinstance(value, gym.Space):
            yield from _with_parts(value)


def _with_parts(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    yield space
    for value in vars(space).values():
        parts: Any = value.values() if isinstance(value, dict) else value
        if isinstance(parts, gym.Space):
            yield from _with_parts(parts)
        elif not isinstance(parts, str | np.ndarray) and hasattr(parts, "__iter__"):
            for part in parts:
                if isinstance(part, gym.Space):
                    yield from _with_parts(part)


def _title(space: gym.Space[Any]) -> str:
    return f"{type(space).__name__}{space.shape} of {space.dtype}"
