"""What tests of batches share: legal moves, and what is compared."""

from __future__ import annotations

import hashlib

import numpy as np

from superdex.games import VectorGameEnv
from tests.buffers.arrays import digest

COUNTS = (1 << 44) - 1
"""The bits of an id that count; the others differ from vector to vector."""

Batch = dict[str, np.ndarray]


def pick(batch: Batch, rng: np.random.Generator) -> np.ndarray:
    """Return a legal id for each row, −1 where there is none."""
    counts = batch["legal_action_count"]
    picks = (rng.random(len(counts)) * counts).astype(int)
    picked: np.ndarray = batch["action_id"][np.arange(len(counts)), picks]
    return picked


def comparable(batch: Batch) -> Batch:
    """Return a batch with ids that two vectors share; final rows only where an episode ended."""
    ended = (batch["terminated"] | batch["truncated"]) != 0
    return {
        name: array & np.uint64(COUNTS)
        if name in ("state_id", "episode_id")
        else array[ended]
        if name.startswith("final_")
        else array
        for name, array in batch.items()
    }


def assert_equal(one: Batch, other: Batch) -> None:
    """Compare two batches, of two vectors."""
    one, other = comparable(one), comparable(other)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def fingerprint(env: VectorGameEnv) -> str:
    """Return a hash of all games: captured, and as they are observed."""
    return hashlib.sha256(env.capture_states().tobytes()).hexdigest() + digest(env.observe())
