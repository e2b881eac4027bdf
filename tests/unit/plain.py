"""Tests once more with the kernels as plain Python, where an overflow or an index out of range is
an error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

compiled_only = pytest.mark.skipif(
    bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="this is that run"
)


def run_without_compiler(file: str, *options: str) -> None:
    """Run the tests of a file; they must pass."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", file, *options],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
