"""Statements in other letters than the catalog has: by the server's lower_case_table_names."""

from __future__ import annotations

import pytest

from ray_canal.binlog.parsed import QueryEvent
from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import TableMetaMismatch
from ray_canal.schema.ddl.statements import classify
from ray_canal.schema.ddl.words import Dialect
from ray_canal.schema.history import SchemaHistory, place_of
from ray_canal.schema.names import Names
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.schema.table_state import StatementSession
from ray_canal.types import mysql

FILE = "mysql-bin.000009"
SESSION = StatementSession("Shop", dialect=Dialect(mariadb=False))
TWO = TableMap(1, "shop", "orders", (mysql.LONG, mysql.LONG), (0, 0), (True, True))


def run(setting: int | None, *statements: str) -> SchemaHistory:
    history = SchemaHistory(Names(setting))
    for number, sql in enumerate(statements, 1):
        history.apply(place_of(FILE, 100 * number), sql, SESSION)
    return history


def names_of(history: SchemaHistory, schema: str, table: str) -> str | None:
    state = history.at(schema, table, place_of(FILE, 10**6))
    if state is None:
        return None
    return "?" if state.problem else " ".join(column.name for column in state.columns)


@pytest.mark.parametrize("setting", [1, 2])
@pytest.mark.parametrize(
    ("statements", "table", "columns"),
    [
        (["alter table Orders change amount fee int, change fee amount int"], "orders",
         "fee amount"),
        (["ALTER TABLE ORDERS RENAME COLUMN amount TO price"], "orders", "price fee"),
        (["alter table `SHOP`.`oRders` modify fee int first"], "orders", "fee amount"),
        (["drop table ORDERS"], "orders", None),
        (["drop table if exists Nothing, ORDERS"], "orders", None),
        (["drop database SHOP"], "orders", None),
        (["rename table Orders to ARCHIVE"], "archive", "amount fee"),
        (["rename table Orders to ARCHIVE"], "orders", None),
        (["alter table ORDERS rename Archive"], "archive", "amount fee"),
        (["create table COPY like ORDERS"], "copy", "amount fee"),
        (["create table if not exists ORDERS (x int)"], "orders", "amount fee"),
        (["create or replace table ORDERS (x int)"], "orders", "x"),
        (["create table T_ÄÖ (a int)", "alter table t_äÖ add b int"], "t_äö", "a b"),
    ],
)  # fmt: skip
def test_letters_make_no_difference(
    setting: int, statements: list[str], table: str, columns: str | None
) -> None:
    """A7, b1: DDL keeps the letters that somebody typed; TABLE_MAP and catalog have lower case."""
    history = run(setting, "create table orders (amount int, fee int)", *statements)
    assert names_of(history, "shop", table) == columns
    assert names_of(history, "SHOP", table.upper()) == columns


def test_defaults_of_databases_in_other_letters() -> None:
    """A7: ALTER DATABASE Shop is of shop."""
    history = run(1, "create database SHOP", "alter database shop charset gbk",
                  "create table Shop.t (a varchar(9))")  # fmt: skip
    state = history.at("shop", "t", place_of(FILE, 10**6))
    assert state is not None
    assert (state.charset, state.columns[0].charset) == ("gbk", "gbk")


def test_a_case_sensitive_server_has_both() -> None:
    """A7: with 0, Orders and orders are two tables."""
    history = run(0, "create table shop.orders (a int)", "create table shop.Orders (b int)",
                  "alter table shop.ORDERS add x int", "drop table shop.Orders")  # fmt: skip
    assert names_of(history, "shop", "orders") == "a"
    assert names_of(history, "shop", "Orders") is None
    assert names_of(history, "Shop", "orders") is None


@pytest.mark.parametrize(
    "sql",
    [
        "alter table shop.Orders change amount fee int, change fee amount int",
        "alter table Shop.orders frobnicate",
        "drop table if exists shop.ORDERS",
        "drop database if exists Shop",
        "rename table shop.Orders to shop.archive",
        "create table if not exists shop.Orders (x int)",
        "create or replace table shop.Orders (x int)",
    ],
)
def test_where_it_is_not_known_nothing_is_guessed(sql: str) -> None:
    """A7: binlog files do not say how their server compares names. What another spelling may have
    changed is not known any more, and the error says what to give."""
    history = run(None, "create table shop.orders (amount int, fee int)", sql)
    assert names_of(history, "shop", "orders") == "?"
    schemas = SchemaRegistry()
    schemas.use(history)
    with pytest.raises(TableMetaMismatch, match=r"--lower-case-table-names"):
        schemas.resolve(TWO, FILE, 10**6)


@pytest.mark.parametrize(
    "sql",
    [
        "create table shop.Orders (x int)",  # it was made: so it is another
        "rename table shop.other to shop.Orders",
        "create database Shop charset gbk",
        "alter table shop.Other add x int",
        "insert into shop.Orders values (1)",
    ],
)
def test_what_can_only_be_another_table_leaves_it_alone(sql: str) -> None:
    made = ("create table shop.orders (amount int, fee int)", "create table shop.Other (a int)")
    history = run(None, *made, "create table shop.other (b int)", sql)
    assert names_of(history, "shop", "orders") == "amount fee"


def test_a_table_map_in_other_letters_is_told() -> None:
    """A7: CREATE TABLE Orders, rows of orders, and nobody knows the setting."""
    history = run(None, "create table shop.Orders (amount int, fee int)")
    schemas = SchemaRegistry()
    schemas.use(history)
    with pytest.raises(TableMetaMismatch, match=r"shop\.Orders is known.*lower_case_table_names"):
        schemas.resolve(TWO, FILE, 10**6)
    schemas.use(run(1, "create table shop.Orders (amount int, fee int)"))
    assert [c.name for c in schemas.resolve(TWO, FILE, 10**6).columns] == ["amount", "fee"]


def test_a_given_text_in_other_letters() -> None:
    """A7: CREATE TABLE statements as somebody wrote them."""
    schemas = SchemaRegistry("CREATE TABLE Shop.ORDERS (a int, b int)")
    with pytest.raises(TableMetaMismatch, match=r"Shop\.ORDERS is known"):
        schemas.resolve(TWO)
    schemas.use_names(Names(2))
    assert schemas.resolve(TWO).full_name == "shop.orders"


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("ALTER TABLE Orders ADD x INT", [("shop", "orders", None)]),
        ("rename table A to B, Crm.C to D",
         [("shop", "b", ("shop", "a")), ("shop", "d", ("crm", "c"))]),
        ("DROP DATABASE Shop", [("shop", None, None)]),
        ("INSERT INTO Orders VALUES (1)", [("shop", "orders", None)]),
        ("TRUNCATE `Crm`.`ÄB`", [("crm", "äb", None)]),
        ("GRANT ALL ON *.* TO x", [(None, None, None)]),
    ],
)  # fmt: skip
def test_entries_have_the_names_of_rows(
    sql: str, named: list[tuple[str | None, str | None, tuple[str, str] | None]]
) -> None:
    """A7: filters and subscribers see one name of a table, whoever wrote it how."""
    event = QueryEvent("Shop", sql, 1, 4, 0)
    found = classify(event, Names(1))
    assert [(r.schema, r.table, r.renamed_from) for r in found] == named
    assert {r.sql for r in found} == {sql}
    assert classify(event, Names(0)) == classify(event)
