"""Wrappers that measure from derived quantities before a step: exact after a restore."""

from __future__ import annotations

from functools import partial

import gymnasium
import mujoco
import numpy as np
import pytest

import superdex.envs  # noqa: F401  # registers ids
from superdex.scenes import share_mujoco
from superdex.states import VectorState
from superdex.vector import HybridVectorEnv


class Potential(gymnasium.Wrapper):
    """Adds the change of a potential that is made of derived quantities."""

    def potential(self):
        data = self.env.unwrapped.data
        names = ("subtree_com", "cvel", "qacc", "qfrc_bias", "geom_xpos", "energy")
        return float(sum(np.sum(getattr(data, name)) for name in names))

    def step(self, action):
        before = self.potential()
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward + before - 0.5 * self.potential(), terminated, truncated, info


class ContactForces(gymnasium.Wrapper):
    """Adds the contact forces before the step, by functions of MuJoCo that take the data."""

    def step(self, action):
        model, data = self.env.unwrapped.model, self.env.unwrapped.data
        force, total = np.zeros(6), float(data.ncon + data.nefc)
        for contact in range(data.ncon):
            mujoco.mj_contactForce(model, data, contact, force)
            total += abs(force).sum() + data.contact[contact].dist
        observation, reward, *rest = self.env.step(action)
        return observation, reward + total, *rest


def plain(name, wrapper=Potential):
    return wrapper(gymnasium.make(name))


MAKERS = {
    "plain": partial(plain, "Hopper-v5"),
    "shared": share_mujoco(partial(plain, "Hopper-v5")),
    "superdex": partial(plain, "superdex/Hopper-v5"),
}


def vector(make):
    return HybridVectorEnv([make] * 3, num_workers=1, in_process=True)


@pytest.mark.filterwarnings("ignore:Environments with array hooks")
@pytest.mark.parametrize(
    ("source", "to"),
    [
        *(("plain", "plain"), ("plain", "shared"), ("shared", "plain"), ("shared", "shared")),
        ("superdex", "superdex"),  # of another class than Gymnasium's
    ],
)
def test_potential_based_rewards_go_on_exactly(source, to):
    """From a file, into a vector that never read one of them."""
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 3, 3)).astype(np.float32)
    with vector(MAKERS[source]) as envs:
        envs.reset(seed=0)
        for action in actions[:13]:
            envs.step(action)
        file = envs.capture_states().to_bytes()
        expected = np.array([envs.step(action).reward for action in actions[13:]])
    with vector(MAKERS[to]) as envs:
        envs.restore_states(VectorState.from_bytes(file))
        got = np.array([envs.step(action).reward for action in actions[13:]])
    assert np.array_equal(got, expected)


@pytest.mark.filterwarnings("ignore:Environments with array hooks")
@pytest.mark.parametrize("name", ["shared", "superdex"])
def test_contact_forces_before_a_step_go_on_exactly(name):
    """On shared scenes, from a file too: MuJoCo repeats the steps that left them."""
    makers = {
        "shared": share_mujoco(partial(plain, "Ant-v5", ContactForces)),
        "superdex": partial(plain, "superdex/Ant-v5", ContactForces),
    }
    actions = np.random.default_rng(0).uniform(-1, 1, (40, 3, 8)).astype(np.float32)
    with vector(makers[name]) as envs:
        envs.reset(seed=0)
        rewards = [envs.step(action).reward for action in actions[:25]]
        file = envs.capture_states().to_bytes()
        expected = np.array([envs.step(action).reward for action in actions[25:]])
    with vector(makers[name]) as envs:
        envs.restore_states(VectorState.from_bytes(file))
        got = np.array([envs.step(action).reward for action in actions[25:]])
    assert np.array_equal(got, expected)
    assert np.max(rewards) > 10  # there were contacts


@pytest.mark.filterwarnings("ignore:Environments with array hooks")
@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5", "Reacher-v5"])
def test_shared_gives_what_unshared_gives(name):
    """Wrapped Gymnasium environments, shared ones, and superdex's versions: the same rewards."""
    rewards = []
    for make in (
        partial(plain, name),
        share_mujoco(partial(plain, name)),
        partial(plain, f"superdex/{name}"),
    ):
        rng = np.random.default_rng(0)
        with vector(make) as envs:
            envs.reset(seed=0)
            size = envs.single_action_space.shape
            actions = rng.uniform(-1, 1, (40, 3, *size)).astype(np.float32)
            rewards.append(np.array([envs.step(action).reward for action in actions]))
    assert np.array_equal(rewards[1], rewards[0])
    assert np.array_equal(rewards[2], rewards[0])
