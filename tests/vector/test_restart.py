"""Workers that die and are restarted: the others never notice, and the run repeats exactly."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers
from gymnasium.wrappers.utils import RunningMeanStd

import superdex.envs  # its classes are looked up late: they load MuJoCo, and every worker would
from superdex.errors import BrokenError, CallTimeout, WorkerDied, WorkerRaised
from superdex.testing import row_info
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Walk, walk_actions, walks
from tests.vector.leftovers import remains
from tests.vector.rows import Run, faulty, kill_self, odd, stumble

MODES = list(AutoresetMode)

pytestmark = [
    pytest.mark.usefixtures("nothing_remains"),
    pytest.mark.filterwarnings("ignore:Worker . .*is restarted:RuntimeWarning"),
]


@pytest.fixture
def restarting(make_workers) -> Callable[..., HybridVectorEnv]:
    """Makes vectors that restart their workers."""
    return partial(make_workers, on_worker_failure="restart")


def kill(envs: HybridVectorEnv, *workers: int) -> None:
    """Kill idle workers, and wait until the vector has noticed, as it does within milliseconds."""
    for worker in workers:
        os.kill(envs.worker_pids[worker], signal.SIGKILL)
    await_deaths(envs, *workers)


def await_deaths(envs: HybridVectorEnv, *workers: int) -> None:
    dead = envs._pool.watcher.dead  # type: ignore[union-attr]
    deadline = time.monotonic() + 10
    while not dead.issuperset(workers) and time.monotonic() < deadline:
        time.sleep(0.001)


# ── equality ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
def test_others_never_notice_a_death(restarting, tmp_path, mode):
    """In a step or an autoreset: every row shows what it must, with all that infos can hold."""
    builds = odd(4)
    env_fns = [*builds]
    env_fns[1] = faulty(builds[1], "step", kill_self, 7, tmp_path / "first")
    env_fns[2] = faulty(builds[2], "reset", kill_self, 3, tmp_path / "second")
    run = Run(restarting(env_fns, 2, autoreset_mode=mode), builds)
    run.reset(seed=3)
    run.run(walk_actions(40, 4))
    assert run.restarts == [1, 1]


@pytest.mark.parametrize("k", [1, 4])
def test_it_is_the_same_for_every_split(restarting, tmp_path, k):
    """Siblings in the worker that died are truncated with it, and others are not."""
    builds = odd(4)
    env_fns = [*builds]
    env_fns[1] = faulty(builds[1], "step", kill_self, 6, tmp_path / "first")
    env_fns[3] = faulty(builds[3], "reset", kill_self, 3, tmp_path / "second")
    run = Run(restarting(env_fns, k, autoreset_mode="SameStep"), builds)
    run.reset(seed=3)
    run.run(walk_actions(50, 4))
    assert sum(run.restarts) == 2


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_death_while_idle(restarting, mode):
    """Before a step, before resets of some, of itself and of all; of both workers at once."""
    builds = odd(4)
    run = Run(restarting(builds, 2, autoreset_mode=mode, copy=False), builds)
    kill(run.envs, 1)
    run.reset(seed=3)
    actions = iter(walk_actions(60, 4))

    def go_on():
        for _ in range(5):
            run.step(next(actions))

    go_on()
    kill(run.envs, 0, 1)
    go_on()
    kill(run.envs, 1)
    run.reset([0])
    go_on()
    kill(run.envs, 1)
    run.reset([3, 0], seed=50)
    go_on()
    kill(run.envs, 0)
    run.reset()
    go_on()
    assert sum(run.restarts) == 6


def test_a_death_before_a_call(restarting):
    """The call is done by the new worker, whose environments are reset and know their values."""
    builds = odd(4)
    run = Run(restarting(builds, 2), builds)
    run.reset(seed=3)
    actions = walk_actions(30, 4)
    run.run(actions[:4])
    kill(run.envs, 0)
    assert run.envs.call("add", 1) == (1, 2, 3, 4)
    run.note_faults()
    for row in run.rows:
        row.settle()
    run.run(actions[4:15])
    run.envs.set_attr("mark", ["a", "b", "c", "d"])
    kill(run.envs, 0, 1)
    assert run.envs.get_attr("mark") == ("a", "b", "c", "d")
    run.note_faults()
    for row in run.rows:
        row.settle()
    run.run(actions[15:])


@pytest.mark.parametrize("auto", ["last", lambda index, episode: {"at": (index, episode)}])
def test_episodes_keep_their_seeds_and_options(restarting, auto):
    """Those after the death are what they are without it; the caller's own dict may change."""

    class Telling(Walk):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return observation, {**info, "seed": repr(seed), "options": repr(options)}

    builds = [Telling] * 4
    envs = restarting(builds, 2, episode_seeds=True, autoreset_options=auto)
    run = Run(envs, builds, episode_seeds=True, options=auto)
    options = {"level": [1]}
    run.reset(seed=3, options=options)
    options["level"].append(2)
    actions = walk_actions(40, 4)
    run.run(actions[:9])
    kill(envs, 0, 1)
    run.run(actions[9:])


