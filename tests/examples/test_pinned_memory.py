"""What the example asks of CUDA and in which order, told to a stand-in for CUDA."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from mmap import PAGESIZE
from typing import Any

import numpy as np
import pytest

from superdex.vector import HybridVectorEnv
from tests.examples.modules import load_example
from tests.vector.envs import walks

torch: Any = pytest.importorskip("torch")


class Cuda:
    """Notes what is registered, and refuses what CUDA refuses."""

    def __init__(self):
        self.events: list[str] = []
        self.registered: dict[int, int] = {}
        self.code = 0
        self.memory: Any = None
        """An array, held weakly, that must be there as long as it is registered."""

    def cudart(self):
        return self

    def cudaHostRegister(self, start, size, flags):  # noqa: N802  # CUDA's own name
        others = self.registered.items()
        assert not any(start < o + n and o < start + size for o, n in others)
        assert start % PAGESIZE == size % PAGESIZE == flags == 0
        if self.code == 0:
            self.registered[start] = size
            self.events.append("register")
        return self.code

    def cudaHostUnregister(self, start):  # noqa: N802  # CUDA's own name
        assert self.memory is None or self.memory() is not None
        del self.registered[start]
        self.events.append("unregister")
        return 0

    def holds(self, array: np.ndarray) -> bool:
        start = array.ctypes.data
        return any(s <= start and start + array.nbytes <= s + n for s, n in self.registered.items())


@pytest.fixture
def cuda(monkeypatch) -> Cuda:
    cuda = Cuda()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", cuda.cudart)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: cuda.events.append("synchronize"))
    return cuda


@pytest.fixture
def example() -> Any:
    return load_example("pinned_memory")


@pytest.fixture
def pinned(example):
    return example.pinned


def test_all_arrays_of_both_buffers_are_registered(cuda, pinned):
    """Whole pages, none of them twice."""
    with HybridVectorEnv(walks(5), num_workers=2) as envs:
        first, second = envs.allocate_buffers(count=2)
        with pinned(first), pinned(second):
            assert len(cuda.registered) == 2
            assert all(cuda.holds(array) for each in (first, second) for array in each.values())
    assert not cuda.registered


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_memory_is_unregistered_after_the_copies_and_before_it_is_dropped(cuda, pinned, error):
    """Also where the body raises, and where nobody else holds the arrays any more."""

    def failing(envs):
        (buffers,) = envs.allocate_buffers(count=1)
        cuda.memory = weakref.ref(buffers["observation"])
        with pinned(buffers):
            del buffers
            raise error

    with HybridVectorEnv(walks(5), num_workers=2) as envs:
        with pytest.raises(error):
            failing(envs)
        assert cuda.events == ["register", "synchronize", "unregister"]
        assert cuda.memory() is None


def test_refusal_of_cuda_is_an_error(cuda, pinned):
    """It says what CUDA said, and nothing is left registered."""
    cuda.code = 2
    with HybridVectorEnv(walks(2), num_workers=1) as envs:
        (buffers,) = envs.allocate_buffers(count=1)
        with pytest.raises(RuntimeError, match="error 2"), pinned(buffers):
            pass
    assert cuda.events == []


def test_nothing_is_registered_without_cuda(cuda, pinned, monkeypatch):
    """The example runs all the same."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with HybridVectorEnv(walks(2), num_workers=1) as envs:
        (buffers,) = envs.allocate_buffers(count=1)
        with pinned(buffers):
            pass
    assert cuda.events == []


class Event:
    """Says in which stream it was recorded, and who waits for it."""

    def __init__(self, events: list[str], streams: list[str]):
        self.events, self.streams = events, streams
        self.recorded = "nothing"

    def record(self):
        last = self.events[-1].removeprefix("copy ")
        self.recorded = f"{last} on {self.streams[-1]}"

    def synchronize(self):
        self.events.append(f"host waits for {self.recorded}")


class Target:
    """A rollout that notes what is copied to it."""

    def __init__(self, events: list[str]):
        self.events = events
        self.name = ""

    def __getitem__(self, key):
        self.name = key if isinstance(key, str) else self.name
        return self

    def copy_(self, tensor, *, non_blocking):
        assert non_blocking
        self.events.append(f"copy {self.name}")


def test_policy_waits_for_observations_and_workers_for_everything(cuda, example, monkeypatch):
    """Copies are on a stream of their own, and nobody else waits for them."""
    events, streams = cuda.events, ["the policy's stream"]

    @contextmanager
    def stream(name):
        streams.append(name)
        yield
        streams.pop()

    class Current:
        def wait_event(self, event):
            events.append(f"{streams[-1]} waits for {event.recorded}")

    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(events, streams))
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Current)
    with HybridVectorEnv(walks(3), num_workers=1) as envs:
        (buffers,) = envs.allocate_buffers(count=1)
        slot = example.Slot(envs.bind(buffers), "its own")
        slot.start_copies(0, Target(events))
        slot.wait_until_free()
    assert events == [
        *(f"copy {name}" for name in example.KEPT),
        "the policy's stream waits for observation on its own",
        f"host waits for {example.KEPT[-1]} on its own",
    ]
