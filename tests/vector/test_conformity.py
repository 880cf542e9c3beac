"""Environments as people write them: wrapped, in float64, with odd rewards, with processes.

Each is compared with a plain loop, in workers and in every autoreset mode.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from functools import partial
from multiprocessing.pool import ThreadPool

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RescaleAction, TimeLimit

from superdex.testing import check_equivalence
from tests.vector.envs import Fixed, Walk, walk_actions

NUM_ENVS = 5
ZEROS = np.zeros((NUM_ENVS, 1), np.float32)
MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)


def check(build, mode, *, num_steps=60):
    """Compare five environments over two workers with plain loops."""
    env_fns = [partial(build, tag) for tag in range(NUM_ENVS)]
    check_equivalence(env_fns, [(2, 3)], num_steps=num_steps, autoreset_modes=[mode])


# ── wrappers of single environments ─────────────────────────────────────────────────────────────


class Long(Walk):
    """A walk of 3 to 12 steps that terminates; a time limit may come first, or at the same time."""

    def reset(self, **kwargs):
        result = super().reset(**kwargs)
        self.length = 2 * int(self.np_random.integers(2, 7))
        return result


class Timeless(gym.Wrapper):
    """Leaves out the seconds that an episode took, which are never the same twice."""

    def step(self, action):
        result = self.env.step(action)
        result[4].get("episode", {}).pop("t", None)
        return result


def limited(tag):
    return TimeLimit(Long(tag), 6)


def wrapped(tag):
    """Return an environment in many wrappers, some of which keep a state of their own."""
    env: gym.Env = TimeLimit(Long(tag), 8)
    env = Timeless(gym.wrappers.RecordEpisodeStatistics(env))
    env = RescaleAction(env, np.full(2, -3, np.float32), np.full(2, 3, np.float32))
    env = gym.wrappers.ClipAction(env)
    env = gym.wrappers.DelayObservation(env, delay=1)
    env = gym.wrappers.TimeAwareObservation(env, flatten=True)
    env = gym.wrappers.FrameStackObservation(env, 3)
    env = gym.wrappers.FlattenObservation(env)
    env = gym.wrappers.NormalizeObservation(env)
    return gym.wrappers.TransformReward(env, lambda reward: 2 * reward)


def made(_tag):
    """Return what `gymnasium.make` gives: checked, in order, with a time limit."""
    return gym.make("Pendulum-v1", max_episode_steps=7)


@MODES
def test_a_time_limit_truncates_as_in_a_plain_loop(mode):
    """Also where the episode terminates in that very step."""
    check(limited, mode)


def test_that_time_limit_meets_every_end(make):
    """Else the test above would prove little."""
    envs = make([partial(limited, tag) for tag in range(NUM_ENVS)], num_workers=2)
    envs.reset(seed=0)
    ends = set()
    for batch in walk_actions(60, NUM_ENVS):
        _, _, terminated, truncated, _ = envs.step(batch)
        ends |= set(zip(terminated.tolist(), truncated.tolist(), strict=True))
    assert ends == {(False, False), (True, False), (False, True), (True, True)}


def test_both_reasons_are_given_where_an_episode_terminates_at_its_limit(make):
    """Each in its own key."""
    envs = make([lambda: TimeLimit(Fixed(length=2), 2)], 1)
    envs.reset()
    envs.step(ZEROS[:1])
    info = envs.step(ZEROS[:1]).info
    assert info["terminated_reason"].tolist() == ["terminated"]
    assert info["truncated_reason"].tolist() == ["time limit"]


@MODES
@pytest.mark.parametrize("build", [wrapped, made])
def test_wrapped_environments_give_what_a_plain_loop_gives(build, mode):
    """Delays, stacks, clocks and running means live on in their own environment."""
    check(build, mode)


def test_what_wrappers_add_to_infos_arrives(make):
    """The statistics of episodes, as every environment gives them."""
    envs = make([partial(wrapped, tag) for tag in range(NUM_ENVS)], num_workers=2)
    envs.reset(seed=0)
    lengths = []
    for batch in walk_actions(30, NUM_ENVS):
        result = envs.step(batch)
        ended = result.terminated | result.truncated
        if ended.any():
            np.testing.assert_array_equal(result.info["_episode"], ended)
            lengths.extend(result.info["episode"]["l"][ended])
    assert set(lengths) == {4, 6, 8}


# ── dtypes and rewards ──────────────────────────────────────────────────────────────────────────


class Typed(Walk):
    """A walk whose spaces and infos have one dtype, with values that no narrower one holds."""

    def __init__(self, tag=0, dtype=np.float64):
        super().__init__(tag)
        self.dtype = np.dtype(dtype)
        self.observation_space = Box(-np.inf, np.inf, (3,), dtype)
        self.action_space = Box(-1, 1, (2,), dtype)

    def observe(self):
        return np.array([self.position, 1 / 3 * self.steps, 1e-300], self.dtype)

    def step(self, action):
        assert action.dtype == self.dtype
        return super().step(action)


@MODES
def test_float64_stays_float64(mode):
    """In observations, actions, rewards and infos, to the last bit."""
    check(Typed, mode)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_observations_have_the_dtype_of_their_space(make_workers, dtype):
    """First ones, later ones and last ones."""
    envs = make_workers(
        [partial(Typed, tag, dtype) for tag in range(NUM_ENVS)],
        num_workers=2,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    assert envs.observation_space.dtype == dtype
    assert envs.reset(seed=0)[0].dtype == dtype
    for batch in walk_actions(8, NUM_ENVS).astype(dtype):
        result = envs.step(batch)
        assert result.observation.dtype == dtype
        assert result.reward.dtype == np.float64
        if "final_obs" in result.info:
            assert result.info["final_obs"].dtype == dtype
            break
    else:
        pytest.fail("no episode ended")


class Rewarding(Walk):
    """A walk whose reward is given in a kind that changes from step to step."""

    kinds = (
        float,
        int,
        bool,
        np.float32,
        np.int8,
        np.bool_,
        np.array,
        lambda value: np.array([value]),
        lambda value: np.array([value], np.float32),
        lambda value: np.array(int(value)),
        lambda value: np.array([bool(value)]),
    )

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.count = getattr(self, "count", self.tag) + 1
        kind = self.kinds[self.count % len(self.kinds)]
        return observation, kind(10 * reward), terminated, truncated, info


@MODES
@pytest.mark.filterwarnings("ignore:.*Conversion of an array.*:DeprecationWarning")
def test_odd_rewards_are_what_a_plain_loop_sums(mode):
    """Numbers, bools, NumPy's scalars, 0-d arrays and arrays of one, in any order."""
    check(Rewarding, mode, num_steps=80)


