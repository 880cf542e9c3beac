"""States as bytes and in files."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from superdex.envs import CartPoleEnv, HalfCheetahEnv
from superdex.states import VectorState
from superdex.states import _vector_state as module
from superdex.states._codec import encode
from superdex.states._sealed import seal
from superdex.vector import HybridVectorEnv


@pytest.fixture(scope="module")
def state() -> VectorState:
    """States of four cart-poles."""
    with HybridVectorEnv([CartPoleEnv] * 4, in_process=True) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros((4, 1), np.float32))
        return envs.capture_states()


def test_bytes_come_back(state):
    """Equal states are equal bytes."""
    back = VectorState.from_bytes(state.to_bytes())
    assert back == state
    assert back.to_bytes() == state.to_bytes()
    assert back.digest == state.digest


def test_a_state_can_be_pickled(state):
    """So it travels to other processes."""
    assert pickle.loads(pickle.dumps(state)) == state


def test_some_are_chosen_in_any_order(state):
    """By number, slice, numbers or mask, and more than once."""
    assert state[2].rows == state.rows[2:3]
    assert state[-1].rows == state.rows[3:]
    assert state[1:3].rows == state.rows[1:3]
    assert state[[3, 0, 0]].rows == (state.rows[3], state.rows[0], state.rows[0])
    assert state[np.array([True, False, False, True])].num_envs == 2
    np.testing.assert_array_equal(
        state[[3, 1]].results["observation"], state.results["observation"][[3, 1]]
    )
    with pytest.raises(IndexError):
        state[4]


def test_several_captures_are_put_together(state):
    """As if they had been captured at once, for a bank of states from several moments."""
    assert VectorState.concatenate([state[[0, 1]], state[2:]]) == state


@pytest.mark.parametrize(("others", "error"), [([], ValueError), ([b""], TypeError)])
def test_nothing_but_states_is_put_together(others, error):
    """At least one, and each a state."""
    with pytest.raises(error, match="concatenate takes"):
        VectorState.concatenate(others)


def test_states_with_other_observations_are_not_put_together(state):
    """They would fit no vector environment."""
    with HybridVectorEnv([HalfCheetahEnv], in_process=True) as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="the same observations"):
            VectorState.concatenate([state, envs.capture_states()])


def test_its_arrays_can_not_be_changed(state):
    """It is a value."""
    with pytest.raises(ValueError, match="read-only"):
        state.results["observation"][0] = 0


def test_a_file_comes_back(state, tmp_path):
    """Whole, and nothing is left beside it."""
    path = tmp_path / "states.bin"
    state.save(path)
    state[[0]].save(path)
    state.save(str(path))
    assert VectorState.load(path) == state
    assert [p.name for p in tmp_path.iterdir()] == ["states.bin"]


def test_files_that_are_not_whole_are_refused(state, tmp_path):
    """Cut anywhere, with the file's name and what is wrong with it."""
    data = state.to_bytes()
    path = tmp_path / "cut.bin"
    for length in [*range(64), len(data) // 2, len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"cut\.bin: (The state|This is no)"):
            VectorState.load(path)


def test_a_flipped_bit_is_noticed(state):
    """Wherever it is."""
    data = bytearray(state.to_bytes())
    for position in np.random.default_rng(0).integers(0, len(data), 200):
        data[position] ^= 4
        with pytest.raises(ValueError, match="state of environments"):
            VectorState.from_bytes(bytes(data))
        data[position] ^= 4
    assert VectorState.from_bytes(bytes(data)) == state


def test_bytes_after_the_end_are_noticed(state):
    """They are not those that were written."""
    with pytest.raises(ValueError, match="damaged"):
        VectorState.from_bytes(state.to_bytes() + b"x")


def test_a_newer_format_is_named(state):
    """And what to do about it."""
    newer = seal(module._MAGIC, module._VERSION + 1, b"whatever")
    with pytest.raises(ValueError, match=r"format 2, written by a newer version.*Update superdex"):
        VectorState.from_bytes(newer)


@pytest.mark.parametrize(
    "change",
    [
        {"tags": ["x"]},
        {"tag": [9] * 5},
        {"rows": []},
        {"results": {}},
    ],
)
def test_parts_that_do_not_fit_together_are_refused(state, change):
    """Even where the checksum is right."""
    body = encode(state._to_tree() | change)
    with pytest.raises(ValueError, match="damaged"):
        VectorState.from_bytes(seal(module._MAGIC, module._VERSION, body))


def test_flags_of_another_shape_are_refused(state):
    """There is one bool for each row."""
    ended = np.zeros((state.num_envs, 2), np.bool_)
    body = encode(state._to_tree() | {"results": state.results | {"ended": ended}})
    with pytest.raises(ValueError, match="parts don't fit together"):
        VectorState.from_bytes(seal(module._MAGIC, module._VERSION, body))


def test_a_link_stays_a_link(state, tmp_path):
    """What it leads to is written, and a name may be as long as the system allows."""
    target = tmp_path / ("n" * 250)
    (tmp_path / "link").symlink_to(target)
    for _ in range(2):
        state.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert VectorState.load(target) == state
    assert len([*tmp_path.iterdir()]) == 2


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


@pytest.mark.parametrize("body", [pickle.dumps(Bomb()), b"\x80", b"\x93\x01\x02\x03", b"\x80\xc0"])
def test_no_code_in_a_file_is_run(body, tmp_path):
    """A pickle is no state, not even under our own head and checksum."""
    for data in (pickle.dumps(Bomb()), seal(module._MAGIC, module._VERSION, body)):
        path = tmp_path / "bomb.bin"
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"bomb\.bin"):
            VectorState.load(path)


def test_other_types_are_no_bytes():
    """A path is for load."""
    with pytest.raises(TypeError, match="must be bytes, got str"):
        VectorState.from_bytes("states.bin")


def test_a_file_that_can_not_be_written_leaves_nothing(state, tmp_path):
    """The error is the system's own."""
    with pytest.raises(FileNotFoundError):
        state.save(tmp_path / "missing" / "states.bin")
    folder = tmp_path / "states.bin"
    folder.mkdir()
    with pytest.raises(OSError, match="directory"):
        state.save(folder)
    assert [*tmp_path.iterdir()] == [folder]


_SAVER = """
import sys
from superdex.states import VectorState
state = VectorState.load(sys.argv[1])
print("ready", flush=True)
while True:
    state.save(sys.argv[1])
"""


def test_a_save_that_is_killed_leaves_a_whole_file(state, tmp_path):
    """At whatever moment."""
    path = tmp_path / "states.bin"
    state.save(path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for pause in (0.0, 0.003, 0.02):
        with subprocess.Popen(
            [sys.executable, "-c", _SAVER, str(path)],
            stdout=subprocess.PIPE,
            env=environment,
        ) as saver:
            assert saver.stdout is not None
            saver.stdout.readline()
            time.sleep(pause)
            saver.send_signal(signal.SIGKILL)
        assert VectorState.load(Path(path)) == state
