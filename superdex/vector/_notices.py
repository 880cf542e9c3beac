"""Messages for the user that arise in a worker and become warnings in the caller's process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from superdex.vector._warnings import warn_caller

__all__ = ["Notice", "NoticeBoard", "Notices"]

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


class NoticeBoard:
    """Warns the caller of what workers have to tell, of each kind once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def tell(self, notices: Sequence[Notice]) -> None:
        """Warn of each notice, of those with a kind only if it is the first."""
        for kind, message in notices:
            if kind is None:
                warn_caller(message, RuntimeWarning)
            elif kind not in self._seen:
                self._seen.add(kind)
                warn_caller(message, UserWarning)
