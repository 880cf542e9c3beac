"""Steps: arrays, flags, masks, infos, and what is refused."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import Counter
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from superdex.errors import ResetNeeded, WorkerRaised
from superdex.testing import row_info
from superdex.vector import BatchedStepResult, BoxSpaces, HybridVectorEnv
from tests.vector.envs import Fixed, OddInfos, TwoArguments, Walk, walk_actions, walks

NO_ACTIONS = np.zeros((4, 1), np.float32)


def fixed(make, infos=(), lengths=(2, 3, 9, 9), **kwargs):
    """Return a vector of four, reset, over two workers unless told otherwise."""
    kwargs = {"num_workers": 2, **kwargs}
    envs = make([partial(Fixed, infos, length=n, reward=1.5) for n in lengths], **kwargs)
    envs.reset()
    return envs


def test_step_returns_five_by_name(make):
    """Observations of the space's dtype, float64 rewards, bool flags, a dict."""
    result = fixed(make).step(NO_ACTIONS)
    observation, reward, terminated, truncated, info = result
    assert isinstance(result, BatchedStepResult)
    assert result.reward is reward
    assert (observation.shape, observation.dtype) == ((4, 1), np.float32)
    assert (reward.shape, reward.dtype) == ((4,), np.float64)
    assert (terminated.shape, terminated.dtype) == ((4,), np.bool_)
    assert (truncated.shape, truncated.dtype) == ((4,), np.bool_)
    assert type(info) is dict


@pytest.mark.parametrize("in_process", [True, False])
def test_next_step_shows_the_end_then_resets(make, in_process):
    """autoreset_mask marks the rows whose action was ignored."""
    envs = fixed(make, in_process=in_process)
    seen = []
    for _ in range(4):
        result = envs.step(NO_ACTIONS)
        seen.append((result.observation[:2, 0].tolist(), result.reward[:2].tolist()))
        seen[-1] += (result.terminated[:2].tolist(), envs.autoreset_mask[:2].tolist())
    no, yes = False, True
    assert seen == [
        ([1, 1], [1.5, 1.5], [no, no], [no, no]),
        ([2, 2], [1.5, 1.5], [yes, no], [no, no]),
        ([0, 3], [0.0, 1.5], [no, yes], [yes, no]),
        ([1, 0], [1.5, 0.0], [no, no], [no, yes]),
    ]


