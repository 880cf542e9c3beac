"""Environments that raise with `on_env_error="truncate"`: built anew, and nobody else notices."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

import superdex.envs  # its classes are looked up late: they load MuJoCo, and every worker would
from superdex.errors import BrokenError, WorkerRaised
from superdex.scenes import live_scene_count
from superdex.testing import row_info
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Fixed, TwoArguments, Walk, raising, walk_actions, walks
from tests.vector.rows import Faulty, Run, faulty, kill_self, odd, stumble

MODES = list(AutoresetMode)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Environment . raised in:RuntimeWarning", "ignore:Worker . .*restarted:RuntimeWarning"
)


@pytest.fixture
def truncating(make) -> Callable[..., HybridVectorEnv]:
    """Makes vectors that contain errors of environments, in this process unless told otherwise."""
    return partial(make, on_env_error="truncate")


def with_faulty(builds, index, *args, **kwargs) -> list[Callable[[], gym.Env]]:
    """Return the functions with a faulty environment at that index."""
    env_fns = list(builds)
    env_fns[index] = faulty(builds[index], *args, **kwargs)
    return env_fns


# ── equality ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("at", "after"), [("step", 6), ("step", 0), ("reset", 3), ("reset", 0)], ids=str
)
@pytest.mark.parametrize("k", [1, 4], ids=["alone", "siblings"])
def test_every_row_shows_what_it_must(truncating, tmp_path, mode, at, after, k):
    """The others what a plain loop shows; the one with the error the same in every run."""
    builds = odd(4)
    env_fns = with_faulty(builds, 1, at, stumble, after, tmp_path / "fuse")
    envs = truncating(env_fns, k, autoreset_mode=mode)
    run = Run(envs, builds, stumbling=1, in_reset=at == "reset")
    run.reset(seed=3)
    run.run(walk_actions(40, 4))
    assert run.errors == 1


@pytest.mark.parametrize("at", ["step", "reset"])
def test_it_is_the_same_in_workers(truncating, tmp_path, at):
    """Infos and warnings travel."""
    builds = odd(4)
    env_fns = with_faulty(builds, 2, at, stumble, 3, tmp_path / "fuse")
    envs = truncating(env_fns, 2, in_process=False, copy=False)
    run = Run(envs, builds, stumbling=2, in_reset=at == "reset")
    run.reset(seed=3)
    run.run(walk_actions(40, 4))
    assert run.errors == 1


def test_an_error_and_a_death_in_one_step(truncating, tmp_path):
    """In two workers, each with its own reason."""
    builds = odd(4)
    env_fns = with_faulty(builds, 1, "step", stumble, 4, tmp_path / "error")
    env_fns[2] = faulty(builds[2], "step", kill_self, 4, tmp_path / "death")
    envs = truncating(env_fns, 2, in_process=False, on_worker_failure="restart")
    run = Run(envs, builds, stumbling=1)
    run.reset(seed=5)
    run.run(walk_actions(30, 4))
    assert (run.errors, run.restarts) == (1, [0, 1])


@pytest.mark.parametrize("auto", ["last", lambda index, episode: {"at": (index, episode)}])
@pytest.mark.parametrize("episode_seeds", [True, False])
def test_episodes_keep_their_seeds_and_options(truncating, tmp_path, auto, episode_seeds):
    """Those after the error are what they are without it."""

    class Telling(Walk):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return observation, {**info, "seed": repr(seed), "options": repr(options)}

    builds = [Telling] * 4
    env_fns = with_faulty(builds, 1, "step", stumble, 6, tmp_path / "fuse")
    envs = truncating(env_fns, 2, episode_seeds=episode_seeds, autoreset_options=auto)
    run = Run(envs, builds, stumbling=1, episode_seeds=episode_seeds, options=auto)
    run.reset(seed=3, options={"level": 2})
    run.run(walk_actions(30, 4))
    assert run.errors == 1


@pytest.mark.parametrize("mode", MODES)
def test_siblings_on_the_same_scene_never_notice(truncating, tmp_path, mode):
    """Though the error came in the middle of a step, with the scene half-way."""

    def build():
        return superdex.envs.AntEnv({"steps_per_episode": 25, "reset_noise_scale": 0.1})

    def build_stumbling():
        env = build()
        fault, apply = Faulty(env, "substep", stumble, 33, tmp_path / "fuse"), env._apply_action

        def stumbling(action):
            apply(action)
            fault.visit("substep")

        env._apply_action = stumbling
        return env

    gc.collect()  # scenes that other tests left to it
    before = live_scene_count()
    builds = [build] * 3
    envs = truncating([build, build_stumbling, build], 3, autoreset_mode=mode)
    run = Run(envs, builds, stumbling=1)
    run.reset(seed=5)
    assert live_scene_count() == before + 1
    rng = np.random.default_rng(1)
    run.run(rng.uniform(-1, 1, (40, *envs.action_space.shape)).astype(np.float32))
    assert run.errors == 1
    assert live_scene_count() == before + 1


def test_errors_again_and_again(truncating):
    """The environment that raises in every third step takes nothing from its siblings."""
    builds = odd(3)
    envs = truncating(with_faulty(builds, 1, "step", stumble, 2), 3, max_restarts=1000)
    run = Run(envs, builds, stumbling=1)
    run.reset(seed=3)
    run.run(walk_actions(120, 3))
    assert run.errors > 20


# ── what counts as an error ─────────────────────────────────────────────────────────────────────


class Returning(Walk):
    """Returns something else than it should, in its third step."""

    def __init__(self, result):
        super().__init__()
        self.result, self.count = result, 0

    def step(self, action):
        self.count += 1
        result = super().step(action)
        return self.result(*result) if self.count == 3 else result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("result", "error"),
    [
        (lambda o, r, t, u, i: (o, r, t, i), "TypeError: step must return"),
        (lambda o, r, t, u, i: None, "TypeError: step must return"),
        (lambda o, r, t, u, i: (o, [1.0], t, u, i), "TypeError: The reward must be"),
        (lambda o, r, t, u, i: (o[:2], r, t, u, i), "ValueError: The observation has shape"),
        (lambda o, r, t, u, i: (o, r, True, u, [1]), "TypeError: The info must be a dict"),
        (lambda o, r, t, u, i: (o[:2], r, True, u, i), "ValueError: The observation has shape"),
        (lambda o, r, t, u, i: (o, r, np.ones(2), u, i), "ValueError: The truth value"),
        (lambda o, r, t, u, i: sys.exit(2), "SystemExit: 2"),
    ],
    ids="short None reward shape info final ambiguous exit".split(),
)
def test_what_is_no_step_is_an_error(truncating, mode, result, error):
    """The row is truncated with its last observation, and siblings step on."""
    envs = truncating([Walk, partial(Returning, result), Walk], 3, autoreset_mode=mode)
    plain = truncating(walks(3), 3, autoreset_mode=mode)
    both = (envs, plain)
    for vector in both:
        vector.reset(seed=[2, 1, 2])
    for batch in walk_actions(3, 3):
        last = vector_last(envs)
        one, two = (vector.step(batch) for vector in both)
    np.testing.assert_array_equal(one.observation[[0, 2]], two.observation[[0, 2]])
    np.testing.assert_array_equal(one.reward[[0, 2]], two.reward[[0, 2]])
    assert (one.reward[1], one.terminated[1], one.truncated[1]) == (0.0, False, True)
    info = row_info(one.info, 1)
    assert info["truncated_reason"] == "environment error"
    assert info["env_error"].startswith(error)
    shown = info["final_obs"] if mode is AutoresetMode.SAME_STEP else one.observation[1]
    np.testing.assert_array_equal(shown, last[1])


def vector_last(envs: HybridVectorEnv) -> np.ndarray:
    """Return the observations of the last call."""
    space = envs.observation_space
    out = np.empty(space.shape or (), space.dtype)
    envs._collector.outputs.write_last_observations(out)
    return out


def test_an_environment_that_exits_when_it_is_closed(truncating):
    """What it does then is no concern of anyone: it is replaced all the same."""

    class Exiting(Walk):
        def close(self):
            sys.exit(3)

    envs = truncating([faulty(Exiting, "step", stumble, 1), Walk], 2, in_process=False)
    envs.reset(seed=1)
    for batch in walk_actions(4, 2):
        envs.step(batch)
    assert envs.statistics().env_errors == 1
    with pytest.raises(WorkerRaised, match="raised in close: SystemExit: 3"):
        envs.close()


def test_ctrl_c_in_this_process_is_no_error_of_an_environment(truncating):
    """It is the caller's."""
    envs = truncating([faulty(Walk, "step", raising(KeyboardInterrupt))], 1)
    envs.reset()
    with pytest.raises(KeyboardInterrupt):
        envs.step(walk_actions(1, 1)[0])


