"""`Ledger`: what the caller was told of every environment, and what a restarted worker gets."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.vector._episodes import Episode, Ledger

NONE = [None] * 4


def ledger(mode=AutoresetMode.NEXT_STEP, *, episode_seeds=False) -> Ledger:
    return Ledger(4, mode, episode_seeds)


def reset(book: Ledger, rows=range(4), seeds=(5, 6, 7, 8), options=NONE) -> None:
    book.begin_reset(rows, seeds, options[: len(rows)])
    book.finish_reset()


def step(book: Ledger, ended=(), autoreset=()) -> None:
    book.note_step(np.isin(range(4), ended), np.isin(range(4), autoreset))


def test_nothing_is_lost_before_the_first_reset():
    """There is no episode to cut short."""
    revival = ledger().revival(range(2))
    assert revival.episodes == [Episode(), Episode()]
    assert (revival.lost, revival.ended, revival.attributes) == ([], [], [{}, {}])


def test_rows_are_those_of_the_worker():
    """Counted from its first environment."""
    book = ledger()
    reset(book)
    step(book, ended=[3])
    revival = book.revival(range(2, 4))
    assert (revival.lost, revival.ended) == ([0], [1])
    assert [episode.seed for episode in revival.episodes] == [7, 8]


@pytest.mark.parametrize(
    ("mode", "lost", "ended"),
    [
        (AutoresetMode.NEXT_STEP, [0], [1]),
        (AutoresetMode.SAME_STEP, [0, 1], []),
        (AutoresetMode.DISABLED, [0], [1]),
    ],
)
def test_an_episode_that_had_ended_is_not_lost(mode, lost, ended):
    """With SAME_STEP the next one has begun by then."""
    book = ledger(mode)
    reset(book)
    step(book, ended=[1], autoreset=[1] if mode is AutoresetMode.SAME_STEP else [])
    revival = book.revival(range(2))
    assert (revival.lost, revival.ended) == (lost, ended)


def test_episodes_are_numbered_by_autoresets_and_resets():
    """A reset with a seed starts over, one without begins the next."""
    book = ledger()
    reset(book)
    step(book, ended=[0, 1])
    step(book, autoreset=[0, 1])
    reset(book, [1, 2, 3], [None, None, 9])
    assert [episode.number for episode in book.revival(range(4)).episodes] == [1, 2, 1, 0]
    assert [episode.seed for episode in book.revival(range(4)).episodes] == [5, 6, 7, 9]


def test_a_reset_counts_when_it_is_finished():
    """Until then a worker that dies over it has what was before."""
    book = ledger()
    book.begin_reset(range(4), [5, 6, 7, 8], NONE)
    assert book.revival(range(1)).episodes == [Episode()]
    book.finish_reset()
    book.finish_reset()
    assert book.revival(range(1)).episodes == [Episode(5, 0)]


def test_a_reset_ends_the_wait_for_one():
    """Of the rows reset only."""
    book = ledger(AutoresetMode.DISABLED)
    reset(book)
    step(book, ended=[0, 1])
    reset(book, [0], [None])
    revival = book.revival(range(2))
    assert (revival.lost, revival.ended) == ([0], [1])


def test_seeds_are_drawn_where_episodes_need_them():
    """Once for each environment, and kept."""
    book = ledger(episode_seeds=True)
    drawn = book.begin_reset([0, 1], [None, 4], NONE[:2])
    assert isinstance(drawn[0], int)
    assert drawn[1] == 4
    book.finish_reset()
    assert book.begin_reset([0, 1], [None, None], NONE[:2]) == [None, None]


def test_no_seed_is_drawn_where_nobody_asked():
    """An unseeded run stays unseeded."""
    assert ledger().begin_reset([0], [None], [None]) == [None]


def test_options_are_kept_as_they_were():
    """The caller may change its own later."""
    book = ledger()
    options = {"level": [1]}
    book.begin_reset(range(4), NONE, [options] * 4)
    options["level"].append(2)
    book.finish_reset()
    assert book.revival(range(1)).episodes[0].options == {"level": [1]}


def test_attributes_are_kept_as_they_were():
    """The last value of each, and in the order of setting."""
    book = ledger()
    value = [1]
    for name, values in (("a", [0, 0]), ("b", [value, 2]), ("a", [3, 4])):
        book.begin_set([0, 1], name, values)
        book.finish_set()
    value.append(2)
    first, second, third, _ = book.revival(range(4)).attributes
    assert list(first.items()) == [("b", [1]), ("a", 3)]
    assert second == {"b": 2, "a": 4}
    assert third == {}


def test_attributes_that_were_not_set_are_not_set_again():
    """Where set_attr failed half-way."""
    book = ledger()
    book.begin_set([0, 1], "a", [1, 2])
    book.finish_set({1})
    book.finish_set()
    assert book.revival(range(2)).attributes == [{"a": 1}, {}]
