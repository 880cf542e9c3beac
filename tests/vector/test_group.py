"""`EnvGroup`: K environments of one process, taking turns."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from superdex.vector import EnvGroup
from superdex.vector._columns import InfoWriter
from superdex.vector._layout import OUTPUTS, batch_layout
from superdex.vector._remote import EnvFailure, loads
from superdex.vector._returns import end_reasons
from superdex.vector._rows import GroupArrays
from superdex.vector._settings import GroupSettings
from tests.vector.envs import Acting, Fixed, TwoArguments, Walk, raising


class Rig:
    """A group with arrays to write to, as a worker has them."""

    def __init__(self, env_fns, start=0, mode=AutoresetMode.NEXT_STEP, **settings):
        rows = range(start, start + len(env_fns))
        self.group = EnvGroup(env_fns, rows, GroupSettings(mode, **settings))
        self.count = len(env_fns)
        spaces = self.group.spaces
        layout = batch_layout(
            1,
            rows.stop,
            spaces.observation.space,
            spaces.action.space,
            final_observation=mode is AutoresetMode.SAME_STEP,
        )
        arrays = layout.views(memoryview(bytearray(layout.nbytes)))
        self.out = GroupArrays(*(arrays[name][0, start:] for name in OUTPUTS if name in arrays))
        self.final = self.out.final_observation
        self.writer = InfoWriter(rows, arrays["info_data"], arrays["info_mask"])
        self.action = arrays["action"][start:]

    def reset(self, rows=None, seeds=None, options=None) -> dict[int, dict[Any, Any]]:
        rows = range(self.count) if rows is None else rows
        nothing = [None] * len(rows)
        self.group.reset(rows, seeds or nothing, options or nothing, self.out, self.writer)
        return dict(self.writer.finish(0)[1])

    def step(self) -> dict[int, dict[Any, Any]]:
        self.group.step(self.action.copy(), self.out, self.writer)
        return dict(self.writer.finish(0)[1])

    def run(self, steps: int) -> None:
        """Reset and step."""
        self.reset()
        for _ in range(steps):
            self.step()


def rows(array: np.ndarray) -> list[float]:
    return array.ravel().tolist()


def lengths(*values: int) -> list[partial[Fixed]]:
    """Return functions for environments whose episodes have these lengths."""
    return [partial(Fixed, length=length, reward=1.0) for length in values]


# ── autoreset, by hand ──────────────────────────────────────────────────────────────────────────


def test_next_step_resets_in_the_step_after_an_end():
    """That step has reward 0 and no flags; the last observation was shown before."""
    rig = Rig(lengths(2, 3))
    rig.reset()
    seen = []
    for _ in range(6):
        rig.step()
        out = rig.out
        seen.append((rows(out.observation), rows(out.reward), rows(out.terminated)))
        seen[-1] += (rows(out.autoreset),)
    no, yes = False, True
    assert seen == [
        ([1, 1], [1, 1], [no, no], [no, no]),
        ([2, 2], [1, 1], [yes, no], [no, no]),
        ([0, 3], [0, 1], [no, yes], [yes, no]),
        ([1, 0], [1, 0], [no, no], [no, yes]),
        ([2, 1], [1, 1], [yes, no], [no, no]),
        ([0, 2], [0, 1], [no, no], [yes, no]),
    ]


def test_same_step_resets_at_once():
    """The first observation is shown with the last step's reward and flags."""
    rig = Rig(lengths(2, 3), mode=AutoresetMode.SAME_STEP)
    rig.reset()
    seen = []
    for _ in range(4):
        rig.step()
        out = rig.out
        seen.append((rows(out.observation), rows(out.reward), rows(out.terminated)))
        seen[-1] += (rows(out.autoreset),)
    no, yes = False, True
    assert seen == [
        ([1, 1], [1, 1], [no, no], [no, no]),
        ([0, 2], [1, 1], [yes, no], [yes, no]),
        ([1, 0], [1, 1], [no, yes], [no, yes]),
        ([0, 1], [1, 1], [yes, no], [yes, no]),
    ]


def test_same_step_keeps_the_last_observation():
    """In the final observations, in the rows that ended."""
    rig = Rig(lengths(2, 3), mode=AutoresetMode.SAME_STEP)
    rig.reset()
    rig.step()
    rig.step()
    assert rig.final is not None
    assert rig.final[0] == 2


