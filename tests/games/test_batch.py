"""Batches of games: rows, threads, episodes, numbers, states, and what is refused."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from superdex.errors import BrokenError, ClosedError, StaleStateError
from superdex.games import load
from tests.games.batches import pick
from tests.games.tron_twin import episode_seed

SMALL = {"width": 9, "height": 8}


def everything(batch, outputs):
    """Return all bytes of a batch: what it shows and what it captures."""
    batch.observe(outputs)
    shown = b"".join(
        array.tobytes() for name, array in outputs.arrays.items() if not name.startswith("final_")
    )
    return shown + batch.capture().tobytes()


def test_results_do_not_depend_on_threads(tron):
    """One and two threads give the same bytes over 400 steps, resets and bots included."""
    batches = [
        tron.create(96, options=SMALL, num_threads=threads, event_history=3, max_episode_steps=40)
        for threads in (1, 2)
    ]
    outputs = [batch.allocate() for batch in batches]
    rngs = [np.random.default_rng(1) for _ in batches]
    for batch, out in zip(batches, outputs, strict=True):
        batch.observe(out)
    for step in range(400):
        for batch, out, rng in zip(batches, outputs, rngs, strict=True):
            actions = pick(out.arrays, rng)
            if step % 20 == 0:
                actions = batch.bot_moves("voronoi")
            batch.step(actions, out, auto_reset=True)
            if step % 100 == 50:
                batch.reset(np.arange(96) + step, out)
        for name in outputs[0].arrays:
            assert outputs[0].arrays[name].tobytes() == outputs[1].arrays[name].tobytes(), name
        if step % 40 == 0:
            assert batches[0].capture().tobytes() == batches[1].capture().tobytes()


def test_slots_in_any_order_equal_the_full_batch(tron):
    """Rows named by calls of their own give the rows of the call that names all."""
    full, parts = (tron.create(10, options=SMALL, event_history=2) for _ in range(2))
    whole = full.allocate()
    full.observe(whole)
    rng = np.random.default_rng(4)
    for _ in range(60):
        actions = pick(whole.arrays, rng)
        full.step(actions, whole, auto_reset=True)
        order = rng.permutation(10)
        for rows in (order[:3], order[3:4], order[4:]):
            slot = parts.allocate(len(rows))
            parts.step(actions[rows], slot, rows=rows, auto_reset=True)
            for name in slot.arrays:
                if not name.startswith("final_"):
                    np.testing.assert_array_equal(slot.arrays[name], whole.arrays[name][rows])


def test_two_threads_may_call_on_disjoint_rows(tron):
    """Their results are those of one thread that names the rows one after the other."""
    together, alone = (tron.create(64, options=SMALL, num_threads=2) for _ in range(2))
    halves = np.arange(0, 64, 2), np.arange(1, 64, 2)
    finals = {}

    def play(batch, rows):
        outputs = batch.allocate(len(rows))
        batch.observe(outputs, rows=rows)
        rng = np.random.default_rng(int(rows[0]))
        for _ in range(150):
            batch.step(pick(outputs.arrays, rng), outputs, rows=rows, auto_reset=True)
        finals[batch is together, int(rows[0])] = outputs.arrays

    threads = [threading.Thread(target=play, args=(together, rows)) for rows in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rows in halves:
        play(alone, rows)
        for name, array in finals[False, int(rows[0])].items():
            np.testing.assert_array_equal(finals[True, int(rows[0])][name], array)


def test_python_goes_on_while_the_engine_works(tron):
    """A call gives the interpreter free: other threads run before it has come to its end."""
    batch = tron.create(32)
    ticks, seen = 0, []

    def search():
        seen.append(ticks)
        batch.bot_moves("alpha_beta", depth=60, nodes=20_000)
        seen.append(ticks)

    thread = threading.Thread(target=search)
    thread.start()
    while thread.is_alive():
        thread.join(0.001)
        ticks += 1
    assert seen[1] - seen[0] > 10


def test_calls_that_share_rows_take_turns(tron):
    """Every step of threads that all name the same row is played, none half."""
    batch = tron.create(3, num_threads=2)
    first = batch.allocate(names=["state_id"])
    batch.observe(first)

    def play():
        for _ in range(300):
            batch.step([0, 1], rows=[1, 2], auto_reset=True, keep_illegal=True)
            batch.reset(rows=[1])

    threads = [threading.Thread(target=play) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = first.arrays["state_id"].copy()
    batch.observe(first)
    assert first.arrays["state_id"][0] == before[0]
    assert first.arrays["state_id"][1] >= before[1] + 3 * 900


def test_rows_go_on_to_the_episodes_that_their_seed_says(tron):
    """Row i starts from seed + i; its e-th episode from the mix of the base seed, i and e."""
    base, rows = 2**64 - 2, 4
    seeds = np.array([(base + row) % 2**64 for row in range(rows)], np.uint64)
    batch = tron.create(rows, seeds=seeds)
    for episode in range(1, 4):
        batch.reset()
        expected = [episode_seed(base, row, episode) for row in range(rows)]
        again = tron.create(rows, seeds=np.array(expected, np.uint64))
        for name in ("state", "board"):
            shown = [b.allocate(names=[name]) for b in (batch, again)]
            for b, out in zip((batch, again), shown, strict=True):
                b.observe(out)
            np.testing.assert_array_equal(shown[0].arrays[name], shown[1].arrays[name])
    batch.reset(seeds)
    np.testing.assert_array_equal(batch.capture(), tron.create(rows, seeds=seeds).capture())


def test_an_illegal_action_leaves_its_game_as_it_is(tron):
    """Its row has action_valid 0, reward 0 and the same state id; the other rows advance."""
    batch = tron.create(4, options=SMALL)
    outputs = batch.allocate()
    batch.observe(outputs)
    ids, states = outputs.arrays["state_id"].copy(), batch.capture()
    legal = outputs.arrays["action_id"][:, 0].copy()
    actions = np.array([legal[0], 99, -1, legal[3]])
    batch.step(actions, outputs)
    assert outputs.arrays["action_valid"].tolist() == [1, 0, 0, 1]
    assert outputs.arrays["reward"].tolist() == [0, 0, 0, 0]
    assert (outputs.arrays["state_id"] != ids).tolist() == [True, False, False, True]
    assert outputs.arrays["plies"].tolist() == [1, 0, 0, 1]
    batch.step(legal, outputs, rows=None)
    assert outputs.arrays["plies"][1:3].tolist() == [1, 1]
    assert states.shape == batch.capture().shape


def test_an_ended_game_rests_until_reset(tron):
    """It stays terminated, has no legal rows and pays nothing again."""
    batch = tron.create(2)
    outputs = batch.allocate()
    batch.step([99, 0], outputs, keep_illegal=False)
    ids = outputs.arrays["state_id"].copy()
    assert outputs.arrays["reward"].tolist() == [-1, 0]
    for _ in range(3):
        batch.step([0, 0], outputs)
        assert outputs.arrays["terminated"][0] == 1
        assert outputs.arrays["seat_reward"][0].tolist() == [0, 0]
        assert outputs.arrays["legal_action_count"][0] == 0
        assert outputs.arrays["action_valid"][0] == 0
        assert (outputs.arrays["action_id"][0] == -1).all()
        assert outputs.arrays["state_id"][0] == ids[0]
    batch.reset(outputs=outputs)
    assert outputs.arrays["terminated"].tolist() == [0, 0]
    assert (outputs.arrays["legal_action_count"] > 0).all()


def test_auto_reset_shows_the_next_episode_beside_the_last_reward(tron):
    """Reward and terminated belong to the transition; the observation and ids to what follows."""
    batch = tron.create(1, event_history=2)
    outputs = batch.allocate()
    batch.observe(outputs)
    episode = outputs.arrays["episode_id"][0]
    batch.step([99], outputs, auto_reset=True, keep_illegal=False)
    arrays = outputs.arrays
    assert (arrays["reward"][0], arrays["terminated"][0]) == (-1, 1)
    assert (arrays["plies"][0], arrays["over"][0]) == (0, 0)
    assert arrays["final_state"][0][:4].tolist() == [1, 1, 1, 1]
    assert arrays["event_mask"].sum() == 0
    assert arrays["episode_id"][0] > episode


def test_the_last_step_can_be_observed_again(tron):
    """Observing after a step gives the step's own arrays, rewards and flags included."""
    batch = tron.create(5, options=SMALL, event_history=3)
    stepped, again = batch.allocate(), batch.allocate()
    batch.observe(stepped)
    rng = np.random.default_rng(0)
    for _ in range(40):
        batch.step(pick(stepped.arrays, rng), stepped, auto_reset=True)
        batch.observe(again)
        for name, array in again.arrays.items():
            if not name.startswith("final_"):
                np.testing.assert_array_equal(array, stepped.arrays[name])


