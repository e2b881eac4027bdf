"""Statements in Canal's terms: case by case, and against Canal itself on golden binlogs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ray_canal.binlog import types
from ray_canal.binlog.format import parse_query, read_events
from ray_canal.binlog.parsed import QueryEvent, QueryRecord
from ray_canal.parse import ddl
from ray_canal.parse.ddl import classify
from tests.unit.binlog.golden import GOLDEN, needs_golden
from tests.unit.parse.canal_entries import canal_statements


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
        ("create database if not exists `x y`", (ddl.QUERY, "x y.", True)),
        ("drop schema x", (ddl.QUERY, "x.", True)),
        ("alter database x character set latin1", (ddl.QUERY, "x.", True)),
        ("insert into s.t values ('drop table x')", (ddl.INSERT, "s.t", False)),
        ("replace low_priority t values (1)", (ddl.INSERT, "db.t", False)),
        ("update t set a=1", (ddl.UPDATE, "db.t", False)),
        ("delete quick from t", (ddl.DELETE, "db.t", False)),
        ("XA COMMIT X'7831',X'',1", (ddl.XACOMMIT, ".", False)),
        ("XA ROLLBACK X'7831',X'',1", (ddl.XAROLLBACK, ".", False)),
        ("XA PREPARE X'7831'", (ddl.QUERY, ".", False)),
        ("create view v as select 1", (ddl.QUERY, ".", False)),
        ("create trigger tg before insert on t for each row set @a=1", (ddl.QUERY, ".", False)),
        ("drop procedure p", (ddl.QUERY, ".", False)),
        ("create user 'u'@'h' identified by 'x'", (ddl.QUERY, ".", False)),
        ("rename user a to b", (ddl.QUERY, ".", False)),
        ("SAVEPOINT `sp`", (ddl.QUERY, ".", False)),
        ("", (ddl.QUERY, ".", False)),
        ("\x00'`\"/*", (ddl.QUERY, ".", False)),
    ],
)
def test_everything_else_is_one_record_and_none_is_lost(
    sql: str, record: tuple[int, str, bool]
) -> None:
    assert found(sql) == [record]


@pytest.mark.parametrize("sql", ["drop table", "create table", "rename table a", "alter table"])
def test_a_statement_that_breaks_off_still_makes_a_record(sql: str) -> None:
    assert found(sql)


# --- against Canal ----------------------------------------------------------------------------

NOT_SHOWN = re.compile(
    r"(CREATE|DROP)( OR REPLACE)?( ALGORITHM=\w+)?( DEFINER=\S+)?( SQL SECURITY \w+)? "
    r"(VIEW|PROCEDURE|FUNCTION|EVENT|TRIGGER|USER|ROLE)\b"
    r"|(GRANT|REVOKE|FLUSH|ANALYZE|OPTIMIZE|SAVEPOINT|XA (START|END)|ALTER DATABASE)\b"
    r"|(ROLLBACK TO|(CREATE|DROP) SEQUENCE)\b",
    re.IGNORECASE,
)
"""Statements of which Canal makes no entry: ours are QUERY entries (a sequence's: CREATE,
ERASE)."""
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
        if header.type_code != types.QUERY_EVENT:
            continue
        query = parse_query(event[types.HEADER_BYTES : -types.CHECKSUM_BYTES])
        if query.sql in ("BEGIN", "COMMIT"):
            continue
        looked += 1
        ours = classify(QueryEvent(query.schema, query.sql, 0, position, 0))
        theirs = expected.get(position, [])
        if not theirs:
            assert NOT_SHOWN.match(query.sql), query.sql
            assert {r.event_type for r in ours} <= {ddl.QUERY, ddl.CREATE, ddl.ERASE}
        elif UNREAD.match(query.sql):
            assert ours[0].event_type in (ddl.CREATE, ddl.ALTER)
            assert ours[0].table
        else:
            # Of several tables Canal reports the first alone.
            assert ours[: len(theirs)] == theirs == theirs[:1]
            assert len(ours) == 1 or ours[0].event_type in (ddl.ERASE, ddl.RENAME)
    assert looked


def test_records_are_plain() -> None:
    assert classify(QueryEvent("db", "drop table a", 9, 4, 0)) == [
        QueryRecord(ddl.ERASE, "db", "a", "drop table a", "db", True)
    ]
