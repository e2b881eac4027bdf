"""Ranges of any key against tuples that Python orders: each row is in one of them."""

from __future__ import annotations

import sqlite3
from typing import Any

from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.snapshot.columns import selection
from ray_canal.snapshot.key_ranges import KeyRanges
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.types import mysql as t

META = TableMeta(
    "main", "t", (ColumnMeta("a", t.LONG, "int"), ColumnMeta("b", t.LONG, "int"))
)  # fmt: skip
TABLE = SnapshotTable(META, ("a", "b"), "", 100, 100, True)


def filled() -> sqlite3.Connection:
    """SQLite compares rows of integers as MySQL does."""
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
    rows = [(a, b) for a in (-2, 0, 5) for b in range(-3, 8)]
    database.executemany("INSERT INTO t VALUES (?, ?)", rows)
    return database


def test_each_row_is_in_one_range_in_the_keys_order() -> None:
    database = filled()

    def ask(sql: str) -> list[dict[str, Any]]:
        return [dict(row) for row in database.execute(sql.replace("AS CHAR", "AS TEXT"))]

    cut = KeyRanges(TABLE, selection(META), ask)
    upto = cut.greatest()
    assert upto == ("5", "7")
    found, after = [], ("-2", "-1")
    for one in cut.ranges(after, upto, lambda: 4):
        assert one.after == after
        after = one.upto
        rows = ask(f"SELECT a, b FROM t WHERE {one.condition} ORDER BY a, b")
        assert 0 < len(rows) <= 4
        found += [(row["a"], row["b"]) for row in rows]
    database.execute("DELETE FROM t WHERE (a, b) <= (-2, -1)")
    left = [tuple(row) for row in database.execute("SELECT a, b FROM t ORDER BY a, b")]
    assert found == left
    assert after == upto
    database.execute("DELETE FROM t")
    assert cut.greatest() is None
    database.close()
