"""Tensors on our buffers: the same memory, not a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superdex.buffers import allocate
from tests.vector.envs import walk_actions, walks

torch: Any = pytest.importorskip("torch")


def start(tensor: Any) -> int:
    return int(tensor.data_ptr())


@pytest.mark.parametrize("in_process", [True, False])
def test_tensors_share_the_memory_of_allocated_buffers(make, in_process):
    """Every array of them, whatever its dtype; a step is seen in the tensors, without a copy."""
    envs = make(walks(6), num_workers=2, in_process=in_process, autoreset_mode="SameStep")
    handles = [envs.bind(buffers) for buffers in envs.allocate_buffers(count=2)]
    tensors = [
        {name: torch.from_numpy(array) for name, array in handle.buffers.items()}
        for handle in handles
    ]
    for handle, views in zip(handles, tensors, strict=True):
        for name, array in handle.buffers.items():
            assert start(views[name]) == array.ctypes.data
    handles[0].reset(seed=1)
    for step, actions in enumerate(walk_actions(8, 6)):
        handle, views = handles[(step + 1) % 2], tensors[(step + 1) % 2]
        handle.step(actions)
        expected = envs.observe_slots(range(6))
        for name in ("observation", "reward", "terminated", "truncated", "state_id"):
            assert np.array_equal(views[name].numpy(), getattr(expected, name))


def test_tensors_share_the_memory_of_foreign_buffers(make):
    """Those of `allocate` too."""
    envs = make(walks(6), num_workers=2)
    buffers = allocate(envs.batch_spec())
    seen = torch.from_numpy(buffers["observation"])
    assert start(seen) == buffers["observation"].ctypes.data
    envs.reset_into(buffers, seed=1)
    assert np.array_equal(seen.numpy(), envs.observe_slots(range(6)).observation)


def test_buffers_may_be_the_memory_of_tensors(make):
    """The other way round: arrays of tensors that torch allocated are written to in place."""
    envs = make(walks(6), num_workers=2)
    kinds = {name: torch.from_numpy(np.zeros(1, s.dtype)).dtype for name, s in _spec(envs)}
    tensors = {name: torch.zeros(spec.shape, dtype=kinds[name]) for name, spec in _spec(envs)}
    envs.reset_into({name: tensor.numpy() for name, tensor in tensors.items()}, seed=1)
    assert np.array_equal(tensors["observation"].numpy(), envs.observe_slots(range(6)).observation)


def _spec(envs):
    return envs.batch_spec().items()


def test_a_tensor_keeps_allocated_memory(make_workers):
    """It is of use after the dict was dropped and the vector environment was closed."""
    envs = make_workers(walks(6), num_workers=2)
    (buffers,) = envs.allocate_buffers(count=1)
    envs.reset_into(buffers, seed=1)
    seen, expected = torch.from_numpy(buffers["observation"]), buffers["observation"].copy()
    del buffers
    envs.close()
    assert np.array_equal(seen.numpy(), expected)


def test_actions_may_be_written_by_torch(make):
    """Into the buffer's own actions, which are passed on without an array in between."""
    envs = make(walks(6), num_workers=2)
    (buffers,) = envs.allocate_buffers(count=1)
    envs.reset_into(buffers, seed=1)
    torch.from_numpy(buffers["action"]).copy_(torch.full((6, 2), 0.25))
    envs.step_into(buffers["action"], buffers)
    seen = buffers["observation"][:, :2].copy()
    envs.reset(seed=1)
    expected = envs.step(np.full((6, 2), 0.25, np.float32)).observation[:, :2]
    assert np.array_equal(seen, expected)
