"""Resets: seeds, options, masks, and of some environments only."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from superdex.testing import row_info
from superdex.vector import BatchedResetResult
from tests.vector.envs import Fixed, Walk, walk_actions, walks

MODES = list(AutoresetMode)


def first_observations(seeds):
    return np.stack([Walk().reset(seed=seed)[0] for seed in seeds])


def test_reset_returns_observations_and_infos(make):
    """By name and as a tuple of two."""
    envs = make(walks(3))
    result = envs.reset(seed=4)
    observation, info = result
    assert isinstance(result, BatchedResetResult)
    assert result.observation is observation
    assert observation.shape == (3, 3)
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(observation, first_observations([4, 5, 6]))
    assert info.keys() == {"length", "_length"}


@pytest.mark.parametrize("kwargs", [{"num_workers": w} for w in (1, 2, 3, 5)], ids=repr)
def test_seeds_do_not_depend_on_the_split(make, kwargs):
    """The global index alone decides."""
    envs = make(walks(5), **kwargs)
    np.testing.assert_array_equal(envs.reset(seed=7).observation, first_observations(range(7, 12)))
    seeds = [3, None, 1, 9, 2]
    envs.reset(seed=seeds)
    assert [s[-1] for s in envs.get_attr("seeds")] == seeds


@pytest.mark.parametrize(
    "seed", [np.int64(3), np.array([3, 4]), [3, np.int32(4)], (3, 4)], ids=repr
)
def test_numpys_integers_are_seeds(make_pair, seed):
    """Scalars, arrays and lists of them."""
    make_pair.reset(seed=seed)
    assert [s[-1] for s in make_pair.get_attr("seeds")] == [3, 4]


@pytest.fixture
def make_pair(make):
    return make(walks(2), reset_masks=False)


@pytest.mark.parametrize("seed", [-1, True, 1.5, "1", [1], [1, -1], np.array([1.0, 2.0])], ids=repr)
def test_odd_seeds_are_refused_and_nothing_is_reset(make_pair, seed):
    """The vector is as before."""
    make_pair.reset(seed=1)
    with pytest.raises(ValueError, match="seed"):
        make_pair.reset(seed=seed)
    assert make_pair.get_attr("episode") == (0, 0)
    make_pair.step(np.zeros((2, 2), np.float32))


def test_a_list_of_seeds_is_not_changed(make_pair):
    """The caller's object stays."""
    seeds = [1, None]
    make_pair.reset(seed=seeds)
    assert seeds == [1, None]


def test_one_options_dict_goes_to_all(make_pair):
    """As in Gymnasium."""
    options = {"a": 1}
    make_pair.reset(options=options)
    assert make_pair.get_attr("options") == ([{"a": 1}], [{"a": 1}])
    assert options == {"a": 1}


def test_each_environment_may_have_its_own_options(make_pair):
    """A list of one dict or None for each."""
    make_pair.reset(options=[{"a": 1}, None])
    assert make_pair.get_attr("options") == ([{"a": 1}], [None])


@pytest.mark.parametrize("options", [[{}], [{}, 3], "ab", 3], ids=repr)
def test_odd_options_are_refused_and_nothing_is_reset(make_pair, options):
    """The vector is as before."""
    with pytest.raises(ValueError, match="options"):
        make_pair.reset(options=options)
    assert make_pair.get_attr("episode") == (-1, -1)
    make_pair.reset()


def test_a_reset_mask_is_refused_with_the_way_out(make_pair):
    """The documented message, pointing to reset_envs."""
    options = {"reset_mask": np.array([True, False])}
    with pytest.raises(ValueError, match=r"Reset mask is not supported .* reset_envs") as caught:
        make_pair.reset(options=options)
    assert str(caught.value).startswith("Reset mask is not supported for this vectorization.")
    assert options.keys() == {"reset_mask"}
    make_pair.reset()


# ── reset_envs ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def counters(make):
    """Four environments, stepped twice."""
    envs = make([partial(Fixed, [{"first": tag}], length=50) for tag in range(4)], num_workers=2)
    envs.reset()
    for _ in range(2):
        envs.step(np.zeros((4, 1), np.float32))
    return envs


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([1], [2, 0, 2, 2]),
        ([3, 0], [0, 2, 2, 0]),
        ((), [2, 2, 2, 2]),
        (np.array([False, True, True, False]), [2, 0, 0, 2]),
        (np.zeros(4, bool), [2, 2, 2, 2]),
        (range(4), [0, 0, 0, 0]),
        (np.array([2], np.uint8), [2, 2, 0, 2]),
    ],
    ids=repr,
)
def test_some_environments_are_reset(counters, chosen, expected):
    """All rows come back; those not reset show their last observation."""
    result = counters.reset_envs(chosen)
    assert result.observation[:, 0].tolist() == expected
    assert counters.get_attr("steps") == tuple(expected)
    again = counters.step(np.zeros((4, 1), np.float32))
    assert again.observation[:, 0].tolist() == [n + 1 for n in expected]


