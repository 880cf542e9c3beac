"""The sweep that finds the fastest split into workers, and the `superdex` command around it."""

from superdex.bench._machine import describe_commit, describe_machine, describe_versions
from superdex.bench._output import write_heat_map, write_json
from superdex.bench._report import Measurement, SweepCase, SweepReport, SweepRow
from superdex.bench._settings import SweepSettings
from superdex.bench._sweep import measure, plan, sweep

__all__ = [
    "Measurement",
    "SweepCase",
    "SweepReport",
    "SweepRow",
    "SweepSettings",
    "describe_commit",
    "describe_machine",
    "describe_versions",
    "measure",
    "plan",
    "sweep",
    "write_heat_map",
    "write_json",
]
