"""What an environment or wrapper of your own defines so that its state can be captured."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["HasState"]


@runtime_checkable
class HasState(Protocol):
    """An environment, or a wrapper, that says itself what its future depends on.

    The random generator `np_random` is seen to, and need not be in the state. In a `SceneEnv`, or
    an environment on Gymnasium's `MujocoEnv`, so is the simulation: there the two methods are for
    what the class remembers beside it. They are called while the scene holds the environment's own
    state.

    Example:
        >>> from superdex.states import HasState
        >>> class Counter:
        ...     def __init__(self):
        ...         self.count = 0
        ...     def get_state(self):
        ...         return {"count": self.count}
        ...     def set_state(self, state):
        ...         self.count = state["count"]
        >>> isinstance(Counter(), HasState)
        True
    """

    def get_state(self) -> Any:
        """Return the state, of plain values.

        Plain are None, numbers, strings, bytes, lists, tuples, dicts, sets, NumPy arrays and
        scalars, and NumPy's random generators. They are copied.
        """
        ...

    def set_state(self, state: Any) -> None:
        """Go on from a state that `get_state` returned, here or in another environment.

        Args:
            state: A copy, which may be kept.
        """
        ...
