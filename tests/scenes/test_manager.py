"""Scenes by name: counted, cleaned up in order, never shared by two classes."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from superdex.errors import SceneMismatch, StateCaptureUnsupported
from superdex.scenes import Scene, SceneData, SceneManager, live_scene_count


class RecordingScene:
    """A scene whose state is one number, and that says when it is closed."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = [] if log is None else log
        self.value = 0.0
        self.states: dict[int, float] = {}

    def capture_state(self) -> int:
        handle = len(self.states)
        self.states[handle] = self.value
        return handle

    def restore_state(self, handle: int) -> None:
        self.value = self.states[handle]

    def release_state(self, handle: int) -> None:
        del self.states[handle]

    def step(self, dt: float) -> None:
        self.value += dt

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture
def manager(request) -> SceneManager:
    return SceneManager(request.node.name)


def test_a_scene_is_anything_with_the_five_methods():
    """The protocol is structural."""
    assert isinstance(RecordingScene(), Scene)
    assert not isinstance(object(), Scene)


def test_one_manager_per_class_name():
    """A name always gives the same manager, another name another one."""
    assert SceneManager.get_instance("OneEnv") is SceneManager.get_instance("OneEnv")
    assert SceneManager.get_instance("OneEnv") is not SceneManager.get_instance("OtherEnv")


def test_registering_counts_one_and_captures_the_first_state(manager):
    """A new scene has one reference and a handle of its state at that moment."""
    scene = RecordingScene()
    scene.value = 7.0
    data = manager.register_scene("a", scene, agent="agent")
    assert isinstance(data, SceneData)
    assert (data.scene, data.agent, data.ref_count) == (scene, "agent", 1)
    scene.step(1.0)
    scene.restore_state(data.initial_state)
    assert scene.value == 7.0


def test_a_taken_name_is_refused(manager):
    """Registering under a taken name is an error and changes nothing."""
    data = manager.register_scene("a", RecordingScene(), None)
    with pytest.raises(ValueError, match="already has a scene named 'a'"):
        manager.register_scene("a", RecordingScene(), None)
    assert manager.try_find_scene("a") is data


def test_finding_takes_a_reference(manager):
    """try_find_scene counts one more user, or returns None."""
    assert manager.try_find_scene("a") is None
    data = manager.register_scene("a", RecordingScene(), None)
    assert manager.try_find_scene("a") is data
    assert manager.scene_info == {"a": 2}
    assert manager.scene_count == 1
    assert "a" in manager
    assert "b" not in manager


def test_the_last_release_destroys_the_scene(manager):
    """Only the last user's release closes it."""
    scene = RecordingScene()
    manager.register_scene("a", scene, None)
    manager.try_find_scene("a")
    manager.release_scene("a")
    assert scene.log == []
    manager.release_scene("a")
    assert scene.log == ["close"]
    assert manager.scene_count == 0


def test_releasing_an_unknown_scene_is_an_error(manager):
    """The error names the scenes that there are."""
    manager.register_scene("a", RecordingScene(), None)
    with pytest.raises(KeyError, match="no scene named 'b'; it has 'a'"):
        manager.release_scene("b")


def test_clean_up_runs_last_first_and_before_the_scene_closes(manager):
    """Callbacks are undone in reverse order of their making."""
    log: list[str] = []
    callbacks = [lambda: log.append("first"), lambda: log.append("second")]
    manager.register_scene("a", RecordingScene(log), None, callbacks)
    manager.release_scene("a")
    assert log == ["second", "first", "close"]


def test_a_failing_clean_up_stops_nothing(manager):
    """Everything runs, the scene is gone, and every failure is raised."""
    log: list[str] = []

    def fail() -> None:
        log.append("fail")
        raise OSError("no")

    manager.register_scene("a", RecordingScene(log), None, [fail, lambda: log.append("ok")])
    with pytest.raises(OSError, match="no"):
        manager.release_scene("a")
    assert log == ["ok", "fail", "close"]
    assert "a" not in manager
    manager.register_scene("a", RecordingScene(log), None, [fail, fail])
    with pytest.raises(ExceptionGroup) as raised:
        manager.release_scene("a")
    assert len(raised.value.exceptions) == 2


def test_other_fields_under_one_name_are_refused():
    """A scene remembers what it was built from and says which value differs."""
    data = SceneData(RecordingScene(), fields={"gravity": True, "mass": 1.0})
    data.check_fields("a", {"gravity": True, "mass": 1.0})
    data.check_fields("a", None)
    with pytest.raises(SceneMismatch, match=r"built with mass=1\.0 \(now 2\.0\)"):
        data.check_fields("a", {"gravity": True, "mass": 2.0})
    with pytest.raises(SceneMismatch, match=r"mass=1\.0 \(now 'absent'\)"):
        data.check_fields("a", {"gravity": True})


