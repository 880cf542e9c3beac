"""One worker: what it does with a command, and the loop that receives commands in its process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from time import perf_counter_ns
from types import FrameType
from typing import Any

import numpy as np

from superdex._parent_process import end_with_parent
from superdex.vector import _remote
from superdex.vector._bell import Ringer
from superdex.vector._block import Block
from superdex.vector._columns import InfoWriter
from superdex.vector._episodes import Revival
from superdex.vector._group import EnvGroup
from superdex.vector._info import InfoEntry
from superdex.vector._inner import VectorEnvGroup
from superdex.vector._layout import OUTPUTS, SLOT_BUFFER, Layout
from superdex.vector._protocol import (
    COMMAND_NAMES,
    NOTHING,
    Command,
    Construction,
    Reply,
    RowsPayload,
    Status,
    Target,
    Word,
)
from superdex.vector._queue import Outcome, Request, RequestQueue
from superdex.vector._remote import EnvFailure, Failure
from superdex.vector._rows import GroupArrays, LastResults
from superdex.vector._signal import Signal
from superdex.vector._spaces import SpaceReport
from superdex.vector._whereabouts import whereabouts

__all__ = ["Worker", "run"]

_SILENCE: tuple[int, None] = (Status.OK, None)
"""Status and message of an answer that has nothing to say."""


class Worker:
    """A group of environments and what a worker does with each command.

    It knows neither pipes nor signals, so the caller's process runs it as well.

    Args:
        env_fns: The functions.
        construction: Everything else.
    """

    def __init__(self, env_fns: Sequence[Callable[[], Any]], construction: Construction) -> None:
        self.index_range = construction.indices
        if construction.inner_env_cls is None:
            self.group: EnvGroup | VectorEnvGroup = EnvGroup(
                env_fns, construction.indices, construction.settings
            )
        else:
            self.group = VectorEnvGroup(
                construction.inner_env_cls,
                env_fns,
                construction.indices,
                construction.settings,
                construction.inner_env_kwargs,
            )

    def attach(self, arrays: dict[str, np.ndarray], worker: int) -> None:
        """Work on this worker's rows of a block from now on."""
        rows = slice(self.index_range.start, self.index_range.stop)
        self.words = memoryview(arrays["control"][worker])
        self.queue = RequestQueue(*(arrays[k][worker] for k in ("counters", "headers", "rows")))
        self._action = arrays["action"][rows]
        self._outputs: list[GroupArrays | None] = []
        self._last = LastResults(arrays["home"][rows], self._outputs)
        for buffer in range(len(arrays["reward"])):
            self._set_outputs(buffer, {k: arrays[k][buffer] for k in OUTPUTS if k in arrays})
        self.group.episodes = arrays["episodes"][rows]
        self.group.clock.record_to(arrays["timing"][rows])
        # a restarted worker goes on counting
        self.group.env_steps = self.words[Word.ENV_STEPS]
        self.group.env_errors = self.words[Word.ENV_ERRORS]
        self._infos = InfoWriter(self.index_range, arrays["info_data"], arrays["info_mask"])
        self._describe()

    def add_outputs(self, buffer: int, arrays: dict[str, np.ndarray]) -> None:
        """Have one more buffer of outputs, which the caller may write to as well."""
        self._set_outputs(buffer, arrays)
        self._out(buffer).share()

    def _set_outputs(self, buffer: int, arrays: dict[str, np.ndarray]) -> None:
        rows = slice(self.index_range.start, self.index_range.stop)
        out = GroupArrays(*(arrays[name][rows] for name in OUTPUTS if name in arrays))
        out.last = self._last
        self._outputs += [None] * (buffer + 1 - len(self._outputs))
        self._outputs[buffer] = out

    def _remove_outputs(self, buffers: Sequence[int]) -> None:
        for buffer in buffers:
            if buffer < len(self._outputs):
                self._outputs[buffer] = None

    def _out(self, buffer: int) -> GroupArrays:
        out = self._outputs[buffer]
        assert out is not None, "a buffer that a call writes to is there"
        return out

    def revive(self, revival: Revival) -> None:
        """Go on in the place of a worker that died."""
        if revival.columns is not None:
            self._infos.follow(revival.columns)
        self._use_bank(revival.bank)
        self.group.revive(revival)

    def handle(self, command: int, target: Target, payload: Any) -> Reply:
        """Do what the command says and return what does not fit the block.

        Failures of environments are in the reply; nothing is raised for them.
        """
        if command == Command.STEP:
            return self._step(target, payload)
        reply = Reply()
        try:
            if command == Command.RESET:
                buffer, info_buffer = target
                out = self._out(buffer)
                if payload.columns is not None:
                    self._infos.follow(payload.columns)
                self.group.reset(payload.rows, payload.seeds, payload.options, out, self._infos)
                reply.entries = self._finish_infos(info_buffer)
            elif command == Command.CALL:
                reply.results = self.group.call(*payload)
            elif command == Command.SET_ATTR:
                self.group.set_attr(*payload)
            elif command in (Command.CAPTURE, Command.STAGE, Command.RESTORE, Command.BANK):
                reply.results = self._handle_states(command, payload)
            elif command == Command.ATTACH:
                self.add_outputs(*payload)
            elif command == Command.DETACH:
                self._remove_outputs(*payload)
            elif command == Command.CLOSE:
                reply.failures = [Failure.of(failure, "close") for failure in self.group.close()]
        except Exception as error:
            reply = self._failed(error, command)
        self._describe()
        self.words[Word.ENV_ERRORS] = self.group.env_errors
        reply.notices = self.group.notices.take()
        return reply if reply != NOTHING else NOTHING

    def _handle_states(self, command: int, payload: Any) -> list[bytes]:
        states = self.group.states
        if command == Command.CAPTURE:
            return [_remote.dumps(states.capture(payload))]
        if command == Command.STAGE:
            states.stage(payload)
        elif command == Command.RESTORE:
            states.restore(payload)
        else:
            self._use_bank(payload)
        return []

    def _use_bank(self, bank: bytes | None) -> None:
        self.group.states.use_bank(None if bank is None else _remote.loads(bank))

    def _step(self, target: Target, columns: Any) -> Reply:
        group, (buffer, info_buffer) = self.group, target
        try:
            if columns is not None:
                self._infos.follow(columns)
            # a copy, since environments may keep views of their action
            group.step(self._action.copy(), self._out(buffer), self._infos)
            entries = self._finish_infos(info_buffer)
        except Exception as error:
            return self._failed(error, Command.STEP)
        self.words[Word.ENV_STEPS] = group.env_steps
        if entries or group.notices.pending:
            self.words[Word.ENV_ERRORS] = group.env_errors
            return Reply(entries, group.notices.take())
        return NOTHING

    def handle_rows(self, request: Request, payload: RowsPayload | None) -> tuple[Reply, int]:
        """Step or reset some environments; return as `handle`, and a bit for each info column."""
        group, rows, out = self.group, request.rows, self._out(SLOT_BUFFER)
        try:
            if payload is not None and payload.columns is not None:
                self._infos.follow(payload.columns)
            if request.command == Command.STEP_ROWS:
                group.step(self._action[rows], out, self._infos, rows)
            else:
                assert payload is not None, "a reset tells seeds and options"
                group.reset(
                    rows.tolist(),
                    payload.seeds,
                    payload.options,
                    out,
                    self._infos,
                    others_rest=True,
                )
            touched, entries = self._infos.finish(SLOT_BUFFER, rows)
        except Exception as error:
            return self._failed(error, request.command), 0
        self.words[Word.ENV_STEPS] = group.env_steps
        self.words[Word.ENV_ERRORS] = group.env_errors
        if request.command == Command.RESET_ROWS:
            self._describe()
        if entries or group.notices.pending:
            return Reply(entries, group.notices.take()), touched
        return NOTHING, touched

    def _failed(self, error: Exception, command: int) -> Reply:
        self._infos.discard()
        self.words[Word.ENV_ERRORS] = self.group.env_errors
        return Reply(failures=[Failure.of(error, COMMAND_NAMES[command])])

    def _finish_infos(self, buffer: int) -> list[InfoEntry]:
        self.words[Word.TOUCHED_COLUMNS], entries = self._infos.finish(buffer)
        return entries

    def _describe(self) -> None:
        """Report how environments are stepped, and the scenes of this process.

        The module that holds scenes is loaded only where an environment needs it.
        """
        self.words[Word.AT_ONCE] = self.group.steps_at_once
        scenes = sys.modules.get("superdex.scenes")
        self.words[Word.LIVE_SCENES] = 0 if scenes is None else scenes.live_scene_count()


