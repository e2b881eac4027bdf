"""Destinations on nodes that drain and die: they go on elsewhere, and no row is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dumps import purge_all
from tests.fault.own_cluster import told_by
from tests.integration.test_snapshot_keyed import CREATE
from tests.servers import Server

pytestmark = pytest.mark.ray
ROWS = 300_000
SLOW_START = {"RAY_raylet_start_wait_time_s": "200"}


def run(server: Server, folder: Path, destinations: int, nodes: int) -> dict[str, Any]:
    server.execute(
        "drop database if exists moves",
        "create database moves",
        "create user if not exists canal_moves identified by 'in clear text'",
        "grant select, replication slave, replication client on *.* to canal_moves",
        *(f"create table moves.d{number} (id int primary key)" for number in range(destinations)),
    )
    purge_all(server)  # rows of tables of the same names, which an earlier test has left in the log
    program = "tests.fault.moving_nodes"
    told = told_by(program, server.address, folder, destinations, nodes, timeout_s=500)
    assert not told["failures"]
    assert not told["wrong"]
    assert not told["moved_beyond"]
    return told


@pytest.mark.soak
@pytest.mark.timeout(520)
def test_what_was_on_a_node_that_drains_or_dies_goes_on_elsewhere(
    mysql97: Server, tmp_path: Path
) -> None:
    """P1: spread, handed over from the node that drains, begun again after a death."""
    told = run(mysql97, tmp_path, destinations=4, nodes=2)
    assert told["counts"] == [2, 2]
    assert told["to_replacement"] == 4  # all were on the one that was left


@pytest.mark.soak
@pytest.mark.timeout(520)
def test_over_four_nodes(mysql97: Server, tmp_path: Path) -> None:
    """P1."""
    told = run(mysql97, tmp_path, destinations=16, nodes=4)
    assert told["counts"] == [4, 4, 4, 4]
    assert told["to_replacement"] >= 1


@pytest.mark.soak
@pytest.mark.timeout(520)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_sinks_snapshot_goes_on_when_its_node_drains_and_dies(
    mysql97: Server, tmp_path: Path, seed: int
) -> None:
    """P1: the mirror ends equal to SELECT, and has no row twice."""
    filled = ", ".join(f"({number}, {number})" for number in range(1000, 1000 + ROWS))
    mysql97.execute(
        "drop database if exists keyed", "drop database if exists keyed_copy",
        "drop database if exists keyed_cursors", "create database keyed", *CREATE,
        f"insert into keyed.n values {filled}",
    )  # fmt: skip
    program = "tests.fault.moving_snapshot"
    told = told_by(program, mysql97.address, tmp_path, seed, timeout_s=500, **SLOW_START)
    state, read, all_rows = told["drained_at"]
    assert state == "running"
    assert read < all_rows
    assert not told["failure"], told
    assert not any(told["twice"].values())
