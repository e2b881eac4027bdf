"""A client of a cluster that has gone asks nothing of Ray while nobody listens at its address."""

from __future__ import annotations

import os
import subprocess
import sys

_WAITS_AGAIN = """
from ray_canal.client import joining
from ray_canal.errors import InstanceNotRunning

joining._ours.address = ""
joining.keep_joined.__defaults__ = (0.5,)
try:
    joining.connect_ray()
except InstanceNotRunning as error:
    print(error)
"""


def test_who_gave_up_waiting_for_the_head_waits_again() -> None:
    """Ray's own `init` would wait at this address for minutes, even if RAY_ADDRESS changes.

    In a process of its own: one that other tests have made a member of a cluster does not wait.
    """
    out = subprocess.run(
        [sys.executable, "-c", _WAITS_AGAIN],
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "none stood at '127.0.0.1:1'" in out.stdout, out.stderr
