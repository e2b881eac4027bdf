"""What MariaDB's keys hide, key by key as servers were seen to have it; names that keys get."""

from __future__ import annotations

import pytest

from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import TableMetaMismatch
from ray_canal.model.schema_record import CatalogSnapshot
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.ddl.words import Dialect
from ray_canal.schema.history import SchemaHistory, place_of
from ray_canal.schema.records import load_history, snapshot_record
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.schema.table_state import StatementSession, TableState
from ray_canal.types import mysql

MARIADB, MYSQL = (
    StatementSession("s", "utf8mb4", Dialect(True)),
    StatementSession("s", "utf8mb4", Dialect(False)),
)


def after(*statements: str, session: StatementSession = MARIADB) -> TableState:
    """Table t after statements on it."""
    history = SchemaHistory()
    for at, sql in enumerate(statements):
        history.apply(place_of("bin.000001", at), sql, session)
    state = history.at("s", "t", place_of("bin.000001", len(statements)))
    assert state is not None
    assert not state.problem
    return state


@pytest.mark.parametrize(
    ("columns", "hidden"),
    [
        ("a int, t text, unique (t)", 1),
        ("a int, t text unique, b blob, unique k2 (b, a)", 2),
        ("v varchar(768), unique (v)", 0),
        ("v varchar(769), unique (v)", 1),
        ("v varchar(3072) character set latin1 unique", 0),
        ("v varchar(3073) character set latin1 unique", 1),
        ("v varbinary(3072) unique, w varbinary(3073) unique", 1),
        ("t text, unique (t(10))", 0),
        ("t text, unique (t(3000))", 1),
        ("t tinytext unique, unique (t(255)), unique (t(63))", 1),
        ("t mediumtext, unique (t(768)), unique (t(769))", 1),
        ("t text, key (t), fulltext (t)", 0),
        ("a int, unique (a) using hash", 1),
        ("a int, unique using hash (a)", 1),
        ("a int, unique using btree (a)", 0),
        ("j json, unique (j(10)), unique (j)", 1),
        ("v varchar(600), w varchar(600), unique (v, w)", 1),
        ("v varchar(300), w varchar(300), unique (v, w)", 0),
        ("p point, unique (p)", 0),
        ("p linestring, unique (p)", 1),
        ("v varchar(1000) character set ascii, w enum('a'), x bit(64), unique (v, w, x)", 0),
        ("a inet6 unique, u uuid, unique (u) using hash, unique (a, u) using btree", 1),
        ("a int, unique (a), constraint c unique (a desc) comment 'using hash'", 0),
    ],
)
def test_which_keys_hide_a_column(columns: str, hidden: int) -> None:
    assert after(f"create table t ({columns})").meta.hidden == hidden
    assert after(f"create table t ({columns})", session=MYSQL).meta.hidden == 0


def test_engines_have_limits_of_their_own() -> None:
    columns = "(v varchar(300), w varchar(10), unique (v, w))"
    tables = [f"create table t {columns} engine={e}" for e in ("MyISAM", "InnoDB", "memory")]
    assert [after(sql).meta.hidden for sql in tables] == [1, 0, 0]
    assert after("create table t (a int unique) engine = memory").meta.hidden == 0
    assert after(tables[0], "alter table t engine=innodb").meta.hidden == 0
    assert after(tables[1], "alter table t force, engine = MyISAM").meta.hidden == 1


TABLE = "create table t (a int, v varchar(500), unique (v), unique (a) using hash)"


@pytest.mark.parametrize(
    ("changes", "hidden"),
    [
        ([], 1),
        (["alter table t rename to t"], 1),
        (["alter table t comment 'x'"], 0),  # USING HASH of a short key is forgotten
        (["create index i on t (a)"], 0),
        (["alter table t modify v varchar(1000)"], 1),
        (["alter table t modify v text", "alter table t change v w text"], 1),
        (["alter table t modify v text", "alter table t rename column v to w"], 1),
        (["alter table t modify v text", "alter table t drop v"], 0),
        (["alter table t modify v text", "alter table t drop key v"], 0),
        (["alter table t modify v text", "drop index v on t"], 0),
        (["alter table t modify v text", "alter table t drop constraint if exists `V`"], 0),
        (["alter table t modify v text", "alter table t rename key v to w, drop key w"], 1),
        (["alter table t modify v text", "alter table t rename key v to w",
          "alter table t drop key w"], 0),
        (["alter table t modify v text", "alter table t convert to charset latin1"], 1),
        (["alter table t modify v varchar(1000), convert to charset latin1"], 0),
        (["alter table t add x text unique, add unique (x, a), add unique (x(20))"], 2),
        (["alter table t add x text, add unique (x)", "alter table t add unique (x, a)",
          "alter table t drop key x_2"], 1),
        (["alter table t add x text, add key (x), add unique (x)", "drop index x on t"], 1),
        (["alter table t add x text, add key (x), add unique (x)", "drop index x_2 on t"], 0),
        (["alter table t add unique key if not exists v (a) using hash"], 0),
        (["create or replace unique index a using hash on t (a)"], 1),
        (["create unique index b using hash on t (a)"], 1),
        (["create unique index if not exists a on t (a) using hash"], 1),
        (["set statement lock_wait_timeout=5 for alter table t add x text unique"], 1),
        (["alter table t add g linestring unique"], 1),
        (["alter table t add g linestring unique", "alter table t force"], 0),
    ],
)  # fmt: skip
def test_changes(changes: list[str], hidden: int) -> None:
    assert after(TABLE, *changes).meta.hidden == hidden


