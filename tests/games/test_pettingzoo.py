"""One game as a PettingZoo environment."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

pettingzoo_test = pytest.importorskip("pettingzoo.test")

from superdex.errors import ResetNeeded, StaleStateError  # noqa: E402 - it needs PettingZoo
from superdex.games.pettingzoo import PettingZooGameEnv  # noqa: E402 - as above

SMALL = {"width": 9, "height": 8}
EXPECTED_WARNINGS = {
    # PettingZoo knows by name which environments have observations with a mask.
    "Observation is not a NumPy array",
    (
        "Observation space for each agent probably should be gymnasium.spaces.box or "
        "gymnasium.spaces.discrete"
    ),
}


@pytest.fixture
def make(tron):
    """Makes a small game of Tron with PettingZoo's face."""
    return partial(PettingZooGameEnv, "tron", library=tron, options=SMALL)


def test_it_passes_the_tests_of_pettingzoo(make):
    """The one for the interface, with no warnings but of names, and the one for seeds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pettingzoo_test.api_test(make(seed=3), num_cycles=300)
        pettingzoo_test.seed_test(make, num_cycles=60)
    assert {str(warning.message) for warning in caught} <= EXPECTED_WARNINGS


def test_seats_take_turns_until_one_has_lost(make):
    """Rewards of both add up to zero; after the end nobody is left."""
    env = make(seed=1)
    for _ in range(5):
        env.reset()
        total, turns = dict.fromkeys(env.possible_agents, 0.0), []
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, _ = env.last()
            total[agent] += reward
            over = terminated or truncated
            turns.append(None if over else agent)
            env.step(None if over else int(observation["action_mask"].argmax()))
        moves = [agent for agent in turns if agent]
        assert all(one != other for one, other in pairwise(moves))
        assert sorted(total.values()) in ([-1.0, 1.0], [0.0, 0.0])
        assert env.agents == []


def test_an_agent_sees_the_position_when_it_is_to_move(make):
    """Before its first turn nothing; after its turn what it saw then, without legal actions."""
    env = make(seed=1)
    env.reset()
    mover = env.agent_selection
    other = next(agent for agent in env.agents if agent != mover)
    assert not env.observe(other)["observation"].any()
    seen = env.observe(mover)
    assert seen["action_mask"].any()
    env.step(int(seen["action_mask"].argmax()))
    assert env.agent_selection == other
    later = env.observe(mover)
    np.testing.assert_array_equal(later["observation"], seen["observation"])
    assert not later["action_mask"].any()
    later["observation"][:] = 9
    assert env.observe(mover)["observation"].max() < 9


def test_an_illegal_action_leaves_the_game_as_it_is(make):
    """The same agent moves again, and its info says so."""
    env = make(seed=1)
    env.reset()
    agent, seen = env.agent_selection, env.observe(env.agent_selection)
    for wrong in (-1, 17):
        env.step(wrong)
        assert env.agent_selection == agent
        assert env.infos[agent] == {"action_valid": False}
        assert env.rewards == dict.fromkeys(env.agents, 0.0)
        np.testing.assert_array_equal(env.observe(agent)["observation"], seen["observation"])
    for wrong in (None, 1.0, True, 2**32):
        with pytest.raises(ValueError, match="must be"):
            env.step(wrong)


def test_nobody_can_step_before_the_reset_nor_after_the_end(make):
    """It says that a reset is needed."""
    env = make(seed=1, max_episode_steps=1)
    with pytest.raises(ResetNeeded, match="call reset first"):
        env.step(0)
    env.reset()
    env.step(int(env.observe(env.agent_selection)["action_mask"].argmax()))
    for _ in env.possible_agents:
        env.step(None)
    with pytest.raises(ResetNeeded, match="call reset first"):
        env.step(None)


def test_an_agent_that_does_not_exist_sees_nothing(make):
    """Not even zeros: it is an error."""
    env = make(seed=1)
    env.reset()
    with pytest.raises(ValueError, match="no agent 'player_2'"):
        env.observe("player_2")


def test_a_game_that_has_moved_by_itself_has_to_be_reset(make):
    """As after a step that was interrupted: no seat moves in the place of another."""
    env = make(seed=1)
    env.reset()
    action = int(env.observe(env.agent_selection)["action_mask"].argmax())
    env.games.step(np.array([action]))
    with pytest.raises(StaleStateError):
        env.step(action)
    env.reset()
    env.step(int(env.observe(env.agent_selection)["action_mask"].argmax()))


def test_truncated_games_end_for_all_agents(make):
    """After so many actions; nobody has terminated."""
    env = make(seed=1, max_episode_steps=2)
    env.reset()
    for _ in range(2):
        env.step(int(env.observe(env.agent_selection)["action_mask"].argmax()))
    assert all(env.truncations.values())
    assert not any(env.terminations.values())


def test_callers_reset_it_themselves(make):
    """So auto_reset is no setting of it."""
    with pytest.raises(TypeError, match="auto_reset"):
        make(auto_reset=True)


def test_games_alone_do_not_import_pettingzoo():
    """It loads from its own module only."""
    program = "import sys, superdex.games; assert 'pettingzoo' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
