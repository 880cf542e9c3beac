"""Buffers in shared memory that workers write to themselves, and what becomes of them."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import resource
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

import superdex.envs  # its classes are looked up late: they load MuJoCo, and every worker would
from superdex.buffers import allocate
from superdex.errors import BrokenError, WorkerDied
from superdex.testing._equivalence import _same
from superdex.vector import BatchedStepResult, HybridVectorEnv
from superdex.vector._allocated import AllocatedBuffers
from superdex.vector._outputs import FIRST_ALLOCATED, Outputs
from tests.vector.envs import Fixed, OddInfos, walk_actions, walks
from tests.vector.rows import Run, faulty, kill_self
from tests.vector.test_restart import kill

pytestmark = pytest.mark.usefixtures("nothing_remains")

NO_ACTIONS = np.zeros((4, 1), np.float32)


def fixed(make, in_process: bool = True, **kwargs: Any):
    """Return a vector of four whose observations count the steps, reset."""
    envs = make([Fixed] * 4, num_workers=2, in_process=in_process, **kwargs)
    envs.reset()
    return envs


def descriptors() -> int:
    count: int = psutil.Process().num_fds()
    return count


@pytest.mark.parametrize("in_process", [True, False])
def test_they_are_aligned_zero_and_in_one_run_of_memory(make, in_process):
    """As the spec says, at multiples of 64 bytes, so that one registration pins a whole dict."""
    envs = fixed(make, in_process, autoreset_mode="SameStep")
    buffers = envs.allocate_buffers(3)
    assert len(buffers) == 3
    spans = []
    for arrays in buffers:
        assert [*arrays] == [*envs.batch_spec()]
        starts = {name: array.ctypes.data for name, array in arrays.items()}
        assert not any(start % 64 for start in starts.values())
        assert not any(array.any() for array in arrays.values())
        assert all(array.flags.writeable for array in arrays.values())
        ends = [starts[name] + array.nbytes for name, array in arrays.items()]
        spans.append((min(starts.values()), max(ends)))
        assert max(ends) - min(starts.values()) < 64 * 12 + sum(a.nbytes for a in arrays.values())
    spans.sort()
    assert all(one[1] <= two[0] for one, two in pairwise(spans))


def test_they_outlive_the_vector(make):
    """What the caller still holds after close stays as it is, and can be written to."""
    envs = make(walks(4), num_workers=2, in_process=False)
    first, second = envs.allocate_buffers()
    envs.reset_into(first, seed=1)
    copies = {name: array.copy() for name, array in first.items()}
    envs.close()
    del envs
    gc.collect()
    for name, array in copies.items():
        _same(first[name], array, name)
    second["observation"][:] = 3
    assert (second["observation"] == 3).all()


@pytest.mark.parametrize("in_process", [True, False])
def test_dropped_ones_are_given_back(make, in_process):
    """Again and again, written to or not: no descriptor and no mapping is left over."""
    envs = fixed(make, in_process)
    kept = envs.allocate_buffers(1)[0]
    workers = [psutil.Process(pid) for pid in envs.worker_pids]
    seen = []
    for number in range(50):
        for buffers in envs.allocate_buffers(1 + number % 2):
            if number % 3:
                envs.step_into(NO_ACTIONS, buffers)
        del buffers
        for _ in range(2):  # one brings the last results home, the next one gives back
            envs.step_into(NO_ACTIONS, kept) if number % 5 else envs.step(NO_ACTIONS)
        maps = [len(process.memory_maps(grouped=False)) for process in workers]
        seen.append((descriptors(), [process.num_fds() for process in workers], maps))
    assert seen[-1] == seen[10]
    assert len(envs._collector._buffers) == FIRST_ALLOCATED + 1


def test_the_last_results_are_kept_for_as_long_as_they_are_needed(make):
    """A buffer that was dropped right after a step still shows them."""
    envs = make(walks(4), num_workers=2, in_process=False)
    twin = make(walks(4), num_workers=2)
    envs.reset(seed=1)
    twin.reset(seed=1)
    for actions in walk_actions(10, 4):
        envs.step_into(actions, envs.allocate_buffers(1)[0])
        twin.step(actions)
        got, expected = envs.reset_envs([1]), twin.reset_envs([1])
        _same(got.observation, expected.observation, "observations after a drop")


def test_a_part_of_one_is_a_foreign_buffer(make):
    """With one array of another origin, results are copied, and are the same."""
    envs = fixed(make)
    one, two = envs.allocate_buffers()
    mixed = [
        {**one, "reward": np.zeros(4)},
        {**one, "reward": two["reward"]},
        {**one, "observation": one["observation"][:]},
        {**allocate(envs.batch_spec()), "observation": one["observation"]},
    ]
    for number, buffers in enumerate(mixed, 1):
        before = envs.statistics().copies
        envs.step_into(NO_ACTIONS, buffers)
        assert envs.statistics().copies == before + 5
        assert (buffers["observation"] == number).all()
    ids = {**one, "state_id": np.zeros(4, np.uint64)}
    before = envs.statistics().copies
    envs.step_into(NO_ACTIONS, ids)
    assert envs.statistics().copies == before  # the caller's process writes ids anyway


def test_those_of_another_vector_are_foreign(make):
    """Results are copied there."""
    envs, other = fixed(make), fixed(make)
    buffers = other.allocate_buffers(1)[0]
    envs.step_into(NO_ACTIONS, buffers)
    assert (buffers["observation"] == 1).all()
    assert envs.statistics().copies == 6  # that of the reset, too


def test_what_the_caller_writes_to_flags_is_gone_with_the_next_step(make):
    """Workers can't know of it, so they write them every time."""
    envs = fixed(make)
    buffers = envs.allocate_buffers(1)[0]
    for _ in range(3):
        for name in ("terminated", "truncated"):
            buffers[name][:] = True
        buffers["action_valid"][:] = False
        envs.step_into(NO_ACTIONS, buffers)
        assert not (buffers["terminated"] | buffers["truncated"]).any()
        assert buffers["action_valid"].all()


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2"])
def test_impossible_counts_are_refused(make, count):
    """As everywhere."""
    with pytest.raises(ValueError, match="count must be an integer of at least 1"):
        fixed(make).allocate_buffers(count)


