"""What parent and workers say to each other.

Each worker has a row of control words in the block. The parent writes a command and a sequence
number there and wakes the worker; the worker writes its status and that number back and wakes the
parent. So a step sends no message at all. A payload or a reply that is not an array follows on the
worker's pipe, and the words say so. A wake-up means "look", and only the sequence number counts:
one too many does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from superdex.errors import WorkerDied
from superdex.vector._info import InfoEntry
from superdex.vector._notices import Notice
from superdex.vector._remote import Failure
from superdex.vector._settings import GroupSettings

__all__ = [
    "ANYWHERE",
    "COMMAND_NAMES",
    "NOTHING",
    "Command",
    "Construction",
    "Death",
    "Reply",
    "ResetRequest",
    "RowsPayload",
    "Status",
    "Target",
    "Word",
]

Target = tuple[int, int]
"""Where a call writes its results: the number of a buffer of outputs, and of one for infos."""

ANYWHERE: Final[Target] = (0, 0)
"""The target of a call that has no results in the block."""


class Word:
    """The control words of a worker. Plain integers, since they index memory in the hot loop."""

    COMMAND: Final = 0
    SEQUENCE: Final = 1
    BUFFER: Final = 2
    HAS_PAYLOAD: Final = 3
    SENT_AT: Final = 4
    """Times are in nanoseconds of the monotonic clock, which all processes share."""

    INFO_BUFFER: Final = 5

    DONE: Final = 8
    STATUS: Final = 9
    TOUCHED_COLUMNS: Final = 10
    ENV_STEPS: Final = 11
    LIVE_SCENES: Final = 12
    DONE_AT: Final = 13
    BUSY_NS: Final = 14
    """Spent on commands, which is the environments' time."""

    TRANSPORT_NS: Final = 15
    """Between the caller's sending a command and the worker's having it."""

    IDLE_NS: Final = 16
    """Between a reply and the caller's sending the next command."""

    ENV_ERRORS: Final = 17
    AT_ONCE: Final = 18
    """Whether its environments are stepped at once."""


class Command:
    """What a worker is asked to do."""

    STEP: Final = 1
    RESET: Final = 2
    CALL: Final = 3
    SET_ATTR: Final = 4
    CLOSE: Final = 5
    ATTACH: Final = 6
    """Map one more buffer of outputs, whose descriptor follows on the pipe."""

    DETACH: Final = 7
    STEP_ROWS: Final = 8
    RESET_ROWS: Final = 9
    """These two are requests, for some of its environments, and come through its queue."""

    CAPTURE: Final = 10
    STAGE: Final = 11
    """Check states that RESTORE is to put in place."""

    RESTORE: Final = 12
    BANK: Final = 13


COMMAND_NAMES = (
    *("", "step", "reset", "call", "set_attr", "close"),
    *("attach", "detach", "step", "reset"),
    *("capture_states", "restore_states", "restore_states", "use_episode_bank"),
)
"""The name of each command, as errors give it."""


class Status:
    """How a command went, and whether a `Reply` follows on the pipe: bits of one word."""

    OK: Final = 0
    HAS_REPLY: Final = 1
    FAILED: Final = 2


@dataclass(frozen=True)
class Construction:
    """What a worker is made from.

    Attributes:
        env_fns: The functions, pickled by cloudpickle.
        indices: The environments' indices in the batch.
        settings: Of the group.
        inner_env_cls: Another `VectorEnv` class as the inner layer, or None.
        inner_env_kwargs: Its further arguments.
    """

    env_fns: bytes
    indices: range
    settings: GroupSettings
    inner_env_cls: Any
    inner_env_kwargs: dict[str, Any]


@dataclass(frozen=True)
class ResetRequest:
    """The payload of RESET.

    Attributes:
        rows: Of the group.
        seeds: One for each row.
        options: Likewise.
        columns: The info columns from now on, or None where they are as before.
    """

    rows: list[int]
    seeds: list[int | None]
    options: list[dict[str, Any] | None]
    columns: Any = None


@dataclass(frozen=True)
class RowsPayload:
    """The payload of STEP_ROWS and RESET_ROWS, where one is needed.

    Attributes:
        columns: The info columns from now on, or None where they are as before.
        seeds: One for each row that is reset.
        options: Likewise.
    """

    columns: Any = None
    seeds: Sequence[int | None] = ()
    options: Sequence[dict[str, Any] | None] = ()


@dataclass(frozen=True)
class Death:
    """A worker that died while it was called, in the place of its reply; it was restarted."""

    error: WorkerDied

    def to_error(self, worker: int) -> WorkerDied:
        """Return the error to raise, as `Failure.to_error` does."""
        return self.error


@dataclass
class Reply:
    """What does not fit the block.

    Attributes:
        entries: Infos that have no column.
        notices: Messages for the user.
        failures: What environments raised, and workers that died while they were called.
        results: Of CALL, each pickled.
    """

    entries: list[InfoEntry] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    failures: list[Failure | Death] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)


NOTHING = Reply()
"""The reply of a command that has nothing to say; nobody writes to it."""
