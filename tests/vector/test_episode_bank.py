"""Episodes that begin with a state of a bank."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode

from superdex.envs import CartPoleEnv
from superdex.errors import StateCaptureUnsupported
from superdex.scenes import share_mujoco
from superdex.states import VectorState
from superdex.vector import HybridVectorEnv
from tests.vector.envs import walks
from tests.vector.test_states import (
    MODES,
    Stroll,
    VariedCartPole,
    assert_same,
    random_actions,
    run,
    short_cart_pole,
    strolls,
)

pytestmark = [
    pytest.mark.usefixtures("nothing_remains"),
    pytest.mark.filterwarnings("ignore:Worker . .*is restarted:RuntimeWarning"),
]


def bank_of(factory, count: int = 5, steps: int = 1, **kwargs: Any) -> VectorState:
    """Return states of environments some steps into their episodes."""
    with HybridVectorEnv([factory] * count, in_process=True, **kwargs) as envs:
        envs.reset(seed=100)
        run(envs, random_actions(envs, steps))
        return envs.capture_states()


def by_sum(index: int, episode: int) -> int:
    return (index + episode) % 5


class Slow(Stroll):
    """Counts its own resets."""

    def get_state(self):
        state = super().get_state()
        return {key: value for key, value in state.items() if key != "seeds"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "factory",
    [
        Stroll,
        short_cart_pole,
        partial(VariedCartPole, steps_per_episode=13),
        share_mujoco(partial(gym.make, "Hopper-v5", max_episode_steps=9)),
    ],
)
def test_every_reset_puts_a_state_of_the_bank(make, factory, mode):
    """Autoresets and the caller's; the info says which one."""
    bank = bank_of(factory)
    envs = make([factory] * 6, num_workers=2, autoreset_mode=mode)
    envs.use_episode_bank(bank, by_sum)
    observation, info = envs.reset(seed=0)
    rows = [by_sum(index, 0) for index in range(6)]
    assert info["bank_row"].tolist() == rows
    np.testing.assert_array_equal(observation, bank.results["observation"][rows])
    episodes = np.zeros(6, np.int64)
    begun = 0
    for batch in random_actions(envs, 40):
        result = envs.step(batch.astype(np.float32))
        fresh, info, observation = envs.autoreset_mask, result.info, result.observation
        if mode is AutoresetMode.DISABLED:
            fresh = result.terminated | result.truncated
            if not fresh.any():
                continue
            observation, info = envs.reset_envs(fresh)
        episodes += fresh
        for index in np.flatnonzero(fresh):
            row = by_sum(int(index), int(episodes[index]))
            assert info["bank_row"][index] == row
            np.testing.assert_array_equal(observation[index], bank.results["observation"][row])
            begun += 1
        assert not fresh.any() or info["_bank_row"].tolist() == fresh.tolist()
    assert begun > 6


