"""`superdex envs`: the environments, the sizes of their spaces, and what they are."""

from __future__ import annotations

import inspect
import math

import gymnasium
from rich.console import Console
from rich.table import Table

from superdex.bench._names import short_names, superdex_ids

__all__ = ["execute"]

_WIDTH_WITHOUT_TERMINAL = 120


def execute() -> int:
    """Print the table and return the exit code."""
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    names = {env_id: name for name, env_id in short_names().items()}
    table = Table()
    table.add_column("Id and short name", no_wrap=True)
    table.add_column("Obs", justify="right")
    table.add_column("Act", justify="right")
    table.add_column("Description")
    for env_id in superdex_ids():
        with gymnasium.make(env_id, disable_env_checker=True) as env:
            table.add_row(
                f"{env_id}\n{names.get(env_id, '')}",
                _size(env.observation_space),
                _size(env.action_space),
                _describe(env),
            )
    console.print(table)
    return 0


def _size(space: gymnasium.Space[object]) -> str:
    return str(math.prod(space.shape)) if space.shape is not None else str(space)


def _describe(env: gymnasium.Env[object, object]) -> str:
    """Return the first line of what the environment's class says, and how this id differs."""
    first = (inspect.getdoc(type(env.unwrapped)) or "").partition("\n")[0]
    settings = env.spec.kwargs if env.spec is not None else {}
    changed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"{first}\n{changed}" if changed else first