def test_rows_not_reset_stay_shown_through_several_resets(counters):
    """Their last observation is not lost in the alternation of buffers."""
    for row in (0, 1, 2):
        result = counters.reset_envs([row])
    assert result.observation[:, 0].tolist() == [0, 0, 0, 2]


def test_infos_are_those_of_the_rows_reset(make):
    """In whatever order they were named, in learned columns too."""
    envs = make(walks(4), num_workers=2)
    envs.reset(seed=0)
    for rows in ([1, 0], [3, 2, 1, 0], [2], [], [1, 0], [3, 0, 2]):
        info = envs.reset_envs(rows).info
        lengths = envs.get_attr("length")
        for row in range(4):
            assert row_info(info, row) == ({"length": lengths[row]} if row in rows else {})
        envs.step(np.zeros((4, 2), np.float32))


def test_masks_tell_which_rows_were_reset(counters):
    """Exactly those."""
    fresh = counters.call("info")  # the first info of each was used up by the first reset
    assert fresh == ({}, {}, {}, {})
    counters.set_attr("calls", [0, 0, 0, 0])
    info = counters.reset_envs([2, 0]).info
    assert info["first"].tolist() == [0, 0, 2, 0]
    assert info["_first"].tolist() == [True, False, True, False]


def test_an_int_seed_is_counted_on_by_global_index(make):
    """s + i for environment i."""
    envs = make(walks(4), num_workers=2)
    envs.reset(seed=0)
    envs.reset_envs([3, 1], seed=10)
    assert [s[1:] for s in envs.get_attr("seeds")] == [[], [11], [], [13]]


def test_sequences_go_by_the_order_given(make):
    """One seed and one options dict for each environment named."""
    envs = make(walks(4), num_workers=2)
    envs.reset(seed=0)
    envs.reset_envs([3, 1], seed=[30, 10], options=[{"a": 3}, {"a": 1}])
    assert [s[1:] for s in envs.get_attr("seeds")] == [[], [10], [], [30]]
    assert [o[1:] for o in envs.get_attr("options")] == [[], [{"a": 1}], [], [{"a": 3}]]


@pytest.mark.parametrize(
    ("chosen", "kwargs"),
    [
        ([4], {}),
        ([-1], {}),
        ([1, 1], {}),
        ([True, False], {}),
        ([0.5], {}),
        ([0, 1], {"seed": [1]}),
        ([0, 1], {"seed": [1, 2, 3, 4]}),
        ([0, 1], {"options": [{}]}),
        ([0], {"seed": -1}),
    ],
    ids=repr,
)
def test_odd_choices_are_refused_and_nothing_is_reset(counters, chosen, kwargs):
    """The vector is as before."""
    with pytest.raises(ValueError, match=r"Index|indices|mask|seed|options"):
        counters.reset_envs(chosen, **kwargs)
    assert counters.get_attr("steps") == (2, 2, 2, 2)
    counters.step(np.zeros((4, 1), np.float32))


