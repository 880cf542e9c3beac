"""Capturing, restoring and stepping a MuJoCo scene, to the bit."""

from __future__ import annotations

import threading
import time

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superdex.errors import ClosedError, SceneMismatch, StateCaptureUnsupported
from superdex.scenes import MujocoScene, Scene

# A box and a pole fall on the floor; there is an actuator with a state of its own, a mocap body
# welded to a ball, and an equality constraint that can be switched off.
EVERYTHING = """
<mujoco>
  <option timestep="0.005" integrator="implicitfast"/>
  <size nuserdata="2"/>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body name="box" pos="0 0 0.3"><freejoint/><geom type="box" size="0.1 0.12 0.09"/></body>
    <body name="arm" pos="1 0 0.5">
      <joint name="hinge" type="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0.45 0 0.1"/>
    </body>
    <body name="target" mocap="true" pos="-1 0 0.5"><geom size="0.05" contype="0"/></body>
    <body name="ball" pos="-1 0 0.5"><freejoint/><geom size="0.08"/></body>
  </worldbody>
  <equality><weld body1="target" body2="ball"/></equality>
  <actuator><general joint="hinge" dyntype="filter" dynprm="0.2" gainprm="3"/></actuator>
</mujoco>
"""


@pytest.fixture
def scene():
    scene = MujocoScene.from_xml_string(EVERYTHING)
    yield scene
    scene.close()


def disturb(scene: MujocoScene, rng: np.random.Generator) -> None:
    """Write into everything that a user may write into."""
    data = scene.data
    data.ctrl[:] = rng.uniform(-1, 1, data.ctrl.shape)
    data.xfrc_applied[1:] = rng.uniform(-1, 1, data.xfrc_applied[1:].shape)
    data.qfrc_applied[:] = rng.uniform(-0.1, 0.1, data.qfrc_applied.shape)
    data.mocap_pos[:] += rng.uniform(-0.01, 0.01, data.mocap_pos.shape)
    data.userdata[:] = rng.uniform(size=2)
    data.eq_active[:] = rng.uniform() > 0.2


def run(scene: MujocoScene, seed: int, num_steps: int = 50) -> np.ndarray:
    """Return the motion under seeded disturbances."""
    rng = np.random.default_rng(seed)
    seen = []
    for _ in range(num_steps):
        disturb(scene, rng)
        scene.step(0.01)
        data = scene.data
        seen.append(
            np.concatenate(
                [[data.time], data.qpos, data.qvel, data.act, data.qacc, data.qfrc_constraint]
            )
        )
    return np.stack(seen)


def test_it_is_a_scene(scene):
    """MujocoScene has what the protocol asks for."""
    assert isinstance(scene, Scene)


@pytest.mark.parametrize("warm_up", [0, 3, 40, 150])
def test_restored_steps_are_bit_equal_with_contacts(scene, warm_up):
    """Capture, 50 steps, restore, 50 steps: the same, in the air and on the floor."""
    run(scene, 0, warm_up) if warm_up else None
    handle = scene.capture_state()
    first = run(scene, 1)
    assert scene.data.ncon > 0 or warm_up < 40
    run(scene, 2, 20)
    scene.restore_state(handle)
    assert np.array_equal(run(scene, 1), first)


def test_a_state_holds_all_that_moves_or_is_set(scene):
    """Warm start, controls, applied forces, mocap, activation, constraints and clock go back."""
    run(scene, 0, 30)
    names = [
        "qpos",
        "qvel",
        "act",
        "qacc_warmstart",
        "ctrl",
        "qfrc_applied",
        "xfrc_applied",
        "mocap_pos",
        "mocap_quat",
        "eq_active",
        "userdata",
        "xpos",
        "xipos",
    ]
    before = {name: getattr(scene.data, name).copy() for name in names}
    before_time = scene.data.time
    handle = scene.capture_state()
    run(scene, 1, 30)
    for name in names:
        getattr(scene.data, name)[...] = 0
    scene.restore_state(handle)
    assert scene.data.time == before_time
    for name in names:
        assert np.array_equal(getattr(scene.data, name), before[name]), name


