"""The benchmark of games: that all play the same, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superdex.errors import GameLibraryError

try:
    import game_contenders
    import games
    from games_report import draw, fixed_cost, tables
except GameLibraryError:
    pytest.skip("superdex was installed without a compiler", allow_module_level=True)


@pytest.fixture(scope="module")
def tape() -> game_contenders.Tape:
    """Three games, again and again."""
    return game_contenders.record(num_envs=3, steps=120)


def count_ends(contender: game_contenders.Allocating, tape: game_contenders.Tape) -> int:
    """Play the tape once and return how many games ended."""
    contender.begin()
    ended = 0
    for actions in tape.actions:
        contender.step(actions)
        ended += int(contender._env.observe()["terminated"].sum())
    contender.close()
    return ended


def test_everybody_plays_the_games_of_the_tape(tape: game_contenders.Tape):
    """As many games end for all, plain Python included, and no action is refused."""
    assert tape.games > 3
    assert count_ends(game_contenders.Allocating(tape, 1), tape) == tape.games
    assert count_ends(game_contenders.Into(tape, 2), tape) == tape.games
    plain = game_contenders.PlainPython(tape)
    for _ in range(tape.actions.size):
        plain.step_one()
    assert plain.games == tape.games


def test_a_tape_is_the_same_every_time(tape: game_contenders.Tape):
    """Figures of two runs are of the same games."""
    again = game_contenders.record(num_envs=3, steps=120)
    np.testing.assert_array_equal(again.actions, tape.actions)


def test_comparison_has_every_contender():
    """No more threads than games; bots where they were asked for."""
    plan = games.Plan((1, 4), (1, 2), with_bots=4, rounds=1, seconds=0.01)
    one, four = (games.compare(num_envs, plan)["env_steps_per_second"] for num_envs in (1, 4))
    assert set(one) == {"into_1", "step_1", "rules_1", "python"}
    assert set(four) == {
        *("into_1", "step_1", "rules_1", "bots_1"),
        *("into_2", "step_2", "rules_2", "bots_2"),
        "python",
    }
    assert all(rate > 0 for rates in four.values() for rate in rates)


@pytest.fixture
def report() -> dict[str, Any]:
    """A report of two sizes."""
    return {
        "machine": {"processor": "P"},
        "num_threads": [1, 2],
        "comparisons": [
            {
                "num_envs": 1,
                "games_per_env_step": 0.01,
                "env_steps_per_second": {
                    "into_1": [250_000.0] * 3,
                    "step_1": [50_000.0] * 3,
                    "rules_1": [500_000.0] * 3,
                    "python": [1000.0] * 3,
                },
            },
            {
                "num_envs": 256,
                "games_per_env_step": 0.02,
                "env_steps_per_second": {
                    "into_1": [500_000.0] * 3,
                    "into_2": [900_000.0, 950_000.0, 1_000_000.0],
                    "step_1": [400_000.0] * 3,
                    "step_2": [475_000.0] * 3,
                    "rules_1": [5_000_000.0] * 3,
                    "rules_2": [5_000_000.0] * 3,
                    "bots_1": [2000.0] * 3,
                    "bots_2": [3800.0] * 3,
                    "python": [1000.0] * 3,
                },
            },
        ],
    }


def test_tables_have_rates_and_ratios_within_a_round(report: dict[str, Any]):
    """A dash stands for what was not measured."""
    lines = tables(report).splitlines()
    one, many = (line for line in lines if line.startswith(("| 1 |", "| 256 | 500")))
    assert one == "| 1 | 250,000 | – | 4 | 2,500 | – | 50 % | 5.00 [5.00, 5.00] | 250 |"
    assert "| 256 | 500,000 | 950,000 | 1.05 | 19,000 | 1.90 [1.85, 1.95] | 90 % |" in many
    assert many.endswith("| 2.00 [1.95, 2.05] | 950 |")
    assert "| 256 | 2,000 | 3,800 | 1.90 [1.90, 1.90] |" in lines


def test_fixed_cost_is_what_a_call_takes_beyond_its_game(report: dict[str, Any]):
    """4 µs with one game and 2 µs for a game among many leave 2 µs."""
    assert fixed_cost(report) == pytest.approx(2.0)
    report["comparisons"].pop()
    assert fixed_cost(report) is None


def test_plot_is_a_picture(report: dict[str, Any], tmp_path: Path):
    """Contenders that took part in some sizes only do not stop it."""
    draw(report, tmp_path / "games.png")
    assert (tmp_path / "games.png").read_bytes().startswith(b"\x89PNG")
