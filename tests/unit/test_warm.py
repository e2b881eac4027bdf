"""Warming: what one process has compiled, the next one loads."""

from __future__ import annotations

import os
import pickle
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

COMPILED = """
from ray_canal.kernels.framing import digest
from ray_canal.kernels.framing import packets
from ray_canal.warm import warm
warm()
from ray_canal.kernels.result import rows
print(len(packets.unpack.signatures), len(digest.transaction_pieces.signatures))
print(len(rows.locate_rows.signatures), len(rows.fill_rows.signatures))
"""


def test_what_only_a_stream_needs_is_warm_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, check=True, text=True
    )
    assert done.stdout.split() == ["1", "2", "1", "1"]


@pytest.mark.timed
def test_a_second_process_starts_from_the_cache() -> None:
    root = Path(__file__).parents[2]
    for _ in range(2):
        began_s = _children_s()
        done = subprocess.run(
            [sys.executable, "-m", "ray_canal.warm"], capture_output=True, check=True, cwd=root
        )
        took_s = _children_s() - began_s
        assert re.fullmatch(rb"kernels ready after [0-9.]+ s", done.stdout.strip())
    assert took_s < 20, f"loading the compiled kernels took {took_s} s of CPU"


def _children_s() -> float:
    """Seconds of CPU of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_two_cores_compile_where_nothing_is_compiled_yet(tmp_path: Path) -> None:
    code = """
import sys
from unittest import mock
from ray_canal import warm
with mock.patch.object(warm.subprocess, "Popen") as begun, mock.patch("os.cpu_count", lambda: 2):
    with mock.patch.multiple(
        warm, _decoded=lambda kinds: [], load_kernels=mock.DEFAULT, load_result_kernels=mock.DEFAULT
    ):
        warm.warm()
print(begun.call_args.args[0][1:])
"""
    empty = {**os.environ, "RAY_CANAL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=empty, capture_output=True, text=True)
    assert done.stdout.strip() == "['-m', 'ray_canal.warm', 'views']", done.stderr


def test_chunks_for_the_second_process_come_without_the_compiler() -> None:
    command = [sys.executable, "-m", "ray_canal.warm", "chunk"]
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=plain, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert any(chunk.layout.tables for chunk in pickle.loads(done.stdout))
