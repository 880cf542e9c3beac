"""Lets benchmarks import the tasks beside them, here and in the workers they start."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
