"""What a hook reads is the environment's own, on a shared scene and in a batch, bit for bit."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from superdex.envs import StopReasons
from superdex.states import VectorState
from superdex.testing import check_array_hooks
from superdex.vector import HybridVectorEnv
from tests.envs.derived import VARIANTS, XML, Onlooker, fields_of, look, onlooker

SETTINGS = {"control_frequency": 50, "simulation_frequency": 200, "steps_per_episode": 7}
NUM_ENVS = 5


def vector(cls, *, batched, shared=True, mode=AutoresetMode.NEXT_STEP):
    made = type("Onlooker", (cls,), {"array_hooks": batched})
    fns = [lambda: made({**SETTINGS, "use_shared_scenes": shared})] * NUM_ENVS
    return HybridVectorEnv(fns, num_workers=1, in_process=True, autoreset_mode=mode)


def plain_loop(cls, seed, actions):
    """Return what each hook sees in a loop over one `MjData`, with MuJoCo alone."""
    model = mujoco.MjModel.from_xml_string(XML.format(**VARIANTS[cls.variant]))
    data = mujoco.MjData(model)
    state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))

    def forward():
        mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(model, data)
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)

    rng = np.random.default_rng(seed)
    forward()
    data.qpos[:2] += rng.uniform(-0.3, 0.3, 2)
    data.qvel[:] = rng.uniform(-1, 1, model.nv)
    data.mocap_pos[:] += rng.uniform(-0.1, 0.1, data.mocap_pos.shape)
    forward()
    seen = []
    for action in actions:
        before = look(data, cls.names, ())
        for _ in range(4):
            applying = look(data, cls.names, ())
            data.ctrl[:] = action
            data.qfrc_applied[:] = 0.1 * data.qfrc_bias
            data.qfrc_applied[0] -= data.site_xpos[0, 2]
            mujoco.mj_step(model, data)
        seen.append(np.stack([before, applying, look(data, cls.names, ())]))
    return np.stack(seen)


def named(cls, observations):
    """Return observations by hook, (…, size) each."""
    env = cls(SETTINGS)
    try:
        return env.to_structured_observation(observations)
    finally:
        env.close()


def assert_same(got, expected, cls, what):
    """Assert equality to the bit, and name the fields that differ."""
    if np.array_equal(got, expected, equal_nan=True):
        return
    data = mujoco.MjData(mujoco.MjModel.from_xml_string(XML.format(**VARIANTS[cls.variant])))
    sizes = [np.asarray(getattr(data, name)).size for name in cls.names]
    owner = np.repeat(cls.names, sizes)
    wrong = ~((got == expected) | (np.isnan(got) & np.isnan(expected)))
    bad = np.flatnonzero(wrong.reshape(-1, wrong.shape[-1]).any(axis=0))
    where = np.argwhere(wrong.any(axis=-1))[:5].tolist()
    raise AssertionError(f"{what}: {sorted(set(owner[bad % len(owner)]))} differ, first at {where}")


@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "batched"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_hooks_see_what_a_plain_loop_over_one_simulation_sees(variant, batched):
    """Every field of fixed size, before, amid and after the physics, from the first step on."""
    cls = onlooker(variant)
    actions = np.random.default_rng(0).uniform(-1, 1, (6, NUM_ENVS, 3)).astype(np.float32)
    with vector(cls, batched=batched) as envs:
        envs.reset(seed=7)
        steps = [envs.step(a) for a in actions]
        assert bool(envs.statistics().steps_at_once[0]) is batched
    ended = np.cumsum([s.terminated for s in steps], axis=0)
    seen = named(cls, np.stack([s.observation for s in steps]))
    seen = np.stack([seen[name] for name in ("before", "applying", "observing")], axis=2)
    for index in range(NUM_ENVS):
        going = int((ended[:, index] == 0).sum()) + 1
        expected = plain_loop(cls, 7 + index, actions[:, index])
        assert_same(seen[:going, index], expected[:going], cls, f"environment {index}")


def story(envs, seed):
    """Return the results of steps, partial resets, restores, forks, looks and partial steps."""
    rng = np.random.default_rng(seed)
    results = []

    def note(result):
        rewards = getattr(result, "reward", np.zeros(len(result.observation)))
        results.append(np.column_stack([result.observation, rewards]))

    def act(count=NUM_ENVS):
        return rng.uniform(-1, 1, (count, 3)).astype(np.float32)

    note(envs.reset(seed=seed))
    state = None
    for step in range(24):
        note(envs.step(act()))
        if step % 5 == 1:
            note(envs.reset_envs([1, 3]))
        if step % 7 == 3:
            state = envs.capture_states()
        if step % 7 == 5:
            envs.restore_states(state)
        if step % 9 == 4:
            envs.fork(envs.capture_states([0]), [2, 4])
        if step % 4 == 2:
            envs.get_attr("count")
    return results


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("variant", VARIANTS)
def test_batched_and_shared_equal_scenes_of_their_own(variant, mode):
    """Through episode ends, partial resets, restores, forks and looks from outside."""
    cls = onlooker(variant)
    stories = []
    for batched, shared in ((False, False), (False, True), (True, True)):
        with vector(cls, batched=batched, shared=shared, mode=mode) as envs:
            stories.append(story(envs, seed=3))
    for which, told in (("shared", stories[1]), ("batched", stories[2])):
        for step, (got, expected) in enumerate(zip(told, stories[0], strict=True)):
            got, expected = named(cls, got[:, :-1]), named(cls, expected[:, :-1])
            for hook in got:
                assert_same(got[hook], expected[hook], cls, f"{which}, result {step}, {hook}")


@pytest.mark.parametrize("first_look", [1, 2, 3, 5])
def test_a_field_that_is_first_read_late_is_right_at_once(first_look):
    """In whatever hook and step a field is asked for first."""
    cls = onlooker("implicitfast", first_look=first_look)
    stories = []
    for batched in (False, True):
        with vector(cls, batched=batched) as envs:
            stories.append(story(envs, seed=5))
    for step, (got, expected) in enumerate(zip(*stories, strict=True)):
        assert np.array_equal(got, expected, equal_nan=True), f"result {step} differs"


@pytest.mark.parametrize(
    "hook", ["_before_step", "_apply_action", "_make_observation", "_check_stop_criteria"]
)
@pytest.mark.parametrize("name", ["contact", "efc_force"])
def test_contacts_in_array_hooks_are_refused_by_name(hook, name):
    """A batch has no contacts: the error at construction names field and hook."""

    def read(self, *args):
        getattr(self._scene.data, name)
        return getattr(super(cls, self), hook)(*args)

    cls = onlooker(names=["qpos"], **{hook: read})
    with pytest.raises(TypeError, match=rf"\.{hook} can't run: data\.{name} is not in a batch"):
        vector(cls, batched=True)
    vector(cls, batched=False).close()


def test_fields_of_the_family_are_all_there_are():
    """The family looks at some sixty fields at least, and leaves out those written in part."""
    assert len(fields_of("Euler")) > 60
    assert set(fields_of("Euler")) - set(fields_of("implicitfast")) <= {"wrap_xpos", "wrap_obj"}


def through_functions(data, model):
    """Return what MuJoCo's functions make of the data, and its contacts and constraints."""
    jacobian = np.zeros((3, model.nv))
    mujoco.mj_jacSite(model, data, jacobian, None, 0)
    mass = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass)
    forces = np.zeros((data.ncon, 6))
    for contact in range(data.ncon):
        mujoco.mj_contactForce(model, data, contact, forces[contact])
    distances = [contact.dist for contact in data.contact]
    mujoco.mj_rnePostConstraint(model, data)
    parts = [jacobian, mass, data.cfrc_ext, data.energy, [data.ncon, data.nefc], data.efc_force]
    numbers = np.concatenate([np.ravel(part) for part in (*parts, *forces, distances)])
    return np.concatenate([numbers, np.zeros(600)])[:600]