@pytest.mark.parametrize("in_process", [True, False])
def test_same_step_resets_at_once_and_keeps_the_last_observation(make, in_process):
    """final_obs is dense, with a mask; final_info is what came with it."""
    infos = [{}, {"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    envs = fixed(make, infos, autoreset_mode=AutoresetMode.SAME_STEP, in_process=in_process)
    assert not {"final_obs", "final_info"} & envs.step(NO_ACTIONS).info.keys()
    result = envs.step(NO_ACTIONS)
    assert result.observation[:, 0].tolist() == [0, 2, 2, 2]
    assert result.terminated.tolist() == [True, False, False, False]
    assert envs.autoreset_mask.tolist() == [True, False, False, False]
    info = result.info
    assert info["final_obs"].dtype == np.float32
    assert info["final_obs"][:, 0].tolist() == [2, 0, 0, 0]
    assert info["_final_obs"].tolist() == [True, False, False, False]
    assert info["final_info"]["n"].tolist() == [2, 0, 0, 0]
    assert info["_final_info"].tolist() == [True, False, False, False]
    assert info["n"].tolist() == [3, 2, 2, 2]


@pytest.mark.parametrize("in_process", [True, False])
def test_disabled_refuses_to_step_a_finished_environment(make, in_process):
    """It is named, nothing moves, and a reset of that one is enough."""
    envs = fixed(make, autoreset_mode=AutoresetMode.DISABLED, in_process=in_process)
    envs.step(NO_ACTIONS)
    assert envs.step(NO_ACTIONS).terminated[0]
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="Environment 0 has finished its episode"):
            envs.step(NO_ACTIONS)
    assert envs.get_attr("steps") == (2, 2, 2, 2)
    envs.reset_envs([0])
    assert envs.step(NO_ACTIONS).observation[:, 0].tolist() == [1, 3, 3, 3]
    with pytest.raises(ResetNeeded, match="Environment 1"):
        envs.step(NO_ACTIONS)
    envs.reset()
    assert envs.step(NO_ACTIONS).observation[:, 0].tolist() == [1, 1, 1, 1]
    assert not envs.autoreset_mask.any()


def test_stepping_before_the_first_reset_is_refused(make):
    """ResetNeeded, and a reset helps."""
    envs = make(walks(2))
    with pytest.raises(ResetNeeded, match="before the first reset"):
        envs.step(np.zeros((2, 2), np.float32))
    envs.reset()
    envs.step(np.zeros((2, 2), np.float32))


def test_the_autoreset_mask_is_all_false_after_a_reset(make):
    """Of all or of some, in either mode."""
    for mode in AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP:
        envs = fixed(make, lengths=(1, 1, 1, 1), autoreset_mode=mode)
        for reset in (envs.reset, partial(envs.reset_envs, [0])):
            for _ in range(4):
                envs.step(NO_ACTIONS)
                if envs.autoreset_mask.any():
                    break
            assert envs.autoreset_mask.any()
            reset()
            assert envs.autoreset_mask.tolist() == [False] * 4


def test_the_autoreset_mask_is_the_callers_own(make):
    """Writing to it changes nothing."""
    envs = fixed(make)
    envs.autoreset_mask[:] = True
    assert not envs.autoreset_mask.any()


# ── actions ─────────────────────────────────────────────────────────────────────────────────────


class Echo(Fixed):
    """Observes its last action."""

    def __init__(self, dtype=np.float32):
        super().__init__(dtype=dtype)
        self.observation_space = self.action_space = Box(-9, 9, (1,), dtype)
        self.action = np.zeros(1, dtype)

    def step(self, action):
        self.action = action
        return super().step(action)

    def observe(self):
        return self.action.copy()


@pytest.mark.parametrize("in_process", [True, False])
def test_each_environment_gets_its_row(make, in_process):
    """In order, whatever the split."""
    envs = make([Echo] * 5, num_workers=2, in_process=in_process)
    envs.reset()
    actions = np.arange(5, dtype=np.float32)[:, None]
    assert envs.step(actions).observation[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "actions",
    [
        np.array([[1.5], [2]]),
        np.array([[1], [2]]),
        np.array([[True], [False]]),
        np.array([[1], [2]], np.float16),
        np.array([[1], [2]], np.float32, order="F"),
        np.array([[1, 2]], np.float32).T,
        np.array([[1], [9], [2]], np.float32)[::2],
    ],
    ids=lambda a: f"{a.dtype} {a.strides}",
)
def test_actions_are_cast_by_numpys_same_kind_rule(make, actions):
    """Any memory layout will do."""
    envs = make([Echo] * 2, 2)
    envs.reset()
    np.testing.assert_array_equal(envs.step(actions).observation, actions.astype(np.float32))


def test_actions_are_copied(make):
    """The caller may write to them at once."""
    envs = make([Echo] * 2, 1)
    envs.reset()
    actions = np.ones((2, 1), np.float32)
    envs.step_async(actions)
    actions[:] = 5
    assert envs.step_wait().observation[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((3, 1), np.float32), r"shape of action_space, \(4, 1\), got \(3, 1\)"),
        (np.zeros((5, 1), np.float32), r"got \(5, 1\)"),
        (np.zeros(4, np.float32), r"got \(4,\)"),
        (np.zeros((2, 2, 1), np.float32), r"got \(2, 2, 1\)"),
        ([[0.0]] * 4, r"NumPy array of shape \(4, 1\), got <class 'list'>"),
        (None, "NumPy array"),
        (np.zeros((4, 1), complex), "complex128 can't be cast to .* float32 by NumPy's same_kind"),
        (np.zeros((4, 1), object), "dtype object"),
        (np.full((4, 1), "0"), "dtype <U1"),
    ],
    ids=["few", "many", "flat", "nested", "list", "none", "complex", "object", "string"],
)
@pytest.mark.parametrize("in_process", [True, False])
def test_odd_actions_are_refused_and_nothing_is_stepped(request, in_process, actions, message):
    """Before anything is sent; the vector is as before."""
    envs = request.getfixturevalue("local" if in_process else "remote")
    before = envs.get_attr("steps")
    with pytest.raises(ValueError, match=message):
        envs.step(actions)
    assert envs.get_attr("steps") == before
    envs.step(NO_ACTIONS)


