"""Tron light cycles: the engine against its twin in plain Python, and its bots."""

from __future__ import annotations

import numpy as np
import pytest

from tests.games.tron_twin import TronTwin, episode_seed

KEYS_OF_NO_GAME = {
    "reward", "seat_reward", "acting_seat", "terminated", "truncated", "action_valid", "env_id",
    "state_id", "episode_id", "final_board", "final_state", "scores",
}  # fmt: skip

SETTINGS = [
    ({}, 0, 400),
    ({"vision_radius": 3}, 4, 400),
    ({"width": 7, "height": 5}, 6, 1700),
    ({"width": 9, "height": 12, "vision_radius": 1, "max_plies": 25}, 3, 1300),
    ({"width": 64, "height": 4, "vision_radius": 5}, 2, 400),
    ({"width": 5, "height": 64}, 2, 300),
    ({"width": 4, "height": 4, "vision_radius": 2}, 5, 700),
    ({"width": 6, "height": 5, "opening_plies": 3}, 4, 400),
    ({"width": 12, "height": 9, "opening_plies": 8, "max_plies": 7, "vision_radius": 2}, 3, 400),
]


def assert_same(arrays, row, expected, where):
    """One row of the engine's outputs equals the twin's observation."""
    assert expected.keys() == arrays.keys() - KEYS_OF_NO_GAME
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name][row], value, err_msg=f"{name}, {where}")


