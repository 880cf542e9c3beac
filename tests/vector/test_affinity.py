"""On which CPUs workers run."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superdex.vector import HybridVectorEnv
from superdex.vector._affinity import checked_affinity, running_on, spread_order
from tests.vector.envs import Walk

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system has no affinity"
)

HERE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
FIRST, LAST = HERE[0], HERE[-1]
ITERATOR = pytest.param(iter([1]), id="iterator")
"""Named, since its repr is another one in each run."""


@pytest.fixture
def eight_cpus(monkeypatch):
    """Let this process use CPUs 0 to 7 and 12."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {*range(8), 12})


def cores(tmp_path, siblings: dict[int, str], name: str = "core_cpus_list"):
    """Describe CPUs as the system does."""
    for cpu, text in siblings.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    return tmp_path


# ── what may be passed ──────────────────────────────────────────────────────────────────────────


def test_none_leaves_workers_where_they_are():
    """The system decides by default."""
    assert checked_affinity(None, 3) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([3], [{3}]),
        ([3, 5], [{3}, {5}]),
        ((3, 5), [{3}, {5}]),
        (range(2), [{0}, {1}]),
        ([[0, 1], [2, 3]], [{0, 1}, {2, 3}]),
        ([{0, 1}, frozenset([12])], [{0, 1}, {12}]),
        ([range(4), 5], [{0, 1, 2, 3}, {5}]),
        (np.array([3, 5]), [{3}, {5}]),
        (np.array([[0, 1], [2, 3]]), [{0, 1}, {2, 3}]),
        ([np.int64(3), np.array([4, 5])], [{3}, {4, 5}]),
        ([1, 1], [{1}, {1}]),
        ([[1, 1]], [{1}]),
    ],
    ids=str,
)
def test_entries_are_a_cpu_or_a_collection_of_them(eight_cpus, given, expected):
    """In whichever kind of list, as plain integers."""
    found = checked_affinity(given, len(expected))
    assert found is not None
    assert [set(cpus) for cpus in found] == expected
    assert all(type(cpu) is int for cpus in found for cpu in cpus)


def test_workers_take_entries_in_turn(eight_cpus):
    """Worker w gets entry w mod their number; entries that are left over go to nobody."""
    found = checked_affinity([3, [4, 5]], 5)
    assert found == ({3}, {4, 5}, {3}, {4, 5}, {3})
    assert checked_affinity([3, 4, 5], 2) == ({3}, {4})


@pytest.mark.parametrize(
    "given",
    ["Spread", "", "0", b"01", 3, 1.5, True, {0, 1}, {0: 1}, np.array(3), object, ITERATOR],
    ids=repr,
)
def test_anything_but_a_list_is_refused_with_what_is_expected(given):
    """Sets have no order in which workers could take them."""
    with pytest.raises(ValueError, match=r"must be None, 'spread' or a list whose .*, got "):
        checked_affinity(given, 2)


@pytest.mark.parametrize("given", [[], (), np.array([], int)], ids=repr)
def test_an_empty_list_is_refused(eight_cpus, given):
    """The message says which CPUs there are."""
    with pytest.raises(ValueError, match=r"worker_affinity is empty.* CPUs 0-7, 12\."):
        checked_affinity(given, 2)


@pytest.mark.parametrize("entry", [[], set(), np.array([], int)], ids=repr)
def test_an_empty_entry_is_refused_by_name(eight_cpus, entry):
    """A worker must run somewhere."""
    with pytest.raises(ValueError, match=r"worker_affinity\[1\] is empty.*usable are 0-7, 12\."):
        checked_affinity([0, entry], 2)


@pytest.mark.parametrize(
    "entry",
    [-1, True, np.True_, 1.0, "1", None, [0, -1], [False], ["1"], [[0]], {0: 1}, ITERATOR],
    ids=repr,
)
def test_what_is_no_cpu_is_refused_by_name(eight_cpus, entry):
    """Negative numbers, bools, floats and texts are no CPUs."""
    with pytest.raises(ValueError, match=r"worker_affinity\[1\] must be a CPU, .* got "):
        checked_affinity([0, entry], 2)


