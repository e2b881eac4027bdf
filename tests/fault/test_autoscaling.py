"""Decoders grow with the load, their demand is shown, and Ray's autoscaler adds a node for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.own_cluster import told_by
from tests.integration.test_subscribers import filled
from tests.servers import Server

ROWS = 300_000


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_demand_is_shown_and_a_node_comes(mysql97: Server, tmp_path: Path) -> None:
    """P3."""
    filled(mysql97, "autoscaling", *((1 + 10_000 * k, 10_000) for k in range(ROWS // 10_000)))
    told = told_by("tests.fault.autoscaling", mysql97.address, tmp_path, ROWS, timeout_s=800)
    assert told["rows"] == ROWS
    assert told["decoders_max"] > 1
    assert told["demand_s"] is not None
    assert told["node_s"] is not None
    assert told["demand_s"] < told["node_s"]