def test_same_step_keeps_the_last_info_beside_the_first():
    """final_info is the last step's own; the reset's own is on top."""
    rig = Rig(
        [lambda: Fixed([{"a": 1}, {"a": 2}, {"b": 3}], length=1)], mode=AutoresetMode.SAME_STEP
    )
    rig.reset()
    info = rig.step()[0]
    assert info == {"b": 3, "final_info": {"a": 2}, "terminated_reason": "terminated"}


def test_disabled_never_resets():
    """The environment is stepped on, as the caller asks."""
    rig = Rig(lengths(1), mode=AutoresetMode.DISABLED)
    rig.reset()
    for step in (1, 2, 3):
        rig.step()
        assert rows(rig.out.observation) == [step]
        assert rows(rig.out.terminated) == [True]
        assert rows(rig.out.autoreset) == [False]


def test_an_autoreset_runs_the_environments_own_reset():
    """With new draws, never a cached first state."""
    rig = Rig([Walk])
    rig.reset(seeds=[3])
    firsts = []
    for _ in range(60):
        rig.step()
        if rig.out.autoreset[0]:
            firsts.append(float(rig.out.observation[0, 0]))
    assert len(firsts) > 5
    assert len(set(firsts)) == len(firsts)
    assert set(rig.group.envs[0].seeds[1:]) == {None}


def test_a_reset_clears_the_pending_autoreset_of_its_rows_only():
    """The others' stay pending."""
    rig = Rig(lengths(1, 1))
    rig.reset()
    rig.step()
    rig.reset([1])
    rig.step()
    assert rows(rig.out.autoreset) == [True, False]
    assert rows(rig.out.observation) == [0, 1]


def test_a_reset_of_some_leaves_other_rows_alone():
    """Rewards and flags of all are zero, observations only those of the rows reset."""
    rig = Rig(lengths(5, 5))
    rig.reset()
    rig.step()
    rig.reset([1])
    assert rows(rig.out.observation) == [1, 0]
    assert rows(rig.out.reward) == [0, 0]


def test_steps_of_environments_are_counted_without_ignored_ones():
    """A row that only resets is no step."""
    rig = Rig(lengths(1, 3))
    rig.reset()
    for _ in range(4):
        rig.step()
    assert rig.group.env_steps == 2 + 3


# ── seeds and options of episodes ───────────────────────────────────────────────────────────────


def episode_seed(seed: int, episode: int) -> int:
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


def test_every_later_episode_gets_a_derived_seed():
    """From the environment's seed and the number of the episode."""
    rig = Rig(lengths_of_walks(1), episode_seeds=True)
    rig.reset(seeds=[8])
    run_to_episode(rig, 3)
    seeds = rig.group.envs[0].seeds
    assert seeds == [8, episode_seed(8, 1), episode_seed(8, 2), episode_seed(8, 3)]


def lengths_of_walks(count: int) -> list[type[Walk]]:
    return [Walk] * count


def run_to_episode(rig: Rig, number: int) -> None:
    while rig.group.envs[0].episode < number:
        rig.step()


def test_a_seed_is_drawn_once_and_kept_where_the_reset_gave_none():
    """Later episodes derive from it."""
    rig = Rig([Walk], episode_seeds=True)
    rig.reset()
    run_to_episode(rig, 2)
    first, *later = rig.group.envs[0].seeds
    assert type(first) is int
    assert later == [episode_seed(first, 1), episode_seed(first, 2)]


def test_a_reset_without_a_seed_begins_the_next_episode():
    """It does not start over."""
    rig = Rig([Walk], episode_seeds=True)
    rig.reset(seeds=[8])
    rig.reset()
    rig.reset()
    assert rig.group.envs[0].seeds == [8, episode_seed(8, 1), episode_seed(8, 2)]


def test_a_reset_with_a_seed_starts_over():
    """Episodes are counted from it."""
    rig = Rig([Walk], episode_seeds=True)
    rig.reset(seeds=[8])
    rig.reset()
    rig.reset(seeds=[9])
    rig.reset()
    assert rig.group.envs[0].seeds[2:] == [9, episode_seed(9, 1)]


def test_without_episode_seeds_nothing_is_seeded():
    """Autoresets and resets go on with the generator."""
    rig = Rig([Walk])
    rig.reset(seeds=[8])
    run_to_episode(rig, 2)
    rig.reset()
    assert rig.group.envs[0].seeds == [8, None, None, None]