def test_a_scene_that_cannot_be_captured_cannot_be_registered(manager):
    """The refusal leaves no entry behind."""

    class Stubborn(RecordingScene):
        def capture_state(self) -> int:
            raise StateCaptureUnsupported("no")

    with pytest.raises(StateCaptureUnsupported):
        manager.register_scene("a", Stubborn(), None)
    assert "a" not in manager


def test_live_scenes_are_counted_over_all_managers():
    """The count of the process rises and falls with every manager's scenes."""
    before = live_scene_count()
    for name in ("CountedEnv", "OtherCountedEnv"):
        SceneManager.get_instance(name).register_scene("a", RecordingScene(), None)
    assert live_scene_count() == before + 2
    for name in ("CountedEnv", "OtherCountedEnv"):
        SceneManager.get_instance(name).release_scene("a")
    assert live_scene_count() == before


def test_two_classes_of_one_name_get_two_managers():
    """Scenes are not shared by classes that merely have the same name."""
    first = type("TwinEnv", (), {})
    second = type("TwinEnv", (), {})
    manager = SceneManager.for_class(first)
    assert manager is SceneManager.get_instance("TwinEnv")
    manager.register_scene("a", RecordingScene(), None)
    assert SceneManager.for_class(second) is not manager
    assert SceneManager.for_class(second) is SceneManager.for_class(second)
    assert SceneManager.for_class(first) is manager
    manager.release_scene("a")


def test_a_dropped_class_leaves_its_manager_to_the_next_of_that_name():
    """Defining a class anew, as in a notebook, does not pile managers up."""
    first = type("NotebookEnv", (), {})
    manager = SceneManager.for_class(first)
    del first
    gc.collect()
    assert SceneManager.for_class(type("NotebookEnv", (), {})) is manager


def test_a_class_keeps_its_manager_while_it_has_scenes_there():
    """Also when the class whose name it shares has left the first one."""
    first, second = (type("KeptEnv", (), {}) for _ in range(2))
    SceneManager.for_class(first).register_scene("a", RecordingScene(), None)
    kept = SceneManager.for_class(second)
    kept.register_scene("a", RecordingScene(), None)
    SceneManager.for_class(first).release_scene("a")
    assert SceneManager.for_class(second) is kept
    assert SceneManager.for_class(first) is not kept
    kept.release_scene("a")


def test_a_manager_in_which_a_scene_is_being_built_is_taken():
    """Another class of the name gets one of its own, though there is no scene yet."""
    first, second = (type("BusyEnv", (), {}) for _ in range(2))
    with SceneManager.building(first) as manager:
        assert SceneManager.for_class(second) is not manager


def test_equal_values_are_the_same_whatever_their_type():
    """Arrays by value, sequences by what is in them, nan like nan."""
    values = {
        "array": np.array([1.0, np.nan]),
        "nan": float("nan"),
        "nested": {"list": [1, (2, 3)]},
        "number": np.float64(2.0),
    }
    data = SceneData(RecordingScene())
    data.remember_fields(values)
    data.check_fields("a", {**values, "array": np.array([1.0, np.nan]), "number": 2})


@pytest.mark.parametrize(
    ("built", "now"),
    [
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([1]), np.array([1, 2, 3])),
        ([1], [2]),
        (1, True),
        ({"a": np.zeros(2)}, {"a": np.ones(2)}),
    ],
)
def test_other_values_are_found_in_any_type(built, now):
    """Comparing never fails, and True is not 1."""
    data = SceneData(RecordingScene())
    data.remember_fields({"x": built})
    with pytest.raises(SceneMismatch, match="built with x="):
        data.check_fields("a", {"x": now})


def test_fields_are_remembered_as_they_were():
    """A list or an array that changes later does not change what the scene was built from."""
    values = {"list": [1], "array": np.zeros(2), "nested": {"list": [1]}}
    data = SceneData(RecordingScene())
    data.remember_fields(values)
    values["list"].append(2)
    values["array"][0] = 1
    values["nested"]["list"].append(2)
    with pytest.raises(SceneMismatch, match=r"array=.*list=.*nested="):
        data.check_fields("a", values)


@pytest.mark.parametrize("callbacks", [5, [5], lambda: None])
def test_a_clean_up_that_cannot_be_called_is_refused(manager, callbacks):
    """At once, not when the scene goes; the name stays free."""
    with pytest.raises(TypeError, match="must be a sequence of functions"):
        manager.register_scene("a", RecordingScene(), None, callbacks)
    assert "a" not in manager
