"""Warming: what one process has compiled, the next one loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_a_second_process_starts_from_the_cache() -> None:
    root = Path(__file__).parents[2]
    seconds = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "ray_canal.warm"], capture_output=True, check=True, cwd=root
        )
        seconds.append(float(done.stdout.split()[-2]))
    assert seconds[1] < 6, f"loading the compiled kernels took {seconds[1]} s"