def test_autoresets_have_no_options_by_default():
    """Gymnasium's way."""
    rig = Rig([Walk])
    rig.reset(options=[{"a": 1}])
    run_to_episode(rig, 1)
    assert rig.group.envs[0].options == [{"a": 1}, None]


def test_autoresets_may_repeat_the_last_options():
    """Those of the environment's last reset by the caller."""
    rig = Rig([Walk, Walk], autoreset_options="last")
    rig.reset(options=[{"a": 1}, {"a": 2}])
    rig.reset([1], options=[{"a": 3}])
    run_to_episode(rig, 2)
    assert rig.group.envs[0].options == [{"a": 1}] * 3
    assert rig.group.envs[1].options[:3] == [{"a": 2}, {"a": 3}, {"a": 3}]


def test_autoreset_options_may_be_a_function():
    """Of the environment's index in the batch and its episode, 1 at the first autoreset."""
    rig = Rig([Walk], start=5, autoreset_options=lambda index, episode: {"at": (index, episode)})
    rig.reset(options=[{"a": 1}])
    run_to_episode(rig, 2)
    assert rig.group.envs[0].options == [{"a": 1}, {"at": (5, 1)}, {"at": (5, 2)}]


# ── what environments return ────────────────────────────────────────────────────────────────────


def stepped(**kwargs: Any) -> Rig:
    rig = Rig([partial(Fixed, **kwargs)])
    rig.reset()
    rig.step()
    return rig


@pytest.mark.parametrize(
    "reward",
    [2.0, 2, np.float32(2), np.int8(2), np.array(2.0), np.array([2]), np.float64(2)],
    ids=repr,
)
def test_scalar_like_rewards_are_alike(reward):
    """Python's numbers, NumPy's, 0-d arrays and arrays of shape (1,)."""
    assert rows(stepped(reward=reward).out.reward) == [2]


@pytest.mark.parametrize("reward", [True, np.bool_(True), np.array([True])], ids=repr)
def test_bools_are_rewards(reward):
    """True is 1."""
    assert rows(stepped(reward=reward).out.reward) == [1]


@pytest.mark.parametrize("reward", [[2.0], None, "2", np.ones(2), np.ones((1, 1)), 2j], ids=repr)
def test_other_rewards_name_the_environment(reward):
    """With what came and what was expected."""
    rig = Rig([Fixed, partial(Fixed, reward=reward)], start=4)
    rig.reset()
    with pytest.raises(EnvFailure) as caught:
        rig.step()
    assert caught.value.env_index == 5
    assert "The reward must be a number" in str(caught.value.__cause__)


class Observing(Fixed):
    """Returns one given observation whatever its space says."""

    def __init__(self, observation, shape=(2,), dtype=np.float32):
        super().__init__(shape=shape, dtype=dtype)
        self.observation = observation

    def observe(self):
        return self.observation


@pytest.mark.parametrize("observation", [[1, 2], (1, 2), np.array([1, 2]), np.array([1.0, 2])])
def test_observations_are_cast_to_the_spaces_dtype(observation):
    """Lists too; nothing is said where nothing is lost."""
    rig = Rig([partial(Observing, observation)])
    rig.reset()
    rig.step()
    assert rows(rig.out.observation) == [1, 2]
    assert rig.group.notices.take() == []


def test_a_lossy_cast_is_noticed_once():
    """By environment and dtypes."""
    rig = Rig([Fixed, partial(Observing, np.array([0.1]), (1,))], start=2)
    rig.reset()
    rig.step()
    rig.step()
    ((kind, message),) = rig.group.notices.take()
    assert kind == "lossy observation"
    assert message.startswith("Environment 3 returns observations of dtype float64")
    np.testing.assert_array_equal(rig.out.observation[1], np.float32([0.1]))


def test_nan_is_not_lost_in_a_cast():
    """A float64 NaN is a float32 NaN."""
    rig = Rig([partial(Observing, np.array([np.nan, np.inf]))])
    rig.reset()
    assert rig.group.notices.take() == []


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3, np.float32), r"shape \(3,\), its space has \(2,\)"),
        (np.float32(0), r"shape \(\), its space has \(2,\)"),
        (np.array(["a", "b"]), "dtype <U1"),
        ([None, 1], "dtype object"),
    ],
    ids=repr,
)
def test_observations_outside_the_space_name_the_environment(observation, message):
    """By shape or dtype."""
    rig = Rig([Fixed], start=3)
    rig.reset()
    rig = Rig([partial(Observing, observation)], start=3)
    with pytest.raises(EnvFailure) as caught:
        rig.reset()
    assert caught.value.env_index == 3
    with pytest.raises((ValueError, TypeError), match=message):
        raise caught.value.__cause__ or AssertionError


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (300,), (30, 30, 3)])
def test_observations_of_any_shape_and_size_are_taken(shape):
    """Scalars, empty ones, and those too large to be joined."""
    rig = Rig([partial(Fixed, shape=shape)] * 3)
    rig.reset()
    rig.step()
    assert rig.out.observation.shape == (3, *shape)
    assert np.all(rig.out.observation == 1)


