"""A console's process gives way to others, with all of its threads."""

from __future__ import annotations

import os
import subprocess
import sys

from ray_canal.console.niceness import NICENESS

_PROGRAM = """
import os, threading
from ray_canal.console.niceness import give_way
end = threading.Event()
threading.Thread(target=end.wait).start()
give_way()
threading.Thread(target=end.wait).start()
found = [int(name) for name in os.listdir("/proc/self/task")]
print(len(found), *{os.getpriority(os.PRIO_PROCESS, each) for each in found})
end.set()
"""


def test_all_threads_give_way() -> None:
    wanted = max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
    told = subprocess.check_output([sys.executable, "-c", _PROGRAM], text=True, timeout=60)
    assert told.split() == ["3", str(wanted)]
