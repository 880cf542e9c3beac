"""Settings that hold for every test."""

import os
import sys
from pathlib import Path

# Test modules are found from the checkout's root, here and in the workers that tests spawn (they
# inherit sys.path). It goes last, so that `superdex` is still the one that is installed.
sys.path.append(str(Path(__file__).parents[1]))

# Without a display MuJoCo draws through EGL; a choice made outside is respected.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")
