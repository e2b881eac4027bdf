"""The folder of what is compiled on a machine and kept for later processes.

kernels/base/jit.py has it once more: kernels work as a copy of their room alone.
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "RAY_CANAL_CACHE_DIR"


def cache_folder() -> Path:
    """Return `$RAY_CANAL_CACHE_DIR`, or ~/.cache/ray_canal. It has a folder for each kind."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "ray_canal"
