"""All buffers of outputs, and in which of them the last results of each row are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from superdex.vector._layout import OUTPUTS, SLOT_BUFFER

__all__ = ["FIRST_ALLOCATED", "WRITTEN_BY_WORKERS", "Outputs"]

FIRST_ALLOCATED = SLOT_BUFFER + 1
"""The lowest number of a buffer that the caller allocated."""

WRITTEN_BY_WORKERS = tuple(name for name in OUTPUTS if name != "autoreset")
"""What the caller sees of a buffer of outputs; the last one with SAME_STEP only."""


class Outputs:
    """The buffers of outputs by number.

    Args:
        arrays: The arrays of the block.

    Attributes:
        home: (num_envs,) the number of the buffer with each row's last results.
        copies: Arrays copied for the caller.
        bytes_copied: Their bytes.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.home = arrays["home"]
        self.copies = 0
        self.bytes_copied = 0
        self._names = tuple(name for name in WRITTEN_BY_WORKERS if name in arrays)
        self._buffers = {
            number: {name: arrays[name][number] for name in OUTPUTS if name in arrays}
            for number in range(FIRST_ALLOCATED)
        }
        self._home_of_all: int | None = 0
        """The buffer with the last results of all rows, if it is one."""

    def __getitem__(self, number: int) -> dict[str, np.ndarray]:
        return self._buffers[number]

    def add(self, number: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Have one more buffer."""
        self._buffers[number] = {name: arrays[name] for name in OUTPUTS if name in arrays}

    def remove(self, number: int) -> None:
        """Have that buffer no more; no row's last results are in it."""
        self._buffers.pop(number, None)

    # ── where the last results are ──────────────────────────────────────────────────────────────

    def note(self, number: int) -> None:
        """The last results of all rows are in that buffer now."""
        self._home_of_all = number
        self.home.fill(number)

    def note_rows(self, rows: np.ndarray) -> None:
        """The last results of some rows are in the buffer for slots now."""
        self._home_of_all = None
        self.home[rows] = SLOT_BUFFER

    def in_use(self) -> list[int]:
        """Return the buffers with the last results of any row."""
        if self._home_of_all is not None:
            return [self._home_of_all]
        homes: list[int] = np.unique(self.home).tolist()
        return homes

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def ended(self, number: int) -> np.ndarray:
        """Return which episodes ended in the call for all rows that wrote that buffer."""
        arrays = self._buffers[number]
        return np.asarray(arrays["terminated"] | arrays["truncated"])

    def ended_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return which episodes ended in the last call for some rows, (rows,) bool."""
        arrays = self._buffers[SLOT_BUFFER]
        return np.asarray(arrays["terminated"][rows] | arrays["truncated"][rows])

    def autoreset_mask(self) -> np.ndarray:
        """Return which rows were reset within the last call for them: (num_envs,) bool, a copy."""
        mask = np.empty(len(self.home), np.bool_)
        self._gather("autoreset", None, mask, self._only_home(None))
        return mask

    def write_last_observations(self, out: np.ndarray) -> None:
        """Write the last observation of each row to `out`, (num_envs, …)."""
        self._gather("observation", None, out, self._only_home(None))

    def write(self, rows: np.ndarray | None, buffers: Mapping[str, np.ndarray]) -> None:
        """Write the last results of rows, all if None, to the caller's arrays, (rows, …).

        Each array is copied once. Of final observations only those are written of rows whose
        episode ended.
        """
        home = self._only_home(rows)
        for name in self._names:
            out = buffers[name]
            if name == "final_observation":
                ended = buffers["terminated"] | buffers["truncated"]
                if not ended.any():
                    continue
                which = np.flatnonzero(ended) if rows is None else rows[ended]
                final = np.empty((len(which), *out.shape[1:]), out.dtype)
                self._gather(name, which, final, home)
                out[ended] = final
            else:
                self._gather(name, rows, out, home)
            self.copies += 1
            self.bytes_copied += out.nbytes

    def last_results(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the last results of rows, (rows, …) arrays by name, copies."""
        results, home = {}, self._only_home(rows)
        for name, array in self._buffers[SLOT_BUFFER].items():
            results[name] = np.empty((len(rows), *array.shape[1:]), array.dtype)
            self._gather(name, rows, results[name], home)
        return results

    def check(self, results: Mapping[str, np.ndarray], names: Iterable[str] | None = None) -> None:
        """Check that `put` can take these results, or only those named.

        Raises:
            ValueError: If one is missing, or has another shape or dtype.
        """
        buffer = self._buffers[SLOT_BUFFER]
        for name in buffer if names is None else names:
            array = buffer[name]
            got = results.get(name)
            if got is None or got.shape[1:] != array.shape[1:] or got.dtype != array.dtype:
                found = "nothing" if got is None else f"{got.shape[1:]} of {got.dtype}"
                raise ValueError(
                    f"The state's last {name} does not fit: expected {array.shape[1:]} of "
                    f"{array.dtype} for each environment, got {found}."
                )

    def put(self, rows: np.ndarray, results: Mapping[str, np.ndarray]) -> None:
        """Have rows show what they showed elsewhere, in the buffer for slots."""
        for name, array in self._buffers[SLOT_BUFFER].items():
            array[rows] = results[name]
        self.note_rows(rows)

    def make_room(self, buffers: Mapping[str, np.ndarray], busy: np.ndarray) -> None:
        """Have last results elsewhere than in arrays that are about to be written.

        Those may be parts of a buffer that the caller allocated, and be for other rows.

        Args:
            buffers: The arrays, (rows, …).
            busy: (num_envs,) bool, rows that workers are at; they write to the buffer for slots.
        """
        if len(self._buffers) == FIRST_ALLOCATED:
            return
        for number in self.in_use():
            if number < FIRST_ALLOCATED or not self._overlap(number, buffers):
                continue
            rows = np.flatnonzero((self.home == number) & ~busy)
            results = self.last_results(rows)
            self.put(rows, results)
            self.copies += len(results)
            self.bytes_copied += sum(array.nbytes for array in results.values())

    def _overlap(self, number: int, buffers: Mapping[str, np.ndarray]) -> bool:
        """Return whether arrays of the caller may lie in that buffer."""
        return any(
            np.may_share_memory(array, buffers[name])
            for array in self._buffers[number].values()
            for name in self._names
        )

    def _only_home(self, rows: np.ndarray | None) -> int | None:
        """Return the buffer with the last results of all these rows, if it is one."""
        if self._home_of_all is not None or rows is None or len(rows) == 0:
            return self._home_of_all
        homes = self.home[rows]
        return int(homes[0]) if (homes == homes[0]).all() else None

    def _gather(
        self, name: str, rows: np.ndarray | None, out: np.ndarray, home: int | None
    ) -> None:
        """Write one array of some rows' last results, all if None.

        `home` is the buffer with all of them, or None where they are in several.
        """
        if home is not None:
            array = self._buffers[home][name]
            if rows is None:
                np.copyto(out, array)
            else:
                np.take(array, rows, axis=0, out=out, mode="clip")  # else it would be buffered
            return
        homes = self.home if rows is None else self.home[rows]
        for number in np.unique(homes).tolist():
            at = np.flatnonzero(homes == number)
            out[at] = self._buffers[number][name][at if rows is None else rows[at]]
