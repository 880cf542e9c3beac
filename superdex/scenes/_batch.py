"""Many simulations of one scene's model, stepped by one native call.

Each simulation is one row: its `mjSTATE_INTEGRATION`, the same numbers that `MujocoScene` captures.
So a state goes from a scene to a row and back without loss, and `mujoco.batch.Batch` steps it to
the same bits as `mj_step` on the scene would.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS, Batch
from numpy.typing import NDArray

from superdex._batching import NotBatchable
from superdex.scenes._batch_data import BatchData, Reader
from superdex.scenes._mujoco import UNSTABLE, MujocoScene
from superdex.scenes._variation import Variation, needs_constants

__all__ = ["MujocoBatch"]


class MujocoBatch:
    """Simulations of the model of a scene; stands in for the scene in code written for arrays.

    Args:
        scene: Its model is used as it is now.
        count: Number of simulations, K.
        num_threads: Native threads that step them.
        varied_fields: Model fields that will differ between them.

    Raises:
        NotBatchable: If a field is the same for all simulations of a batch.

    Attributes:
        model: The scene's model.
        data: Fields as on `MjData`, with a leading axis of simulations: `data.qpos` is (K, nq), and
            `data.joint("hinge").qpos` (K, 1). Those of the state (positions, velocities, controls,
            applied forces) can be written; derived ones are those of the last step. Of a scene
            that saves everything, they are what each simulation's own `MjData` would hold.
        states: (K, size of the state) float64, live.
        is_exact: Whether derived fields are each simulation's own.
    """

    def __init__(
        self,
        scene: MujocoScene,
        count: int,
        num_threads: int = 1,
        varied_fields: Sequence[str] = (),
    ) -> None:
        for name in varied_fields:
            if name not in MODEL_FIELDS:
                raise NotBatchable(
                    f"{name}, which varied_fields names, is common to all simulations of a batch"
                )
        scene.declare_varied(varied_fields)
        self.model: mujoco.MjModel = scene.model
        self.is_exact = scene.saves_everything
        make = BatchData if self.is_exact else Batch
        self.data: Any = make(scene.model, count, num_threads)
        self.states: NDArray[np.float64] = self.data.state
        self._scene = scene
        self._own = {name: np.array(attrgetter(name)(scene.model)) for name in varied_fields}
        self._warnings = self.data.warning[:, UNSTABLE, 1]

    def step(self, dt: float, count: int = 1, ids: NDArray[np.int32] | None = None) -> None:
        """Advance simulations `count` times by `dt` seconds, as `MujocoScene.step` would.

        The calling thread lets others run meanwhile.

        Args:
            dt: A whole number of the model's timesteps.
            count: How often.
            ids: Which simulations, sorted; all if None.
        """
        self.data.step(ids, self._scene.count_substeps(dt) * count)

    def read_from(self, read: Reader) -> None:
        """Have derived fields of simulations that come from the scene read by a function."""
        if self.is_exact:
            self.data.read_from(read)

    def take(self, row: int, state: NDArray[np.float64]) -> None:
        """Take over a simulation from the scene, where it was reset or used by itself."""
        self.states[row] = state
        if self.is_exact:
            self.data.take(row)

    def origin_of(self, row: int) -> tuple[NDArray[np.float64], int] | None:
        """Return the state before the last step of a simulation, and its substeps.

        None where it was not stepped since it came from its scene, or only its state counts.
        """
        return self.data.origin_of(row) if self.is_exact else None

    def take_unstable(self) -> NDArray[np.bool_] | None:
        """Return which simulations became unstable since the last look, (K,), or None for none.

        MuJoCo resets those to the model's default state.
        """
        if not self._warnings.any():
            return None
        unstable: NDArray[np.bool_] = self._warnings.any(axis=1)
        self._warnings[:] = 0
        return unstable

    def vary(self, names: Sequence[str], row: int, variation: Variation | None) -> None:
        """Give a simulation its values of model fields.

        Args:
            names: The fields that vary between simulations.
            row: The simulation.
            variation: As `MujocoScene.vary` returned it; None for the model's own values.
        """
        given = {} if variation is None else variation.given
        for name in names:
            values = self.data.expand(name)
            values[row] = given.get(name, self._own[name])
        if needs_constants(names):
            self.data.set_const(np.array([row], np.int32))
