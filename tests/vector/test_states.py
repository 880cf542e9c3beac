"""Environments of a vector environment captured, restored and multiplied."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import superdex.envs.mujoco  # noqa: F401  # registers its ids
from superdex.envs import AntEnv, CartPoleEnv, HalfCheetahEnv
from superdex.errors import (
    CallPending,
    ClosedError,
    ResetNeeded,
    StaleStateError,
    StateCaptureUnsupported,
    WorkerDied,
    WorkerRaised,
)
from superdex.scenes import share_mujoco
from superdex.states import VectorState
from superdex.states._codec import decode, encode
from superdex.testing._differences import equal as _equal
from superdex.vector import HybridVectorEnv
from tests.vector.envs import Walk
from tests.vector.test_restart import kill

MODES = list(AutoresetMode)

pytestmark = [
    pytest.mark.usefixtures("nothing_remains"),
    pytest.mark.filterwarnings("ignore:Worker . .*is restarted:RuntimeWarning"),
]


class Stroll(Walk):
    """A walk that says what its state is."""

    def get_state(self):
        names = ("position", "steps", "length", "episode", "seeds", "options", "tag")
        return {name: vars(self)[name] for name in names}

    def set_state(self, state):
        vars(self).update(state)


class Refusing(Stroll):
    def set_state(self, state):
        raise RuntimeError("no")


def strolls(count: int) -> list[Callable[[], gym.Env]]:
    return [partial(Stroll, tag) for tag in range(count)]


class VariedCartPole(CartPoleEnv):
    """A cart-pole of any mass, on any planet."""

    varied_fields = ("body_mass", "opt.gravity")

    def _draw_physics(self):
        model = self._scene.model
        return {
            "body_mass": model.body_mass * self.np_random.uniform(0.5, 2, model.nbody),
            "opt.gravity": [0, 0, self.np_random.uniform(-15, -2)],
        }


short_cart_pole = partial(CartPoleEnv, steps_per_episode=13)
FACTORIES = {
    "one by one": Stroll,
    "at once": short_cart_pole,
    "at once, varied": partial(VariedCartPole, steps_per_episode=13),
    "ant": partial(AntEnv, steps_per_episode=9),
    "half-cheetah": partial(HalfCheetahEnv, steps_per_episode=11),
    "array version": partial(gym.make, "superdex/Ant-v5", max_episode_steps=11),
    "shared": share_mujoco(partial(gym.make, "Hopper-v5", max_episode_steps=30)),
    "unshared": partial(gym.make, "Hopper-v5", max_episode_steps=30),
    "classic": partial(gym.make, "Pendulum-v1", max_episode_steps=12),
}


def random_actions(envs, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *envs.action_space.shape))


def run(envs, actions) -> list[Any]:
    """Return all that a vector shows; under DISABLED it is reset by hand."""
    shown: list[Any] = []
    for batch in actions:
        result = envs.step(batch.astype(np.float32))
        shown.append(result)
        ended = result.terminated | result.truncated
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            shown.append(envs.reset_envs(ended))
    return shown


def assert_same(one, other) -> None:
    assert len(one) == len(other)
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        for name, x, y in zip(a._fields, a, b, strict=True):
            assert _equal(x, y), (number, name, x, y)


def rows_of(shown, rows) -> list[Any]:
    """Return what some rows show, apart from infos."""
    return [type(r)(*(array[rows] for array in r[:-1]), {}) for r in shown]


# ── exactness ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_restored_environments_do_the_same_again(make, factory, mode):
    """Through resets, infos included, in every autoreset mode, wherever they are put."""
    with (
        HybridVectorEnv([factory] * 6, num_workers=1, autoreset_mode=mode, in_process=True) as one,
        HybridVectorEnv([factory] * 6, num_workers=4, autoreset_mode=mode, in_process=True) as two,
    ):
        one.reset(seed=7)
        actions = random_actions(one, 60)
        before = run(one, actions[:30])[-1]
        state = one.capture_states()
        expected = run(one, actions[30:])
        observation, info = one.restore_states(state)
        np.testing.assert_array_equal(observation, before.observation)
        assert info == {}
        assert_same(run(one, actions[30:]), expected)
        two.restore_states(VectorState.from_bytes(state.to_bytes()))
        assert_same(run(two, actions[30:]), expected)


def test_a_capture_changes_nothing(make):
    """What comes after is what would have come."""
    envs, twin = (make([short_cart_pole] * 5) for _ in range(2))
    for each in (envs, twin):
        each.reset(seed=0)
    for batch in random_actions(envs, 30):
        assert_same(run(envs, [batch]), run(twin, [batch]))
        assert envs.capture_states() == envs.capture_states()


@pytest.mark.parametrize("mode", MODES)
def test_the_branch_of_one_state_into_many(make_workers, mode):
    """Captured at step 30 of 50, 16 environments of other workers do the same until exactly 50."""
    make = partial(gym.make, "superdex.envs:superdex/HalfCheetah-v5", max_episode_steps=50)
    envs = make_workers([make] * 18, num_workers=3, autoreset_mode=mode)
    envs.reset(seed=1)
    actions = random_actions(envs, 60)
    run(envs, actions[:30])
    state = envs.capture_states([0])
    rows = [*range(2, 18)]
    observation, _ = envs.fork(state, rows)
    assert (observation[rows] == observation[0]).all()
    for step, batch in enumerate(actions[30:50], 31):
        batch[:] = batch[0]
        result = envs.step(batch.astype(np.float32))
        assert (result.observation[rows] == result.observation[0]).all()
        assert (result.reward[rows] == result.reward[0]).all()
        assert result.truncated[rows].all() == (step == 50)
        assert not result.truncated[rows].any() or step == 50


def test_a_fork_goes_on_alike_through_resets(make):
    """The random generator is a part of the state."""
    envs = make([Stroll] * 6, num_workers=2)
    envs.reset(seed=0)
    run(envs, random_actions(envs, 9))
    envs.fork(envs.capture_states([4]))
    actions = np.repeat(random_actions(envs, 30)[:, :1], 6, axis=1)
    for result in run(envs, actions):
        for array in result[:-1]:
            assert (array == array[:1]).all()


@pytest.mark.parametrize("factory", [Stroll, short_cart_pole])
def test_environments_not_named_are_left_alone(make, factory):
    """They and their pending autoresets."""
    envs, twin = (make([factory] * 6, num_workers=2) for _ in range(2))
    for each in (envs, twin):
        each.reset(seed=3)
    actions = random_actions(envs, 60)
    assert_same(run(envs, actions[:13]), run(twin, actions[:13]))  # 13 ends cart-poles' episodes
    state = envs.capture_states([5, 0])
    assert_same(run(envs, actions[13:26]), run(twin, actions[13:26]))
    envs.restore_states(state, [1, 4])
    others = [0, 2, 3, 5]
    one, other = run(envs, actions[26:]), run(twin, actions[26:])
    assert_same(rows_of(one, others), rows_of(other, others))


def test_states_are_put_in_the_order_of_indices(make):
    """Captured in one order, restored in another."""
    envs = make(strolls(5), num_workers=2)
    before, _ = envs.reset(seed=0)
    state = envs.capture_states([3, 1])
    run(envs, random_actions(envs, 2))
    after, _ = envs.restore_states(state, [0, 4])
    np.testing.assert_array_equal(after[[0, 4]], before[[3, 1]])
    mask = np.array([True, False, False, True, False])
    after, _ = envs.restore_states(state, mask)
    np.testing.assert_array_equal(after[[0, 3]], before[[3, 1]])


@pytest.mark.parametrize("mode", MODES)
def test_episode_seeds_go_with_the_state(make, mode):
    """The next episode's seed is that of the environment that was captured."""
    envs = [make(strolls(3), autoreset_mode=mode, episode_seeds=True) for _ in range(2)]
    envs[0].reset(seed=[5, 6, 7])
    envs[1].reset(seed=[8, 9, 10])
    actions = random_actions(envs[0], 60)
    run(envs[0], actions[:20])
    envs[1].restore_states(envs[0].capture_states())
    assert_same(run(envs[0], actions[20:]), run(envs[1], actions[20:]))
    assert envs[0].get_attr("seeds") == envs[1].get_attr("seeds")