def test_a_foreign_key_needs_a_name_only_without_another_key() -> None:
    fk = "foreign key (a, b) references o (a, b)"
    drop = "alter table t drop key a_2"
    assert after(f"create table t (a text, b int, {fk}, unique (a))", drop).meta.hidden == 0
    both = f"create table t (a text, b int, {fk}, unique (a), key (a, b))"
    assert after(both, drop).meta.hidden == 1


def test_like_takes_long_keys_and_no_algorithm() -> None:
    made = after("create table o (a int, t text unique, unique (a) using hash)",
                 "create table t like o")  # fmt: skip
    assert made.meta.hidden == 1


def test_records_keep_keys() -> None:
    state = after("create table t (a int, t text unique, unique (a) using hash)")
    snapshot = CatalogSnapshot("bin.000001", 4, (state,))
    record = snapshot_record("server", 1.0, snapshot, 0)
    history = load_history([record], "server", place_of("bin.000001", 4))
    assert history.at("s", "t", place_of("bin.000001", 5)) == state
    history.apply(place_of("bin.000001", 9), "alter table t drop key t", MARIADB)
    left = history.at("s", "t", place_of("bin.000001", 10))
    assert left is not None
    assert left.meta.hidden == 0


def test_row_end_is_in_the_primary_key() -> None:
    plain = "create table t (a int primary key, b int) with system versioning"
    declared = (
        "create table t (a int, b timestamp(6) as row start, c timestamp(6) generated always as "
        "row end, primary key (a), period for system_time (b, c)) with system versioning"
    )
    for sql, name in ((plain, "row_end"), (declared, "c")):
        assert keys_of(after(sql)) == ["a", name]
        assert keys_of(after(sql, "alter table t drop primary key")) == []
        again = ("alter table t drop primary key", "alter table t add primary key (b)")
        assert keys_of(after(sql, *again)) == ["b", name]
    assert keys_of(after(plain, "alter table t drop system versioning")) == ["a"]
    assert keys_of(after(declared, "alter table t drop b, drop c")) == ["a"]
    assert keys_of(after(plain.replace("primary key", "unique"))) == []
    later = "alter table t add system versioning"
    assert keys_of(after("create table t (a int primary key)", later)) == ["a", "row_end"]


def keys_of(state: TableState) -> list[str]:
    return [column.name for column in state.columns if column.is_key]


def test_a_sequence_is_dropped_as_one() -> None:
    state = after("create table t (a int)", "drop sequence if exists t, sq")
    assert [column.name for column in state.columns] == ["a"]


# --- rows ---------------------------------------------------------------------------------------


def table_map(*kinds: int, names: tuple[str, ...] | None = None, hashes: int = 0) -> TableMap:
    sizes = tuple(2 if kind == mysql.BLOB else 0 for kind in kinds)
    nullable = (True,) * len(kinds)
    return TableMap(1, "s", "t", kinds, sizes, nullable, names=names, hashes=hashes)


LONG_KEY = "create table s.t (a int, t text unique)"
ROWS = (mysql.LONG, mysql.BLOB, mysql.LONGLONG)


def test_rows_must_have_what_the_keys_hide() -> None:
    registry = SchemaRegistry(LONG_KEY)
    meta = registry.resolve(table_map(*ROWS))
    assert ([c.name for c in meta.columns], meta.hidden) == (["a", "t"], 1)
    for wrong in (ROWS[:2], (*ROWS, mysql.LONGLONG), (*ROWS[:2], mysql.LONG)):
        with pytest.raises(TableMetaMismatch, match="hidden"):
            registry.resolve(table_map(*wrong))


def test_row_metadata_names_what_is_hidden_but_for_columns_that_were_declared() -> None:
    rows = table_map(*ROWS, names=("a", "t", "DB_ROW_HASH_1"), hashes=1)
    for registry in (SchemaRegistry(), SchemaRegistry(LONG_KEY)):
        meta = registry.resolve(rows)
        assert ([c.name for c in meta.columns], meta.hidden) == (["a", "t"], 1)
    sql = "create table s.t (a int, t text, DB_ROW_HASH_1 bigint)"
    meta = SchemaRegistry(sql).resolve(rows)
    assert ([c.name for c in meta.columns], meta.hidden) == (["a", "t", "DB_ROW_HASH_1"], 0)


def test_a_text_of_no_server_takes_only_what_mysql_refuses() -> None:
    tables = parse_tables(f"{LONG_KEY}; create table u (a int, unique (a) using hash)")
    assert [meta.hidden for meta in tables] == [1, 0]