def test_errors_of_other_calls_are_raised(truncating):
    """They cut no episode short, and the vector stays usable."""
    envs = truncating([faulty(Walk, "method", stumble), Walk], 2)
    envs.reset(seed=1)
    with pytest.raises(WorkerRaised, match="raised in method: RuntimeError: stumbled"):
        envs.call("method", indices=[0])
    assert not envs.step(walk_actions(1, 2)[0]).truncated.any()
    assert envs.statistics().env_errors == 0


# ── what is told ────────────────────────────────────────────────────────────────────────────────


def test_each_error_is_told(truncating, tmp_path):
    """With environment, call, error and traceback; and where to find it, in the info."""
    do = raising(TwoArguments, "no", "where")
    envs = truncating([Walk, faulty(Walk, "step", do, 1, tmp_path / "fuse")], 2, in_process=False)
    envs.reset(seed=1)
    envs.step(walk_actions(1, 2)[0])
    message = (
        r"Environment 1 raised in step: TwoArguments: no at where\. It is built anew, and its "
        r"episode is truncated\.\n\nTraceback[\s\S]*in visit[\s\S]*TwoArguments"
    )
    with pytest.warns(RuntimeWarning, match=message) as caught:
        result = envs.step(walk_actions(1, 2)[0])
    assert caught[0].filename == __file__
    assert result.info["env_error"].tolist() == [None, "TwoArguments: no at where"]
    assert result.info["truncated_reason"].tolist() == [None, "environment error"]


