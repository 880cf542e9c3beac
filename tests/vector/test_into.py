"""Calls that write to the caller's buffers give what `step` and `reset` give."""

from __future__ import annotations

import pickle
import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from superdex.buffers import ArraySpec, allocate
from superdex.envs import CartPoleEnv
from superdex.errors import CallPending, CallTimeout, ClosedError, ResetNeeded, StaleStateError
from superdex.testing import row_info
from superdex.testing._equivalence import _same
from superdex.vector import HybridVectorEnv
from tests.buffers.arrays import FAULTS, digest, with_fault
from tests.vector.envs import Acting, Fixed, OddInfos, walk_actions, walks
from tests.vector.test_timeouts import Gated

MODES = list(AutoresetMode)
WAYS = ["foreign", "bound", "allocated", "bound and allocated", "checked"]


class Into:
    """Steps a vector into buffers in one of several ways."""

    def __init__(self, envs: HybridVectorEnv, way: str) -> None:
        self.envs, self.way = envs, way
        if "allocated" in way:
            self.all_buffers = list(envs.allocate_buffers(2))
        else:
            self.all_buffers = [allocate(envs.batch_spec()) for _ in range(2)]
        self.handles = [envs.bind(buffers) for buffers in self.all_buffers]
        self.turn = 0

    def _next(self) -> dict[str, np.ndarray]:
        self.turn = 1 - self.turn
        self.buffers = self.all_buffers[self.turn]
        return self.buffers

    def reset(self, **arguments: Any) -> Any:
        buffers = self._next()
        if "bound" in self.way:
            return self.handles[self.turn].reset(**arguments)
        return self.envs.reset_into(buffers, **arguments)

    def step(self, actions: np.ndarray) -> Any:
        buffers = self._next()
        if "bound" in self.way:
            return self.handles[self.turn].step(actions)
        if self.way == "checked":
            return self.envs.step_into_checked(actions, self.envs.state_ids, buffers)
        return self.envs.step_into(actions, buffers)


def _same_infos(got: Any, expected: Any, what: str) -> None:
    """Compare infos as each environment gave them."""
    assert got.keys() == expected.keys(), what
    for row in range(4):
        _same(row_info(got, row), row_info(expected, row), f"{what}, row {row}")


def odd(count: int) -> list[Any]:
    """Return functions for walks with everything that infos can hold."""
    return [partial(OddInfos, tag) for tag in range(count)]


def assert_equal_rollouts(one: HybridVectorEnv, two: HybridVectorEnv, way: str, steps: int = 25):
    """Step one with `step` and the other into buffers, and compare all that comes back."""
    into = Into(two, way)
    same_step = "final_observation" in two.batch_spec()
    observation, expected_info = one.reset(seed=3)
    info = into.reset(seed=3)
    _same(into.buffers["observation"], observation, "reset")
    _same_infos(info, expected_info, "reset's info")
    assert not into.buffers["reward"].any()
    assert not into.buffers["action_valid"].any()
    disabled = one.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    previous = {name: array.copy() for name, array in into.buffers.items()}
    for number, actions in enumerate(walk_actions(steps, one.num_envs)):
        expected = one.step(actions)
        info = into.step(actions)
        buffers = into.buffers
        final, has_final = expected.info.pop("final_obs", None), expected.info.pop("_final_obs", 0)
        for name in ("observation", "reward", "terminated", "truncated"):
            _same(buffers[name], getattr(expected, name), f"{name} of step {number}")
        _same_infos(info, expected.info, f"info of step {number}")
        if same_step and final is not None:
            _same(buffers["final_observation"][has_final], final[has_final], "final")
        _same(buffers["action"], actions, "action")
        ignored = one.autoreset_mask & (not same_step)
        assert buffers["action_valid"].tolist() == (~ignored).tolist()
        assert two.autoreset_mask.tolist() == one.autoreset_mask.tolist()
        assert buffers["env_id"].tolist() == list(range(one.num_envs))
        assert buffers["state_id"].tolist() == two.state_ids.tolist()
        assert not set(buffers["state_id"].tolist()) & set(previous["state_id"].tolist())
        began = buffers["episode_id"] != previous["episode_id"]
        assert began.tolist() == one.autoreset_mask.tolist()
        previous = {name: array.copy() for name, array in buffers.items()}
        if disabled and (ended := expected.terminated | expected.truncated).any():
            observation, expected_info = one.reset_envs(ended)
            again, info = two.reset_envs(ended)
            _same(again, observation, "reset of some")
            _same_infos(info, expected_info, "its info")
            previous["episode_id"] = two.episode_ids


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
def test_buffers_get_what_step_returns(make, mode, way):
    """Whichever way, bit for bit, infos included; through ends of episodes of every kind."""
    one, two = (make(odd(4), num_workers=2, autoreset_mode=mode) for _ in range(2))
    assert_equal_rollouts(one, two, way)