def test_too_large_ones_are_refused(make_workers, monkeypatch):
    """MemoryError before the first touch; the vector goes on, and nothing is left over."""
    envs = make_workers([Fixed] * 4, 2)
    envs.reset()
    before = descriptors()
    monkeypatch.setattr("superdex._memory.available_memory", lambda: 10)
    with pytest.raises(MemoryError, match="needs a block"):
        envs.allocate_buffers()
    monkeypatch.undo()
    assert descriptors() == before
    buffers = envs.allocate_buffers(1)[0]
    envs.step_into(NO_ACTIONS, buffers)
    assert (buffers["observation"] == 1).all()


# ── restarts ────────────────────────────────────────────────────────────────────────────────────

restarts = pytest.mark.filterwarnings("ignore:Worker . .*is restarted:RuntimeWarning")


class Wide(OddInfos):
    """Observations too large to be joined before they are written."""

    def __init__(self, tag=0):
        super().__init__(tag)
        self.observation_space = Box(-np.inf, np.inf, (400,), np.float32)

    def observe(self):
        return np.resize(super().observe(), 400)


def stepping_into(envs: HybridVectorEnv, count: int) -> Callable[..., BatchedStepResult]:
    """Return a `step` that writes to allocated buffers in turn, and to none now and then."""
    handles = [envs.bind(buffers) for buffers in envs.allocate_buffers(count)]
    plain_step, turns = envs.step, itertools.count(1)

    def step(actions: np.ndarray) -> BatchedStepResult:
        turn = next(turns)
        if turn % 5 == 0:
            return plain_step(actions)
        handle = handles[turn % count]
        info = handle.step(actions)
        got = {name: array.copy() for name, array in handle.buffers.items()}
        ended = got["terminated"] | got["truncated"]
        if "final_observation" in got and ended.any():
            final = np.zeros_like(got["final_observation"])
            final[ended] = got["final_observation"][ended]
            info |= {"final_obs": final, "_final_obs": ended}
        return BatchedStepResult(
            got["observation"], got["reward"], got["terminated"], got["truncated"], info
        )

    return step


@restarts
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_others_never_notice_a_death(make_workers, monkeypatch, tmp_path, mode, count):
    """Restarted workers write to them as well, and lost rows show their last observation.

    Even where the dead worker had begun to write over it.
    """
    builds = [partial(Wide, tag) for tag in range(4)]
    env_fns = [*builds]
    env_fns[1] = faulty(builds[1], "step", kill_self, 7, tmp_path / "first")
    env_fns[2] = faulty(builds[2], "reset", kill_self, 3, tmp_path / "second")
    envs = make_workers(env_fns, 2, autoreset_mode=mode, on_worker_failure="restart")
    monkeypatch.setattr(envs, "step", stepping_into(envs, count))
    run = Run(envs, builds)
    run.reset(seed=3)
    run.run(walk_actions(40, 4))
    assert run.restarts == [1, 1]


