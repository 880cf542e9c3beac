"""The `superdex` command: `bench`, `envs`, `run` and `games play`.

Each command's module is imported when that command runs. Every worker of a sweep imports the
script it was started from, this module with it, and needs none of their tables and videos.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import superdex
from superdex.bench._interruption import exit_code, terminated_like_interrupted
from superdex.bench._names import superdex_ids
from superdex.bench._settings import SweepSettings
from superdex.errors import GameLibraryError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: The arguments; those of the process by default.

    Returns:
        0 if all went well, 1 if something that was run failed, 130 after Ctrl-C, 143 after
        SIGTERM.

    Raises:
        SystemExit: With code 2 on bad input, and with 0 after `--help` and `--version`.
    """
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    try:
        with terminated_like_interrupted():
            code: int = arguments.command(arguments)
    except KeyboardInterrupt as interruption:
        return exit_code(interruption)
    return code


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="superdex",
        description="Step thousands of Gymnasium environments on shared scenes as one batch.",
    )
    parser.add_argument("--version", action="version", version=f"superdex {superdex.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_bench(commands)
    _add_envs(commands)
    _add_run(commands)
    _add_games(commands)
    return parser


def _add_bench(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure which split into workers is fastest",
        description="Measure every number of workers with every number of environments per worker, "
        "or with --num_envs the splits of that many environments; and of native threads per worker "
        "where environments are stepped at once. Say which split was fastest. One environment is "
        "always measured bare, in a plain loop. A case is stepped until both minimums are met, and "
        "stopped as soon as either maximum is reached.",
        epilog="example: superdex bench --env cart_pole --num_workers 1,2 "
        "--num_envs_per_worker 1,5,25,125; superdex bench --env ant --num_envs 512",
    )
    fields = {field.name: field for field in dataclasses.fields(SweepSettings)}
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--env",
        type=_names,
        metavar="NAME[,NAME…]",
        help=f"{fields['env'].metadata['help']}",
    )
    which.add_argument("--all", action="store_true", help="measure all of superdex's environments")
    kinds: dict[str, tuple[Any, str]] = {
        "num_workers": (_counts, "N[,N…]"),
        "num_envs_per_worker": (_counts, "K[,K…]"),
        "num_envs": (_count, "N"),
        "num_threads_per_worker": (_counts, "T[,T…]"),
        "min_time": (float, "SECONDS"),
        "max_time": (float, "SECONDS"),
        "min_iterations": (int, "CALLS"),
        "max_iterations": (int, "CALLS"),
    }
    for name, (kind, metavar) in kinds.items():
        default = fields[name].default
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        shown = fields[name].metadata.get("default", shown)
        parser.add_argument(
            f"--{name}",
            type=kind,
            default=default,
            metavar=metavar,
            help=f"{fields[name].metadata['help']} (default: {'none' if shown is None else shown})",
        )
    parser.add_argument(
        "--write_to_file", metavar="PATH", help="write machine, versions, settings and rows as JSON"
    )
    parser.add_argument(
        "--plot", metavar="PATH", help="draw a heat map of control FPS, such as sweep.png"
    )
    parser.set_defaults(command=_bench, parser=parser)


def _add_envs(commands: Any) -> None:
    parser = commands.add_parser(
        "envs",
        help="list the environments",
        description="List superdex's environments and the sizes of their spaces.",
    )
    parser.set_defaults(command=_envs, parser=parser)


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run episodes with random actions, and record them",
        description="Run episodes of one environment with random actions, print how each "
        "ended, and record them as a video if asked to.",
        epilog="example: superdex run ant --num_episodes 3 --video ant.mp4 --seed 1",
    )
    parser.add_argument("env", metavar="ID", help="a short name (ant) or a registered Gymnasium id")
    parser.add_argument(
        "--num_episodes", type=_count, default=1, metavar="N", help="episodes to run (default: 1)"
    )
    parser.add_argument(
        "--max_steps",
        type=_count,
        default=1000,
        metavar="N",
        help="steps after which an episode without an end is cut off (default: 1000)",
    )
    parser.add_argument(
        "--seed", type=_whole, metavar="S", help="seed of episode 0; episode e is seeded with S + e"
    )
    parser.add_argument(
        "--video", metavar="PATH", help="record all episodes into one video, such as out.mp4"
    )
    parser.set_defaults(command=_run, parser=parser)


