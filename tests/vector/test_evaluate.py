"""Evaluation: what is played, by whom and how often, compared with a plain loop."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeObservation

from superdex.errors import CallPending, ClosedError, ResetNeeded
from superdex.vector import Evaluation, evaluate
from superdex.vector._seeding import derived_seed
from tests.buffers.arrays import Drift
from tests.vector.envs import Walk
from tests.vector.rows import Faulty, kill_self, stumble

LENGTHS = (1, 30, 2, 7, 3)
"""The longest episodes of the environments, short and long ones mixed."""

MODES = list(AutoresetMode)


class Counted(Walk):
    """A walk with episodes of up to `longest` steps, which counts what is done to it."""

    def __init__(self, longest=6):
        super().__init__()
        self.longest = longest
        self.all_steps = 0
        self.first_positions = []

    def reset(self, **kwargs):
        super().reset(**kwargs)
        self.length = int(self.np_random.integers(1, self.longest + 1))
        self.first_positions.append(self.position)
        return self.observe(), {}

    def step(self, action):
        self.all_steps += 1
        return super().step(action)

    def observe(self):
        # the number of the episode would tell an episode that is played again from another
        return np.array([self.position, self.steps, self.longest], np.float32)


def build(longest=6) -> gym.Env:
    return Counted(longest)


BUILDS = [partial(build, longest) for longest in LENGTHS]


def policy(observations: np.ndarray) -> np.ndarray:
    """Return actions that depend on all of what is seen."""
    position, steps = observations[:, 0], observations[:, 1]
    return np.stack([np.sin(position), np.cos(steps + position)], axis=1).astype(np.float32)


@cache
def alone(index: int, seed: int) -> tuple[float, int, bool, bool]:
    """Return the return, length and flags of one episode in a plain loop."""
    env = BUILDS[index]()
    observation, _ = env.reset(seed=seed)
    total, length = 0.0, 0
    while True:
        observation, reward, terminated, truncated, _ = env.step(policy(observation[None])[0])
        total, length = total + float(reward), length + 1
        if terminated or truncated:
            return total, length, terminated, truncated


def assert_equals_plain_loops(result: Evaluation) -> None:
    """Compare every episode with a plain loop from its seed, bit for bit."""
    for (index, episode), seed in np.ndenumerate(result.seeds):
        total, length, terminated, truncated = alone(index, int(seed))
        at = index, episode
        assert result.returns[at] == total
        assert result.lengths[at] == length
        assert result.terminated[at] == terminated
        assert result.truncated[at] == truncated
        assert result.reasons[at] == ("terminated" if terminated else "time limit")


# ── what is played ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", [0, 1, 2, 5])
def test_every_episode_equals_a_plain_loop(make, mode, num_workers):
    """For every split and autoreset mode; 0 stands for none but this process."""
    envs = make(
        BUILDS, num_workers=num_workers or 2, in_process=num_workers == 0, autoreset_mode=mode
    )
    result = evaluate(envs, policy, episodes_per_env=4, seed=10)
    assert result.returns.shape == (len(BUILDS), 4)
    assert_equals_plain_loops(result)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("in_process", [True, False])
def test_each_environment_is_stepped_as_often_as_its_episodes_need(make, mode, in_process):
    """Counted within the environments; the vector's own count agrees."""
    envs = make(BUILDS, num_workers=2, autoreset_mode=mode, in_process=in_process)
    result = evaluate(envs, policy, episodes_per_env=5, seed=1)
    assert list(envs.get_attr("all_steps")) == result.lengths.sum(axis=1).tolist()
    assert envs.statistics().env_steps == result.env_steps == result.lengths.sum()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_each_environment_is_reset_once_for_each_episode(make, mode):
    """No reset is made for nothing where the mode leaves resets to the caller or to a step."""
    envs = make(BUILDS, num_workers=2, autoreset_mode=mode)
    evaluate(envs, policy, episodes_per_env=5, seed=1)
    assert [len(first) for first in envs.get_attr("first_positions")] == [5] * len(BUILDS)


def test_seeds_are_those_of_episode_seeds(make):
    """Episode 0 has the environment's seed, later ones a seed derived from it."""
    envs = make(BUILDS, num_workers=2)
    result = evaluate(envs, policy, episodes_per_env=3, seed=[8, 1, 5, 0, 3])
    assert result.seeds.dtype == np.int64
    assert result.seeds.tolist() == [
        [seed, derived_seed(seed, 1), derived_seed(seed, 2)] for seed in (8, 1, 5, 0, 3)
    ]


