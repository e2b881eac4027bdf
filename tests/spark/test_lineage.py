"""Tables that are emptied, dropped, made again and renamed: what is left is what SELECT shows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ray_canal.errors import ConfigError, UnsupportedEvent
from ray_canal.offline import decode_batches
from ray_canal.spark.frames import to_frames
from ray_canal.spark.parquet import ParquetSink, read_changes, read_rows
from ray_canal.spark.state import latest
from ray_canal.spark.stream import run
from tests.servers import Server
from tests.spark.conftest import Log, Message

pytestmark = pytest.mark.usefixtures("interpreted")

COLUMNS = "(id INT PRIMARY KEY, name VARCHAR(30), n INT)"


def log_of(server: Server, *statements: str, tables: str = r"lin\..*") -> list[list[Any]]:
    """The batches of these statements in a new database `lin`, chunk by chunk."""
    server.execute("DROP DATABASE IF EXISTS lin", "FLUSH BINARY LOGS")
    file = server.binlogs()[-1]
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in ("CREATE DATABASE lin", "USE lin", *statements):
            cursor.execute(statement)
    return list(decode_batches([file], tables=tables))


def selected(server: Server, table: str) -> set[tuple[Any, ...]]:
    return set(server.execute(f"SELECT * FROM lin.{table}"))


def rows(frame: Any) -> set[tuple[Any, ...]]:
    found = [tuple(row) for row in frame.collect()]
    assert len(set(found)) == len(found)
    return set(found)


def test_a_table_that_was_emptied_or_dropped_keeps_nothing(spark, mysql97: Server) -> None:
    """b8: TRUNCATE, DROP and CREATE, DROP DATABASE, in frames of one message."""
    parts = log_of(
        mysql97,
        f"CREATE TABLE a {COLUMNS}",
        f"CREATE TABLE b {COLUMNS}",
        "INSERT INTO a VALUES (1, 'one', 1), (2, 'two', 2)",
        "INSERT INTO b VALUES (1, 'one', 1)",
        "TRUNCATE a",
        "INSERT INTO a VALUES (2, 'again', 2)",
        "DROP TABLE b",
        f"CREATE TABLE b {COLUMNS}",
        "INSERT INTO b VALUES (9, 'nine', 9)",
        "CREATE DATABASE IF NOT EXISTS lin2",
        f"CREATE TABLE gone {COLUMNS}",
        "INSERT INTO gone VALUES (1, 'x', 1)",
        "DROP TABLE gone",
    )
    with to_frames(spark, [batch for part in parts for batch in part]) as made:
        assert made.rows == {"lin.a": 3, "lin.b": 2, "lin.gone": 1}
        for table in ("a", "b"):
            assert rows(latest(made.by_table[f"lin.{table}"])) == selected(mysql97, table)
        assert rows(latest(made.by_table["lin.gone"])) == set()
        kinds = made.by_table["lin.a"].groupBy("event_type").count().collect()
        assert dict(map(tuple, kinds)) == {"INSERT": 3, "TRUNCATE": 1}
        with pytest.raises(Exception, match="read files by read_changes"):
            latest(made.by_table["lin.a"].drop("sql")).collect()


def test_a_rename_counts_with_the_other_tables_changes(spark, mysql97: Server) -> None:
    """b8: as tools for online schema changes do it; who has not subscribed to the other is told."""
    parts = log_of(
        mysql97,
        f"CREATE TABLE t {COLUMNS}",
        "INSERT INTO t VALUES (1, 'old', 1), (2, 'old', 2)",
        f"CREATE TABLE _t_new {COLUMNS}",
        "INSERT INTO _t_new VALUES (1, 'copied', 1), (2, 'copied', 2)",
        "RENAME TABLE t TO _t_old, _t_new TO t",
        "UPDATE t SET name = 'later' WHERE id = 2",
        "ALTER TABLE _t_old RENAME TO done",
    )
    with to_frames(spark, [batch for part in parts for batch in part]) as made:
        frames = made.by_table
        for table in ("t", "done"):
            found = latest(frames[f"lin.{table}"], ["id"], others=frames)
            assert rows(found) == selected(mysql97, table)
        assert rows(latest(frames["lin._t_old"], ["id"], others=frames)) == set()
        with pytest.raises(ConfigError, match=r"renamed from lin\._t_new, whose changes are not"):
            latest(frames["lin.t"])


def test_statements_are_refused(spark, mysql97: Server) -> None:
    """b8: rows that a statement changed are in no log; `run` and `latest` do not go on as if."""
    statements = [
        f"CREATE TABLE t {COLUMNS} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9), "
        "PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "INSERT INTO t VALUES (1, 'one', 1), (10, 'ten', 10)",
        "ALTER TABLE t TRUNCATE PARTITION p1",
    ]
    parts = log_of(mysql97, *statements)
    log = Log([part for part in parts if part])
    with pytest.raises(UnsupportedEvent, match=r"rows of lin\.t were changed by a statement"):
        run(log, spark, lambda frames, message: None)
    log.rollback()
    seen: list[int] = []
    run(log, spark, lambda frames, _: seen.append(len(frames)), statements="ignore")
    assert log.acked == len(log.contents)
    parts = log_of(
        mysql97,
        f"CREATE TABLE t {COLUMNS}",
        "SET binlog_format = 'STATEMENT'",
        "INSERT INTO t VALUES (1, 'one', 1)",
    )
    with pytest.raises(UnsupportedEvent, match="INSERT INTO t VALUES"):
        to_frames(spark, [batch for part in parts for batch in part])
    assert to_frames(spark, [b for p in parts for b in p], statements="ignore").by_table == {}


@pytest.mark.parametrize(
    "kind", ["mysql97", *(pytest.param(k, marks=pytest.mark.soak) for k in ("mariadb", "mysql56"))]
)
def test_the_mirror_is_select(
    kind: str, request: pytest.FixtureRequest, spark: Any, tmp_path: Path
) -> None:
    """b8: random changes of rows and of whole tables, through the Parquet sink."""
    server: Server = request.getfixturevalue(kind)
    rng = random.Random(kind)
    there: list[str] = []
    statements: list[str] = []
    for number in range(140):
        roll = rng.random()
        free = [name for name in ("a", "b", "c", "d") if name not in there]
        if (roll < 0.08 and free) or not there:
            there.append(rng.choice(free))
            statements.append(f"CREATE TABLE {there[-1]} {COLUMNS}")
            continue
        table, key = rng.choice(there), rng.randrange(12)
        if roll < 0.45:
            statements.append(f"REPLACE INTO {table} VALUES ({key}, 'name {number}', {number})")
        elif roll < 0.70:
            statements.append(f"UPDATE {table} SET n = {number} WHERE id < {key}")
        elif roll < 0.78:
            statements.append(f"UPDATE IGNORE {table} SET id = {key + 20} WHERE id = {key}")
        elif roll < 0.84:
            statements.append(f"DELETE FROM {table} WHERE id = {key}")
        elif roll < 0.88:
            statements.append(f"TRUNCATE TABLE {table}")
        elif roll < 0.92:
            statements.append(f"DROP TABLE {table}")
            there.remove(table)
        elif free and rng.random() < 0.5:
            statements.append(f"ALTER TABLE {table} RENAME TO {free[0]}")
            there[there.index(table)] = free[0]
        elif free and len(there) > 1:
            other = rng.choice([name for name in there if name != table])
            swap = f"{table} TO {free[0]}, {other} TO {table}, {free[0]} TO {other}"
            statements.append(f"RENAME TABLE {swap}")
    parts = [part for part in log_of(server, *statements) if part]
    sink = ParquetSink(spark, str(tmp_path / "out"))
    size = -(-len(parts) // 6)
    for number in range(0, len(parts), size):
        batches = [batch for part in parts[number : number + size] for batch in part]
        with to_frames(spark, batches) as made:
            sink(made.by_table, Message(number, batches))
    assert there
    for table in there:
        assert rows(read_rows(spark, sink.path, f"lin.{table}", ["id"])) == selected(server, table)
    for table in {"a", "b", "c", "d"} - set(there):
        if (f"lin.{table}", "INSERT") in sink.counts:
            assert rows(read_rows(spark, sink.path, f"lin.{table}", ["id"])) == set()
    assert "sql" in read_changes(spark, sink.path, f"lin.{there[0]}").columns
