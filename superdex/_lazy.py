"""Names of a package whose modules are imported when one of them is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_attribute"]


def lazy_attribute(package: str, name: str, homes: Mapping[str, str]) -> Any:
    """Return an attribute of a package, for its `__getattr__`.

    Args:
        package: The package's `__name__`.
        name: The attribute.
        homes: Attribute → the module of the package that has it.

    Raises:
        AttributeError: If the package has no such attribute.
        ImportError: If its module can't be imported.
    """
    home = homes.get(name)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        module = import_module(f"{package}.{home}")
    except AttributeError as error:
        # MuJoCo raises one where MUJOCO_GL names a library that is missing; `from … import` would
        # take it for a missing name.
        raise ImportError(f"importing {name} failed: {error}") from error
    return getattr(module, name)