@pytest.fixture(scope="module")
def local():
    with HybridVectorEnv([Fixed] * 4, 2, in_process=True) as envs:
        envs.reset()
        yield envs


@pytest.fixture(scope="module")
def remote():
    with HybridVectorEnv([Fixed] * 4, 2) as envs:
        envs.reset()
        yield envs


def test_floats_for_integers_are_refused(make):
    """An action of 0.7 has no integer."""
    envs = make([partial(Echo, np.int64)] * 2, 2)
    envs.reset()
    with pytest.raises(ValueError, match="float32 can't be cast to the action space's int64"):
        envs.step(np.zeros((2, 1), np.float32))
    assert envs.step(np.array([[1], [2]], np.int8)).observation[:, 0].tolist() == [1, 2]


# ── who owns the arrays ─────────────────────────────────────────────────────────────────────────


def arrays_of(result) -> list[np.ndarray]:
    found = list(result[:-1])
    values = list(result[-1].values())
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        else:
            found.append(value)
    return found


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_with_copies_stored_results_do_not_change(make, mode):
    """Every array is the caller's own."""
    envs = make([partial(Walk, tag) for tag in range(4)], num_workers=2, autoreset_mode=mode)
    stored, snapshots = [envs.reset(seed=2)], []
    snapshots.append([array.copy() for array in arrays_of(stored[0])])
    for batch in walk_actions(8, 4):
        if mode is AutoresetMode.DISABLED and len(stored) % 2 == 0:
            stored.append(envs.reset())
        else:
            stored.append(envs.step(batch))
        snapshots.append([array.copy() for array in arrays_of(stored[-1])])
    for result, snapshot in zip(stored, snapshots, strict=True):
        for array, copy in zip(arrays_of(result), snapshot, strict=True):
            np.testing.assert_array_equal(array, copy)
            assert array.flags.writeable


def test_without_copies_arrays_are_read_only_views(make):
    """Observations, rewards, flags and learned infos."""
    envs = fixed(make, [{"n": n} for n in range(9)], copy=False)
    assert not envs.reset().observation.flags.writeable
    for _ in range(3):
        result = envs.step(NO_ACTIONS)
    for array in (*result[:4], result.info["n"], result.info["_n"]):
        assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        result.reward[0] = 1


@pytest.mark.parametrize("in_process", [True, False])
def test_a_view_is_valid_until_the_next_but_one_call(make, in_process):
    """Two buffers alternate: the last result stays whole while the next is written."""
    envs = fixed(
        make, [{"n": n} for n in range(9)], (9, 9, 9, 9), copy=False, in_process=in_process
    )
    for _ in range(3):
        envs.step(NO_ACTIONS)
    first = envs.step(NO_ACTIONS)
    second = envs.step(NO_ACTIONS)
    assert first.observation[:, 0].tolist() == [4] * 4
    assert first.info["n"].tolist() == [4] * 4
    assert second.observation[:, 0].tolist() == [5] * 4
    assert second.info["n"].tolist() == [5] * 4
    third = envs.step(NO_ACTIONS)
    assert np.shares_memory(third.observation, first.observation)


def test_views_outlive_the_vector(make):
    """Reading one after close is no crash."""
    envs = fixed(make, copy=False, in_process=False)
    result = envs.step(NO_ACTIONS)
    envs.close()
    assert result.observation[:, 0].tolist() == [1] * 4


