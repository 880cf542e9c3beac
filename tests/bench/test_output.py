"""Reports as files and tables."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from superdex.bench import SweepReport, SweepSettings, write_heat_map, write_json
from superdex.bench._output import check_picture_path, check_writable
from superdex.bench._tables import render_report
from tests.bench.test_report import failed, report, row


def shown(*rows) -> str:
    """Return what a terminal would show."""
    console = Console(width=120, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(render_report(report(*rows)))
    return capture.get()


def test_json_is_what_the_report_says(tmp_path):
    """The file holds the report's values and nothing is lost by rounding."""
    path = tmp_path / "sweep.json"
    made = report(row(1, 4, env_steps=41), failed(2, 4))
    write_json(made, path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(made.to_dict()))


def test_failed_writing_leaves_the_old_file(tmp_path, monkeypatch):
    """A file is replaced whole or not at all, and no half of one stays behind."""
    path = tmp_path / "sweep.json"
    path.write_text("old")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_json(report(row(1, 4, env_steps=41)), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_checking_a_path_writes_nothing(tmp_path):
    """A path that will do is not touched before there is something to write."""
    path = tmp_path / "sweep.json"
    assert check_writable(path) == path
    assert list(tmp_path.iterdir()) == []


def test_paths_that_cannot_be_written_are_refused(tmp_path):
    """A missing folder, a folder and a protected file each have their own message."""
    protected = tmp_path / "protected.json"
    protected.write_text("{}")
    protected.chmod(0o444)
    with pytest.raises(ValueError, match="does not exist"):
        check_writable(tmp_path / "nowhere" / "sweep.json")
    with pytest.raises(ValueError, match="is a folder"):
        check_writable(tmp_path)
    with pytest.raises(ValueError, match="is write-protected"):
        check_writable(protected)


def test_picture_needs_a_pictures_ending(tmp_path):
    """A heat map is not written as whatever the ending happens to mean."""
    with pytest.raises(ValueError, match=r"ends in \.png"):
        check_picture_path(tmp_path / "sweep.json")


def test_picture_without_matplotlib_names_the_extra(tmp_path, monkeypatch):
    """Who lacks the drawing library is told what to install, before the sweep."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=r"superdex-vector\[plot\]"):
        check_picture_path(tmp_path / "sweep.png")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_heat_map_is_a_picture(tmp_path, ending: str):
    """Rows that failed and splits that were not reached do not stop it."""
    path = tmp_path / f"sweep.{ending}"
    write_heat_map(report(row(1, 1, env_steps=1), row(1, 4, env_steps=41), failed(2, 4)), path)
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(magic)


def test_heat_map_has_a_line_for_each_number_of_threads(tmp_path):
    """Splits that were left out are blank and do not stop it."""
    made = report(
        row(1, 4, env_steps=1),
        row(1, 8, env_steps=41),
        row(1, 8, env_steps=50, num_threads_per_worker=2),
    )
    write_heat_map(made, tmp_path / "sweep.svg")
    assert (tmp_path / "sweep.svg").stat().st_size > 0


@pytest.mark.parametrize(
    "asked",
    [
        {"num_envs": 8, "num_workers": (1, 2), "num_threads_per_worker": (1, 2)},
        {"num_workers": (2,), "num_envs_per_worker": (4,)},
    ],
)
def test_heat_map_tells_the_bare_speed_where_it_has_no_place(tmp_path, asked):
    """In its title; splits of one number have a line each."""
    settings = SweepSettings(env="Pendulum-v1", **asked)
    machine = {"processor": "none", "physical_cores": 2}
    rows = (row(1, 1, 500), row(2, 4, 120), *[row(1, 8, 90)] * ("num_envs" in asked))
    made = SweepReport(settings, machine, {"superdex": "0"}, None, rows)
    write_heat_map(made, tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    assert "(bare loop: " in text
    assert ("2 × 4" in text) == ("num_envs" in asked)
    # Interrupted after the first row, which is all there is to draw.
    write_heat_map(replace(made, rows=rows[:1]), tmp_path / "first.svg")
    assert "bare loop" in (tmp_path / "first.svg").read_text()


def test_heat_map_of_failures_only_is_a_picture(tmp_path):
    """A sweep in which nothing worked can still be drawn."""
    write_heat_map(report(failed(1, 4), failed(2, 4)), tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").stat().st_size > 0


def test_table_names_the_best_split_and_its_code():
    """The verdict has the split, its gain over the bare environment, and the line to use."""
    text = shown(row(1, 1, env_steps=10), row(2, 3, env_steps=50))
    assert "Best: 2 workers × 3 environments, at 25 env steps per second" in text
    assert "5 × the bare environment" in text
    assert "Best split" not in text
    assert "HybridVectorEnv([lambda: gymnasium.make(" in text


def test_bare_environment_that_wins_does_not_hide_the_best_split():
    """Who asks for a split is told the best one, also where no split pays."""
    text = shown(row(1, 1, env_steps=50), row(2, 3, env_steps=10), row(2, 9, env_steps=20))
    assert "Best: the bare environment, without a vectorizer, at 25 env steps" in text
    assert "Best split into workers: 2 workers × 9 environments, at 10 env steps" in text


def test_table_shows_failures_once_with_their_splits():
    """Cases that failed alike are told together."""
    text = shown(failed(1, 4), failed(2, 4))
    assert "Failed (1 × 4, 2 × 4): it broke" in text
    assert "No split of Pendulum-v1 could be measured." in text


def test_unknown_simulation_fps_is_a_dash():
    """Nothing is made up where the environment does not say."""
    assert "–" in shown(row(1, 4, env_steps=40))
    assert "–" not in shown(row(1, 4, env_steps=40, substeps=5))
