"""The table of model fields: every field of the installed MuJoCo is of a kind, and is as said."""

from __future__ import annotations

from operator import attrgetter

import mujoco
import numpy as np
import pytest

from superdex.scenes._exchange import digest_of
from superdex.scenes._guard import ModelGuard
from superdex.scenes._model_fields import is_compiled, is_picture, names_of, why_fixed
from superdex.scenes._model_memory import sizes_and_flags
from tests.scenes.rich_model import rich_model

OWNERS = {"": mujoco.MjModel, "opt.": mujoco.MjOption, "stat.": mujoco.MjStatistic}
STRUCTURES = {"opt", "stat", "vis"}
FIELDS = sorted(
    prefix + name
    for prefix, cls in OWNERS.items()
    for name in names_of(cls)
    if prefix + name not in STRUCTURES
)


def arrays_of(model):
    """Return every array by name, the empty ones too."""
    members = {name: attrgetter(name)(model) for name in FIELDS}
    return {name: value for name, value in members.items() if isinstance(value, np.ndarray)}


def kind_of(model, name):
    """Return which row of the table a field is in; None if it is in none."""
    value = attrgetter(name)(model)
    if isinstance(value, np.ndarray):
        if value.flags.owndata and value.size:
            return None  # a copy, in which a change would be no change of the model
        return "varies" if why_fixed(name) is None else "array"
    if isinstance(value, bytes):
        return "nobody can set it"
    if isinstance(value, int | float):
        owner, _, last = name.rpartition(".")
        if owner:
            return "number"
        if last in mujoco.MjModel._size_fields or last in mujoco.MjModel._setconst_scalars:
            return "size or flag"
        if getattr(mujoco.MjModel, last).fset is None:
            return "nobody can set it"
    return None


def changed(array, rng):
    """Write other numbers of the same order of size into an array."""
    if not array.size:
        return
    if array.dtype.kind == "f":
        array *= rng.uniform(1.01, 1.1, array.shape)
        array += np.where(array == 0, rng.uniform(0.001, 0.01, array.shape), 0)
    else:
        array.reshape(-1).view(np.uint8)[0] ^= 1  # of an index: the one beside it


def test_every_field_is_in_the_table():
    """A MuJoCo with a field of an unknown kind is noticed here."""
    model = rich_model()
    assert {name for name in FIELDS if kind_of(model, name) is None} == set()
    assert set(names_of(mujoco.MjModel)) >= set(mujoco.MjModel._all_fields)
    structures = {
        name
        for name in names_of(mujoco.MjModel)
        if not isinstance(getattr(model, name), int | float | bytes | np.ndarray)
    }
    assert structures == STRUCTURES


def test_the_model_has_something_of_nearly_every_kind():
    """What it lacks is named here: tests that walk over its fields skip it."""
    empty = {name for name, array in arrays_of(rich_model()).items() if not array.size}
    groups = ("skin_", "oct_", "plugin", "name_skin", "name_plugin")
    assert {name for name in empty if not name.startswith(groups)} == {
        *("flex_node", "flex_node0", "flex_nodebodyid", "flex_texcoord"),
        *("mesh_texcoord", "key_plastic"),
    }


def test_every_array_number_and_flag_is_guarded():
    """A change is noticed, named and put back; also of meshes and height fields of any size."""
    model = rich_model()
    guard = ModelGuard(model)
    built = bytes_of(model)
    for name, array in arrays_of(model).items():
        if not array.size:
            continue
        array.reshape(-1).view(np.uint8)[-1] ^= 1
        assert guard.undo_changes(thorough=name == "tex_data") == [name]
    for name in FIELDS:
        owner, _, last = name.rpartition(".")
        at = attrgetter(owner)(model) if owner else model
        value = getattr(at, last)
        if isinstance(value, np.ndarray) or getattr(type(at), last).fset is None:
            continue
        setattr(at, last, not value if isinstance(value, bool) else value + 1)
        assert name in guard.undo_changes(thorough=False)
        assert getattr(at, last) == value
    assert bytes_of(model) == built


