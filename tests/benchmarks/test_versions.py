"""Two versions are compared by ratios within a round, and no worktree stays behind."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import superdex
from versions import Rounds, measure, worktree

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of two commits, each with one file."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.org")
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for text in ("old", "new"):
        (folder / "file").write_text(text)
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "-m", text)
    return folder


def git(folder, *args):
    command = ["git", "-C", str(folder), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_worktree_has_the_revision_and_is_removed(repository):
    """The checkout is as before, and git knows of no other tree."""
    with worktree(repository, "HEAD~1") as tree:
        assert (tree / "file").read_text() == "old"
        assert (repository / "file").read_text() == "new"
    assert not tree.parent.exists()
    assert git(repository, "worktree", "list").count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_worktree_is_removed_whatever_happens(repository, error):
    """An error, Ctrl-C and SIGTERM's exit."""
    trees = []

    def run():
        with worktree(repository, "HEAD~1") as tree:
            trees.append(tree)
            (tree / "left").write_text("by a run")
            raise error

    with pytest.raises(error):
        run()
    assert not trees[0].parent.exists()
    assert git(repository, "worktree", "list").count("\n") == 1


def test_an_unknown_revision_is_named(repository):
    """Before anything is made."""
    with (
        pytest.raises(ValueError, match="'HEAD~9' names no commit"),
        worktree(repository, "HEAD~9"),
    ):
        pass


def test_a_turn_gives_the_rate_of_the_package_asked_for():
    """Real steps, in a process of its own."""
    tree = Path(superdex.__file__).parents[1]
    assert measure(tree, "T0", num_envs=4, num_workers=1, seconds=0.05) > 0


def test_a_package_from_elsewhere_is_refused(tmp_path, monkeypatch):
    """A comparison of one version with itself would say nothing."""
    monkeypatch.setenv("PYTHONPATH", os.fspath(Path(superdex.__file__).parents[1]))
    with pytest.raises(RuntimeError, match=r"was asked for, and that of .* answered"):
        measure(tmp_path, "T0", num_envs=2, num_workers=1, seconds=0.05)


def test_ratios_are_taken_within_a_round():
    """Their median is not the ratio of medians."""
    rounds = Rounds("T0", 4, baseline=[10.0, 20.0, 40.0], checkout=[12.0, 20.0, 20.0])
    assert rounds.ratios == [1.2, 1.0, 0.5]
    assert rounds.to_dict()["ratio"]["median"] == 1.0
