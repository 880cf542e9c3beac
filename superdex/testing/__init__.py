"""Contracts to check your own environments and scenes against, in three lines.

Each check is a plain function that raises `AssertionError` and says what differs::

    from superdex.testing import check_equivalence

    def test_my_env():
        check_equivalence([MyEnv] * 6, splits=[(1, 6), (2, 3), (6, 1)])

The checks of scenes import MuJoCo, and only when one of them is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from superdex.testing._array_hooks import check_array_hooks
from superdex.testing._equivalence import check_equivalence
from superdex.testing._oracle import PlainLoop, Transition, row_info

if TYPE_CHECKING:
    from superdex.testing._scenes import check_scene, check_scene_env, check_scene_name

__all__ = [
    "PlainLoop",
    "Transition",
    "check_array_hooks",
    "check_equivalence",
    "check_scene",
    "check_scene_env",
    "check_scene_name",
    "row_info",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from superdex.testing import _scenes

        return getattr(_scenes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
