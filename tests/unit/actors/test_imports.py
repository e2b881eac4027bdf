"""What processes load whose start is most of a recovery, the one that starts them included."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numba", "llvmlite", "pyarrow", "pandas", "sqlglot", "pymysql", "pyspark"}


MODULES = ["destination.destination", "actors.control.controller", "actors.spiller", "client.api"]


@pytest.mark.parametrize("module", MODULES)
def test_what_only_other_processes_need_is_not_loaded(module: str) -> None:
    code = f"import sys, ray_canal.{module}; print(*{HEAVY!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
