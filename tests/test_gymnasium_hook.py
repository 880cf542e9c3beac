"""Installing the distribution is enough for Gymnasium to know its environments."""

import subprocess
import sys
from importlib import metadata

import pytest


def _run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.fixture(scope="module", autouse=True)
def _installed():
    try:
        files = metadata.files("superdex-vector") or []
    except metadata.PackageNotFoundError:
        files = []
    if not any(file.name == "superdex_gym.pth" for file in files):
        pytest.skip("superdex-vector is not installed in this environment")


def test_make_works_after_installation_alone():
    """`gymnasium.make` knows our ids though nobody imported superdex."""
    code = "import gymnasium as g; e = g.make('superdex_gym/CartPole-v0'); print(e.spec.id)"
    assert _run(code) == "superdex_gym/CartPole-v0"


def test_registration_loads_no_environment():
    """`import gymnasium` does not import MuJoCo or an environment module because of us."""
    code = (
        "import sys, gymnasium; "
        "print([m for m in ('mujoco', 'superdex.envs._cartpole') if m in sys.modules])"
    )
    assert _run(code) == "[]"


def test_python_starts_without_gymnasium():
    """A process that does not use Gymnasium does not import it because of us."""
    assert _run("import sys; print('gymnasium' in sys.modules)") == "False"


def test_gymnasium_keeps_its_own_loader():
    """After its import, Gymnasium's module looks as it would without us."""
    code = "import gymnasium; print(type(gymnasium.__spec__.loader).__name__)"
    assert _run(code) == "SourceFileLoader"
