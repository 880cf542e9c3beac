"""Semaphores that wake the other process, and a wait that spins a little before it blocks.

A wake-up through a blocked semaphore costs 40 to 70 µs, most of all on a virtual machine, whose
idle cores are slow to come back. A waiter that tries, yields the processor and tries again is there
within 1 to 5 µs. The spin yields, so that it costs other processes next to nothing, and it lasts a
few times as long as the wake-up that it saves, so that a slow environment or a thinking policy does
not keep a core busy.

`multiprocessing.Semaphore` keeps its name until it is collected, and a killed process leaves it to
the resource tracker, which complains. A `Signal` gives its name up as soon as both sides hold it:
the side that comes later does it, so that it is done even if the other was killed meanwhile.

On Linux the name is that of a file in `/dev/shm`, which takes one page of it. Where that folder is
missing, full or read-only, the error says so.
"""

from __future__ import annotations

import _multiprocessing
import contextlib
import errno
import mmap
import os
import secrets
from math import inf
from multiprocessing import resource_tracker
from time import perf_counter
from typing import Any

from superdex.errors import StartupError

__all__ = ["Signal"]

SPIN_SECONDS = 200e-6
"""How long a waiter spins. At 50 µs, steps of 50 to 100 µs took 1.7 times as long."""

_FOREVER = 1e9
"""Seconds, beyond which a deadline counts as none; semaphores refuse much longer ones."""

_FOLDER = "/dev/shm"
_SEMAPHORE = 1  # the kind number of a counting semaphore, as in multiprocessing.synchronize
_MAX_VALUE = 2**31 - 1


class Signal:
    """A counting semaphore, at zero to begin with, that one spawned process can be given.

    Pickled, it is the same semaphore in the process that unpickles it, which gives the name up at
    once. Waiting and waking order memory: what was written before `release` is seen after `wait`.

    Raises:
        StartupError: If its folder is missing, full or not writable; the message says what to do.
        OSError: If the system refuses it for another reason, such as too many open files.
    """

    _name: str | None = None

    def __init__(self) -> None:
        name = f"/superdex-{os.getpid()}-{secrets.token_hex(6)}"
        try:
            lock = _multiprocessing.SemLock(_SEMAPHORE, 0, _MAX_VALUE, name, False)
        except OSError as error:
            if (advice := _advice(error.errno)) is None:
                raise
            raise StartupError(
                f"A worker's semaphores could not be made in {_FOLDER}: {error.strerror}. "
                f"{advice}. With in_process=True none are needed."
            ) from error
        self._owner = os.getpid()
        self._name = name
        self._use(lock)
        resource_tracker.register(name, "semaphore")

    def __del__(self) -> None:
        # for one whose twin could not be made; a fork of the owner owns no name
        if self._name is not None and os.getpid() == self._owner:
            self.unlink()

    def _use(self, lock: Any) -> None:
        self._lock = lock
        self._acquire = lock.acquire
        self.release = lock.release
        """Wake one waiter, now or later."""

    def __getstate__(self) -> tuple[Any, ...]:
        return self._lock.handle, self._lock.kind, self._lock.maxvalue, self._name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._use(_multiprocessing.SemLock._rebuild(*state))
        self._name = state[-1]
        self.unlink()

    def unlink(self) -> None:
        """Give the name up; those who hold the semaphore keep it. Does nothing the second time."""
        name, self._name = self._name, None
        if name is not None:
            with contextlib.suppress(FileNotFoundError):  # the other side was first
                _multiprocessing.sem_unlink(name)
                resource_tracker.unregister(name, "semaphore")

    def wait(self, deadline: float = inf) -> bool:
        """Wait until woken; return False if `deadline`, on `perf_counter`'s clock, came first."""
        acquire = self._acquire
        if acquire(False):
            return True
        spin_until = perf_counter() + SPIN_SECONDS
        while perf_counter() < spin_until:
            os.sched_yield()
            if acquire(False):
                return True
        seconds = deadline - perf_counter()
        if seconds > _FOREVER:
            return bool(acquire())
        return bool(acquire(True, max(0.0, seconds)))


def _advice(number: int | None) -> str | None:
    """Return what to do about the folder of semaphores; None if the error is not about it."""
    mount = f"Mount it: mkdir -p {_FOLDER} && mount -t tmpfs tmpfs {_FOLDER}"
    if number == errno.ENOSPC:
        room = os.statvfs(_FOLDER)
        free, size = (blocks * room.f_frsize // 2**10 for blocks in (room.f_bavail, room.f_blocks))
        # a semaphore is a file of one page, which has a second name while it is made
        return (
            f"Free are {free} of {size} KiB and {room.f_favail} of {room.f_files} files; each "
            f"worker needs {2 * mmap.PAGESIZE // 2**10} KiB and 3 files while it starts. Delete "
            f"what others left there, or make it larger: mount -o remount,size=64m {_FOLDER}, or "
            "docker run --shm-size=64m"
        )
    return {
        errno.ENOENT: mount,
        errno.ENOSYS: mount,  # says an old C library
        errno.EROFS: f"Make it writable: mount -o remount,rw {_FOLDER}",
        errno.EACCES: f"Let this user write there: chmod 1777 {_FOLDER}",
    }.get(number or 0)
