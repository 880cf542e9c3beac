"""Find the fastest split into workers for an environment on this machine, from Python.

The command `superdex bench` does the same with tables and progress.

    python examples/sweep.py
"""

import argparse
import tempfile
from pathlib import Path

from superdex.bench import SweepRow, SweepSettings, sweep, write_heat_map, write_json


def show(row: SweepRow) -> None:
    """Print one result as soon as it is there."""
    case, measured = row.case, row.measurement
    split = f"{case.num_workers} × {case.num_envs_per_worker:3d} environments"
    if case.num_workers * case.num_envs_per_worker == 1:
        split = "1 environment, bare"
    split = f"{split:20s}"
    if measured is None:
        print(f"{split}: failed, {row.error}")
        return
    print(
        f"{split}: {measured.control_fps:9,.0f} environment steps/s, "
        f"{measured.memory_bytes / 2**20:4.0f} MiB, ready in {measured.init_seconds:.2f} s"
    )


def main() -> None:
    """Measure a few splits of the cart-pole, and keep the results as JSON and as a picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", default="cart_pole")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each split")
    parser.add_argument("--folder", type=Path, default=None, help="for the results")
    arguments = parser.parse_args()

    settings = SweepSettings(
        env=arguments.env,
        num_workers=(1, 2),
        num_envs_per_worker=(1, 8, 64),
        min_time=arguments.seconds,
        max_time=max(10.0, arguments.seconds),
    )
    # Each split is measured in a fresh process, which is why this belongs under the guard below.
    report = sweep(settings, on_row=show)

    for env_id in report.env_ids:
        # One environment alone is stepped without a vectorizer; it is no split into workers.
        best = report.best(env_id, vectorized=True)
        if best is not None:
            print(f"fastest split for {env_id}:\n    {best.case.code}")

    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="superdex-sweep-"))
    write_json(report, folder / "sweep.json")
    write_heat_map(report, folder / "sweep.png")
    print(f"results: {folder / 'sweep.json'} and {folder / 'sweep.png'}")


if __name__ == "__main__":
    main()
