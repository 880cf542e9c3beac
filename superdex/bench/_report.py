"""What a sweep found: cases, measurements, rows, and the report around them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymnasium.envs.registration import EnvSpec

from superdex.bench._settings import SweepSettings

__all__ = ["Measurement", "SweepCase", "SweepReport", "SweepRow"]


@dataclass(frozen=True)
class SweepCase:
    """One split of one environment.

    Attributes:
        spec: The environment's Gymnasium specification.
        num_workers: Worker processes.
        num_envs_per_worker: Environments in each.
        substeps: Physics steps per control step, or None where the environment does not say.
        problem: Why no environment could be built, or None.
        problem_traceback: Where that was raised, or None.
        module: The module to import for the environment to be known, or "".
        num_threads_per_worker: Native threads in each, for environments that are stepped at once.
    """

    spec: EnvSpec = field(repr=False)
    num_workers: int
    num_envs_per_worker: int
    substeps: int | None = None
    problem: str | None = None
    problem_traceback: str | None = field(default=None, repr=False)
    module: str = ""
    num_threads_per_worker: int = 1

    @property
    def env_id(self) -> str:
        """The environment's id."""
        return self.spec.id

    @property
    def num_envs(self) -> int:
        """Environments in all."""
        return self.num_workers * self.num_envs_per_worker

    @property
    def is_bare(self) -> bool:
        """Whether this is the single environment, which is stepped without a vectorizer."""
        return self.num_envs == 1

    @property
    def split(self) -> str:
        """The split in short, such as 2 × 64, or 2 × 64 × 2 threads."""
        split = f"{self.num_workers} × {self.num_envs_per_worker}"
        threads = self.num_threads_per_worker
        return split if threads == 1 else f"{split} × {threads} threads"

    @property
    def code(self) -> str:
        """The line of Python that builds this split."""
        name = f"{self.module}:{self.env_id}" if self.module else self.env_id
        if self.is_bare:
            return f'env = gymnasium.make("{name}")'
        threads = self.num_threads_per_worker
        more = "" if threads == 1 else f", num_threads_per_worker={threads}"
        return (
            f'env = HybridVectorEnv([lambda: gymnasium.make("{name}")] * {self.num_envs}, '
            f"num_envs_per_worker={self.num_envs_per_worker}{more})"
        )


@dataclass(frozen=True)
class Measurement:
    """What was measured of one case.

    Attributes:
        init_seconds: Seconds to build everything and reset it once.
        memory_bytes: Memory of the whole process tree after the last step.
        iterations: Calls of `step()` within the measured time.
        env_steps: Environment steps in them; rows whose action an autoreset ignored don't count.
        seconds: The measured time.
        steps_at_once: Whether every worker stepped its environments at once, by array hooks.
    """

    init_seconds: float
    memory_bytes: int
    iterations: int
    env_steps: int
    seconds: float
    steps_at_once: bool = False

    @property
    def control_fps(self) -> float:
        """Environment steps per second."""
        return self.env_steps / self.seconds

    @property
    def mean_step_ms(self) -> float:
        """Milliseconds per call of `step()`."""
        return 1000 * self.seconds / self.iterations


@dataclass(frozen=True)
class SweepRow:
    """One case and what came of it: a measurement, or the error that prevented it.

    Attributes:
        case: The case.
        measurement: What was measured, or None.
        error: The exception's type and message, with the environment's index where one is at
            fault; or None.
        traceback: The whole traceback of an exception, or None.
    """

    case: SweepCase
    measurement: Measurement | None = None
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)

    @property
    def control_fps(self) -> float | None:
        """Environment steps per second, or None where the case failed."""
        return self.measurement.control_fps if self.measurement else None

    @property
    def simulation_fps(self) -> float | None:
        """Physics steps per second, or None where unknown."""
        if self.measurement is None or self.case.substeps is None:
            return None
        return self.measurement.control_fps * self.case.substeps

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values, for JSON."""
        measured = self.measurement
        return {
            "env": self.case.env_id,
            "num_workers": self.case.num_workers,
            "num_envs_per_worker": self.case.num_envs_per_worker,
            "num_threads_per_worker": self.case.num_threads_per_worker,
            "num_envs": self.case.num_envs,
            "vectorized": not self.case.is_bare,
            "steps_at_once": measured.steps_at_once if measured else None,
            "init_seconds": measured.init_seconds if measured else None,
            "memory_bytes": measured.memory_bytes if measured else None,
            "iterations": measured.iterations if measured else None,
            "env_steps": measured.env_steps if measured else None,
            "seconds": measured.seconds if measured else None,
            "control_fps": self.control_fps,
            "simulation_fps": self.simulation_fps,
            "mean_step_ms": measured.mean_step_ms if measured else None,
            "error": self.error,
            "traceback": self.traceback,
        }


@dataclass(frozen=True)
class SweepReport:
    """All rows of a sweep and what they were measured on.

    Attributes:
        settings: What was asked for.
        machine: Processor, cores and memory, as `describe_machine` gives them.
        versions: Distribution → version of what took part, and Python's.
        commit: The commit of the code that was measured, or None where there is no checkout.
        rows: The rows, in the order in which they ran; fewer than asked for after Ctrl-C.
    """

    settings: SweepSettings
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    commit: str | None
    rows: Sequence[SweepRow]

    @property
    def env_ids(self) -> tuple[str, ...]:
        """The ids of the environments that have rows, in order."""
        return tuple(dict.fromkeys(row.case.env_id for row in self.rows))

    def rows_of(self, env_id: str) -> tuple[SweepRow, ...]:
        """Return the rows of one environment."""
        return tuple(row for row in self.rows if row.case.env_id == env_id)

    def uses_threads(self, env_id: str) -> bool:
        """Return whether the number of threads was asked for and matters to this environment."""
        return self.settings.num_threads_per_worker != (1,) and any(
            row.measurement is not None and row.measurement.steps_at_once
            for row in self.rows_of(env_id)
        )

    def best(self, env_id: str, *, vectorized: bool = False) -> SweepRow | None:
        """Return the row with the most environment steps per second, or None if all failed.

        Args:
            env_id: The environment's id.
            vectorized: Leave the bare environment out.
        """
        measured = [
            row
            for row in self.rows_of(env_id)
            if row.measurement and not (vectorized and row.case.is_bare)
        ]
        return max(measured, key=lambda row: row.control_fps or 0.0, default=None)

    def winner(self, env_id: str) -> SweepRow | None:
        """Return the row to call the best: of a given number of environments, a split of those."""
        return self.best(env_id, vectorized=self.settings.num_envs is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "commit": self.commit,
            "settings": self.settings.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
        }