def test_a_run_without_seeds(restarting):
    """It goes on too, with other episodes."""
    envs = restarting(walks(4), 2)
    envs.reset()
    kill(envs, 0)
    result = envs.step(walk_actions(1, 4)[0])
    assert result.truncated.tolist() == [True, True, False, False]
    envs.step(walk_actions(1, 4)[0])
    assert envs.autoreset_mask.tolist() == [True, True, False, False]


def physics_run(restarting, tmp_path, name, *, shared):
    """Return a run whose first worker dies over its 13th step, and actions for it."""
    cfg = {"use_shared_scenes": shared, "steps_per_episode": 25, "reset_noise_scale": 0.1}
    builds = [partial(getattr(superdex.envs, name), cfg)] * 4
    env_fns = [*builds]
    env_fns[1] = faulty(builds[1], "step", kill_self, 13, tmp_path / "fuse")
    run = Run(restarting(env_fns, 2), builds)
    run.reset(seed=5)
    rng = np.random.default_rng(1)
    return run, rng.uniform(-1, 1, (40, *run.envs.action_space.shape)).astype(np.float32)


@pytest.mark.parametrize(("name", "shared"), [("AntEnv", True), ("CartPoleEnv", False)])
def test_physics(restarting, tmp_path, name, shared):
    """On scenes that are shared and not, with contacts."""
    run, actions = physics_run(restarting, tmp_path, name, shared=shared)
    run.run(actions)
    assert run.restarts == [1, 0]


class DyingAtReply(Walk):
    """Dies while its third step's reply is on its way, which is too long for a pipe to hold."""

    def __init__(self, fuse: Path):
        super().__init__()
        self.fuse, self.count = fuse, 0

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.count += 1
        if self.count == 3 and not self.fuse.exists():
            self.fuse.touch()
            info["long"] = "x" * 10_000_000
            threading.Timer(0.1, kill_self).start()
        return observation, reward, terminated, truncated, info


def test_a_death_over_the_reply(restarting, tmp_path):
    """The step was done, but its infos are gone: the episode is lost all the same."""
    envs = restarting([Walk, partial(DyingAtReply, tmp_path / "fuse")])
    run = Run(envs, [Walk, Walk])
    run.reset(seed=1)
    actions = walk_actions(12, 2)
    run.run(actions[:2])

    def step(actions):
        envs.step_async(actions)
        await_deaths(envs, 1)  # nobody reads the reply before
        return envs.step_wait()

    run.step(actions[2], step=step)
    assert run.restarts == [0, 1]
    run.run(actions[3:])


def test_an_environment_that_dies_again_and_again(restarting):
    """Every 500 steps: thousands of steps finish, and the others are what a plain loop gives."""
    builds = walks(2)
    run = Run(restarting([builds[0], faulty(builds[1], "step", kill_self, 499)]), builds)
    run.reset(seed=3)
    run.run(walk_actions(1600, 2))
    assert run.restarts[0] == 0
    assert run.restarts[1] >= 2


