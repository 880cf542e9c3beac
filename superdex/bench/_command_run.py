"""`superdex run`: episodes with random actions, printed one by one and recorded if asked to."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled
from rich.console import Console
from rich.progress import Progress

from superdex.bench._names import find_spec
from superdex.bench._output import check_writable

__all__ = ["Job", "execute", "prepare"]

_VIDEOS = (".mp4", ".mov", ".mkv", ".webm")
_DEFAULT_FPS = 30
_Keep = Callable[[Any], None]


@dataclass(frozen=True)
class Job:
    """A run that has been checked."""

    spec: EnvSpec
    num_episodes: int
    max_steps: int
    seed: int | None
    video: Path | None


class RecordingFailed(Exception):
    """There is no picture of the environment, or it can't be appended to the video.

    Attributes:
        by_opengl: Whether MuJoCo's choice of a graphics library may be the cause.
    """

    def __init__(self, message: str, *, by_opengl: bool = False) -> None:
        super().__init__(message)
        self.by_opengl = by_opengl


def prepare(
    name: str, *, num_episodes: int, max_steps: int, seed: int | None, video: str | None
) -> Job:
    """Check everything that can be wrong before the environment is built.

    Raises:
        ValueError: If the environment is unknown, or the video can't be written.
    """
    path = None
    if video is not None:
        path = Path(video)
        if path.suffix.lower() not in _VIDEOS:
            raise ValueError(f"A video ends in {', '.join(_VIDEOS)}; got {path.name!r}.")
        missing = [
            package
            for package in ("imageio", "imageio_ffmpeg")
            if importlib.util.find_spec(package) is None
        ]
        if missing:
            raise ValueError(
                f"Recording needs {' and '.join(missing)}, not installed here: pip install "
                "'superdex-vector[video]'."
            )
        check_writable(path)
    return Job(find_spec(name), num_episodes, max_steps, seed, path)


def execute(job: Job) -> int:
    """Run the episodes and return the exit code."""
    output, errors = (Console(markup=False, highlight=False, stderr=to) for to in (False, True))
    if job.video is not None:
        _choose_offscreen()
    try:
        with (
            _make(job) as env,
            _recording(job.video, env.metadata.get("render_fps") or _DEFAULT_FPS) as keep,
            Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress,
        ):
            env.action_space.seed(job.seed)
            task = progress.add_task(job.spec.id, total=job.num_episodes)
            for episode in range(job.num_episodes):
                total, length, reason = _run_episode(env, job, episode, keep)
                progress.advance(task)
                line = f"episode {episode}: return {total:.3f}, length {length}, {reason}"
                output.print(line, soft_wrap=True)
    except RecordingFailed as failure:
        errors.print(str(failure), style="red", soft_wrap=True)
        if failure.by_opengl:
            errors.print(
                "On a machine without a display set MUJOCO_GL=egl (with a graphics driver, or "
                "Debian's libegl1) or MUJOCO_GL=osmesa (Debian's libosmesa6)."
            )
        return 1
    except (Exception, SystemExit) as error:
        errors.print(f"{job.spec.id} failed: {_describe(error)}", style="red", soft_wrap=True)
        return 1
    if job.video is not None:
        errors.print(f"Wrote {job.video}", soft_wrap=True)
    return 0


def _choose_offscreen() -> None:
    """Have MuJoCo draw through EGL where there is no display and nobody chose otherwise."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def _make(job: Job) -> gymnasium.Env[Any, Any]:
    if job.video is None:
        return gymnasium.make(job.spec)  # an environment need not know of render modes
    try:
        return gymnasium.make(job.spec, render_mode="rgb_array")
    except TypeError as error:
        if "render_mode" not in str(error):
            raise
        raise RecordingFailed(
            f"{job.spec.id} can't be recorded, because its constructor takes no render_mode; a "
            "video needs render_mode='rgb_array'."
        ) from error


def _describe(error: BaseException) -> str:
    """Return type, message and the line that raised; the rest of a traceback is Gymnasium's."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if not frame.filename.startswith("<frozen")][-1]
    where = f"{last.filename}, line {last.lineno}, in {last.name}"
    return f"{type(error).__name__}: {error} ({where})"


def _run_episode(
    env: gymnasium.Env[Any, Any], job: Job, episode: int, keep: _Keep
) -> tuple[float, int, str]:
    """Run one episode; return the sum of its rewards, its length, and why it ended."""
    env.reset(seed=None if job.seed is None else job.seed + episode)
    _keep_frame(env, job, keep)
    total = 0.0
    for length in range(1, job.max_steps + 1):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        total += float(reward)
        _keep_frame(env, job, keep)
        if terminated:
            return total, length, str(info.get("terminated_reason", "terminated"))
        if truncated:
            return total, length, str(info.get("truncated_reason", "time limit"))
    return total, job.max_steps, f"cut off after {job.max_steps} steps"


def _keep_frame(env: gymnasium.Env[Any, Any], job: Job, keep: _Keep) -> None:
    if job.video is None:
        return
    try:
        frame = env.render()
    except Exception as error:
        missing_package = isinstance(error, DependencyNotInstalled | ModuleNotFoundError)
        raise RecordingFailed(
            f"{job.spec.id} could not draw itself: {type(error).__name__}: {error}",
            by_opengl="mujoco" in sys.modules and not missing_package,
        ) from error
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise RecordingFailed(
            f"{job.spec.id} can't be recorded, because its render() returned {_name_kind(frame)}; "
            "a video needs an array of shape (height, width, 3). The render modes that it names "
            f"are {env.metadata.get('render_modes')}, and it was made with 'rgb_array'."
        )
    try:
        keep(frame)
    except Exception as error:
        raise RecordingFailed(
            f"The video could not be written: {type(error).__name__}: {error}"
        ) from error


def _name_kind(frame: object) -> str:
    if isinstance(frame, np.ndarray):
        return f"an array of shape {frame.shape}"
    return "None" if frame is None else f"an object of type {type(frame).__name__}"


@contextmanager
def _recording(path: Path | None, fps: float) -> Iterator[_Keep]:
    """Give a function that appends a frame to the video, or one that does nothing."""
    if path is None:
        yield lambda _frame: None
        return
    import imageio.v2

    # Encoders want even sides; imageio's default would scale to multiples of 16.
    with imageio.v2.get_writer(path, fps=fps, macro_block_size=2) as writer:
        yield writer.append_data  # type: ignore[attr-defined]  # a writer, not the base class
