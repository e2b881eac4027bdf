"""The console of a cluster of several nodes: it is on the head, and comes back when it dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.own_cluster import told_by

pytestmark = pytest.mark.ray


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_start_places_it_on_the_head_and_it_outlives_its_process_and_a_node(
    tmp_path: Path,
) -> None:
    told = told_by("tests.fault.console_nodes", tmp_path)
    assert "the console: http://" in told["output"]
    assert all(each in ("running", "finished", "idle") for each in told["states"])
    assert told["raylets"] == 1  # the same node again
    assert told["on_head"]