@settings(max_examples=15, deadline=None)
@given(order=st.lists(st.integers(0, 3), min_size=4, max_size=24), seed=st.integers(0, 99))
def test_interleaved_states_move_as_scenes_of_their_own(order, seed):
    """Four states in any order on one scene move as four scenes do."""
    shared = MujocoScene.from_xml_string(EVERYTHING)
    alone = [MujocoScene.from_xml_string(EVERYTHING) for _ in range(4)]
    handles = [shared.capture_state() for _ in range(4)]
    for turn, k in enumerate(order):
        shared.restore_state(handles[k])
        assert np.array_equal(shared.data.xpos, alone[k].data.xpos)
        assert np.array_equal(run(shared, seed + turn, 8), run(alone[k], seed + turn, 8))
        shared.release_state(handles[k])
        handles[k] = shared.capture_state()


def test_declared_fields_are_what_an_unshared_scene_reads_before_a_step(scene):
    """After a restore xpos is the one that mj_step left, not one computed anew."""
    run(scene, 0, 30)
    left_by_step = scene.data.xpos.copy()
    handle = scene.capture_state()
    run(scene, 1, 30)
    scene.restore_state(handle)
    assert np.array_equal(scene.data.xpos, left_by_step)
    mujoco.mj_forward(scene.model, scene.data)
    assert not np.array_equal(scene.data.xpos, left_by_step)


def test_other_fields_can_be_declared():
    """Any array field of MjData that lasts between steps can be saved."""
    scene = MujocoScene.from_xml_string(EVERYTHING, fields=("cvel", "ten_length"))
    run(scene, 0, 10)
    before = scene.data.cvel.copy()
    handle = scene.capture_state()
    run(scene, 1, 10)
    scene.restore_state(handle)
    assert np.array_equal(scene.data.cvel, before)


@pytest.mark.parametrize("name", ["efc_force", "time", "nonsense", "contact"])
def test_a_field_that_does_not_last_is_refused(name):
    """Arena arrays, scalars and unknown names can't be saved."""
    with pytest.raises(ValueError, match=f"fields must name array fields .* got '{name}'"):
        MujocoScene.from_xml_string(EVERYTHING, fields=(name,))


def test_released_handles_are_dead_even_where_their_memory_lives_on(scene):
    """A released handle neither restores nor releases the state that took its buffer."""
    old = scene.capture_state()
    scene.release_state(old)
    new = scene.capture_state()
    with pytest.raises(ValueError, match="released already"):
        scene.restore_state(old)
    with pytest.raises(ValueError, match="released already"):
        scene.release_state(old)
    scene.restore_state(new)


def test_buffers_are_used_again(scene):
    """Capturing and releasing in turn keeps as many buffers as states were alive at once."""
    handle = scene.capture_state()
    for _ in range(20):
        new = scene.capture_state()
        scene.release_state(handle)
        handle = new
    assert len(scene._states) + len(scene._free) == 2


def test_another_scenes_handle_is_refused(scene):
    """Handles are unique in the process."""
    other = MujocoScene.from_xml_string(EVERYTHING)
    with pytest.raises(ValueError, match="another scene"):
        scene.restore_state(other.capture_state())


def test_step_takes_whole_timesteps(scene):
    """0.01 s at a timestep of 0.005 s are two steps, and the clock says so."""
    scene.step(0.01)
    assert scene.data.time == pytest.approx(0.01)
    scene.step(1 / 200)
    assert scene.data.time == pytest.approx(0.015)


@pytest.mark.parametrize("dt", [0.0, -0.005, 0.004, 0.0075, float("nan"), float("inf")])
def test_a_dt_that_is_no_whole_number_of_timesteps_is_refused(scene, dt):
    """The error says what the timestep is."""
    with pytest.raises(ValueError, match=r"whole number of the model's timesteps of 0\.005 s"):
        scene.step(dt)
    assert scene.data.time == 0


