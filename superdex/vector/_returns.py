"""What environments return: checked, converted, and explained where it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from superdex.vector._notices import Notices

__all__ = ["ObservationCast", "as_reward", "checked_info", "end_reasons", "explained"]


class ObservationCast:
    """Brings the observations of a group to their space's dtype.

    Args:
        space: The space of each environment.
        indices: The environments' indices in the batch.
        notices: Told of the first lossy cast.

    Attributes:
        dtype: The canonical object of the dtype, so that a hot path can compare by identity.
        shape: The shape of an observation.
    """

    def __init__(self, space: Box, indices: range, notices: Notices) -> None:
        assert space.dtype is not None
        self.dtype: np.dtype[Any] = np.dtype(space.dtype.type)
        self.shape = space.shape
        self._indices = indices
        self._notices = notices

    def __call__(self, row: int, observation: Any) -> np.ndarray:
        """Return the observation of the environment at `row` in the space's dtype.

        Raises:
            ValueError: If its shape is not the space's.
            TypeError: If it is not made of numbers.
        """
        if (
            observation.__class__ is np.ndarray
            and observation.dtype is self.dtype
            and observation.shape == self.shape
        ):
            return observation
        array = np.asarray(observation)
        if array.shape != self.shape:
            raise ValueError(
                f"The observation has shape {array.shape}, its space has {self.shape}."
            )
        if array.dtype.kind not in "biuf":
            raise TypeError(f"The observation has dtype {array.dtype}, its space has {self.dtype}.")
        with np.errstate(invalid="ignore", over="ignore"):
            converted = array.astype(self.dtype, copy=False)
        if not np.can_cast(array.dtype, self.dtype, "safe"):
            self._check_lossless(row, array, converted)
        return converted

    def _check_lossless(self, row: int, array: np.ndarray, converted: np.ndarray) -> None:
        if self._notices.seen("lossy observation"):
            return
        with np.errstate(invalid="ignore"):
            lossless = np.array_equal(converted.astype(array.dtype), array, equal_nan=True)
        if not lossless:
            self._notices.once(
                "lossy observation",
                f"Environment {self._indices[row]} returns observations of dtype {array.dtype}; "
                f"they are cast to its space's dtype, {self.dtype}, which loses digits.",
            )


def as_reward(reward: Any) -> float:
    """Return a scalar-like reward as a float.

    Raises:
        TypeError: If it is none of a number, a 0-d array or an array of shape (1,).
    """
    if (
        isinstance(reward, np.ndarray)
        and reward.shape in ((), (1,))
        and reward.dtype.kind in "biuf"
    ):
        return float(reward.item())
    if isinstance(reward, bool | int | float | np.bool_ | np.integer | np.floating):
        return float(reward)
    raise TypeError(f"The reward must be a number or an array of shape () or (1,), got {reward!r}.")


def checked_info(info: Any) -> dict[Any, Any]:
    """Return the info as a plain dict: a `Counter`, say, makes values up for keys it lacks."""
    if not isinstance(info, dict):
        raise TypeError(f"The info must be a dict, got {info!r}.")
    return info if type(info) is dict else dict(info)


def end_reasons(info: dict[Any, Any], terminated: Any, truncated: Any) -> dict[str, str]:
    """Return why an episode ended: the environment's own words, else plain ones."""
    reasons = {}
    for flag, key, plain in (
        (terminated, "terminated_reason", "terminated"),
        (truncated, "truncated_reason", "time limit"),
    ):
        if flag:
            reason = info.get(key)
            reasons[key] = reason if isinstance(reason, str) and reason else plain
    return reasons


def explained(error: BaseException, call: str, expected: str) -> BaseException:
    """Return the error in plain words where unpacking what a call returned is what failed."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    ours = traceback is not None and traceback.tb_frame.f_globals.get("__package__") == __package__
    if ours and isinstance(error, TypeError | ValueError) and "unpack" in str(error):
        return TypeError(f"{call} must return {expected}: {error}")
    return error
