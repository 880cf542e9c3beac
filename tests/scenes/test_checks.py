"""`check_scene` passes what keeps its promises and fails each kind of what does not."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from superdex.errors import StateCaptureUnsupported
from superdex.scenes import MujocoScene
from superdex.testing import check_scene

FALLING = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body pos="0 0 0.12"><freejoint/><geom type="box" size="0.1 0.12 0.09"/>
      <body pos="0 0 0.1"><joint name="j" axis="0 1 0"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.4"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="j"/></actuator>
</mujoco>
"""


class WithoutWarmStart(MujocoScene):
    """Saves positions and velocities only, as is often taken for enough."""

    def restore_state(self, handle, /):
        nq, nv = self.model.nq, self.model.nv
        numbers = self.read_state(handle)  # time, positions, velocities, …
        self.data.qpos[:], self.data.qvel[:] = numbers[1 : 1 + nq], numbers[1 + nq : 1 + nq + nv]


class WithoutForces(MujocoScene):
    """Leaves the forces on bodies as whoever was last had them."""

    def restore_state(self, handle, /):
        forces = self.data.xfrc_applied.copy()
        super().restore_state(handle)
        self.data.xfrc_applied[:] = forces


class ReusesHandles(MujocoScene):
    """Forgets that a handle was released."""

    def release_state(self, handle, /):
        pass


class NeverCaptures(MujocoScene):
    def capture_state(self):
        raise StateCaptureUnsupported(
            "State capture is not supported for scenes with plugin actors."
        )


class Forgetful:
    """A scene of our own, without a close()."""

    def capture_state(self): ...
    def restore_state(self, handle): ...
    def release_state(self, handle): ...
    def step(self, dt): ...


def build(scene_class):
    return lambda: scene_class(mujoco.MjModel.from_xml_string(FALLING))


def test_a_mujoco_scene_passes():
    """The scene that environments use keeps its own promises."""
    check_scene(build(MujocoScene))


def test_a_state_without_warm_start_is_found():
    """What parts at the first contact is seen."""
    with pytest.raises(AssertionError, match="the same steps differ"):
        check_scene(build(WithoutWarmStart))


def test_a_state_without_applied_forces_is_found():
    """A push that was meant for another state is seen."""
    with pytest.raises(AssertionError, match="the same steps differ"):
        check_scene(build(WithoutForces))


def test_a_handle_that_outlives_its_release_is_found():
    """Use after release must raise."""
    with pytest.raises(AssertionError, match="restoring a released handle raises no error"):
        check_scene(build(ReusesHandles))


def test_a_scene_that_cannot_be_captured_is_found():
    """The scene's own reason is part of the message."""
    with pytest.raises(AssertionError, match="can't be shared: State capture is not supported"):
        check_scene(build(NeverCaptures))


def test_a_missing_method_is_found():
    """The message names it."""
    scene = Forgetful()
    scene.close = lambda: None
    with pytest.raises(TypeError, match="give check_scene dt, act and observe"):
        check_scene(lambda: scene)
    scene.capture_state = None
    with pytest.raises(AssertionError, match="Forgetful has no capture_state"):
        check_scene(lambda: scene)


def test_a_scene_of_another_engine_is_checked_through_functions():
    """Acting and observing by functions opens the check to any scene."""

    class Counter:
        def __init__(self, *, exact: bool) -> None:
            self.exact, self.value, self.next = exact, 0.0, 0
            self.states: dict[tuple[int, int], float] = {}

        def capture_state(self):
            self.next += 1
            self.states[id(self), self.next] = self.value
            return id(self), self.next

        def restore_state(self, handle):
            value = self.states[handle]
            self.value = value if self.exact else value + 1e-12

        def release_state(self, handle):
            del self.states[handle]

        def step(self, dt):
            self.value += dt

        def close(self):
            pass

    def check(*, exact: bool) -> None:
        check_scene(
            lambda: Counter(exact=exact),
            dt=0.1,
            act=lambda scene, rng: scene.step(rng.uniform()),
            observe=lambda scene: np.array([scene.value]),
        )

    check(exact=True)
    with pytest.raises(AssertionError, match="differ"):
        check(exact=False)