# ── another inner layer, and wrappers ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
def test_another_inner_layer(restarting, tmp_path, mode):
    """The others don't notice; the rows of the dead worker are truncated, and start anew."""
    env_fns: list[Any] = walks(4)
    env_fns[1] = faulty(Walk, "step", kill_self, 6, tmp_path / "fuse")
    kwargs = {"autoreset_mode": mode, "inner_env_cls": SyncVectorEnv}
    envs = restarting(env_fns, 2, **kwargs)
    plain = HybridVectorEnv(walks(4), 2, in_process=True, **kwargs)
    first, second = envs.reset(seed=1), plain.reset(seed=1)
    last = first.observation
    truncations, began = [], None
    for number, batch in enumerate(walk_actions(30, 4)):
        first, second = envs.step(batch), plain.step(batch)
        for one, two in zip(first[:4], second[:4], strict=True):
            np.testing.assert_array_equal(one[2:], two[2:])
        for row in (2, 3):
            np.testing.assert_equal(row_info(first.info, row), row_info(second.info, row))
        for row in range(2):
            info = row_info(first.info, row)
            if "worker_restarted" in info:
                began = number
                if first.truncated[row]:
                    truncations.append(row)
                    assert info["truncated_reason"] == "worker restarted"
                    assert first.reward[row] == 0
                    same_step = mode is AutoresetMode.SAME_STEP
                    shown = info["final_obs"] if same_step else first.observation[row]
                    np.testing.assert_array_equal(shown, last[row])
                else:
                    assert envs.autoreset_mask[row]
            elif began is not None and mode is AutoresetMode.NEXT_STEP and number == began + 1:
                assert envs.autoreset_mask[row] == (row in truncations)
                assert first.observation[row, 1] == (0 if row in truncations else 1)
        last = first.observation
        if mode is AutoresetMode.DISABLED:
            last = envs.reset_envs(first.terminated | first.truncated).observation
            plain.reset_envs(second.terminated | second.truncated)
    plain.close()
    assert truncations
    assert envs.statistics().worker_restarts == (1, 0)


def test_another_inner_layer_before_its_first_reset(restarting):
    """The mark is in that reset's info."""
    envs = restarting(walks(2), inner_env_cls=SyncVectorEnv)
    kill(envs, 1)
    info = envs.reset(seed=1).info
    assert info["worker_restarted"].tolist() == [False, True]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_episode_statistics_are_those_of_a_hand_loop(restarting, mode):
    """Gymnasium's wrapper sees an episode that was cut short as any other."""
    vector = restarting(walks(4), 2, autoreset_mode=mode)
    envs = wrappers.RecordEpisodeStatistics(vector)
    envs.reset(seed=5)
    sums, lengths = np.zeros(4), np.zeros(4, int)
    lost = 0
    for number, batch in enumerate(walk_actions(40, 4)):
        if number in (4, 15):
            kill(vector, 1)
        _, reward, terminated, truncated, info = envs.step(batch)
        counted = np.ones(4, bool)
        if mode is AutoresetMode.NEXT_STEP:
            counted = ~vector.autoreset_mask
        sums += np.where(counted, reward, 0)
        lengths += counted
        ended = terminated | truncated
        lost += int((info.get("truncated_reason", np.array([])) == "worker restarted").sum())
        assert ("episode" in info) == ended.any()
        for row in np.flatnonzero(ended):
            assert info["episode"]["l"][row] == lengths[row]
            assert info["episode"]["r"][row] == pytest.approx(sums[row])
        sums[ended], lengths[ended] = 0, 0
    assert lost >= 2


def test_normalised_observations_are_those_of_a_hand_loop(restarting):
    """Every observation counts once, the last one of a lost episode as the batch shows it."""
    vector = restarting(walks(2))
    envs = wrappers.NormalizeObservation(vector)
    by_hand = RunningMeanStd(shape=(3,), dtype=np.float32)
    envs.reset(seed=5)
    raw = np.empty(vector.observation_space.shape, np.float32)
    vector._collector.outputs.write_last_observations(raw)
    by_hand.update(raw)
    for number, batch in enumerate(walk_actions(12, 2)):
        if number == 4:
            kill(vector, 1)
        observation = envs.step(batch)[0]
        vector._collector.outputs.write_last_observations(raw)
        by_hand.update(raw)
        expected = (raw - by_hand.mean) / np.sqrt(by_hand.var + 1e-8)
        np.testing.assert_allclose(observation, expected, rtol=1e-5)


# ── calls that kill ─────────────────────────────────────────────────────────────────────────────


