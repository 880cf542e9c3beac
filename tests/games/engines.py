"""Compiles the engines that the tests play with, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CPP = ROOT / "superdex" / "games" / "cpp"
FLAGS = [
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
]
SOURCES = {
    "games": ["src/interface.cpp", "src/library.cpp"],
    "corridor": ["examples/corridor.cpp"],
    "tic_tac_toe": ["src/interface.cpp", "examples/tic_tac_toe.cpp"],
    "countdown": ["src/interface.cpp", "tests/countdown.cpp"],
    "test_board": ["tests/test_board.cpp"],
    "test_batch": ["tests/test_batch.cpp", "src/interface.cpp", "src/library.cpp"],
    "test_captured": ["tests/test_captured.cpp", "src/interface.cpp", "src/library.cpp"],
    "test_pool": ["tests/test_pool.cpp"],
}


def run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr


class Builder:
    """Compiles an engine, or finds what an earlier run compiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
        digest = hashlib.sha256()
        for path in sorted(CPP.rglob("*")):
            if path.suffix in {".cpp", ".hpp", ".h", ".rs"}:
                digest.update(path.read_bytes())
        self.digest = digest.hexdigest()[:16]
        for old in folder.iterdir():
            if self.digest not in old.name:
                old.unlink(missing_ok=True)  # another process may clear up as well

    def __call__(self, name: str, *flags: str) -> Path:
        """Return the library or test program `name`, built with further flags."""
        if self.compiler is None:
            pytest.skip("there is no C++ compiler")
        program = name.startswith("test_")
        marks = hashlib.sha256(" ".join([self.compiler, *FLAGS, *flags]).encode()).hexdigest()[:8]
        made = self.folder / f"{name}-{self.digest}-{marks}{'' if program else '.so'}"
        sources = [CPP / source for source in SOURCES[name]]
        command = [self.compiler, *FLAGS, *flags, f"-I{CPP / 'include'}", f"-I{CPP / 'src'}"]
        return self._make(made, [*command, *([] if program else ["-shared"]), *sources])

    def changed_corridor(self, folder: Path, old: str, new: str) -> Path:
        """Return the corridor built in a folder with other words in its source and its header."""
        if self.compiler is None:
            pytest.skip("there is no C++ compiler")
        found = 0
        for source in (CPP / "include" / "superdex_game.h", CPP / "examples" / "corridor.cpp"):
            text = source.read_text()
            found += text.count(old)
            (folder / source.name).write_text(text.replace(old, new))
        assert found
        made = folder / "corridor.so"
        # What a change leaves unused is no fault of it.
        command = [self.compiler, *FLAGS, "-Wno-error", "-O0", "-shared", f"-I{folder}"]
        return self._make(made, [*command, folder / "corridor.cpp"])

    def rust(self) -> Path:
        """Return the corridor in Rust."""
        compiler = shutil.which("rustc")
        if compiler is None:
            pytest.skip("there is no Rust compiler")
        command = [compiler, "--edition", "2021", "-O", "--crate-type", "cdylib"]
        made = self.folder / f"corridor_rs-{self.digest}.so"
        return self._make(made, [*command, CPP / "examples" / "corridor.rs"])

    def _make(self, made: Path, command: list[str | Path]) -> Path:
        if not made.exists():
            draft = made.with_suffix(f".{os.getpid()}")
            run(*command, "-o", draft)
            draft.replace(made)
        return made
