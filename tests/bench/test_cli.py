"""The command line, from arguments to exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.spaces import Box

import superdex
from superdex.bench import SweepRow, measure
from superdex.bench.cli import main

BENCH = ["bench", "--env", "Pendulum-v1", "--min_time", "0", "--min_iterations", "3"]
ONE_BY_TWO = ["--num_workers", "1", "--num_envs_per_worker", "1,2"]


class Plain(gymnasium.Env):
    """It knows of no render modes."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Drawing(Plain):
    """Its picture is whatever the test says."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    picture: Any = None

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return self.picture


class RaisesInConstructor(Plain):
    """It can't be built."""

    def __init__(self):
        raise LookupError("lost the model")


class RaisesInStep(Plain):
    """It can't be stepped."""

    def step(self, action):
        raise LookupError("lost the ball")


class LeavesInStep(Plain):
    """It ends the process, or tries to."""

    def step(self, action):
        sys.exit(4)


class RaisesInClose(Plain):
    """It can't be closed."""

    def close(self):
        raise LookupError("lost the key")


@pytest.fixture
def registered():
    """Register the environments above under `test/` and their names, for one test."""
    classes = (Plain, Drawing, RaisesInConstructor, RaisesInStep, LeavesInStep, RaisesInClose)
    ids = {f"test/{each.__name__}-v0": each for each in classes}
    for env_id, env_class in ids.items():
        gymnasium.register(env_id, entry_point=env_class)
    yield
    for env_id in ids:
        del gymnasium.registry[env_id]