def test_a_missing_model_file_is_named(tmp_path):
    """The error is Python's own for it, with the whole path; a damaged file is MuJoCo's matter."""
    missing = tmp_path / "no_robot.xml"
    with pytest.raises(FileNotFoundError, match="no model file") as caught:
        MujocoScene.from_xml_path(missing)
    assert caught.value.filename == str(missing)
    missing.write_text("<mujoco")
    with pytest.raises(ValueError, match="XML"):
        MujocoScene.from_xml_path(missing)


def test_refresh_computes_derived_quantities_and_leaves_the_state(scene):
    """After refresh, xpos is that of the state, and the state is the same to the bit."""
    run(scene, 0, 30)
    before = scene.capture_state()
    scene.refresh()
    moved = scene.data.xpos.copy()
    handle = scene.capture_state()
    assert np.array_equal(scene.read_state(handle), scene.read_state(before))
    fresh = mujoco.MjData(scene.model)
    fresh.qpos[:] = scene.data.qpos
    fresh.mocap_pos[:] = scene.data.mocap_pos
    mujoco.mj_kinematics(scene.model, fresh)
    assert np.allclose(moved, fresh.xpos, atol=1e-12)


def test_a_look_leaves_no_trace(scene):
    """Inside refreshed(), derived quantities are fresh; afterwards all is as before."""
    run(scene, 0, 30)
    handle = scene.capture_state()
    left_by_step = scene.data.xpos.copy()
    with scene.refreshed():
        assert not np.array_equal(scene.data.xpos, left_by_step)
    assert np.array_equal(scene.data.xpos, left_by_step)
    looked = run(scene, 1)
    scene.restore_state(handle)
    assert np.array_equal(run(scene, 1), looked)


def test_steps_within_a_look_count(scene):
    """Where the body of refreshed() steps, the fields are those of its last step."""
    run(scene, 0, 30)
    with scene.refreshed():
        scene.step(0.01)
        after_step = scene.data.xpos.copy()
    assert np.array_equal(scene.data.xpos, after_step)


def test_a_model_with_plugins_has_no_capturable_state():
    """The refusal is the documented sentence."""
    plugins = """
    <mujoco>
      <extension><plugin plugin="mujoco.pid"><instance name="pid">
        <config key="kp" value="4.0"/></instance></plugin></extension>
      <worldbody><body><joint name="j"/><geom size="0.1"/></body></worldbody>
      <actuator><plugin joint="j" plugin="mujoco.pid" instance="pid"/></actuator>
    </mujoco>
    """
    scene = MujocoScene.from_xml_string(plugins)
    sentence = "State capture is not supported for scenes with plugin actors."
    with pytest.raises(StateCaptureUnsupported, match=f"^{sentence}$"):
        scene.capture_state()
    scene.step(0.002)
    scene.reset()
    assert scene.data.time == 0


def test_two_threads_at_once_are_refused(scene):
    """While one thread steps, another one's step raises, and the scene stays usable."""
    with scene._stepping, pytest.raises(RuntimeError, match="Two threads step one scene"):
        scene.step(0.01)
    scene.step(0.01)


