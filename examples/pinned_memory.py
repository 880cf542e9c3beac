"""Feed a policy in torch from memory that the workers write to themselves; pinned, with CUDA.

Two buffers take turns. The workers write one while what is in the other is still being copied to
the device, on a stream of its own. From pinned memory such a copy runs beside everything else.
Without CUDA the same program runs on the processor.

    python examples/pinned_memory.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from mmap import PAGESIZE
from typing import TYPE_CHECKING

import numpy as np

from superdex.buffers import BoundBuffers
from superdex.envs import HalfCheetahEnv
from superdex.vector import HybridVectorEnv

# The workers import this file, and need no torch: it is imported where it is used.
if TYPE_CHECKING:
    import torch

KEPT = ("observation", "action", "reward", "terminated", "truncated", "action_valid")
"""What a learner wants of each step."""


@contextmanager
def pinned(buffers: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Inside, the memory of allocated buffers is registered with CUDA, if there is CUDA.

    All arrays of one dict lie in one run of memory. It is registered as a whole and in whole pages,
    since CUDA takes no page twice. It must be given back to CUDA before the last of its arrays is
    dropped: so this belongs inside the `with` of the vector environment.
    """
    import torch

    if not torch.cuda.is_available():
        yield
        return
    arrays = buffers.values()
    start = min(array.ctypes.data for array in arrays) // PAGESIZE * PAGESIZE
    end = max(array.ctypes.data + array.nbytes for array in arrays)
    end = -(-end // PAGESIZE) * PAGESIZE
    cuda = torch.cuda.cudart()
    _check(int(cuda.cudaHostRegister(start, end - start, 0)), "register")
    try:
        yield
    finally:
        torch.cuda.synchronize()  # a copy from it may be under way
        _check(int(cuda.cudaHostUnregister(start)), "unregister")


def _check(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"CUDA could not {what} the buffers as pinned memory: error {code}.")


class Slot:
    """One of the two buffers: the handle that steps into it, and its arrays as tensors.

    Args:
        bound: From `bind`.
        copying: The stream for copies to the device; None without CUDA.
    """

    def __init__(self, bound: BoundBuffers, copying: torch.cuda.Stream | None) -> None:
        import torch

        self.bound = bound
        # no copies: each tensor is the memory of its array
        self.tensors = {name: torch.from_numpy(bound.buffers[name]) for name in KEPT}
        self._copying = copying
        self._observed = self._copied = None
        if copying is not None:
            self._observed, self._copied = torch.cuda.Event(), torch.cuda.Event()

    def start_copies(self, step: int, rollout: Mapping[str, torch.Tensor]) -> None:
        """Copy what it holds to row `step` of a rollout; the policy may use the observations."""
        import torch

        # The observations go first, since the policy waits for them, and for nothing else.
        with torch.cuda.stream(self._copying):
            for name in KEPT:
                rollout[name][step].copy_(self.tensors[name], non_blocking=True)
                if name == "observation" and self._observed is not None:
                    self._observed.record()
            if self._copied is not None:
                self._copied.record()
        if self._observed is not None:
            torch.cuda.current_stream().wait_event(self._observed)

    def wait_until_free(self) -> None:
        """Wait until all that it holds is copied, so that the workers may write to it."""
        if self._copied is not None:
            self._copied.synchronize()


def run(envs: HybridVectorEnv, num_steps: int) -> dict[str, torch.Tensor]:
    """Step with a policy, on the device if there is one; return what a learner keeps.

    Those are tensors of (num_steps + 1, num_envs, …). Row t has the observations after t steps, the
    actions that led to them, and what those gave; row 0 is the reset.
    """
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    copying = torch.cuda.Stream() if device.type == "cuda" else None
    num_inputs, num_outputs = (
        np.prod(space.shape, dtype=int).item()
        for space in (envs.single_observation_space, envs.single_action_space)
    )
    torch.manual_seed(0)
    policy = torch.nn.Sequential(
        torch.nn.Linear(num_inputs, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, num_outputs),
        torch.nn.Tanh(),
    ).to(device)

    with ExitStack() as stack, torch.no_grad():
        slots = []
        for buffers in envs.allocate_buffers(count=2):
            stack.enter_context(pinned(buffers))
            slots.append(Slot(envs.bind(buffers), copying))
        rollout = {
            name: torch.zeros((num_steps + 1, *tensor.shape), dtype=tensor.dtype, device=device)
            for name, tensor in slots[0].tensors.items()
        }
        if copying is not None:
            copying.wait_stream(torch.cuda.current_stream())  # which zeroes the rollout

        here, there = slots
        here.bound.reset(seed=0)
        for step in range(num_steps):
            here.start_copies(step, rollout)
            actions = policy(rollout["observation"][step])
            there.wait_until_free()
            # This waits for the policy, not for the other copies. They go on while workers step.
            there.tensors["action"].copy_(actions)
            there.bound.step(there.bound.buffers["action"])
            here, there = there, here
        here.start_copies(num_steps, rollout)
    # all copies are done by now: memory is not given back to CUDA before
    return rollout


def main() -> None:
    """Step half-cheetahs with a small network, and say how fast and what was copied."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=128)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--num_steps", type=int, default=100)
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(1)  # a small network is quicker so, and the cores are for the workers
    env_fns = [HalfCheetahEnv] * arguments.num_envs
    # copy=False: infos, which are all that still comes back by itself, are views.
    with HybridVectorEnv(env_fns, num_workers=arguments.num_workers, copy=False) as envs:
        start = time.perf_counter()
        rollout = run(envs, arguments.num_steps)
        seconds = time.perf_counter() - start
        statistics = envs.statistics()

    where = rollout["observation"].device
    print(f"rollout on {where}: observations {tuple(rollout['observation'].shape)}")
    print(f"mean reward: {rollout['reward'].mean().item():.3f}")
    print(f"{statistics.env_steps:,} environment steps in {seconds:.1f} s: ", end="")
    print(f"{statistics.env_steps / seconds:,.0f} /s")
    print(f"bytes copied between the workers and torch: {statistics.bytes_copied}")


# The workers import this file: without the guard each of them would run main() again.
if __name__ == "__main__":
    main()