# ── infos ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("in_process", [True, False])
def test_infos_are_arrays_with_masks(make, in_process):
    """By key, over the whole batch; promoted, whole, nested."""
    env_fns = [
        partial(Fixed, [{}] + [{"n": 1, "word": "a", "d": {"x": 1}}] * 4, 99),
        partial(Fixed, [{}] + [{"n": 0.75, "word": "longer"}] * 4, 99),
        partial(Fixed, (), 99),
    ]
    envs = make(env_fns, num_workers=2, in_process=in_process)
    envs.reset()
    for _ in range(4):
        info = envs.step(NO_ACTIONS[:3]).info
        assert info.keys() == {"n", "_n", "word", "_word", "d", "_d"}
        assert info["n"].dtype == np.float64
        assert info["n"].tolist() == [1, 0.75, 0]
        assert info["_n"].tolist() == [True, True, False]
        assert info["word"].tolist() == ["a", "longer", None]
        assert info["d"]["x"].tolist() == [1, 0, 0]
        assert info["d"]["_x"].tolist() == [True, False, False]
        assert info["_d"].tolist() == [True, False, False]
    assert envs.step(NO_ACTIONS[:3]).info == {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_ends_have_reasons(make, mode):
    """A non-empty string in exactly the rows that ended; the environment's own where it has one."""
    envs = make([partial(OddInfos, tag) for tag in range(4)], num_workers=2, autoreset_mode=mode)
    envs.reset(seed=1)
    seen = set()
    for batch in walk_actions(30, 4):
        result = envs.step(batch)
        for flags, key in ((result.terminated, "terminated"), (result.truncated, "truncated")):
            mask = result.info.get(f"_{key}_reason", np.zeros(4, bool))
            np.testing.assert_array_equal(mask, flags)
            for row in np.flatnonzero(flags):
                seen.add(result.info[f"{key}_reason"][row])
    assert seen == {"terminated", "time limit", "odd 1", "odd 3"}


@pytest.mark.parametrize("in_process", [True, False])
def test_odd_infos_are_read_back_exactly(make, in_process):
    """Everything an info can hold, row by row."""
    envs = make([partial(OddInfos, tag) for tag in range(4)], num_workers=2, in_process=in_process)
    envs.reset(seed=1)
    alone = [OddInfos(tag) for tag in range(4)]
    for row, env in enumerate(alone):
        env.reset(seed=1 + row)
    for batch in walk_actions(2, 4):
        info = envs.step(batch).info
        for row, env in enumerate(alone):
            expected = env.step(batch[row])[4]
            got = row_info(info, row)
            got.pop("terminated_reason", None), got.pop("truncated_reason", None)
            expected.pop("terminated_reason", None)
            np.testing.assert_equal(got, expected)


def test_an_info_that_cant_be_pickled_arrives_as_its_repr(make_workers):
    """With one warning, however often it comes."""
    envs = make_workers([Locked] * 2, 1)
    envs.reset()
    with pytest.warns(UserWarning, match=r"Environment \d gives an info 'lock' .* repr") as caught:
        results = [envs.step(NO_ACTIONS[:2]) for _ in range(3)]
    assert len(caught) == 1
    for result in results:
        assert result.info["lock"][1].startswith("<unlocked _thread.lock")
        assert result.info["n"].tolist() == [1, 1]


class Locked(Fixed):
    def info(self):
        return {"lock": threading.Lock(), "n": 1} if self.steps else {}


def test_a_mask_in_the_way_is_one_warning(make):
    """It names the info; the mask wins."""
    envs = fixed(make, [{}] + [{"a": 1, "_a": 5}] * 8, (99,) * 4)
    with pytest.warns(UserWarning, match="'_a'.* the mask is kept") as caught:
        infos = [envs.step(NO_ACTIONS).info for _ in range(4)]
    assert len(caught) == 1
    for info in infos:
        assert info["_a"].tolist() == [True] * 4


@pytest.mark.parametrize("in_process", [True, False])
def test_a_lossy_observation_is_one_warning(make, in_process):
    """For the whole vector, in the parent, naming an environment."""
    envs = make([Precise] * 3, 1, in_process=in_process)
    with pytest.warns(UserWarning, match=r"Environment \d returns observations of dtype float64"):
        envs.reset()
    for _ in range(3):
        assert envs.step(NO_ACTIONS[:3]).observation[0, 0] == np.float32(0.1)


class Precise(Fixed):
    def observe(self):
        return np.array([0.1])


def test_numeric_infos_need_no_messages_once_learned(make_workers):
    """A step then sends nothing over any pipe."""
    envs = make_workers([partial(Fixed, [{"n": n, "x": n / 2} for n in range(9)])] * 4, 2)
    envs.reset()
    for _ in range(2):
        envs.step(NO_ACTIONS)
    before = envs.statistics().messages
    for _ in range(4):
        envs.step(NO_ACTIONS)
    assert envs.statistics().messages == before


def test_steps_without_infos_need_no_messages(make_workers):
    """From the first one on."""
    envs = make_workers([Fixed] * 4, 2)
    envs.reset()
    before = envs.statistics().messages
    for _ in range(5):
        envs.step(NO_ACTIONS)
    assert envs.statistics().messages == before


# ── spaces of all sorts ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (40, 40, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_observations_of_any_box_are_carried(make, shape, dtype):
    """Shape and dtype of the space, in every mode of taking them."""
    envs = make([partial(Fixed, shape=shape, dtype=dtype)] * 3, num_workers=2)
    assert envs.reset().observation.shape == (3, *shape)
    result = envs.step(NO_ACTIONS[:3])
    assert (result.observation.shape, result.observation.dtype) == ((3, *shape), dtype)
    assert np.all(result.observation == 1)


def test_gymnasiums_own_environments_work(make_workers):
    """From their ids, through Gymnasium's wrappers."""
    env_fns = [lambda: BoxSpaces(gym.make("CartPole-v1", max_episode_steps=5))] * 4
    envs = make_workers(env_fns, 2)
    envs.reset(seed=0)
    for _ in range(5):
        result = envs.step(np.ones((4, 2), np.int64))
    assert result.truncated.all()
    assert result.info["truncated_reason"].tolist() == ["time limit"] * 4


def test_keys_of_one_mask_name_are_noticed(make):
    """1 and "1" both have the mask "_1": one of the two masks would be lost without a word."""
    envs = make([partial(Fixed, [{}, {1: 5}]), partial(Fixed, [{}, {"1": 5}])], 2)
    envs.reset()
    with pytest.warns(UserWarning, match="_1"):
        envs.step(np.zeros((2, 1), np.float32))


def test_every_array_is_read_only_without_copies(make):
    """Infos that came the general way, and final observations, too."""
    infos = [{}] + [{"word": "x", "inner": {"a": 1}}] * 9
    envs = make([partial(Fixed, infos, 1)] * 2, copy=False, autoreset_mode="SameStep")
    envs.reset()
    info = envs.step(np.zeros((2, 1), np.float32)).info
    final_info = info["final_info"]
    for array in (info["word"], info["final_obs"], final_info["word"], final_info["inner"]["a"]):
        assert not array.flags.writeable


def test_logits_are_actions_of_a_flattened_discrete_space(make):
    """A policy's floats pass the cast rule, and the largest one chooses."""
    envs = make([lambda: BoxSpaces(gym.make("CartPole-v1"))] * 2, 1)
    envs.reset(seed=0)
    observation, *_ = envs.step(np.array([[-1.5, 0.2], [3.0, 2.0]], np.float32))
    assert observation[0, 1] > 0 > observation[1, 1]


class OldApi(Walk):
    """Answers as Gym did before version 0.26."""

    def step(self, action):
        return super().step(action)[:4]


def test_a_step_of_four_values_is_told_what_to_return(make):
    """The commonest mistake of an old environment, in plain words."""
    envs = make([OldApi] * 2, 2)
    envs.reset()
    with pytest.raises(WorkerRaised, match=r"step must return \(observation, reward, terminated"):
        envs.step(walk_actions(1, 2)[0])


class ResetsToObservation(Walk):
    def reset(self, **kwargs):
        return super().reset(**kwargs)[0]


def test_a_reset_without_info_is_told_what_to_return(make):
    """By the caller's reset."""
    with pytest.raises(WorkerRaised, match=r"reset must return \(observation, info\)"):
        make([ResetsToObservation], 1).reset()


class Counting(Walk):
    """Its info is a Counter, which makes up a 0 for a key that it lacks."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        key = "goal" if self.steps == 3 else "hit"
        return observation, reward, terminated, truncated, Counter({key: 1})


def test_a_counter_as_info_keeps_its_keys(make):
    """Also once one of its keys has a column."""
    envs = make([partial(Counting, 9)] * 2, 2)
    envs.reset(seed=2)  # for episodes of six steps
    infos = [envs.step(np.zeros((2, 2), np.float32)).info for _ in range(4)]
    given = [[key for key in ("hit", "goal") if key in info] for info in infos]
    assert given == [["hit"], ["hit"], ["goal"], ["hit"]]


class Keeping(Walk):
    """Keeps the first action that it is given, without a copy."""

    kept = None

    def step(self, action):
        if self.kept is None:
            self.kept = action
        return super().step(action)


def test_an_action_that_an_environment_keeps_stays_as_it_was(make_workers):
    """It is no view of memory that the next step writes."""
    envs = make_workers([Keeping] * 2, 2)
    envs.reset()
    first = np.array([[0.25, 0.5], [0.75, 1.0]], np.float32)
    envs.step(first)
    envs.step(np.zeros_like(first))
    np.testing.assert_array_equal(np.stack(envs.get_attr("kept")), first)


def test_rows_of_a_structured_array_are_infos_of_their_own(make):
    """A row is a view of its array, which the next environment may write."""
    table = np.zeros(1, [("n", int)])

    class Structured(Walk):
        def step(self, action):
            table["n"] += 1
            return *super().step(action)[:4], {"row": table[0]}

    envs = make([Structured] * 3, 3, in_process=True)
    envs.reset()
    info = envs.step(np.zeros((3, 2), np.float32)).info
    assert [int(row["n"]) for row in info["row"]] == [1, 2, 3]


class Explaining(Walk):
    def __init__(self, build):
        super().__init__()
        self.build = build

    def step(self, action):
        return *super().step(action)[:4], {"error": self.build("TwoArguments", "b")}


class Word(str):
    """A string that can't be rebuilt from itself."""

    def __new__(cls, word, language):
        return super().__new__(cls, word)


class Leaving:
    """Ends the process that unpickles it."""

    def __init__(self, *what):
        self.what = what

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return sys.exit, (3,)

    def __repr__(self):
        return "Leaving TwoArguments"


def in_an_array(*arguments):
    """Return an array of objects, which holds what pickles but does not come back."""
    return np.array([TwoArguments(*arguments), None])


@pytest.mark.parametrize("build", [TwoArguments, in_an_array, Word, Leaving])
def test_an_info_that_pickles_but_does_not_come_back_arrives_as_its_repr(make_workers, build):
    """With one warning, and the vector goes on."""
    envs = make_workers([partial(Explaining, build)], 1)
    envs.reset()
    with pytest.warns(UserWarning, match="can't be pickled"):
        info = envs.step(walk_actions(1, 1)[0]).info
    assert "TwoArguments" in info["error"][0]
    envs.step(walk_actions(1, 1)[0])


def test_stepping_needs_a_reset_of_every_environment(make):
    """A partial reset at first does not do for the others."""
    envs = make(walks(2), 1)
    envs.reset_envs([1])
    with pytest.raises(ResetNeeded, match="Environment 0 was never reset"):
        envs.step(walk_actions(1, 2)[0])
    envs.reset_envs([0])
    envs.step(walk_actions(1, 2)[0])


def test_a_refused_timeout_leaves_the_step_in_flight(make):
    """Waiting with a number then returns it."""
    envs = make(walks(2), 1)
    envs.reset()
    envs.step_async(walk_actions(1, 2)[0])
    with pytest.raises(ValueError, match="timeout must be a number of seconds or None"):
        envs.step_wait(timeout="soon")
    assert envs.step_wait(timeout=30).reward.shape == (2,)


class Filming(Walk):
    """Puts a new frame into each of its infos, also where the general way is the only one."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def info(self):
        frame = Frame()
        return {"frame": frame, "nested": {"frames": [frame]}}

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0], self.info()

    def step(self, action):
        return *super().step(action)[:4], self.info()


class Frame:
    """Known while it lives, copies too."""

    def __init__(self):
        Filming.alive.add(self)

    def __deepcopy__(self, memo):
        return Frame()


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_infos_of_earlier_steps_are_not_kept(make, mode, copy):
    """Neither by environments nor by the caller's side: what nobody holds is gone at once."""
    envs = make([Filming] * 2, 2, autoreset_mode=mode, copy=copy)
    gc.collect()
    gc.disable()
    try:
        envs.reset(seed=0)
        for batch in walk_actions(30, 2):
            envs.step(batch)
            # of each environment at most the two of one step, and those of an end in it
            assert len(Filming.alive) <= 2 * (2 + 2)
    finally:
        gc.enable()
