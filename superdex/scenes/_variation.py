"""Values of model fields that differ between the environments on one scene.

A model belongs to everyone on the scene. An environment with a mass or a friction of its own puts
its values in before it is used, like its state, together with what MuJoCo derives from them; it
costs microseconds, where a model of its own would cost a megabyte.

What follows from what is MuJoCo's own knowledge: `mj_setConst` computes all that is derived, arrays
and the sizes and flags by which a step leaves out what no body needs (`ngravcomp`). Which fields it
reads and writes is listed in `MjModel._setconst_inputs` and `_setconst_outputs`. It takes longer
than a step, so it runs once for each draw, and what came out other than the model's own is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from superdex.scenes._model_fields import varying_view
from superdex.scenes._model_memory import is_as, place_of, put, sizes_and_flags, taken

__all__ = ["Variation", "Variations", "needs_constants"]


class Variation(NamedTuple):
    """What one environment has in place of the model's own.

    Attributes:
        given: The values that it was given, read-only.
        arrays: Their bytes, and those of all arrays that came out otherwise for it.
        sizes_and_flags: All of them; None where none is other than the model's own.
    """

    given: dict[str, NDArray[Any]]
    arrays: dict[str, bytes]
    sizes_and_flags: bytes | None


_OWN = Variation({}, {}, None)
_IN_AND_OUT = frozenset(mujoco.MjModel._setconst_outputs) & frozenset(
    mujoco.MjModel._setconst_inputs
)


def needs_constants(names: Sequence[str]) -> bool:
    """Return whether what MuJoCo derives from a model depends on one of these fields."""
    inputs = mujoco.MjModel._setconst_inputs
    return any(name in inputs or name.startswith("opt.") for name in names)


class Variations:
    """Puts values of model fields into a model and takes them out again.

    Args:
        model: The model, as it was built.
        names: The fields that vary: floating-point arrays of `MjModel`, or "opt.gravity" and
            other arrays of its options.

    Raises:
        ValueError: If there is no such field, it is no array of floating-point numbers, or MuJoCo
            computes it from others.
    """

    def __init__(self, model: mujoco.MjModel, names: Sequence[str]) -> None:
        self._model = model
        self.names = tuple(dict.fromkeys(names))
        self._views = {name: varying_view(model, name) for name in self.names}
        self._derives = needs_constants(self.names)
        arrays = dict(self._views)
        if self._derives:
            arrays |= {name: getattr(model, name) for name in mujoco.MjModel._setconst_outputs}
        self._addresses = {name: place_of(view)[0] for name, view in arrays.items() if view.size}
        self._own = {name: taken(place_of(arrays[name])) for name in self._addresses}
        self._header = sizes_and_flags(model) if self._derives else None
        self._own_header = b"" if self._header is None else taken(self._header)
        self._current: Variation | None = None
        self._scratch = mujoco.MjData(model) if self._derives else None

    def take_own(self) -> None:
        """Take what is in the model as its own values, of fields that nobody declared.

        For a model of one environment, which may change it. `mj_setConst` writes into some of them
        (`geom_size` of meshes), so they would go back with what varies.
        """
        for name in _IN_AND_OUT - set(self.names):
            if name in self._own:
                self._own[name] = taken((self._addresses[name], len(self._own[name])))

    def derive(self, values: Mapping[str, ArrayLike]) -> Variation:
        """Return a variation with these values, and put it in.

        Args:
            values: By field; one that is left out has the model's own. Each fits the field's shape.

        Raises:
            ValueError: If a field was not declared, a value does not fit or is not finite, or
                MuJoCo refuses it.
        """
        given = {name: self._checked(name, value) for name, value in values.items()}
        self.apply(None)
        try:
            for name, value in given.items():
                self._views[name][...] = value
            if self._derives:
                self._set_constants(given)
            self._current = self._read(given)
        except BaseException:
            self._put_all()
            raise
        return self._current

    def _set_constants(self, given: Mapping[str, Any]) -> None:
        try:
            mujoco.mj_setConst(self._model, self._scratch)
        except mujoco.FatalError as error:
            raise ValueError(
                f"MuJoCo can't take these values of {', '.join(given)}: {error}"
            ) from error

    def _read(self, given: dict[str, NDArray[Any]]) -> Variation:
        arrays = {
            name: taken((address, len(self._own[name])))
            for name, address in self._addresses.items()
            if not is_as(address, self._own[name])
        }
        header = None
        if self._header is not None and not is_as(self._header[0], self._own_header):
            header = taken(self._header)
        return Variation(given, arrays, header)

    def _checked(self, name: str, value: ArrayLike) -> NDArray[Any]:
        if name not in self.names:
            raise ValueError(
                f"{name!r} is not among the environment's varied_fields, {list(self.names)}"
            )
        view = self._views[name]
        try:
            array = np.array(np.broadcast_to(np.asarray(value, view.dtype), view.shape))
        except ValueError:
            raise ValueError(
                f"{name} must fit the shape {view.shape}, got {np.shape(value)}"
            ) from None
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got {array}")
        array.flags.writeable = False
        return array

    @property
    def current(self) -> Variation | None:
        """The one that is in the model now; None for the model's own values."""
        return self._current

    def apply(self, variation: Variation | None) -> None:
        """Put a variation into the model, or with None the model's own values."""
        if variation is self._current:
            return
        before, after = self._current or _OWN, variation or _OWN
        for name in before.arrays:
            if name not in after.arrays:
                put(self._addresses[name], self._own[name])
        for name, memory in after.arrays.items():
            put(self._addresses[name], memory)
        if self._header is None:
            if self._derives:
                mujoco.mj_setConst(self._model, self._scratch)
        elif before.sizes_and_flags != after.sizes_and_flags:
            put(self._header[0], after.sizes_and_flags or self._own_header)
        self._current = variation

    def undo_changes(self) -> list[str]:
        """Put back the varied fields that someone else wrote into, and return their names."""
        arrays = (self._current or _OWN).arrays
        changed = []
        for name in self.names:
            address = self._addresses.get(name)
            if address is None:
                continue
            memory = arrays.get(name) or self._own[name]
            if not is_as(address, memory):
                put(address, memory)
                changed.append(name)
        return changed

    def _put_all(self) -> None:
        """Put the model's own values in, whatever is there."""
        for name, address in self._addresses.items():
            put(address, self._own[name])
        if self._header is not None:
            put(self._header[0], self._own_header)
        self._current = None
