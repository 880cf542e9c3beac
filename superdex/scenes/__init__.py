"""Physics scenes that several environments take turns on.

An environment's state is small, a scene is large. K environments of one process therefore share
one scene, and each keeps a snapshot of its own state::

    environment k:  restore_state(k) → act, step(dt), observe → capture_state() → k

`Scene` is what a scene has to offer, `MujocoScene` is MuJoCo's, `SceneManager` finds scenes by
name and counts who uses them. `share_mujoco` puts Gymnasium's own MuJoCo environments on shared
scenes. MuJoCo is imported when `MujocoScene` is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from superdex._lazy import lazy_attribute
from superdex.scenes._manager import SceneData, SceneManager, live_scene_count
from superdex.scenes._scene import Scene
from superdex.scenes._share_mujoco import share_mujoco

if TYPE_CHECKING:
    from superdex.scenes._mujoco import MujocoScene

__all__ = [
    "MujocoScene",
    "Scene",
    "SceneData",
    "SceneManager",
    "live_scene_count",
    "share_mujoco",
]


_HOMES = {"MujocoScene": "_mujoco"}


def __getattr__(name: str) -> Any:
    return lazy_attribute(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
