"""From nothing to a mirror: rows that were there, then changes, into another database."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from ray_canal.destination.snapshot import snapshots
from tests.in_process_sink import destination, runner_of, running, sink_config, until
from tests.integration.test_snapshot_keyed import Writers, keyed
from tests.servers import Server

__all__ = ["keyed"]
TABLES = ("n", "c")  # a mirror wants a primary key


def rows(server: Server, database: str, table: str) -> list[str]:
    return sorted(map(repr, server.execute(f"select * from {database}.{table}")))


@pytest.mark.parametrize("mode", ["keyed", "consistent"])
@pytest.mark.parametrize("server", ["mysql97"], indirect=True)
def test_a_mirror_of_tables_that_had_rows(
    server: Server, keyed: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins when somebody subscribes, not when the destination looks for what is to do."""
    monkeypatch.setattr(snapshots, "_TICK_S", 1000.0)
    server.execute("create table keyed.e (id int primary key, at datetime(3))")  # without rows
    there = (*TABLES, "e") if mode == "consistent" else TABLES
    source = {"address": server.address, "username": "root", "snapshot": "initial"}
    mirror = {
        "address": server.address, "username": "root", "database": "keyed_copy",
        "cursor_database": "keyed_cursors",
    }  # fmt: skip
    small = {"chunk_bytes": 65536, "mode": mode, "may_lock": True}
    tables = {"tables": r"keyed\.[nce]"}
    with destination(keyed.parent, source=source, filter=tables, snapshot=small, tsdb={}):
        sink = runner_of(sink_config("mysql", mirror=mirror, **tables))
        with Writers(server, 2, seed=4).running(), running(sink):
            until(lambda: server.execute("show databases like 'keyed_copy'"))
        sink = runner_of(sink_config("mysql", mirror=mirror, **tables))

        def equal() -> bool:
            try:
                copies = (rows(server, "keyed_copy", table) for table in there)
                return [rows(server, "keyed", table) for table in there] == list(copies)
            except pymysql.err.ProgrammingError:  # a table is not there yet
                return False

        with running(sink):
            until(lambda: sink.status.state == "failed" or equal())
    server.execute("drop database keyed_copy", "drop database keyed_cursors")