def test_options_of_the_last_reset_go_with_the_state(make):
    """For autoresets that repeat them."""
    envs = [make(strolls(3), autoreset_options="last") for _ in range(2)]
    envs[0].reset(seed=0, options=[{"a": np.arange(2)}, {"b": (1, 2)}, None])
    envs[1].reset(seed=1)
    envs[1].restore_states(envs[0].capture_states())
    for each in envs:
        run(each, random_actions(each, 12))
    for one, other in zip(*(each.get_attr("options") for each in envs), strict=True):
        assert repr(one) == repr(other)
    assert envs[1].get_attr("options")[1][-1] == {"b": (1, 2)}


def test_options_that_are_not_plain_are_named(make):
    """Of the environment whose reset they were of."""
    envs = make([partial(gym.make, "Pendulum-v1")] * 2)
    envs.reset(seed=0, options=[None, {"tool": object}])
    message = r"Environment 1: .*PendulumEnv .*options of its last reset"
    with pytest.raises(StateCaptureUnsupported, match=message):
        envs.capture_states()
    assert envs.capture_states([0]).num_envs == 1


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_finished_episode_stays_finished(make, mode):
    """The reset that is due comes in the place where it is put; DISABLED asks for one."""
    envs = make([short_cart_pole] * 4, num_workers=2, autoreset_mode=mode)
    envs.reset(seed=0)
    start = envs.capture_states()
    actions = np.zeros((13, *envs.action_space.shape), np.float32)
    for batch in actions:
        result = envs.step(batch)
    assert result.truncated.all()
    finished = envs.capture_states([2])
    envs.restore_states(start)
    envs.restore_states(finished, [1])
    if mode is AutoresetMode.DISABLED:
        with pytest.raises(ResetNeeded, match="Environment 1 has finished"):
            envs.step(actions[0])
        envs.reset_envs([1])
        assert not envs.step(actions[0]).truncated.any()
        return
    result = envs.step(actions[0])
    assert envs.autoreset_mask.tolist() == [False, True, False, False]
    assert result.reward.tolist() == [1.0, 0.0, 1.0, 1.0]


