"""The limit that physics is measured against is the physics of the task."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from contenders import Field
from limit import BareBatch, Simulation, StepLoop
from physics_tasks import PHYSICS_TASKS

CART_POLE = PHYSICS_TASKS["cart_pole"]
STATE = mujoco.mjtState.mjSTATE_INTEGRATION


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """The cart-pole's physics."""
    return Simulation.of(CART_POLE)


def test_simulation_is_what_the_environment_does(simulation: Simulation):
    """From the first start, with what an action becomes, it goes where the environment goes."""
    with CART_POLE.make() as env:
        env.reset(seed=0)
        env.action_space.seed(3)
        env.step(env.action_space.sample())
        scene = vars(env.unwrapped)["_scene"]
        data = mujoco.MjData(simulation.model)
        mujoco.mj_setState(simulation.model, data, simulation.starts[0], STATE)
        data.ctrl[:] = scene.data.ctrl
        mujoco.mj_step(simulation.model, data, simulation.num_substeps)
        np.testing.assert_array_equal(data.qpos, scene.data.qpos)
        np.testing.assert_array_equal(data.qvel, scene.data.qvel)


def test_loop_and_batch_step_the_same(simulation: Simulation):
    """After many steps, through fresh starts, their states are equal to the bit."""
    loop, batch = StepLoop(CART_POLE, 6), BareBatch(Field(CART_POLE, 6, num_workers=2))
    for _ in range(simulation.episode + 10):
        loop.step()
        batch.step()
    for data, row in zip(loop._data, batch._states, strict=True):
        state = np.empty(len(row))
        mujoco.mj_getState(loop._simulation.model, data, state, STATE)
        np.testing.assert_array_equal(state, row)


def test_every_simulation_starts_anew_once_an_episode(simulation: Simulation):
    """All start in the first step, and each again in one step of every episode."""
    assert list(simulation.ended(0, 5)) == [0, 1, 2, 3, 4]
    steps = range(1, simulation.episode + 1)
    counts = np.bincount(np.concatenate([simulation.ended(step, 5) for step in steps]), minlength=5)
    assert list(counts) == [1] * 5


def test_rates_are_positive_and_count_all_environments():
    """A turn steps for a while and says how fast."""
    batch = BareBatch(Field(CART_POLE, 4, num_workers=1))
    assert batch.run(0.001) > 0
    assert StepLoop(CART_POLE, 4).run(0.001) > 0
