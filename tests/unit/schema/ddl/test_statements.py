"""Statements in Canal's terms: case by case, and against Canal itself on golden binlogs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from ray_canal.binlog.events import parse_query
from ray_canal.binlog.parsed import QueryEvent, QueryRecord
from ray_canal.kernels.base import event_types
from ray_canal.schema.ddl import statements as ddl
from ray_canal.schema.ddl.statements import classify
from tests.unit.binlog.golden import GOLDEN, needs_golden, read_events
from tests.unit.schema.canal_entries import canal_statements


def found(sql: str) -> list[tuple[int, str, bool]]:
    records = classify(QueryEvent("db", sql, 1, 4, 0))
    assert all(record.sql == sql for record in records)
    return [(r.event_type, f"{r.schema}.{r.table}", r.is_ddl) for r in records]


@pytest.mark.parametrize(
    ("sql", "event_type", "names"),
    [
        ("create table t (a int)", ddl.CREATE, "db.t"),
        ("CREATE TABLE IF NOT EXISTS `s`.`we ird-名` (`a``b` int)", ddl.CREATE, "s.we ird-名"),
        ("create or replace table t like u", ddl.CREATE, "db.t"),
        ("set statement a=1, b='for' for create table t (a int)", ddl.CREATE, "db.t"),
        ("SET STATEMENT max_statement_time = 9 FOR alter table s.t add c int", ddl.ALTER, "s.t"),
        ("/* c1 */ create /* c2 */ temporary table /* c3 */ t (id int)", ddl.CREATE, "db.t"),
        ("create table t (a varchar(9) comment 'c:\\') ; drop table x", ddl.CREATE, "db.t"),
        ("create sequence sq1", ddl.CREATE, "db.sq1"),
        ("/*!50001 create table t (a int) */", ddl.CREATE, "db.t"),
        ("-- note\n# note\nalter table t add c int", ddl.ALTER, "db.t"),
        ("alter online ignore table if exists s.t drop column c", ddl.ALTER, "s.t"),
        ("alter table t add column `rename` int", ddl.ALTER, "db.t"),
        ("alter table t add c varchar(9) default 'rename to x'", ddl.ALTER, "db.t"),
        ("alter table t rename column a to b, rename index i to j", ddl.ALTER, "db.t"),
        ("alter table t drop partition p0", ddl.ALTER, "db.t"),
        ("alter table t drop primary key, add index i (a)", ddl.ALTER, "db.t"),
        ("alter table t add constraint fk foreign key (a) references u (a)", ddl.ALTER, "db.t"),
        ("alter table t add unique key (a), add c int", ddl.CINDEX, "db.t"),
        ("alter table t add constraint `c` primary key (a)", ddl.CINDEX, "db.t"),
        ("alter table t drop index i", ddl.DINDEX, "db.t"),
        ("alter ignore online table t nowait drop index i", ddl.DINDEX, "db.t"),
        ("alter table t wait 5 add index (a)", ddl.CINDEX, "db.t"),
        ("alter table t rename to u", ddl.RENAME, "db.u"),
        ("alter table s.t add c int, rename as x.u", ddl.RENAME, "x.u"),
        ("rename table a to b, s.c to s.d", ddl.RENAME, "db.b s.d"),
        ("rename table if exists a wait 5 to b", ddl.RENAME, "db.b"),
        ("drop table a", ddl.ERASE, "db.a"),
        ("DROP TABLE IF EXISTS `a`,s.`b` , c /* server */", ddl.ERASE, "db.a s.b db.c"),
        ("drop temporary table a", ddl.ERASE, "db.a"),
        ("truncate t", ddl.TRUNCATE, "db.t"),
        ("truncate table s.t", ddl.TRUNCATE, "s.t"),
        ("create index i on t (a)", ddl.CINDEX, "db.t"),
        ("create unique index i using btree on s.t (a)", ddl.CINDEX, "s.t"),
        ("create fulltext index i on t (a)", ddl.CINDEX, "db.t"),
        ("drop index `on` on s.t", ddl.DINDEX, "s.t"),
    ],
)
def test_table_ddl(sql: str, event_type: int, names: str) -> None:
    records = found(sql)
    assert {r[0] for r in records} == {event_type}
    assert " ".join(r[1] for r in records) == names
    assert all(r[2] for r in records)


@pytest.mark.parametrize(
    ("sql", "record"),
    [
        ("create database if not exists `x y`", (ddl.QUERY, "x y.None", True)),
        ("drop schema x", (ddl.QUERY, "x.None", True)),
        ("insert into s.t values ('drop table x')", (ddl.INSERT, "s.t", False)),
        ("replace low_priority t values (1)", (ddl.INSERT, "db.t", False)),
        ("update t set a=1", (ddl.UPDATE, "db.t", False)),
        ("delete quick from t", (ddl.DELETE, "db.t", False)),
        ("XA COMMIT X'7831',X'',1", (ddl.XACOMMIT, ".", False)),
        ("XA ROLLBACK X'7831',X'',1", (ddl.XAROLLBACK, ".", False)),
        ("load data infile 'f' replace into table s.`t` (a)", (ddl.INSERT, "s.t", False)),
        ("load data infile 'f'", (ddl.INSERT, "db.", False)),
        ("call p(1)", (ddl.QUERY, ".", False)),
        ("SELECT `db`.`f`(1)", (ddl.QUERY, ".", False)),
        ("vacuum t", (ddl.QUERY, "None.None", True)),
        ("", (ddl.QUERY, "None.None", True)),
        ("\x00'`\"/*", (ddl.QUERY, "None.None", True)),
    ],
)
def test_everything_else_is_one_record_and_none_is_lost(
    sql: str, record: tuple[int, str, bool]
) -> None:
    assert found(sql) == [record]


@pytest.mark.parametrize(
    "sql",
    [
        "create view v as select 1",
        "CREATE OR REPLACE ALGORITHM=UNDEFINED DEFINER=`view`@`%` SQL SECURITY DEFINER VIEW v AS x",
        "create trigger tg before insert on t for each row set @a=1",
        "drop procedure p",
        "create user 'u'@'h' identified by 'x'",
        "rename user a to b",
        "alter database x character set latin1",
        "SAVEPOINT `sp`",
        "ROLLBACK TO `sp`",
        "grant select on *.* to u",
        "XA PREPARE X'7831'",
    ],
)
def test_what_canal_does_not_show_is_a_silent_record(sql: str) -> None:
    (record,) = classify(QueryEvent("db", sql, 1, 4, 0))
    assert record.is_silent
    assert not record.is_ddl


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("insert into t values (1)", "t"),
        ("/* c */ update `s`.`t` set a=1 -- tail", "t"),
        ("delete from t", "t"),
        ("delete a, b from a join b", None),
        ("update a, b set a.x=b.x", "a"),
        ("create table t as select 1", "t"),
        ("replace into t values (1)", None),
        ("with x as (select 1) update t join x set a=1", None),
    ],
)
def test_a_rows_query_names_the_table_that_canal_guesses(sql: str, table: str | None) -> None:
    records = classify(QueryEvent("", sql, 0, 4, 0, is_annotation=True))
    assert records == [QueryRecord(ddl.QUERY, "", table, sql, "", False)]


def test_xa_statements_begin_and_end_transactions() -> None:
    kinds = [
        classify(QueryEvent("", f"XA {verb} X'78',X'',1", 1, 4, 0))[0].kind
        for verb in ("START", "END", "COMMIT", "ROLLBACK")
    ]
    assert kinds == [1, 3, 2, 2]


def test_a_rename_keeps_the_name_before_it() -> None:
    (record,) = classify(QueryEvent("db", "alter table a rename to s.b", 1, 4, 0))
    assert (record.schema, record.table, record.renamed_from) == ("s", "b", ("db", "a"))
    records = classify(QueryEvent("db", "rename table a to b, s.c to s.d", 1, 4, 0))
    assert [r.renamed_from for r in records] == [("db", "a"), ("s", "c")]


@pytest.mark.parametrize("sql", ["drop table", "create table", "rename table a", "alter table"])
def test_a_statement_that_breaks_off_still_makes_a_record(sql: str) -> None:
    assert found(sql)


# --- against Canal ----------------------------------------------------------------------------

SEQUENCES = re.compile(r"(CREATE|DROP) SEQUENCE\b", re.IGNORECASE)
UNREAD = re.compile(
    r"create table `?(t_m|t_sv|t_gipk|t_inv|t_srid)`? "
    r"|create or replace table|alter table if exists",
    re.IGNORECASE,
)
"""Statements that Canal's parser does not read, and so calls QUERY with no table."""
CASES = sorted(path for path in GOLDEN.glob("*/*.tsdb.pb")) if GOLDEN.is_dir() else []


