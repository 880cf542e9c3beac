"""What the fields of a MuJoCo model are: which can vary, which are derived, which only show.

============  ====================================================  ================================
Kind          Which                                                 On a shared scene
============  ====================================================  ================================
varies        floating-point arrays of the model and of its         each environment's own where
              options                                               `varied_fields` names it, else
                                                                    guarded
derived       what `mj_setConst` computes from others, flags and    goes with the values it is
              some sizes included                                   computed from; guarded
fixed         integers, names, sizes; numbers of the options and    guarded
              the statistics
pictures      `model.vis`                                           moves nothing; left alone
============  ====================================================  ================================

What is guarded is compared with what was built whenever an environment is reset; see `ModelGuard`.
Large arrays that only show (textures) wait for a thorough look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import mujoco
import numpy as np

__all__ = ["advice", "is_compiled", "is_picture", "names_of", "varying_view", "why_fixed"]

_DERIVED = frozenset(mujoco.MjModel._setconst_outputs) - frozenset(mujoco.MjModel._setconst_inputs)
"""What `mj_setConst` computes, whatever it was before."""

_PICTURES = (
    *("tex_", "skin_", "light_", "mat_", "nskin", "nlight", "nmat"),
    *("name", "nnames", "path", "npaths", "signature", "nbuffer", "narena"),
)
_PICTURES_WITHIN = ("rgba", "texcoord", "pathadr")

_COMPILED = frozenset(
    {
        *mujoco.MjModel._setconst_outputs,
        *("qpos0", "qpos_spring", "body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass"),
        *("body_inertia", "jnt_pos", "jnt_axis", "jnt_range", "geom_pos", "geom_quat"),
        *("site_pos", "site_quat", "site_size", "cam_pos", "cam_quat", "cam_fovy"),
        *("cam_intrinsic", "wrap_prm", "tendon_lengthspring", "tendon_range"),
        *("actuator_gainprm", "actuator_biasprm", "actuator_dynprm", "actuator_lengthrange"),
        *("actuator_ctrlrange", "pair_friction", "key_qpos", "key_mpos", "key_mquat"),
    }
)
_COMPILED_GROUPS = ("mesh_", "flex", "oct_", "bvh_", "stat.")


def names_of(cls: type) -> list[str]:
    """Return the names of the fields of a MuJoCo structure."""
    return [
        name
        for name in dir(cls)
        if not name.startswith("_") and isinstance(getattr(cls, name), property)
    ]


@cache
def is_picture(name: str) -> bool:
    """Return whether a field of `MjModel` only shows, names or counts bytes, and moves nothing.

    Colours that are wholly transparent are an exception: rays pass through such geoms.
    """
    return (
        name in ("ntex", "ntexdata")
        or name.startswith(_PICTURES)
        or any(part in name for part in _PICTURES_WITHIN)
    )


@cache
def is_compiled(name: str) -> bool:
    """Return whether MuJoCo's compiler computes a field, so that machines may differ in last bits.

    It turns angles and frames, finds the mass of shapes and the hulls of meshes. All else is as the
    model file says, on any machine.

    Args:
        name: In `MjModel`, or with "opt." or "stat." before it.
    """
    return name in _COMPILED or name.startswith(_COMPILED_GROUPS)


def why_fixed(name: str) -> str | None:
    """Return in words why a model field can't vary between environments; None where it can.

    Args:
        name: In `MjModel`, or with "opt." before it.
    """
    if name in _DERIVED:
        return "MuJoCo computes it from other fields (mj_setConst), so vary those"
    owner, _, last = name.rpartition(".")
    cls = {"": mujoco.MjModel, "opt": mujoco.MjOption}.get(owner)
    if cls is None or last not in names_of(cls):
        return "there is no such field"
    view = attrgetter(name)(_smallest_model())
    if not isinstance(view, np.ndarray) or view.dtype.kind != "f":
        return "it is no array of floating-point numbers"
    return None


def varying_view(model: mujoco.MjModel, name: str) -> Any:
    """Return the live array of a field that may vary.

    Raises:
        ValueError: If it can't, with the reason.
    """
    reason = why_fixed(name)
    if reason is not None:
        raise ValueError(
            f"varied_fields must name arrays of floating-point numbers in MjModel, such as "
            f"'body_mass' or 'opt.gravity', got {name!r}: {reason}"
        )
    return attrgetter(name)(model)


def advice(changed: Iterable[str], declared: Collection[str]) -> str:
    """Return what to do in place of changing fields of a shared model.

    Args:
        changed: The fields.
        declared: Those that varied_fields names.
    """
    drawn = [name for name in changed if name in declared]
    varying = [name for name in changed if name not in declared and why_fixed(name) is None]
    ways = []
    if drawn:
        ways.append(
            f"Return this episode's values of {', '.join(drawn)} from _draw_physics, in place of "
            "writing them."
        )
    if varying:
        ways.append(
            "For values that differ between environments or episodes (domain randomization), name "
            f"{', '.join(varying)} in the varied_fields of a SceneEnv and return them from its "
            "_draw_physics."
        )
    ways.append(
        "For all environments, change the model in the scene's builder and put the setting into "
        "the scene's name and fields. Or give each environment its own scene "
        "(use_shared_scenes=False)."
    )
    return " ".join(ways)


@cache
def _smallest_model() -> mujoco.MjModel:
    """Return a model whose arrays have the types of any model's."""
    return mujoco.MjModel.from_xml_string("<mujoco/>")