def run(
    worker: int,
    connection: Connection,
    alarm: Connection,
    bell: Connection,
    inquiry: Connection,
    request: Signal,
    reply: Signal,
) -> None:
    """Be worker number `worker` until told to close, or until the parent is gone.

    Args:
        worker: The worker's number.
        connection: The pipe to the parent.
        alarm: Where a byte tells the parent at once that something failed.
        bell: Where a byte wakes the parent that waits for several workers.
        inquiry: Where the parent asks what takes so long.
        request: Woken by the parent when there is a command.
        reply: Wakes the parent.
    """
    _settle_process(inquiry)
    try:
        connection.send_bytes(_remote.dumps("here"))
        built = _construct(connection)
        if built is None:
            return
        try:
            layout, segments = _remote.loads(connection.recv_bytes())
            with Block(layout, recv_handle(connection)) as block:
                built.attach(block.arrays, worker)
                for buffer, segment in segments:
                    built.add_outputs(buffer, _mapped(segment, connection))
                answer = _revive(built, connection.recv_bytes())
                connection.send_bytes(_remote.dumps(answer))
                if not isinstance(answer, Failure):
                    ringer = Ringer(block.arrays["bell"], bell)
                    _serve(built, connection, alarm, ringer, request, reply)
        finally:
            built.group.close()
    except (EOFError, ConnectionError):
        return  # the parent gave up or is gone


