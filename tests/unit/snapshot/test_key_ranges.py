"""Ranges of any key against tuples that Python orders: each row is in one of them."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.snapshot.columns import selection
from ray_canal.snapshot.key_ranges import KeyRange, KeyRanges
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


def halved(keys: list[int], after: int | None, rows: int) -> list[KeyRange]:
    """Ranges of a table of these keys, whose server's estimates are right."""
    asked = []

    def ask(sql: str) -> list[dict[str, Any]]:
        asked.append(sql)
        if not sql.startswith("EXPLAIN"):
            return [{"k0": str(max(keys) if "DESC" in sql else min(keys))}]
        low, high = map(int, re.findall(r"= (-?\d+)", sql))
        return [{"rows": sum(low <= key <= high for key in keys)}]

    meta = TableMeta("main", "t", META.columns[:1])
    cut = KeyRanges(SnapshotTable(meta, ("a",), "PRIMARY", 9, 9, True), selection(meta), ask)
    upto = cut.greatest()
    assert upto is not None
    found = list(cut.ranges(None if after is None else (str(after),), upto, lambda: rows))
    assert len(asked) < 100 + 6 * len(found)
    return found


@pytest.mark.parametrize("after", [None, 40, 1999])
@pytest.mark.parametrize(
    "keys",
    [
        [*range(2000)], [7], [-5, *range(0, 2000, 3)],
        [-(1 << 63), *range(1990, 2010), *range(1 << 62, (1 << 62) + 900), (1 << 64) - 1],
    ],
)  # fmt: skip
def test_one_integer_is_halved_by_estimates(keys: list[int], after: int | None) -> None:
    if after is not None and after >= max(keys):
        return
    found, border = halved(keys, after, 100), after
    for one in found:
        assert one.after == (None if border is None else (str(border),))
        inside = [key for key in keys if key <= int(one.upto[0])]
        inside = [key for key in inside if border is None or key > border]
        assert len(inside) <= 100
        border = int(one.upto[0])
    assert border == max(keys)
    assert len(found) <= 1 + len(keys) // 40


@pytest.mark.parametrize("descending", ["", "a", "b"])
def test_each_row_is_in_one_range_in_the_keys_order(descending: str) -> None:
    """The order is the one of the index, some of whose columns descend; resumed behind a border."""
    signs = {name: -1 if name == descending else 1 for name in "ab"}
    by = ", ".join(f"{name} * {sign}" for name, sign in signs.items())
    database = filled()

    def ask(sql: str) -> list[dict[str, Any]]:
        return [dict(row) for row in database.execute(sql.replace("AS CHAR", "AS TEXT"))]

    table = replace(TABLE, descending=frozenset(descending))
    cut = KeyRanges(table, selection(META), ask)
    upto = cut.greatest()
    assert upto == ("-2" if descending == "a" else "5", "-3" if descending == "b" else "7")
    found, after = [], ("0", "-1")
    for one in cut.ranges(after, upto, lambda: 4):
        assert one.after == after
        after = one.upto
        rows = ask(f"SELECT a, b FROM t WHERE {one.condition} ORDER BY {by}")
        assert 0 < len(rows) <= 4
        found += [(row["a"], row["b"]) for row in rows]
    left = [(a, b) for a in (-2, 0, 5) for b in range(-3, 8)]
    left = [(a, b) for a, b in left if (a * signs["a"], b * signs["b"]) > (0, -signs["b"])]
    left.sort(key=lambda row: (row[0] * signs["a"], row[1] * signs["b"]))
    assert found == left
    assert after == upto
    database.execute("DELETE FROM t")
    assert cut.greatest() is None
    database.close()