class ThroughFunctions(Onlooker):
    """Reads the data before it steps by functions that take it, contacts included."""

    names = ("qpos",)

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, **overrides)
        self._setup_observation_space(seen=Box(-np.inf, np.inf, (600,), np.float64))
        self.array_hooks = False

    def _before_step(self):
        self.seen = through_functions(self._scene.data, self._scene.model)

    def _apply_action(self, action):
        data = self._scene.data
        data.ctrl[:] = action["push"] + 0.01 * data.ncon
        data.qfrc_applied[:] = 0.1 * data.qfrc_bias

    def _make_observation(self):
        return {"seen": getattr(self, "seen", np.zeros(600))}, {}

    def _check_stop_criteria(self, observation, info):
        return StopReasons.where(terminated={"Tilted": abs(self._scene.data.qpos[1]) > 0.6})


def test_functions_that_take_the_data_see_the_environments_own():
    """Jacobians, mass matrix, contact forces, constraints: shared as alone, after restores too."""
    stories = []
    for shared in (False, True):
        with vector(ThroughFunctions, batched=False, shared=shared) as envs:
            stories.append(story(envs, seed=11))
    for step, (got, expected) in enumerate(zip(*stories, strict=True)):
        assert np.array_equal(got, expected), f"result {step} differs"
    assert max(np.abs(result[:, 100:]).max() for result in stories[0]) > 0


def test_contacts_are_exact_in_another_process():
    """A state that went through a file, into another vector, has the contacts of the last step."""
    actions = np.random.default_rng(0).uniform(-1, 1, (12, NUM_ENVS, 3)).astype(np.float32)
    with vector(ThroughFunctions, batched=False) as envs:
        envs.reset(seed=2)
        for action in actions[:6]:
            envs.step(action)
        file = envs.capture_states().to_bytes()
        expected = [envs.step(action).observation for action in actions[6:]]
    for shared in (True, False):
        with vector(ThroughFunctions, batched=False, shared=shared) as envs:
            envs.restore_states(VectorState.from_bytes(file))
            got = [envs.step(action).observation for action in actions[6:]]
        assert np.array_equal(got, expected), f"shared={shared}"


def test_data_passed_to_a_function_in_array_hooks_is_refused_by_name():
    """The error at construction names the hook, and says what to do."""

    def before_step(self):
        mujoco.mj_energyPos(self._scene.model, self._scene.data)

    cls = onlooker(names=["qpos"], _before_step=before_step)
    with pytest.raises(TypeError, match=r"_before_step can't run: it passes the data of a batch"):
        vector(cls, batched=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_check_for_array_hooks_passes_whatever_the_hooks_read(variant):
    """In every autoreset mode, and in several splits."""
    cls = onlooker(variant, array_hooks=True)
    check_array_hooks(lambda: cls(SETTINGS), num_steps=20)
