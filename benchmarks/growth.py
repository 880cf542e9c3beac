"""Tells growth from noise in a series of measurements.

The measurements of one process are not independent: memory stays where it was for a while. So the
series is cut into blocks and a line is fitted to the means of the blocks, which are nearly
independent of each other; the interval of its slope is Student's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Growth", "count_growth", "memory_growth"]

# Dropped from the front: caches fill, columns of infos are learned, allocators take their arenas.
WARM_UP = 0.3
_BLOCKS = 10
# Two-sided 99 % quantiles of Student's t for 1, 2, … degrees of freedom.
_STUDENT = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355)


@dataclass(frozen=True)
class Growth:
    """What a series does after its warm-up.

    Attributes:
        slope: By how much it rises per unit of x.
        error: Half the width of the slope's 99 % interval; 0 for counts, which have no noise.
        total: What the slope makes over the measured part.
        grows: The verdict.
    """

    slope: float
    error: float
    total: float
    grows: bool


def memory_growth(x: ArrayLike, y: ArrayLike, *, floor: float, warm_up: float = WARM_UP) -> Growth:
    """Return whether a noisy quantity grows.

    It does if the interval of its slope lies above zero and its growth over the measured part is
    more than `floor`.

    Args:
        x: Where it was measured, rising.
        y: What was measured.
        floor: Growth up to this is put down to the allocator.
        warm_up: The share of measurements to drop from the front.

    Raises:
        ValueError: If fewer than three measurements are left after the warm-up.
    """
    xs, ys = _measured(x, y, warm_up)
    blocks = min(_BLOCKS, len(xs))
    if blocks < 3:
        raise ValueError(
            f"A slope's interval needs three measurements after the warm-up; got "
            f"{len(xs)}. Measure more often."
        )
    means_x = np.array([part.mean() for part in np.array_split(xs, blocks)])
    means_y = np.array([part.mean() for part in np.array_split(ys, blocks)])
    centred = means_x - means_x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ means_y) / spread
    residuals = means_y - means_y.mean() - slope * centred
    freedom = blocks - 2
    error = _STUDENT[freedom - 1] * float(np.sqrt(residuals @ residuals / freedom / spread))
    total = slope * float(xs[-1] - xs[0])
    return Growth(slope, error, total, grows=slope > error and total > floor)


def count_growth(x: ArrayLike, y: ArrayLike, *, warm_up: float = WARM_UP) -> Growth:
    """Return whether a count, which has no noise, is ever above what it was after the warm-up.

    The slope is that from the first measurement after the warm-up to the highest.

    Raises:
        ValueError: If fewer than two measurements are left after the warm-up.
    """
    xs, ys = _measured(x, y, warm_up)
    if len(xs) < 2:
        raise ValueError(
            f"A count needs two measurements after the warm-up; got {len(xs)}. Measure more often."
        )
    total = float(ys.max() - ys[0])
    return Growth(total / float(xs[-1] - xs[0]), 0.0, total, grows=total > 0)


def _measured(
    x: ArrayLike, y: ArrayLike, warm_up: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if xs.shape != ys.shape:
        raise ValueError(f"Each of {len(xs)} places has one measurement; got {len(ys)}.")
    first = int(len(xs) * warm_up)
    return xs[first:], ys[first:]
