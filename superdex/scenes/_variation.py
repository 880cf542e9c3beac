"""Values of model fields that differ between the environments on one scene.

A model belongs to everyone on the scene. An environment with a mass or a friction of its own puts
its values in before it is used, like its state, together with what MuJoCo derives from them
(`mj_setConst`); it costs microseconds, where a model of its own would cost a megabyte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Variation", "Variations", "needs_constants"]

_DERIVED = (
    *("body_subtreemass", "body_invweight0", "dof_M0", "dof_invweight0", "dof_length"),
    *("tendon_length0", "tendon_invweight0", "tendon_lengthspring"),
    *("actuator_acc0", "actuator_length0", "actuator_lengthrange"),
    *("cam_pos0", "cam_poscom0", "cam_mat0", "light_pos0", "light_poscom0", "light_dir0"),
    *("flexedge_length0", "flexedge_invweight0", "eq_data", "stat.center"),
)
"""Arrays that `mj_setConst` writes."""

_DERIVED_NUMBERS = ("meaninertia", "meanmass", "meansize", "extent")
"""Statistics that it writes; the first one scales the solver's tolerance."""

Variation = tuple[dict[str, NDArray[Any]], dict[str, float], dict[str, NDArray[Any]]]
"""Arrays and statistics of one environment, derived ones included; and the values it was given."""


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
        ValueError: If there is no such field, or it is no array of floating-point numbers.
    """

    def __init__(self, model: mujoco.MjModel, names: Sequence[str]) -> None:
        self._model = model
        self.names = tuple(names)
        for name in self.names:
            view = _view(model, name)
            if view is None or view.dtype.kind != "f" or view.flags.owndata:
                raise ValueError(
                    f"varied_fields must name arrays of floating-point numbers in MjModel, such as "
                    f"'body_mass' or 'opt.gravity', got {name!r}"
                )
        self._derives = needs_constants(self.names)
        arrays = [*self.names, *(_DERIVED if self._derives else ())]
        views = {name: _view(model, name) for name in arrays}
        self._views = {n: v for n, v in views.items() if v is not None and v.size}
        self._nominal = self._read({})
        self._current: Variation | None = None
        self._scratch = mujoco.MjData(model) if self._derives else None

    def _read(self, given: dict[str, NDArray[Any]]) -> Variation:
        arrays = {name: view.copy() for name, view in self._views.items()}
        numbers = {}
        if self._derives:
            numbers = {name: getattr(self._model.stat, name) for name in _DERIVED_NUMBERS}
        return arrays, numbers, given

    def derive(self, values: Mapping[str, ArrayLike]) -> Variation:
        """Return a variation with these values, and put it in.

        Args:
            values: By field; one that is left out has the model's own. Each fits the field's shape.

        Raises:
            ValueError: If a field was not declared, or a value does not fit or is not finite.
        """
        given = {name: self._checked(name, value) for name, value in values.items()}
        self.apply(None)
        for name, value in given.items():
            self._views[name][...] = value
        if self._derives:
            mujoco.mj_setConst(self._model, self._scratch)
        self._current = self._read(given)
        return self._current

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
        return array

    @property
    def current(self) -> Variation | None:
        """The one that is in the model now; None for the model's own values."""
        return self._current

    def apply(self, variation: Variation | None) -> None:
        """Put a variation into the model, or with None the model's own values."""
        if variation is self._current:
            return
        arrays, numbers, _ = self._nominal if variation is None else variation
        for name, view in self._views.items():
            view[...] = arrays[name]
        for name, number in numbers.items():
            setattr(self._model.stat, name, number)
        self._current = variation


def _view(model: mujoco.MjModel, name: str) -> Any:
    """Return the live array of a field, or None where there is none."""
    owner: Any = model
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    value = getattr(owner, last, None)
    return value if isinstance(value, np.ndarray) else None
