"""Arrays with faults, and a small batch of environments with the calls under test."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from superdex.buffers import ArraySpec, BatchSpec, BufferedSteps, Ids

FAULTS = ("missing", "kind", "dtype", "rank", "shape", "contiguous", "writable", "aligned")
"""What can be wrong with an array, in the order in which it is looked for."""

WORDS = {
    "missing": "no such key",
    "kind": "class 'list'",
    "dtype": "dtype",
    "rank": "dimensions, of shape",
    "shape": "the shape",
    "contiguous": "not C-contiguous",
    "writable": "read-only",
    "aligned": "not aligned",
}
"""What the message says of each."""


def with_fault(spec: ArraySpec, fault: str) -> Any:
    """Return an array with that fault and with all those that are looked for later."""
    if fault == "kind":
        return [0]
    later = FAULTS[FAULTS.index(fault) :]
    dtype = np.dtype("V3") if "dtype" in later else spec.dtype
    shape = spec.shape
    if "shape" in later:
        shape = (spec.shape[0] + 1, *spec.shape[1:])
    if "rank" in later:
        shape = (*shape, 2)
    step = 2 if "contiguous" in later else 1
    aligned = "aligned" not in later
    memory = np.zeros(2 * dtype.itemsize * int(np.prod(shape)) + 128, np.uint8)
    start = -memory.ctypes.data % 64 + (0 if aligned else 1)
    strides = np.ndarray(shape, dtype, buffer=memory, offset=start).strides
    strides = tuple(step * stride for stride in strides)
    array: np.ndarray = np.ndarray(shape, dtype, memory, start, strides)
    array.flags.writeable = "writable" not in later
    return array


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process that imports what this one does."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def digest(arrays: Mapping[str, Any]) -> str:
    """Return a hash of every byte of some arrays."""
    content = hashlib.sha256()
    for name in sorted(arrays):
        content.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return content.hexdigest()


class Drift(BufferedSteps):
    """Positions that drift by their actions; episodes of three steps, reset in the same step.

    The observation is (position, steps of the episode).
    """

    _ids: Ids

    def __init__(self, num_envs: int = 6) -> None:
        self.num_envs = num_envs
        self.episodes = np.zeros(num_envs, np.int64)
        self._ids = Ids(self.episodes)
        self.moves = 0
        self.closed = False
        shapes = {"observation": (num_envs, 2), "action": (num_envs,)}
        floats = {"observation": np.float32, "action": np.float32, "reward": np.float64}
        flags = dict.fromkeys(("terminated", "truncated", "action_valid"), np.bool_)
        names: dict[str, Any] = {
            **floats,
            "terminated": np.bool_,
            "truncated": np.bool_,
            "final_observation": np.float32,
            **flags,
            "env_id": np.int32,
            "state_id": np.uint64,
            "episode_id": np.uint64,
        }
        shapes["final_observation"] = shapes["observation"]
        self._spec = {
            name: ArraySpec(shapes.get(name, (num_envs,)), np.dtype(dtype))
            for name, dtype in names.items()
        }
        self.state = {name: np.zeros(*spec) for name, spec in self._spec.items()}
        self.state["env_id"][:] = np.arange(num_envs)

    def batch_spec(self) -> BatchSpec:
        return dict(self._spec)

    def step(self, actions: np.ndarray) -> Any:
        self._check_can("step")
        self._check_actions(actions, None)
        self._step_rows(None, actions, None)
        return {name: array.copy() for name, array in self.state.items()}

    def _check_can(self, call: str) -> None:
        if self.closed:
            raise RuntimeError(f"{call} after the end")

    def _check_rows(self, call: str, rows: np.ndarray | None) -> None:
        if "step" in call and not self.episodes[slice(None) if rows is None else rows].all():
            raise RuntimeError("never reset")

    def _check_actions(self, actions: Any, rows: np.ndarray | None) -> None:
        shape = (self.num_envs if rows is None else len(rows),)
        if not isinstance(actions, np.ndarray) or actions.shape != shape:
            raise ValueError(f"actions must have the shape {shape}")
        if not np.can_cast(actions.dtype, np.float32, "same_kind"):
            raise ValueError("actions of another kind")

    def _step_rows(self, rows: np.ndarray | None, actions: np.ndarray, place: Any) -> Any:
        at = np.arange(self.num_envs) if rows is None else rows
        state, self.moves = self.state, self.moves + 1
        self._ids.advance(rows)
        state["action"][at] = actions
        state["observation"][at, 0] += state["action"][at]
        state["observation"][at, 1] += 1
        state["reward"][at] = state["observation"][at, 0]
        ended = at[state["observation"][at, 1] >= 3]
        state["action_valid"][at] = True
        state["terminated"][at] = False
        state["terminated"][ended] = True
        state["final_observation"][ended] = state["observation"][ended]
        state["observation"][ended] = 0
        self.episodes[ended] += 1
        return {"moves": self.moves}

    def _reset_rows(self, rows: np.ndarray | None, seeds: Any, options: Any, place: Any) -> Any:
        at = np.arange(self.num_envs) if rows is None else rows
        self._ids.advance(rows)
        self.moves += 1
        self.episodes[at] += 1
        self.state["observation"][at] = 0
        self.state["observation"][at, 0] = 0 if seeds is None else seeds
        for name in ("reward", "terminated", "truncated", "action_valid"):
            self.state[name][at] = 0
        return {"options": options}

    def _write_rows(self, rows: np.ndarray | None, buffers: Any, place: Any) -> None:
        at = np.arange(self.num_envs) if rows is None else rows
        for name, array in self.state.items():
            if name == "final_observation":
                ended = self.state["terminated"][at]
                buffers[name][ended] = array[at][ended]
            elif name in buffers and name not in ("state_id", "episode_id"):
                buffers[name][...] = array[at]
        self._ids.write_state(buffers["state_id"], rows)
        self._ids.write_episode(buffers["episode_id"], rows)

    def everything(self) -> dict[str, Any]:
        """Return all that a refused call must leave as it is."""
        ids = {"state_ids": self._ids.state(), "episodes": self.episodes, "moves": self.moves}
        return {**self.state, **ids}