@pytest.mark.parametrize("entry", [8, [0, 8], np.int32(8)], ids=repr)
def test_an_unusable_cpu_is_refused_with_those_that_are(eight_cpus, entry):
    """Whether it does not exist or is not ours; entries that no worker takes are checked too."""
    with pytest.raises(ValueError, match=r"\[1\] names CPU 8, .*usable are 0-7, 12\."):
        checked_affinity([0, entry], 1)


def test_a_system_without_affinity_is_an_error_only_where_it_is_asked_for(monkeypatch):
    """It is named."""
    monkeypatch.delattr(os, "sched_setaffinity")
    assert checked_affinity(None, 2) is None
    with pytest.raises(NotImplementedError, match=f"which {sys.platform} does not have"):
        checked_affinity("spread", 2)


# ── spread ──────────────────────────────────────────────────────────────────────────────────────


def test_spread_uses_every_usable_cpu_before_one_twice(eight_cpus):
    """Workers are dealt out once around, then again."""
    found = checked_affinity("spread", 20)
    assert found is not None
    assert all(len(cpus) == 1 for cpus in found)
    assert set().union(*found[:9]) == {*range(8), 12}
    assert found[9:18] == found[:9]
    assert found[18:] == found[:2]


def test_physical_cores_come_before_their_second_threads(tmp_path):
    """With neighbours as siblings: 0 and 1 share a core."""
    topology = cores(tmp_path, {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    assert spread_order(range(4), topology) == [0, 2, 1, 3]


def test_siblings_far_apart_are_known_too(tmp_path):
    """With halves as siblings: 0 and 2 share a core; the file has its older name."""
    topology = cores(tmp_path, {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, "thread_siblings_list")
    assert spread_order([3, 2, 1, 0], topology) == [0, 1, 2, 3]


def test_a_sibling_whose_core_is_not_otherwise_used_counts_as_a_core(tmp_path):
    """Only usable CPUs matter: here CPU 0 is not ours."""
    topology = cores(tmp_path, {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    assert spread_order([1, 2, 3], topology) == [1, 2, 3]


def test_unknown_cpus_count_as_cores_of_their_own(tmp_path):
    """Where the system tells nothing, or garbage, CPUs come in order."""
    assert spread_order([2, 0, 1], tmp_path / "nothing") == [0, 1, 2]
    topology = cores(tmp_path, {0: "0-1", 1: "0-1", 2: ""})
    (tmp_path / "cpu3" / "topology").mkdir(parents=True)
    (tmp_path / "cpu3" / "topology" / "core_cpus_list").write_bytes(b"\xff\xfe")
    assert spread_order(range(4), topology) == [0, 2, 3, 1]


@given(st.sets(st.integers(0, 64), min_size=1), st.integers(1, 8))
def test_every_core_is_used_before_one_is_used_twice(tmp_path_factory, cpus, threads):
    """For any usable CPUs of any width: all are there once, and uses of cores are even."""
    topology = cores(
        tmp_path_factory.mktemp("cpu"), {cpu: f"core {cpu // threads}" for cpu in cpus}
    )
    order = spread_order(cpus, topology)
    assert sorted(order) == sorted(cpus)
    uses: list[int] = []
    for position, cpu in enumerate(order):
        uses.append(sum(other // threads == cpu // threads for other in order[:position]))
    assert uses == sorted(uses)


# ── running there ───────────────────────────────────────────────────────────────────────────────


def affinity_of_a_child() -> set[int]:
    """Return the affinity that a new process has at its start."""
    code = "import os; print(*os.sched_getaffinity(0))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return {int(cpu) for cpu in done.stdout.split()}


def send_affinity(connection) -> None:
    connection.send(os.sched_getaffinity(0))


@pytest.mark.parametrize("cpu", [FIRST, LAST])
def test_a_process_started_inside_runs_there(cpu):
    """It inherits the CPUs before it has run a line."""
    with running_on({cpu}):
        assert os.sched_getaffinity(0) == {cpu}
        assert affinity_of_a_child() == {cpu}
    assert affinity_of_a_child() == set(HERE)


def test_a_spawned_process_stays_there():
    """Also when the thread that started it is back where it was."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=send_affinity, args=(theirs,))
    with running_on(frozenset([LAST])):
        process.start()
    assert os.sched_getaffinity(0) == set(HERE)
    assert ours.poll(30)
    assert ours.recv() == {LAST}
    process.join(10)
    process.close()
    ours.close()
    theirs.close()


def test_the_affinity_is_restored_after_an_exception():
    """Whatever happens inside."""
    with pytest.raises(KeyboardInterrupt), running_on({FIRST}):
        raise KeyboardInterrupt
    assert os.sched_getaffinity(0) == set(HERE)


def test_none_changes_nothing():
    """Workers without an affinity are started as ever."""
    with running_on(None):
        assert os.sched_getaffinity(0) == set(HERE)


def test_other_threads_stay_where_they_are():
    """The caller's own threads are not moved about, not even for a moment."""
    inside, done = threading.Event(), threading.Event()
    seen: list[set[int]] = []

    def look() -> None:
        inside.wait(30)
        seen.append(os.sched_getaffinity(0))
        done.set()

    thread = threading.Thread(target=look)
    thread.start()
    with running_on({FIRST}):
        inside.set()
        assert done.wait(30)
    thread.join()
    assert seen == [set(HERE)]


def test_nested_uses_are_undone_one_by_one():
    """Each restores what was before it."""
    with running_on(HERE), running_on({LAST}):
        with running_on({FIRST}):
            assert os.sched_getaffinity(0) == {FIRST}
        assert os.sched_getaffinity(0) == {LAST}
    assert os.sched_getaffinity(0) == set(HERE)


def test_a_cpu_that_went_away_is_an_error_that_names_it():
    """A worker that is started again after days may find its CPU gone."""
    message = r"can't be put on CPUs 4000-4001 .*usable are"
    with pytest.raises(OSError, match=message) as caught, running_on({4000, 4001}):
        pytest.fail("nothing runs there")
    assert caught.value.errno == errno.EINVAL
    assert os.sched_getaffinity(0) == set(HERE)


# ── of a vector ─────────────────────────────────────────────────────────────────────────────────


class Placed(Walk):
    """Notes on which CPUs it is built."""

    def __init__(self):
        super().__init__()
        self.built_on = os.sched_getaffinity(0)


def test_workers_are_on_their_cpus_before_they_build(make_workers):
    """As the system says, and `worker_affinity` reads back; the caller stays where it was."""
    envs = make_workers([Placed] * 3, 1, worker_affinity=[LAST, HERE])
    expected = ({LAST}, set(HERE), {LAST})
    assert envs.get_attr("built_on") == expected
    assert envs.worker_affinity == expected
    assert all(isinstance(cpus, frozenset) for cpus in envs.worker_affinity)
    assert os.sched_getaffinity(0) == set(HERE)
    envs.close()
    assert envs.worker_affinity is None


def test_spread_workers_have_a_cpu_each(make_workers):
    """Two of them two, where there are two."""
    envs = make_workers([Placed] * 2, 1, worker_affinity="spread")
    assert [len(cpus) for cpus in envs.worker_affinity] == [1, 1]
    assert len(set().union(*envs.worker_affinity)) == min(2, len(HERE))
    assert envs.get_attr("built_on") == envs.worker_affinity


def test_the_affinity_survives_a_restart(make_workers):
    """The new process is where the one before was."""
    envs = make_workers([Placed] * 2, 1, worker_affinity=[LAST, FIRST], on_worker_failure="restart")
    envs.reset()
    before = envs.worker_pids
    os.kill(before[0], signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="Worker 0 .* is restarted"):
        envs.step(np.zeros((2, 2), np.float32))
    assert envs.worker_pids[0] != before[0]
    assert envs.worker_affinity == ({LAST}, {FIRST})
    assert envs.get_attr("built_on") == ({LAST}, {FIRST})


def test_without_an_affinity_workers_may_run_where_the_caller_may(make_workers, make):
    """And in this process there is nothing to tell."""
    assert make_workers([Placed]).worker_affinity == (set(HERE),)
    assert make([Placed]).worker_affinity is None


def test_a_wrong_affinity_is_refused_before_anything_starts():
    """In this process too, where it would have no effect."""
    for in_process in (True, False):
        with pytest.raises(ValueError, match="names CPU 4000"):
            HybridVectorEnv([Placed], worker_affinity=[4000], in_process=in_process)