def test_an_error_in_reset_is_told(truncating, tmp_path):
    """It cuts no episode short; the reset's own info has the mark."""
    envs = truncating([faulty(Walk, "reset", stumble, 0, tmp_path / "fuse"), Walk], 2)
    with pytest.warns(RuntimeWarning, match=r"raised in reset: .* built anew, and reset again\."):
        result = envs.reset(seed=1)
    assert row_info(result.info, 0)["env_error"] == "RuntimeError: stumbled"
    assert "env_error" not in row_info(result.info, 1)


def test_an_info_of_the_same_name_stays_where_it_is(truncating):
    """An environment's own `env_error` is the last step's, and not the next episode's."""
    infos = [{}, {"env_error": 3, "worker_restarted": 4}, {}]
    envs = truncating([partial(Fixed, infos, length=1)], 1, autoreset_mode="SameStep")
    envs.reset()
    info = row_info(envs.step(np.zeros((1, 1), np.float32)).info, 0)
    assert info.keys() == {"final_obs", "final_info", "terminated_reason"}
    assert info["final_info"] == {"env_error": 3, "worker_restarted": 4}


# ── limits ──────────────────────────────────────────────────────────────────────────────────────


def step_on(envs: HybridVectorEnv, steps: int) -> None:
    for batch in walk_actions(steps, envs.num_envs):
        envs.step(batch)


