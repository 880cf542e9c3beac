"""States of environments as values: captured, kept in files, put back, multiplied.

`HybridVectorEnv.capture_states` returns a `VectorState`, which `restore_states` and `fork` take. An
environment of your own takes part by `get_state()` and `set_state(state)`; see `HasState`.
"""

from superdex.states._has_state import HasState
from superdex.states._vector_state import VectorState

__all__ = ["HasState", "VectorState"]
