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