def test_episodes_are_truncated_after_max_episode_steps(tron):
    """The limit truncates where the game has not ended."""
    batch = tron.create(3, max_episode_steps=5)
    outputs = batch.allocate()
    batch.observe(outputs)
    for step in range(1, 11):
        batch.step(outputs.arrays["action_id"][:, 0].copy(), outputs, auto_reset=True)
        assert (outputs.arrays["truncated"] == (step % 5 == 0)).all()
        assert (outputs.arrays["terminated"] == 0).all()


def test_rows_too_few_for_all_actions_keep_the_progress_action(countdown):
    """The first ids are listed, and in the last row the progress action, which sorts last."""
    batch = countdown.create(200, max_actions=4)
    outputs = batch.allocate()
    batch.observe(outputs)
    arrays, progress = outputs.arrays, batch.description.progress_action
    total = arrays["total_legal_action_count"]
    assert total.max() > 4 > total.min()
    for row in range(200):
        idle = total[row] - 1
        listed = [*range(min(idle, 3)), progress]
        assert arrays["action_id"][row].tolist() == listed + [-1] * (4 - len(listed))
        assert arrays["action_mask"][row].sum() == arrays["legal_action_count"][row] == len(listed)
        assert arrays["action_truncated"][row] == (total[row] > 4)
        assert arrays["action_features"][row, len(listed) - 1].tolist() == [progress, 1]
    for _ in range(3):
        batch.step(np.full(200, progress), outputs)
    assert arrays["terminated"].all()


