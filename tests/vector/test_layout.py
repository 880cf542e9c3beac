"""Where every number of the batch lies in the block."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st

from superdex.vector._layout import ALIGNMENT, INFO_BYTES_PER_ENV, MAX_INFO_COLUMNS, batch_layout

OBSERVATION = Box(0, 255, (4, 3), np.uint8)
ACTION = Box(-1, 1, (2,), np.float32)


def make(num_workers=2, num_envs=5, **kwargs):
    return batch_layout(num_workers, num_envs, OBSERVATION, ACTION, **kwargs)


def test_arrays_have_the_shapes_of_the_batch():
    """One row per environment; two buffers to take turns, and one for calls for some rows."""
    fields = make().fields
    assert fields["action"].shape == (5, 2)
    assert fields["observation"].shape == (3, 5, 4, 3)
    assert fields["control"].shape[0] == 2
    for name in ("reward", "terminated", "truncated", "autoreset", "action_valid"):
        assert fields[name].shape == (3, 5)
    assert fields["info_mask"].shape == (3, MAX_INFO_COLUMNS, 5)
    assert fields["info_data"].shape == (3, INFO_BYTES_PER_ENV * 5)


def test_buffers_for_slots_count_only_where_they_are_used():
    """What no full step touches takes no memory, and is not asked for."""
    layout = make(final_observation=True)
    row = 2 * 12 + 8 + 4 + MAX_INFO_COLUMNS + INFO_BYTES_PER_ENV
    assert layout.nbytes_untouched == 5 * row


def test_arrays_have_the_dtypes_of_the_spaces():
    """Observations and actions as their spaces say, rewards float64, flags bool."""
    fields = make().fields
    assert fields["observation"].dtype == np.uint8
    assert fields["action"].dtype == np.float32
    assert fields["reward"].dtype == np.float64
    assert fields["terminated"].dtype == np.bool_


def test_final_observations_have_room_only_where_asked_for():
    """SAME_STEP alone pays for them."""
    assert "final_observation" not in make().fields
    final = make(final_observation=True).fields["final_observation"]
    assert (final.shape, final.dtype) == ((3, 5, 4, 3), np.uint8)


def test_views_are_the_bytes_of_the_buffer():
    """Two maps of one buffer see each other's writes."""
    layout = make()
    buffer = bytearray(layout.nbytes)
    ours, theirs = layout.views(memoryview(buffer)), layout.views(memoryview(buffer))
    ours["reward"][1, 3] = 2.5
    assert theirs["reward"][1, 3] == 2.5


def test_writing_one_array_in_full_touches_no_other():
    """Arrays do not overlap."""
    layout = make(final_observation=True)
    arrays = layout.views(memoryview(bytearray(layout.nbytes)))
    for name, array in arrays.items():
        array.view(np.uint8)[...] = 255
        assert all(not other.any() for key, other in arrays.items() if key != name)
        array.view(np.uint8)[...] = 0


def test_workers_have_a_cache_line_of_control_words_each():
    """No two workers write to one cache line of control words."""
    control = make(num_workers=3).fields["control"]
    assert control.dtype == np.int64
    assert control.shape[1] * control.dtype.itemsize % ALIGNMENT == 0


@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from([np.float32, np.float64, np.uint8, np.int32]),
    st.booleans(),
)
def test_arrays_are_aligned_apart_and_within_the_block(workers, envs, shape, dtype, final):
    """Whatever the spaces, every array starts on a cache line and none reaches into the next."""
    layout = batch_layout(
        workers, envs, Box(0, 1, tuple(shape), dtype), ACTION, final_observation=final
    )
    end = 0
    for field in sorted(layout.fields.values(), key=lambda field: field.offset):
        assert field.offset % ALIGNMENT == 0
        assert field.offset >= end
        end = field.offset + field.nbytes
    assert end <= layout.nbytes
