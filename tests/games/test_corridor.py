"""The example engines: the corridor in one file of C++, and the same in Rust."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from superdex.games import load

CORRIDOR = Path(__file__).parents[2] / "superdex/games/cpp/examples/corridor.cpp"


@pytest.fixture(params=["corridor", "rust"])
def engine(request, build):
    """Each of the two engines."""
    return load(build.rust() if request.param == "rust" else build("corridor"))


def test_example_is_short():
    """The example of the interface has fewer than 150 lines."""
    assert len(CORRIDOR.read_text().splitlines()) < 150


def test_thousand_games_are_won_in_exactly_four_steps_each(engine):
    """Whoever walks to the exit that the board shows arrives with the fourth step, always."""
    batch = engine.create(1000)
    outputs = batch.allocate()
    batch.observe(outputs)
    board = outputs.arrays["board"]
    towards = (board.argmax(axis=1) == board.shape[1] - 1).astype(int)
    assert 0 < towards.sum() < 1000
    for step in range(1, 5):
        batch.step(towards, outputs)
        assert (outputs.arrays["terminated"] == (step == 4)).all()
        assert (outputs.arrays["reward"] == (step == 4)).all()
    records = batch.records()
    assert (records["plies"] == 4).all()
    assert records["over"].all()


@pytest.mark.parametrize("keep_illegal", [True, False])
def test_rust_and_cpp_give_equal_bytes(build, corridor, keep_illegal):
    """Outputs and captured states are equal over 400 steps with bad moves, resets and restores."""
    batches = [
        library.create(17, max_episode_steps=9, first_state_id=5 << 44, seeds=range(30, 47))
        for library in (corridor, load(build.rust()))
    ]
    outputs = [batch.allocate() for batch in batches]
    rng = np.random.default_rng(8)
    kept = batches[0].capture()
    for step in range(400):
        actions = rng.integers(-1, 4, 17)
        rows = rng.permutation(17)[: rng.integers(1, 17)]
        slots = [batch.allocate(len(rows)) for batch in batches]
        for batch, out, slot in zip(batches, outputs, slots, strict=True):
            batch.step(actions, out, auto_reset=step % 3 > 0, keep_illegal=keep_illegal)
            if step % 10 == 5:
                batch.reset(rows + step, slot, rows=rows, seeded=rows % 3 > 0)
            if step % 10 == 0:
                batch.reset(None, slot, rows=rows)
            if step % 50 == 30:
                batch.restore(kept[rows], rows=rows)
            batch.observe(slot, rows=rows)
        for name in outputs[0].arrays:
            np.testing.assert_array_equal(outputs[0].arrays[name], outputs[1].arrays[name])
            np.testing.assert_array_equal(slots[0].arrays[name], slots[1].arrays[name])
        np.testing.assert_array_equal(batches[0].capture(), batches[1].capture())


def test_what_an_engine_lacks_is_refused(engine):
    """The corridor has no bots, no options and no events, and says so."""
    description = engine.describe()
    assert description.bots == ()
    assert description.options == {}
    with pytest.raises(NotImplementedError, match="does not offer"):
        engine.create(2, event_history=1)
    with pytest.raises(NotImplementedError, match="no bots"):
        engine.create(2).bot_moves("random")
