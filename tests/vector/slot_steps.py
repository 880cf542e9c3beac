"""Stepping a batch slot by slot, in every way there is, as if it were one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from superdex.buffers import allocate
from superdex.testing import row_info
from superdex.vector import HybridVectorEnv
from superdex.vector._info import merge_infos
from superdex.vector._results import BatchedStepResult

Slots = Sequence[Sequence[int]]


def _one_by_one(envs: HybridVectorEnv, slots: Slots, actions: np.ndarray) -> list[Any]:
    return [envs.step_slots(slot, actions[slot]) for slot in slots]


def _into(envs: HybridVectorEnv, slots: Slots, actions: np.ndarray) -> list[Any]:
    batches = []
    for slot in slots:
        buffers = allocate(envs.slot_batch_spec(len(slot)))
        info = envs.step_slots_into(slot, actions[slot], buffers)
        assert np.array_equal(buffers.pop("action"), actions[slot])
        batches.append(envs._slot_batch(buffers, info))
    return batches


def _in_flight(envs: HybridVectorEnv, slots: Slots, actions: np.ndarray) -> list[Any]:
    tickets = [envs.submit_slots(slot, actions[slot]) for slot in slots]
    return [envs.wait_slots(ticket) for ticket in reversed(tickets)]


def _sent(envs: HybridVectorEnv, slots: Slots, actions: np.ndarray) -> list[Any]:
    for slot in slots:
        envs.send(actions[slot], slot)
    batches = []
    while (left := len(envs.in_flight)) > 0:
        batches.append(envs.recv(min(2, left), 3))
    return batches


WAYS: dict[str, Callable[[HybridVectorEnv, Slots, np.ndarray], list[Any]]] = {
    "one by one": _one_by_one,
    "into buffers": _into,
    "in flight": _in_flight,
    "sent": _sent,
}


def by_slots(
    envs: HybridVectorEnv, slots: Slots, way: str, rng: np.random.Generator | None = None
) -> Callable[[np.ndarray], BatchedStepResult]:
    """Return what steps all environments as `step` does, but slot by slot.

    Args:
        envs: The vector.
        slots: Which environments together.
        way: One of `WAYS`.
        rng: Puts slots, and the rows of each, in another order every time; None for as they are.
    """

    def step(actions: np.ndarray) -> BatchedStepResult:
        order = [list(slot) for slot in slots]
        if rng is not None:
            order = [rng.permutation(order[at]).tolist() for at in rng.permutation(len(order))]
        return together(WAYS[way](envs, order, actions), envs.num_envs)

    return step


def together(batches: Sequence[Any], num_envs: int) -> BatchedStepResult:
    """Return the rows of slots as one step of all environments gives them."""
    rows = np.concatenate([batch.env_id for batch in batches])
    assert sorted(rows.tolist()) == list(range(num_envs)), "each row comes once"
    back = np.argsort(rows)

    def all_of(name: str) -> np.ndarray:
        return np.asarray(np.concatenate([getattr(batch, name) for batch in batches])[back])

    entries = []
    for batch in batches:
        for at, row in enumerate(batch.env_id.tolist()):
            info = row_info(batch.info, at)
            ended = batch.terminated[at] or batch.truncated[at]
            if batch.final_observation is not None and ended:
                info["final_obs"] = batch.final_observation[at]
            entries.append((row, info))
    entries.sort(key=itemgetter(0))
    return BatchedStepResult(
        all_of("observation"),
        all_of("reward"),
        all_of("terminated"),
        all_of("truncated"),
        merge_infos(entries, num_envs, pytest.fail),
    )
