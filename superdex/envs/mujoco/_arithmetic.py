"""Arithmetic over a leading axis of environments that gives each row the bits of a row alone.

Gymnasium computes rewards for one environment at a time. NumPy rounds the same formula differently
where it takes another routine for an array of rows, so each function here says which one it takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["euclidean_norm", "mass_center", "power_of_two", "squared_sum"]


def squared_sum(vectors: NDArray[Any]) -> Any:
    """Return the sums of squares of vectors (…, n), (…,), as `np.sum(np.square(vector))` of each.

    Their dtype stays: for actions it is float32.
    """
    return np.square(vectors).sum(axis=-1)


def euclidean_norm(vectors: NDArray[np.float64]) -> Any:
    """Return the lengths of vectors (…, n), (…,), as `np.linalg.norm(vector)` of each.

    That takes the dot product from BLAS, which fuses multiplications and additions; so does
    `matmul` of a row by a column.
    """
    return np.sqrt(np.matmul(vectors[..., None, :], vectors[..., :, None])[..., 0, 0])


def power_of_two(numbers: Any) -> Any:
    """Return numbers (…,) raised to 2, as `number**2` of each NumPy scalar.

    A scalar is raised by the C library's `pow`, which is not always rounded as a product is; an
    array is multiplied. Python's floats are raised by `pow` too.
    """
    return np.asarray(np.asarray(numbers, object) ** 2, np.float64)


def mass_center(masses: NDArray[np.float64], positions: NDArray[np.float64]) -> Any:
    """Return where the centres of mass are in x and y, (…, 2), as Gymnasium's Humanoid does.

    Args:
        masses: Of the bodies, (bodies,).
        positions: Their centres, (…, bodies, 3).
    """
    weighted = np.einsum("b,...bj->...j", masses, positions)
    return (weighted / masses.sum())[..., 0:2]