def test_it_may_be_the_first_reset(make):
    """Rows that were never reset show zeros, and stepping is possible afterwards."""
    envs = make(walks(2))
    result = envs.reset_envs([1], seed=3)
    assert not result.observation[0].any()
    np.testing.assert_array_equal(result.observation[1], first_observations([4])[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("in_process", [True, False])
def test_it_works_in_every_mode(make, mode, in_process):
    """Other rows keep their state and their pending autoresets."""
    env_fns = [partial(Fixed, length=n) for n in (2, 2, 3, 9)]
    envs = make(env_fns, 2, autoreset_mode=mode, in_process=in_process)
    actions = np.zeros((4, 1), np.float32)
    envs.reset()
    envs.step(actions)
    envs.step(actions)
    result = envs.reset_envs([1, 3])
    shown = {"NEXT_STEP": [2, 0, 2, 0], "SAME_STEP": [0, 0, 2, 0], "DISABLED": [2, 0, 2, 0]}
    assert result.observation[:, 0].tolist() == shown[mode.name]
    if mode is AutoresetMode.DISABLED:
        envs.reset_envs([0])
    after = {"NEXT_STEP": [0, 1, 3, 1], "SAME_STEP": [1, 1, 0, 1], "DISABLED": [1, 1, 3, 1]}
    assert envs.step(actions).observation[:, 0].tolist() == after[mode.name]
    mask = {"NEXT_STEP": [True, False, False, False], "SAME_STEP": [False, False, True, False]}
    assert envs.autoreset_mask.tolist() == mask.get(mode.name, [False] * 4)


# ── reset masks ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def masked(make):
    envs = make([partial(Fixed, length=50)] * 4, 2, reset_masks=True)
    envs.reset()
    envs.step(np.zeros((4, 1), np.float32))
    return envs


def test_reset_masks_are_honoured_where_asked_for(masked):
    """Only those rows are reset, and the caller's dict is left as it is."""
    mask = np.array([False, True, False, True])
    options = {"reset_mask": mask}
    assert masked.reset(options=options).observation[:, 0].tolist() == [1, 0, 1, 0]
    assert options["reset_mask"] is mask


def test_other_options_go_to_the_environments_without_the_mask(make):
    """As in Gymnasium; seeds are one per environment of the batch."""
    envs = make(walks(3), reset_masks=True)
    envs.reset(seed=0)
    mask = np.array([False, True, True])
    envs.reset(seed=[7, 8, 9], options={"reset_mask": mask, "a": 1})
    assert [s[1:] for s in envs.get_attr("seeds")] == [[], [8], [9]]
    assert [o[1:] for o in envs.get_attr("options")] == [[], [{"a": 1}], [{"a": 1}]]


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([True] * 4, TypeError, "must be a NumPy array"),
        (np.array([True] * 3), ValueError, r"must have shape \(4,\), got \(3,\)"),
        (np.ones(4, int), TypeError, "must have dtype bool"),
        (np.zeros(4, bool), ValueError, "at least one True"),
    ],
    ids=["list", "short", "ints", "empty"],
)
def test_odd_masks_are_refused_as_by_gymnasium(masked, mask, error, message):
    """Same classes of errors; the vector is as before."""
    with pytest.raises(error, match=message):
        masked.reset(options={"reset_mask": mask})
    assert masked.get_attr("steps") == (1, 1, 1, 1)
    masked.step(np.zeros((4, 1), np.float32))


def test_a_reset_with_a_mask_clears_those_pending_autoresets_only(make):
    """As reset_envs."""
    envs = make([partial(Fixed, length=1)] * 2, reset_masks=True)
    actions = np.zeros((2, 1), np.float32)
    envs.reset()
    envs.step(actions)
    envs.reset(options={"reset_mask": np.array([True, False])})
    envs.step(actions)
    assert envs.autoreset_mask.tolist() == [False, True]


# ── episodes ────────────────────────────────────────────────────────────────────────────────────


def test_episode_seeds_keep_runs_paired(make):
    """An episode's start does not depend on what happened in the one before."""
    starts: list[dict[int, np.ndarray]] = []
    for seed in (1, 2):
        envs = make(walks(3), num_workers=2, episode_seeds=True)
        found = {0: envs.reset(seed=40).observation}
        for batch in walk_actions(30, 3, seed):
            observation = envs.step(batch).observation
            for row in np.flatnonzero(envs.autoreset_mask):
                found.setdefault(int(observation[row, 2]), np.zeros((3, 3)))[row] = observation[row]
        starts.append(found)
    for episode in (0, 1, 2, 3):
        np.testing.assert_array_equal(starts[0][episode], starts[1][episode])


def test_autoreset_options_get_the_global_index(make):
    """For every worker."""
    envs = make(walks(3), num_workers=3, autoreset_options=lambda i, e: {"at": (i, e)})
    envs.reset()
    for batch in walk_actions(12, 3):
        envs.step(batch)
    for index, options in enumerate(envs.get_attr("options")):
        assert options[:2] == [None, {"at": (index, 1)}]


def test_autoreset_options_travel_to_workers(make_workers):
    """A closure too."""
    word = "again"
    envs = make_workers(walks(2), 2, autoreset_options=lambda i, e: {word: e})
    envs.reset()
    for batch in walk_actions(8, 2):
        envs.step(batch)
    assert envs.get_attr("options")[0][1] == {"again": 1}


class Popping(Walk):
    def reset(self, *, seed=None, options=None):
        level = options.pop("level", None) if options else None
        items = options["items"].pop() if options and "items" in options else None
        observation, _ = super().reset(seed=seed)
        return observation, {"level": level, "items": items}


def test_last_options_are_those_that_were_given(make):
    """Not what the environment made of them."""
    envs = make([Popping], 1, autoreset_options="last")
    envs.reset(options={"level": 7})
    while not envs.autoreset_mask[0]:
        info = envs.step(np.zeros((1, 2), np.float32)).info
    assert info["level"][0] == 7


@pytest.mark.parametrize("num_envs_per_worker", [1, 2])
def test_each_environment_gets_options_of_its_own(make, num_envs_per_worker):
    """Down to what they hold, whatever the split."""
    envs = make([Popping] * 2, num_envs_per_worker)
    _, info = envs.reset(options={"items": [1, 2, 3]})
    assert info["items"].tolist() == [3, 3]