def test_a_restore_takes_the_place_of_a_reset_that_was_due(make):
    """In NEXT_STEP mode."""
    envs = make([short_cart_pole] * 2)
    envs.reset(seed=0)
    start = envs.capture_states([0])
    for _ in range(13):
        envs.step(np.zeros((2, 1), np.float32))
    envs.restore_states(start, [0])
    envs.step(np.zeros((2, 1), np.float32))
    assert envs.autoreset_mask.tolist() == [False, True]


def test_a_restore_can_come_first(make):
    """In the place of the first reset; those left out still need one."""
    one = make(strolls(3))
    one.reset(seed=0)
    state = one.capture_states()
    actions = random_actions(one, 20)
    expected = run(one, actions)
    two = make(strolls(3))
    two.restore_states(state)
    assert_same(run(two, actions), expected)
    three = make(strolls(3))
    three.restore_states(state[[0, 1]], [0, 1])
    with pytest.raises(ResetNeeded, match="Environment 2 was never reset"):
        three.step(actions[0].astype(np.float32))
    three.reset_envs([2])
    three.step(actions[0].astype(np.float32))


def test_observations_of_an_earlier_step_stay(make):
    """With copy=False they are valid until the next but one step, restores or not."""
    envs = make(strolls(3), copy=False)
    envs.reset(seed=0)
    state = envs.capture_states()
    result = envs.step(np.ones((3, 2), np.float32))
    kept = result.observation.copy(), result.reward.copy()
    restored, _ = envs.restore_states(state)
    np.testing.assert_array_equal(result.observation, kept[0])
    np.testing.assert_array_equal(result.reward, kept[1])
    envs.step(np.ones((3, 2), np.float32))
    np.testing.assert_array_equal(restored, state.results["observation"])


def test_a_reset_after_a_restore_shows_the_rows_restored(make):
    """Rows that are not reset show their last observation, which is the state's."""
    envs = make(strolls(3), num_workers=2)
    envs.reset(seed=0)
    state = envs.capture_states([0])
    run(envs, random_actions(envs, 3))
    restored, _ = envs.restore_states(state, [2])
    after, _ = envs.reset_envs([0], seed=5)
    np.testing.assert_array_equal(after[1:], restored[1:])


def test_ids_of_restored_rows_are_new(make):
    """An answer to what was seen before is stale; other rows keep their ids."""
    envs = make(strolls(4), num_workers=2)
    envs.reset(seed=0)
    state = envs.capture_states()
    before, episodes = envs.state_ids, envs.episode_ids
    envs.restore_states(state[[1, 3]], [1, 3])
    after, new_episodes = envs.state_ids, envs.episode_ids
    assert (before != after).tolist() == [False, True, False, True]
    assert (episodes != new_episodes).tolist() == [False, True, False, True]
    actions = np.zeros((4, 2), np.float32)
    with pytest.raises(StaleStateError) as raised:
        envs.step_checked(actions, before)
    assert list(raised.value.rows) == [1, 3]
    envs.step_checked(actions, after)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factory", [Stroll, short_cart_pole])
