"""Which call is legal in which state: every entry of the table, written out by hand."""

from __future__ import annotations

import pytest

from superdex.errors import BrokenError, CallPending, ClosedError, ResetNeeded
from superdex.vector._lifecycle import Lifecycle, State

CALLS = ("reset", "step", "call", "step_wait", "reset_wait")
ROWS = ("step_rows", "reset_rows", "observe_rows", "take_rows")
"""Calls for some rows."""

ALLOWED = [
    ("reset", State.NEW, State.RESETTING),
    ("reset", State.IDLE, State.RESETTING),
    ("step", State.IDLE, State.STEPPING),
    ("call", State.NEW, State.CALLING),
    ("call", State.IDLE, State.CALLING),
    ("step_wait", State.STEPPING, State.STEPPING),
    ("reset_wait", State.RESETTING, State.RESETTING),
    ("reset_rows", State.NEW, State.SLOTS),
    ("take_rows", State.NEW, State.NEW),
    ("step_rows", State.IDLE, State.SLOTS),
    ("reset_rows", State.IDLE, State.SLOTS),
    ("observe_rows", State.IDLE, State.IDLE),
    ("take_rows", State.IDLE, State.IDLE),
    *((call, State.SLOTS, State.SLOTS) for call in ROWS),
]

REFUSED = [
    ("step", State.NEW, ResetNeeded),
    ("step_wait", State.NEW, RuntimeError),
    ("reset_wait", State.NEW, RuntimeError),
    ("step_wait", State.IDLE, RuntimeError),
    ("reset_wait", State.IDLE, RuntimeError),
    ("reset", State.STEPPING, CallPending),
    ("step", State.STEPPING, CallPending),
    ("call", State.STEPPING, CallPending),
    ("reset_wait", State.STEPPING, CallPending),
    ("reset", State.RESETTING, CallPending),
    ("step", State.RESETTING, CallPending),
    ("call", State.RESETTING, CallPending),
    ("step_wait", State.RESETTING, CallPending),
    ("reset", State.CALLING, CallPending),
    ("step", State.CALLING, CallPending),
    ("call", State.CALLING, CallPending),
    ("step_wait", State.CALLING, CallPending),
    ("reset_wait", State.CALLING, CallPending),
    ("reset", State.BROKEN, BrokenError),
    ("step", State.BROKEN, BrokenError),
    ("call", State.BROKEN, BrokenError),
    ("step_wait", State.BROKEN, BrokenError),
    ("reset_wait", State.BROKEN, BrokenError),
    ("reset", State.CLOSED, ClosedError),
    ("step", State.CLOSED, ClosedError),
    ("call", State.CLOSED, ClosedError),
    ("step_wait", State.CLOSED, ClosedError),
    ("reset_wait", State.CLOSED, ClosedError),
    ("step_rows", State.NEW, ResetNeeded),
    ("observe_rows", State.NEW, ResetNeeded),
    *((call, State.SLOTS, CallPending) for call in CALLS),
    *((call, State.STEPPING, CallPending) for call in ROWS),
    *((call, State.RESETTING, CallPending) for call in ROWS),
    *((call, State.CALLING, CallPending) for call in ROWS),
    *((call, State.BROKEN, BrokenError) for call in ROWS),
    *((call, State.CLOSED, ClosedError) for call in ROWS),
]


def in_state(state: State) -> Lifecycle:
    """Return a lifecycle that came to that state by legal calls."""
    lifecycle = Lifecycle()
    if state is State.BROKEN:
        lifecycle.break_down(KeyError("first"))
    elif state is State.CLOSED:
        lifecycle.close()
    elif state is State.RESETTING:
        lifecycle.begin("reset")
    elif state is not State.NEW:
        lifecycle.begin("reset")
        lifecycle.finish()
        if state is not State.IDLE:
            calls = {State.STEPPING: "step", State.CALLING: "call", State.SLOTS: "step_rows"}
            lifecycle.begin(calls[state])
    assert lifecycle.state is state
    return lifecycle


def test_the_tables_of_this_module_are_complete():
    """Every call in every state is either allowed or refused below."""
    pairs = [(call, state) for call, state, _ in (*ALLOWED, *REFUSED)]
    assert len(pairs) == len(set(pairs)) == len(CALLS + ROWS) * len(State)


@pytest.mark.parametrize(("call", "state", "target"), ALLOWED)
def test_a_legal_call_leads_on(call, state, target):
    """It moves to the state of the table."""
    lifecycle = in_state(state)
    assert lifecycle.check(call) is target
    assert lifecycle.state is state, "a check moves nothing"
    lifecycle.begin(call)
    assert lifecycle.state is target


