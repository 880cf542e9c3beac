"""What a vector environment did so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Statistics"]


@dataclass(frozen=True)
class Statistics:
    """What a vector environment did since it was made.

    Attributes:
        steps: Calls of `step`.
        env_steps: Steps of single environments, without rows whose action an autoreset ignored.
        messages: Messages over the workers' pipes, both ways. A step whose infos are numbers sends
            none, once their columns are learned.
        copies: Arrays copied in the parent for the caller.
        bytes_copied: Their bytes.
        seconds_waiting: Per worker, the time the parent waited for its replies, in seconds. Workers
            run at the same time and are waited for in order, so a later one's wait is what it took
            longer than those before.
        live_scenes: Per worker, the physics scenes alive in its process; 0 after close.
    """

    steps: int
    env_steps: int
    messages: int
    copies: int
    bytes_copied: int
    seconds_waiting: tuple[float, ...]
    live_scenes: tuple[int, ...]
