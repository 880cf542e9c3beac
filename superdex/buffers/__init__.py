"""Arrays that the caller owns, filled in place; ids of positions and episodes; parts of a batch.

Everything here works on plain arrays, without processes and shared memory. `BufferedSteps` turns
any class with a few primitives into one with these calls: `HybridVectorEnv` is one, and
`VectorGameEnv`.
"""

from superdex.buffers._bound import BoundBuffers
from superdex.buffers._checks import check_buffers, check_env_ids
from superdex.buffers._ids import Ids
from superdex.buffers._slots import SlotBatch, slot_partitions
from superdex.buffers._spec import ArraySpec, BatchSpec, allocate
from superdex.buffers._steps import BufferedSteps

__all__ = [
    "ArraySpec",
    "BatchSpec",
    "BoundBuffers",
    "BufferedSteps",
    "Ids",
    "SlotBatch",
    "allocate",
    "check_buffers",
    "check_env_ids",
    "slot_partitions",
]
