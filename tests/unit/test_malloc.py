"""Freed memory stays in the process: the second round of allocations has no page faults."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, sys
import numpy as np
from ray_canal.malloc import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def round_of_work():
    parts = [np.ones(1 << 20, np.uint8) for _ in range(16)]
for _ in range(3):
    round_of_work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    round_of_work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    command = [sys.executable, "-c", PROGRAM, mode]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_freed_memory_is_used_again() -> None:
    assert faults("keep") < 1000 < faults("give back")
