"""Nodes that read a snapshot's rows die in the midst of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fault.lost_reader import ROWS, TABLES
from tests.fault.own_cluster import told_by
from tests.servers import Server

pytestmark = pytest.mark.soak  # `make soak-fault`
SOON = {"RAY_health_check_failure_threshold": "3"}
"""With those of `cluster_environment` the head knows soon that a node is dead."""


def run(server: Server, folder: Path, mode: str, how: str) -> dict[str, Any]:
    told = told_by("tests.fault.lost_reader", server.address, folder, mode, how, **SOON)
    assert (told["state"], told["error"]) == ("done", None), told
    assert told["at_end"], told
    return told


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["one", "read"])
def test_by_key_it_goes_on_where_it_was_acked(how: str, mysql97: Server, tmp_path: Path) -> None:
    told = run(mysql97, tmp_path, "keyed", how)
    assert told["emptied"] == 0
    assert ROWS < told["read"] < 2 * ROWS


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["all", "read"])
def test_of_one_moment_it_begins_again(how: str, mysql97: Server, tmp_path: Path) -> None:
    told = run(mysql97, tmp_path, "consistent", how)
    assert told["emptied"] >= 2 * len(TABLES)
