"""Every field that may vary does so alike: on shared scenes, on scenes of one's own and at once."""

from __future__ import annotations

from operator import attrgetter

import mujoco
import numpy as np
import pytest
from gymnasium.spaces import Box
from mujoco.batch import MODEL_FIELDS

from superdex._batching import NotBatchable
from superdex.envs import SceneEnv
from superdex.envs._batch import SceneEnvBatch
from superdex.errors import SceneMismatch
from superdex.scenes import MujocoScene, _variation
from superdex.scenes._model_fields import names_of, why_fixed
from tests.scenes.rich_model import rich_model

FIELDS = [name for name in names_of(mujoco.MjModel) if why_fixed(name) is None]
FIELDS += [f"opt.{n}" for n in names_of(mujoco.MjOption) if why_fixed(f"opt.{n}") is None]
STEPS = 6
_state = mujoco.mjtState.mjSTATE_INTEGRATION.value


class Rich(SceneEnv):
    """Everything of the rich model in motion, with values of a field drawn at each reset."""

    array_hooks = True

    def __init__(self, cfg=None, **overrides):
        super().__init__(cfg, control_frequency=125, simulation_frequency=250, **overrides)
        model = model_for(self.varied_fields)
        size = model.nq + model.nv + model.na
        self._setup_observation_space(state=Box(-np.inf, np.inf, (size,), np.float32))
        self._setup_action_space(to=Box(-1, 1, (model.nu,)))
        self._load_scene("rich", lambda: (MujocoScene(model), None))

    def _draw_physics(self):
        model = self._scene.model
        return {name: drawn(model, name, self.np_random) for name in self.varied_fields}

    def _apply_action(self, action):
        self._scene.data.ctrl[:] = action["to"]

    def _make_observation(self):
        data = self._scene.data
        return {"state": np.concatenate([data.qpos, data.qvel, data.act], axis=-1)}, {}

    def _compute_reward_terms(self, action, observation, info):
        return {}


def model_for(names):
    """Return a new model in which MuJoCo takes values of these fields."""
    return rich_model("Euler" if any("flex_edge" in name for name in names) else "discrete")


def drawn(model, name, rng):
    """Return random values near the model's own."""
    own = attrgetter(name)(model)
    scaled = own * rng.uniform(0.9, 1.1, own.shape)
    values = np.where(own == 0, rng.uniform(0, 0.02, own.shape), scaled)
    if name.endswith(("delay", "interval")):  # of a buffer that has the length for the model's own
        values = np.minimum(values, own)
    if name in ("body_ipos", "body_iquat"):  # MuJoCo refuses it of bodies compiled as simple
        values[model.body_simple > 0] = own[model.body_simple > 0]
    if name == "jnt_axis":  # as of the cloth's sliders
        values[:] = np.where(np.isin(np.arange(model.njnt), hinges(model))[:, None], values, own)
    return values.astype(own.dtype)


def hinges(model):
    return np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)


def varied(*names):
    """Return a class that varies these."""
    return type("Varied", (Rich,), {"varied_fields": names})


def actions(seed):
    return np.random.default_rng(seed).uniform(-1, 1, (STEPS, 4)).astype(np.float32)


def one_by_one(cls, shared):
    """Return what two environments see in two episodes; and what the first sees in its first."""
    envs = [cls(use_shared_scenes=shared) for _ in range(2)]
    rows = []
    for episode in range(2):
        for seed, env in enumerate(envs):
            rows.append(env.reset(seed=seed + 2 * episode)[0])
        for action in actions(episode):
            for env in envs:
                rows.append(env.step(action)[0])
                if env is envs[0] and episode == 0:
                    rows.append(env._scene.data.sensordata.copy())
    for env in envs:
        env.close()
    return np.concatenate(rows).tobytes(), np.array(rows[2 : 2 + 3 * STEPS : 3])


