"""Named boxes ↔ one flat vector, with everything precomputed.

`gymnasium.spaces.flatten` walks the space at every call, which takes a fifth of a cheap step. The
layout is worked out once per set of boxes and shared by all environments that declare the same.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

Structured = dict[str, NDArray[Any]]


class BoxLayout:
    """Where each of several named boxes lies in one flat box, in alphabetical order of names.

    Attributes:
        low: Lower bounds, (size,), read-only.
        high: Upper bounds, (size,), read-only.
        dtype: The common dtype of the boxes.
        size: How many numbers all boxes have together.
    """

    _known: ClassVar[dict[tuple[Any, ...], BoxLayout]] = {}

    def __init__(self, boxes: Mapping[str, Box]) -> None:
        named = sorted(boxes.items())
        self.dtype = np.result_type(*(box.dtype for _, box in named))
        self.low = _joined([box.low for _, box in named], self.dtype)
        self.high = _joined([box.high for _, box in named], self.dtype)
        self.size = self.low.size
        self._space = Box(self.low, self.high, dtype=self.dtype.type)
        for array in (self._space.low, self._space.high):
            array.flags.writeable = False  # all copies of the space have them
        self._places: list[tuple[str, slice, tuple[int, ...]]] = []
        start = 0
        for name, box in named:
            stop = start + math.prod(box.shape)
            self._places.append((name, slice(start, stop), box.shape))
            start = stop
        self._names = boxes.keys() | ()

    @classmethod
    def of(cls, boxes: Mapping[str, Box]) -> BoxLayout:
        """Return the layout of some boxes, the same object for equal ones.

        Raises:
            ValueError: There is no box.
            TypeError: A space is no `Box`.
        """
        if not boxes:
            raise ValueError("Declare at least one named Box")
        for name, box in boxes.items():
            if not isinstance(box, Box):
                raise TypeError(f"{name} must be a gymnasium.spaces.Box, got {box!r}")
        key = tuple(
            (name, box.shape, box.dtype.str, box.low.tobytes(), box.high.tobytes())
            for name, box in sorted(boxes.items())
        )
        layout = cls._known.get(key)
        if layout is None:
            layout = cls._known[key] = cls(boxes)
        return layout

    def space(self) -> Any:
        """Return a new flat `Box`: each environment samples from a generator of its own.

        Its bounds are read-only and shared, so that a thousand environments hold them once.
        """
        return copy.copy(self._space)

    def labels(self) -> list[str]:
        """Return a name for each entry of a flat vector, such as speed[1]."""
        return [
            f"{name}[{', '.join(map(str, index))}]" if math.prod(shape) != 1 else name
            for name, _, shape in self._places
            for index in np.ndindex(shape)
        ]

    def flatten(self, structured: Mapping[str, Any]) -> NDArray[Any]:
        """Return the values as one new vector, (size,).

        Shapes are taken on trust (`check` doesn't): a scalar fills its box.
        """
        flat = np.empty(self.size, self.dtype)
        for name, place, shape in self._places:
            value = structured[name]
            flat[place] = value if len(shape) == 1 else np.reshape(value, -1)
        return flat

    def flatten_rows(self, structured: Mapping[str, Any], out: NDArray[Any]) -> None:
        """Write values (K, *shape) by name into `out`, (K, size), in its dtype."""
        for name, place, shape in self._places:
            value = structured[name]
            out[:, place] = value if len(shape) == 1 else np.reshape(value, (len(out), -1))

    def check(self, structured: Mapping[str, Any], what: str, rows: int | None = None) -> None:
        """Check that the values have the declared names and shapes.

        Args:
            structured: The values by name.
            what: They are, for messages.
            rows: The length of their leading axis; None where they have none.

        Raises:
            ValueError: A name is missing or unknown, or a shape is another one.
        """
        if structured.keys() != self._names:
            names, got = sorted(self._names), sorted(structured, key=str)
            raise ValueError(f"{what} must have the keys {names}, got {got}")
        for name, _, shape in self._places:
            if rows is not None:
                shape = (rows, *shape)
            value = structured[name]
            got = value.shape if isinstance(value, np.ndarray) else np.shape(value)
            if got != shape and not (got == () and math.prod(shape) == 1):
                raise ValueError(f"{what} {name!r} must have shape {shape}, got {got}")

    def views(self, flat: NDArray[Any]) -> Structured:
        """Return a flat vector's parts by name, as views of it."""
        return {
            name: flat[place] if len(shape) == 1 else flat[place].reshape(shape)
            for name, place, shape in self._places
        }

    def rows(self, flat: NDArray[Any]) -> Structured:
        """Return the parts of (K, size) vectors by name, as views (K, *shape) of them."""
        return {
            name: flat[:, place].reshape(len(flat), *shape) for name, place, shape in self._places
        }

    def to_flat(self, structured: Mapping[str, Any], what: str) -> NDArray[Any]:
        """Return values (…, *shape) by name as one new array, (…, size).

        Raises:
            ValueError: Names or shapes are not the declared ones.
        """
        names = [name for name, _, _ in self._places]
        if sorted(structured) != names:
            raise ValueError(f"{what} must have the keys {names}, got {sorted(structured)}")
        parts = []
        for name, _, shape in self._places:
            part = np.asarray(structured[name], self.dtype)
            leading = part.shape[: part.ndim - len(shape)]
            if part.shape != leading + shape:
                raise ValueError(f"{what} {name!r} must have shape (…, *{shape}), got {part.shape}")
            parts.append(part.reshape(*leading, -1))
        return np.concatenate(parts, axis=-1)

    def to_structured(self, flat: Any, what: str) -> Structured:
        """Return an array (…, size) as new arrays (…, *shape) by name.

        Raises:
            ValueError: The last axis has another length.
        """
        flat = np.asarray(flat, self.dtype)
        if flat.ndim == 0 or flat.shape[-1] != self.size:
            raise ValueError(f"{what} must have shape (…, {self.size}), got {flat.shape}")
        return {
            name: flat[..., place].reshape(*flat.shape[:-1], *shape).copy()
            for name, place, shape in self._places
        }

    def clipped(self, flat: Any) -> NDArray[Any]:
        """Return an action as a new vector within the bounds.

        Raises:
            ValueError: The shape is not (size,), it holds no real numbers (for a box of integers,
                no integers), or a number is not finite.
        """
        action = np.asarray(flat)
        if action.dtype != self.dtype:
            action = self._converted(action)
        if action.shape != self.low.shape:
            raise ValueError(f"The action must have shape {self.low.shape}, got {action.shape}")
        # A sum is finite only if every number is; a sum may overflow, and then each is looked at.
        if not math.isfinite(sum(action.tolist())) and not np.isfinite(action).all():
            raise ValueError(f"The action must be finite, got {action}")
        clipped: NDArray[Any] = np.minimum(np.maximum(action, self.low), self.high)
        return clipped

    def clipped_rows(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return actions (K, size), of the layout's dtype and finite, as new ones in the bounds."""
        clipped: NDArray[Any] = np.minimum(np.maximum(flat, self.low), self.high)
        return clipped

    def _converted(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return numbers in the layout's dtype; those that are too large for it at its limits."""
        if action.dtype.kind not in ("biuf" if self.dtype.kind == "f" else "biu"):
            numbers = "real numbers" if self.dtype.kind == "f" else "integers"
            raise ValueError(f"The action must hold {numbers}, got dtype {action.dtype}")
        limits = np.finfo(self.dtype) if self.dtype.kind == "f" else np.iinfo(self.dtype)
        if action.dtype.kind != "b":
            # Infinities stay, and are refused as such.
            inside = np.clip(action, limits.min, limits.max)
            action = np.where(np.isfinite(action), inside, action)
        return action.astype(self.dtype)


def _joined(parts: list[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the bounds in one read-only vector."""
    joined = np.concatenate([np.reshape(part, -1) for part in parts]).astype(dtype)
    joined.flags.writeable = False
    return joined