def test_what_set_const_writes_into_sizes_and_flags_is_guarded():
    """They can't be set from Python, but `mj_setConst` sets them."""
    model = rich_model()
    guard = ModelGuard(model)
    assert (model.ngravcomp, model.flg_gravcomp, model.flg_adhesion) == (0, False, False)
    model.body_gravcomp[2] = model.geom_adhesion[1] = 1.0
    mujoco.mj_setConst(model, mujoco.MjData(model))
    changes = set(guard.undo_changes(thorough=False))
    assert changes >= {"ngravcomp", "flg_gravcomp", "flg_adhesion", "body_gravcomp"}
    assert (model.ngravcomp, model.flg_gravcomp, model.flg_adhesion) == (0, False, False)


def test_sizes_and_flags_are_found_in_memory():
    """All of a model's own numbers, and nothing of its options."""
    model = rich_model()
    address, size = sizes_and_flags(model)
    assert address == model._address
    assert size >= 8 * len(model._size_fields) + 3
    assert address + size < model.opt.gravity.__array_interface__["data"][0]


def test_set_const_of_what_was_compiled_changes_nothing():
    """So that what is drawn by itself, at once or not at all starts from the same constants."""
    model = rich_model()
    built = bytes_of(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    assert bytes_of(model) == built


def trajectory(model, steps=25):
    """Return what a plain loop of MuJoCo goes through, sensors included."""
    data = mujoco.MjData(model)
    data.ctrl[:] = 0.3
    rows = []
    for _ in range(steps):
        mujoco.mj_step(model, data)
        rows.append(np.concatenate([data.qpos, data.qvel, data.act, data.sensordata]))
    return np.array(rows).tobytes()


def test_pictures_move_nothing():
    """Whatever is in them, positions, velocities and sensors are the same to the bit."""
    expected = trajectory(rich_model())
    rng = np.random.default_rng(0)
    model = rich_model()
    for name, array in arrays_of(model).items():
        if is_picture(name):
            changed(array, rng)
    for part in names_of(mujoco.MjVisual):
        owner = getattr(model.vis, part)
        for name in names_of(type(owner)):
            value = getattr(owner, name)
            if isinstance(value, np.ndarray):
                changed(value, rng)
            elif isinstance(value, float):
                setattr(owner, name, value * 1.1 + 0.01)
    assert trajectory(model) == expected


def settable_fields():
    """Return the fields that count and that somebody can set in the rich model."""
    model = rich_model()
    for name in FIELDS:
        owner, _, last = name.rpartition(".")
        at = attrgetter(owner)(model) if owner else model
        value = getattr(at, last)
        can_be_set = value.size if isinstance(value, np.ndarray) else getattr(type(at), last).fset
        if can_be_set and not is_picture(name):
            yield name


@pytest.mark.parametrize("name", list(settable_fields()))
def test_what_is_no_picture_counts_in_the_name_of_a_model(name):
    """To the bit, but for what the compiler computes, which counts to single precision."""
    model = rich_model()
    before = digest_of(model)
    owner, _, last = name.rpartition(".")
    at = attrgetter(owner)(model) if owner else model
    value = getattr(at, last)
    scale = 1 + (1e-6 if is_compiled(name) else 1e-15)
    if isinstance(value, np.ndarray):
        flat = value.reshape(-1)
        if value.dtype.kind != "f":
            flat.view(np.uint8)[-1] ^= 1
        else:
            flat[-1] = flat[-1] * scale if abs(flat[-1]) > 1e-9 else 1e-9
            if value.dtype == np.float32:
                flat[-1] = np.nextafter(flat[-1], np.float32(np.inf))
    else:
        other = value * scale if value else 1e-9
        setattr(at, last, other if isinstance(value, float) else not value)
    assert digest_of(model) != before


@pytest.mark.parametrize("name", ["geom_rgba", "mat_rgba"])
def test_what_rays_pass_through_counts(name):
    """A colour says nothing of the physics, unless it is wholly transparent."""
    model = rich_model()
    before = digest_of(model)
    getattr(model, name)[0, :3] = 0.123
    assert digest_of(model) == before
    getattr(model, name)[0, 3] = 0.0
    assert digest_of(model) != before


def test_gravity_that_differs_in_the_last_bits_is_another_models():
    """What is written in the model file is the same on every machine."""
    model = rich_model()
    before = digest_of(model)
    model.opt.gravity[2] += 1e-9
    assert digest_of(model) != before


def test_last_bits_of_what_is_compiled_do_not_count():
    """Another machine may compute others."""
    model = rich_model()
    before = digest_of(model)
    model.body_inertia[2] *= 1 + 1e-15
    model.dof_invweight0[0] *= 1 + 1e-15
    assert digest_of(model) == before


def bytes_of(model):
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()
