"""Tests once more with the kernels as plain Python, where an overflow or an index out of range is
an error: those that are marked `without_compiler`, in one process."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_same_without_compiler() -> None:
    marked = ["-m", "without_compiler", "tests/unit/kernels", "tests/unit/binlog"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *marked],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert "passed" in run.stdout
