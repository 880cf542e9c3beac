"""Step thousands of Gymnasium environments on shared MuJoCo scenes as one batch.

The parts, each of which loads only what it needs:

- ``superdex.vector``: ``HybridVectorEnv``, worker processes that each step many environments.
- ``superdex.scenes``: physics scenes that environments of one process share.
- ``superdex.envs``: the base class for environments on such scenes, and the benchmark ones.
- ``superdex.testing``: checks for your own environments and scenes.
- ``superdex.bench``: the sweep behind ``superdex bench``.
- ``superdex.errors``: every exception that the package raises on its own account.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