def test_states_go_together_with_slots(make, factory, mode):
    """Captured and restored between slots, observed in slots, and stepped on in any of them."""
    envs, twin = (make([factory] * 6, num_workers=2, autoreset_mode=mode) for _ in range(2))
    for each in (envs, twin):
        each.reset(seed=0)
    slots = [np.array([4, 0, 3]), np.array([5, 1, 2])]
    actions = random_actions(envs, 40).astype(np.float32)
    for number, batch in enumerate(actions):
        result = twin.step(batch)
        for slot in slots[:: 1 if number % 2 else -1]:
            part = envs.step_slots(slot, batch[slot])
            np.testing.assert_array_equal(part.observation, result.observation[slot])
            state = envs.capture_states(slot)
            shown = envs.observe_slots(slot)
            envs.restore_states(state, slot)
            again = envs.observe_slots(slot)
            for name in ("observation", "reward", "terminated", "truncated", "action_valid"):
                np.testing.assert_array_equal(getattr(again, name), getattr(shown, name))
            if mode is AutoresetMode.SAME_STEP:
                ended = again.terminated | again.truncated
                np.testing.assert_array_equal(
                    again.final_observation[ended], shown.final_observation[ended]
                )
        ended = result.terminated | result.truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            for each in (envs, twin):
                each.reset_slots(np.flatnonzero(ended))


def test_states_go_together_with_allocated_buffers(make):
    """The last results may be in them."""
    envs = make(strolls(3))
    (buffers,) = envs.allocate_buffers(1)
    envs.reset_into(buffers, seed=0)
    envs.step_into(np.ones((3, 2), np.float32), buffers)
    expected = buffers["observation"].copy()
    state = envs.capture_states()
    np.testing.assert_array_equal(state.results["observation"], expected)
    envs.step_into(np.ones((3, 2), np.float32), buffers)
    moved = buffers["observation"].copy()
    observation, _ = envs.restore_states(state)
    np.testing.assert_array_equal(observation, expected)
    np.testing.assert_array_equal(buffers["observation"], moved)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pair(make) -> tuple[HybridVectorEnv, HybridVectorEnv]:
    """Two vectors that did the same."""
    pair = make([short_cart_pole] * 4, num_workers=2), make([short_cart_pole] * 4, num_workers=2)
    for envs in pair:
        envs.reset(seed=0)
        envs.step(np.ones((4, 1), np.float32))
    return pair


def other_states(**kwargs: Any) -> VectorState:
    with HybridVectorEnv([partial(CartPoleEnv, **kwargs)] * 4, in_process=True) as envs:
        envs.reset(seed=5)
        return envs.capture_states()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            lambda good: (good[[0, 1]],),
            ValueError,
            "for each environment named, 4, got 2",
        ),
        (lambda good: (good, [0]), ValueError, "named, 1, got 4"),
        (lambda good: (good[[0, 1]], [1, 1]), ValueError, "Index 1 is named twice"),
        (lambda good: (good[[0]], [4]), ValueError, "out of range"),
        (lambda good: (good.to_bytes(),), TypeError, "takes a VectorState, got bytes"),
        (
            lambda good: (other_states(),),
            ValueError,
            r"Environment 0: .*another settings: expected .*steps_per_episode=13.*got .*=-1",
        ),
    ],
)
def test_states_that_do_not_fit_change_nothing(pair, arguments, error, message):
    """It is said what was expected, and the next step is a twin's."""
    envs, twin = pair
    with pytest.raises(error, match=message):
        envs.restore_states(*arguments(envs.capture_states()))
    actions = random_actions(envs, 20)
    assert_same(run(envs, actions), run(twin, actions))


def test_one_state_that_does_not_fit_keeps_all_others_out(pair):
    """In other workers, too: all are checked before any is put in place."""
    envs, twin = pair
    good, bad = envs.capture_states(), other_states(use_gravity=False, steps_per_episode=13)
    mixed = VectorState(
        good.tags[:3] + bad.tags[3:],
        good.rows[:3] + bad.rows[3:],
        {name: array.copy() for name, array in good.results.items()},
    )
    actions = random_actions(envs, 20)
    assert_same(run(envs, actions[:5]), run(twin, actions[:5]))
    with pytest.raises(ValueError, match=r"Environment 3: The state .*use_gravity=True"):
        envs.restore_states(mixed)
    assert_same(run(envs, actions[5:]), run(twin, actions[5:]))