def _add_games(commands: Any) -> None:
    games = commands.add_parser(
        "games",
        help="watch the bots of a game play",
        description="Games that superdex's engine plays.",
    )
    parser = games.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser(
        "play",
        help="watch two bots play Tron light cycles",
        description="Show two bots playing Tron light cycles in the terminal, move by move, and "
        "say who won. Where the output is no terminal, only the end is shown. The bots are random, "
        "flood_fill, voronoi and alpha_beta, weakest first.",
        epilog="example: superdex games play --bot alphabeta --vs voronoi --seed 1",
    )
    parser.add_argument(
        "--bot", default="alpha_beta", metavar="BOT", help="plays seat 0 (default: alpha_beta)"
    )
    parser.add_argument(
        "--vs", default="voronoi", metavar="BOT", help="plays seat 1 (default: voronoi)"
    )
    parser.add_argument(
        "--seed", type=_whole, metavar="S", help="seed of the start (default: another every time)"
    )
    parser.add_argument("--width", type=_count, metavar="CELLS", help="of the board (default: 30)")
    parser.add_argument("--height", type=_count, metavar="CELLS", help="of the board (default: 20)")
    parser.add_argument(
        "--vision_radius",
        type=_whole,
        default=0,
        metavar="CELLS",
        help="how far the bots see; 0 for the whole board (default: 0)",
    )
    parser.add_argument(
        "--opening_plies",
        type=_whole,
        default=0,
        metavar="MOVES",
        help="random moves, drawn from the seed, before the bots' own (default: 0)",
    )
    parser.add_argument(
        "--delay",
        type=float,
        default=0.05,
        metavar="SECONDS",
        help="between two moves, in a terminal (default: 0.05)",
    )
    parser.set_defaults(command=_play, parser=parser)


def _bench(arguments: argparse.Namespace) -> int:
    from superdex.bench import _command_bench

    try:
        settings = SweepSettings(
            env=superdex_ids() if arguments.all else arguments.env,
            num_workers=arguments.num_workers,
            num_envs_per_worker=arguments.num_envs_per_worker,
            num_envs=arguments.num_envs,
            num_threads_per_worker=arguments.num_threads_per_worker,
            min_time=arguments.min_time,
            max_time=arguments.max_time,
            min_iterations=arguments.min_iterations,
            max_iterations=arguments.max_iterations,
        )
        job = _command_bench.prepare(settings, arguments.write_to_file, arguments.plot)
    except (ValueError, TypeError) as error:
        arguments.parser.error(str(error))
    return _command_bench.execute(job)


def _envs(_arguments: argparse.Namespace) -> int:
    from superdex.bench import _command_envs

    return _command_envs.execute()


def _run(arguments: argparse.Namespace) -> int:
    from superdex.bench import _command_run

    try:
        job = _command_run.prepare(
            arguments.env,
            num_episodes=arguments.num_episodes,
            max_steps=arguments.max_steps,
            seed=arguments.seed,
            video=arguments.video,
        )
    except ValueError as error:
        arguments.parser.error(str(error))
    return _command_run.execute(job)


def _play(arguments: argparse.Namespace) -> int:
    from superdex.bench import _command_play

    try:
        job = _command_play.prepare(
            (arguments.bot, arguments.vs),
            seed=arguments.seed,
            width=arguments.width,
            height=arguments.height,
            vision_radius=arguments.vision_radius,
            opening_plies=arguments.opening_plies,
            delay=arguments.delay,
        )
    except GameLibraryError as error:
        from rich.console import Console

        Console(stderr=True, markup=False).print(str(error), style="red", soft_wrap=True)
        return 1
    except ValueError as error:
        arguments.parser.error(str(error))
    return _command_play.execute(job)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"expected names separated by commas; got {text!r}")
    return names


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(_count(part) for part in text.split(","))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"expected whole numbers of at least 1 separated by commas, such as 1,2,4; got {text!r}"
        ) from None


def _count(text: str) -> int:
    number = int(text) if text.strip().isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1; got {text!r}")
    return number


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, 0 or more; got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
