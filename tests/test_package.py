"""The package as a whole: what is public, what an import costs, and what is installed."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import importlib.resources
import inspect
import pkgutil
import subprocess
import sys
from collections import defaultdict
from types import ModuleType

import pytest

import superdex
from superdex.errors import GameLibraryError

# These only repeat names under their documented long paths.
LONG_PATHS = "superdex.lab"


def lacks_games() -> bool:
    """Return whether superdex was installed without a compiler."""
    try:
        importlib.import_module("superdex.games")
    except GameLibraryError:
        return True
    return False


def module_names() -> list[str]:
    """Return every module of the package that can be imported here."""
    found = pkgutil.walk_packages(superdex.__path__, "superdex.")
    names = ["superdex", *(info.name for info in found)]
    return [name for name in names if name != "superdex.games" or not lacks_games()]


def is_public(name: str) -> bool:
    """Return whether no part of a module's name starts with an underscore."""
    return not any(part.startswith("_") for part in name.split("."))


PUBLIC_MODULES = [name for name in module_names() if is_public(name)]


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_all_is_the_importable_surface(name: str):
    """Each public module names in __all__ exactly what it offers of our own."""
    module = importlib.import_module(name)
    named = module.__all__
    assert len(set(named)) == len(named)
    for public in named:
        assert hasattr(module, public), f"{name}.__all__ names {public}, which is not there"
    own = {
        attribute
        for attribute, value in vars(module).items()
        if not attribute.startswith("_")
        and not isinstance(value, ModuleType)
        and f"{getattr(value, '__module__', '')}.".startswith(f"{name}.")
    }
    assert own <= set(named)


def test_every_public_object_has_one_home():
    """No class or function is offered by two modules, the documented long paths left out."""
    homes: dict[int, set[str]] = defaultdict(set)
    for name in PUBLIC_MODULES:
        if name.startswith(LONG_PATHS):
            continue
        module = importlib.import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            if inspect.isclass(value) or inspect.isfunction(value):
                homes[id(value)].add(f"{name}.{public}")
    assert [places for places in homes.values() if len(places) > 1] == []


def test_version_is_the_distributions():
    """The version in the code is the one that is installed, where it is installed."""
    try:
        installed = importlib.metadata.version("superdex-vector")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("runs from a checkout that is not installed")
    assert superdex.__version__ == installed


@pytest.mark.parametrize(
    "name",
    [
        "superdex",
        "superdex.errors",
        "superdex.buffers",
        "superdex.vector",
        "superdex.states",
        "superdex.scenes",
        "superdex.envs",
        pytest.param(
            "superdex.games", marks=pytest.mark.skipif(lacks_games(), reason="it has no engine")
        ),
        "superdex.testing",
        "superdex.bench",
        "superdex.bench.cli",
        "superdex.lab.gym.utils.vector",
    ],
)
def test_import_is_cheap(name: str, tmp_path):
    """Importing it loads none of the heavy packages that only some of it needs, nor the games."""
    heavy = {"mujoco", "torch", "matplotlib", "rich", "imageio", "pettingzoo", "superdex.games"}
    heavy.discard(name)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {name}; print(sorted({heavy} & sys.modules.keys()))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_type_marker_and_models_are_installed():
    """Type checkers find the annotations, and environments find their models."""
    files = importlib.resources.files("superdex")
    assert files.joinpath("py.typed").is_file()
    models = {path.name for path in files.joinpath("envs").iterdir() if path.name.endswith(".xml")}
    assert models == {"ant.xml", "cartpole.xml", "half_cheetah.xml"}


@pytest.mark.parametrize("name", module_names())
def test_documented_examples_run(name: str):
    """What docstrings show is what happens."""
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