@pytest.mark.parametrize(("call", "state", "error"), REFUSED)
def test_an_illegal_call_raises_and_changes_nothing(call, state, error):
    """The error's class says why, and the state stays."""
    lifecycle = in_state(state)
    for refuse in (lifecycle.check, lifecycle.begin):
        with pytest.raises(error) as caught:
            refuse(call)
        assert type(caught.value) is error
        assert call in str(caught.value)
        assert lifecycle.state is state


def test_a_finished_call_before_the_first_reset_leads_back_to_new():
    """A call is no reset: stepping still needs one."""
    lifecycle = Lifecycle()
    lifecycle.begin("call")
    lifecycle.finish()
    assert lifecycle.state is State.NEW


@pytest.mark.parametrize("call", ["step", "call", "reset"])
def test_a_finished_call_after_a_reset_leads_to_idle(call):
    """Once there has been a reset, steps are legal."""
    lifecycle = in_state(State.IDLE)
    lifecycle.begin(call)
    lifecycle.finish()
    assert lifecycle.state is State.IDLE


def test_rows_out_of_flight_lead_to_idle():
    """Whatever call it was, and after a first reset of some rows too."""
    for call, state in (("step_rows", State.IDLE), ("reset_rows", State.NEW)):
        lifecycle = in_state(state)
        lifecycle.begin(call)
        lifecycle.finish_rows()
        assert lifecycle.state is State.IDLE


def test_rows_that_come_after_closing_are_refused():
    """Closed is the end for slots in flight, too."""
    lifecycle = in_state(State.SLOTS)
    lifecycle.close()
    with pytest.raises(ClosedError, match="in flight"):
        lifecycle.finish_rows()
    assert lifecycle.state is State.CLOSED


def test_the_first_failure_is_the_cause():
    """BrokenError leads back to what broke it."""
    lifecycle = Lifecycle()
    failure = KeyError("first")
    lifecycle.break_down(failure)
    with pytest.raises(BrokenError, match="KeyError") as caught:
        lifecycle.begin("step")
    assert caught.value.__cause__ is failure


def test_a_closed_one_does_not_break():
    """Closed is the end, whatever fails later."""
    lifecycle = in_state(State.CLOSED)
    lifecycle.break_down(KeyError("late"))
    assert lifecycle.state is State.CLOSED


def test_a_call_that_ends_after_closing_is_refused():
    """Closed is the end for what was in flight, too."""
    lifecycle = in_state(State.STEPPING)
    lifecycle.close()
    with pytest.raises(ClosedError, match="in flight"):
        lifecycle.finish()
    assert lifecycle.state is State.CLOSED


@pytest.mark.parametrize("state", list(State))
def test_closing_is_legal_everywhere(state):
    """Every state leads to CLOSED."""
    lifecycle = in_state(state)
    lifecycle.close()
    assert lifecycle.state is State.CLOSED


def test_a_pending_call_is_named_with_the_way_out():
    """The message says what is in flight and what to call."""
    lifecycle = in_state(State.STEPPING)
    with pytest.raises(CallPending, match=r"reset .* while a step is in flight: first step_wait"):
        lifecycle.begin("reset")


def test_slots_in_flight_are_named_with_the_ways_out():
    """The message says what to call."""
    lifecycle = in_state(State.SLOTS)
    with pytest.raises(CallPending, match=r"call was called while slots are in flight: .*recv"):
        lifecycle.begin("call")


def test_an_interrupted_call_may_be_drained_by_reset():
    """The message says so, and only then."""
    lifecycle = in_state(State.STEPPING)
    lifecycle.interrupted = True
    with pytest.raises(CallPending, match=r"or reset\(\)"):
        lifecycle.begin("step")


@pytest.mark.parametrize("end", ["finish", "close", "break_down"])
def test_an_interrupt_is_over_with_its_call(end):
    """Once the call has ended, in whatever way, there is nothing left to drain."""
    lifecycle = in_state(State.STEPPING)
    lifecycle.interrupted = True
    if end == "break_down":
        lifecycle.break_down(KeyError())
    else:
        getattr(lifecycle, end)()
    assert not lifecycle.interrupted


@pytest.mark.parametrize("state", State)
def test_every_state_has_words(state):
    """A call in flight is told as pending, a failure by its class."""
    lifecycle = Lifecycle()
    lifecycle.state = state
    pending = state in (State.STEPPING, State.RESETTING, State.CALLING, State.SLOTS)
    assert lifecycle.in_words() == (f"{state.value} pending" if pending else state.value)
    lifecycle.break_down(ValueError("no"))
    broken = state is not State.CLOSED
    assert lifecycle.in_words() == ("broken by ValueError" if broken else "closed")
