"""What arrays a batch consists of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["ArraySpec", "BatchSpec", "allocate"]


class ArraySpec(NamedTuple):
    """One array of a batch.

    Attributes:
        shape: Its shape; the first axis counts the environments.
        dtype: Its dtype.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


BatchSpec = dict[str, ArraySpec]
"""All arrays of a batch by name."""


def allocate(spec: Mapping[str, ArraySpec]) -> dict[str, np.ndarray]:
    """Return new arrays as `spec` says, filled with zeros.

    Example:
        >>> buffers = allocate({"reward": ArraySpec((4,), np.dtype(np.float64))})
        >>> buffers["reward"]
        array([0., 0., 0., 0.])
    """
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in spec.items()}
