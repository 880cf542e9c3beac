"""An environment's part in a scene: its reference to it, its turn on it and its state in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from superdex.envs._timing import Stopwatch, TimedScene
from superdex.scenes import Scene, SceneData, SceneManager
from superdex.scenes._manager import checked_callbacks, first_state

SceneBuilder: TypeAlias = Callable[
    [], tuple[Any, Any] | tuple[Any, Any, Sequence[Callable[[], object]]]
]


_sharing = ContextVar("_sharing", default=True)


@contextmanager
def scenes_of_their_own() -> Iterator[None]:
    """Inside, environments are built on scenes of their own, whatever their settings say."""
    token = _sharing.set(False)
    try:
        yield
    finally:
        _sharing.reset(token)


def may_share() -> bool:
    """Return whether settings decide on sharing, as they do outside `scenes_of_their_own`."""
    return _sharing.get()


class SceneShare:
    """What one environment holds of a scene, shared with others or its own.

    On its own scene the same calls are made, and restoring and keeping the state do nothing: the
    scene holds no other.

    Args:
        data: The scene and what is remembered with it.
        name: The name that it was loaded under; None where the environment built it by hand.
        manager: Where it is registered; None where it is this environment's own.
        stopwatch: Takes the time of the scene's calls, if given.

    Attributes:
        data: As given.
        name: As given.
        driven: What to step: the scene, or what times it.
        is_shared: Whether others may be on the scene.
        varies: Whether this environment may have values of model fields of its own.
        variation: This environment's values of model fields; None for the model's own.
        is_unstable: Returns whether the physics went astray since it was last called.
    """

    __slots__ = (
        "_manager",
        "_state",
        "_turn_holder",
        "data",
        "driven",
        "is_shared",
        "is_unstable",
        "name",
        "variation",
        "varies",
    )

    def __init__(
        self,
        data: SceneData,
        name: str | None = None,
        manager: SceneManager | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.data = data
        self.name = name
        self.is_shared = manager is not None
        self.driven: Scene[Any] = data.scene
        if stopwatch is not None:
            self.driven = TimedScene(data.scene, stopwatch)
        self.is_unstable: Callable[[], bool] = getattr(data.scene, "take_unstable", _never)
        self.variation: Any = None
        self._manager = manager
        self._state: Any = None
        self._turn_holder: int | None = None
        self.varies = False

    @classmethod
    def of_class(
        cls,
        env_class: type,
        name: str,
        builder: SceneBuilder,
        fields: Mapping[str, Any] | None,
        stopwatch: Stopwatch | None,
    ) -> SceneShare:
        """Return a share in the class's scene of that name, which is built if there is none yet.

        Raises:
            SceneMismatch: The scene of that name was built from other `fields`, or its model was
                changed since.
            StateCaptureUnsupported: The scene's state can't be captured.
        """
        with SceneManager.building(env_class) as manager:
            data = manager.try_find_scene(name)
            if data is None:
                scene, agent, callbacks = _built(builder)
                try:
                    data = manager.register_scene(name, scene, agent, callbacks)
                except BaseException:
                    SceneData(scene, cleanup_callbacks=callbacks).destroy()
                    raise
                data.remember_fields(fields)
                return cls(data, name, manager, stopwatch)
        share = cls(data, name, manager, stopwatch)
        try:
            data.check_fields(name, fields)
            share.check_model(thorough=True)
        except BaseException:
            manager.release_scene(name)
            raise
        return share

    @classmethod
    def of_own(cls, name: str, builder: SceneBuilder, stopwatch: Stopwatch | None) -> SceneShare:
        """Return a new scene of the environment's own, known to no manager."""
        scene, agent, callbacks = _built(builder)
        data = SceneData(
            scene,
            agent,
            initial_state=_captured_if_possible(scene),
            cleanup_callbacks=callbacks,
        )
        return cls(data, name, None, stopwatch)

    @classmethod
    def of_hand_built(cls, scene: Any, agent: Any, stopwatch: Stopwatch | None) -> SceneShare:
        """Return a share in a scene that came here by another way; its present state is its first.

        Whoever built it closes it.
        """
        data = SceneData(scene, agent, initial_state=_captured_if_possible(scene))
        return cls(data, None, None, stopwatch)

    def take_turn(self) -> bool:
        """Take the scene for this environment; False where it has it already.

        Raises:
            RuntimeError: Another environment has it, so this is another thread.
        """
        if self.data.turn.acquire(blocking=False):
            self._turn_holder = threading.get_ident()
            return True
        if self._turn_holder == threading.get_ident():
            return False
        raise RuntimeError(
            f"Another environment is using the scene {self.name!r} right now. Environments of one "
            "scene take turns: step them from one thread, or give each its own scene "
            "(use_shared_scenes=False)."
        )

    def give_turn(self) -> None:
        """Let the others have the scene."""
        self._turn_holder = None
        self.data.turn.release()

    def restore(self) -> None:
        """Put this environment's state into the scene; its initial state before the first reset."""
        if self.is_shared:
            state = self._state
            self.driven.restore_state(self.data.initial_state if state is None else state)
            if self.varies:
                self.check_varied()
                self.data.scene.apply_variation(self.variation)  # type: ignore[attr-defined]

    def visit(self) -> None:
        """Put this environment's state into the scene for someone who looks outside of any turn.

        Whoever did so once may do it before each step, and look at anything.
        """
        if self.is_shared and self.take_turn():
            try:
                self.data.scene.save_everything()  # type: ignore[attr-defined]  # a MujocoScene
                self.restore()
            finally:
                self.give_turn()

    def restore_initial(self) -> None:
        """Put the state that the scene was built with into it."""
        if self.data.initial_state is None:
            self.data.scene.reset()  # type: ignore[attr-defined]  # what can't be captured can reset
        else:
            self.driven.restore_state(self.data.initial_state)

    def read_state(self) -> Any:
        """Return the numbers of this environment's state in the scene, live; it was reset."""
        return self.data.scene.read_state(self._state)  # type: ignore[attr-defined]

    def read_derived(self, name: str) -> Any:
        """Return a derived quantity of this environment's state, live; it was reset."""
        return self.data.scene.read_derived(self._state, name)  # type: ignore[attr-defined]

    def go_on(self, origin: tuple[Any, int] | None, numbers: Any) -> None:
        """Have the state that steps led to which were made elsewhere, in a batch.

        Args:
            origin: The state before the last of them, and how many timesteps it was; None where
                there were none, or only the numbers of the state count.
            numbers: Those of the present state.
        """
        if origin is None:
            self.read_state()[:] = numbers
            return
        took_turn = self.take_turn()
        try:
            self.restore()
            self.data.scene.repeat_steps(*origin, numbers)  # type: ignore[attr-defined]
            self.keep()
        finally:
            if took_turn:
                self.give_turn()

    def begin_draw(self, names: Sequence[str]) -> None:
        """Put the model's own values in, before values of these fields are drawn.

        Raises:
            SceneMismatch: Someone wrote into the fields.
        """
        self.data.scene.declare_varied(names)  # type: ignore[attr-defined]

    def check_varied(self) -> None:
        """Check that nobody wrote into fields that vary.

        Raises:
            SceneMismatch: Someone did; what was written is put back.
        """
        if self.varies:
            self.data.scene.check_varied()  # type: ignore[attr-defined]

    def vary(self, names: Sequence[str], values: Mapping[str, Any]) -> None:
        """Give this environment values of model fields of its own, in place of earlier ones."""
        self.variation = self.data.scene.vary(names, values)  # type: ignore[attr-defined]

    def check_model(self, *, thorough: bool) -> None:
        """Check that nobody changed the model of a shared scene, where the scene can tell.

        Args:
            thorough: Look at large textures too.

        Raises:
            SceneMismatch: It was changed; it is put back.
        """
        if self.is_shared and hasattr(self.data.scene, "check_model"):
            self.data.scene.check_model(thorough=thorough)
        elif self.varies:
            self.check_varied()

    def keep(self) -> None:
        """Capture this environment's state anew."""
        if self.is_shared:
            # The old one is released last: where capturing fails, it is still there.
            before, self._state = self._state, self.driven.capture_state()
            if before is not None:
                self.driven.release_state(before)

    def export_state(self, who: str) -> dict[str, Any]:
        """Return this environment's state as plain values that fit any scene of this model.

        Args:
            who: The environment's class, for errors.

        Raises:
            StateCaptureUnsupported: The scene's state can't be captured.
        """
        scene: Any = self.data.scene
        given: Any = None if self.variation is None else dict(self.variation.given)
        if not self.is_shared:
            numbers = scene.export_state()
        else:
            state = self._state
            numbers = scene.export_state(self.data.initial_state if state is None else state)
        return {"numbers": numbers, "varied": given}

    def check_state(self, varied_fields: Sequence[str], state: dict[str, Any]) -> None:
        """Check that an exported state fits the scene.

        Raises:
            ValueError: It does not.
        """
        self.data.scene.check_state(state["numbers"])  # type: ignore[attr-defined]
        unknown = set(state["varied"] or ()) - set(varied_fields)
        if unknown:
            raise ValueError(
                f"The state has values of the model fields {sorted(unknown)}, expected those of "
                f"{list(varied_fields)} at most."
            )

    def import_state(self, varied_fields: Sequence[str], state: dict[str, Any]) -> None:
        """Have an exported state that was checked as this environment's own."""
        scene: Any = self.data.scene
        took_turn = self.take_turn()
        try:
            varied = state["varied"]
            if varied is not None:
                self.vary(varied_fields, varied)
            elif self.varies:
                self.variation = None
                scene.apply_variation(None)
            if not self.is_shared:
                scene.put_state(state["numbers"])
                return
            before, self._state = self._state, scene.import_state(state["numbers"])
            if before is not None:
                scene.release_state(before)
        finally:
            if took_turn:
                self.give_turn()

    def release(self) -> None:
        """Give state and reference back; the last one to do so destroys the scene."""
        if self._manager is None:
            if self.name is not None:
                self.data.destroy()
            return
        assert self.name is not None
        try:
            if self._state is not None:
                self.data.scene.release_state(self._state)
        finally:
            self._manager.release_scene(self.name)


def _built(builder: SceneBuilder) -> tuple[Any, Any, tuple[Callable[[], object], ...]]:
    """Return scene, agent and clean-up callbacks.

    Raises:
        TypeError: The builder returned something else.
    """
    built = builder()
    if not isinstance(built, tuple) or len(built) not in (2, 3):
        raise TypeError(
            "A scene builder returns (scene, agent) or (scene, agent, cleanup_callbacks), got "
            f"{type(built).__name__}"
        )
    scene, agent = built[:2]
    if not isinstance(scene, Scene):
        raise TypeError(
            "The scene that a builder returns must have the methods of superdex.scenes.Scene, got "
            f"{type(scene).__name__}"
        )
    try:
        callbacks = checked_callbacks(built[2] if len(built) == 3 else None)
    except TypeError:
        scene.close()
        raise
    return scene, agent, callbacks


def _captured_if_possible(scene: Scene[Any]) -> Any:
    """Return the handle of the present state, or None where the scene can't capture it."""
    try:
        return first_state(scene)
    except NotImplementedError:
        return None


def _never() -> bool:
    """Stand in for `take_unstable`, which a scene may lack."""
    return False