def test_a_call_that_kills_is_raised(restarting, tmp_path):
    """Done again it might kill again; the vector stays usable."""
    builds = walks(2)
    env_fns = [builds[0], faulty(builds[1], "method", kill_self, 0, tmp_path / "fuse")]
    run = Run(restarting(env_fns), builds)
    run.reset(seed=3)
    run.run(walk_actions(3, 2))
    with pytest.raises(WorkerDied, match=r"died during method: signal SIGKILL"):
        run.envs.call("method", indices=[1])
    run.note_faults()
    run.run(walk_actions(20, 2))
    assert run.envs.call("method", indices=[1]) == (1,)


def test_a_set_attr_that_kills_keeps_what_others_got(restarting):
    """Also when they are restarted later; the killer gets nothing."""
    envs = restarting([Walk, Walk, faulty(Walk, "set", kill_self), Walk], 2)
    envs.reset(seed=3)
    with pytest.raises(WorkerDied, match=r"died during set_attr\('trap'\)"):
        envs.set_attr("trap", [1, 2, 3, 4])
    kill(envs, 0)
    assert envs.get_attr("trap", [0, 1]) == (1, 2)
    with pytest.raises(WorkerRaised, match="has no attribute 'trap'"):
        envs.get_attr("trap", [2])


class Picky(Walk):
    """Refuses an attribute when it is built anew."""

    def __init__(self, fuse: Path):
        super().__init__()
        self.anew = fuse.exists()
        fuse.touch()

    def set_wrapper_attr(self, name, value, *, force=True):
        if self.anew:
            raise ValueError("not again")
        return super().set_wrapper_attr(name, value, force=force)


@pytest.mark.parametrize("inner", [None, SyncVectorEnv])
def test_an_attribute_that_cant_be_set_again_is_raised(restarting, tmp_path, capfd, inner):
    """As what it is, with nothing on the worker's screen."""
    envs = restarting([Walk, partial(Picky, tmp_path / "fuse")], inner_env_cls=inner)
    envs.reset(seed=1)
    envs.set_attr("extra", [3, 4])
    kill(envs, 1)
    with pytest.raises(WorkerRaised, match=r"set_attr\('extra'\): ValueError: not again"):
        envs.step(walk_actions(1, 2)[0])
    envs.close()
    assert capfd.readouterr().err == ""


# ── limits ──────────────────────────────────────────────────────────────────────────────────────


def test_each_restart_is_told(restarting):
    """With worker, environments, call and cause, at the caller's line."""
    envs = restarting(walks(4), 2)
    envs.reset(seed=1)
    kill(envs, 1)
    message = (
        r"Worker 1 \(environments 2 to 3\) died during step: signal SIGKILL .*\. It is restarted, "
        "and its episodes are truncated"
    )
    with pytest.warns(RuntimeWarning, match=message) as caught:
        envs.step(walk_actions(1, 4)[0])
    assert [warning.filename for warning in caught] == [__file__]


def test_too_many_restarts_are_raised(restarting):
    """With the limit and what to do; then everything is broken."""
    envs = restarting(walks(2), max_restarts=1)
    envs.reset(seed=1)
    kill(envs, 0, 1)  # each worker has its own limit
    envs.step(walk_actions(1, 2)[0])
    kill(envs, 1)
    message = re.escape("restarted as often as allowed (max_restarts=1 within 3600 s). Find out")
    with pytest.raises(WorkerDied, match=message) as caught:
        envs.step(walk_actions(1, 2)[0])
    assert caught.value.worker == 1
    assert envs.statistics().worker_restarts == (1, 1)
    with pytest.raises(BrokenError):
        envs.reset()


def test_a_call_is_tried_four_times(restarting):
    """What dies each time won't get better by it."""
    envs = restarting([Walk, faulty(Walk, "reset", kill_self)])
    message = "died during reset: .*restarted 3 times in this call and died again: what its"
    with pytest.raises(WorkerDied, match=message):
        envs.reset(seed=1)
    assert envs.statistics().worker_restarts == (0, 3)


class Second(Walk):
    """Does something when it is built for the second time."""

    def __init__(self, fuse: Path, do: Callable[[], Any]):
        super().__init__()
        if fuse.exists():
            do()
        fuse.touch()