def test_damaged_rows_keep_all_others_out(pair):
    """They are decoded before anything is put in place."""
    envs, twin = pair
    good = envs.capture_states()
    cut = VectorState(good.tags, (*good.rows[:3], good.rows[3][:-5]), dict(good.results))
    with pytest.raises(ValueError, match=r"Environment 3: .*no tree of plain values"):
        envs.restore_states(cut)
    actions = random_actions(envs, 20)
    assert_same(run(envs, actions), run(twin, actions))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: None, "expected its parts to be env, .*, got NoneType"),
        (lambda tree: {"env": tree["env"]}, "expected its parts to be env, .*, got env"),
        (lambda tree: tree | {"marks": 3}, "its part 'marks' is 3"),
        (lambda tree: tree | {"episode": [1]}, r"its part 'episode' is \[1\]"),
        (lambda tree: tree | {"env": {}}, "KeyError"),
    ],
)
def test_rows_that_are_no_states_keep_all_others_out(pair, change, message):
    """Even where the checksum is right."""
    envs, twin = pair
    good = envs.capture_states()
    odd = encode(change(decode(good.rows[3])))
    state = VectorState(good.tags, (*good.rows[:3], odd), dict(good.results))
    with pytest.raises(ValueError, match=rf"Environment 3: The state is damaged: .*{message}"):
        envs.restore_states(state)
    actions = random_actions(envs, 20)
    assert_same(run(envs, actions), run(twin, actions))