def test_version_is_the_packages(capsys):
    """The command says which version it is."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"superdex {superdex.__version__}\n"


@pytest.mark.parametrize("command", [[], ["bench"], ["envs"], ["run"]])
def test_help_is_there_for_every_command(command: list[str], capsys):
    """--help explains and ends well."""
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "usage: superdex" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["bench"], "one of the arguments --env --all is required"),
        (["bench", "--env", "cart_pole", "--all"], "not allowed with argument"),
        (["bench", "--env", ""], "expected names separated by commas"),
        (["bench", "--env", "cart_pol"], "Did you mean 'cart_pole'?"),
        (["bench", "--env", "CartPole-v1"], "BoxSpaces"),
        (["bench", "--env", ".foo:bar"], "must be a module's full name"),
        ([*BENCH, "--num_workers", "0"], "whole numbers of at least 1"),
        ([*BENCH, "--num_workers", ""], "whole numbers of at least 1"),
        ([*BENCH, "--num_workers", "1,two"], "whole numbers of at least 1"),
        ([*BENCH, "--num_envs_per_worker", "-1"], "whole numbers of at least 1"),
        ([*BENCH, "--num_workers", "1,1"], "each value once"),
        ([*BENCH, "--num_envs", "1"], "can't be split; got 1"),
        ([*BENCH, "--num_envs", "x"], "whole number of at least 1"),
        ([*BENCH, "--num_envs", "8", "--num_envs_per_worker", "4"], "not both"),
        ([*BENCH, "--num_envs", "8", "--num_workers", "3"], "num_workers that divide it"),
        ([*BENCH, "--max_time", "-3"], "max_time must be a number of seconds"),
        ([*BENCH, "--min_time", "3", "--max_time", "2"], "min_time must not exceed max_time"),
        ([*BENCH, "--write_to_file", "no/such/folder/x.json"], "does not exist"),
        ([*BENCH, "--plot", "x.bmp"], "A heat map ends in"),
        (["run", "cart_pol"], "Did you mean 'cart_pole'?"),
        (["run", ".x:y"], "must be a module's full name"),
        (["run", "cart_pole", "--num_episodes", "0"], "whole number of at least 1"),
        (["run", "cart_pole", "--seed", "-1"], "whole number, 0 or more"),
        (["run", "cart_pole", "--video", "x.gif"], "A video ends in"),
        (["run", "cart_pole", "--video", "no/such/folder/x.mp4"], "does not exist"),
    ],
)
def test_bad_input_is_refused_with_code_2(arguments: list[str], message: str, capsys, monkeypatch):
    """Nothing is measured, nothing is printed as a result, and the message says what is wrong."""

    def not_called(*_args: object) -> SweepRow:
        raise AssertionError("a measurement was started")

    monkeypatch.setattr("superdex.bench._command_bench.measure", not_called)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_bench_prints_a_table_and_writes_both_files(tmp_path, capsys):
    """The table goes to standard output, what was written to standard error."""
    json_path, picture = tmp_path / "sweep.json", tmp_path / "sweep.png"
    code = main([*BENCH, *ONE_BY_TWO, "--write_to_file", str(json_path), "--plot", str(picture)])
    printed = capsys.readouterr()
    assert code == 0
    assert "Control" in printed.out
    assert "Best: " in printed.out
    assert f"Wrote {json_path}" in printed.err
    written = json.loads(json_path.read_text())
    assert written.keys() == {"machine", "versions", "commit", "settings", "rows"}
    assert [row["num_envs"] for row in written["rows"]] == [1, 2]
    assert [row["vectorized"] for row in written["rows"]] == [False, True]
    assert written["versions"]["gymnasium"] == gymnasium.__version__
    assert picture.stat().st_size > 0


def test_bench_compares_splits_of_one_number(tmp_path, capsys):
    """Each has all environments; the bare one is there to compare with."""
    path, picture = tmp_path / "sweep.json", tmp_path / "sweep.png"
    files = ["--write_to_file", str(path), "--plot", str(picture)]
    assert main([*BENCH, "--num_envs", "6", "--num_workers", "1,2", *files]) == 0
    assert "Best split of 6 environments: " in capsys.readouterr().out
    rows = json.loads(path.read_text())["rows"]
    assert [(row["num_workers"], row["num_envs"]) for row in rows] == [(1, 1), (1, 6), (2, 6)]
    assert picture.stat().st_size > 0


def test_failed_case_is_shown_and_gives_code_1(monkeypatch, capsys):
    """The other cases are measured and shown all the same."""

    def fails_when_bare(case, settings):
        if case.is_bare:
            return SweepRow(case, error="LookupError: lost the ball")
        return measure(case, settings)

    monkeypatch.setattr("superdex.bench._command_bench.measure", fails_when_bare)
    code = main([*BENCH, *ONE_BY_TWO])
    printed = capsys.readouterr().out
    assert code == 1
    assert "Failed (1 × 1): LookupError: lost the ball" in printed
    assert "Best: 1 worker × 2 environments" in printed


def test_interrupted_sweep_keeps_what_was_measured(monkeypatch, tmp_path, capsys):
    """After Ctrl-C the rows so far are shown and written, and the code is 130."""

    def interrupted_after_the_first(case, settings):
        if not case.is_bare:
            raise KeyboardInterrupt
        return measure(case, settings)

    monkeypatch.setattr("superdex.bench._command_bench.measure", interrupted_after_the_first)
    path = tmp_path / "sweep.json"
    code = main([*BENCH, *ONE_BY_TWO, "--write_to_file", str(path)])
    printed = capsys.readouterr()
    assert code == 130
    assert "Interrupted after 1 of 2 cases" in printed.err
    assert "Best: the bare environment" in printed.out
    assert len(json.loads(path.read_text())["rows"]) == 1


@pytest.mark.skipif(os.name != "posix", reason="Windows ends processes in another way")
def test_terminated_sweep_keeps_what_was_measured(monkeypatch, tmp_path, capsys):
    """SIGTERM is handled as Ctrl-C is, and the code is 143."""

    def terminated_after_the_first(case, settings):
        if not case.is_bare:
            os.kill(os.getpid(), signal.SIGTERM)
        return measure(case, settings)

    monkeypatch.setattr("superdex.bench._command_bench.measure", terminated_after_the_first)
    before = signal.getsignal(signal.SIGTERM)
    path = tmp_path / "sweep.json"
    code = main([*BENCH, *ONE_BY_TWO, "--write_to_file", str(path)])
    printed = capsys.readouterr()
    assert code == 143
    assert "Interrupted after 1 of 2 cases" in printed.err
    assert "Best: the bare environment" in printed.out
    assert len(json.loads(path.read_text())["rows"]) == 1
    assert signal.getsignal(signal.SIGTERM) == before


def test_progress_is_silent_without_a_terminal():
    """In a log there is the table, and nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "superdex.bench.cli", *BENCH, "--num_workers=1"]
        + ["--num_envs_per_worker=1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_envs_lists_ids_sizes_and_descriptions(capsys):
    """Every environment has a line with the sizes that its documentation states."""
    assert main(["envs"]) == 0
    printed = capsys.readouterr().out
    lines = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in printed.splitlines()
        if "superdex_gym/" in line or "superdex/" in line
    ]
    assert {env_id: (observation, action) for env_id, observation, action, _ in lines} == {
        "superdex_gym/CartPole-v0": ("4", "1"),
        "superdex_gym/CartPoleActuateOnPole-v0": ("4", "1"),
        "superdex_gym/HalfCheetah-v0": ("17", "6"),
        "superdex_gym/HalfCheetahFullObservation-v0": ("18", "6"),
        "superdex_gym/Ant-v0": ("81", "8"),
        "superdex_gym/AntFullObservation-v0": ("83", "8"),
        "superdex_gym/AntNoContact-v0": ("27", "8"),
        "superdex_gym/AntRotationVector-v0": ("80", "8"),
        "superdex/Ant-v5": ("105", "8"),
        "superdex/HalfCheetah-v5": ("17", "6"),
        "superdex/Hopper-v5": ("11", "3"),
        "superdex/Humanoid-v5": ("348", "17"),
        "superdex/HumanoidStandup-v5": ("348", "17"),
        "superdex/InvertedDoublePendulum-v5": ("9", "1"),
        "superdex/InvertedPendulum-v5": ("4", "1"),
        "superdex/Pusher-v5": ("23", "7"),
        "superdex/Reacher-v5": ("10", "2"),
        "superdex/Swimmer-v5": ("8", "2"),
        "superdex/Walker2d-v5": ("17", "6"),
    }
    assert all(description for *_, description in lines)
    assert "ant_rotation_vector" in printed


