"""What the README and the documentation show is what happens."""

from __future__ import annotations

import argparse
import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import superdex
from superdex.bench import cli
from superdex.errors import GameLibraryError

try:
    import superdex.games
except GameLibraryError:  # it was installed without a compiler
    HAS_GAMES = False
else:
    HAS_GAMES = True

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted(page for page in ROOT.joinpath("docs").rglob("*.md") if "_build" not in page.parts)
PROGRAMS = sorted(ROOT.joinpath("docs", "code").glob("*.py"))
DOCUMENTED = [
    f"superdex.{name}"
    for name in (
        *("vector", "buffers", "states", "envs", "envs.mujoco", "scenes"),
        *("testing", "bench", "errors"),
        *(["games"] if HAS_GAMES else []),
    )
]
OPTIONS = doctest.ELLIPSIS


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page: Path, language: str) -> list[Block]:
    """Return the blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    everything = [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in found]
    return [block for block in everything if block.language == language]


def title(page: Path) -> str:
    """Return a short name for a page."""
    return str(page.relative_to(ROOT))


def run_examples(test: doctest.DocTest) -> None:
    """Run a doctest, and fail with its report if anything differs."""
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    assert results.failed == 0, "".join(report)


def run_program(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as a reader does, with this checkout's examples at hand."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def public_examples() -> set[str]:
    """Return the names of public classes, functions and methods whose docstring has an example.

    Those run in `test_package.py`, with all others.
    """
    finder = doctest.DocTestFinder(exclude_empty=True)
    names = set()
    for name in DOCUMENTED:
        module = importlib.import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            if inspect.isclass(value) or inspect.isfunction(value):
                home = inspect.getmodule(value)
                found = finder.find(value, f"{name}.{public}", module=home)
                names |= {test.name for test in found if test.examples}
    return names


EXAMPLES = public_examples()


@pytest.mark.parametrize(
    "name",
    [
        "superdex.vector.HybridVectorEnv",
        "superdex.vector.BoxSpaces",
        "superdex.envs.SceneEnv",
        "superdex.envs.SceneEnvCfg",
        "superdex.envs.CartPoleEnv",
        "superdex.envs.HalfCheetahEnv",
        "superdex.envs.AntEnv",
        "superdex.scenes.MujocoScene",
        "superdex.scenes.SceneManager",
        "superdex.testing.PlainLoop",
        "superdex.testing.check_scene",
        "superdex.testing.check_scene_env",
        "superdex.testing.check_scene_name",
        *(["superdex.games.VectorGameEnv"] if HAS_GAMES else []),
    ],
)
def test_main_class_shows_an_example(name: str):
    """Who looks a main class up finds an example that runs."""
    assert name in EXAMPLES


PAGES_WITH_SESSIONS = [
    page for page in PAGES if blocks(page, "pycon") and (HAS_GAMES or page.stem != "games")
]


@pytest.mark.parametrize("page", PAGES_WITH_SESSIONS, ids=title)
def test_interactive_sessions_of_a_page_run(page: Path):
    """What a page shows of a session is what happens, from its first block to its last."""
    text = page.read_text(encoding="utf-8").splitlines()
    shown = [""] * len(text)
    for block in blocks(page, "pycon"):
        lines = block.text.splitlines()
        shown[block.line : block.line + len(lines)] = lines
    session = "\n".join(shown)
    test = doctest.DocTestParser().get_doctest(
        session, {"__name__": "__main__"}, title(page), str(page), 0
    )
    run_examples(test)


@pytest.mark.parametrize("page", [README, *PAGES], ids=title)
def test_programs_in_a_page_run(page: Path, tmp_path: Path):
    """A Python block that is no session is a whole program, and ends well without a warning."""
    for number, block in enumerate(blocks(page, "python")):
        program = tmp_path / f"program_{number}.py"
        program.write_text(block.text, encoding="utf-8")
        done = run_program([str(program)], tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.with_suffix(".txt").exists()], ids=title
)
def test_program_prints_what_the_documentation_shows(program: Path, tmp_path: Path):
    """The text beside a program is its output, or the error with which it ends."""
    done = run_program([str(program)], tmp_path)
    shown = program.with_suffix(".txt").read_text(encoding="utf-8").rstrip()
    if done.returncode == 0:
        assert done.stdout.rstrip() == shown
    else:
        assert done.stderr.rstrip().endswith(shown)


def test_tests_in_the_documentation_pass(tmp_path: Path):
    """The test file that a reader may copy passes."""
    program = ROOT / "docs" / "code" / "test_ball.py"
    options = ["-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", str(tmp_path)]
    done = run_program(["-m", "pytest", "-q", *options, str(program)], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [README, *PAGES], ids=title)
def test_commands_in_a_page_are_understood(page: Path):
    """Every superdex command that a page shows has arguments that exist; scripts exist too."""
    for block in blocks(page, "bash"):
        for command in re.split(r"\n| && ", block.text.strip()):
            program, *arguments = command.replace("'", "").split()
            if program.endswith("superdex"):
                parser: argparse.ArgumentParser = cli._build_parser()
                parser.parse_args(arguments)
            elif program == "python" and arguments[0] != "-m":
                assert ROOT.joinpath(arguments[0]).is_file(), command


def test_reference_names_everything_public():
    """Each public name of each package has its place in the reference."""
    for module_name in DOCUMENTED:
        module = importlib.import_module(module_name)
        page_name = module_name.removeprefix("superdex.").replace(".", "_")
        page = ROOT / "docs" / "reference" / f"{page_name}.md"
        text = page.read_text(encoding="utf-8")
        if re.search(r"automodule:: \S+\n   :members:", text):
            continue
        missing = [name for name in module.__all__ if not re.search(rf"\b{name}\b", text)]
        assert missing == [], f"{page.name} lacks {missing}"


@pytest.mark.parametrize("page", [README, *PAGES], ids=title)
def test_links_between_files_lead_somewhere(page: Path):
    """A link or an inclusion names a file that is there."""
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?://|#)([^)\s]+)\)", text)
    targets += re.findall(r"^```\{(?:literalinclude|image)\} (\S+)", text, re.MULTILINE)
    for target in targets:
        assert page.parent.joinpath(target.partition("#")[0]).exists(), target
    for target in re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", text):
        assert page.parent.joinpath(f"{target}.md").is_file(), target


def test_version_is_in_the_changelog_or_yet_to_come():
    """The changelog has a heading for what is released next."""
    text = ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert "[Unreleased]" in text or f"[{superdex.__version__}]" in text