@pytest.mark.usefixtures("nothing_remains")
@pytest.mark.parametrize("mode", MODES)
def test_workers_do_the_same(make_workers, make, mode):
    """In processes: into foreign buffers and allocated ones."""
    for way in ("foreign", "bound and allocated"):
        one = make(odd(4), num_workers=2, autoreset_mode=mode)
        assert_equal_rollouts(one, make_workers(odd(4), 2, autoreset_mode=mode), way)


@pytest.mark.parametrize("way", ["foreign", "allocated"])
def test_environments_stepped_at_once_do_the_same(make, way):
    """Hooks written for arrays write straight to the buffer, too."""
    env_fns = [partial(CartPoleEnv, {"render_mode": None})] * 6
    one, two = (make(env_fns, num_workers=1, autoreset_mode="SameStep") for _ in range(2))
    into = Into(two, way)
    one.reset(seed=1)
    into.reset(seed=1)
    assert two.statistics().steps_at_once == (True,)
    for _ in range(60):
        actions = one.action_space.sample()
        expected = one.step(actions)
        into.step(actions)
        _same(into.buffers["observation"], expected.observation, "observation")
        _same(into.buffers["truncated"], expected.truncated, "truncated")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_inner_class_does_the_same(make, mode):
    """Its rows say which actions were applied, and their episodes are counted."""
    arguments = {"num_workers": 2, "autoreset_mode": mode}
    one = make(walks(4), **arguments)
    two = make(walks(4), inner_env_cls=SyncVectorEnv, **arguments)
    assert_equal_rollouts(one, two, "allocated")


@pytest.mark.parametrize("way", ["foreign", "allocated"])
def test_calls_can_be_mixed(make, way):
    """Steps, resets of some and calls into buffers, in any order, on one vector."""
    one, two = (make(odd(4), num_workers=2) for _ in range(2))
    into = Into(two, way)
    one.reset(seed=1)
    two.reset(seed=1)
    for number, actions in enumerate(walk_actions(40, 4)):
        if number % 5 == 3:
            got, expected = two.reset_envs([number % 4]), one.reset_envs([number % 4])
            _same(got.observation, expected.observation, "reset_envs")
            _same_infos(got.info, expected.info, "info of reset_envs")
        result = one.step(actions)
        if number % 3:
            into.step(actions)
            _same(into.buffers["observation"], result.observation, "step_into")
        else:
            _same(two.step(actions).observation, result.observation, "step")
        if number % 7 == 0:
            assert two.get_attr("position") == one.get_attr("position")


def test_views_of_earlier_steps_stay_whole(make):
    """With copy=False they are valid until the next but one `step`, whatever is stepped between."""
    envs = make(walks(4), num_workers=2, copy=False)
    handle = envs.bind(envs.allocate_buffers(1)[0])
    envs.reset(seed=1)
    actions = iter(walk_actions(30, 4))
    for _ in range(5):
        result = envs.step(next(actions))
        kept = result.observation.copy(), pickle.dumps(result.info)
        handle.step(next(actions))
        assert (result.observation == kept[0]).all()
        assert pickle.dumps(result.info) == kept[1]
        handle.step(next(actions))
        handle.step(next(actions))
        assert (result.observation == kept[0]).all()


