"""Registers superdex's ids when Gymnasium is imported, so that installing is enough.

Gymnasium's own plug-in entry point is gone since its version 1.0, and an id is known only once
somebody imported the package that registers it. So the wheel brings `superdex_gym.pth`, whose one
line calls `install` as Python starts. It waits for `import gymnasium`, and costs a process that
never does so less than a millisecond; hence no import here that is not needed at once.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as type checkers read it; importing typing takes milliseconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["install"]


def install() -> None:
    """Have the ids registered at the end of the next `import gymnasium`."""
    if "gymnasium" not in sys.modules:
        sys.meta_path.insert(0, _GymnasiumFinder())


class _GymnasiumFinder:
    """Finds `gymnasium` once, as it would be found anyway."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)  # type: ignore[assignment]  # no ABC
        return spec


class _RegisteringLoader:
    """Loads a module as `loader` does, gives it that loader back, then registers the ids."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            import superdex.envs  # noqa: F401 - importing it registers
        except Exception as error:  # Gymnasium itself must not fail for our sake
            import warnings

            warnings.warn(f"superdex could not register its environments: {error}", stacklevel=2)
