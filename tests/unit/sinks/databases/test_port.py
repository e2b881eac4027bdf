"""What databases of mirrors do alike, on SQLite's own SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.sinks.databases.port import (
    OTHERS,
    TransactionalDatabase,
    close_quietly,
    in_key_order,
)
from ray_canal.sinks.schema_follower import TableName


class Sqlite(TransactionalDatabase):
    """Tables of a sink in memory."""

    _PARAMETER = "?"
    _LOCKED = ""
    _cursors = "canal_cursor"
    _sources = "canal_table"

    def __init__(self) -> None:
        super().__init__("meta")
        self._sink = "lake"
        self.connection = sqlite3.connect(":memory:")
        self.run = self._run
        self._run("CREATE TABLE canal_cursor (sink TEXT PRIMARY KEY, epoch INT, place TEXT)")
        names = "sink TEXT, of_database TEXT, of_table TEXT, source TEXT"
        self._run(f"CREATE TABLE canal_table ({names})")

    def _run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    def _rename(self, name: TableName, to: TableName) -> None:
        self._run(f"ALTER TABLE {name.table} RENAME TO {to.table}")


@pytest.fixture
def database() -> Iterator[Sqlite]:
    made = Sqlite()
    yield made
    made.connection.close()


def test_a_sinks_other_senders_are_its_own_and_replaced_together(database: Sqlite) -> None:
    for row in ("lake", "lake2", f"lake2{OTHERS}1", "lak_"):
        database.run("INSERT INTO canal_cursor VALUES (?, 4, 'old')", row)
    database.replace_others("lake", [f"lake{OTHERS}1", f"lake{OTHERS}2"], "here")
    assert database.other_places("lake") == {f"lake{OTHERS}1": "here", f"lake{OTHERS}2": "here"}
    database.replace_others("lake", [f"lake{OTHERS}1"], "there")
    assert database.other_places("lake") == {f"lake{OTHERS}1": "there"}
    assert database.other_places("lake2") == {f"lake2{OTHERS}1": "old"}
    assert len(database.run("SELECT * FROM canal_cursor")) == 5, "no other row was touched"


def test_a_table_is_known_by_its_name_as_the_database_tells_names_apart(database: Sqlite) -> None:
    database.run("INSERT INTO canal_table VALUES ('lake', 'shop', 'orders', 'shop.Orders')")
    database.run("INSERT INTO canal_table VALUES ('other', 'shop', 'items', 'shop.items')")
    assert database.source_of(TableName("shop", "orders")) == "shop.Orders"
    assert database.source_of(TableName("SHOP", "Orders")) == ""
    database._folds_case = True
    assert database.source_of(TableName("SHOP", "Orders")) == "shop.Orders"


def test_a_table_of_another_sink_is_not_free(database: Sqlite) -> None:
    """The second sink had emptied it, as one that its source has made."""
    for sink, source in (("other", "a.t"), ("lake", "b.t"), ("third", "c.t")):
        database.run("INSERT INTO canal_table VALUES (?, 'shop', 't', ?)", sink, source)
    assert database.source_of(TableName("shop", "t")) == "b.t"
    database.run("DELETE FROM canal_table WHERE sink = 'lake'")
    assert database.source_of(TableName("shop", "t")) in ("a.t", "c.t")


def test_tables_may_take_each_others_names(database: Sqlite) -> None:
    a, b = TableName("shop", "a"), TableName("shop", "b")
    for each in (a, b):
        database.run(f"CREATE TABLE {each.table} (was_{each.table} INT)")
    database.rename({a: b, b: a}, "b.000001:4")
    database.run("SELECT was_a FROM b")
    database.run("SELECT was_b FROM a")
    assert not database.has_renamed("b.000001:4"), "what is not committed is not done"


def test_a_broken_connection_is_closed_and_nothing_else_is_hidden() -> None:
    class Broken:
        def close(self) -> None:
            raise OSError("reset")

    close_quietly(None)
    close_quietly(Broken(), OSError)
    with pytest.raises(OSError, match="reset"):
        close_quietly(Broken(), ValueError)


def test_rows_go_by_their_key_if_it_has_an_order() -> None:
    rows = pa.table({"a": [2, 1, 2], "b": ["x", "z", "b"], "v": [1, 2, 3]})
    assert in_key_order(rows, ("a", "b"))["v"].to_pylist() == [2, 3, 1]
    assert in_key_order(rows, ()) is rows
    listed = pa.table({"k": [[2.0], [1.0]], "v": [1, 2]})
    assert in_key_order(listed, ("k",)) is listed
