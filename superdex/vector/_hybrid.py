"""The vector environment: composes the other modules and decides nothing itself.

::

    caller's process                         worker 0 … W−1, spawned
    ┌──────────────────────────┐  commands   ┌──────────────────────────────┐
    │ HybridVectorEnv          │ ──────────► │ EnvGroup: K environments,    │
    │  lifecycle, seeds, infos │  actions    │ one at a time, on scenes     │
    │  one flat batch (N, …)   │ ◄────────── │ that they share              │
    └──────────────────────────┘   results   └──────────────────────────────┘
                 └──── one shared block: each worker writes its rows ────┘

Rejected designs: a vector environment of vector environments, where every array is copied and
every info merged twice and which is 1.1 to 10 times slower; a process per environment, which costs
tens of microseconds per environment step; workers that spin for work without yielding, which steal
the cores from each other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from multiprocessing.util import Finalize
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv

from superdex.buffers import Ids
from superdex.vector import _remote
from superdex.vector._affinity import checked_affinity
from superdex.vector._allocated import AllocatedBuffers
from superdex.vector._arguments import (
    check_reset_mask,
    check_settings,
    check_timeout,
    check_travels,
    checked_functions,
    checked_mode,
)
from superdex.vector._auto import SplitChoice, choose_split
from superdex.vector._calls import EnvCalls, one_for_each
from superdex.vector._collector import Collector
from superdex.vector._episodes import Ledger, Revival
from superdex.vector._faults import FaultPolicy
from superdex.vector._flight import Flight
from superdex.vector._into import BufferCalls, ChosenResets
from superdex.vector._layout import batch_layout, batch_spec
from superdex.vector._local import LocalPool
from superdex.vector._outputs import FIRST_ALLOCATED, WRITTEN_BY_WORKERS
from superdex.vector._pool import WorkerPool
from superdex.vector._process import refuse_in_unguarded_main, warn_of_crowd
from superdex.vector._protocol import Command, Construction, ResetRequest, Target, Word
from superdex.vector._results import BatchedResetResult, BatchedStepResult
from superdex.vector._row_calls import RowCalls
from superdex.vector._seeding import (
    Options,
    Seed,
    normalize_options,
    normalize_seeds,
    select_rows,
)
from superdex.vector._send_receive import SendReceiveCalls
from superdex.vector._settings import AutoresetOptions, GroupSettings
from superdex.vector._slots import SlotCalls, Ticket
from superdex.vector._spaces import batch_boxes
from superdex.vector._split import Split, split_envs
from superdex.vector._startup import raise_all
from superdex.vector._state_calls import StateCalls
from superdex.vector._statistics import Statistics, pool_statistics

__all__ = ["HybridVectorEnv"]


class HybridVectorEnv(
    StateCalls,
    SendReceiveCalls,
    SlotCalls,
    BufferCalls,
    VectorEnv[np.ndarray, np.ndarray, np.ndarray],
):
    """Steps N environments as one batch: W worker processes, each stepping K environments in turn.

    Environment i is slot i % K of worker i // K. Its trajectory is bit-identical to a plain loop
    over it alone, whatever the split. The parent never builds an environment.

    Make it inside a function that is called under `if __name__ == "__main__":`, since workers are
    spawned and import the main module.

    Args:
        env_fns: One function per environment that builds it. They travel by cloudpickle.
        num_envs_per_worker: K; must divide N. With the default, each environment has a process.
        num_workers: W instead of K, best about the number of cores; the first N mod W workers hold
            one environment more.
        autoreset_mode: What happens after an episode's end, as in Gymnasium.
        copy: True: the caller owns every array it gets. False: arrays are read-only views, valid
            until the next but one `step` or reset.
        in_process: Run the workers in this process, one after the other, for a debugger.
        context: Accepted for compatibility; workers are always spawned.
        inner_env_cls: Another `VectorEnv` class as the inner layer, a module-level class that is
            called as `cls(env_fns, autoreset_mode=…, **inner_env_kwargs)`.
        inner_env_kwargs: Its further arguments.
        episode_seeds: Give every later episode a seed derived from the environment's seed and the
            episode's number, so that a run stays paired whatever happens in other environments.
        reset_masks: Honour `options={"reset_mask": mask}` in `reset`, as Gymnasium's classes do.
        autoreset_options: Options of autoresets: None for none, "last" for those of the
            environment's last reset, or a function `(index, episode) -> dict | None`, where
            episode 1 starts with the first autoreset.
        timeout: Seconds that `step` and `reset` wait at most where they are given no other limit;
            None for as long as it takes. Only worker processes can be timed out.
        slow_after: Seconds after which a call that is still under way is reported, in a warning
            that names the environment; None for never. Nothing is ended for being slow.
        on_worker_failure: What to do when a worker dies. "raise": raise `WorkerDied`, and be
            broken. "restart": warn, build its environments anew, and go on; their episodes come
            back truncated, with `truncated_reason` "worker restarted" and `worker_restarted` in
            the info. The other workers don't notice.
        on_env_error: What to do when an environment raises in `step` or `reset`. "raise": raise
            `WorkerRaised`, and be broken. "truncate": warn, build that environment anew, and go on;
            its episode comes back truncated, with `truncated_reason` "environment error" and what
            it raised as `env_error` in the info.
        max_restarts: How often one worker may be restarted, and one environment built anew, within
            the window; the next failure is raised.
        restart_window: In seconds.
        worker_affinity: On which CPUs workers run. None: where the system puts them. "spread": one
            CPU for each, on a physical core of its own as long as there are any. A list whose
            entries are a CPU or a collection of CPUs: workers take the entries in turn. A worker is
            there before it imports anything; your process stays where it is.
        num_threads_per_worker: Native threads in each worker for the physics of environments whose
            hooks are written for arrays; others take no notice.

    Raises:
        ValueError: If the split is impossible, arguments contradict, spaces differ in shape or
            dtype, or `worker_affinity` names a CPU that this process may not use.
        NotImplementedError: If `worker_affinity` is given where there is no such thing.
        TypeError: If a space is not a `Box`, a function builds no environment or can't be pickled.
        WorkerRaised: If a function raises.
        WorkerDied: If a worker dies on the way.
        StartupError: If the main module has no guard, or /dev/shm has no room for semaphores.
        MemoryError: If the batch doesn't fit in the machine's memory or the container's limit.

    Example:
        >>> env_fns = [lambda: gym.make("Pendulum-v1") for _ in range(8)]
        >>> with HybridVectorEnv(env_fns, num_envs_per_worker=4) as envs:
        ...     observations, info = envs.reset(seed=1)
        ...     result = envs.step(envs.action_space.sample())
        >>> result.observation.shape, result.reward.shape
        ((8, 3), (8,))
    """

    split_choice: SplitChoice | None = None
    """What `auto` tried, and why it took this split; None without it."""

    _ids: Ids

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        num_envs_per_worker: int = 1,
        *,
        num_workers: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        in_process: bool = False,
        context: str | None = None,
        inner_env_cls: type[VectorEnv[Any, Any, Any]] | None = None,
        inner_env_kwargs: Mapping[str, Any] | None = None,
        episode_seeds: bool = False,
        reset_masks: bool = False,
        autoreset_options: AutoresetOptions = None,
        timeout: float | None = None,
        slow_after: float | None = 10.0,
        on_worker_failure: str = "raise",
        on_env_error: str = "raise",
        max_restarts: int = 100,
        restart_window: float = 3600.0,
        worker_affinity: Any = None,
        num_threads_per_worker: int = 1,
    ) -> None:
        if not in_process:
            refuse_in_unguarded_main()
        env_fns = checked_functions(env_fns)
        self._split = split_envs(len(env_fns), num_envs_per_worker, num_workers)
        self._mode = checked_mode(autoreset_mode)
        faults = FaultPolicy(on_worker_failure, on_env_error, max_restarts, restart_window)
        settings = GroupSettings(
            self._mode, episode_seeds, autoreset_options, faults, num_threads_per_worker
        )
        self._settings = settings
        check_settings(settings, inner_env_cls, inner_env_kwargs)
        check_timeout(timeout)
        check_timeout(slow_after, "slow_after")
        affinity = checked_affinity(worker_affinity, self._split.num_workers)
        if not in_process:
            check_travels(
                autoreset_options=autoreset_options,
                inner_env_cls=inner_env_cls,
                inner_env_kwargs=inner_env_kwargs,
            )
        if context not in (None, "spawn"):
            warnings.warn(
                f"Workers are always started with spawn; context={context!r} is ignored.",
                RuntimeWarning,
                stacklevel=2,
            )
        if not in_process:
            warn_of_crowd(self._split.num_workers)
        self.num_envs = len(env_fns)
        self._reset_masks = reset_masks
        self._timeout = timeout
        self._steps = 0
        self._steps_whole_workers = inner_env_cls is not None
        self._tickets: list[Ticket] = []
        # which environments must be reset before a step; None where none can be among them
        self._unready: np.ndarray | None = np.ones(len(env_fns), np.bool_)
        self._final_statistics: Statistics | None = None
        constructions = [
            Construction(
                b"" if in_process else _remote.dump_env_fns(env_fns[r.start : r.stop], r.start),
                r,
                settings,
                inner_env_cls,
                dict(inner_env_kwargs or {}),
            )
            for r in self._split.ranges
        ]
        self._pool: WorkerPool | LocalPool = (
            LocalPool(env_fns, constructions)
            if in_process
            else WorkerPool(constructions, affinity, inf if slow_after is None else slow_after)
        )
        self._ledger: Ledger | None = None
        """What the caller was told, kept where a worker may have to go on from it."""
        if faults.restarts_workers and not in_process:
            self._ledger = Ledger(self.num_envs, self._mode, episode_seeds)
        # Runs when the object is collected or the interpreter exits, before it would wait for
        # processes that nobody told to end; quiet in both cases.
        self._finalizer = Finalize(self, self._pool.close, exitpriority=100)
        self._flight = Flight(self._pool)
        try:
            self._adopt_spaces()
            self._attach(copy=copy)
            self._calls = EnvCalls(self._flight, self._split, self._collector.board.tell)
        except BaseException:
            self._finalizer()
            raise

    @classmethod
    def auto(
        cls,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        *,
        seconds: float = 0.5,
        seed: int | None = 0,
        **arguments: Any,
    ) -> Self:
        """Return a vector environment with the split that is fastest on this machine.

        A few numbers of workers, and of native threads for environments with array hooks, are
        tried with random actions. This starts and ends all workers for each of them, which takes
        some seconds: note the choice and name it yourself in the next run.

        Args:
            env_fns: As in the constructor.
            seconds: For how long each split is stepped.
            seed: Of the resets while trying.
            **arguments: Further arguments of the constructor.

        Returns:
            A new one, never stepped; its `split_choice` tells what was tried and why this one.

        Example:
            >>> with HybridVectorEnv.auto([lambda: gym.make("Pendulum-v1")] * 8) as envs:
            ...     line = str(envs.split_choice).splitlines()[-1]
            >>> line.startswith("chosen: num_workers=")
            True
        """
        if "num_workers" in arguments or "num_envs_per_worker" in arguments:
            raise ValueError(
                "auto chooses the split itself; leave num_workers out, or don't use it."
            )
        make = partial(cls, env_fns, **arguments)
        choice = choose_split(make, len(env_fns), seconds, seed)
        envs = make(**choice.arguments)
        envs.split_choice = choice
        return envs

    def _adopt_spaces(self) -> None:
        reports = self._pool.spaces
        self.observation_space = batch_boxes(
            [report.observation for report in reports], self._split.ranges, "observation"
        )
        self.action_space = batch_boxes(
            [report.action for report in reports], self._split.ranges, "action"
        )
        self.single_observation_space: Box = reports[0].observation.space
        self.single_action_space: Box = reports[0].action.space
        self.metadata = {**reports[0].metadata, "autoreset_mode": self._mode}
        self.render_mode = reports[0].render_mode

    def _attach(self, *, copy: bool) -> None:
        layout = batch_layout(
            self.num_workers,
            self.num_envs,
            self.single_observation_space,
            self.single_action_space,
            final_observation=self._mode is AutoresetMode.SAME_STEP,
        )
        arrays = self._pool.attach(layout)
        self._action, self._timing = arrays["action"], arrays["timing"]
        self._collector = Collector(arrays, self._split.ranges, copy=copy)
        self._ids = Ids(arrays["episodes"])
        self._env_ids = np.arange(self.num_envs, dtype=np.int32)
        self._spec = batch_spec(layout)
        self._row_calls = RowCalls(
            self._pool, self._flight, self._split, self._collector, self._ledger
        )
        self._allocated = AllocatedBuffers(
            FIRST_ALLOCATED, [name for name in WRITTEN_BY_WORKERS if name in self._spec]
        )
        if self._ledger is not None and isinstance(self._pool, WorkerPool):
            self._pool.revival = partial(_revival, self._ledger, self._collector, self._split)

    # ── properties ──────────────────────────────────────────────────────────────────────────────

    def __repr__(self) -> str:
        # Debuggers ask for it at any moment, amid the constructor too; no worker is asked.
        if not hasattr(self, "_flight"):
            return f"{type(self).__name__}(not built)"
        name = "" if self.spec is None else f"{self.spec.id}, "
        split, mode = self._split.in_words(), self._mode.name
        state = self._flight.lifecycle.in_words()
        return f"{type(self).__name__}({name}num_envs={self.num_envs}, {split}, {mode}, {state})"

    @property
    def num_workers(self) -> int:
        """W, the number of workers."""
        return self._split.num_workers

    @property
    def num_envs_per_worker(self) -> int:
        """K, the environments of one worker; of the largest where the split is uneven."""
        return len(self._split.ranges[0])

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of the workers; empty with `in_process=True`."""
        return self._pool.pids

    @property
    def worker_affinity(self) -> tuple[frozenset[int], ...] | None:
        """The CPUs that each worker may run on now, as the system says.

        None with `in_process=True`, after `close`, and where the system does not tell.
        """
        return self._pool.affinity

    @property
    def autoreset_mask(self) -> np.ndarray:
        """Which environments the last step reset: (num_envs,) bool, a copy.

        With NEXT_STEP the rows whose action was ignored, which are no transitions; with SAME_STEP
        those reset within the step. All False with DISABLED and after any reset.
        """
        self._flight.lifecycle.check("call", "autoreset_mask")
        return self._collector.outputs.autoreset_mask()

    # ── reset ───────────────────────────────────────────────────────────────────────────────────

    def reset(
        self, *, seed: Seed = None, options: Options = None, timeout: float | None = None
    ) -> BatchedResetResult:
        """Reset all environments and clear their pending autoresets.

        After an interrupted call it first waits for that call and drops its result, and so it does
        with slots in flight.

        Args:
            seed: None; an int s, so that environment i gets s + i; or a list, tuple or integer
                array of one seed or None for each environment.
            options: One dict for all, or a list of one dict or None for each.
            timeout: As in `reset_wait`.

        Returns:
            The first observations, (num_envs, …), and infos.

        Raises:
            ValueError: If seeds or options are not as above; nothing was reset or dropped then.
            CallTimeout: When the time is up; `reset_wait` goes on. Where what was in flight before
                took too long, that is still in flight, and `reset` may be called again.
            WorkerRaised, WorkerDied: If an environment fails; then it is broken.
        """
        check_timeout(timeout)
        try:
            self._check_can("reset")
            chosen = self._chosen_resets(seed, options)
            left = self._drain(self._limit(timeout))
            self._flight.lifecycle.check("reset")
            self._start_reset(*chosen)
            return self.reset_wait(left)
        except KeyboardInterrupt:
            self._flight.interrupt()
            raise

    def reset_async(self, *, seed: Seed = None, options: Options = None) -> None:
        """Start `reset`; `reset_wait` returns its result."""
        self._flight.lifecycle.check("reset", "reset_async")
        self._start_reset(*self._chosen_resets(seed, options))

    def _chosen_resets(self, seed: Seed, options: Options) -> ChosenResets:
        rows: Sequence[int] = range(self.num_envs)
        if isinstance(options, Mapping) and "reset_mask" in options:
            mask = options["reset_mask"]
            check_reset_mask(mask, self.num_envs, supported=self._reset_masks)
            rows = select_rows(mask, self.num_envs)
            options = {key: value for key, value in options.items() if key != "reset_mask"}
        all_seeds = normalize_seeds(seed, range(self.num_envs))
        all_options = normalize_options(options, self.num_envs)
        return rows, [all_seeds[row] for row in rows], [all_options[row] for row in rows]

    def reset_wait(self, timeout: float | None = None) -> BatchedResetResult:
        """Wait for the reset in flight and return its result.

        Args:
            timeout: In seconds; None for the constructor's, infinity for none. When it runs out the
                reset stays in flight, to be waited for again.

        Raises:
            CallTimeout: When the time is up; it says what is slow.
        """
        self._flight.lifecycle.check("reset_wait")
        check_timeout(timeout)
        info = self._finish("reset", self._limit(timeout))
        return self._collector.reset_result(self._flight.target, info)

    def reset_envs(
        self,
        indices_or_mask: Sequence[int] | np.ndarray,
        *,
        seed: Seed = None,
        options: Options = None,
        timeout: float | None = None,
    ) -> BatchedResetResult:
        """Reset some environments; others keep their state and their pending autoresets.

        This goes past vector wrappers, which won't notice: where they keep episode counts, make the
        vector environment with `reset_masks=True` and pass `options={"reset_mask": …}` to `reset`.

        Args:
            indices_or_mask: Indices, in any order, none at all too; or a (num_envs,) boolean mask.
            seed: None; an int s, so that environment i gets s + i; or a sequence of one seed or
                None for each environment named, in that order.
            options: One dict for all, or a list of one for each environment named, in that order.
            timeout: As in `reset_wait`.

        Returns:
            (num_envs, …) observations, the last ones in the rows not reset; infos of the rows
            reset.

        Raises:
            ValueError: If indices, seeds or options are not as above; nothing was reset then.
            CallTimeout: When the time is up; `reset_wait` goes on.
        """
        self._flight.lifecycle.check("reset", "reset_envs")
        check_timeout(timeout)
        rows = select_rows(indices_or_mask, self.num_envs)
        seeds, all_options = normalize_seeds(seed, rows), normalize_options(options, len(rows))
        try:
            self._start_reset(rows, seeds, all_options)
            return self.reset_wait(timeout)
        except KeyboardInterrupt:
            self._flight.interrupt()
            raise

    def _start_with_news(
        self, call: str, command: int, target: Target, payloads: Sequence[bytes]
    ) -> None:
        """Start a call whose payloads tell all workers of the info columns, and note that."""
        with self._pool.in_one_go():  # both or neither: they must agree on what a column is
            self._collector.note_told()
            self._flight.start(call, command, target, payloads)

    def _start_reset(
        self,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
        place: int | None = None,
    ) -> None:
        if self._ledger is not None:
            seeds = self._ledger.begin_reset(rows, seeds, options)
        columns = self._collector.news_for_workers()
        requests = [ResetRequest([], [], [], columns) for _ in self._split.ranges]
        for row, seed, chosen in zip(rows, seeds, options, strict=True):
            worker, slot = self._split.locate(row)
            requests[worker].rows.append(slot)
            requests[worker].seeds.append(seed)
            requests[worker].options.append(chosen)
        payloads = _remote.dump_requests(requests, "options of reset")
        self._flight.check_alive("reset")
        if self._allocated.dropped:
            self._give_back()
        partial = len(rows) < self.num_envs
        target = self._collector.next_target(place, keep_observation=partial)
        self._ids.advance(np.array(rows, np.intp) if partial else None)
        self._action[list(rows) if partial else ...] = 0  # none led to what they show
        self._start_with_news("reset", Command.RESET, target, payloads)
        if self._unready is not None:
            self._unready[list(rows)] = False
            if self._mode is not AutoresetMode.DISABLED and not self._unready.any():
                self._unready = None

    # ── step ────────────────────────────────────────────────────────────────────────────────────

    def step(self, actions: np.ndarray, *, timeout: float | None = None) -> BatchedStepResult:
        """Step all environments once and autoreset as the mode says.

        Args:
            actions: An array of shape `action_space.shape`; its dtype is cast if NumPy's
                `same_kind` rule allows it. It is copied. Values are passed on as they are,
                NaN too: a `SceneEnv` clips them to its bounds and raises if one is not finite;
                Gymnasium's environments go on with what comes of it, and so do those of
                `superdex.envs.mujoco`.
            timeout: As in `step_wait`.

        Returns:
            Observations (num_envs, …), rewards (num_envs,) float64, terminated and truncated
            (num_envs,) bool, and infos.

        Raises:
            ValueError: If actions have another shape or kind; nothing was stepped then.
            ResetNeeded: Before the first reset; with DISABLED also if an environment has finished.
            CallTimeout: When the time is up; `step_wait` goes on.
            WorkerRaised, WorkerDied: If an environment fails; then it is broken.
        """
        if timeout is not None:
            check_timeout(timeout)
        try:
            self._check_step("step", actions)
            self._start_step(actions, None)
            return self.step_wait(timeout)
        except KeyboardInterrupt:
            self._flight.interrupt()
            raise

    def step_async(self, actions: np.ndarray) -> None:
        """Start `step`; `step_wait` returns its result."""
        self._check_step("step_async", actions)
        self._start_step(actions, None)

    def _start_step(self, actions: np.ndarray, place: int | None) -> None:
        self._flight.check_alive("step")
        if self._allocated.dropped:
            self._give_back()
        if place is not None and self._ledger is not None:
            self._collector.keep_last_observations(place)
        self._ids.advance()
        np.copyto(self._action, actions, casting="same_kind")
        columns = self._collector.news_for_workers()
        payloads = [] if columns is None else [_remote.dumps(columns)] * self.num_workers
        target = self._collector.next_target(place)
        if columns is None:
            self._flight.start("step", Command.STEP, target, payloads)
        else:
            self._start_with_news("step", Command.STEP, target, payloads)

    def step_wait(self, timeout: float | None = None) -> BatchedStepResult:
        """Wait for the step in flight and return its result.

        Args:
            timeout: In seconds; None for the constructor's, infinity for none. When it runs out the
                step stays in flight, to be waited for again.

        Raises:
            CallTimeout: When the time is up; it says what is slow.
        """
        self._flight.lifecycle.check("step_wait")
        if timeout is not None:
            check_timeout(timeout)
        info = self._finish("step", self._limit(timeout))
        return self._collector.step_result(self._flight.target, info)

    def _finish(self, call: str, timeout: float | None) -> dict[Any, Any]:
        replies = self._flight.finish(call, timeout)
        self._note_result(call)
        touched = self._pool.words(Word.TOUCHED_COLUMNS)
        return self._collector.infos(self._flight.target, touched, replies)

    def _limit(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    def _drain(self, timeout: float | None) -> float | None:
        started = perf_counter()
        self._note_result(self._flight.drain(timeout))
        self._drop_slots(timeout)
        return None if timeout is None else max(0.0, float(timeout) + started - perf_counter())

    def _note_result(self, call: str | None) -> None:
        """Note what a step or reset that has come to its end says of the environments' episodes."""
        if call in ("step", "reset"):
            self._collector.note(self._flight.target)  # also where its result is dropped
        if call == "step":
            self._steps += 1
            outputs, buffer = self._collector.outputs, self._flight.target[0]
            if self._mode is AutoresetMode.DISABLED:
                self._unready = outputs.ended(buffer)
            if self._ledger is not None:
                self._ledger.note_step(outputs.ended(buffer), outputs[buffer]["autoreset"])
        elif call == "reset" and self._ledger is not None:
            self._ledger.finish_reset()
        elif call == "call":
            self._finish_restore()
            if self._ledger is not None:
                self._ledger.finish_set()

    # ── other calls ─────────────────────────────────────────────────────────────────────────────

    def call(
        self,
        name: str,
        *args: Any,
        indices: Sequence[int] | np.ndarray | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Call a method of environments, or read an attribute, through their wrappers.

        Each environment is asked while its own state is in its scene.

        Args:
            name: The method or attribute.
            *args: Arguments.
            indices: Which environments, in which order, or a mask; all if None.
            **kwargs: Arguments by name.

        Returns:
            One result for each environment, in the order of `indices`.

        Raises:
            WorkerRaised: If one fails, or its result can't be pickled; the vector environment stays
                usable.
            ValueError: For reset, step and close, which have calls of their own.
        """
        self._flight.lifecycle.check("call")
        return self._calls.call("call", name, args, kwargs, self._chosen(indices))

    def get_attr(
        self, name: str, indices: Sequence[int] | np.ndarray | None = None
    ) -> tuple[Any, ...]:
        """Return an attribute of environments, from where it lives; as `call` without arguments."""
        self._flight.lifecycle.check("call", "get_attr")
        return self._calls.call("get_attr", name, (), {}, self._chosen(indices))

    def set_attr(
        self, name: str, values: Any, indices: Sequence[int] | np.ndarray | None = None
    ) -> None:
        """Set an attribute of environments, where it lives.

        Args:
            name: The attribute.
            values: A list or tuple of one value for each environment, or one value for all.
            indices: Which environments, or a mask; all if None.

        Raises:
            ValueError: If the number of values is another; nothing was set then.
            WorkerRaised: If one fails; the vector environment stays usable.
        """
        self._flight.lifecycle.check("call", "set_attr")
        rows = self._chosen(indices)
        values = one_for_each(values, rows)
        if self._ledger is None:
            self._calls.set_attr(name, values, rows)
            return
        self._ledger.begin_set(rows, name, values)
        try:
            self._calls.set_attr(name, values, rows)
        except Exception as failure:
            self._ledger.finish_set(self._calls.left_out(failure, rows))
            raise
        self._ledger.finish_set()

    def render(self, indices: Sequence[int] | np.ndarray | None = None) -> tuple[Any, ...]:
        """Return each environment's picture, as its own `render` gives it."""
        self._flight.lifecycle.check("call", "render")
        return self._calls.call("render", "render", (), {}, self._chosen(indices))

    def _chosen(self, indices: Sequence[int] | np.ndarray | None) -> Sequence[int]:
        return range(self.num_envs) if indices is None else select_rows(indices, self.num_envs)

    # ── numbers and the end ─────────────────────────────────────────────────────────────────────

    def statistics(self) -> Statistics:
        """Return what this vector environment did so far; works after `close` too."""
        if self._final_statistics is not None:
            return self._final_statistics
        return pool_statistics(
            self._pool,
            self._split,
            self._timing,
            steps=self._steps,
            copies=self._collector.copies + self._collector.outputs.copies,
            bytes_copied=self._collector.bytes_copied + self._collector.outputs.bytes_copied,
        )

    def close(self, timeout: float | None = None) -> None:  # type: ignore[override]  # no other keywords
        """End all workers and give everything back. Does nothing the second time.

        Each environment's `close` is called once. Workers are asked to end, then terminated, then
        killed, processes that environments started included.

        Args:
            timeout: Seconds for asking, 5 if None; half a second for a worker that is busy with a
                call that was given up. One still busy then is terminated. Ctrl-C cuts the asking
                short, and is raised when everything is cleaned up.

        Raises:
            WorkerRaised: If an environment failed to close; everything is cleaned up by then.
        """
        check_timeout(timeout)
        if self.closed:
            return
        self._final_statistics = replace(self.statistics(), live_scenes=(0,) * self.num_workers)
        self.closed = True
        self._flight.lifecycle.close()
        self._finalizer.cancel()
        failures = self._pool.close(5.0 if timeout is None else float(timeout))
        # views of the block hold its memory and a descriptor
        self._row_calls.release()
        del self._action, self._timing, self._collector, self._calls, self._ids, self._row_calls
        raise_all(failures)

    def __del__(self) -> None:
        """Leave the end to the finalizer, which is quiet; some versions of Gymnasium close here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception:
            if exc is None:  # else the body's own exception is the one to show
                raise


def _revival(ledger: Ledger, collector: Collector, split: Split, worker: int) -> Revival:
    """Return what a restarted worker goes on from.

    This is no method, since the pool must not hold the vector environment that owns it.
    """
    return ledger.revival(split.ranges[worker], collector.columns)
