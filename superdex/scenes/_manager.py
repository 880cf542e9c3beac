"""Scenes by name, with a count of who uses each."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from superdex.errors import SceneMismatch
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

    def check_fields(self, name: str, fields: Mapping[str, Any] | None) -> None:
        """Check that the scene was built from these configuration values.

        Raises:
            SceneMismatch: A value differs, so that `name` stands for two constructions.
        """
        if fields is None or self.fields is None or dict(fields) == dict(self.fields):
            return
        missing = "absent"
        differing = ", ".join(
            f"{key}={self.fields.get(key, missing)!r} (now {fields.get(key, missing)!r})"
            for key in sorted({*fields, *self.fields})
            if self.fields.get(key, missing) != fields.get(key, missing)
        )
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
    _creation: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, env_class_name: str) -> None:
        self.env_class_name = env_class_name
        self._scenes: dict[str, SceneData] = {}
        self._owner: weakref.ref[type] | None = None

    @classmethod
    def get_instance(cls, env_class_name: str) -> SceneManager:
        """Return this process's manager for an environment class name; always the same one."""
        with cls._creation:
            manager = cls._instances.get(env_class_name)
            if manager is None:
                manager = cls._instances[env_class_name] = cls(env_class_name)
            return manager

    @classmethod
    def for_class(cls, env_class: type) -> SceneManager:
        """Return the manager of an environment class.

        It is `get_instance(env_class.__name__)`, unless another class of the same name has scenes
        there; then it is one of the class's own, named `"Name#2"` and so on.
        """
        for number in itertools.count(1):
            name = env_class.__name__ if number == 1 else f"{env_class.__name__}#{number}"
            manager = cls.get_instance(name)
            if manager._adopt(env_class):
                return manager
        raise AssertionError("itertools.count has no end")

    def _adopt(self, env_class: type) -> bool:
        """Become the manager of a class, unless another one's scenes are here."""
        owner = self._owner() if self._owner is not None else None
        if owner is env_class:
            return True
        if self._owner is not None and self._scenes:
            return False
        self._owner = weakref.ref(env_class)
        return True

    def register_scene(
        self,
        name: str,
        scene: Scene[Any],
        agent: Any,
        cleanup_callbacks: Sequence[CleanupCallback] | None = None,
    ) -> SceneData:
        """Take a scene in under a name, with a count of one, and capture its first state.

        Raises:
            ValueError: The name is taken.
            StateCaptureUnsupported: The scene's state can't be captured, so it can't be shared.
        """
        if name in self._scenes:
            raise ValueError(
                f"{self.env_class_name} already has a scene named {name!r}; "
                "try_find_scene returns it"
            )
        data = SceneData(
            scene,
            agent,
            initial_state=scene.capture_state(),
            cleanup_callbacks=tuple(cleanup_callbacks or ()),
        )
        self._scenes[name] = data
        return data

    def try_find_scene(self, name: str) -> SceneData | None:
        """Return the scene of that name with one more reference to it, or None."""
        data = self._scenes.get(name)
        if data is not None:
            data.ref_count += 1
        return data

    def release_scene(self, name: str) -> None:
        """Give one reference back; the last one destroys the scene.

        Raises:
            KeyError: No scene of that name is registered.
        """
        data = self._scenes.get(name)
        if data is None:
            known = ", ".join(map(repr, self._scenes)) or "none"
            raise KeyError(f"{self.env_class_name} has no scene named {name!r}; it has {known}")
        data.ref_count -= 1
        if data.ref_count == 0:
            # Out of the table first: a clean-up that fails must not leave a dead scene to be found.
            del self._scenes[name]
            data.destroy()

    @property
    def scene_count(self) -> int:
        """How many scenes are alive."""
        return len(self._scenes)

    @property
    def scene_info(self) -> dict[str, int]:
        """Scene name → number of environments on it."""
        return {name: data.ref_count for name, data in self._scenes.items()}

    def __contains__(self, name: object) -> bool:
        return name in self._scenes

    def __repr__(self) -> str:
        return f"SceneManager({self.env_class_name!r}, scenes={self.scene_info})"


def live_scene_count() -> int:
    """Return how many scenes are alive in this process, over all managers."""
    return sum(manager.scene_count for manager in list(SceneManager._instances.values()))
