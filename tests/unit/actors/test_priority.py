"""Processes of ours have the priority of Ray's own, where the operating system lets them."""

from __future__ import annotations

import os
import subprocess
import sys

_LOWERED = """
import os, threading
from ray_canal.actors.priority import as_ray_itself, raise_to

os.nice(7)
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
threads = [int(name) for name in os.listdir("/proc/self/task")]
levels = lambda: {os.getpriority(os.PRIO_PROCESS, each) for each in threads}
as_ray_itself()
print(*levels())
try:
    raise_to(3)
    print(*levels())
except PermissionError:
    print("not allowed")
raise_to(9)
print(*levels())
end.set()
"""


def test_all_threads_are_raised_and_none_is_lowered() -> None:
    lowered = str(min(os.getpriority(os.PRIO_PROCESS, 0) + 7, 19))
    environment = {k: v for k, v in os.environ.items() if k != "RAY_worker_niceness"}
    command = [sys.executable, "-c", _LOWERED]
    told = subprocess.check_output(command, env=environment, text=True, timeout=60).splitlines()
    # Its parent is no raylet, so at first nothing happens.
    assert told[0] == lowered
    if os.geteuid() == 0:
        assert told[1:] == ["3", "3"]
    else:
        assert told[1:] in (["3", "3"], ["not allowed", lowered])
