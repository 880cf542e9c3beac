"""The example on superdex's headers: tic-tac-toe, compared with its rules in plain Python."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from superdex.games import VectorGameEnv, load
from tests.games.engines import CPP, FLAGS, run

LINES = np.array(
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]
)


@pytest.fixture(scope="module")
def built(build):
    """The library, built as the documentation says."""
    if build.compiler is None:
        pytest.skip("there is no C++ compiler")
    return build("tic_tac_toe")


def test_thousand_games_equal_plain_rules(built):
    """Boards, legal cells, rewards and ends, in every position of a thousand random games."""
    rng = np.random.default_rng(5)
    rows, played = np.arange(200), 0
    marks = np.zeros((200, 9), int)
    with VectorGameEnv("tic_tac_toe", 200, seed=0, library=built) as env:
        batch = env.reset()
        while played < 1000:
            moving = 1 + (marks > 0).sum(axis=1) % 2
            planes = [marks == moving[:, None], marks == 3 - moving[:, None]]
            np.testing.assert_array_equal(
                batch["board_tokens"].reshape(200, 2, 9), np.stack(planes, axis=1)
            )
            np.testing.assert_array_equal(batch["seat"], moving - 1)
            for ids, cells in zip(batch["action_id"], marks, strict=True):
                assert ids[ids >= 0].tolist() == np.flatnonzero(cells == 0).tolist()
            choice = rng.integers(batch["legal_action_count"])
            actions = batch["action_id"][rows, choice]
            batch = env.step(actions)
            marks[rows, actions] = moving
            won = (marks[:, LINES] == moving[:, None, None]).all(axis=2).any(axis=1)
            over = won | (marks > 0).all(axis=1)
            np.testing.assert_array_equal(batch["terminated"], over)
            np.testing.assert_array_equal(batch["reward"], won)
            np.testing.assert_array_equal(batch["seat_reward"].sum(axis=1), np.zeros(200))
            played += over.sum()
            marks[over] = 0


def test_a_game_that_names_no_progress_action_has_none(built):
    """What a description leaves out is not taken for action 0."""
    with VectorGameEnv("tic_tac_toe", 1, library=built) as env:
        assert env.description.progress_action == -1


def test_a_description_cannot_contradict_what_the_game_writes(build, tmp_path):
    """Seats and the board's type are those that the batch was compiled with, whatever it says."""
    if build.compiler is None:
        pytest.skip("there is no C++ compiler")
    source = (CPP / "examples" / "tic_tac_toe.cpp").read_text()
    wrong = "about.num_seats = 1, about.board_dtype = SDG_INT32, about.board_ndim = 3;"
    assert "about.board_ndim = 3;" in source
    game = tmp_path / "wrong.cpp"
    game.write_text(source.replace("about.board_ndim = 3;", wrong))
    made = tmp_path / "wrong.so"
    sources = [CPP / "src" / "interface.cpp", game]
    run(build.compiler, *FLAGS, "-O0", "-shared", f"-I{CPP / 'include'}", *sources, "-o", made)
    description = load(made).describe()
    assert description.num_seats == 2
    assert description.board_dtype == np.uint8


def test_a_state_of_an_odd_size_is_explained(build, tmp_path):
    """The compiler says what to do."""
    if build.compiler is None:
        pytest.skip("there is no C++ compiler")
    source = (CPP / "examples" / "tic_tac_toe.cpp").read_text()
    odd = tmp_path / "odd.cpp"
    odd.write_text(source.replace("unused[5]", "unused[4]"))
    done = subprocess.run(
        [build.compiler, "-std=c++20", "-fsyntax-only", f"-I{CPP / 'include'}", odd],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "multiple of 8 bytes" in done.stderr