def test_without_a_progress_action_the_prefix_is_listed(tron):
    """The first legal ids fill the rows."""
    batch = tron.create(8, max_actions=2)
    outputs = batch.allocate()
    batch.observe(outputs)
    legal = outputs.arrays["state"][:, 12:16]
    for row in range(8):
        assert outputs.arrays["action_id"][row].tolist() == np.flatnonzero(legal[row])[:2].tolist()


def test_captured_games_go_on_the_same(tron):
    """A restored game plays on bit for bit, through later episodes too."""
    batch = tron.create(6, options=SMALL, event_history=4)
    outputs = batch.allocate()
    batch.observe(outputs)
    rng = np.random.default_rng(3)
    for _ in range(25):
        batch.step(pick(outputs.arrays, rng), outputs, auto_reset=True)
    kept = batch.capture()
    other = tron.create(6, options=SMALL, event_history=4, seeds=range(100, 106), num_threads=2)
    other.restore(kept)
    again = other.allocate()
    other.observe(again)
    for _ in range(60):
        for name in outputs.arrays:
            if not name.endswith("_id") and not name.startswith("final_"):
                np.testing.assert_array_equal(outputs.arrays[name], again.arrays[name], name)
        actions = pick(outputs.arrays, rng)
        batch.step(actions, outputs, auto_reset=True)
        other.step(actions, again, auto_reset=True)
    np.testing.assert_array_equal(batch.capture(), other.capture())


