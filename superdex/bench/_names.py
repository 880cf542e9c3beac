"""From the name a user types to the Gymnasium specification it means."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from pathlib import Path

import gymnasium
from gymnasium.envs.registration import EnvSpec

__all__ = ["find_spec", "short_names", "superdex_ids"]

_BUILT_IN = "superdex_gym/"
_OF_GYMNASIUM = "superdex/"
"""Gymnasium's MuJoCo environments as this package has them: superdex/Ant-v5 beside our own ant."""


def superdex_ids() -> tuple[str, ...]:
    """Return the ids of this package's environments: the built-in ones, then superdex/…-v5."""
    importlib.import_module("superdex.envs")
    ids = [env_id for env_id in gymnasium.registry if env_id.startswith(_BUILT_IN)]
    return (*ids, *(env_id for env_id in gymnasium.registry if env_id.startswith(_OF_GYMNASIUM)))


def short_names() -> dict[str, str]:
    """Return short name → id for the built-in environments, such as cart_pole.

    The short name is the id's in snake case, without namespace and version; it means the latest
    version. Gymnasium's MuJoCo environments have none: ant is not superdex/Ant-v5.
    """
    names: dict[str, str] = {}
    latest: dict[str, int] = {}
    for env_id in superdex_ids():
        if not env_id.startswith(_BUILT_IN):
            continue
        spec = gymnasium.registry[env_id]
        name = _snake_case(spec)
        version = spec.version or 0
        if version >= latest.get(name, 0):
            names[name] = env_id
            latest[name] = version
    return names


def find_spec(name: str) -> EnvSpec:
    """Return the specification that a short name or a Gymnasium id stands for.

    `module:id` imports the module first, as `gymnasium.make` does.

    Raises:
        ValueError: If nothing of that name is registered; the message suggests the nearest. Also
            if the module can't be imported, whatever it raises.
    """
    names = short_names()
    module, colon, env_id = name.rpartition(":")
    if colon:
        _import(module, name)
    spec = gymnasium.registry.get(names.get(env_id, env_id))
    if spec is None:
        raise ValueError(_unknown(name, env_id, names))
    return spec


def _import(module: str, name: str) -> None:
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            f"What precedes the colon in {name!r} must be a module's full name, such as "
            f"'my_package.my_module:MyEnv-v0'; got {module!r}."
        )
    here = str(Path.cwd())
    if here not in sys.path:  # a command's path starts with the folder that holds the command
        sys.path.append(here)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"The module of the environment {name!r} was not found: {error}."
        ) from error
    # A script without a main guard may end the process, which is not meant here.
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"The module of the environment {name!r} could not be imported: it raised "
            f"{type(error).__name__}: {error}."
        ) from error


def _snake_case(spec: EnvSpec) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spec.name).lower()


def _unknown(name: str, env_id: str, names: dict[str, str]) -> str:
    others = [known for known in superdex_ids() if known not in names.values()]
    meant = {known: known for known in (*names, *others, *gymnasium.registry)}
    # Who types hopper means superdex/Hopper-v5.
    for known in others:
        meant.setdefault(_snake_case(gymnasium.registry[known]), known)
    nearest = difflib.get_close_matches(env_id, meant, n=1)
    advice = f"Did you mean {meant[nearest[0]]!r}? " if nearest else ""
    return (
        f"There is no environment {name!r}. {advice}Give a short name ({', '.join(names)}), one of "
        f"{', '.join(others)}, or another registered Gymnasium id; where a module of yours "
        "registers it, write 'module:id'."
    )
