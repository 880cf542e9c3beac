"""A short name for the physics of a model, by which states are told to fit."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import cache
from typing import cast

import mujoco
import numpy as np

from superdex.scenes._model_fields import is_compiled, is_picture, names_of

__all__ = ["digest_of"]


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