def test_a_restored_row_has_new_ids(tron):
    """Its position and episode were never numbered before, though they are old."""
    batch = tron.create(2)
    outputs = batch.allocate(names=["state_id", "episode_id"])
    batch.observe(outputs)
    before = {name: array.copy() for name, array in outputs.arrays.items()}
    batch.restore(batch.capture())
    batch.observe(outputs)
    for name, array in outputs.arrays.items():
        assert (array > before[name]).all()


def test_damaged_states_are_refused_and_nothing_changes(tron):
    """A flipped bit anywhere, another game or another board is noticed before any row changes."""
    batch = tron.create(3, options=SMALL, event_history=1)
    outputs = batch.allocate()
    kept = batch.capture()
    batch.step([0, 1, 2], keep_illegal=False)
    before = everything(batch, outputs)
    rng = np.random.default_rng(6)
    for _ in range(200):
        bad = kept.copy()
        bad[2, rng.integers(kept.shape[1])] ^= np.uint8(1 << rng.integers(8))
        with pytest.raises(ValueError, match="damaged"):
            batch.restore(bad)
    with pytest.raises(ValueError, match="shape"):
        batch.restore(kept[:, :-1])
    other = tron.create(3, options={"width": 8, "height": 9}, event_history=1)
    with pytest.raises(ValueError, match="of another game"):
        batch.restore(other.capture())
    assert everything(batch, outputs) == before


def test_refused_calls_change_nothing(tron):
    """Bad rows, actions, ids, seeds and buffers leave games and arrays byte-equal."""
    batch = tron.create(4, options=SMALL)
    outputs, slot = batch.allocate(), batch.allocate(2)
    batch.observe(outputs)
    batch.observe(slot, rows=[0, 1])
    ids = outputs.arrays["state_id"].copy()
    stale = ids.copy()
    stale[3] += np.uint64(4)
    before = everything(batch, outputs), {n: a.copy() for n, a in slot.arrays.items()}
    refused = [
        (ValueError, lambda: batch.step([0, 0], slot, rows=[0, 4])),
        (ValueError, lambda: batch.step([0, 0], slot, rows=[0, -1])),
        (ValueError, lambda: batch.step([0, 0], slot, rows=[1, 1])),
        (ValueError, lambda: batch.step([0, 0], slot, rows=[2**32, 1])),
        (TypeError, lambda: batch.step([0, 0], slot, rows=[0.0, 1.0])),
        (ValueError, lambda: batch.step([0, 0, 0], slot, rows=[0, 1])),
        (ValueError, lambda: batch.step([0, 0, 0], slot, rows=[0, 1, 2])),
        (ValueError, lambda: batch.step([2**32, 0], slot, rows=[0, 1])),
        (TypeError, lambda: batch.step([0.5, 0], slot, rows=[0, 1])),
        (StaleStateError, lambda: batch.step([0] * 4, outputs, state_ids=stale)),
        (ValueError, lambda: batch.reset([-1, 0], slot, rows=[0, 1])),
        (ValueError, lambda: batch.reset([2**64, 0], slot, rows=[0, 1])),
        (ValueError, lambda: batch.bot_moves("nobody")),
        (ValueError, lambda: batch.bot_moves("alpha_beta", depth=2**32 + 1)),
        (ValueError, lambda: batch.bot_moves("alpha_beta", nodes=-1)),
        (ValueError, lambda: batch.bind({"reward": np.zeros(3, np.float32)})),
        (ValueError, lambda: batch.bind({"reward": np.zeros(4)})),
        (ValueError, lambda: batch.bind({"rewards": np.zeros(4, np.float32)})),
        (ValueError, lambda: batch.bind({"reward": np.zeros(8, np.float32)[::2]})),
    ]
    for error, call in refused:
        with pytest.raises(error):
            call()
    for name, array in slot.arrays.items():
        np.testing.assert_array_equal(array, before[1][name])
    assert everything(batch, outputs) == before[0]
    batch.step(outputs.arrays["action_id"][:, 0], outputs, state_ids=ids)