def test_episodes_without_a_seed_have_one_afterwards(make):
    """Drawn seeds differ from run to run, and play the same episodes again."""
    envs = make(BUILDS, num_workers=2)
    first = evaluate(envs, policy, episodes_per_env=2)
    second = evaluate(envs, policy, episodes_per_env=2, seed=[None, 7, None, None, None])
    assert not np.array_equal(first.seeds, second.seeds)
    assert second.seeds[1, 0] == 7
    assert_equals_plain_loops(first)
    assert_equals_plain_loops(second)


def test_a_seed_of_any_size_is_kept_whole(make):
    """One too large for 64 bits comes back as it was given."""
    result = evaluate(make(BUILDS, num_workers=1), policy, seed=2**70)
    assert result.seeds.ravel().tolist() == [2**70 + index for index in range(5)]


def test_what_was_before_makes_no_difference(make):
    """The episode in progress, pending autoresets and an earlier evaluation."""
    envs = make(BUILDS, num_workers=2)
    first = evaluate(envs, policy, episodes_per_env=2, seed=3)
    envs.reset(seed=99)
    for _ in range(4):
        envs.step(envs.action_space.sample())
    second = evaluate(envs, policy, episodes_per_env=2, seed=3)
    assert np.array_equal(first.returns, second.returns)


def test_options_are_given_to_every_reset(make):
    """A list has one entry for each environment."""
    envs = make(BUILDS, num_workers=2)
    options = [{"level": index} for index in range(4)] + [None]
    evaluate(envs, policy, episodes_per_env=2, options=options)
    assert list(envs.get_attr("options")) == [[entry] * 2 for entry in options]


def test_views_of_results_do_no_harm(make):
    """With `copy=False` the results are the same."""
    envs = make(BUILDS, num_workers=2, copy=False)
    assert_equals_plain_loops(evaluate(envs, policy, episodes_per_env=3, seed=2))


def test_another_class_with_slots_can_be_evaluated():
    """One that gives no reasons gets plain ones."""
    result = evaluate(Drift(4), lambda seen: np.ones(len(seen), np.float32), episodes_per_env=2)
    assert result.lengths.tolist() == [[3, 3]] * 4
    assert result.reason_counts == {"terminated": 8}


# ── the policy ──────────────────────────────────────────────────────────────────────────────────


def test_policy_sees_those_that_still_play(make):
    """Rows in the order of the environments, fewer as they finish; one call for each step."""
    seen = []

    def noting(observations):
        seen.append(observations[:, 2].astype(int).tolist())
        return policy(observations)

    result = evaluate(make(BUILDS, num_workers=2), noting, episodes_per_env=3, seed=1)
    steps = result.lengths.sum(axis=1)
    expected = [
        [longest for longest, last in zip(LENGTHS, steps, strict=True) if last > step]
        for step in range(steps.max())
    ]
    assert seen == expected


def test_policy_may_write_to_what_it_sees(make):
    """It gets a copy, also of a fixed batch."""

    def spoiling(observations):
        assert (observations < 1e8).all()  # nor do rows that rest show what it wrote
        actions = policy(observations)
        observations[:] = 1e9
        return actions

    for fixed in (False, True):
        envs = make(BUILDS, num_workers=2)
        result = evaluate(envs, spoiling, episodes_per_env=2, seed=1, fixed_batch=fixed)
        assert_equals_plain_loops(result)


def test_fixed_batch_always_has_all_rows(make):
    """The results are the same; rows that have finished keep their last observation."""
    seen = []

    def noting(observations):
        seen.append(observations)
        return policy(observations)

    envs = make(BUILDS, num_workers=2, autoreset_mode=AutoresetMode.DISABLED)
    result = evaluate(envs, noting, episodes_per_env=2, seed=4, fixed_batch=True)
    assert_equals_plain_loops(result)
    assert {batch.shape for batch in seen} == {(5, 3)}
    assert not seen[0][:, 1].any()  # it may keep what it gets
    steps = result.lengths.sum(axis=1)
    assert steps[0] < len(seen) - 1
    assert np.array_equal(seen[-1][0], seen[steps[0]][0])


def test_beginnings_are_told_before_the_policy_sees_them(make):
    """So a policy with a memory knows which rows of it to clear."""
    memory = np.zeros(len(BUILDS), int)
    begun = np.zeros(len(BUILDS), int)

    def clear(env_ids):
        assert env_ids.dtype == np.int32
        memory[env_ids] = 0
        begun[env_ids] += 1

    def remembering(observations):
        finished = begun == 3
        assert np.array_equal(memory[~finished], observations[~finished, 1])
        memory[:] += 1
        return policy(observations)

    envs = make(BUILDS, num_workers=2)
    result = evaluate(
        envs,
        remembering,
        episodes_per_env=3,
        seed=1,
        fixed_batch=True,
        on_episode_start=clear,
    )
    assert begun.tolist() == [3] * 5
    assert_equals_plain_loops(result)


