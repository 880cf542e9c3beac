"""An environment's seat on a scene that it holds no part of itself: its state, and its turn.

States change places as late as they can: an environment's state stays in the scene after its turn,
and is captured when another one takes its turn. So what an environment, or who uses it, writes into
the data between two steps is kept, and an environment that is stepped twice in a row moves nothing.

    seat 0: state captured ─┐        ┌─ occupant: its state is in the scene
    seat 1: state captured ─┼─ scene ┤
    seat 2: occupant       ─┘        └─ lock: held by the seat whose turn it is, and by its thread
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import mujoco

from superdex.errors import SceneMismatch
from superdex.scenes._manager import SceneManager
from superdex.scenes._mujoco import MujocoScene


class Turns:
    """Whose state is in a scene, and whose turn on it is now.

    Attributes:
        scene: The scene.
        name: The name that it is registered under.
        lock: Held during a turn.
        thread: The thread that holds the lock; 0 where none does.
        occupant: The seat whose state is in the scene; None where that is nobody's.
    """

    __slots__ = ("lock", "name", "occupant", "scene", "thread")

    def __init__(self, scene: MujocoScene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.lock = threading.Lock()
        self.thread = 0
        self.occupant: Seat | None = None

    def vacate(self) -> None:
        """Capture the occupant's state, so that another one may go into the scene."""
        occupant, self.occupant = self.occupant, None
        if occupant is not None:
            occupant.state = self.scene.capture_state()

    def check_model(self, *, thorough: bool) -> None:
        """Check that nobody changed the model.

        Args:
            thorough: Look at large textures too.

        Raises:
            SceneMismatch: It was changed; it is put back.
        """
        changed = self.scene.undo_model_changes(thorough=thorough)
        if changed:
            raise SceneMismatch(
                f"The shared model {self.name!r} was changed in {', '.join(changed)} after an "
                "environment was constructed; what it was is put back, because every environment "
                "that shares it would move by the change. Change the model in the environment's "
                "constructor. An environment that draws it anew as it runs (domain randomization) "
                "is made without share_mujoco, or as a SceneEnv that names the fields in "
                "varied_fields and returns their values from _draw_physics."
            )


class Seat:
    """What one environment holds of a shared scene: one reference and its state.

    Args:
        turns: The scene's.
        manager: Where the scene is registered; one reference to it becomes the seat's.

    Attributes:
        turns: As given.
        model: The scene's.
        data: The scene's.
        state: The captured state; None where it is in the scene.
    """

    __slots__ = ("_manager", "data", "model", "state", "turns")

    def __init__(self, turns: Turns, manager: SceneManager) -> None:
        self.turns = turns
        self.model = turns.scene.model
        self.data = turns.scene.data
        self.state: int | None = None
        self._manager = manager

    def begin(self) -> bool:
        """Begin a turn, with the own state in the scene; False where this is amid one.

        Raises:
            RuntimeError: It is another seat's turn, or this one's in another thread.
        """
        turns = self.turns
        if not turns.lock.acquire(blocking=False):
            if turns.thread == get_ident() and turns.occupant is self:
                return False
            raise RuntimeError(
                "Another environment is using the shared model and data right now. Environments "
                "that share them take turns: step them from one thread, or make them without "
                "share_mujoco."
            )
        turns.thread = get_ident()
        if turns.occupant is not self:
            turns.vacate()
            assert self.state is not None, "a seat has a state, or is the occupant"
            turns.scene.restore_state(self.state)
            turns.scene.release_state(self.state)
            self.state, turns.occupant = None, self
        return True

    def end(self) -> None:
        """Let the others have their turns."""
        self.turns.thread = 0
        self.turns.lock.release()

    def refresh(self) -> None:
        """Compute derived quantities at the own state, which must be in the scene.

        What is saved with the state stays as the last step left it: that is what it would be
        without sharing.
        """
        if self.turns.scene.saves_everything:
            return
        with self.turns.scene.refreshed():
            # As `MujocoEnv` does after each step: mj_forward leaves contact forces out.
            mujoco.mj_rnePostConstraint(self.model, self.data)

    def visit(self) -> None:
        """Put the own state into the scene for someone who looks from outside of any turn.

        Whoever did so once may do it before each step, and look at anything.
        """
        if self.begin():
            try:
                self.refresh()
                self.turns.scene.save_everything()
            finally:
                self.end()

    def export_state(self) -> dict[str, Any]:
        """Return the own state as arrays that fit any scene of this model."""
        return self.turns.scene.export_state(self.state)

    def import_state(self, numbers: dict[str, Any]) -> None:
        """Have an exported state that was checked as the own one."""
        scene = self.turns.scene
        state = scene.import_state(numbers)
        if self.turns.occupant is self:
            self.turns.occupant = None
        if self.state is not None:
            scene.release_state(self.state)
        self.state = state

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A turn around the body."""
        began = self.begin()
        try:
            yield
        finally:
            if began:
                self.end()

    def leave(self) -> None:
        """Give state and reference back; the last one to do so destroys the scene."""
        if self.turns.occupant is self:
            self.turns.occupant = None
        try:
            if self.state is not None:
                self.turns.scene.release_state(self.state)
        finally:
            self._manager.release_scene(self.turns.name)
