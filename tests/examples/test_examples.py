"""Every example runs as a newcomer runs it."""

import subprocess
import sys

import pytest

from tests.examples.modules import EXAMPLES

SMALL: dict[str, tuple[list[str], str]] = {
    "quickstart.py": (
        ["--num_envs=20", "--num_workers=2", "--num_steps=40"],
        "episodes ended: Pole angle exceeded threshold",
    ),
    "custom_env.py": (
        ["--num_envs=12", "--num_steps=150"],
        "came to rest over the target",
    ),
    "vectorized_run.py": (["--num_envs=7", "--num_steps=80"], "episodes: True"),
    "sweep.py": (["--seconds=0.1", "--folder=."], "HybridVectorEnv("),
    "self_play.py": (
        ["--num_envs=16", "--num_steps=8", "--num_updates=1", "--num_games=10"],
        "trained: wins",
    ),
    "pinned_memory.py": (
        ["--num_envs=6", "--num_steps=10"],
        "bytes copied between the workers and torch: 0",
    ),
}

NEEDS = {"pinned_memory.py": "torch", "self_play.py": "superdex.games"}
"""What an example needs that is not installed with the package, or not everywhere."""


def test_every_example_is_run():
    """A new example can't be forgotten here."""
    assert sorted(SMALL) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_example_runs(name: str, tmp_path):
    """It ends well, says what it promises and prints no warning."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], exc_type=ImportError)
    arguments, expected = SMALL[name]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    assert "Warning" not in done.stderr