def test_actions_and_ids_may_lie_in_the_outputs(tron):
    """They are read before the outputs are written over them."""
    plain, aliased = (tron.create(40, options=SMALL, num_threads=2) for _ in range(2))
    outputs, shared = plain.allocate(), aliased.allocate()
    actions = np.zeros(40, np.int32)
    shared.arrays["acting_seat"][:] = 0
    step = aliased.stepper(
        shared.arrays["acting_seat"], shared, auto_reset=True, keep_illegal=False
    )
    rng = np.random.default_rng(7)
    for _ in range(50):
        actions[:] = rng.integers(0, 4, 40)
        plain.step(actions, outputs, auto_reset=True, keep_illegal=False)
        shared.arrays["acting_seat"][:] = actions
        step()
        for name, array in outputs.arrays.items():
            np.testing.assert_array_equal(shared.arrays[name], array)


def test_a_closed_batch_is_refused(tron):
    """Closing twice is fine; using it then is a named error, through a bound step as well."""
    batch = tron.create(1)
    outputs = batch.allocate()
    step = batch.stepper(np.zeros(1, np.int32), outputs, auto_reset=True, keep_illegal=True)
    with batch:
        step()
    batch.close()
    with pytest.raises(ClosedError):
        batch.observe(outputs)
    with pytest.raises(ClosedError):
        step()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_is_refused(tron, corridor, threads):
    """The child gets an error, can close the batch and make another; the parent goes on."""
    batches = [library.create(64, num_threads=threads) for library in (tron, corridor)]
    child = os.fork()
    if child == 0:
        refused = 0
        for batch in batches:
            try:
                batch.step(np.zeros(64, int))
            except BrokenError:
                refused += 1
            batch.close()
        tron.create(64, num_threads=threads).step(np.zeros(64, int))
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    for batch in batches:
        batch.step(np.zeros(64, int))


def test_ids_carry_what_the_caller_adds(tron):
    """Numbers of positions and episodes stay below 2**44, above the caller's own bits."""
    batch = tron.create(2, first_state_id=7 << 44, first_episode_id=9 << 44)
    outputs = batch.allocate(names=["state_id", "episode_id"])
    batch.observe(outputs)
    assert (outputs.arrays["state_id"] >> np.uint64(44) == 7).all()
    assert (outputs.arrays["episode_id"] >> np.uint64(44) == 9).all()


@pytest.mark.parametrize("name", ["games", "corridor", "rust"])
def test_the_end_of_an_episode_can_be_observed_again(build, name):
    """After the step that ended it, by any call, until the row is stepped, reset or restored."""
    library = load(build.rust() if name == "rust" else build(name))
    batch = library.create(3, max_episode_steps=2)
    outputs, shown = batch.allocate(), batch.allocate()
    batch.observe(outputs)
    for _ in range(2):
        batch.step(outputs.arrays["action_id"][:, 0], outputs, auto_reset=True)
    assert (outputs.arrays["terminated"] | outputs.arrays["truncated"]).all()
    assert outputs.arrays["final_state"].any()
    finals = "final_board", "final_state"
    batch.observe(shown)
    for final in finals:
        np.testing.assert_array_equal(shown.arrays[final], outputs.arrays[final])
    batch.step(outputs.arrays["action_id"][:1, 0], rows=[0])
    batch.reset(rows=[1])
    batch.restore(batch.capture([2]), rows=[2])
    for final in finals:
        shown.arrays[final][:] = 7
    batch.observe(shown)
    for final in finals:
        assert (shown.arrays[final] == 7).all()


def test_a_near_miss_of_a_bot_gets_a_suggestion(tron):
    """The command line takes `alphabeta`; the call says what it is named."""
    with (
        tron.create(1) as batch,
        pytest.raises(ValueError, match="Did you mean 'alpha_beta'"),
    ):
        batch.bot_moves("alphabeta")