def test_real_threads_collide_loudly(scene):
    """Two threads stepping without a break hit the check; it is no matter of luck."""
    collisions = []
    stop = threading.Event()

    def step_on() -> None:
        while not stop.is_set():
            try:
                scene.step(5.0)
            except RuntimeError as error:
                collisions.append(error)
                stop.set()

    threads = [threading.Thread(target=step_on) for _ in range(2)]
    deadline = time.monotonic() + 20
    for thread in threads:
        thread.start()
    while not stop.is_set() and time.monotonic() < deadline:
        stop.wait(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert collisions


def test_one_thread_after_another_is_fine(scene):
    """A scene belongs to no thread."""
    scene.step(0.01)
    thread = threading.Thread(target=scene.step, args=(0.01,))
    thread.start()
    thread.join()
    assert scene.data.time == pytest.approx(0.02)


def test_a_closed_scene_says_so(scene):
    """Every use after close() is ClosedError; closing twice is fine."""
    handle = scene.capture_state()
    scene.step(0.01)
    scene.close()
    scene.close()
    for use in (
        scene.capture_state,
        lambda: scene.restore_state(handle),
        lambda: scene.release_state(handle),
        lambda: scene.step(0.01),
        scene.refresh,
        lambda: scene.data,
    ):
        with pytest.raises(ClosedError):
            use()


def test_a_scene_is_built_from_text_file_or_spec(tmp_path):
    """The three ways give the same model."""
    path = tmp_path / "scene.xml"
    path.write_text(EVERYTHING)
    scenes = [
        MujocoScene.from_xml_string(EVERYTHING),
        MujocoScene.from_xml_path(path),
        MujocoScene.from_spec(mujoco.MjSpec.from_string(EVERYTHING)),
    ]
    motions = [run(scene, 0) for scene in scenes]
    assert np.array_equal(motions[0], motions[1])
    assert np.array_equal(motions[0], motions[2])


def test_a_model_that_lets_bodies_sleep_has_no_capturable_state():
    """Who is asleep is part of no state; the scene works all the same."""
    ball = "<body pos='0 0 0.3'><freejoint/><geom size='0.1'/></body>"
    scene = MujocoScene.from_xml_string(
        f"<mujoco><option><flag sleep='enable'/></option><worldbody>{ball}</worldbody></mujoco>"
    )
    sentence = "State capture is not supported for scenes with sleeping actors."
    with pytest.raises(StateCaptureUnsupported, match=f"^{sentence}$"):
        scene.capture_state()
    scene.step(0.002)
    scene.reset()
    assert scene.data.time == 0


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda model: model.body_mass.__setitem__(1, 7.0), "body_mass"),
        (lambda model: model.geom_friction.__setitem__((0, 0), 0.1), "geom_friction"),
        (lambda model: model.opt.gravity.__setitem__(2, 0.0), "opt.gravity"),
        (lambda model: setattr(model.opt, "timestep", 0.5), "opt.timestep"),
        (lambda model: setattr(model.opt, "density", 1.2), "opt.density"),
        (lambda model: setattr(model.stat, "meaninertia", 3.0), "stat.meaninertia"),
    ],
)
def test_a_change_to_a_protected_model_is_named_and_undone(scene, change, name):
    """Arrays, options and statistics; the model is then as it was."""
    before = model_bytes(scene.model)
    scene.protect_model()
    change(scene.model)
    assert model_bytes(scene.model) != before
    with pytest.raises(SceneMismatch, match=f"changed in {name};"):
        scene.check_model(thorough=False)
    assert model_bytes(scene.model) == before
    scene.check_model()


def test_every_array_of_a_model_is_protected(scene):
    """Whatever array is written into, the change is found and undone."""
    scene.protect_model()
    model = scene.model
    for name in dir(model):
        array = getattr(model, name)
        if name.startswith("_") or not isinstance(array, np.ndarray) or not array.size:
            continue
        before = array.copy()
        array.reshape(-1).view(np.uint8)[-1] ^= 1
        with pytest.raises(SceneMismatch, match=rf"changed in {name};"):
            scene.check_model()
        assert array.tobytes() == before.tobytes()


def test_large_arrays_are_looked_at_on_request():
    """A texture is compared by a thorough check only, what lies around it by both."""
    texture = "<texture name='sky' type='2d' builtin='flat' width='512' height='512'/>"
    scene = MujocoScene.from_xml_string(
        f"<mujoco><asset>{texture}</asset><worldbody><body><geom size='1'/></body></worldbody>"
        "</mujoco>"
    )
    scene.protect_model()
    scene.model.tex_data[0] ^= 1
    scene.check_model(thorough=False)
    with pytest.raises(SceneMismatch, match="tex_data"):
        scene.check_model()
    for name in ("qpos0", "geom_size", "body_mass", "name_geomadr"):
        array = getattr(scene.model, name)
        if array.size:
            array[0] += 1
            with pytest.raises(SceneMismatch, match=name):
                scene.check_model(thorough=False)
    scene.close()


def test_a_model_of_ones_own_may_be_changed(scene):
    """Nothing is checked where nobody asked for protection."""
    scene.model.opt.gravity[2] = 0.0
    scene.check_model()
    assert scene.model.opt.gravity[2] == 0.0


def model_bytes(model: mujoco.MjModel) -> bytes:
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()
