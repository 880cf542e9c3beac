"""A bell for a caller who waits for whichever of several workers is done first.

A worker that is done says so in the block. The caller looks there, and yields the processor between
two looks, which finds what comes soon at no cost to the worker. Only a caller that goes to sleep
says so in a word of the block, and only then do workers write to a pipe to wake it.

The caller writes that word and then looks once more; a worker says that it is done and then reads
the word. Each passes a lock in between, so that no processor may put the two the other way round,
and at least one of them sees the other. The sleep is bounded all the same: where memory is ordered
still more freely, a wake-up that got lost costs a moment and no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np

from superdex.vector._signal import SPIN_SECONDS

__all__ = ["Bell", "Ringer"]

_BACKSTOP_SECONDS = 0.05
"""How long the caller sleeps at most between two looks."""


class Bell:
    """The caller's side.

    Args:
        context: Of multiprocessing.

    Attributes:
        button: The end of the pipe that workers write to.
    """

    def __init__(self, context: Any) -> None:
        self._pipe: Connection
        self.button: Connection
        self._pipe, self.button = context.Pipe(duplex=False)
        self._fence = Lock()

    def attach(self, word: np.ndarray) -> None:
        """Use this word of the block, (n,) int64."""
        self._word = word.data

    def wait(self, is_over: Callable[[], bool], deadline: float) -> bool:
        """Wait until `is_over`; return False if `deadline`, on `perf_counter`'s clock, came first.

        Args:
            is_over: Looks at the block, quickly and as often as it likes to be asked.
            deadline: Until when.
        """
        spin_until = min(perf_counter() + SPIN_SECONDS, deadline)
        while not is_over():
            if perf_counter() >= spin_until:
                return self._sleep(is_over, deadline)
            os.sched_yield()
        return True

    def _sleep(self, is_over: Callable[[], bool], deadline: float) -> bool:
        try:
            while True:
                self._word[0] = True
                with self._fence:
                    pass
                if is_over():
                    return True
                seconds = deadline - perf_counter()
                if seconds <= 0:
                    return False
                if self._pipe.poll(min(seconds, _BACKSTOP_SECONDS)):
                    self._drain()
        finally:
            self._word[0] = False

    def _drain(self) -> None:
        while True:
            self._pipe.recv_bytes()
            if not self._pipe.poll():
                return

    def ring(self) -> None:
        """Wake a caller that waits in another thread, or that will the next time."""
        self.button.send_bytes(b"!")

    def release(self) -> None:
        """Give the pipe back."""
        self._pipe.close()
        self.button.close()
        self._word = np.zeros(1, np.int64).data  # the block's memory goes when nobody has it


class Ringer:
    """A worker's side.

    Args:
        word: The word of the block that the bell has.
        button: The bell's.
    """

    def __init__(self, word: np.ndarray, button: Connection) -> None:
        self._word = word.data
        self._button = button
        self._fence = Lock()

    def ring(self) -> None:
        """Wake the caller, if it sleeps."""
        with self._fence:
            pass
        if self._word[0]:
            self._button.send_bytes(b"!")
