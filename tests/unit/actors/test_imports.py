"""What a store's and a controller's process load: their start is most of a recovery."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numba", "llvmlite", "pyarrow", "pandas", "sqlglot", "pymysql", "pyspark"}


@pytest.mark.parametrize("module", ["store", "controller", "spiller"])
def test_what_only_other_processes_need_is_not_loaded(module: str) -> None:
    code = f"import sys, ray_canal.actors.{module}; print(*{HEAVY!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
