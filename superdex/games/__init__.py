"""Games in a compiled language, many at a time.

A game engine is a library behind the C interface `superdex_game.h`, which lies in
`include_dir()`. `library` opens the engine that superdex ships, `load` any other; `GameBatch` plays
many games of one in one call, and `VectorGameEnv` is what training uses::

    library()  ──┬─► GameLibrary ──► describe(options) ──► GameDescription: shapes, names
    load(path) ──┘       │
                         └─────────► create(num_games) ──► GameBatch: reset, step, observe, …
                                                                │
    VectorGameEnv(game, num_envs, seed): dicts of arrays for training ◄┘

The sources of superdex's own engine lie in `cpp`: `cpp/include/superdex` holds the parts that any
game in C++ can be built on, `cpp/src` the games, and `cpp/examples` an engine that stands on the C
header alone. The engine is built when superdex is installed; where there was no compiler, importing
this package raises a `GameLibraryError` that says what to do.
"""

from superdex.games._batch import GameBatch
from superdex.games._description import GameDescription
from superdex.games._engine import find_library, include_dir, library
from superdex.games._gymnasium import GymnasiumVectorGameEnv
from superdex.games._library import GameLibrary, load
from superdex.games._outputs import BoundOutputs
from superdex.games._vector import VectorGameEnv

__all__ = [
    "BoundOutputs",
    "GameBatch",
    "GameDescription",
    "GameLibrary",
    "GymnasiumVectorGameEnv",
    "VectorGameEnv",
    "include_dir",
    "library",
    "load",
]

# Whoever imports games wants to play them: a missing engine is told now, not at the first call.
find_library()
del find_library
