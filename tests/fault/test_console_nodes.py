"""The console of a cluster of several nodes: it is on the head, and comes back when it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.ray_nodes import cluster_environment


@pytest.mark.timeout(240)
def test_start_places_it_on_the_head_and_it_outlives_its_process_and_a_node(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fault.console_nodes", str(tmp_path)],
        env={**os.environ, **cluster_environment()},
        stdout=subprocess.PIPE,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print(told)
    assert "the console: http://" in told["output"]
    assert all(each in ("running", "finished", "idle") for each in told["states"])
    assert told["raylets"] == 1  # the same node again
    assert told["on_head"]
    assert told["nodes"] == 2