def _construct(connection: Connection) -> Worker | None:
    """Build the worker and send what it has, or why it has nothing."""
    built, answer = _build(connection.recv_bytes())
    try:
        message = _remote.dumps(answer)
    except Exception as error:
        assert built is not None
        built.group.close()
        built, what = None, "The environments' spaces, render mode or metadata"
        message = _remote.dumps(TypeError(f"{what} can't be pickled for the parent: {error}"))
    connection.send_bytes(message)
    return built


def _build(message: bytes) -> tuple[Worker | None, SpaceReport | Failure | Exception]:
    """Return the worker with what it has; or none, with what an environment or we ourselves say."""
    try:
        construction: Construction = _remote.loads(message)
        env_fns = _remote.loads(construction.env_fns)
    except BaseException as error:  # a module that they import may exit
        return None, Failure.of(error, "construct")
    try:
        built = Worker(env_fns, construction)
    except EnvFailure as failure:
        return None, Failure.of(failure, "construct")
    except (TypeError, ValueError) as error:
        return None, error  # our own words for what the caller passed
    except BaseException as error:
        return None, Failure.of(error, "construct")
    return built, built.group.spaces


def _revive(worker: Worker, message: bytes) -> str | Failure:
    """Go on from what the message says; return "attached", or what an environment raised."""
    try:
        revival = _remote.loads(message)
        if revival is not None:
            worker.revive(revival)
    except Exception as error:
        return Failure.of(error, "construct")
    return "attached"


def _serve(
    worker: Worker,
    connection: Connection,
    alarm: Connection,
    ringer: Ringer,
    request: Signal,
    reply: Signal,
) -> None:
    words, queue = worker.words, worker.queue
    idle, transport, busy = words[Word.IDLE_NS], words[Word.TRANSPORT_NS], words[Word.BUSY_NS]
    idle_since = perf_counter_ns()
    plan = worker.group.clock.plan
    command = 0
    while command != Command.CLOSE:
        request.wait()
        sequence = words[Word.SEQUENCE]
        if sequence == words[Word.DONE]:  # which the parent writes for a call that killed a worker
            # a wake-up too many, or requests: all of them, since there may be fewer wake-ups
            while words[Word.SEQUENCE] == sequence and (asked := queue.next()) is not None:
                idle_since = _serve_rows(worker, asked, connection, ringer, idle_since)
                idle, transport = words[Word.IDLE_NS], words[Word.TRANSPORT_NS]
                busy = words[Word.BUSY_NS]
            continue
        sent_at, started = words[Word.SENT_AT], perf_counter_ns()
        command = words[Word.COMMAND]
        answer = _answer(worker, command, connection)
        status, message = _SILENCE if answer is NOTHING else _dump_reply(answer, worker)
        words[Word.STATUS] = status
        words[Word.DONE_AT] = done_at = perf_counter_ns()
        if sent_at > idle_since:
            words[Word.IDLE_NS] = idle = idle + sent_at - idle_since
            words[Word.TRANSPORT_NS] = transport = transport + started - sent_at
        words[Word.BUSY_NS] = busy = busy + done_at - started
        words[Word.DONE] = sequence
        reply.release()
        if command == Command.STEP:
            plan(done_at - started)
        idle_since = done_at
        if message is not None:
            if answer.failures:
                alarm.send_bytes(b"!")
            connection.send_bytes(message)