def test_actions_may_be_what_numpy_makes_an_array_of(make):
    """Lists, say; float64 is cast as in `step`."""
    envs = make(BUILDS, num_workers=2)
    result = evaluate(envs, lambda seen: policy(seen).tolist(), episodes_per_env=2, seed=1)
    assert_equals_plain_loops(result)


@pytest.mark.parametrize("fixed", [False, True])
def test_actions_for_another_number_of_rows_are_refused(make, fixed):
    """The message has both shapes; nothing is stepped."""
    envs = make(BUILDS, num_workers=2)
    with pytest.raises(ValueError, match=r"policy must return .*\(5, 2\), got \(4, 2\)"):
        evaluate(envs, lambda seen: policy(seen)[1:], fixed_batch=fixed)
    assert list(envs.get_attr("all_steps")) == [0] * 5


def test_actions_of_another_kind_are_refused(make):
    """As `step` refuses them."""
    envs = make(BUILDS, num_workers=2)
    with pytest.raises(ValueError, match="same_kind"):
        evaluate(envs, lambda seen: policy(seen).astype(complex))
    assert list(envs.get_attr("all_steps")) == [0] * 5


def test_policy_that_raises_leaves_environments_usable(make):
    """The exception arrives as it is; `reset` and another evaluation follow."""

    def failing(observations):
        if observations[:, 1].any():
            raise KeyError("no such policy")
        return policy(observations)

    envs = make(BUILDS, num_workers=2)
    with pytest.raises(KeyError, match="no such policy"):
        evaluate(envs, failing, seed=2)
    assert_equals_plain_loops(evaluate(envs, policy, seed=2))
    envs.reset()


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [
        {"episodes_per_env": 0},
        {"episodes_per_env": -1},
        {"episodes_per_env": True},
        {"episodes_per_env": 2.0},
        {"seed": -1},
        {"seed": [1, 2]},
        {"options": [{}]},
    ],
    ids=str,
)
def test_other_arguments_are_refused_before_anything_is_reset(make, arguments):
    """The message names the argument."""
    envs = make(BUILDS, num_workers=2)
    with pytest.raises(ValueError, match=next(iter(arguments))):
        evaluate(envs, policy, **arguments)
    assert list(envs.get_attr("first_positions")) == [[]] * 5


def test_environments_in_flight_are_refused(make):
    """They stay in flight, and their results can be taken."""
    envs = make(BUILDS, num_workers=2)
    observations, _ = envs.reset(seed=1)
    ticket = envs.submit_slots([3], policy(observations)[3:4])
    with pytest.raises(CallPending, match="environment 3"):
        evaluate(envs, policy)
    assert envs.wait_slots(ticket).env_id.tolist() == [3]
    envs.step_async(policy(observations))
    with pytest.raises(CallPending):
        evaluate(envs, policy)
    envs.step_wait()
    assert_equals_plain_loops(evaluate(envs, policy, seed=1))


def test_closed_environments_are_refused(make):
    """As by every call."""
    envs = make(BUILDS, num_workers=2)
    envs.close()
    with pytest.raises(ClosedError):
        evaluate(envs, policy)


def test_wrappers_are_refused(make):
    """Their change of observations would go unseen; other vector environments have no slots."""
    for envs in (NormalizeObservation(make(BUILDS, num_workers=2)), SyncVectorEnv(BUILDS)):
        wrong: Any = envs
        with pytest.raises(TypeError, match="vector environment with slots"):
            evaluate(wrong, policy)


def test_a_policy_that_is_no_function_is_refused(make):
    """Before anything is reset."""
    wrong: Any = 3
    with pytest.raises(TypeError, match="policy must be a function of observations, got 3"):
        evaluate(make(BUILDS, num_workers=2), wrong)


def test_inner_class_is_refused_when_some_of_a_worker_have_finished(make):
    """It steps all or none; the message says so."""
    envs = make(BUILDS, num_workers=1, inner_env_cls=SyncVectorEnv)
    with pytest.raises(ValueError, match="inner_env_cls"):
        evaluate(envs, policy, seed=1)


