"""Processes that answer calls have short time slices, where Linux grants them."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SHORTENED = """
import threading
from ray_canal.actors import time_slice

def told(): return (time_slice.time_slice(threading.get_native_id()) or [0] * 6)[3:6:2]
print(*told())
before = threading.Thread(target=lambda: (asked.wait(), print(*told())))
asked = threading.Event()
before.start()
time_slice.shorten_time_slices()
print(*told())
asked.set()
before.join()
after = threading.Thread(target=lambda: print(*told()))
after.start()
after.join()
"""


def test_all_threads_and_later_ones_have_short_slices_and_keep_their_niceness() -> None:
    """Shortens them for threads that are there, and those come after them; nothing else changes."""
    command = [sys.executable, "-c", _SHORTENED]
    usual, *shortened = subprocess.check_output(command, text=True, timeout=60).splitlines()
    niceness, slice_ns = usual.split()
    if slice_ns == "0":
        pytest.skip("this kernel has one slice for all threads")
    assert shortened == [f"{niceness} 100000"] * 3
