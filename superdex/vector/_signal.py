"""Semaphores that wake the other process, and a wait that spins a little before it blocks.

A wake-up through a blocked semaphore costs 40 to 70 µs, most of all on a virtual machine, whose
idle cores are slow to come back. A waiter that tries, yields the processor and tries again is there
within 1 to 5 µs. The spin yields, so that it costs other processes next to nothing, and it lasts a
few times as long as the wake-up that it saves, so that a slow environment or a thinking policy does
not keep a core busy.

`multiprocessing.Semaphore` keeps its name until it is collected, and a killed process leaves it to
the resource tracker, which complains. A `Signal` gives its name up as soon as both sides hold it.
"""

from __future__ import annotations

import _multiprocessing
import os
import secrets
from multiprocessing import resource_tracker
from time import perf_counter
from typing import Any

__all__ = ["Signal"]

SPIN_SECONDS = 200e-6
"""How long a waiter spins. At 50 µs, steps of 50 to 100 µs took 1.7 times as long."""

_SEMAPHORE = 1  # the kind number of a counting semaphore, as in multiprocessing.synchronize
_MAX_VALUE = 2**31 - 1


class Signal:
    """A counting semaphore, at zero to begin with, that one spawned process can be given.

    Pickled, it is the same semaphore in the process that unpickles it. Waiting and waking order
    memory: what was written before `release` is seen after `wait`.
    """

    def __init__(self) -> None:
        self._name: str | None = f"/superdex-{os.getpid()}-{secrets.token_hex(6)}"
        self._use(_multiprocessing.SemLock(_SEMAPHORE, 0, _MAX_VALUE, self._name, False))
        resource_tracker.register(self._name, "semaphore")

    def _use(self, lock: Any) -> None:
        self._lock = lock
        self._acquire = lock.acquire
        self.release = lock.release
        """Wake one waiter, now or later."""

    def __getstate__(self) -> tuple[Any, ...]:
        return self._lock.handle, self._lock.kind, self._lock.maxvalue, self._name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._name = None
        self._use(_multiprocessing.SemLock._rebuild(*state))

    def unlink(self) -> None:
        """Give the name up; those who hold the semaphore keep it. Does nothing the second time."""
        name, self._name = self._name, None
        if name is not None:
            _multiprocessing.sem_unlink(name)
            resource_tracker.unregister(name, "semaphore")

    def wait(self, deadline: float | None = None) -> bool:
        """Wait until woken; return False if `deadline`, on `perf_counter`'s clock, came first."""
        acquire = self._acquire
        if acquire(False):
            return True
        spin_until = perf_counter() + SPIN_SECONDS
        while perf_counter() < spin_until:
            os.sched_yield()
            if acquire(False):
                return True
        if deadline is None:
            return bool(acquire())
        return bool(acquire(True, max(0.0, deadline - perf_counter())))