def test_too_many_errors_are_raised(truncating):
    """With the error, the limit, and what to do; then the vector is broken."""
    envs = truncating([Walk, faulty(Walk, "step", stumble)], 2, max_restarts=2)
    envs.reset(seed=1)
    message = (
        r"Environment 1 .* raised in step: RuntimeError: stumbled[\s\S]*built anew as often as "
        r"allowed \(max_restarts=2 within 3600 s\)\. Repair what raises there, or raise the limit"
    )
    with pytest.raises(WorkerRaised, match=message) as caught:
        step_on(envs, 10)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert envs.statistics().env_errors == 2
    with pytest.raises(BrokenError):
        envs.reset()


def test_the_limit_is_told_where_the_error_is_put_in_other_words(truncating):
    """As for a step that returns too little."""
    envs = truncating([partial(Returning, lambda *_: ())], 1, max_restarts=0)
    envs.reset(seed=1)
    with pytest.raises(WorkerRaised, match=r"step must return[\s\S]*max_restarts=0 within"):
        step_on(envs, 3)


def test_a_reset_that_raises_twice_is_raised(truncating):
    """It would raise for ever."""
    envs = truncating([Walk, faulty(Walk, "reset", stumble)], 2)
    with pytest.raises(WorkerRaised, match=r"Environment 1 .* raised in reset: RuntimeError"):
        envs.reset(seed=1)


class Changing(Walk):
    """Is built once as it should be, and then does something else.

    Args:
        built: Those built so far.
        do: What it does when it is built again.
    """

    def __init__(self, built: list[Any], do: Callable[[Any], Any]):
        super().__init__()
        self.closed = 0
        built.append(self)
        if len(built) > 1:
            do(self)

    def step(self, action):
        raise RuntimeError("stumbled")

    def close(self):
        self.closed += 1


def widen(env: Any) -> None:
    env.observation_space = Box(-1, 1, (4,), np.float32)


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda env: stumble(), "Environment 1 .* raised in construct: RuntimeError: stumbled"),
        (widen, r"raised in construct: ValueError: .*expected \(3,\) float32, got \(4,\) float32"),
    ],
    ids=["raises", "spaces"],
)
def test_an_environment_that_cant_be_built_anew_is_raised(truncating, do, message):
    """And every environment is closed once, the new one too."""
    built: list[Any] = []
    envs = truncating([Walk, partial(Changing, built, do)], 2)
    envs.reset(seed=1)
    with pytest.raises(WorkerRaised, match=message):
        envs.step(walk_actions(1, 2)[0])
    assert built[0].closed == 1
    envs.unwrapped.close()
    assert [env.closed for env in built[1:]] == ([1] if do is widen else [0])


# ── attributes ──────────────────────────────────────────────────────────────────────────────────


def test_attributes_are_set_again(truncating, tmp_path):
    """The last value of each, in the order in which they were set last."""

    class Noting(Walk):
        def __init__(self):
            super().__init__()
            self.log: list[Any] = []

        def set_wrapper_attr(self, name, value, *, force=True):
            self.log.append((name, value))
            return super().set_wrapper_attr(name, value, force=force)

    envs = truncating([faulty(Noting, "step", stumble, 0, tmp_path / "fuse"), Walk], 2)
    envs.reset(seed=1)
    for name, value in (("a", 1), ("b", 2), ("a", 3)):
        envs.set_attr(name, value)
    envs.step(walk_actions(1, 2)[0])
    assert envs.get_attr("a") == (3, 3)
    assert envs.get_attr("unwrapped")[0].log == [("b", 2), ("a", 3)]


def test_a_call_to_a_new_environment_finds_it_reset(truncating, tmp_path):
    """It has been, as far as the caller knows; and what is set then stays set."""
    envs = truncating([faulty(Walk, "step", stumble, 0, tmp_path / "fuse"), Walk], 2)
    envs.reset(seed=1)
    envs.step(walk_actions(1, 2)[0])
    envs.set_attr("length", 77, indices=[0])
    assert envs.get_attr("length", [0]) == (77,)
    assert envs.get_attr("steps", [0]) == (0,)
