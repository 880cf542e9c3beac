"""A MuJoCo state as plain numbers that fit any scene of the same model, in any process.

What is captured is what `MujocoScene` captures: `mjSTATE_INTEGRATION` and the fields that an
environment reads before it steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, cast

import mujoco
import numpy as np
from numpy.typing import NDArray

from superdex.scenes._model_fields import is_compiled, is_picture, names_of

__all__ = [
    "SIGNATURE",
    "check_numbers",
    "digest_of",
    "numbers_of",
    "put_numbers",
    "sized_fields",
]

SIGNATURE = int(mujoco.mjtState.mjSTATE_INTEGRATION)


def numbers_of(
    model: mujoco.MjModel, data: mujoco.MjData, fields: Mapping[str, NDArray[Any]]
) -> dict[str, Any]:
    """Return the present state of a simulation.

    Args:
        model: The model.
        data: The data.
        fields: Arrays to save beside it, by name; they are copied.
    """
    state = np.empty(mujoco.mj_stateSize(model, SIGNATURE))
    mujoco.mj_getState(model, data, state, SIGNATURE)
    return {"integration": state, "fields": {name: np.array(f) for name, f in fields.items()}}


def check_numbers(model: mujoco.MjModel, fields: Mapping[str, NDArray[Any]], numbers: Any) -> None:
    """Check that numbers are a state of this model, with these fields.

    Raises:
        ValueError: If they are not.
    """
    state = numbers["integration"]
    size = mujoco.mj_stateSize(model, SIGNATURE)
    if state.shape != (size,) or state.dtype != np.float64:
        raise ValueError(
            f"The state is of another model: expected {size} numbers, got shape {state.shape} of "
            f"{state.dtype}."
        )
    for name, view in fields.items():
        saved = numbers["fields"].get(name)
        if saved is None:
            raise ValueError(
                f"The state lacks the field {name!r}, which environments read before a step here: "
                f"expected {sorted(fields)}, got {sorted(numbers['fields'])}."
            )
        if saved.shape != view.shape or saved.dtype != view.dtype:
            raise ValueError(
                f"The state is of another model: expected {name} of shape {view.shape}, got "
                f"{saved.shape}."
            )


def put_numbers(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    fields: Mapping[str, NDArray[Any]],
    numbers: dict[str, Any],
) -> None:
    """Put a state that was checked into a simulation, and compute what derives from it.

    The fields are as they were saved, one timestep behind, as `mj_step` leaves them.
    """
    state = numbers["integration"]
    mujoco.mj_setState(model, data, state, SIGNATURE)
    mujoco.mj_forward(model, data)
    mujoco.mj_setState(model, data, state, SIGNATURE)  # mj_forward changes the warm start
    for name, view in fields.items():
        view[...] = numbers["fields"][name]


def sized_fields(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return the names of the numbers in a simulation whose count does not depend on its state.

    A step leaves most of what it derives one timestep behind. What depends on contacts and other
    constraints, which come and go, is not among them.
    """
    fresh = mujoco.MjData(model)  # it has none of those yet
    arrays = {name: getattr(fresh, name) for name in names_of(mujoco.MjData)}
    return tuple(
        name
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and array.size and array.dtype.kind == "f"
    )


def digest_of(model: mujoco.MjModel) -> str:
    """Return a short name for the physics of a model: equal for models that move alike.

    Names and pictures are left out. All else counts to the bit, but for what MuJoCo's compiler
    computes (angles, frames, masses of shapes, hulls of meshes): that counts to single precision,
    since another machine may compute its last bits otherwise, and goes on to other last bits in any
    case.
    """
    digest = hashlib.blake2b(digest_size=8)
    for prefix, owner in (("", model), ("opt.", model.opt), ("stat.", model.stat)):
        for name, last in _counting_names(cast(Hashable, type(owner)), prefix):
            value = getattr(owner, last)
            if isinstance(value, np.ndarray):
                if name.endswith("rgba"):
                    value = value[..., 3] == 0  # rays, and so sensors, see no geom of such a colour
                elif value.dtype == np.float64 and is_compiled(name):
                    value = value.astype(np.float32)
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(value).data)
            elif isinstance(value, bytes):
                digest.update(value)
            elif isinstance(value, int | float):
                number = np.float32(value) if is_compiled(name) else value
                digest.update(f"{name}={number!r}".encode())
    return digest.hexdigest()


@cache
def _counting_names(cls: Hashable, prefix: str) -> tuple[tuple[str, str], ...]:
    """Return the fields of a MuJoCo structure that tell what it is, with and without prefix."""
    names = [(prefix + name, name) for name in names_of(cast(type, cls))]
    return tuple((n, last) for n, last in names if n.endswith("rgba") or not is_picture(n))
