"""SchemaRegistry: who is asked first, what is refused, what a DDL makes it forget."""

from __future__ import annotations

import dataclasses

import pytest

from ray_canal.binlog.parsed import TableVersion
from ray_canal.binlog.plan import make_plan
from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import ConnectionLost, TableMetaMismatch
from ray_canal.kernels.base import codes
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.history import place_of
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.types import mysql
from ray_canal.types.registry import storage_code
from tests.unit.schema.ddl_log import FILE, Log

SQL = "CREATE TABLE shop.item (id int(11), flag tinyint(1), name varchar(20) CHARACTER SET gbk)"
BARE = TableMap(
    7, "shop", "item", (mysql.LONG, mysql.TINY, mysql.VARCHAR), (0, 0, 40), (True, True, True)
)
NAMED = dataclasses.replace(
    BARE,
    names=("id", "flag", "name"),
    unsigned=(False, False, False),
    collations=(0, 0, 28),  # gbk_chinese_ci
    primary_key=(0,),
)


class FakeCatalog:
    """A catalog that counts questions."""

    def __init__(self, sql: str = SQL) -> None:
        self.sql = sql
        self.asked: list[tuple[str, str]] = []

    def __call__(self, schema: str, table: str) -> TableMeta | None:
        self.asked.append((schema, table))
        found = {(t.schema, t.table): t for t in parse_tables(self.sql)}
        return found.get((schema, table))


def type_texts(meta: TableMeta) -> list[str]:
    return [column.mysql_type for column in meta.columns]


def test_row_metadata_needs_nothing_else() -> None:
    meta = SchemaRegistry().resolve(NAMED)
    assert [c.name for c in meta.columns] == ["id", "flag", "name"]
    assert type_texts(meta) == ["int", "tinyint", "varchar(20)"]
    assert meta.columns[0].is_key
    assert meta.columns[2].charset == "gbk"


def test_a_table_is_there_that_had_rows_until_a_statement_took_it_away() -> None:
    """So a RENAME TABLE IF EXISTS … TO item, before the catalog's snapshot, did nothing."""
    log = Log()
    schemas = SchemaRegistry(history=log.history)
    name, place = ("shop", "item"), place_of(FILE, 300)
    assert schemas.exists_at(name, place) is None
    schemas.resolve(NAMED)
    assert schemas.exists_at(name, place) is True
    log.run("drop table shop.item", "create table shop.other (a int)")
    assert [schemas.exists_at(("shop", each), place) for each in ("item", "other")] == [False, True]


@pytest.mark.parametrize("source", ["text", "catalog"])
def test_a_known_schema_lends_row_metadata_its_type_texts(source: str) -> None:
    known = SchemaRegistry(SQL) if source == "text" else SchemaRegistry(catalog=FakeCatalog())
    meta = known.resolve(NAMED)
    assert type_texts(meta) == ["int(11)", "tinyint(1)", "varchar(20)"]
    assert meta.columns[0].is_key, "keys are row metadata's"


def test_row_metadata_wins_where_the_schema_differs() -> None:
    other = "CREATE TABLE shop.item (ident int(11), flag bigint(20), name varchar(30))"
    meta = SchemaRegistry(other).resolve(NAMED)
    assert [c.name for c in meta.columns] == ["id", "flag", "name"]
    assert type_texts(meta) == ["int", "tinyint", "varchar(20)"]
    longer = "CREATE TABLE shop.item (id int(11), flag tinyint(1), name varchar(20), more int)"
    assert type_texts(SchemaRegistry(longer).resolve(NAMED))[1] == "tinyint"


def test_without_metadata_the_text_counts_before_the_catalog() -> None:
    catalog = FakeCatalog()
    registry = SchemaRegistry("CREATE TABLE shop.item (a int, b tinyint, c varchar(10))", catalog)
    assert [c.name for c in registry.resolve(BARE).columns] == ["a", "b", "c"]
    assert not catalog.asked


def test_a_text_without_a_schema_fits_any() -> None:
    registry = SchemaRegistry(SQL.replace("shop.", ""))
    meta = registry.resolve(dataclasses.replace(BARE, schema="other"))
    assert meta.full_name == "other.item"


def test_the_catalog_is_asked_once_until_a_ddl_in_that_schema() -> None:
    catalog = FakeCatalog()
    registry = SchemaRegistry(catalog=catalog)
    for table_id in (7, 7, 8):
        registry.resolve(dataclasses.replace(BARE, table_id=table_id))
    registry.changed("other")
    registry.resolve(BARE)
    assert catalog.asked == [("shop", "item")]
    catalog.sql = SQL.replace("flag", "renamed")
    registry.changed("shop")
    assert registry.resolve(BARE).columns[1].name == "renamed"
    assert len(catalog.asked) == 2


