"""Partitions of a batch, and arrays as a spec says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.buffers import ArraySpec, allocate, slot_partitions


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_slots_are_balanced_contiguous_and_complete(sizes):
    """Their sizes differ by one at most, the larger ones come first, and none is empty."""
    num_envs, n = sizes
    slots = slot_partitions(num_envs, n)
    assert isinstance(slots, tuple)
    assert np.concatenate(slots).tolist() == list(range(num_envs))
    lengths = [len(slot) for slot in slots]
    assert len(lengths) == n
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1
    assert {slot.dtype for slot in slots} == {np.dtype(np.int32)}


@pytest.mark.parametrize("n", [0, 5, -1, 2.0, True, None, "2"])
def test_impossible_numbers_of_slots_are_refused(n):
    """More than there are environments, none, or no number."""
    with pytest.raises(ValueError, match="n must be an integer from 1 to 4"):
        slot_partitions(4, n)


def test_allocated_arrays_are_as_the_spec_says():
    """Zeros of its shapes and dtypes."""
    spec = {"a": ArraySpec((3, 2), np.dtype(np.float32)), "b": ArraySpec((3,), np.dtype(bool))}
    arrays = allocate(spec)
    assert {k: ArraySpec(v.shape, v.dtype) for k, v in arrays.items()} == spec
    assert not any(array.any() for array in arrays.values())
