"""A run that is saved, and goes on in another process, another split, another day."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv
from superdex.errors import ResetNeeded
from superdex.testing._differences import equal as _equal
from superdex.vector import HybridVectorEnv
from tests.vector.test_states import (
    MODES,
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

RESUMED: dict[str, Any] = {
    "cart-pole": partial(CartPoleEnv, steps_per_episode=77),
    "half-cheetah": partial(HalfCheetahEnv, steps_per_episode=90),
    "ant": partial(AntEnv, steps_per_episode=80),
    "HalfCheetah-v5": partial(gym.make, "HalfCheetah-v5", max_episode_steps=85),
    "Pendulum-v1": partial(gym.make, "Pendulum-v1", max_episode_steps=60),
}

STEPS = 2000

# What the other process does.
_PART = """
import sys
from tests.vector.test_state_dict import go_on
if __name__ == "__main__":
    go_on(*sys.argv[1:])
"""


def make_resumed(name: str, mode: str, num_workers: int) -> HybridVectorEnv:
    return HybridVectorEnv(
        [RESUMED[name]] * 4,
        num_workers=num_workers,
        autoreset_mode=AutoresetMode(mode),
        in_process=True,
    )


def go_on(name: str, mode: str, folder: str) -> None:
    """Do the second half of a run that was saved."""
    with make_resumed(name, mode, 2) as envs:
        envs.load_state_dict(pickle.loads(Path(folder, "saved").read_bytes()))
        shown = run(envs, random_actions(envs, STEPS)[STEPS // 2 :])
        assert envs.statistics().steps == STEPS
    Path(folder, "shown").write_bytes(pickle.dumps([tuple(result) for result in shown]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RESUMED)
def test_a_run_goes_on_in_a_fresh_process(name, mode, tmp_path):
    """A run straight through equals one half, and the other half in a new process."""
    with make_resumed(name, mode.value, 1) as envs:
        envs.reset(seed=11)
        actions = random_actions(envs, STEPS)
        run(envs, actions[: STEPS // 2])
        tmp_path.joinpath("saved").write_bytes(pickle.dumps(envs.state_dict()))
        expected = run(envs, actions[STEPS // 2 :])
    program = tmp_path / "part.py"
    program.write_text(_PART, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(program), name, mode.value, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        timeout=100,
    )
    shown = pickle.loads(tmp_path.joinpath("shown").read_bytes())
    assert len(shown) == len(expected)
    for one, other in zip(expected, shown, strict=True):
        for a, b in zip(one[:-1], other[:-1], strict=True):
            assert a.tobytes() == b.tobytes()
        assert _equal(one[-1], other[-1])


@pytest.mark.parametrize("mode", MODES)
def test_any_split_goes_on_from_any_other(make, make_workers, mode):
    """In workers and in this process, infos included."""
    arguments: dict[str, Any] = {"autoreset_mode": mode, "episode_seeds": True}
    one = make([short_cart_pole] * 5, num_workers=1, **arguments)
    one.reset(seed=2)
    actions = random_actions(one, 50)
    run(one, actions[:20])
    saved = one.state_dict()
    expected = run(one, actions[20:])
    for other in (
        make([short_cart_pole] * 5, num_workers=5, **arguments),
        make_workers([short_cart_pole] * 5, num_workers=2, **arguments),
    ):
        other.load_state_dict(saved)
        assert_same(run(other, actions[20:]), expected)


@pytest.mark.parametrize("mode", MODES)
def test_every_step_is_one_to_go_on_from(make, mode):
    """Whatever is pending there."""
    one = make(strolls(3), autoreset_mode=mode, autoreset_options="last")
    two = make(strolls(3), num_workers=3, autoreset_mode=mode, autoreset_options="last")
    one.reset(seed=0, options={"a": 1})
    for batch in random_actions(one, 25):
        two.load_state_dict(one.state_dict())
        np.testing.assert_array_equal(one.autoreset_mask, two.autoreset_mask)
        assert_same(run(one, [batch]), run(two, [batch]))


def test_a_load_returns_the_last_observations(make):
    """To ask the policy with."""
    envs = make(strolls(3))
    envs.reset(seed=0)
    result = run(envs, random_actions(envs, 3))[-1]
    observation, info = make(strolls(3)).load_state_dict(envs.state_dict())
    np.testing.assert_array_equal(observation, result.observation)
    assert info == {}


def test_it_can_be_kept_in_any_way(make):
    """By pickle, and by JSON with base64; its values are plain."""
    envs = make(strolls(3))
    envs.reset(seed=0)
    saved = envs.state_dict()
    actions = random_actions(envs, 10)
    expected = run(envs, actions)
    file = io.BytesIO()
    pickle.dump(saved, file)
    text = json.dumps(saved, default=lambda data: base64.b64encode(data).decode())
    from_json = json.loads(text)
    from_json["states"] = base64.b64decode(from_json["states"])
    for kept in (saved, pickle.loads(file.getvalue()), from_json):
        envs.load_state_dict(kept)
        assert_same(run(envs, actions), expected)


def test_counts_of_steps_go_on(make):
    """statistics() of the new vector begins where the old one was."""
    envs = make(strolls(2))
    envs.reset(seed=0)
    run(envs, random_actions(envs, 7))
    other = make(strolls(2))
    other.load_state_dict(envs.state_dict())
    assert other.statistics().steps == 7


@pytest.mark.parametrize("mode", MODES)
def test_a_run_goes_on_after_restarts(make_workers, mode):
    """With the episodes that were lost, told of or not, and those that began since."""
    arguments: dict[str, Any] = {
        "num_workers": 2,
        "autoreset_mode": mode,
        "on_worker_failure": "restart",
    }
    one = make_workers(strolls(4), **arguments)
    one.reset(seed=4)
    one.set_attr("tag", [9, 8, 7, 6])
    actions = random_actions(one, 40)
    run(one, actions[:6])
    os.kill(one.worker_pids[0], signal.SIGKILL)
    for step in (6, 7, 9):
        run(one, actions[step : step + 1])
        saved = one.state_dict()
        two = make_workers(strolls(4), **arguments)
        two.load_state_dict(saved)
        expected = run(one, actions[20:])
        assert_same(run(two, actions[20:]), expected)
        one.load_state_dict(saved)
        assert_same(run(one, actions[20:]), expected)
        one.load_state_dict(saved)
    assert one.get_attr("tag") == (9, 8, 7, 6)


def test_a_restart_after_a_load_is_one_of_the_run_that_goes_on(make_workers):
    """The new worker is told what the old vector knew."""
    arguments: dict[str, Any] = {"num_workers": 2, "on_worker_failure": "restart"}
    one, two = (make_workers(strolls(4), **arguments) for _ in range(2))
    one.reset(seed=4)
    one.set_attr("tag", [9, 8, 7, 6])
    actions = random_actions(one, 30)
    run(one, actions[:6])
    two.load_state_dict(one.state_dict())
    for each in (one, two):
        os.kill(each.worker_pids[1], signal.SIGKILL)
    assert_same(run(two, actions[6:]), run(one, actions[6:]))
    assert two.get_attr("tag") == (9, 8, 7, 6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d["states"], TypeError, "takes what state_dict returned, got bytes"),
        (lambda d: {}, ValueError, "not what state_dict returned: expected the keys format"),
        (lambda d: d | {"format": "x"}, ValueError, "not what state_dict returned"),
        (lambda d: d | {"version": 2}, ValueError, "version 2, written by a newer .*Update"),
        (lambda d: d | {"version": 0}, ValueError, "damaged: expected a version of 1"),
        (lambda d: d | {"steps": -1}, ValueError, "damaged: .* number of steps, got 1 and -1"),
        (lambda d: d | {"states": "abcd"}, ValueError, "got str. Decode it from base64"),
        (lambda d: d | {"num_envs": 4}, ValueError, "expected num_envs=3, as here, got 4"),
        (lambda d: d | {"steps": "x"}, ValueError, "expected steps of type int, got str"),
        (lambda d: d | {"version": "1"}, ValueError, "expected version of type int, got str"),
        (lambda d: d | {"settings": 3}, ValueError, "expected settings of type Mapping, got int"),
        (lambda d: d | {"states": d["states"][:-1]}, ValueError, "cut short"),
        (lambda d: d | {"states": b"x" * 99}, ValueError, "This is no state of environments"),
        (
            lambda d: d | {"settings": d["settings"] | {"episode_seeds": True}},
            ValueError,
            "expected episode_seeds=False, as here, got True",
        ),
        (
            lambda d: d | {"settings": d["settings"] | {"autoreset_options": "last"}},
            ValueError,
            "expected autoreset_options=None, as here, got 'last'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(make, change, error, message):
    """With what was expected and what came."""
    envs, twin = make(strolls(3)), make(strolls(3))
    for each in (envs, twin):
        each.reset(seed=0)
    saved = envs.state_dict()
    for each in (envs, twin):
        run(each, random_actions(envs, 4))
    with pytest.raises(error, match=message):
        envs.load_state_dict(change(saved))
    actions = random_actions(envs, 15)
    assert_same(run(envs, actions), run(twin, actions))


def test_other_environments_are_refused(make):
    """The autoreset mode, too."""
    envs = make([short_cart_pole] * 2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="another environment"):
        make(strolls(2)).load_state_dict(envs.state_dict())
    other = make([short_cart_pole] * 2, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ValueError, match="another autoreset mode"):
        other.load_state_dict(envs.state_dict())


def test_nothing_can_be_saved_before_the_first_reset(make):
    """There is nothing to go on from."""
    with pytest.raises(ResetNeeded, match="never reset"):
        make(strolls(2)).state_dict()