def test_run_prints_return_length_and_reason(capsys):
    """Each episode has a line, and a seed gives the same lines again."""
    arguments = ["run", "cart_pole", "--num_episodes", "2", "--seed", "3"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    assert first.startswith("episode 0: return ")
    assert first.count("Pole angle exceeded threshold") == 2


def test_run_cuts_off_an_episode_without_an_end(capsys):
    """An episode that goes on and on is ended, and that is said."""
    assert main(["run", "Pendulum-v1", "--max_steps", "5"]) == 0
    assert "length 5, cut off after 5 steps" in capsys.readouterr().out


def test_run_records_a_video_of_all_frames(tmp_path, capsys):
    """The video has a frame for each reset and each step."""
    path = tmp_path / "out.mp4"
    assert main(["run", "cart_pole", "--max_steps", "6", "--seed", "0", "--video", str(path)]) == 0
    num_frames, _ = imageio_ffmpeg.count_frames_and_secs(path)
    assert num_frames == 1 + 6


def test_run_needs_no_render_mode_without_a_video(registered, capsys):
    """An environment that knows of none runs."""
    assert main(["run", "test/Plain-v0", "--max_steps", "5"]) == 0
    assert "length 5, cut off after 5 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("RaisesInConstructor", "LookupError: lost the model"),
        ("RaisesInStep", "LookupError: lost the ball"),
        ("LeavesInStep", "SystemExit: 4"),
        ("RaisesInClose", "LookupError: lost the key"),
    ],
)
def test_run_tells_what_an_environment_raised(name: str, message: str, registered, capsys):
    """It is one line with type, message and place, whatever the environment was doing."""
    assert main(["run", f"test/{name}-v0", "--max_steps", "2"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"test/{name}-v0 failed: {message} (")
    assert "test_cli.py, line " in printed
    assert printed.count("\n") == 1


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
def test_environment_without_render_mode_cannot_be_recorded(registered, tmp_path, capsys):
    """The message names the argument that its constructor lacks."""
    assert main(["run", "test/Plain-v0", "--video", str(tmp_path / "out.mp4")]) == 1
    assert "its constructor takes no render_mode" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
@pytest.mark.parametrize(
    ("picture", "named"),
    [
        (None, "returned None"),
        ("a drawing", "returned an object of type str"),
        (np.zeros((4, 4), np.uint8), "returned an array of shape (4, 4)"),
    ],
)
def test_what_is_no_picture_is_named(
    picture: object, named: str, registered, monkeypatch, tmp_path, capsys
):
    """The message says what render() returned, and gives no advice on graphics drivers."""
    monkeypatch.setattr(Drawing, "picture", picture)
    assert main(["run", "test/Drawing-v0", "--video", str(tmp_path / "out.mp4")]) == 1
    printed = capsys.readouterr().err
    assert f"its render() {named}" in printed
    assert "MUJOCO_GL" not in printed


def test_missing_package_for_drawing_is_named(monkeypatch, tmp_path, capsys):
    """Who lacks pygame is told to install it, not to change graphics drivers."""
    monkeypatch.setitem(sys.modules, "pygame", None)
    arguments = ["run", "Pendulum-v1", "--max_steps", "2"]
    assert main([*arguments, "--video", str(tmp_path / "out.mp4")]) == 1
    printed = capsys.readouterr().err
    assert "pygame is not installed" in printed
    assert "MUJOCO_GL" not in printed


def test_run_without_the_video_packages_names_the_extra(monkeypatch, tmp_path, capsys):
    """Who lacks them is told what to install, before anything runs."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(SystemExit) as ended:
        main(["run", "cart_pole", "--video", str(tmp_path / "out.mp4")])
    assert ended.value.code == 2
    assert "superdex-vector[video]" in capsys.readouterr().err


def test_environment_that_cannot_draw_gets_a_hint(monkeypatch, tmp_path, capsys):
    """The error is shown with the setting that usually helps."""

    def cannot_draw(self: gymnasium.Env) -> None:
        raise RuntimeError("no OpenGL here")

    monkeypatch.setattr("superdex.envs.CartPoleEnv.render", cannot_draw)
    assert main(["run", "cart_pole", "--video", str(tmp_path / "out.mp4")]) == 1
    printed = capsys.readouterr().err
    assert "no OpenGL here" in printed
    assert "MUJOCO_GL=egl" in printed