def test_another_autoreset_mode_is_refused(make):
    """What is pending in one mode has no meaning in another."""
    one = make([Stroll] * 2)
    two = make([Stroll] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    one.reset(seed=0)
    with pytest.raises(ValueError, match="autoreset mode: expected SameStep, got NextStep"):
        two.restore_states(one.capture_states())


def test_a_fork_takes_one_state(pair):
    """Which one, the caller has to say."""
    envs, _ = pair
    with pytest.raises(ValueError, match="state of one environment, got 4"):
        envs.fork(envs.capture_states())
    with pytest.raises(TypeError, match=r"fork takes a VectorState of one .*, got NoneType"):
        envs.fork(None)


def test_environments_that_are_not_supported_are_named(make_workers):
    """With the class, and the vector stays usable."""
    envs = make_workers([*strolls(2), partial(Walk, 2)], num_workers=2)
    envs.reset(seed=0)
    with pytest.raises(StateCaptureUnsupported, match=r"Environment 2: The state of Walk .*Define"):
        envs.capture_states()
    assert envs.capture_states([0, 1]).num_envs == 2
    envs.step(np.zeros((3, 2), np.float32))


def test_an_inner_class_is_named(make):
    """Its environments' states are its own business."""
    envs = make(strolls(2), num_workers=1, inner_env_cls=SyncVectorEnv)
    envs.reset(seed=0)
    with pytest.raises(StateCaptureUnsupported, match="SyncVectorEnv"):
        envs.capture_states()
    envs.step(np.zeros((2, 2), np.float32))


def test_nothing_is_captured_before_the_first_reset(make):
    """There is no state yet."""
    envs = make(strolls(2))
    with pytest.raises(ResetNeeded, match="Environment 0 was never reset"):
        envs.capture_states()
    envs.reset_envs([0])
    assert envs.capture_states([0]).num_envs == 1
    with pytest.raises(ResetNeeded, match="Environment 1"):
        envs.capture_states()


def test_states_and_calls_in_flight_do_not_mix(make):
    """Nor do states and a vector that is closed."""
    envs = make(strolls(2))
    envs.reset(seed=0)
    state = envs.capture_states()
    envs.step_async(np.zeros((2, 2), np.float32))
    for call in (
        envs.capture_states,
        partial(envs.restore_states, state),
        partial(envs.fork, state[0]),
        envs.state_dict,
        partial(envs.use_episode_bank, state),
    ):
        with pytest.raises(CallPending):
            call()
    envs.step_wait()
    envs.close()
    with pytest.raises(ClosedError):
        envs.capture_states()
    with pytest.raises(ClosedError):
        envs.restore_states(state)


def test_a_set_state_that_raises_leaves_its_environments_to_be_reset(make):
    """The vector stays usable, and no half restored environment is stepped."""
    envs = make([Stroll, Refusing, Stroll, Stroll], num_workers=2)
    envs.reset(seed=0)
    state = envs.capture_states()
    with pytest.raises(WorkerRaised, match=r"Environment 1 .* raised in restore_states: .*no"):
        envs.restore_states(state[[1, 2]], [1, 2])
    with pytest.raises(ResetNeeded, match="Environment 1 "):
        envs.step(np.zeros((4, 2), np.float32))
    with pytest.raises(ResetNeeded, match="Environment 1"):
        envs.capture_states()
    envs.reset_envs([1, 2])
    envs.step(np.zeros((4, 2), np.float32))


def test_results_of_another_shape_are_refused(pair):
    """They are no part of the states that workers check."""
    envs, twin = pair
    good = envs.capture_states()
    results = dict(good.results) | {"observation": np.zeros((4, 3), np.float32)}
    with pytest.raises(ValueError, match=r"last observation .*expected \(4,\) of float32.*\(3,\)"):
        envs.restore_states(VectorState(good.tags, good.rows, results))
    actions = random_actions(envs, 20)
    assert_same(run(envs, actions), run(twin, actions))


class Lingering(Stroll):
    """Takes its time to be restored."""

    def set_state(self, state):
        time.sleep(0.5)
        super().set_state(state)


def test_a_restore_that_was_interrupted_is_finished_by_reset(make_workers):
    """Ctrl-C leaves it in flight, and what comes after is as if it had come to its end."""
    envs = make_workers([Lingering] * 2, num_workers=2, reset_masks=True)
    before, _ = envs.reset(seed=0)
    state = envs.capture_states()
    run(envs, random_actions(envs, 2))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        envs.restore_states(state)
    timer.join()
    with pytest.raises(CallPending):
        envs.capture_states()
    with pytest.raises(ValueError, match="seed"):
        envs.reset(seed=-1)
    with pytest.raises(CallPending):  # a reset that is refused waits for nothing
        envs.capture_states()
    shown, _ = envs.reset(seed=5, options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(shown[1], before[1])
    assert envs.capture_states([1]) == state[[1]]


def test_none_at_all_is_fine(pair):
    """As for reset_envs."""
    envs, twin = pair
    nothing = envs.capture_states([])
    assert nothing.num_envs == 0
    envs.restore_states(nothing, [])
    envs.restore_states(VectorState.from_bytes(nothing.to_bytes()), [])
    actions = random_actions(envs, 10)
    assert_same(run(envs, actions), run(twin, actions))


# ── workers that die ────────────────────────────────────────────────────────────────────────────


class Fatal(Stroll):
    """Kills its worker when it is captured, if it is told to."""

    fatal = False

    def get_state(self):
        if self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().get_state()


def test_a_worker_that_dies_in_a_capture_is_restarted(make_workers):
    """The call fails, the vector goes on."""
    envs = make_workers([Fatal] * 4, num_workers=2, on_worker_failure="restart")
    envs.reset(seed=0)
    envs.call("__setattr__", "fatal", True, indices=[3])
    with pytest.raises(WorkerDied):
        envs.capture_states()
    result = envs.step(np.zeros((4, 2), np.float32))
    assert result.truncated.tolist() == [False, False, True, True]
    assert envs.capture_states().num_envs == 4


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_that_was_lost_and_not_told_of_goes_with_the_state(make_workers, mode):
    """It is told of where it is put."""
    arguments: dict[str, Any] = {"autoreset_mode": mode, "num_workers": 2}
    envs = make_workers(strolls(4), on_worker_failure="restart", **arguments)
    envs.reset(seed=0)
    actions = random_actions(envs, 30)
    before = run(envs, actions[:1])[-1]
    kill(envs, 1)
    envs.get_attr("tag", [0])  # restarts it
    state = envs.capture_states()
    expected = run(envs, actions[1:])
    assert expected[0].truncated[2:].all()
    other = make_workers(strolls(4), **arguments)
    observation, _ = other.restore_states(state)
    np.testing.assert_array_equal(observation, before.observation)
    assert_same(run(other, actions[1:]), expected)


def test_a_restart_goes_on_from_what_was_restored(make_workers):
    """Seeds and numbers of episodes are those of the state."""
    envs = [
        make_workers(strolls(2), num_workers=1, on_worker_failure="restart", episode_seeds=True)
        for _ in range(2)
    ]
    envs[0].reset(seed=3)
    actions = random_actions(envs[0], 40)
    run(envs[0], actions[:15])
    envs[1].restore_states(envs[0].capture_states())
    for each in envs:
        os.kill(each.worker_pids[0], signal.SIGKILL)
    assert_same(run(envs[1], actions[15:]), run(envs[0], actions[15:]))
