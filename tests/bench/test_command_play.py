"""`superdex games play`: what is shown, and how it ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from superdex.bench.cli import main
from superdex.errors import GameLibraryError

try:
    import superdex.games  # noqa: F401 - importing it looks for the engine
except GameLibraryError:
    pytest.skip("superdex was installed without a compiler", allow_module_level=True)

SMALL = ["games", "play", "--width", "10", "--height", "8", "--seed", "3"]


def show(capsys, *arguments):
    """Run the command and return the lines that it printed."""
    assert main([*SMALL, *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_end_is_shown_where_there_is_no_terminal(capsys):
    """Names, the last board and the result, without a colour; the same seed gives the same game."""
    lines = show(capsys, "--bot", "alphabeta", "--vs", "flood-fill")
    assert "alpha_beta" in lines[0]
    assert "flood_fill" in lines[0]
    assert [len(line) for line in lines[1:9]] == [20] * 8
    assert "won after" in lines[9]
    assert "seed 3" in lines[9]
    assert "\x1b" not in "".join(lines)
    assert show(capsys, "--bot", "alphabeta", "--vs", "flood-fill") == lines


def test_trails_hold_a_cell_for_each_move(capsys):
    """Two cells at the start and one more with every move but the crash."""
    *board, result = show(capsys, "--bot", "voronoi", "--vs", "random")[1:]
    taken = sum(line[column] not in " ·" for line in board for column in range(1, 20, 2))
    moves = int(result.partition("after ")[2].partition(" ")[0])
    assert taken == moves + 1


def test_bots_play_in_the_fog(capsys):
    """With a short sight another game is played, from the same start, and shown as a whole."""
    clear = show(capsys, "--bot", "voronoi", "--vs", "voronoi")
    foggy = show(capsys, "--bot", "voronoi", "--vs", "voronoi", "--vision_radius", "1")
    assert foggy[-1].endswith("(board 10 × 8, vision radius 1, seed 3).")
    opened = show(capsys, "--bot", "voronoi", "--vs", "voronoi", "--opening_plies", "4")
    assert opened[-1].endswith("(board 10 × 8, opening plies 4, seed 3).")
    assert foggy != clear


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bot", "alhpabeta"], "Did you mean alpha_beta?"),
        (["--vs", "me"], "expected one of random, flood_fill, voronoi, alpha_beta"),
        (["--width", "65"], "from 4 to 64"),
        (["--vision_radius", "99"], "from 0 to 64"),
        (["--opening_plies", "1025"], "from 0 to 1024"),
        (["--delay", "-1"], "0 or more"),
        (["--delay", "nan"], "0 or more"),
        (["--delay", "1e300"], "at most 3600"),
        (["--seed", str(2**64)], "at most 64 bits"),
    ],
)
def test_bad_input_is_refused(capsys, arguments, message):
    """The error says what is allowed, and the exit code is 2."""
    with pytest.raises(SystemExit) as ended:
        main([*SMALL, *arguments])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_missing_engine_is_one_message(tmp_path):
    """It goes to stderr without a traceback, and the exit code is 1."""
    done = subprocess.run(
        [sys.executable, "-m", "superdex.bench.cli", *SMALL],
        env={**os.environ, "SUPERDEX_GAMES_LIBRARY": str(tmp_path / "none.so")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "could not be opened" in done.stderr


def test_where_only_ascii_can_be_written_it_is_enough():
    """Board and result are drawn with what there is."""
    done = subprocess.run(
        [sys.executable, "-m", "superdex.bench.cli", *SMALL],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "board 10 x 8" in done.stdout


def in_terminal(*arguments):
    """Start the command in a terminal; return the process and the terminal's other end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "superdex.bench.cli", *SMALL, *arguments],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "30"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return process, ours


def read_until(terminal, wanted):
    """Return what a terminal shows until it has shown something, or until its end."""
    shown = b""
    while wanted not in shown:
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # Linux says so that the other end is closed
            break
    return shown


def test_every_move_is_drawn_in_a_terminal():
    """The board is drawn over and over, in colour, down to the result."""
    process, terminal = in_terminal("--delay", "0")
    shown = read_until(terminal, b"seed 3")
    assert process.wait(timeout=60) == 0
    os.close(terminal)
    assert b"move 1\x1b" in shown
    assert b"move 2\x1b" in shown
    assert b"\x1b[1;35m" in shown


def test_ctrl_c_ends_it_quietly():
    """The exit code is 130, the cursor is back, and there is no traceback."""
    process, terminal = in_terminal("--delay", "60")
    shown = read_until(terminal, b"move 1\x1b")
    process.send_signal(signal.SIGINT)
    shown += read_until(terminal, b"never")
    assert process.wait(timeout=60) == 130
    os.close(terminal)
    assert b"Traceback" not in shown
    assert b"\x1b[?25h" in shown
