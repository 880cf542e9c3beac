"""Gymnasium's spaces for the arrays of a batch, and masks over action ids."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from superdex.buffers import ArraySpec

__all__ = ["array_space", "mask_over_ids"]


def array_space(spec: ArraySpec) -> spaces.Box:
    """Return the space of one row of an array of integers: all that its dtype can hold."""
    bounds = np.iinfo(spec.dtype)
    return spaces.Box(bounds.min, bounds.max, spec.shape[1:], spec.dtype.type)


def mask_over_ids(batch: Mapping[str, np.ndarray], num_actions: int) -> np.ndarray:
    """Return which ids are listed as legal: (rows, num_actions) int8, 1 where one is."""
    mask = np.zeros((len(batch["action_id"]), num_actions), np.int8)
    rows, entries = np.nonzero(batch["action_mask"])
    mask[rows, batch["action_id"][rows, entries]] = 1
    return mask
