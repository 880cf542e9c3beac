"""Which classes are known to read no derived quantity before a step but those saved by name."""

from __future__ import annotations

__all__ = ["is_known"]

_PACKAGES = frozenset({"gymnasium", "superdex"})


def is_known(*classes: type) -> bool:
    """Return whether all classes are Gymnasium's or superdex's own, whose reads tests pin.

    A subclass of one of them that a user wrote is not: its hooks may read anything.
    """
    return all(cls.__module__.partition(".")[0] in _PACKAGES for cls in classes)