def at_once(cls):
    """Return the observations of the first episode of two environments, (steps, 2, size)."""
    envs = [cls() for _ in range(2)]
    try:
        batch = SceneEnvBatch(envs)
        for seed, env in enumerate(envs):
            env.reset(seed=seed)
            batch.adopt(seed)
        seen = []
        for action in actions(0):
            observation = np.empty((2, *envs[0].observation_space.shape), np.float32)
            batch.step(np.stack([action] * 2), observation, np.empty(2))
            seen.append(observation)
        return np.array(seen)
    finally:
        for env in envs:
            env.close()


def plain_loop(name):
    """Return the observations of environment 0's first episode, by MuJoCo alone."""
    model = model_for([name])
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    state = np.empty(mujoco.mj_stateSize(model, _state))
    mujoco.mj_getState(model, data, state, _state)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(0)))
    attrgetter(name)(model)[...] = drawn(model_for([name]), name, rng)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    mujoco.mj_setState(model, data, state, _state)
    seen = []
    for action in actions(0):
        data.ctrl[:] = action
        mujoco.mj_step(model, data, 2)
        seen.append(np.concatenate([data.qpos, data.qvel, data.act]).astype(np.float32))
    return np.array(seen)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_varies_alike_on_shared_scenes_alone_and_at_once(name):
    """To the bit, and as in a loop that writes it into the model and calls `mj_setConst`."""
    cls = varied(name)
    shared, first = one_by_one(cls, shared=True)
    alone, _ = one_by_one(cls, shared=False)
    assert shared == alone
    np.testing.assert_array_equal(first, plain_loop(name))
    if name in MODEL_FIELDS:
        np.testing.assert_array_equal(at_once(cls)[:, 0], first)
    else:
        with pytest.raises(NotBatchable, match=f"^{name}, which varied_fields names, is common"):
            at_once(cls)


def test_two_that_draw_more_than_one_field_are_alike():
    """Fields from which the same constants follow."""
    cls = varied("body_gravcomp", "body_ipos", "geom_size", "hfield_data", "opt.gravity")
    assert one_by_one(cls, shared=True)[0] == one_by_one(cls, shared=False)[0]


def test_what_varies_makes_a_difference():
    """Else the comparisons above would show nothing."""
    bare = one_by_one(Rich, shared=False)[1]
    for name in ("body_mass", "body_gravcomp", "hfield_data", "mesh_vert", "geom_surfacevel"):
        assert (one_by_one(varied(name), shared=True)[1] != bare).any(), name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("body_maas", "there is no such field"),
        ("body_subtreemass", "MuJoCo computes it from other fields"),
        ("geom_rbound", "MuJoCo computes it from other fields"),
        ("geom_condim", "it is no array of floating-point numbers"),
        ("opt.timestep", "it is no array of floating-point numbers"),
        ("nbody", "it is no array of floating-point numbers"),
        ("stat.center", "there is no such field"),
    ],
)
def test_a_field_that_can_not_vary_is_refused_with_the_reason(name, reason):
    """At the first reset, and where environments are to be stepped at once."""
    env = varied(name)()
    with pytest.raises(ValueError, match=rf"got '{name}': {reason}"):
        env.reset(seed=0)
    env.close()


def test_values_that_mujoco_refuses_leave_the_model_as_it_was():
    """With MuJoCo's words, which say what to do."""

    class Simple(Rich):
        varied_fields = ("body_ipos",)

        def _draw_physics(self):
            return {"body_ipos": self._scene.model.body_ipos + 0.1}

    with Simple() as env:
        with pytest.raises(ValueError, match=r"body_ipos: .*use body/simple='false'"):
            env.reset(seed=0)
        env._scene.check_model()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", ["body_mass", "geom_size", "hfield_data", "opt.gravity"])
