"""A short name for the physics of a model, by which states are told to fit."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import cache
from typing import cast

import mujoco
import numpy as np

from superdex.scenes._guard import LARGE, names_of

__all__ = ["digest_of"]


def digest_of(model: mujoco.MjModel) -> str:
    """Return a short name for the physics of a model: equal for models that move alike.

    Large arrays (meshes, textures, height fields) are left out, as are names and pictures. Numbers
    count to single precision, since another machine may compile the last bits otherwise.
    """
    digest = hashlib.blake2b(digest_size=8)
    for owner in (model, model.opt, model.stat):
        for name in _counting_names(cast(Hashable, type(owner))):
            value = getattr(owner, name)
            if isinstance(value, np.ndarray):
                if value.nbytes < LARGE:
                    digest.update(name.encode())
                    single = value.astype(np.float32) if value.dtype.kind == "f" else value
                    digest.update(single.tobytes())
            elif isinstance(value, int | float):
                digest.update(f"{name}={np.float32(value)!r}".encode())
    return digest.hexdigest()


@cache
def _counting_names(cls: Hashable) -> tuple[str, ...]:
    """Return the fields of a MuJoCo structure that tell what it is."""
    places = ("path", "name", "signature", "nbuffer", "narena", "rgba", "tex")
    return tuple(n for n in names_of(cast(type, cls)) if not any(place in n for place in places))
