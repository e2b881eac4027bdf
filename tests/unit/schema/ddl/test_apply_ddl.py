"""What statements make of a history's tables."""

from __future__ import annotations

import pytest

from ray_canal.schema.ddl.words import Dialect
from ray_canal.schema.history import place_of
from ray_canal.schema.table_state import StatementSession
from tests.unit.schema.ddl_log import FILE, Log


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
        (["alter ignore online table a wait 3 add b int"], {"a": "a1 b"}),
        (["create table .c (c.x int, db.c.exclude int)"], {"c": "x exclude"}),
        (["create table c (x int) (select 1 as y)"], {"c": "?"}),
        (["create table c (x int) engine=innodb ignore (with w as (select 1) select * from w)"],
         {"c": "?"}),
        (["create table c (x int) engine=merge union=(a, b)"], {"c": "x"}),
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
        session=StatementSession("db", "koi8r"),
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
        log = Log(sql, session=StatementSession("db", "", dialect))
        assert log.columns("t") == columns