def _serve_rows(
    worker: Worker, asked: Request, connection: Connection, ringer: Ringer, idle_since: int
) -> int:
    """Do the next request of the queue; return when that was done."""
    words, started = worker.words, perf_counter_ns()
    answer, touched = _answer_rows(worker, asked, connection)
    status, message = _SILENCE if answer is NOTHING else _dump_reply(answer, worker)
    done_at = perf_counter_ns()
    if asked.sent_at > idle_since:
        words[Word.IDLE_NS] += asked.sent_at - idle_since
        words[Word.TRANSPORT_NS] += started - asked.sent_at
    words[Word.BUSY_NS] += done_at - started
    worker.queue.complete(Outcome(status, touched, done_at))
    ringer.ring()
    if asked.command == Command.STEP_ROWS:
        group = worker.group
        group.clock.plan((done_at - started) * len(group.indices) // len(asked.rows))
    if message is not None:
        connection.send_bytes(message)
    return done_at


def _answer_rows(worker: Worker, asked: Request, connection: Connection) -> tuple[Reply, int]:
    payload = None
    if asked.has_payload:
        payload = _payload(connection, asked.command)
        if isinstance(payload, Reply):
            return payload, 0
    return worker.handle_rows(asked, payload)


def _payload(connection: Connection, command: int) -> Any:
    """Return the payload of a command, or the reply to it where it can't be read."""
    message = connection.recv_bytes()
    try:
        return _remote.loads(message)
    except Exception as error:  # an argument of a class that only the parent can import
        return Reply(failures=[Failure.of(error, COMMAND_NAMES[command])])


def _answer(worker: Worker, command: int, connection: Connection) -> Reply:
    payload: Any = None
    if worker.words[Word.HAS_PAYLOAD]:
        payload = _payload(connection, command)
        if isinstance(payload, Reply):
            return payload
    if command == Command.ATTACH:
        buffer, layout = payload
        payload = buffer, _mapped(layout, connection)
    target = worker.words[Word.BUFFER], worker.words[Word.INFO_BUFFER]
    return worker.handle(command, target, payload)


def _mapped(layout: Layout, connection: Connection) -> dict[str, np.ndarray]:
    """Return the arrays of a segment whose descriptor comes next on the pipe."""
    with Block(layout, recv_handle(connection)) as block:
        return block.arrays


def _dump_reply(reply: Reply, worker: Worker) -> tuple[int, bytes]:
    """Return the status that goes with a reply, and the reply as it travels."""
    notices = worker.group.notices
    entries = _remote.dumps_entries(
        reply.entries, lambda message: notices.once("unpicklable info", message)
    )
    reply.notices += notices.take()
    status = Status.HAS_REPLY | (Status.FAILED if reply.failures else 0)
    return status, _remote.dumps((entries, reply.notices, reply.failures, reply.results))


def load_reply(message: bytes) -> Reply:
    """Return the reply that `_serve` sent."""
    entries, notices, failures, results = _remote.loads(message)
    try:
        return Reply(_remote.loads(entries), notices, failures, results)
    except Exception as error:  # an info of a class that only the worker can import
        return Reply([], notices, [*failures, Failure.of(error, "info")], results)


def _settle_process(inquiry: Connection) -> None:
    """Make this process a worker: a group of its own, quiet at Ctrl-C, gone with its parent."""
    end_with_parent(inquiry, lambda: _remote.dumps(whereabouts()))
    signal.signal(signal.SIGINT, _do_nothing)
    # The parent blocked it while spawning, so that Ctrl-C before this line prints no traceback.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    """Handle a signal by going on. To ignore it would be inherited by what environments start."""