def test_a_reset_mask_writes_the_rows_that_are_not_reset(make):
    """They show their last observation, into buffers as well."""
    envs = make(walks(4), num_workers=2, reset_masks=True)
    for buffers in (allocate(envs.batch_spec()), envs.allocate_buffers(1)[0]):
        envs.reset(seed=1)
        last = envs.step(walk_actions(1, 4)[0]).observation
        mask = np.array([True, False, False, True])
        envs.reset_into(buffers, seed=9, options={"reset_mask": mask})
        _same(buffers["observation"][1:3], last[1:3], "rows at rest")
        assert not (buffers["observation"][[0, 3]] == last[[0, 3]]).any(axis=1).all()


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def world(envs: HybridVectorEnv) -> dict[str, Any]:
    """Return what a refused call must leave as it is."""
    positions = np.array(envs.get_attr("position"))
    return {"positions": positions, "state": envs.state_ids, "episodes": envs.episode_ids}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_every_key_is_checked_before_anything_moves(make, mode):
    """Each fault of each key is named, nothing changes, and a twin goes the same way."""
    envs, twin = (make(walks(4), num_workers=2, autoreset_mode=mode) for _ in range(2))
    envs.reset(seed=1)
    twin.reset(seed=1)
    actions = walk_actions(1, 4)[0]
    spec = envs.batch_spec()
    before = digest(world(envs))
    for name in spec:
        for fault in FAULTS:
            aligned = fault == "aligned" and spec[name].dtype.itemsize == 1
            if aligned or (name, fault) == ("action", "missing"):
                continue
            buffers: dict[str, Any] = allocate(spec)
            if fault == "missing":
                del buffers[name]
            else:
                buffers[name] = with_fault(spec[name], fault)
            untouched = digest({k: v for k, v in buffers.items() if isinstance(v, np.ndarray)})
            for call in (
                partial(envs.step_into, actions, buffers),
                partial(envs.step_into_checked, actions, envs.state_ids, buffers),
                partial(envs.reset_into, buffers, seed=1),
                partial(envs.bind, buffers),
            ):
                with pytest.raises(ValueError, match=rf"buffers\['{name}'\] must be .*, got "):
                    call()
            arrays = {k: v for k, v in buffers.items() if isinstance(v, np.ndarray)}
            assert digest(arrays) == untouched
    assert digest(world(envs)) == before
    _same(envs.step(actions).observation, twin.step(actions).observation, "the next step")


@pytest.mark.parametrize("way", ["foreign", "allocated"])
def test_refused_actions_and_ids_leave_everything_as_it_was(make, way):
    """Buffers and environments byte for byte; the next step equals that of a twin."""
    envs, twin = (make(walks(4), num_workers=2) for _ in range(2))
    into = Into(envs, way)
    into.reset(seed=1)
    twin.reset(seed=1)
    stale = envs.state_ids
    actions = iter(walk_actions(9, 4))
    first = next(actions)
    into.step(first)
    twin.step(first)
    one_stale = envs.state_ids
    one_stale[2] = stale[2]
    batch = next(actions)
    foreign = twin.state_ids
    before = digest(world(envs)), [digest(b) for b in into.all_buffers]
    for wrong, error in (
        ((batch[:3], envs.state_ids), ValueError),
        ((batch.astype(np.complex64), envs.state_ids), ValueError),
        ((batch.tolist(), envs.state_ids), ValueError),
        ((batch, one_stale), StaleStateError),
        ((batch, foreign), StaleStateError),
        ((batch, one_stale.astype(float)), ValueError),
        ((batch, one_stale[:2]), ValueError),
    ):
        with pytest.raises(error):
            envs.step_into_checked(*wrong, into.buffers)
        with pytest.raises(error):
            into.handles[0].step_checked(*wrong)
        with pytest.raises(error):
            envs.step_checked(*wrong)
    assert (digest(world(envs)), [digest(b) for b in into.all_buffers]) == before
    result = envs.step_checked(batch, envs.state_ids)
    _same(result.observation, twin.step(batch).observation, "the next step")


def test_one_stale_row_is_named(make):
    """A row that was reset by itself has moved on; the others have not."""
    envs = make(walks(4), num_workers=2)
    envs.reset(seed=1)
    ids = envs.state_ids
    envs.reset_envs([2])
    with pytest.raises(StaleStateError, match="environment 2 ") as caught:
        envs.step_checked(walk_actions(1, 4)[0], ids)
    assert caught.value.rows == (2,)


def test_every_step_and_reset_gives_new_state_ids(make):
    """Also where the caller never looks at them in between."""
    envs = make(walks(3), num_workers=2)
    seen: set[int] = set()
    actions = iter(walk_actions(9, 3))
    for move in (envs.reset, envs.reset, partial(envs.step, next(actions))):
        move()
        new = set(envs.state_ids.tolist())
        assert len(new) == 3
        assert not new & seen
        seen |= new
    envs.step_async(next(actions))
    envs.step_wait()
    assert not set(envs.state_ids.tolist()) & seen


def test_rows_that_were_reset_show_no_action(make):
    """None led to what they show; other rows keep theirs."""
    envs = make([CartPoleEnv] * 3, num_workers=1)
    buffers = allocate(envs.batch_spec())
    envs.reset(seed=1)
    state = envs.capture_states([0])

    def rows_with_action() -> list[bool]:
        envs.observe_slots_into(range(3), buffers)
        rows: list[bool] = buffers["action"].any(axis=1).tolist()
        return rows

    for reset, rows in (
        (partial(envs.reset_envs, [1]), [0, 2]),
        (partial(envs.reset_slots, [2, 0]), [1]),
        (partial(envs.restore_states, state, [1]), [0, 2]),
        (partial(envs.reset_into, buffers), []),
    ):
        envs.step_into(np.ones_like(buffers["action"]), buffers)
        assert rows_with_action() == [True] * 3
        reset()
        assert rows_with_action() == [row in rows for row in range(3)]