@pytest.mark.parametrize(
    ("do", "error", "message"),
    [
        (kill_self, WorkerDied, "Worker 1 .*restarted 3 times in this call"),
        (stumble, WorkerRaised, r"Environment 1 \(worker 1\) raised in construct: RuntimeError"),
    ],
    ids=["dies", "raises"],
)
def test_environments_that_cant_be_built_anew_are_raised(restarting, tmp_path, do, error, message):
    """As in the first construction."""
    envs = restarting([Walk, partial(Second, tmp_path / "fuse", do)])
    envs.reset(seed=1)
    kill(envs, 1)
    with pytest.raises(error, match=message):
        envs.step(walk_actions(1, 2)[0])
    with pytest.raises(BrokenError):
        envs.reset()


# ── cut short ───────────────────────────────────────────────────────────────────────────────────


def slow_to_restart(path: Path, seconds: float) -> Callable[[], gym.Env]:
    return partial(Second, path, partial(time.sleep, seconds))


def test_a_restart_outlasts_timeouts(restarting, tmp_path):
    """Waiting again goes on with it; the worker that is there already is kept."""
    envs = restarting([Walk, slow_to_restart(tmp_path / "fuse", 0.6)])
    run = Run(envs, [Walk, Walk])
    run.reset(seed=1)
    run.run(walk_actions(2, 2))
    kill(envs, 0, 1)
    timeouts = []

    def step(actions):
        envs.step_async(actions)
        while True:
            try:
                return envs.step_wait(0.2)
            except CallTimeout as error:
                timeouts.append(str(error))

    run.step(walk_actions(1, 2)[0], step=step)
    run.run(walk_actions(10, 2))
    assert len(timeouts) > 2
    assert run.restarts == [1, 1]


def test_a_restart_outlasts_ctrl_c(restarting, tmp_path):
    """Waiting again returns that same step."""
    envs = restarting([Walk, slow_to_restart(tmp_path / "fuse", 0.6)])
    run = Run(envs, [Walk, Walk])
    run.reset(seed=1)
    run.run(walk_actions(2, 2))
    kill(envs, 1)

    def step(actions):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            envs.step(actions)
        timer.join()
        return envs.step_wait()

    run.step(walk_actions(1, 2)[0], step=step)
    run.run(walk_actions(10, 2))
    assert run.restarts == [0, 1]


def test_an_interrupted_set_attr_is_set_again(restarting, tmp_path):
    """Reset drains it, and the environments have the attribute; so have those after a restart."""
    slow = faulty(Walk, "set", partial(time.sleep, 1.0), 0, tmp_path / "fuse")
    envs = restarting([Walk, slow])
    envs.reset(seed=1)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        envs.set_attr("trap", [1, 2])
    timer.join()
    envs.reset(seed=1)
    kill(envs, 0, 1)
    assert envs.get_attr("trap") == (1, 2)


def test_close_ends_a_restart(restarting, tmp_path):
    """Within the time that it is given and a second."""
    envs = restarting([Walk, slow_to_restart(tmp_path / "fuse", 60)])
    envs.reset(seed=1)
    kill(envs, 1)
    with pytest.raises(CallTimeout):
        envs.step(walk_actions(1, 2)[0], timeout=0.1)
    started = time.perf_counter()
    envs.close(timeout=0.1)
    assert time.perf_counter() - started < 10


def test_close_gives_the_block_back_to_who_keeps_the_vector(restarting):
    """Nothing holds the block for a restart that can't come any more."""
    process = psutil.Process()
    before = process.num_fds()
    envs = restarting(walks(2), 1)
    ticket = (envs.reset(), envs.submit_slots([0], walk_actions(1, 1)[0]))[1]
    envs.close()
    assert process.num_fds() == before
    assert ticket.env_ids.tolist() == [0]


def test_many_restarts_leave_nothing(restarting):
    """No descriptor, no thread, no name, no process."""
    envs = restarting(walks(1))
    envs.reset(seed=1)

    def restart():
        kill(envs, 0)
        envs.step(walk_actions(1, 1)[0])
        gc.collect()

    restart()
    before = remains()
    for _ in range(3):
        restart()
    after = remains()
    assert len(after.descriptors) == len(before.descriptors)
    assert (len(after.children), after.names) == (len(before.children), before.names)
    assert after.threads == before.threads
