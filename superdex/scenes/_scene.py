"""What a physics scene has to offer so that environments can share it."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

HandleT = TypeVar("HandleT")


@runtime_checkable
class Scene(Protocol[HandleT]):
    """A physics world whose moving parts can be set aside and put back exactly.

    A state holds what moves: positions, velocities, activations, controller and constraint
    targets, external forces, clock and step counter, solver warm start. It does not hold
    topology, materials, joint limits or gravity: those are the scene's, one for all who share it.

    Restoring is exact: capture, 50 steps, restore and the same 50 steps are bit-equal, contacts
    included. `superdex.testing.check_scene` proves it for a scene of your own.

    Some more methods are optional. `refresh()` recomputes derived quantities (body poses, sensor
    values) at the present state without changing that state; `reset()` puts a scene whose state
    can't be captured back to its start; `render(camera, width, height)` draws it as an array.
    `protect_model()`, called when the scene is registered, and `check_model(thorough=…)`, called at
    resets and after looks from outside, find what an environment changed for all others.
    """

    def capture_state(self) -> HandleT:
        """Set the present state aside and return the handle that restores it.

        Raises:
            StateCaptureUnsupported: The scene has state that can't be captured in full.
        """
        ...

    def restore_state(self, handle: HandleT, /) -> None:
        """Put a captured state back; the clock goes back too, and the handle stays valid."""
        ...

    def release_state(self, handle: HandleT, /) -> None:
        """Give a handle back; it is invalid from then on."""
        ...

    def step(self, dt: float, /) -> None:
        """Advance the scene by `dt` seconds."""
        ...

    def close(self) -> None:
        """Free what the scene holds; closing twice is fine."""
        ...