def test_episodes_of_the_bank_are_those_of_the_states(make):
    """An episode that begins with a state goes on as that one did."""
    bank = bank_of(short_cart_pole)
    actions = np.repeat(random_actions(make([short_cart_pole]), 30), 5, axis=1)
    straight = make([short_cart_pole] * 5)
    straight.restore_states(bank)
    envs = make([short_cart_pole] * 5, num_workers=2)
    envs.use_episode_bank(bank, by_sum)
    envs.reset()
    for one, other in zip(run(straight, actions[:12]), run(envs, actions[:12]), strict=True):
        for a, b in zip(one[:-1], other[:-1], strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_environments_own_reset_does_not_run(make):
    """That is what the bank is for."""
    bank = bank_of(Slow)
    envs = make([Slow] * 4, num_workers=2)
    envs.use_episode_bank(bank)
    envs.reset(seed=0)
    run(envs, random_actions(envs, 30))
    assert all(seeds == [] for seeds in envs.get_attr("seeds"))


@pytest.mark.parametrize("mode", MODES)
def test_the_draw_depends_on_seed_and_episode_alone(make, mode):
    """Not on split, bank's user, or what was before."""
    bank = bank_of(short_cart_pole)
    shown = []
    for workers in (1, 3):
        envs = make([short_cart_pole] * 6, num_workers=workers, autoreset_mode=mode)
        envs.use_episode_bank(bank)
        first = envs.reset(seed=3)
        shown.append([first, *run(envs, random_actions(envs, 60))])
    assert_same(*shown)
    rows = {int(row) for result in shown[0] for row in result.info.get("bank_row", [])}
    assert len(rows) > 2


def test_an_environment_keeps_its_own_generator(make):
    """Two that begin with one state part where they draw."""
    bank = bank_of(Stroll, count=1)
    envs = make([Stroll] * 4)
    envs.use_episode_bank(bank)
    envs.reset(seed=0)
    result = envs.step(np.zeros((4, 2), np.float32))
    assert len(set(result.reward.tolist())) == 4
    again = make([Stroll] * 4, num_workers=4)
    again.use_episode_bank(bank)
    again.reset(seed=0)
    np.testing.assert_array_equal(again.step(np.zeros((4, 2), np.float32)).reward, result.reward)


def test_statistics_of_wrappers_go_on(make):
    """What a wrapper keeps from episode to episode is not the bank's."""

    def factory():
        return wrappers.NormalizeReward(
            wrappers.RecordEpisodeStatistics(gym.make("Pendulum-v1", max_episode_steps=8))
        )

    bank = bank_of(factory, steps=3)
    envs = make([factory] * 2)
    envs.use_episode_bank(bank)
    envs.reset(seed=0)
    run(envs, random_actions(envs, 30))
    assert [len(queue) for queue in envs.get_attr("length_queue")] == [5, 5]
    assert envs.get_attr("episode_count") == (5, 5)
    assert envs.get_attr("return_rms")[0].count > 24  # one step in six is a reset


def test_none_ends_it(make):
    """Resets are the environments' own again."""
    envs, twin = make(strolls(3)), make(strolls(3))
    envs.use_episode_bank(bank_of(Stroll))
    envs.reset(seed=1)
    envs.use_episode_bank(None)
    one, other = envs.reset(seed=[5, 6, 7]), twin.reset(seed=[5, 6, 7])
    np.testing.assert_array_equal(one.observation[:, 0], other.observation[:, 0])
    assert "bank_row" not in one.info


def misshapen(bank: VectorState) -> VectorState:
    observation = bank.results["observation"][:, :2]
    return VectorState(bank.tags, bank.rows, bank.results | {"observation": observation})


@pytest.mark.parametrize(
    ("bank", "choose", "error", "message"),
    [
        (lambda: bank_of(CartPoleEnv), None, ValueError, "Environment 0: State 0 of the bank"),
        (lambda: bank_of(short_cart_pole)[[]], None, ValueError, "bank is empty"),
        (lambda: 3, None, TypeError, "must be a VectorState or None, got int"),
        (lambda: bank_of(short_cart_pole), 3, TypeError, "choose must be a function"),
        (lambda: None, by_sum, ValueError, "without a bank"),
        (lambda: misshapen(bank_of(short_cart_pole)), None, ValueError, r"got \(2,\) of float32"),
        (lambda: bank_of(short_cart_pole, steps=13), None, ValueError, "episode that is over"),
    ],
)
def test_a_bank_that_does_not_fit_is_refused(make, bank, choose, error, message):
    """The one in use stays in use."""
    envs = make([short_cart_pole] * 3, num_workers=2)
    envs.use_episode_bank(bank_of(short_cart_pole), by_sum)
    with pytest.raises(error, match=message):
        envs.use_episode_bank(bank(), choose)
    assert envs.reset().info["bank_row"].tolist() == [0, 1, 2]


def test_environments_that_are_not_supported_are_named(make):
    """As in capture_states."""
    envs = make(walks(2))
    with pytest.raises(StateCaptureUnsupported, match="Environment 0: The state of Walk"):
        envs.use_episode_bank(bank_of(Stroll))
    envs.reset(seed=0)


def test_a_choice_out_of_range_is_an_error_of_that_environment(make):
    """It says what choose returned."""
    envs = make([short_cart_pole] * 2)
    envs.use_episode_bank(bank_of(short_cart_pole), lambda index, episode: 5 * index)
    with pytest.raises(Exception, match=r"choose\(1, 0\) must return a row of the bank, 0 to 4"):
        envs.reset()


def test_a_restarted_worker_uses_the_bank_too(make_workers):
    """It is told of it before its first reset."""
    bank = bank_of(Stroll)
    envs = make_workers([Stroll] * 4, num_workers=2, on_worker_failure="restart")
    envs.use_episode_bank(bank, by_sum)
    envs.reset(seed=0)
    os.kill(envs.worker_pids[1], signal.SIGKILL)
    envs.step(np.zeros((4, 2), np.float32))
    info = envs.step(np.zeros((4, 2), np.float32)).info
    assert info["bank_row"][2:].tolist() == [by_sum(2, 1), by_sum(3, 1)]


def test_a_choice_that_is_no_number_is_an_error_of_that_environment(make):
    """A bool least of all: it is the answer to another question."""
    envs = make([short_cart_pole] * 2)
    envs.use_episode_bank(bank_of(short_cart_pole), lambda index, episode: True)
    with pytest.raises(Exception, match=r"must return a row of the bank, 0 to 4, got True"):
        envs.reset()


def test_states_just_after_an_autoreset_make_a_bank(make):
    """The flags are of the episode before, where an environment is reset in the same step."""
    envs = make([short_cart_pole] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    truncated = np.zeros(2, np.bool_)
    while not truncated.all():
        observation, _, _, truncated, _ = envs.step(np.zeros((2, 1), np.float32))
    envs.use_episode_bank(envs.capture_states(), lambda index, episode: 1 - index)
    np.testing.assert_array_equal(envs.reset()[0], observation[::-1])


def test_a_run_with_a_bank_goes_on_with_the_same_bank(make):
    """And with no other."""
    bank = bank_of(short_cart_pole)
    one, two = make([short_cart_pole] * 3), make([short_cart_pole] * 3, num_workers=3)
    one.use_episode_bank(bank)
    one.reset(seed=0)
    actions = random_actions(one, 50)
    run(one, actions[:10])
    saved = one.state_dict()
    with pytest.raises(ValueError, match="expected episode_bank=None, as here, got"):
        two.load_state_dict(saved)
    two.use_episode_bank(VectorState.from_bytes(bank.to_bytes()))
    two.load_state_dict(saved)
    assert_same(run(one, actions[10:]), run(two, actions[10:]))


def test_a_bank_works_with_autoreset_disabled(make):
    """Resets by hand take from it."""
    bank = bank_of(short_cart_pole)
    envs = make([short_cart_pole] * 2, autoreset_mode=AutoresetMode.DISABLED)
    envs.use_episode_bank(bank, by_sum)
    envs.reset()
    _, info = envs.reset_envs([1])
    assert info["bank_row"][1] == by_sum(1, 1)
