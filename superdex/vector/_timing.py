"""How long each environment takes.

Two looks at the clock and the sums cost 0.3 µs, which is nothing beside a physics step and a lot
beside a trivial one. So steps are timed all the time where they take long on average, and now and
then where they don't; resets always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final

import numpy as np

__all__ = ["EnvClock", "Record"]

_LONG_NANOSECONDS = 20_000
"""Steps that take longer on average are timed always."""

_INTERVAL = 128
"""Of shorter steps, one in so many is timed."""


class Record:
    """The columns of what is recorded of each environment, in seconds and counts."""

    STEP_SECONDS: Final = 0
    STEPS: Final = 1
    LONGEST_STEP: Final = 2
    RESET_SECONDS: Final = 3
    RESETS: Final = 4
    LONGEST_RESET: Final = 5
    LENGTH: Final = 6


class EnvClock:
    """Records how long each environment of a group takes.

    Args:
        steps: The `step` of each; the list may change later, and the clock follows.

    Attributes:
        steps: The same, but timed.
        due: Whether the next step is to be timed.
    """

    def __init__(self, steps: Sequence[Callable[[Any], Any]]) -> None:
        self.due = True
        self._count = 0
        self._long = _LONG_NANOSECONDS * len(steps)
        self.record_to(np.zeros((len(steps), Record.LENGTH)))
        self.steps = [self._timed(steps, row) for row in range(len(steps))]

    def record_to(self, records: np.ndarray) -> None:
        """Add to these (environments, `Record.LENGTH`) float64 numbers from now on."""
        self._records: list[Any] = [memoryview(record) for record in records]

    def _timed(self, steps: Sequence[Callable[[Any], Any]], row: int) -> Callable[[Any], Any]:
        def step(action: Any) -> Any:
            started = perf_counter()
            result = steps[row](action)
            seconds = perf_counter() - started
            record = self._records[row]
            record[Record.STEP_SECONDS] += seconds
            record[Record.STEPS] += 1.0
            if seconds > record[Record.LONGEST_STEP]:
                record[Record.LONGEST_STEP] = seconds
            return result

        return step

    def note_reset(self, row: int, seconds: float) -> None:
        """Record that a reset of the environment at `row` took that long."""
        record = self._records[row]
        record[Record.RESET_SECONDS] += seconds
        record[Record.RESETS] += 1.0
        if seconds > record[Record.LONGEST_RESET]:
            record[Record.LONGEST_RESET] = seconds

    def plan(self, nanoseconds: int) -> None:
        """All environments have made a step in that time: decide whether to time the next one."""
        self._count += 1
        self.due = nanoseconds > self._long or self._count % _INTERVAL == 0
