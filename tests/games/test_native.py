"""The engine's own tests in C++, plain and under sanitizers, and its build by CMake."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from superdex.games import load
from tests.games.engines import CPP, run

PROGRAMS = ["test_board", "test_batch", "test_captured", "test_pool"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_native_tests_pass(build, program):
    """Floods, batches, the pool and claims do what their programs say."""
    run(build(program))


@pytest.mark.parametrize(
    ("compiler", "standard"), [("gcc", "c99"), ("gcc", "c11"), ("g++", "c++11"), ("g++", "c++17")]
)
def test_the_header_stands_alone(tmp_path, compiler, standard):
    """C and C++ programs that include nothing else use it, without a warning."""
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    source = tmp_path / ("program.c" if compiler == "gcc" else "program.cpp")
    source.write_text(
        """
#include "superdex_game.h"
#include "superdex_game.h"
int main(void) {
  sdg_settings settings = {sizeof settings, 1, 1, 4, 0, 0, 0, 0};
  return settings.num_games > SDG_MOST_THREADS || sdg_episode_seed(1, 2, 3) == SDG_STAMP;
}
"""
    )
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
    program = tmp_path / "program"
    run(compiler, f"-std={standard}", *warnings, f"-I{CPP / 'include'}", source, "-o", program)
    run(program)


def has_sanitizer(build, kind):
    """Return whether programs with this sanitizer can be built and run here."""
    source = build.folder / "probe.cpp"
    source.write_text("int main() { return 0; }\n")
    probe = build.folder / f"probe-{kind.partition(',')[0]}"
    if build.compiler is None:
        return False
    command = [build.compiler, f"-fsanitize={kind}", source, "-o", probe]
    built = subprocess.run(command, capture_output=True, timeout=60)
    return built.returncode == 0 and subprocess.run([probe], timeout=60).returncode == 0


@pytest.mark.parametrize("kind", ["address,undefined", "thread"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_sanitizers_find_nothing(build, program, kind):
    """Neither memory faults nor undefined behaviour nor races."""
    if not has_sanitizer(build, kind):
        pytest.skip(f"there is no sanitizer for {kind} here")
    run(build(program, f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-O1", "-g"))


def test_cmake_builds_the_library_that_loads(tmp_path):
    """The build that installs the package gives a library with superdex's games."""
    if shutil.which("cmake") is None:
        pytest.skip("there is no CMake")
    run("cmake", "-S", CPP, "-B", tmp_path, "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", tmp_path, "--target", "superdex_games")
    (library,) = tmp_path.glob("*superdex_games.so")
    assert load(library).games == ("tron",)
