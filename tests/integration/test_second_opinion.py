"""What mysql-replication reads of random tables of MySQL 9.7, against our Arrow batches.

Left out, as mysql-replication has other conventions or no decoder: character sets that Python
lacks or maps otherwise, JSON, geometry, vectors, SETs (it has no order), BINARY (not padded), YEAR
(0 is 1900 to it) and DATE (it fails on irregular ones).
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from ray_canal.offline import decode_files
from tests.integration.test_differential import RandomTable
from tests.random_columns import Kind
from tests.servers import Server

OTHER = ("json", "geometry", "vector", "uuid", "inet", "set(", "binary(", "year")
PLAIN = ("utf8mb4", "utf8mb3", "latin2", "cp1250", "cp1257", "latin5", "gbk")


def admits(kind: Kind) -> bool:
    if kind.ddl.startswith(OTHER) or "compressed" in kind.ddl or kind.ddl == "date":
        return False
    _, marked, charset = kind.ddl.partition("character set ")
    return not marked or charset in PLAIN


def plain(value: Any) -> Any:
    """Our value as mysql-replication would give it, as far as that is only a form."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return value


def opinion(value: Any, ours: Any) -> Any:
    """Its value in our form."""
    if isinstance(value, str) and isinstance(ours, int):
        return int(value, 2)  # BIT
    if isinstance(value, str) and isinstance(ours, bytes):
        return value.encode("latin-1")
    return value


@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
@pytest.mark.timeout(120)
def test_mysql_replication_agrees(mysql97: Server) -> None:
    server = mysql97
    server.execute(
        "create database if not exists d", "create table if not exists d.phase (t text, n int)"
    )
    server.execute("flush binary logs")
    file = server.binlogs()[-1]
    tables = [RandomTable(seed, server, admits) for seed in range(500, 506)]
    for table in tables:
        if table.kinds:
            table.write()
    server.execute("flush binary logs")
    theirs = _theirs(server, file.name)
    compared = 0
    for batch in decode_files([file]):
        name = batch.schema.metadata[b"canal.table"].decode()
        for row in batch.to_pylist():
            for side in ("before", "after"):
                if row[side] is not None and name != "phase":
                    compared += _same(row[side], next(theirs[name, side]), name)
    assert compared > 500
    assert not any(list(rest) for rest in theirs.values())


def _same(ours: dict[str, Any], theirs: dict[str, Any], name: str) -> int:
    count = 0
    for column, value in ours.items():
        found = opinion(theirs.get(column), value)
        if isinstance(value, dt.timedelta) and value < dt.timedelta(0) and value.microseconds:
            continue  # it subtracts the fraction from where it should add
        if value is not None:
            assert plain(value) == found, (name, column, value, found)
            count += 1
    return count


def _theirs(server: Server, file: str) -> dict[tuple[str, str], Any]:
    """Its row images by table and side, in the log's order, as iterators."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    stream = BinLogStreamReader(
        connection_settings={"host": server.host, "port": server.port, "user": "root"},
        server_id=4242,
        log_file=file,
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_schemas=["d"],
        ignored_tables=["phase"],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    for event in stream:
        if stream.log_file != file:
            break
        for row in event.rows:
            for side, key in (("before", "before_values"), ("after", "after_values")):
                if isinstance(event, UpdateRowsEvent):
                    found.setdefault((event.table, side), []).append(row[key])
            if isinstance(event, WriteRowsEvent):
                found.setdefault((event.table, "after"), []).append(row["values"])
            if isinstance(event, DeleteRowsEvent):
                found.setdefault((event.table, "before"), []).append(row["values"])
    stream.close()
    return {place: iter(rows) for place, rows in found.items()}
