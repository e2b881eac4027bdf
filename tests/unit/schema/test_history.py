"""The table meta history: versions by place, statements applied once, snapshots, unknown tables."""

from __future__ import annotations

import pytest

from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.history import place_of
from ray_canal.schema.table_state import TableState
from tests.unit.schema.ddl_log import FILE, Log


def test_a_place_has_the_version_of_its_time() -> None:
    log = Log("create table t (a int)", "alter table t add b int", "drop table t",
              "create table t (c int)")  # fmt: skip
    assert [log.columns("t", at) for at in (99, 100, 199, 250, 300, 399, 400)] == [
        None, "a", "a", "a b", None, None, "c",
    ]  # fmt: skip
    assert log.history.at("db", "t", place_of("mysql-bin.000010", 4)) is not None
    assert log.history.at("db", "t", place_of("mysql-bin.999", 4)) is not None


def test_a_statement_that_comes_again_changes_nothing() -> None:
    log = Log("create table t (a int)", "alter table t add b int")
    assert log.history.apply(place_of(FILE, 100), "create table t (z int)", log.session) is None
    assert log.history.apply(place_of(FILE, 200), "alter table t drop a", log.session) is None
    assert log.columns("t") == "a b"


def snapshot_of(sql: str) -> list[TableState]:
    return [TableState(meta, "utf8mb4") for meta in parse_tables(sql)]


def test_before_the_snapshot_only_statements_count() -> None:
    log = Log()
    snapshot = snapshot_of("create table db.t (a int, b int); create table db.u (n int)")
    log.history.take_snapshot(place_of(FILE, 250), snapshot, {"db": "utf8mb4"})
    log.run("alter table t add b int", "create or replace table u (o int)")
    log.run("alter table t add c int", "drop table u")
    assert [log.columns("t", at) for at in (50, 150, 249)] == [None, None, None]
    later = log.history.later("db", "t", place_of(FILE, 50))
    assert later == log.history.at("db", "t", place_of(FILE, 260))
    assert [log.columns("t", at) for at in (260, 300)] == ["a b", "a b c"]
    assert [log.columns("u", at) for at in (150, 200, 250, 400)] == [None, "o", "n", None]


def test_a_snapshot_ends_tables_that_it_does_not_have() -> None:
    log = Log("create table t (a int)")
    log.history.take_snapshot(place_of(FILE, 500), [], {})
    assert log.columns("t", 400) == "a"
    assert log.columns("t", 500) is None
    assert log.history.states_at(place_of(FILE, 500)) == []


@pytest.mark.parametrize(
    "changes",
    [
        ["create table t (a varchar(\N{SUPERSCRIPT TWO}))"],
        ["create table t (a varchar(" + "9" * 5000 + "))"],
        ["create table t (a text(99999999999))", "alter table t convert to character set utf8mb4"],
        ["create table t (a enum(x'4z'))"],
        ["create table t (a varchar(9), key k (a(\N{SUPERSCRIPT TWO})))"],
    ],
)
def test_impossible_numbers_do_not_stop_the_log(changes: list[str]) -> None:
    log = Log(*changes, "create table other (a int)")
    assert log.columns("other") == "a"
