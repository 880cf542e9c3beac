"""The engine that superdex ships: where it is found, and what an installation without it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import superdex.games
from superdex.errors import GameLibraryError
from superdex.games import include_dir, library


@pytest.fixture
def without_engine(tmp_path):
    """Run code with a copy of the package that holds no engine; return what it wrote and raised."""
    package = Path(superdex.__file__).parent
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "cpp")
    shutil.copytree(package, tmp_path / "superdex", ignore=ignored)

    def run(code: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        environment.pop("SUPERDEX_GAMES_LIBRARY", None)
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )

    return run


def test_the_engine_is_opened_once():
    """Whoever asks gets the same library, with superdex's games and the header beside it."""
    assert library() is library()
    assert library().games == ("tron",)
    assert include_dir().joinpath("superdex_game.h").is_file()


def test_without_an_engine_the_import_says_what_to_install(without_engine):
    """One ImportError of one line names the compiler and the command."""
    done = without_engine("import superdex.games")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("superdex.errors.GameLibraryError: ")
    assert "apt-get install g++" in last
    assert "pip install --force-reinstall" in last
    assert "During handling" not in done.stderr
    caught = without_engine("try: import superdex.games\nexcept ImportError: print('caught')")
    assert caught.stdout.strip() == "caught"


def test_without_an_engine_the_rest_works(without_engine):
    """Environments are vectorized, and the command line lists what it can do."""
    code = """
from superdex.bench.cli import main
from superdex.envs import CartPoleEnv
from superdex.vector import HybridVectorEnv
with HybridVectorEnv([CartPoleEnv] * 2, in_process=True) as envs:
    print(envs.reset(seed=0)[0].shape)
main(["--help"])
"""
    done = without_engine(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(2, 4)")
    assert "envs" in done.stdout


def test_an_engine_can_be_named(monkeypatch, tmp_path):
    """The variable comes first; what it names is opened, or refused by name."""
    monkeypatch.setenv("SUPERDEX_GAMES_LIBRARY", str(tmp_path / "engine.so"))
    library.cache_clear()
    try:
        with pytest.raises(GameLibraryError, match=r"engine\.so could not be opened"):
            library()
    finally:
        library.cache_clear()