# ── processes of environments ───────────────────────────────────────────────────────────────────


def square(number):
    """Return the square; a child process of an environment runs it."""
    return number * number


class Simulated(Walk):
    """A walk whose reward comes from a child process that runs as long as the environment."""

    SERVER = "import sys\nfor line in sys.stdin: print(2 * float(line), flush=True)"

    def __init__(self, tag=0):
        super().__init__(tag)
        self.simulator = subprocess.Popen(
            [sys.executable, "-c", self.SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pids(self):
        return [self.simulator.pid]

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        assert self.simulator.stdin is not None
        assert self.simulator.stdout is not None
        self.simulator.stdin.write(f"{reward!r}\n")
        self.simulator.stdin.flush()
        return observation, float(self.simulator.stdout.readline()), terminated, truncated, info

    def close(self):
        with self.simulator as simulator:
            assert simulator.stdin is not None
            simulator.stdin.close()
            simulator.wait()


class Pooled(Walk):
    """A walk whose reward comes from a child process, which daemons may not start."""

    method = "spawn"

    def __init__(self, tag=0):
        super().__init__(tag)
        self.pool = multiprocessing.get_context(self.method).Pool(1)

    @property
    def pids(self):
        return [process.pid for process in multiprocessing.active_children()]

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, self.pool.apply(square, (reward,)), *rest

    def close(self):
        self.pool.terminate()
        self.pool.join()


class Threaded(Pooled):
    """A walk whose reward comes from a thread."""

    def __init__(self, tag=0):
        Walk.__init__(self, tag)
        self.pool = ThreadPool(1)


@pytest.mark.parametrize("env_class", [Simulated, Pooled, Threaded])
def test_environments_may_have_processes_and_threads_of_their_own(env_class):
    """They give what they give in a plain loop."""
    env_fns = [partial(env_class, tag) for tag in range(2)]
    check_equivalence(env_fns, [(2, 1)], num_steps=20, autoreset_modes=[AutoresetMode.NEXT_STEP])


@pytest.mark.parametrize("env_class", [Simulated, Pooled])
def test_processes_of_environments_are_gone_after_close(make_workers, env_class):
    """Ended by the environment's own close, which is called, and in any event with the worker."""
    envs = make_workers([env_class] * 2, num_workers=1)
    envs.reset(seed=0)
    envs.step(walk_actions(1, 2)[0])
    pids = {pid for each in envs.get_attr("pids") for pid in each}
    assert len(pids) == 2
    assert all(psutil.pid_exists(pid) for pid in pids)
    envs.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
