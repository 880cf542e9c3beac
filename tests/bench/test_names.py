"""From names to environments."""

import sys

import pytest

from superdex.bench._names import find_spec, short_names, superdex_ids
from superdex.envs.mujoco._registration import _ENVS as GYMNASIUMS


def test_short_names_are_ids_in_snake_case():
    """The names in the documentation mean the environments of those names."""
    names = short_names()
    assert names["cart_pole"] == "superdex_gym/CartPole-v0"
    assert names["half_cheetah"] == "superdex_gym/HalfCheetah-v0"
    assert names["ant_no_contact"] == "superdex_gym/AntNoContact-v0"
    built_in = [env_id for env_id in superdex_ids() if env_id.startswith("superdex_gym/")]
    assert sorted(names.values()) == sorted(built_in)


def test_every_registered_environment_of_this_package_has_an_id():
    """The eight built-in ones and Gymnasium's eleven; no other package's."""
    assert len(superdex_ids()) == 8 + 11
    assert superdex_ids()[-11:] == tuple(f"superdex/{name}-v5" for name in GYMNASIUMS)


@pytest.mark.parametrize("name", ["cart_pole", "superdex_gym/CartPole-v0"])
def test_short_name_and_id_mean_the_same(name: str):
    """Either spelling gives the one specification."""
    assert find_spec(name).id == "superdex_gym/CartPole-v0"


def test_module_before_the_colon_is_imported_first(tmp_path, monkeypatch):
    """An environment that a module registers is found through that module."""
    (tmp_path / "registering_module.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('FromModule-v0', entry_point='registering_module:Nothing')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert find_spec("registering_module:FromModule-v0").id == "FromModule-v0"
    finally:
        sys.modules.pop("registering_module", None)


def test_module_is_found_in_the_working_folder(tmp_path, monkeypatch):
    """The command may be run where the module lies, as Python itself may."""
    (tmp_path / "module_beside.py").write_text(
        "import gymnasium\ngymnasium.register('Beside-v0', entry_point='module_beside:Nothing')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    try:
        assert find_spec("module_beside:Beside-v0").id == "Beside-v0"
    finally:
        sys.modules.pop("module_beside", None)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("cart_pol", "Did you mean 'cart_pole'?"),
        ("Pendulm-v1", "Did you mean 'Pendulum-v1'?"),
        ("superdex_gym/Cartpole-v0", "Did you mean 'superdex_gym/CartPole-v0'?"),
        ("superdex/Hoper-v5", "Did you mean 'superdex/Hopper-v5'?"),
        ("superdex/Walker2D-v5", "Did you mean 'superdex/Walker2d-v5'?"),
        ("superdex/Ant-v4", "Did you mean 'superdex/Ant-v5'?"),
        ("swimmer", "Did you mean 'superdex/Swimmer-v5'?"),
        ("inverted_pendulm", "Did you mean 'superdex/InvertedPendulum-v5'?"),
        ("zzz", "superdex/HumanoidStandup-v5, superdex/InvertedDoublePendulum-v5"),
    ],
)
def test_unknown_name_suggests_the_nearest(name: str, suggestion: str):
    """A typing error is answered with what was probably meant."""
    with pytest.raises(ValueError, match="There is no environment") as caught:
        find_spec(name)
    assert suggestion in str(caught.value)


def test_unknown_module_is_named():
    """A module that isn't there is told apart from an id that isn't."""
    with pytest.raises(ValueError, match="No module named 'no_such_module'"):
        find_spec("no_such_module:Pendulum-v1")


@pytest.mark.parametrize("name", [".foo:bar", "..:bar", ":bar", "a..b:bar", "a b:bar"])
def test_what_is_no_module_name_is_refused(name: str):
    """A relative or broken module name is answered with how it is written."""
    with pytest.raises(ValueError, match="must be a module's full name"):
        find_spec(name)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise RuntimeError('no licence')", "it raised RuntimeError: no licence"),
        ("raise SystemExit(3)", "it raised SystemExit: 3"),
        ("def", "it raised SyntaxError: invalid syntax"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_module_that_cannot_be_imported_is_told_with_the_cause(
    source: str, problem: str, tmp_path, monkeypatch
):
    """Whatever the import raises is one sentence with the environment's name."""
    (tmp_path / "broken_module.py").write_text(source + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="'broken_module:Any-v0'") as caught:
        find_spec("broken_module:Any-v0")
    assert problem in str(caught.value)