def test_slots_are_told_of_nothing_else_after_them(make_workers):
    """Messages of slots go alone, whatever the last call for all workers was."""
    envs = make_workers([Fixed] * 4, 2, timeout=20)
    envs.reset()
    buffers = envs.allocate_buffers(1)[0]
    for _ in range(2):
        envs.reset_slots([3, 0], 1)
        envs.step_slots([3], NO_ACTIONS[:1])
    envs.step_into(NO_ACTIONS, buffers)
    assert buffers["observation"].tolist() == [[1], [1], [1], [2]]
    envs.reset()


def test_without_descriptors_they_are_refused(make_workers):
    """At whichever of those it takes the limit is reached, the vector goes on."""
    envs = make_workers([Fixed] * 4, 2)
    envs.reset()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in itertools.count():
        assert spare < 10, "some limit is enough"
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
        try:
            envs.allocate_buffers(1)
            break
        except OSError as error:
            assert error.errno == errno.EMFILE  # noqa: PT017  # one of the rounds goes well
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        envs.step_slots([0], NO_ACTIONS[:1])
        assert envs.step(NO_ACTIONS).observation[1].tolist() == [spare + 1]
    assert spare > 1


@restarts
def test_a_death_while_they_are_allocated_or_given_back(make_workers):
    """The new worker comes up with the buffers that there are."""
    envs = make_workers([Fixed] * 4, 2, on_worker_failure="restart")
    envs.reset()
    kept = envs.allocate_buffers(1)[0]
    for _ in range(2):
        kill(envs, 1)
        more = envs.allocate_buffers(2)
        kill(envs, 0)
        envs.step_into(NO_ACTIONS, more[1])
        assert more[1]["truncated"].tolist() == [True, True, True, True]
        assert not more[1]["action_valid"].any()
        del more
        kill(envs, 1)
        for _ in range(3):
            envs.step_into(NO_ACTIONS, kept)
        assert kept["observation"].tolist() == [[2], [2], [2], [2]]


def test_a_death_without_restarts_is_an_error(make_workers):
    """Everything is broken then, as in any other call."""
    envs = make_workers([Fixed] * 4, 2)
    envs.reset()
    kill(envs, 1)
    with pytest.raises(WorkerDied, match="allocate_buffers"):
        envs.allocate_buffers()
    with pytest.raises(BrokenError):
        envs.allocate_buffers()


@pytest.mark.filterwarnings("ignore:Environment . raised:RuntimeWarning")
@pytest.mark.parametrize("num_envs", [2, 6])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_error_leaves_the_last_observation_where_it_is(make, mode, num_envs):
    """Of environments stepped one by one and at once: the episode ends with it."""
    env_fns = [partial(superdex.envs.CartPoleEnv, {"render_mode": None})] * num_envs
    envs = make(env_fns, num_workers=1, autoreset_mode=mode, on_env_error="truncate")
    (buffers,) = envs.allocate_buffers(1)
    handle = envs.bind(buffers)
    handle.reset(seed=1)
    assert envs.statistics().steps_at_once == (num_envs == 6,)
    actions = np.full(envs.action_space.shape, 0.3, np.float32)
    for _ in range(3):
        handle.step(actions)
    last = buffers["observation"].copy()
    actions[1] = np.nan
    handle.step(actions)
    same_step = mode is AutoresetMode.SAME_STEP
    shown = buffers["final_observation" if same_step else "observation"]
    _same(shown[1], last[1], "last observation")
    assert (buffers["observation"][0] != last[0]).any()
    assert buffers["truncated"].tolist() == [row == 1 for row in range(num_envs)]
    assert buffers["action_valid"].tolist() == [row != 1 for row in range(num_envs)]


# ── the books ───────────────────────────────────────────────────────────────────────────────────


def arrays_of(count: int = 2) -> dict[str, np.ndarray]:
    return {"observation": np.zeros(count), "reward": np.zeros(count), "env_id": np.zeros(count)}


def test_numbers_are_used_again():
    """The lowest that is free, so that there are never more than there were buffers at once."""
    known = AllocatedBuffers(3, ("observation", "reward"))
    held = {}
    for expected in (3, 4, 5):
        number = known.new_number()
        assert number == expected
        held[number] = arrays_of()
        known.add(number, held[number])
    del held[4]
    gc.collect()
    assert known.forget_dropped(in_use=[4]) == []
    assert known.forget_dropped(in_use=[0]) == [4]
    assert known.dropped == []
    assert known.new_number() == 4


