"""Spaces of single environments checked, described for the parent, and batched there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector.utils import batch_space

__all__ = ["SpaceReport", "batch_boxes", "report_spaces"]


@dataclass(frozen=True)
class BoxReport:
    """The boxes of one worker's environments.

    Attributes:
        space: The first environment's.
        bounds: low and high of all, each (environments, …), where they differ; else None.
    """

    space: Box
    bounds: tuple[np.ndarray, np.ndarray] | None


@dataclass(frozen=True)
class SpaceReport:
    """What a worker tells the parent of its environments."""

    observation: BoxReport
    action: BoxReport
    metadata: dict[str, Any]
    render_mode: str | None

    def check_same(self, other: SpaceReport) -> None:
        """Raise `ValueError` unless what was built anew has spaces of the same shape and dtype."""
        for role in ("observation", "action"):
            was, new = getattr(self, role).space, getattr(other, role).space
            if was.shape != new.shape or was.dtype != new.dtype:
                raise ValueError(
                    f"An environment that was built anew has another {role} space: expected "
                    f"{was.shape} {was.dtype}, got {new.shape} {new.dtype}."
                )


def report_spaces(envs: Sequence[gym.Env[Any, Any]], first_index: int) -> SpaceReport:
    """Return the report of one worker's environments.

    Raises:
        TypeError: If a space is not a Box.
        ValueError: If shapes or dtypes differ.
    """
    return SpaceReport(
        _report([env.observation_space for env in envs], "observation", first_index),
        _report([env.action_space for env in envs], "action", first_index),
        dict(envs[0].metadata),
        envs[0].render_mode,
    )


def _report(spaces: Sequence[gym.Space[Any]], role: str, first_index: int) -> BoxReport:
    boxes = []
    for index, space in enumerate(spaces, first_index):
        if not isinstance(space, Box):
            raise TypeError(
                f"Environment {index} has a {type(space).__name__} {role} space, {space}; expected "
                "a Box. Wrap it in its function: superdex.vector.BoxSpaces(env) flattens it to one."
            )
        boxes.append(space)
        _check_alike(boxes[0], space, role, first_index, index)
    first = boxes[0]
    if all(box is first or _same_bounds(box, first) for box in boxes):
        return BoxReport(first, None)
    return BoxReport(first, (np.stack([b.low for b in boxes]), np.stack([b.high for b in boxes])))


def _same_bounds(a: Box, b: Box) -> bool:
    return np.array_equal(a.low, b.low) and np.array_equal(a.high, b.high)


def _check_alike(first: Box, box: Box, role: str, first_index: int, index: int) -> None:
    if box.shape != first.shape or box.dtype != first.dtype:
        raise ValueError(
            f"All environments must have {role} spaces of one shape and dtype: environment "
            f"{first_index} has {first.shape} {first.dtype}, environment {index} has "
            f"{box.shape} {box.dtype}."
        )


def batch_boxes(reports: Sequence[BoxReport], ranges: Sequence[range], role: str) -> Box:
    """Return the batched space over all workers' environments.

    Raises:
        ValueError: If shapes or dtypes differ between workers.
    """
    first = reports[0].space
    for report, rows in zip(reports, ranges, strict=True):
        _check_alike(first, report.space, role, 0, rows.start)
    num_envs = ranges[-1].stop
    if all(report.bounds is None and _same_bounds(report.space, first) for report in reports):
        batched = batch_space(first, num_envs)
        assert isinstance(batched, Box)
        return batched
    lows, highs = [], []
    for report, rows in zip(reports, ranges, strict=True):
        low, high = report.bounds or (
            np.broadcast_to(report.space.low, (len(rows), *first.shape)),
            np.broadcast_to(report.space.high, (len(rows), *first.shape)),
        )
        lows.append(low)
        highs.append(high)
    dtype: Any = first.dtype
    return Box(np.concatenate(lows), np.concatenate(highs), dtype=dtype)
