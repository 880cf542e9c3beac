"""The first promise: a batch gives, bit for bit, what a plain loop gives.

Over all ways to deal twelve environments out to workers, uneven ones too, in the three autoreset
modes, on shared scenes and not. Processes cost time, so environments with physics run the whole
grid in this process, on one scene, and some of it in workers.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv
from superdex.testing import PlainLoop, check_equivalence
from tests.vector.envs import OddInfos, Walk

SPLITS = [(1, 12), (2, 6), (3, 4), (4, 3), (12, 1), (5, 3), (7, 2)]
PHYSICS = [CartPoleEnv, HalfCheetahEnv, AntEnv]


def configured(env_class, *, shared):
    """Return twelve functions; episodes are short, so that there are many resets."""
    cfg = {"use_shared_scenes": shared, "steps_per_episode": 25, "reset_noise_scale": 0.1}
    return [partial(env_class, cfg)] * 12


@pytest.mark.parametrize(
    ("mode", "splits"),
    [
        (AutoresetMode.NEXT_STEP, [(3, 4), (12, 1), (7, 2)]),
        (AutoresetMode.SAME_STEP, [(1, 12), (5, 3)]),
        (AutoresetMode.DISABLED, [(2, 6), (4, 3)]),
    ],
    ids=lambda value: getattr(value, "name", "splits"),
)
def test_plain_environments_in_workers(mode, splits):
    """Every split and every mode, in processes; all splits in all modes are tried in this one."""
    env_fns = [partial(Walk, tag) for tag in range(12)]
    check_equivalence(env_fns, splits, num_steps=60, autoreset_modes=[mode])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_odd_infos_in_every_split(mode):
    """Whatever infos hold, however they are learned and merged."""
    env_fns = [partial(OddInfos, tag) for tag in range(12)]
    check_equivalence(env_fns, SPLITS, num_steps=60, autoreset_modes=[mode], in_process=True)


def test_odd_infos_in_workers():
    """Through the pipes and columns too."""
    env_fns = [partial(OddInfos, tag) for tag in range(12)]
    check_equivalence(env_fns, [(3, 4)], num_steps=60)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "unshared"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("env_class", PHYSICS)
def test_physics_in_every_split(env_class, mode, shared):
    """All environments of a split take turns on one scene, or have one each."""
    check_equivalence(
        configured(env_class, shared=shared),
        SPLITS,
        num_steps=60,
        autoreset_modes=[mode],
        in_process=True,
    )


@pytest.mark.parametrize("env_class", PHYSICS)
def test_physics_in_workers(env_class):
    """Shared scenes in several processes."""
    check_equivalence(configured(env_class, shared=True), [(3, 4)], num_steps=60)


@pytest.mark.parametrize("env_class", [HalfCheetahEnv, AntEnv])
def test_those_runs_have_contacts(env_class):
    """Else they would prove little: solver warm starts matter from the first contact on."""
    env = configured(env_class, shared=True)[0]()
    loop = PlainLoop(env, AutoresetMode.NEXT_STEP)
    loop.reset(seed=0)
    rng = np.random.default_rng(0)
    contacts = 0
    for _ in range(60):
        loop.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
        contacts += env.unwrapped._scene.data.ncon
    env.close()
    assert contacts > 20


def test_different_seeds_and_actions_give_different_runs():
    """So that equality says something."""
    loops = [PlainLoop(AntEnv({"reset_noise_scale": 0.1}), AutoresetMode.NEXT_STEP) for _ in "ab"]
    observations = [loop.reset(seed=seed).observation for seed, loop in enumerate(loops)]
    for loop in loops:
        loop.env.close()
    assert not np.array_equal(*observations)
