"""Where the time of an environment's steps goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class PhaseTiming:
    """How often a phase ran and how long it took in all.

    Attributes:
        calls: Number of calls.
        seconds: Their wall time together.
    """

    calls: int = 0
    seconds: float = 0.0


class Stopwatch:
    """Times functions by name."""

    def __init__(self) -> None:
        self.phases: dict[str, PhaseTiming] = {}

    def timed(self, phase: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that does the same and adds its time to a phase."""
        timing = self.phases.setdefault(phase, PhaseTiming())

        def timed_function(*args: P.args, **kwargs: P.kwargs) -> R:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                timing.seconds += time.perf_counter() - start
                timing.calls += 1

        return timed_function


class TimedScene:
    """A scene that does what another does and takes the time."""

    def __init__(self, scene: Any, stopwatch: Stopwatch) -> None:
        self._scene = scene
        self.capture_state = stopwatch.timed("capture state", scene.capture_state)
        self.restore_state = stopwatch.timed("restore state", scene.restore_state)
        self.release_state = scene.release_state
        self.step = stopwatch.timed("physics", scene.step)
        self.close = scene.close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)


def report(title: str, phases: Mapping[str, PhaseTiming]) -> str:
    """Return the timings as lines of text, the longest first."""
    total = sum(timing.seconds for timing in phases.values()) or 1.0
    lines = [f"{title}: where the time went"]
    for phase, timing in sorted(phases.items(), key=lambda item: -item[1].seconds):
        mean = 1e6 * timing.seconds / timing.calls if timing.calls else 0.0
        lines.append(
            f"  {phase:<16} {timing.seconds:9.3f} s {100 * timing.seconds / total:5.1f} % "
            f"{timing.calls:10,d} calls {mean:9.1f} µs each"
        )
    return "\n".join(lines)
