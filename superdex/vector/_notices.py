"""Messages for the user that arise in a worker and become warnings in the caller's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Notice", "Notices"]

Notice: TypeAlias = tuple[str | None, str]
"""A kind, of which one is enough, or None where each one counts; and the message."""


@dataclass
class Notices:
    """What there is to tell, until it is taken."""

    pending: list[Notice] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def seen(self, kind: str) -> bool:
        """Return whether there was a message of that kind."""
        return kind in self._seen

    def once(self, kind: str, message: str) -> None:
        """Tell of something that is worth one message however often it happens."""
        if kind not in self._seen:
            self._seen.add(kind)
            self.pending.append((kind, message))

    def each(self, message: str) -> None:
        """Tell of something that counts each time."""
        self.pending.append((None, message))

    def take(self) -> list[Notice]:
        """Return what is pending and forget it."""
        taken, self.pending = self.pending, []
        return taken