@pytest.mark.parametrize(("options", "history", "positions"), SETTINGS)
def test_engine_equals_the_plain_twin_ply_by_ply(tron, options, history, positions):
    """Observations, events, rewards and ends are the twin's, over 6,000 positions in all."""
    rows, seed = 4, 11
    batch = tron.create(rows, options=options, event_history=history, seeds=seed + np.arange(rows))
    outputs = batch.allocate()
    arrays = outputs.arrays
    episodes = [0] * rows
    twins = [TronTwin(seed + row, history=history, **options) for row in range(rows)]
    batch.observe(outputs)
    rng = np.random.default_rng(5)
    for step in range(positions // rows):
        for row, twin in enumerate(twins):
            assert_same(arrays, row, twin.observe(), f"row {row}, step {step}")
        # Mostly legal moves; now and then any, an unknown one included.
        actions = [
            int(rng.integers(-1, 6)) if rng.random() < 0.03 else int(rng.choice(twin.legal()))
            for twin in twins
        ]
        batch.step(actions, outputs, auto_reset=True, keep_illegal=False)
        for row, twin in enumerate(twins):
            mover, legal = twin.seat, actions[row] in twin.legal()
            twin.play(actions[row])
            gain = 0 if twin.winner < 0 else 1 if twin.winner == mover else -1
            assert arrays["reward"][row] == gain
            assert arrays["seat_reward"][row, mover] == gain
            assert arrays["seat_reward"][row, 1 - mover] == -gain
            assert arrays["acting_seat"][row] == mover
            assert arrays["action_valid"][row] == legal
            assert arrays["terminated"][row] == twin.over
            if twin.over:
                final = twin.observe()
                np.testing.assert_array_equal(arrays["final_board"][row], final["board"])
                np.testing.assert_array_equal(arrays["final_state"][row], final["state"])
                episodes[row] += 1
                again = episode_seed(seed, row, episodes[row])
                twins[row] = TronTwin(again, history=history, **options)


def test_an_unknown_move_crashes_its_player(tron):
    """A move that there is not is an event of the game: its player loses."""
    batch = tron.create(3)
    outputs = batch.allocate()
    batch.step([4, -1, 2**31 - 1], outputs, keep_illegal=False)
    assert outputs.arrays["terminated"].tolist() == [1, 1, 1]
    assert outputs.arrays["scores"].tolist() == [[-1, 1]] * 3


@pytest.mark.parametrize("opening_plies", [0, 1, 2, 5, 16, 1024])
def test_openings_equal_those_of_the_plain_twin(tron, opening_plies):
    """Each of 64 seeds begins where the twin does, on one thread and on two."""
    options = {"width": 8, "height": 6, "opening_plies": opening_plies}
    one, two = (tron.create(64, options=options, num_threads=threads) for threads in (1, 2))
    assert one.capture().tobytes() == two.capture().tobytes()
    outputs = one.allocate()
    one.observe(outputs)
    for row in range(64):
        assert_same(outputs.arrays, row, TronTwin(row, **options).observe(), f"seed {row}")


@pytest.mark.parametrize("opening_plies", [4, 9, 40])
def test_an_opening_leaves_its_game_to_be_played(tron, opening_plies):
    """No seed begins a game that is over; a shorter opening ends where only a crash is left."""
    batch = tron.create(400, options={"width": 6, "height": 5, "opening_plies": opening_plies})
    arrays = (outputs := batch.allocate()).arrays
    batch.observe(outputs)
    assert not arrays["over"].any()
    assert (arrays["legal_action_count"] > 0).all()
    assert not arrays["seat_reward"].any()
    assert (arrays["acting_seat"] == -1).all()
    short = arrays["plies"] < opening_plies
    boxed_in = arrays["action_features"][:, 0, 3] == 1
    assert boxed_in[short].all()
    assert short.any() == (opening_plies > 4)


def test_an_opening_counts_as_plies_and_as_no_steps(tron):
    """`plies` has it; `max_plies`, `max_episode_steps`, events and ids count what players do."""
    options = {"opening_plies": 6, "max_plies": 3}
    for limit, ends in ((None, "terminated"), (2, "truncated")):
        batch = tron.create(
            8, options=options, seeds=range(8), event_history=9, max_episode_steps=limit
        )
        plain = tron.create(8, seeds=range(8))
        arrays = (outputs := batch.allocate()).arrays
        batch.observe(outputs)
        ids = (usual := plain.allocate()).arrays
        plain.observe(usual)
        assert (arrays["plies"] == 6).all()
        assert not arrays["event_mask"].any()
        np.testing.assert_array_equal(arrays["state_id"], ids["state_id"])
        for step in range(1, (limit or 3) + 1):
            assert not arrays[ends].any()
            batch.step(arrays["action_id"][:, 0], outputs)
            assert (arrays["plies"] == 6 + step).all()
        assert arrays[ends].all()
        assert not arrays["scores"].any()
        # The seat to move was told of both seats' actions.
        assert arrays["event_action_sequence"][0, -step:].tolist() == list(range(1, step + 1))


def positions_after(width, height, plies):
    """Return how many positions a game can be in after so many legal plies."""
    positions = set()
    for x in range(1, width // 2):
        for y in range(1, height - 1):
            heads = ((x, y), (width - 1 - x, height - 1 - y))
            trails = tuple(frozenset([head]) for head in heads)
            positions |= {(heads, (d, (d + 2) % 4), trails) for d in range(4)}
    for ply in range(plies):
        seat, following = ply % 2, set()
        for heads, directions, trails in positions:
            x, y = heads[seat]
            for move, (dx, dy) in enumerate(((0, -1), (1, 0), (0, 1), (-1, 0))):
                cell = (x + dx, y + dy)
                inside = 0 <= cell[0] < width and 0 <= cell[1] < height
                if inside and cell not in trails[0] and cell not in trails[1]:
                    pairs = [list(heads), list(directions), list(trails)]
                    for pair, entry in zip(pairs, (cell, move, trails[seat] | {cell}), strict=True):
                        pair[seat] = entry
                    following.add(tuple(map(tuple, pairs)))
        positions = following
    return len(positions)


@pytest.mark.parametrize(
    ("width", "height", "plies", "starts"),
    [(30, 20, 0, 1008), (30, 20, 2, 4028), (16, 12, 0, 280), (16, 12, 2, 1116), (16, 12, 4, 9404)],
)
def test_the_documented_numbers_of_starts_are_right(width, height, plies, starts):
    """Those of the reference are counted, position by position."""
    assert positions_after(width, height, plies) == starts


@pytest.mark.parametrize(("plies", "starts"), [(0, 8), (2, 32), (4, 170)])
def test_seeds_begin_in_every_start_there_is(tron, plies, starts):
    """Twenty thousand seeds find all of a small board, and no others."""
    options = {"width": 5, "height": 4, "opening_plies": plies}
    batch = tron.create(20_000, options=options)
    outputs = batch.allocate(names=("state", "board"))
    batch.observe(outputs)
    rows = [outputs.arrays[name].reshape(20_000, -1) for name in ("state", "board")]
    assert len(np.unique(np.hstack(rows), axis=0)) == starts == positions_after(5, 4, plies)


@pytest.mark.parametrize("value", [-1, 1025, 2.5, True, None])
def test_an_impossible_opening_is_refused(tron, value):
    """The error names the option, its range and the value."""
    with pytest.raises(ValueError, match=r"opening_plies of tron .* from 0 to 1024, got"):
        tron.create(2, options={"opening_plies": value})


def test_an_opening_near_its_name_is_suggested(tron):
    """A name that is almost right is answered with the right one."""
    with pytest.raises(ValueError, match="Did you mean 'opening_plies'"):
        tron.create(2, options={"opening_ply": 2})


def test_hidden_cells_change_nothing_that_a_seat_sees(tron):
    """Under fog two games that differ only out of sight give the same observation."""
    radius = 2
    batch = tron.create(2, options={"vision_radius": radius}, event_history=4, seeds=[3, 3])
    outputs = batch.allocate()
    batch.observe(outputs)
    compared = 0
    for _ in range(12):
        # Seat 0 moves alike in both; seat 1 by itself, far away.
        legal = [
            outputs.arrays["action_id"][r][: outputs.arrays["legal_action_count"][r]]
            for r in (0, 1)
        ]
        mine = outputs.arrays["seat"][0] == 0
        batch.step([legal[0][0], legal[1][0] if mine else legal[1][-1]], outputs)
        head = [outputs.arrays["state"][r][6] for r in (0, 1)]
        if outputs.arrays["seat"][0] == 0 and head == [-1, -1]:
            compared += 1
            for name in batch.spec():
                if name not in KEYS_OF_NO_GAME:
                    np.testing.assert_array_equal(*outputs.arrays[name], err_msg=name)
    assert compared >= 3


def wins(library, first, second, games, options):
    """Return the games that the bot `first` won and lost, each start played from both seats."""
    seeds = np.repeat(np.arange(games // 2), 2)
    batch = library.create(games, options=options, seeds=seeds)
    outputs = batch.allocate(names=("seat", "over", "scores"))
    batch.observe(outputs)
    seat_of_first = np.arange(games) % 2
    while not outputs.arrays["over"].all():
        own = outputs.arrays["seat"] == seat_of_first
        moves = np.where(own, batch.bot_moves(first, own), batch.bot_moves(second, ~own))
        batch.step(moves, outputs)
    scores = outputs.arrays["scores"][np.arange(games), seat_of_first]
    return int((scores > 0).sum()), int((scores < 0).sum())


def wilson_lower(won, played, z=1.96):
    """Return the lower bound of Wilson's 95 % interval of a rate (Wilson, 1927)."""
    rate = won / played
    centre = rate + z * z / (2 * played)
    spread = z * (rate * (1 - rate) / played + z * z / (4 * played * played)) ** 0.5
    return (centre - spread) / (1 + z * z / played)


@pytest.mark.parametrize(
    ("stronger", "weaker", "games", "options"),
    [
        ("flood_fill", "random", 300, {}),
        ("voronoi", "flood_fill", 200, {}),
        ("alpha_beta", "voronoi", 120, {"width": 16, "height": 12}),
    ],
)
def test_bots_are_ordered_by_strength(tron, stronger, weaker, games, options):
    """Each beats the one before it, surely more than half the time over both seats."""
    won, lost = wins(tron, stronger, weaker, games, options)
    assert won + lost == games
    assert wilson_lower(won, games) > 0.5


def test_bots_are_deterministic_and_move_where_they_are_wanted(tron):
    """The same position gives the same move on any threads; the others get −1; games don't move."""
    options = {"width": 12, "height": 10}
    one, two = (tron.create(40, options=options, num_threads=threads) for threads in (1, 2))
    before = one.capture()
    wanted = np.arange(40) % 3 > 0
    for bot in one.description.bots:
        moves = one.bot_moves(bot, wanted)
        np.testing.assert_array_equal(moves, two.bot_moves(bot, wanted))
        np.testing.assert_array_equal(moves >= 0, wanted)
    np.testing.assert_array_equal(one.capture(), before)


def plain_value(twin, free, mover, other, depth):
    """Return the value for the cycle to move, by minimax; who can't move loses, best late."""
    if depth == 0:
        ours, theirs = twin.divide(free, mover, other)
        return len(ours) - len(theirs)
    cells = [cell for cell in twin.neighbours(mover) if cell in free]
    replies = [-plain_value(twin, free - {cell}, other, cell, depth - 1) for cell in cells]
    return max(replies, default=-(10**6) - depth)


def move_values(twin, depth):
    """Return the value of each move into a free cell, as the seat to move knows the game."""
    _, free, other = twin.perceived()
    around = enumerate(twin.neighbours(twin.heads[twin.seat]))
    return {
        move: -plain_value(twin, free - {cell}, other, cell, depth - 1)
        for move, cell in around
        if cell in free
    }


@pytest.mark.parametrize(
    ("depth", "nodes", "options"),
    [
        (1, 4, {"width": 8, "height": 7}),
        (2, 10_000, {"width": 8, "height": 7}),
        (3, 10_000, {"width": 6, "height": 5}),
        (4, 10_000, {"width": 5, "height": 4}),
        (4, 10_000, {"width": 6, "height": 6, "vision_radius": 2}),
    ],
)
def test_alpha_beta_finds_what_a_plain_search_finds(tron, depth, nodes, options):
    """On one and two threads its move has the greatest value that minimax gives any."""
    batches = [tron.create(6, options=options, num_threads=threads) for threads in (1, 2)]
    twins = [TronTwin(seed, **options) for seed in range(6)]
    rng = np.random.default_rng(2)
    compared = 0
    for _ in range(10):
        chosen, again = (b.bot_moves("alpha_beta", depth=depth, nodes=nodes) for b in batches)
        np.testing.assert_array_equal(chosen, again)
        for row, twin in enumerate(twins):
            if twin.over:
                assert chosen[row] == -1
            elif len(twin.legal()) > 1 and twin.perceived()[2]:
                values = move_values(twin, depth)
                assert values[int(chosen[row])] == max(values.values())
                compared += 1
        actions = [0 if twin.over else int(rng.choice(twin.legal())) for twin in twins]
        for batch in batches:
            batch.step(actions, keep_illegal=False)
        for twin, action in zip(twins, actions, strict=True):
            if not twin.over:
                twin.play(action)
    assert compared >= 10


def test_a_search_looks_at_no_more_positions_than_it_may(tron):
    """What it began and could not finish counts for nothing: the last whole depth decides."""
    batch = tron.create(40, options={"width": 8, "height": 7})
    first = batch.bot_moves("alpha_beta", nodes=4)
    np.testing.assert_array_equal(first, batch.bot_moves("alpha_beta", depth=1, nodes=1000))
    drawn = batch.bot_moves("alpha_beta", nodes=1)
    np.testing.assert_array_equal(drawn, batch.bot_moves("random"))
    assert (drawn != first).any()
