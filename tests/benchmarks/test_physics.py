"""Comparisons of physics, with contenders that don't step."""

from __future__ import annotations

import time

import pytest
from rich.console import Console

import physics
from contenders import Contender, Field, take_rounds
from physics_tasks import PHYSICS_TASKS
from report_command import as_command


class Counted(Contender):
    """Its rate is the number of its turn; it notes its turns in a list."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self._name = name
        self._turns = turns
        self._number = 0
        self.closed = False

    def run(self, seconds: float) -> float:
        self._turns.append(self._name)
        self._number += 1
        return self._number

    def close(self) -> None:
        self.closed = True


def test_rounds_rotate_and_the_first_does_not_count():
    """Each round has one turn of each, and begins with another."""
    turns: list[str] = []
    ready = {name: Counted(name, turns) for name in "abc"}
    assert take_rounds(ready, rounds=2, seconds=0) == {name: [2, 3] for name in "abc"}
    assert "".join(turns) == "abcbcacab"


def test_rounds_end_when_the_time_is_up_but_not_before_a_few():
    """A deadline in the past leaves the fewest rounds that say anything."""
    turns: list[str] = []
    made: list[Counted] = []

    def build(field: Field) -> Contender:
        made.append(Counted("limit", turns))
        return made[-1]

    field = Field(PHYSICS_TASKS["cart_pole"], 4, 1)
    plan = physics.Plan((4,), ("cart_pole",), rounds=9, seconds=0, minutes=1)
    found = physics.compare(field, {"limit": build}, plan, deadline=time.monotonic() - 1)
    assert found["env_steps_per_second"] == {"limit": [2, 3, 4]}
    assert made[0].closed


def test_rival_that_is_not_installed_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch):
    """The others are measured all the same."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    field = Field(PHYSICS_TASKS["HalfCheetah-v5"], 64, 2)
    assert physics.why_absent("envpool", field) == "envpool is not installed"
    assert physics.why_absent("limit", field) is None


@pytest.mark.parametrize(
    ("name", "task", "num_envs", "reason"),
    [
        ("sync", "ant", 8192, "not beyond 256 environments"),
        ("async", "ant", 16, "a process for each environment is started on half_cheetah only"),
        ("async", "half_cheetah", 16, None),
        ("shared", "ant", 16, "it is for Gymnasium's environments"),
        ("threads", "ant", 8192, None),
    ],
)
def test_contender_that_would_take_too_long_is_left_out(
    name: str, task: str, num_envs: int, reason: str | None
):
    """Processes and memory set an end to some, and the reason says which."""
    assert physics.why_absent(name, Field(PHYSICS_TASKS[task], num_envs, 2)) == reason


def test_command_is_what_was_measured():
    """Where figures were written to is nobody's business."""
    given = {"num_envs": [16, 64], "minutes": 2.0}
    assert as_command("physics.py", given, quick=True) == (
        "python benchmarks/physics.py --quick --num_envs 16,64 --minutes 2.0"
    )


def test_time_of_a_larger_comparison_is_foreseen():
    """Four turns of two steps each, of the contenders that go so far."""
    smaller = {
        "task": "half_cheetah",
        "env_steps_per_second": {"limit": [200.0, 100.0], "sync": [1.0]},
    }
    assert physics._fewest_seconds(smaller, 8192) == pytest.approx(4 * 2 * 81.92)


def test_what_there_is_no_time_for_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch):
    """Every task is tried once; a larger size only while the time of the smaller one is left."""

    def compare(field: Field, *_: object) -> dict[str, object]:
        time.sleep(0.02)
        return {"task": field.task.name, "env_steps_per_second": {}}

    monkeypatch.setattr(physics, "compare", compare)
    plan = physics.Plan((16, 64), ("cart_pole",), rounds=1, seconds=0, minutes=0.03 / 60)
    report = physics.measure(plan, Console(quiet=True))
    assert len(report["comparisons"]) == 1
    assert report["left_out"] == ["cart_pole with 64"]
