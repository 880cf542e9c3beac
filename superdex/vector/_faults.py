"""What happens after a fault, and how often: pure, without clocks or processes."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ENV_ERROR", "WORKER_RESTARTED", "FaultPolicy", "RestartBudget"]

WORKER_RESTARTED = "worker restarted"
ENV_ERROR = "environment error"
"""Why an episode was truncated that a fault cut short: its `truncated_reason`."""


@dataclass(frozen=True)
class FaultPolicy:
    """What happens after a fault.

    Attributes:
        on_worker_failure: When a worker dies: "raise", or "restart" it.
        on_env_error: When an environment raises in `step` or `reset`: "raise", or "truncate" its
            episode and build it anew.
        max_restarts: How often one worker may be restarted, and one environment built anew, within
            `restart_window`; the next fault is raised.
        restart_window: In seconds.

    Raises:
        ValueError: If a value is none of these.
    """

    on_worker_failure: str = "raise"
    on_env_error: str = "raise"
    max_restarts: int = 100
    restart_window: float = 3600.0

    def __post_init__(self) -> None:
        _check_choice("on_worker_failure", self.on_worker_failure, "restart")
        _check_choice("on_env_error", self.on_env_error, "truncate")
        count, window = self.max_restarts, self.restart_window
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise ValueError(f"max_restarts must be an integer of at least 0, got {count!r}.")
        number = isinstance(window, int | float | np.number) and not isinstance(window, bool)
        if not number or not window > 0:
            raise ValueError(
                f"restart_window must be a positive number of seconds, got {window!r}."
            )

    @property
    def restarts_workers(self) -> bool:
        """Whether a worker that dies is restarted."""
        return self.on_worker_failure == "restart"

    @property
    def truncates_episodes(self) -> bool:
        """Whether an environment that raises is built anew."""
        return self.on_env_error == "truncate"

    @property
    def limit(self) -> str:
        """The limit in words, for messages."""
        window = "" if math.isinf(self.restart_window) else f" within {self.restart_window:g} s"
        return f"max_restarts={self.max_restarts}{window}"


def _check_choice(name: str, value: Any, other: str) -> None:
    if value not in ("raise", other):
        raise ValueError(f"{name} must be 'raise' or {other!r}, got {value!r}.")


class RestartBudget:
    """Counts restarts, each by its key, within a window of time.

    Args:
        policy: The limit.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._times: dict[int, deque[float]] = {}

    def spend(self, key: int, now: float) -> bool:
        """Count one more restart of `key` at the time `now`; return whether it is allowed."""
        times = self._times.setdefault(key, deque())
        while times and now - times[0] >= self._policy.restart_window:
            times.popleft()
        if len(times) >= self._policy.max_restarts:
            return False
        times.append(now)
        return True