@needs_golden
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.partition(".")[0])
def test_canal_says_the_same(path: Path) -> None:
    expected = canal_statements(path)
    binlog = path.parent / path.name.replace(".tsdb.pb", ".binlog")
    looked = 0
    for position, header, event in read_events(binlog):
        if header.type_code != event_types.QUERY:
            continue
        query = parse_query(event[event_types.HEADER_BYTES : -event_types.CHECKSUM_BYTES])
        if query.sql in ("BEGIN", "COMMIT"):
            continue
        looked += 1
        ours = classify(QueryEvent(query.schema, query.sql, 0, position, 0))
        theirs = expected.get(position, [])
        if not theirs:
            xa = query.sql.startswith(("XA START", "XA END"))
            assert ours[0].is_silent or xa or SEQUENCES.match(query.sql), query.sql
        elif UNREAD.match(query.sql):
            assert ours[0].event_type in (ddl.CREATE, ddl.ALTER)
            assert ours[0].table
        else:
            # Of several tables Canal reports the first alone.
            first = dataclasses.replace(
                ours[0], renamed_from=None, schema=ours[0].schema or "", table=ours[0].table or ""
            )
            assert [first] == theirs
            assert len(ours) == 1 or ours[0].event_type in (ddl.ERASE, ddl.RENAME)
    assert looked


def test_records_are_plain() -> None:
    assert classify(QueryEvent("db", "drop table a", 9, 4, 0)) == [
        QueryRecord(ddl.ERASE, "db", "a", "drop table a", "db", True)
    ]