def test_a_varied_field_that_is_written_is_refused(name, shared):
    """On shared scenes and on its own: what varies comes from `_draw_physics`."""

    class Writes(Rich):
        varied_fields = (name,)

        def _reset_scene(self):
            attrgetter(name)(self._scene.model).reshape(-1)[-1] += 0.5

    with Writes(use_shared_scenes=shared) as env:
        with pytest.raises(SceneMismatch, match=rf"changed in {name}[,;].* in place of"):
            env.reset(seed=0)
        env._scene.check_varied()


@pytest.mark.parametrize("where", ["_draw_physics", "_apply_action", "outside"])
def test_a_varied_field_written_elsewhere_is_refused(where):
    """Before another environment's turn could drop it."""

    def write(self, *args):
        self._scene.model.body_mass[2] = 7.0
        return {}

    cls = varied("body_mass")
    with cls() as env, cls() as sibling:
        env.reset(seed=0)
        sibling.reset(seed=1)
        if where == "outside":
            write(env)
        else:
            setattr(env, where, lambda *args: write(env))
        with pytest.raises(SceneMismatch, match=r"changed in body_mass, which varied_fields names"):
            env.reset() if where == "_draw_physics" else env.step(env.action_space.sample())
        sibling.step(env.action_space.sample())


@pytest.mark.parametrize("name", ["body_mass", "hfield_data", "mesh_vert", "geom_condim"])
def test_a_field_that_is_written_at_reset_is_refused_with_what_to_do(name):
    """Also large ones; varied_fields is named where it helps."""

    class Writes(Rich):
        def _reset_scene(self):
            getattr(self._scene.model, name)[-1] += 1

    with Writes() as env, pytest.raises(SceneMismatch, match=f"changed in {name};") as raised:
        env.reset(seed=0)
    message = str(raised.value)
    assert "use_shared_scenes=False" in message
    assert (f"name {name} in the varied_fields of a SceneEnv" in message) == (name != "geom_condim")


def test_a_flag_that_is_set_at_reset_is_refused():
    """As `mj_setConst` sets it, called by the environment itself."""

    class Floats(Rich):
        def _reset_scene(self):
            model = self._scene.model
            model.body_gravcomp[:] = 1.0
            mujoco.mj_setConst(model, mujoco.MjData(model))

    with Floats() as env:
        with pytest.raises(SceneMismatch, match=r"body_gravcomp.*ngravcomp"):
            env.reset(seed=0)
        assert env._scene.model.ngravcomp == 0


def test_a_model_of_ones_own_may_be_changed_beside_what_varies():
    """A change that is made once stays, also of a field that `mj_setConst` writes into."""
    cls = varied("body_mass")
    with cls(use_shared_scenes=False) as env:
        model = env._scene.model
        env.reset(seed=0)
        model.geom_size[2] = 0.123
        model.eq_data[2, 1] = 0.7
        for seed in range(3):
            env.reset(seed=seed)
            assert (model.geom_size[2] == 0.123).all()
            assert model.eq_data[2, 1] == 0.7


def test_environments_of_one_scene_may_vary_other_fields():
    """Each has its own values and, of the other's fields, the model's."""

    class Rest(Rich):
        def __init__(self, varied_fields, **overrides):
            self.varied_fields = varied_fields
            super().__init__(**overrides)

    fields = [("body_mass",), ("geom_friction", "body_gravcomp")]
    rows = []
    for shared in (True, False):
        envs = [Rest(names, use_shared_scenes=shared) for names in fields]
        for seed, env in enumerate(envs):
            env.reset(seed=seed)
        rows.append([env.step(action)[0] for action in actions(0) for env in envs])
        for env in envs:
            env.close()
    np.testing.assert_array_equal(*rows)


def test_a_model_whose_flags_can_not_be_written_is_derived_at_each_turn(monkeypatch):
    """With a MuJoCo that lays out models otherwise the results are the same."""
    cls = varied("body_gravcomp")
    expected = one_by_one(cls, shared=False)[0]
    monkeypatch.setattr(_variation, "sizes_and_flags", lambda model: None)
    assert one_by_one(cls, shared=True)[0] == expected
