"""The versions of one table, out of a destination's schema records."""

from __future__ import annotations

from ray_canal.model.schema_record import CatalogSnapshot, SchemaRecord, TableState
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.records import ddl_record, snapshot_record, table_record
from ray_canal.schema.table_changes import known_tables, newest_version, table_changes
from ray_canal.schema.table_state import StatementSession

LOG, FILE = "uuid#1", "bin.000001"
SESSION = StatementSession("db")


def state(sql: str) -> TableState:
    (meta,) = parse_tables(sql)
    return TableState(meta, "utf8mb4").renamed("db", meta.table)


def snapshot(position: int, *tables: str) -> SchemaRecord:
    found = CatalogSnapshot(FILE, position, tuple(map(state, tables)), {"db": "utf8mb4"})
    return snapshot_record(LOG, 1.0, found, 0)


def ddl(position: int, sql: str) -> SchemaRecord:
    return ddl_record(LOG, 2.0, FILE, position, sql, SESSION)


T = "create table t (id int primary key)"
T_NOTE = "create table t (id int primary key, note text)"
RECORDS = [
    snapshot(100, T, "create table u (id int)"),
    ddl(200, "alter table t add note text"),
    ddl(300, "alter table u add other int"),
    snapshot(400, T_NOTE, "create table u (id int, other int)"),
    ddl(500, "rename table t to w"),
    ddl(600, "create table t (a int)"),
    table_record(LOG, 3.0, FILE, 700, state("create table t (a bigint)")),
]


def test_each_version_has_its_place_and_its_statement() -> None:
    found = table_changes(RECORDS, LOG, ("db", "t"))
    assert [(each.position, each.kind) for each in found] == [
        (100, "snapshot"), (200, "ddl"), (500, "ddl"), (600, "ddl"), (700, "table"),
    ]  # fmt: skip
    assert found[1].sql == "alter table t add note text"
    assert found[1].columns == (("id", "int"), ("note", "text"))
    assert found[2].columns is None  # it is named w from here on
    assert found[4].columns == (("a", "bigint"),)
    (renamed,) = table_changes(RECORDS, LOG, ("db", "w"))
    assert renamed.columns == (("id", "int"), ("note", "text"))


def test_the_newest_version() -> None:
    def columns(table: str, upto: int = len(RECORDS)) -> list[str] | None:
        found = newest_version(RECORDS[:upto], LOG, ("db", table))
        return None if found is None else [column.mysql_type for column in found.columns]

    assert columns("t") == ["bigint"]
    assert columns("t", 2) == ["int", "text"]
    assert columns("t", 5) is None  # it is named w
    assert columns("w") == ["int", "text"]
    assert columns("nothing") is None
    assert newest_version([], LOG, ("db", "t")) is None


def test_other_logs_and_unknown_tables_have_none() -> None:
    assert table_changes(RECORDS, "uuid#2", ("db", "t")) == []
    assert table_changes(RECORDS, LOG, ("db", "nothing")) == []
    assert known_tables(RECORDS, LOG) == ["db.t", "db.u", "db.w"]
    assert known_tables([], LOG) == []