def test_finished_environments_are_refused_with_disabled(make):
    """As `step` refuses them, before a buffer is touched."""
    envs = make([partial(Fixed, length=n) for n in (1, 9)], autoreset_mode="Disabled")
    buffers = allocate(envs.batch_spec())
    with pytest.raises(ResetNeeded, match="before the first reset"):
        envs.step_into(np.zeros((2, 1), np.float32), buffers)
    envs.reset_into(buffers)
    envs.step_into(np.zeros((2, 1), np.float32), buffers)
    before = digest(buffers)
    handle = envs.bind(buffers)
    for call in (partial(envs.step_into, buffers=buffers), handle.step):
        with pytest.raises(ResetNeeded, match="Environment 0 has finished"):
            call(np.zeros((2, 1), np.float32))
    assert digest(buffers) == before


def test_calls_into_buffers_wait_for_their_turn(make_workers, tmp_path):
    """While a step is in flight they are refused; what took too long is waited for as a step."""
    gates = [tmp_path / "a", tmp_path / "b"]
    envs = make_workers([partial(Gated, gate) for gate in gates], timeout=0.01)
    envs.reset_async(seed=1)
    envs.reset_wait(timeout=30)
    actions = np.ones((2, 1), np.float32)
    foreign, (allocated,) = allocate(envs.batch_spec()), envs.allocate_buffers(1)
    for buffers in (foreign, allocated):
        before = digest(foreign)
        with pytest.raises(CallTimeout):
            envs.step_into(actions, buffers)
        for call in (
            partial(envs.step_into, actions, buffers),
            partial(envs.reset_into, buffers),
            partial(envs.bind, buffers),
            envs.allocate_buffers,
            lambda: envs.state_ids,
        ):
            with pytest.raises(CallPending):
                call()
        for gate in gates:
            gate.touch()
        result = envs.step_wait(timeout=30)
        for gate in gates:
            gate.unlink()
        assert digest(foreign) == before
        assert (result.observation == allocated["observation"]).all() == (buffers is allocated)


def test_actions_of_another_dtype_are_cast_as_in_step(make):
    """The buffer gets them as they were applied."""
    envs = make(walks(2))
    buffers = allocate(envs.batch_spec())
    envs.reset_into(buffers, seed=1)
    envs.step_into(np.full((2, 2), 1 / 3), buffers)
    assert (buffers["action"] == np.float32(1 / 3)).all()


@pytest.mark.parametrize("in_process", [True, False])
def test_actions_may_lie_in_the_buffer_that_is_written(make, in_process):
    """In its observations and its actions, foreign or allocated."""
    envs, twin = (make(walks(3), num_workers=2, in_process=i) for i in (in_process, True))
    for buffers in (allocate(envs.batch_spec()), envs.allocate_buffers(1)[0]):
        observation = twin.reset(seed=1).observation
        envs.reset_into(buffers, seed=1)
        for _ in range(5):
            expected = twin.step(np.clip(observation[:, :2], -1, 1).copy())
            np.clip(buffers["observation"], -1, 1, out=buffers["observation"])
            envs.step_into(buffers["observation"][:, :2], buffers)
            observation = expected.observation
            _same(buffers["observation"], observation, "observation")
            expected = twin.step(buffers["action"].copy())
            envs.step_into(buffers["action"], buffers)
            observation = expected.observation
            _same(buffers["observation"], observation, "observation")


# ── the spec ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
def test_the_spec_says_what_a_batch_is(make, mode):
    """Shapes, dtypes and order of keys; final observations with SAME_STEP only."""
    env_fns = [partial(Fixed, shape=(2, 3), dtype=np.uint8)] * 4
    spec = make(env_fns, num_workers=2, autoreset_mode=mode).batch_spec()
    expected = {
        "observation": ((4, 2, 3), np.uint8),
        "action": ((4, 1), np.float32),
        "reward": ((4,), np.float64),
        "terminated": ((4,), np.bool_),
        "truncated": ((4,), np.bool_),
        "final_observation": ((4, 2, 3), np.uint8),
        "action_valid": ((4,), np.bool_),
        "env_id": ((4,), np.int32),
        "state_id": ((4,), np.uint64),
        "episode_id": ((4,), np.uint64),
    }
    if mode is not AutoresetMode.SAME_STEP:
        del expected["final_observation"]
    assert [*spec] == [*expected]
    assert spec == {k: ArraySpec(shape, np.dtype(dtype)) for k, (shape, dtype) in expected.items()}
    spec.clear()  # the caller's own


