"""How a group treats its environments: what the caller chose, on its way to the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gymnasium.vector import AutoresetMode

from superdex.vector._faults import FaultPolicy

__all__ = ["AutoresetOptions", "GroupSettings"]

AutoresetOptions: TypeAlias = Callable[[int, int], dict[str, Any] | None] | str | None


@dataclass(frozen=True)
class GroupSettings:
    """How a group treats its environments.

    Attributes:
        autoreset_mode: What happens after an episode's end.
        episode_seeds: Whether every episode's seed is derived from the environment's.
        autoreset_options: Options of autoresets: None, "last", or a function of (index, episode).
        faults: What happens when an environment raises.
        num_threads: Native threads for environments that are stepped at once.
    """

    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    episode_seeds: bool = False
    autoreset_options: AutoresetOptions = None
    faults: FaultPolicy = field(default_factory=FaultPolicy)
    num_threads: int = 1
