"""Scenes by name, with a count of who uses each."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from superdex.errors import SceneMismatch
from superdex.scenes._fields import is_same, own_copy
from superdex.scenes._scene import Scene

CleanupCallback = Callable[[], object]


@dataclass(eq=False, slots=True)
class SceneData:
    """One scene and what is remembered with it.

    Attributes:
        scene: The scene itself.
        agent: What the builder returned beside the scene, shared by everyone on it: typically
            the ids and array views through which environments read and actuate.
        initial_state: Handle of the first state; None where the scene can't capture states.
        ref_count: How many environments use the scene.
        cleanup_callbacks: Called last first, before the scene is closed.
        fields: The configuration values that shaped the construction; None where nobody said.
        turn: Held by the environment whose turn on the scene it is.
    """

    scene: Scene[Any]
    agent: Any = None
    initial_state: Any = None
    ref_count: int = 1
    cleanup_callbacks: tuple[CleanupCallback, ...] = ()
    fields: Mapping[str, Any] | None = None
    turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def remember_fields(self, fields: Mapping[str, Any] | None) -> None:
        """Keep a copy of the configuration values that shaped the construction."""
        self.fields = None if fields is None else own_copy(dict(fields))

    def check_fields(self, name: str, fields: Mapping[str, Any] | None) -> None:
        """Check that the scene was built from these configuration values.

        Raises:
            SceneMismatch: A value differs, so that `name` stands for two constructions.
        """
        if fields is None or self.fields is None:
            return
        missing = "absent"
        differing = ", ".join(
            f"{key}={self.fields.get(key, missing)!r} (now {fields.get(key, missing)!r})"
            for key in sorted({*fields, *self.fields})
            if not is_same(self.fields.get(key, missing), fields.get(key, missing))
        )
        if not differing:
            return
        raise SceneMismatch(
            f"Scene {name!r} was built with {differing}. One name stands for one construction: "
            "put every configuration field that changes the construction into the name."
        )

    def destroy(self) -> None:
        """Run the clean-up callbacks, last first, then close the scene.

        Every callback runs and the scene is closed even where one raises.

        Raises:
            ExceptionGroup: Of what callbacks and `close` raised, where more than one did; a
                single exception is raised itself.
        """
        failures: list[Exception] = []
        for clean_up in (self.scene.close, *self.cleanup_callbacks)[::-1]:
            try:
                clean_up()
            except Exception as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup("Several clean-up steps of a scene failed", failures)


class SceneManager:
    """Finds the scenes of one environment class by name and counts who uses them.

    There is one manager per environment class name and process, so that two classes never share
    a scene, even under one scene name.

    Example:
        >>> from superdex.scenes import MujocoScene, SceneManager
        >>> manager = SceneManager.get_instance("BallEnv")
        >>> scene = MujocoScene.from_xml_string("<mujoco/>")
        >>> data = manager.register_scene("plain", scene, agent=None)
        >>> manager.try_find_scene("plain").scene is scene
        True
        >>> manager.scene_info
        {'plain': 2}
        >>> manager.release_scene("plain")
        >>> manager.release_scene("plain")
        >>> manager.scene_count
        0
    """

    _instances: ClassVar[dict[str, SceneManager]] = {}
    # Guards the tables and counts of all managers, and is held for moments only: a garbage
    # collection may release a scene of one manager amid the work of another.
    _table: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, env_class_name: str) -> None:
        self.env_class_name = env_class_name
        self._scenes: dict[str, SceneData] = {}
        self._owner: weakref.ref[type] | None = None
        # Held while a scene is looked for, built and registered.
        self._building = threading.RLock()
        self._num_building = 0

    @classmethod
    def get_instance(cls, env_class_name: str) -> SceneManager:
        """Return this process's manager for an environment class name; always the same one."""
        with cls._table:
            manager = cls._instances.get(env_class_name)
            if manager is None:
                manager = cls._instances[env_class_name] = cls(env_class_name)
            return manager

    @classmethod
    def for_class(cls, env_class: type) -> SceneManager:
        """Return the manager of an environment class.

        It is `get_instance(env_class.__name__)`, unless another class of the same name has scenes
        there; then it is one of the class's own, named `"Name#2"` and so on, which the class keeps
        for as long as it has scenes there.
        """
        free: SceneManager | None = None
        with cls._table:
            for number in itertools.count(1):
                name = env_class.__name__ if number == 1 else f"{env_class.__name__}#{number}"
                is_last = name not in cls._instances
                manager = cls.get_instance(name)
                owner = manager._owner() if manager._owner is not None else None
                in_use = bool(manager._scenes or manager._num_building)
                if owner is env_class and in_use:
                    return manager
                if free is None and (manager._owner is None or not in_use):
                    free = manager
                if is_last and free is not None:
                    break
            assert free is not None
            free._owner = weakref.ref(env_class)
            return free

    @classmethod
    @contextmanager
    def building(cls, env_class: type) -> Iterator[SceneManager]:
        """Inside, the class's manager is this thread's alone to find or build a scene in."""
        with cls._table:
            manager = cls.for_class(env_class)
            manager._num_building += 1
        try:
            with manager._building:
                yield manager
        finally:
            with cls._table:
                manager._num_building -= 1

    def register_scene(
        self,
        name: str,
        scene: Scene[Any],
        agent: Any,
        cleanup_callbacks: Sequence[CleanupCallback] | None = None,
    ) -> SceneData:
        """Take a scene in under a name, with a count of one, and capture its first state.

        Where the scene can, derived quantities are computed first, and its model is protected.

        Raises:
            ValueError: The name is taken.
            TypeError: A clean-up callback can't be called.
            StateCaptureUnsupported: The scene's state can't be captured, so it can't be shared.
        """
        if name in self._scenes:
            raise self._taken(name)
        callbacks = checked_callbacks(cleanup_callbacks)
        data = SceneData(
            scene, agent, initial_state=first_state(scene), cleanup_callbacks=callbacks
        )
        if hasattr(scene, "protect_model"):
            scene.protect_model()
        with self._table:
            if self._scenes.setdefault(name, data) is not data:
                raise self._taken(name)
        return data

    def try_find_scene(self, name: str) -> SceneData | None:
        """Return the scene of that name with one more reference to it, or None."""
        with self._table:
            data = self._scenes.get(name)
            if data is not None:
                data.ref_count += 1
            return data

    def release_scene(self, name: str) -> None:
        """Give one reference back; the last one destroys the scene.

        Raises:
            KeyError: No scene of that name is registered.
        """
        with self._table:
            data = self._scenes.get(name)
            if data is None:
                known = ", ".join(map(repr, self._scenes)) or "none"
                raise KeyError(f"{self.env_class_name} has no scene named {name!r}; it has {known}")
            data.ref_count -= 1
            is_last = data.ref_count == 0
            if is_last:
                # Before the clean-up: one that fails must not leave a dead scene to be found.
                del self._scenes[name]
        if is_last:
            data.destroy()

    @property
    def scene_count(self) -> int:
        """How many scenes are alive."""
        return len(self._scenes)

    @property
    def scene_info(self) -> dict[str, int]:
        """Scene name → number of environments on it."""
        return {name: data.ref_count for name, data in self._scenes.items()}

    def _taken(self, name: str) -> ValueError:
        return ValueError(
            f"{self.env_class_name} already has a scene named {name!r}; try_find_scene returns it"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._scenes

    def __repr__(self) -> str:
        return f"SceneManager({self.env_class_name!r}, scenes={self.scene_info})"


def checked_callbacks(callbacks: Any) -> tuple[CleanupCallback, ...]:
    """Return clean-up callbacks as a tuple; None is none.

    Raises:
        TypeError: It is no sequence of callables.
    """
    if callbacks is None:
        return ()
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(
            f"Clean-up callbacks must be a sequence of functions without arguments, got "
            f"{callbacks!r}"
        )
    return tuple(callbacks)


def first_state(scene: Scene[Any]) -> Any:
    """Capture a new scene's state, with derived quantities computed where the scene can do so.

    Raises:
        StateCaptureUnsupported: The scene's state can't be captured.
    """
    if hasattr(scene, "refresh"):
        scene.refresh()
    return scene.capture_state()


def live_scene_count() -> int:
    """Return how many scenes are alive in this process, over all managers."""
    return sum(manager.scene_count for manager in list(SceneManager._instances.values()))