def test_a_catalog_answer_that_does_not_fit_is_asked_for_again() -> None:
    catalog = FakeCatalog("CREATE TABLE shop.item (id int)")
    registry = SchemaRegistry(catalog=catalog)
    with pytest.raises(TableMetaMismatch):
        registry.resolve(BARE)
    catalog.sql = SQL
    assert len(registry.resolve(BARE).columns) == 3


@pytest.mark.parametrize("create", ["", "CREATE TABLE shop.other (id int)"])
@pytest.mark.parametrize("with_catalog", [False, True])
def test_an_unknown_table_says_what_to_do(create: str, with_catalog: bool) -> None:
    catalog = FakeCatalog(create) if with_catalog else None
    with pytest.raises(TableMetaMismatch, match=r"shop\.item") as caught:
        SchemaRegistry(create, catalog).resolve(BARE)
    assert "binlog_row_metadata=FULL" in str(caught.value)
    assert "--schema" in str(caught.value)
    assert ("the catalog" in str(caught.value)) == with_catalog


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("id int, flag tinyint", "2 columns are known, the rows have 3"),
        ("id int, flag tinyint, name int", r"column name is int, the rows have VARCHAR \(15\)"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(columns: str, problem: str) -> None:
    with pytest.raises(TableMetaMismatch, match=problem):
        SchemaRegistry(f"CREATE TABLE shop.item ({columns})").resolve(BARE)


def test_old_and_new_formats_of_a_type_are_one_type() -> None:
    kinds = (mysql.DATETIME, mysql.TIMESTAMP2, mysql.LONG_BLOB, mysql.VAR_STRING)
    table_map = TableMap(1, "s", "t", kinds, (0,) * 4, (True,) * 4)
    registry = SchemaRegistry("CREATE TABLE s.t (a datetime, b timestamp, c text, d varchar(3))")
    assert len(registry.resolve(table_map).columns) == 4


def test_a_catalogs_error_comes_through() -> None:
    def gone(schema: str, table: str) -> TableMeta | None:
        raise ConnectionLost("gone")

    with pytest.raises(ConnectionLost):
        SchemaRegistry(catalog=gone).resolve(BARE)


HIDDEN = TableMap(1, "s", "t", (mysql.LONG, mysql.LONGLONG), (0, 0), (True, False))


def test_a_hidden_key_stands_behind_the_columns_of_a_keyless_table() -> None:
    registry = SchemaRegistry("CREATE TABLE s.t (a int)", hidden_key=lambda: "row_id")
    first, hidden = registry.resolve(HIDDEN).columns
    assert first.name == "a"
    assert (hidden.name, hidden.mysql_type, hidden.is_key) == ("row_id", "bigint", True)


@pytest.mark.parametrize(
    ("sql", "name", "kinds"),
    [
        ("CREATE TABLE s.t (a int)", "", HIDDEN.types),  # a server that adds none
        ("CREATE TABLE s.t (a int primary key)", "row_id", HIDDEN.types),
        ("CREATE TABLE s.t (a int)", "row_id", (mysql.LONG, mysql.LONG)),
        ("CREATE TABLE s.t (a int)", "row_id", (mysql.LONG, mysql.LONGLONG, mysql.LONGLONG)),
    ],
)
def test_no_hidden_key_is_guessed(sql: str, name: str, kinds: tuple[int, ...]) -> None:
    table_map = TableMap(1, "s", "t", kinds, (0,) * len(kinds), (True,) * len(kinds))
    with pytest.raises(TableMetaMismatch, match="columns are known"):
        SchemaRegistry(sql, hidden_key=lambda: name).resolve(table_map)


@pytest.mark.parametrize("names", [None, ("id", "v")])
def test_mariadbs_vector_is_bytes_in_the_rows(names: tuple[str, ...] | None) -> None:
    collations = None if names is None else (0, 63)
    rows = TableMap(
        1, "s", "t", (mysql.LONG, mysql.VARCHAR), (0, 12), (False, True),
        names=names, collations=collations, unsigned=names and (False, False),
    )  # fmt: skip
    meta = SchemaRegistry("create table s.t (id int, v vector(3))").resolve(rows)
    assert (meta.columns[1].type_code, meta.columns[1].mysql_type) == (mysql.VECTOR, "vector(3)")
    assert make_plan(TableVersion(meta, rows)).codes[1] == codes.VECTOR
    assert storage_code(meta.columns[1]) == codes.VECTOR
    other = SchemaRegistry("create table s.t (id int, v vector(4))")
    if names is None:
        with pytest.raises(TableMetaMismatch, match="12 bytes"):
            other.resolve(rows)
    else:
        assert other.resolve(rows).columns[1].mysql_type == "varbinary(12)"
