"""Which call is legal in which state: a table, and nothing else.

::

                 NEW          IDLE        STEPPING     RESETTING    CALLING      SLOTS
    ───────────  ───────────  ──────────  ───────────  ───────────  ───────────  ───────────
    reset        RESETTING    RESETTING   CallPending  CallPending  CallPending  CallPending
    step         ResetNeeded  STEPPING    CallPending  CallPending  CallPending  CallPending
    call         CALLING      CALLING     CallPending  CallPending  CallPending  CallPending
    step_wait    nothing      nothing     STEPPING     CallPending  CallPending  CallPending
    reset_wait   nothing      nothing     CallPending  RESETTING    CallPending  CallPending
    step_rows    ResetNeeded  SLOTS       CallPending  CallPending  CallPending  SLOTS
    reset_rows   SLOTS        SLOTS       CallPending  CallPending  CallPending  SLOTS
    observe_rows ResetNeeded  IDLE        CallPending  CallPending  CallPending  SLOTS
    take_rows    NEW          IDLE        CallPending  CallPending  CallPending  SLOTS

    SLOTS: some rows are in flight, in any number of requests; which of them, others know.
    BROKEN: BrokenError for all of them; CLOSED: ClosedError. "nothing" is in flight: RuntimeError.

`begin` looks the call up and moves; `finish` moves back, to IDLE once there has been a reset, and
so does `finish_rows` from SLOTS, when the last row is out of flight. A
call that is refused changes nothing. A wait that times out leaves its call in flight, so that
waiting again returns the same reply; so does a `KeyboardInterrupt` while waiting, after which
`interrupted` is set and `reset` may drain that call first. A failure that may have shifted a result
leads to BROKEN and never back; CLOSED is reached from everywhere by `close`.
"""

from __future__ import annotations

from enum import Enum

from superdex.errors import BrokenError, CallPending, ClosedError, ResetNeeded

__all__ = ["Lifecycle", "State"]


class State(Enum):
    """Where a vector environment stands."""

    # the default hashes the name, in Python, three times in a step
    __hash__ = object.__hash__

    NEW = "not reset yet"
    IDLE = "idle"
    STEPPING = "step"
    RESETTING = "reset"
    CALLING = "call"
    SLOTS = "slots"
    BROKEN = "broken"
    CLOSED = "closed"


_TABLE: dict[tuple[str, State], State] = {
    ("reset", State.NEW): State.RESETTING,
    ("reset", State.IDLE): State.RESETTING,
    ("step", State.IDLE): State.STEPPING,
    ("call", State.NEW): State.CALLING,
    ("call", State.IDLE): State.CALLING,
    ("step_wait", State.STEPPING): State.STEPPING,
    ("reset_wait", State.RESETTING): State.RESETTING,
    ("step_rows", State.IDLE): State.SLOTS,
    ("step_rows", State.SLOTS): State.SLOTS,
    ("reset_rows", State.NEW): State.SLOTS,
    ("reset_rows", State.IDLE): State.SLOTS,
    ("reset_rows", State.SLOTS): State.SLOTS,
    ("observe_rows", State.IDLE): State.IDLE,
    ("observe_rows", State.SLOTS): State.SLOTS,
    ("take_rows", State.NEW): State.NEW,
    ("take_rows", State.IDLE): State.IDLE,
    ("take_rows", State.SLOTS): State.SLOTS,
}


class Lifecycle:
    """The state of one vector environment.

    Attributes:
        state: The state.
        interrupted: Whether a wait for the call in flight was interrupted.
        failure: The failure that broke it, if any.
    """

    def __init__(self) -> None:
        self.state = State.NEW
        self.interrupted = False
        self.failure: BaseException | None = None
        self._was_reset = False

    @property
    def in_flight(self) -> bool:
        """Whether a call was begun and not finished."""
        return self.state in (State.STEPPING, State.RESETTING, State.CALLING)

    def in_words(self) -> str:
        """Return where it stands: "idle", "step pending", "broken by WorkerDied", "closed"."""
        if self.state is State.BROKEN and self.failure is not None:
            return f"broken by {type(self.failure).__name__}"
        pending = self.in_flight or self.state is State.SLOTS
        return f"{self.state.value} pending" if pending else self.state.value

    @property
    def is_broken(self) -> bool:
        """Whether only `close` is left."""
        return self.state in (State.BROKEN, State.CLOSED)

    def check(self, call: str, name: str | None = None) -> State:
        """Return the state that `call` leads to, moving nothing.

        Args:
            call: A row of the table.
            name: What the caller knows it as, for errors.

        Raises:
            ClosedError, BrokenError, CallPending, ResetNeeded, RuntimeError: As in the table.
        """
        target = _TABLE.get((call, self.state))
        if target is None:
            raise self._refusal(call, name or call)
        return target

    def check_usable(self, name: str) -> None:
        """Raise `ClosedError` or `BrokenError` if only `close` is left."""
        if self.is_broken:
            raise self._refusal(name, name)

    def begin(self, call: str) -> None:
        """Move to the state that `call` leads to, or raise as `check`."""
        self.state = self.check(call)

    def finish(self) -> None:
        """The call in flight came to its end, well or not, and its replies were taken.

        Raises:
            ClosedError: If `close` came first, from another thread or a signal's handler.
        """
        if self.state is State.CLOSED:
            raise ClosedError("close() was called while this call was in flight: it has no result.")
        self._was_reset = self._was_reset or self.state is State.RESETTING
        self.state = State.IDLE if self._was_reset else State.NEW
        self.interrupted = False

    def note_reset(self) -> None:
        """A call that was none of `reset` put environments where they can be stepped."""
        self._was_reset = True
        if self.state is State.NEW:
            self.state = State.IDLE

    def finish_rows(self) -> None:
        """No row is in flight any more.

        Raises:
            ClosedError: If `close` came first.
        """
        if self.state is State.CLOSED:
            raise ClosedError("close() was called while slots were in flight: they have no result.")
        if self.state is State.SLOTS:
            self._was_reset = True
            self.state = State.IDLE

    def break_down(self, failure: BaseException) -> None:
        """A failure may have shifted a result: nothing but `close` from here on."""
        if self.state is not State.CLOSED:
            self.state = State.BROKEN
            self.failure = failure
            self.interrupted = False

    def close(self) -> None:
        """Move to CLOSED."""
        self.state = State.CLOSED
        self.interrupted = False

    def _refusal(self, call: str, name: str) -> Exception:
        state = self.state
        if state is State.CLOSED:
            return ClosedError(f"{name} was called after close().")
        if state is State.BROKEN:
            error = BrokenError(
                f"{name} was called after a failure that left the vector environment broken "
                f"({type(self.failure).__name__}, shown as the cause). Close it and make another."
            )
            error.__cause__ = self.failure
            return error
        if state is State.NEW and call in ("step", "step_rows", "observe_rows"):
            return ResetNeeded(f"{name} was called before the first reset: call reset() first.")
        if state is State.SLOTS:
            return CallPending(
                f"{name} was called while slots are in flight: first wait_slots() or recv(), or "
                "reset(), which drops them."
            )
        if state in (State.NEW, State.IDLE):
            first = call.replace("wait", "async")
            return RuntimeError(f"{call} was called with nothing in flight: call {first}() first.")
        how = f"{state.value}_wait()" if state is not State.CALLING else "reset()"
        if self.interrupted:
            how = "reset(), which drains it" if how == "reset()" else f"{how}, or reset()"
        return CallPending(f"{name} was called while a {state.value} is in flight: first {how}.")
