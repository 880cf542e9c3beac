"""Lets tests of benchmarks import them, here and in the workers they start."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
