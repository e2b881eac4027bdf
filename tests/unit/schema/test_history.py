"""The table meta history: versions by place, statements applied once, snapshots, unknown tables."""

from __future__ import annotations

import pytest

from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.ddl.words import Dialect
from ray_canal.schema.history import SchemaHistory, place_of
from ray_canal.schema.table_state import Session, TableState

FILE = "mysql-bin.000009"
SESSION = Session("db")


class Log:
    """A history to which statements are applied 100 bytes apart."""

    def __init__(self, *statements: str, session: Session = SESSION) -> None:
        self.history = SchemaHistory()
        self.session = session
        self.at = 0
        self.run(*statements)

    def run(self, *statements: str) -> None:
        for sql in statements:
            self.at += 100
            self.history.apply(place_of(FILE, self.at), sql, self.session)

    def columns(self, table: str, at: int | None = None) -> str | None:
        """The columns' names; `?` for a table that is not known, None: no such table."""
        schema, _, name = table.rpartition(".")
        state = self.history.at(schema or "db", name, place_of(FILE, at or self.at + 1))
        if state is None:
            return None
        return "?" if state.problem else " ".join(c.name for c in state.columns)


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


@pytest.mark.parametrize(
    ("statements", "tables"),
    [
        (["rename table a to x, b to a, x to b"], {"a": "b1", "b": "a1", "x": None}),
        (["rename table a to other.a"], {"a": None, "other.a": "a1"}),
        (["alter table a rename to z, add q int"], {"a": None, "z": "a1 q"}),
        (["drop table if exists a, b, zz"], {"a": None, "b": None}),
        (["drop temporary table a"], {"a": "a1"}),
        (["create temporary table a (q int)"], {"a": "a1"}),
        (["create table if not exists a (q int)"], {"a": "a1"}),
        (["create or replace table a (q int)"], {"a": "q"}),
        (["create table c like a"], {"c": "a1"}),
        (["create table c (like db.b)"], {"c": "b1"}),
        (["create table c like zz"], {"c": "?"}),
        (["create table c select * from a"], {"c": "?"}),
        (["create table c (x int) as select * from a"], {"c": "?"}),
        (["create table c (x int) start transaction"], {"c": "x"}),
        (["create table c (x hologram)"], {"c": "?"}),
        (["alter table a frobnicate"], {"a": "?", "b": "b1"}),
        (["alter table a frobnicate", "rename table a to z"], {"a": None, "z": "?"}),
        (["alter table a frobnicate", "create or replace table a (n int)"], {"a": "n"}),
        (["drop database db"], {"a": None, "b": None}),
        (["truncate a", "create index i on a (a1)", "drop index i on a"], {"a": "a1"}),
        (["create view v as select * from a", "drop view a"], {"a": "a1", "v": None}),
        (["create trigger tg before insert on a for each row set new.a1 = 1"], {"a": "a1"}),
        (["create sequence s"], {"s": "next_not_cached_value minimum_value maximum_value "
                                      "start_value increment cache_size cycle_option cycle_count"}),
        (["alter table a convert partition p to table pp"], {"pp": "a1"}),
        (["ALTER ONLINE IGNORE TABLE IF EXISTS a ADD COLUMN IF NOT EXISTS (b int)"], {"a": "a1 b"}),
    ],
)  # fmt: skip
def test_statements(statements: list[str], tables: dict[str, str | None]) -> None:
    log = Log("create table a (a1 int)", "create table b (b1 int)", *statements)
    assert {name: log.columns(name) for name in tables} == tables


def test_gh_ost_and_pt_osc_cut_overs() -> None:
    log = Log(
        "create table t (id int primary key, v int)",
        "create /* gh-ost */ table `db`.`_t_gho` like `db`.`t`",
        "alter /* gh-ost */ table `db`.`_t_gho` add column w int",
        "create table `_t_del` (id int) comment='ghost-cut-over-sentry'",
        "drop table `_t_del`",
        "rename /* gh-ost */ table `db`.`t` to `db`.`_t_del`, `db`.`_t_gho` to `db`.`t`",
        "drop table if exists `db`.`_t_del`",
        "CREATE TABLE `db`.`_t_new` (\n `id` int,\n `v` int, `w` int,\n PRIMARY KEY (`id`))",
        "ALTER TABLE `db`.`_t_new` DROP v",
        "RENAME TABLE `db`.`t` TO `db`.`_t_old`, `db`.`_t_new` TO `db`.`t`",
        "DROP TABLE IF EXISTS `db`.`_t_old`",
    )
    assert [log.columns("t", at) for at in (150, 599, 600, 999, 1000)] == [
        "id v", "id v", "id v w", "id v w", "id w",
    ]  # fmt: skip
    assert log.columns("_t_del") is log.columns("_t_old") is None


def test_databases_default_character_sets() -> None:
    log = Log(
        "create database `x` default character set gbk",
        "create table x.t (a char)",
        "alter database x collate = latin1_bin",
        "create table x.u (a char)",
        "alter table x.t add b char",
        "create schema if not exists x charset big5",
        "create table x.v like x.t",
        "create database y",
        "create table y.t (a char, b char ascii, c nchar)",
        session=Session("db", "koi8r"),
    )

    def charsets(schema: str, table: str) -> list[str]:
        state = log.history.at(schema, table, place_of(FILE, 9999))
        assert state is not None
        return [column.charset for column in state.columns]

    assert charsets("x", "t") == ["gbk", "gbk"]
    assert charsets("x", "u") == ["latin1"]
    assert charsets("x", "v") == ["gbk", "gbk"]
    assert charsets("y", "t") == ["koi8r", "latin1", "utf8mb3"]


def test_a_dialect_decides_about_comments_and_quotes() -> None:
    sql = 'create table t (a int, /*!80013 b int, */ /*!99999 c int, */ /*M! d int, */ "e" int)'
    for dialect, columns in (
        (Dialect(False, 80013, 4), "a b e"),
        (Dialect(False, 50700, 4), "a e"),
        (Dialect(True, 101100, 4), "a d e"),
        (Dialect(None, 0, 4), "a b c d e"),
    ):
        log = Log(sql, session=Session("db", "", dialect))
        assert log.columns("t") == columns


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
