"""The example that learns a game does learn it."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tests.examples.modules import load_example

pytest.importorskip("superdex.games", exc_type=ImportError)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example as a module."""
    return load_example("self_play")


def test_a_seat_is_credited_with_what_it_chose(example):
    """What led to a win becomes likelier, and to a loss less so; open ends count nothing."""
    likely = np.array([[0.5, 0.5]])
    features = np.array([[[0.0, 0, 0], [1, 0, 0]]])

    def choice(row, seat, rewards, over):
        return example.Choice(
            features,
            likely,
            np.array([row]),
            np.array([seat]),
            np.array([rewards]),
            np.array([over]),
        )

    won, lost = choice(1, 0, (1.0, -1.0), True), choice(1, 1, (0.0, 0.0), False)
    later = choice(1, 0, (0.0, 0.0), False)
    assert example.gradient([won])[0] == 0.5
    assert example.gradient([lost, won])[0] == (0.5 - 0.5 * example.DISCOUNT) / 2
    assert example.gradient([won, later])[0] == 0.5


def test_wilson_intervals_are_the_published_ones(example):
    """Newcombe (1998), table I, method 3."""
    assert example.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert example.wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_training_beats_a_bot(example, capsys, monkeypatch):
    """After a second of self-play, a bot that never was the opponent loses most games."""
    small = ["--num_envs=128", "--num_steps=64", "--num_updates=20", "--num_games=100"]
    monkeypatch.setattr("sys.argv", ["self_play.py", *small])
    example.main()
    shares = [
        int(line.split("wins ")[1].split()[0]) / 100
        for line in capsys.readouterr().out.splitlines()
        if "flood_fill" in line
    ]
    untrained, trained = shares
    assert untrained < 0.4
    assert trained > 0.7
