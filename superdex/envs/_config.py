"""The settings that every scene environment has."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

RENDER_MODES = ("rgb_array",)


@dataclass(frozen=True, kw_only=True)
class SceneEnvCfg:
    """Settings of a `SceneEnv`; subclass it, as a frozen keyword-only dataclass, to add your own.

    Attributes:
        control_frequency: Environment steps per simulated second, in Hz.
        simulation_frequency: Physics steps per simulated second, in Hz; a multiple of
            `control_frequency`.
        steps_per_episode: An episode is truncated after that many steps; -1 never.
        reset_noise_scale: How far a reset moves the start state at random; the environment says
            in which way. 0 is the same start every time.
        use_shared_scenes: Take turns on one scene with the other environments of this process
            that have the same class and scene name.
        render_mode: "rgb_array", or None for no rendering.
        render_size: Width and height of pictures in pixels; None is 640 × 480.
        profile: Measure where the time of a step goes; see `SceneEnv.timing_report`.

    Example:
        >>> from superdex.envs import SceneEnvCfg
        >>> cfg = SceneEnvCfg(control_frequency=20, simulation_frequency=100)
        >>> cfg.num_substeps
        5
    """

    control_frequency: float = 50
    simulation_frequency: float = 100
    steps_per_episode: int = -1
    reset_noise_scale: float = 0.0
    use_shared_scenes: bool = True
    render_mode: str | None = None
    render_size: tuple[int, int] | None = None
    profile: bool = False

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ValueError: A value makes no sense; the message names it.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                if not isinstance(value, bool | np.bool_):
                    raise ValueError(f"{field.name} must be True or False, got {value!r}")
                # One spelling: scene names are made of these values' repr.
                object.__setattr__(self, field.name, bool(value))
        for name in ("control_frequency", "simulation_frequency"):
            if not _is_number(getattr(self, name)) or getattr(self, name) <= 0:
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)!r}")
        substeps = self.simulation_frequency / self.control_frequency
        if round(substeps) < 1 or abs(substeps - round(substeps)) > 1e-9 * substeps:
            raise ValueError(
                "simulation_frequency must be a multiple of control_frequency, got "
                f"{self.simulation_frequency!r} and {self.control_frequency!r}"
            )
        steps = self.steps_per_episode
        if not _is_integer(steps) or (steps < 1 and steps != -1):
            raise ValueError(f"steps_per_episode must be -1 or a positive integer, got {steps!r}")
        self.check_numbers("reset_noise_scale", at_least=0)
        if self.render_mode is not None and self.render_mode not in RENDER_MODES:
            raise ValueError(
                f"render_mode must be None or one of {', '.join(map(repr, RENDER_MODES))}, "
                f"got {self.render_mode!r}"
            )
        size = self.render_size
        if size is not None:
            is_pair = isinstance(size, Sequence) and len(size) == 2
            if not is_pair or not all(_is_integer(n) and n > 0 for n in size):
                raise ValueError(f"render_size must be (width, height) in pixels, got {size!r}")
            object.__setattr__(self, "render_size", tuple(map(int, size)))

    def check_numbers(self, *names: str, at_least: float = -math.inf, finite: bool = True) -> None:
        """Check that settings are numbers, for the `__post_init__` of a subclass.

        Args:
            names: Of the settings.
            at_least: The least that they may be.
            finite: Whether infinity is refused.

        Raises:
            ValueError: One is something else.
        """
        for name in names:
            value = getattr(self, name)
            is_infinite = not finite and isinstance(value, float) and math.isinf(value)
            if not (_is_number(value) or is_infinite) or value < at_least:
                kind = "a finite number" if finite else "a number"
                limit = "" if at_least == -math.inf else f" ≥ {at_least:g}"
                raise ValueError(f"{name} must be {kind}{limit}, got {value!r}")

    @property
    def num_substeps(self) -> int:
        """Physics steps per environment step."""
        return round(self.simulation_frequency / self.control_frequency)

    @property
    def control_timestep(self) -> float:
        """Seconds of simulated time per environment step."""
        return 1.0 / self.control_frequency

    @property
    def simulation_timestep(self) -> float:
        """Seconds of simulated time per physics step."""
        return 1.0 / self.simulation_frequency

    @classmethod
    def from_any(cls, cfg: SceneEnvCfg | Mapping[str, Any] | None = None, **overrides: Any) -> Self:
        """Return settings of this class from a configuration, a dict or nothing, with overrides.

        Args:
            cfg: Settings, or a dict of them; None for the defaults.
            overrides: Win over `cfg`.

        Raises:
            ValueError: A key is unknown (the nearest known one is named) or a value is wrong.
            TypeError: `cfg` is something else, or another environment's configuration.
        """
        target = cls
        if cfg is None:
            values: dict[str, Any] = {}
        elif isinstance(cfg, cls):
            if not overrides:
                return cfg
            target = type(cfg)
            values = {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)}
        elif isinstance(cfg, Mapping):
            values = dict(cfg)
        else:
            raise TypeError(
                f"The configuration must be a {cls.__name__} or a dict, got {type(cfg).__name__}"
            )
        values.update(overrides)
        known = [field.name for field in dataclasses.fields(target)]
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                raise ValueError(f"{target.__name__} has no key {key!r}; {hint}")
        return target(**values)


def check_timestep(env: object, scene: Any, cfg: SceneEnvCfg) -> None:
    """Check that the physics steps that were asked for are made of the model's timesteps.

    Scenes that don't count timesteps are taken on trust.

    Args:
        env: Whose settings they are, for the message.
        scene: What is stepped.
        cfg: The settings.

    Raises:
        ValueError: They are not.
    """
    if not hasattr(scene, "count_substeps"):
        return
    dt = cfg.simulation_timestep
    try:
        scene.count_substeps(dt)
    except ValueError as error:
        timestep = float(scene.model.opt.timestep)
        fitting = 1 / (timestep * max(1, round(dt / timestep)))
        raise ValueError(
            f"{type(env).__name__} has simulation_frequency={cfg.simulation_frequency:g} Hz, "
            f"physics steps of {dt:.6g} s, which are no whole number of the model's timesteps of "
            f"{timestep:.6g} s ({1 / timestep:.6g} Hz). Set simulation_frequency to "
            f"{1 / timestep:.6g} Hz or to that divided by a whole number, such as {fitting:.6g}; "
            f'or give the model that timestep, <option timestep="{dt:.6g}"/>.'
        ) from error


def _is_integer(value: object) -> bool:
    """Return whether a value is an integer and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Return whether a value is a finite real number and no bool."""
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