def test_environments_may_return_views_of_shared_memory():
    """Each observation is taken before the next environment's step."""
    shared = np.zeros(1, np.float32)

    class Sharing(Fixed):
        def __init__(self, number):
            super().__init__()
            self.number = number

        def observe(self):
            shared[:] = self.number
            return shared

    rig = Rig([partial(Sharing, number) for number in range(4)])
    rig.reset()
    rig.step()
    assert rows(rig.out.observation) == [0, 1, 2, 3]


@pytest.mark.parametrize("at", ["reset", "step"])
def test_an_info_that_is_no_dict_is_an_error_of_that_environment(at):
    """At reset and at step."""

    class NoDict(Fixed):
        def info(self):
            super().info()
            return {} if self.calls == 1 and at == "step" else None

    rig = Rig([Fixed, NoDict], start=1)
    with pytest.raises(EnvFailure) as caught:
        rig.run(1)
    assert (caught.value.env_index, caught.value.call) == (2, at)
    assert "The info must be a dict, got None" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("info", "flags", "reasons"),
    [
        ({}, (True, False), {"terminated_reason": "terminated"}),
        ({}, (False, True), {"truncated_reason": "time limit"}),
        (
            {"terminated_reason": "fell"},
            (True, True),
            {"terminated_reason": "fell", "truncated_reason": "time limit"},
        ),
        ({"terminated_reason": ""}, (True, False), {"terminated_reason": "terminated"}),
        ({"truncated_reason": 3}, (False, True), {"truncated_reason": "time limit"}),
        ({"terminated_reason": "not yet"}, (False, False), {}),
    ],
)
def test_ends_have_reasons(info, flags, reasons):
    """The environment's own words, else plain ones."""
    assert end_reasons(info, *flags) == reasons


def test_reasons_do_not_change_the_environments_own_dict():
    """They are added beside it."""
    own: dict[str, Any] = {}

    class Keeping(Fixed):
        def info(self):
            return own

    rig = Rig([partial(Keeping, length=1)])
    rig.reset()
    assert rig.step()[0] == {"terminated_reason": "terminated"}
    assert own == {}


# ── turns, calls, the end ───────────────────────────────────────────────────────────────────────


class Turning(Walk):
    """Notes whether somebody asks while its own state is in the scene."""

    inside = False

    @contextmanager
    def own_state(self):
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def ask(self):
        return self.inside

    def render(self):
        return self.inside


def test_environments_are_asked_within_their_own_state():
    """For calls, attributes and pictures, wrapped or not; and left again."""
    rig = Rig([Turning, lambda: gym.wrappers.TimeLimit(Turning(), 5)])
    for name in ("ask", "render", "inside"):
        assert [loads(r) for r in rig.group.call([0, 1], name, (), {})] == [True, True]
    assert not rig.group.envs[0].inside
    rig.group.set_attr([1], "tag", [9])
    assert rig.group.envs[1].unwrapped.tag == 9


def test_calls_reach_where_an_attribute_lives():
    """Through wrappers, with arguments."""
    rig = Rig([lambda: gym.wrappers.TimeLimit(Walk(3), 5)])
    assert loads(rig.group.call([0], "add", (1,), {"b": 2})[0]) == 6
    assert loads(rig.group.call([0], "tag", (), {})[0]) == 3


def test_a_failing_call_names_environment_and_method():
    """And a missing attribute is such a failure."""
    rig = Rig([Walk, partial(Acting, "method", raising(TwoArguments, "a", "b"))], start=1)
    with pytest.raises(EnvFailure) as caught:
        rig.group.call([1], "method", (), {})
    assert (caught.value.env_index, caught.value.call) == (2, "method")
    assert isinstance(caught.value.__cause__, TwoArguments)
    with pytest.raises(EnvFailure) as caught:
        rig.group.call([0], "nowhere", (), {})
    assert isinstance(caught.value.__cause__, AttributeError)