# ── afterwards ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
def test_environments_are_as_after_their_last_step(make, mode):
    """What the next step does is what the mode says."""
    envs = make(BUILDS, num_workers=2, autoreset_mode=mode)
    evaluate(envs, policy, seed=1)
    actions = np.zeros(envs.action_space.shape, np.float32)
    if mode is AutoresetMode.DISABLED:
        with pytest.raises(ResetNeeded):
            envs.step(actions)
    else:
        steps = envs.step(actions).observation[:, 1]
        if mode is AutoresetMode.NEXT_STEP:
            assert envs.autoreset_mask.all()
            assert steps.tolist() == [0] * 5
        else:
            assert steps[~envs.autoreset_mask].tolist() == [1] * (5 - envs.autoreset_mask.sum())
    envs.reset(seed=1)
    envs.step(actions)


# ── faults ──────────────────────────────────────────────────────────────────────────────────────


def faulty(index: int, do: Any, fuse: Path | None, at: str = "step") -> list[Any]:
    """Return the functions; one environment fails in its third step or reset."""
    builds: list[Any] = list(BUILDS)
    builds[index] = partial(_faulty, BUILDS[index], do, fuse, at)
    return builds


def _faulty(build, do, fuse, at):
    return Faulty(build(), at, do, after=2, fuse=fuse)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
def test_episode_that_an_error_cut_short_is_played_again(make, tmp_path, mode):
    """The results are those of a run without the fault."""
    builds = faulty(1, stumble, tmp_path / "fuse")
    envs = make(builds, num_workers=2, on_env_error="truncate", autoreset_mode=mode)
    assert_equals_plain_loops(evaluate(envs, policy, episodes_per_env=3, seed=1))
    assert envs.statistics().env_errors == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", ["step", "reset"])
def test_episodes_of_a_worker_that_died_are_played_again(make_workers, tmp_path, mode, at):
    """The results are those of a run without the fault."""
    builds = faulty(1, kill_self, tmp_path / "fuse", at)
    envs = make_workers(builds, num_workers=2, on_worker_failure="restart", autoreset_mode=mode)
    assert_equals_plain_loops(evaluate(envs, policy, episodes_per_env=3, seed=1))
    assert sum(envs.statistics().worker_restarts) == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_episode_that_fails_twice_stays_as_it_is(make):
    """With the reason, its two steps and what they gave; the other environments notice nothing."""
    envs = make(faulty(1, stumble, None), num_workers=2, on_env_error="truncate")
    result = evaluate(envs, policy, seed=1)
    assert result.reasons[1, 0] == "environment error"
    assert result.lengths[1, 0] == 2
    assert not result.terminated[1, 0]
    assert result.truncated[1, 0]
    assert envs.statistics().env_errors == 2
    for index in (0, 2, 3, 4):
        assert result.returns[index, 0] == alone(index, 1 + index)[0]


# ── the numbers ─────────────────────────────────────────────────────────────────────────────────


def evaluation(returns: Any) -> Evaluation:
    """Return an evaluation with those returns."""
    returns = np.array(returns, float)
    return Evaluation(
        returns=returns,
        lengths=np.arange(1, returns.size + 1).reshape(returns.shape),
        seeds=np.zeros(returns.shape, np.int64),
        reasons=np.array(["fell", "won", "won", "won"][: returns.size], object).reshape(
            returns.shape
        ),
        terminated=np.ones(returns.shape, np.bool_),
        truncated=np.zeros(returns.shape, np.bool_),
    )


def test_summary_is_what_the_arrays_say():
    """Worked by hand: 1, 3, 5, 7 have the mean 4 and the sum of squares 20."""
    result = evaluation([[1, 3], [5, 7]])
    assert (result.num_episodes, result.env_steps, result.mean_length) == (4, 10, 2.5)
    assert result.mean_return == 4
    assert result.std_return == pytest.approx(np.sqrt(20 / 3))
    assert result.standard_error == pytest.approx(np.sqrt(20 / 3) / 2)
    assert list(result.reason_counts.items()) == [("won", 3), ("fell", 1)]
    assert str(result) == "4 episodes: return 4 ± 1.3, length 2.5; 3 × won, 1 × fell"


def test_single_episode_has_no_standard_error():
    """Nothing can be said of a spread, without a warning."""
    result = evaluation([[2.0]])
    assert np.isnan([result.std_return, result.standard_error]).all()


def test_results_are_read_only():
    """A record does not change."""
    with pytest.raises(ValueError, match="read-only"):
        evaluation([[2.0]]).returns[0, 0] = 3


def test_progress_shows_nothing_where_there_is_no_terminal(make, capfd):
    """A log file gets no bar."""
    evaluate(make(BUILDS, num_workers=1), policy, progress=True)
    assert capfd.readouterr() == ("", "")
