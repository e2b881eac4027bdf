"""Processes are found by their environment, also when who started them has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid

from tests.processes import send, wait_for, with_environment

NAME = "RAY_CANAL_TEST_MARK"


def test_orphans_are_found_by_their_environment() -> None:
    mark = uuid.uuid4().hex
    command = ["bash", "-c", "(setsid sleep 60 &)"]
    subprocess.run(command, env={**os.environ, NAME: mark}, check=True, timeout=30)
    (orphan,) = with_environment(NAME, mark)
    assert with_environment(NAME, "another") == []
    send(orphan, signal.SIGKILL)
    wait_for(lambda: with_environment(NAME, mark) == [], 30, "it has ended")