@pytest.mark.parametrize("at", ["reset", "step"])
@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(2)], ids=repr)
def test_the_first_failing_environment_ends_a_call(at, error):
    """It is named, and its own exception is the cause."""
    rig = Rig([Walk, partial(Acting, at, raising(type(error), *error.args)), Walk], start=3)
    with pytest.raises(EnvFailure) as caught:
        rig.run(1)
    assert (caught.value.env_index, caught.value.call) == (4, at)
    assert repr(caught.value.__cause__) == repr(error)


def test_a_failing_autoreset_is_named_as_reset():
    """Though it happens in a step."""
    rig = Rig([partial(Acting, "reset", raising(ValueError, "x"), after=1)])
    with pytest.raises(EnvFailure) as caught:
        rig.run(10)
    assert caught.value.call == "reset"


def test_a_failing_constructor_is_named_and_closes_the_others():
    """What was built before it is closed."""
    closed: list[int] = []
    with pytest.raises(EnvFailure) as caught:
        EnvGroup(
            [partial(Acting, "close", lambda: closed.append(0)), raising(KeyError, "k")],
            range(4, 6),
        )
    assert (caught.value.env_index, caught.value.call) == (5, "construct")
    assert isinstance(caught.value.__cause__, KeyError)
    assert closed == [0]


def test_one_object_returned_twice_is_refused():
    """With what to pass instead."""
    env = Walk()
    with pytest.raises(TypeError, match=r"environment 3 returned an object that another .* own"):
        EnvGroup([Walk, lambda: env, lambda: env], range(1, 4))


@pytest.mark.parametrize("value", [None, 3, Walk])
def test_a_function_that_returns_no_environment_is_refused(value):
    """With what it returned."""
    with pytest.raises(TypeError, match=r"environment 0 returned .* no gymnasium\.Env"):
        EnvGroup([lambda: value], range(1))


def test_close_goes_on_after_a_failure():
    """Every environment is closed once; failures are returned."""
    closed: list[int] = []
    group = EnvGroup(
        [
            partial(Acting, "close", lambda: closed.append(0)),
            partial(Acting, "close", raising(ValueError, "x")),
            partial(Acting, "close", lambda: closed.append(2)),
        ],
        range(5, 8),
    )
    (failure,) = group.close()
    assert (failure.env_index, failure.call) == (6, "close")
    assert closed == [0, 2]
    assert group.close() == []
    assert closed == [0, 2]


def test_actions_are_the_environments_own():
    """An environment may keep and even change its row."""

    class Clipping(Fixed):
        def step(self, action):
            self.action = action
            action += 1
            return super().step(action)

    rig = Rig([Clipping, Clipping])
    rig.reset()
    rig.action[:] = [[0.25], [0.5]]
    rig.step()
    assert rows(rig.action) == [0.25, 0.5]
    assert [rows(env.action) for env in rig.group.envs] == [[1.25], [1.5]]


def test_the_group_reports_its_spaces():
    """As the parent needs them."""
    group = EnvGroup([Walk, partial(Walk, bound=2.0)], range(2))
    assert group.spaces.observation.space == Box(-np.inf, np.inf, (3,), np.float32)
    assert group.spaces.action.bounds is not None
    assert group.spaces.render_mode == "rgb_array"


# ── what was applied, and which episode it is ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "valid"),
    [
        (AutoresetMode.NEXT_STEP, [True, True, False, True, True, False]),
        (AutoresetMode.SAME_STEP, [True] * 6),
    ],
)
def test_an_action_is_valid_where_it_was_applied(mode, valid):
    """A row that is reset instead of stepped says that its action went nowhere."""
    rig = Rig(lengths(2, 9), mode=mode)
    rig.reset()
    seen = []
    for _ in valid:
        rig.step()
        seen.append(rig.out.action_valid.tolist())
    assert seen == [[value, True] for value in valid]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_every_episode_that_begins_is_counted(mode):
    """Resets by the caller and autoresets count alike, each in its row."""
    rig = Rig(lengths(2, 3), mode=mode)
    rig.reset()
    assert rig.group.episodes.tolist() == [1, 1]
    for _ in range(6):
        rig.step()
    assert rig.group.episodes.tolist() == ([3, 2] if mode is AutoresetMode.NEXT_STEP else [4, 3])
    rig.reset([1])
    assert rig.group.episodes.tolist()[1] == (3 if mode is AutoresetMode.NEXT_STEP else 4)
