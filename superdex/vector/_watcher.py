"""A thread that learns of deaths and failures while the caller is blocked elsewhere."""

from __future__ import annotations

import threading
from multiprocessing.connection import wait
from typing import Any

from superdex.vector._bell import Bell
from superdex.vector._link import WorkerLink
from superdex.vector._process import KILL_SECONDS

__all__ = ["Watcher"]


class Watcher:
    """Watches the processes of workers, and a pipe to which they write at a failure.

    At each it sets `trouble` and wakes the caller through every reply signal and the bell, for the
    caller to look. It costs nothing where nothing happens.

    Args:
        context: Of multiprocessing.
        links: The workers; an entry may be replaced, see `refresh`.
        bell: Wakes a caller who waits for several workers at once.

    Attributes:
        alarm: The end of the pipe that workers write to.
        trouble: Set after each event. The caller clears it before looking.
        dead: Workers whose process has ended.
    """

    def __init__(self, context: Any, links: list[WorkerLink], bell: Bell) -> None:
        self._links = links
        self._bell = bell
        self._alarms, self.alarm = context.Pipe(duplex=False)
        self._orders, self._order = context.Pipe(duplex=False)
        self.trouble = False
        self.dead: set[int] = set()
        self._thread: threading.Thread | None = None

    @property
    def is_watching(self) -> bool:
        """Whether it was started."""
        return self._thread is not None

    def start(self) -> None:
        """Begin to watch."""
        thread = threading.Thread(target=self._watch, name="superdex-watcher", daemon=True)
        thread.start()
        self._thread = thread

    def refresh(self, workers: list[int]) -> None:
        """Watch the new processes of these workers, which are alive again."""
        self.dead.difference_update(workers)
        self._order.send_bytes(b"refresh")

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            # a message, since the end of the pipe may be open in a process that the caller forked
            self._order.send_bytes(b"stop")
            self._thread.join(KILL_SECONDS)

    def release(self) -> None:
        """Give the pipes back."""
        for connection in (self._alarms, self.alarm, self._orders, self._order):
            connection.close()

    def _watch(self) -> None:
        watched = self._exit_notices()
        while True:
            ready: list[Any] = wait([self._orders, self._alarms, *watched])
            for key in ready:
                if key is self._orders:
                    if self._orders.recv_bytes() == b"stop":
                        return
                    watched = self._exit_notices()
                    continue
                if key is self._alarms:
                    self._alarms.recv_bytes()
                elif (worker := watched.pop(key, None)) is not None:
                    # what it started would keep its pipe open, and a reader of it waiting
                    self._links[worker].process.kill_group()
                    self.dead.add(worker)
                self.trouble = True
                self.wake_caller()

    def wake_caller(self) -> None:
        """Wake the caller, whatever it waits for."""
        for link in self._links:
            link.reply.release()
        self._bell.ring()

    def _exit_notices(self) -> dict[Any, int]:
        return {
            link.process.exit_notice: worker
            for worker, link in enumerate(self._links)
            if worker not in self.dead
        }
