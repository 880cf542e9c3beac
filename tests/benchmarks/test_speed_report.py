"""Tables, page and plot of physics' speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speed_report import best_of_ours, describe_run, draw, ratios, tables, write_page


def comparison(num_envs: int, **rates: list[float]) -> dict[str, Any]:
    """Return a comparison with these rates."""
    return {
        "task": "ball",
        "title": "a ball",
        "num_envs": num_envs,
        "env_steps_per_second": rates,
        "absent": {"envpool": "envpool is not installed", "shared": "it is for others"},
    }


@pytest.fixture
def report() -> dict[str, Any]:
    """A report of two sizes, one of which had no time for a rival."""
    return {
        "machine": {
            "processor": "P",
            "physical_cores": 4,
            "memory_bytes": 2**34,
            "system": "Linux 1",
        },
        "versions": {"python": "3.11", "mujoco": "4.0"},
        "commit": "0123456789abcdef+",
        "date": "2030-01-02",
        "command": "python benchmarks/physics.py",
        "minutes": 1.25,
        "left_out": ["ball with 1024"],
        "comparisons": [
            comparison(
                64,
                limit=[100, 200, 100],
                workers=[90, 180, 90],
                threads=[80, 160, 80],
                sync=[45, 90, 45],
            ),
            comparison(256, limit=[100, 100, 100], workers=[70, 80, 90], threads=[95, 95, 95]),
        ],
    }


def test_ratios_are_taken_within_a_round(report: dict[str, Any]):
    """A machine that doubled its speed in one round changed no ratio."""
    assert ratios(report["comparisons"][0], "workers", "limit") == pytest.approx([0.9] * 3)
    assert ratios(report["comparisons"][1], "workers", "sync") is None


def test_best_split_is_chosen_for_each_size(report: dict[str, Any]):
    """The median decides; without any of ours there is none."""
    assert [best_of_ours(each) for each in report["comparisons"]] == ["workers", "threads"]
    assert best_of_ours(comparison(64, limit=[1.0])) is None


def test_table_has_rates_shares_splits_and_rivals(report: dict[str, Any]):
    """Both splits are shown, and a dash where a contender did not take part."""
    lines = tables(report).splitlines()
    assert lines[0] == "**ball**, a ball"
    small, large = lines[4:6]
    assert small.startswith("| 64 | 100 | 90 | 1.11e+04 | 0.90 [0.90, 0.90] | 4 × 1 | 0.90 | 0.80")
    assert small.endswith("| 2.00 |")
    assert "| 1 × 4 | 0.80 | 0.95 |" in large
    assert large.endswith("| – |")
    assert "Without EnvPool: envpool is not installed." in lines


def test_run_is_described_by_machine_versions_and_command(report: dict[str, Any]):
    """What had no time is told too."""
    text = describe_run(report)
    assert "Machine: P, 4 cores, 16 GiB, Linux 1. Versions: python 3.11, mujoco 4.0;" in text
    assert "commit 01234567+. 2030-01-02, 1.2 minutes" in text
    assert "`python benchmarks/physics.py`" in text
    assert "There was no time for ball with 1024 environments." in text


def test_page_changes_between_its_markers_only(report: dict[str, Any], tmp_path: Path):
    """Written twice, the figures are there once."""
    page = tmp_path / "speed.md"
    page.write_text("before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n")
    write_page(tables(report), page)
    write_page(tables(report), page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- measured: begin -->\n**ball**")
    assert text.endswith("<!-- measured: end -->\nafter\n")
    assert text.count("**ball**") == 1
    assert "old" not in text


def test_page_without_markers_is_refused(tmp_path: Path):
    """Nothing is written where figures have no place."""
    page = tmp_path / "speed.md"
    page.write_text("a page\n")
    with pytest.raises(ValueError, match="has no lines <!-- measured: begin -->"):
        write_page("figures", page)
    assert page.read_text() == "a page\n"


def test_plot_is_a_picture(report: dict[str, Any], tmp_path: Path):
    """Contenders that took part in some sizes only do not stop it."""
    draw(report, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