def test_buffers_that_were_pickled_are_good_buffers(make):
    """Their dtypes are other objects, and equal."""
    envs = make(walks(2))
    buffers = pickle.loads(pickle.dumps(allocate(envs.batch_spec())))
    envs.reset_into(buffers, seed=1)
    assert buffers["observation"].any()


# ── what it costs ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("in_process", [True, False])
def test_foreign_buffers_cost_one_copy_of_each_array_and_allocated_ones_none(make, in_process):
    """As the statistics say; infos of numbers in columns left aside."""
    envs = make([partial(Fixed, length=10**6)] * 4, num_workers=2, in_process=in_process)
    foreign, (allocated,) = allocate(envs.batch_spec()), envs.allocate_buffers(1)
    handle = envs.bind(allocated)
    envs.reset()
    actions = np.zeros((4, 1), np.float32)
    written = ("observation", "reward", "terminated", "truncated", "action_valid")
    nbytes = sum(foreign[name].nbytes for name in written)
    for call, copies in (
        (partial(envs.step_into, actions, foreign), 5),
        (partial(envs.bind(foreign).step, actions), 5),
        (partial(envs.reset_into, foreign), 5),
        (partial(envs.step_into, actions, allocated), 0),
        (partial(handle.step, actions), 0),
        (partial(envs.reset_into, allocated), 0),
    ):
        before = envs.statistics()
        call()
        after = envs.statistics()
        assert after.copies - before.copies == copies
        assert after.bytes_copied - before.bytes_copied == (nbytes if copies else 0)


def test_final_observations_are_copied_where_there_are_any(make):
    """One copy more, in those steps alone."""
    envs = make([partial(Fixed, length=3)] * 2, autoreset_mode="SameStep")
    foreign, (allocated,) = allocate(envs.batch_spec()), envs.allocate_buffers(1)
    envs.reset()
    seen = []
    for number in range(6):
        before = envs.statistics().copies
        envs.step_into(np.zeros((2, 1), np.float32), foreign if number < 3 else allocated)
        seen.append(envs.statistics().copies - before)
    assert seen == [5, 5, 6, 0, 0, 0]
    assert foreign["final_observation"].ravel().tolist() == [3, 3]
    assert allocated["final_observation"].ravel().tolist() == [3, 3]


class Still(Fixed):
    """Observes one array that was made once."""

    def __init__(self):
        super().__init__(shape=(1000,))
        self.observation = np.zeros(1000, np.float32)
        self.action_space = Box(-1, 1, (1000,), np.float32)

    def observe(self):
        return self.observation


def test_a_bound_step_allocates_nothing_of_the_batchs_size(make_workers):
    """Neither into foreign buffers nor into allocated ones, in the caller's process."""
    envs = make_workers([Still] * 64, num_workers=1)
    actions = np.zeros((64, 1000), np.float32)
    envs.reset()
    for buffers in (allocate(envs.batch_spec()), envs.allocate_buffers(1)[0]):
        handle = envs.bind(buffers)
        handle.step(actions)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            handle.step(actions)
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert peak < buffers["observation"].nbytes / 20


def test_everything_is_refused_after_close(make):
    """By name; handles too."""
    envs = make(walks(2))
    buffers = allocate(envs.batch_spec())
    envs.reset_into(buffers)
    handle = envs.bind(buffers)
    envs.close()
    actions = walk_actions(1, 2)[0]
    for call in (
        partial(envs.step_into, actions, buffers),
        partial(envs.reset_into, buffers),
        partial(envs.step_checked, actions, buffers["state_id"]),
        partial(envs.bind, buffers),
        partial(handle.step, actions),
        handle.reset,
        partial(envs.allocate_buffers, 1),
        lambda: envs.state_ids,
        lambda: envs.episode_ids,
        envs.batch_spec,
        partial(envs.slot_batch_spec, 1),
        partial(envs.slot_partitions, 1),
    ):
        with pytest.raises(ClosedError):
            call()


def test_an_environment_that_raises_leaves_foreign_buffers_as_they_were(make):
    """Results are written when all of them are there."""
    envs = make([partial(Acting, "step", lambda: 1 / 0, after) for after in (5, 1)])
    buffers = allocate(envs.batch_spec())
    envs.reset_into(buffers)
    envs.step_into(walk_actions(1, 2)[0], buffers)
    before = digest(buffers)
    with pytest.raises(Exception, match="division by zero"):
        envs.step_into(walk_actions(1, 2)[0], buffers)
    assert digest(buffers) == before
