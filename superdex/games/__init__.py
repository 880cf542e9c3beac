"""Games in a compiled language, many at a time.

A game engine is a library behind the C interface `superdex_game.h`, which lies in this package
under `cpp/include`. `load` opens one; `GameBatch` plays many of its games in one call::

    load(path) ──► GameLibrary ──► describe(options) ──► GameDescription: shapes, names
                        │
                        └────────► create(num_games) ──► GameBatch: reset, step, observe, …

The sources of superdex's own engine lie in `cpp`: `cpp/include/superdex` holds the parts that any
game in C++ can be built on, `cpp/src` the games, and `cpp/examples` an engine that stands on the C
header alone.
"""

from superdex.games._batch import GameBatch
from superdex.games._library import GameDescription, GameLibrary, load
from superdex.games._outputs import BoundOutputs
from superdex.games._vector import VectorGameEnv

__all__ = [
    "BoundOutputs",
    "GameBatch",
    "GameDescription",
    "GameLibrary",
    "VectorGameEnv",
    "load",
]
