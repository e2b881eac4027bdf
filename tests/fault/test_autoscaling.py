"""Decoders grow with the load, their demand is shown, and Ray's autoscaler adds a node for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.ray_nodes import cluster_environment
from tests.integration.test_subscribers import filled
from tests.servers import Server

ROWS = 300_000


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_demand_is_shown_and_a_node_comes(mysql97: Server, tmp_path: Path) -> None:
    """P3."""
    filled(mysql97, "autoscaling", *((1 + 10_000 * k, 10_000) for k in range(ROWS // 10_000)))
    command = [sys.executable, "-m", "tests.fault.autoscaling", mysql97.address, str(tmp_path)]
    done = subprocess.run(
        [*command, str(ROWS)],
        env={**os.environ, **cluster_environment()},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    told = json.loads(lines[-1])
    print(told)
    assert told["rows"] == ROWS
    assert told["decoders_max"] > 1
    assert told["demand_s"] is not None
    assert told["node_s"] is not None
    assert told["demand_s"] < told["node_s"]