def test_a_buffer_is_dropped_with_its_first_array():
    """Nobody can pass it as a whole any more; what workers don't write makes no difference."""
    known = AllocatedBuffers(3, ("observation", "reward"))
    arrays = arrays_of()
    known.add(known.new_number(), arrays)
    assert known.find(arrays) == 3
    del arrays["env_id"]
    assert known.find(arrays) == 3
    assert known.dropped == []
    arrays["reward"] = np.zeros(2)
    assert known.dropped == [3]
    assert known.find(arrays) is None
    assert known.find(arrays_of()) is None


@pytest.mark.parametrize("in_process", [True, False])
def test_slots_written_to_parts_of_one_leave_other_rows_as_they_were(make, in_process):
    """Though those parts hold the last results of other rows, which rest."""
    envs = fixed(make, in_process)
    (buffers,) = envs.allocate_buffers(1)
    for _ in range(3):
        envs.step_into(NO_ACTIONS, buffers)
    before = envs.observe_slots(range(4))
    half = {name: array[:2] for name, array in buffers.items()}
    ticket = envs.submit_slots([1], NO_ACTIONS[:1])
    envs.step_slots_into([2, 0], NO_ACTIONS[:2], half)
    assert half["env_id"].tolist() == [2, 0]
    envs.wait_slots(ticket)
    resting, moved = envs.observe_slots([3]), envs.observe_slots([0, 1, 2])
    assert resting.observation.tobytes() == before.observation[3:].tobytes()
    assert (moved.observation == before.observation[:3] + 1).all()
    shown = envs.reset_envs([0]).observation
    assert shown[1:].tobytes() == envs.observe_slots([1, 2, 3]).observation.tobytes()
    assert shown[3:].tobytes() == before.observation[3:].tobytes()


def test_all_rows_of_one_can_be_read_into_it_in_another_order(make):
    """Which does not change what the rows show afterwards."""
    envs = make(walks(4), num_workers=2)
    (buffers,) = envs.allocate_buffers(1)
    envs.reset_into(buffers, seed=1)
    before = buffers["observation"].copy()
    for _ in range(2):
        envs.observe_slots_into([3, 2, 1, 0], buffers)
        assert np.array_equal(buffers["observation"], before[::-1])
    assert np.array_equal(envs.observe_slots(range(4)).observation, before)


def make_outputs() -> tuple[Outputs, dict[str, np.ndarray]]:
    names = ("observation", "reward", "terminated", "truncated", "autoreset", "action_valid")
    arrays: dict[str, np.ndarray] = {name: np.zeros((3, 4)) for name in names}
    for name in ("terminated", "truncated", "autoreset", "action_valid"):
        arrays[name] = arrays[name].astype(bool)
    for buffer in range(3):
        arrays["observation"][buffer] = 10 * buffer + np.arange(4)
    arrays["home"] = np.zeros(4, np.int16)
    return Outputs(arrays), arrays


@pytest.mark.parametrize("rows", [None, [3, 1], [0], []])
def test_results_are_gathered_from_where_they_are(rows):
    """Each row's from its own buffer, in the order asked for; one copy of each array."""
    outputs, arrays = make_outputs()
    extra = {name: array[0].copy() for name, array in arrays.items() if name != "home"}
    extra["observation"] = 30 + np.arange(4.0)
    outputs.add(FIRST_ALLOCATED, extra)
    chosen = None if rows is None else np.array(rows, np.intp)
    which = range(4) if rows is None else rows
    buffers = {k: np.ones(len(which), v.dtype) for k, v in extra.items() if k != "autoreset"}
    for number in (1, FIRST_ALLOCATED):
        outputs.note(number)
        outputs.write(chosen, buffers)
        assert buffers["observation"].tolist() == [10 * number + row for row in which]
    outputs.note_rows(np.array([1, 2]))
    before = outputs.copies
    outputs.write(chosen, buffers)
    expected = [(20 if row in (1, 2) else 30) + row for row in which]
    assert buffers["observation"].tolist() == expected
    assert outputs.copies == before + 5
    assert outputs.in_use() == [2, FIRST_ALLOCATED]


def test_a_buffer_that_is_gone_was_nobodys_home():
    """Its number is free for another one."""
    outputs, _ = make_outputs()
    outputs.add(3, {"observation": np.ones(4), "autoreset": np.ones(4, bool)})
    outputs.note(3)
    assert outputs.in_use() == [3]
    assert outputs.autoreset_mask().all()
    outputs.note(1)
    assert outputs.in_use() == [1]
    outputs.remove(3)
    with pytest.raises(KeyError):
        outputs[3]
