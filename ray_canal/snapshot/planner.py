"""Cutting a table into ranges of its key.

Where the key is one integer column, [min, max] is halved until the optimizer's estimate of a part
is small enough: it looks into the index, and reads no rows. Parts are made as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from ray_canal.snapshot.columns import quoted
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.source.catalog import Catalog
from ray_canal.types.numeric import INTEGERS


def has_integer_key(table: SnapshotTable) -> bool:
    """Return whether the table's key is one integer column."""
    if len(table.key) != 1:
        return False
    kinds = {column.name: column.type_code for column in table.meta.columns}
    return kinds.get(table.key[0]) in INTEGERS


def from_clause(table: SnapshotTable) -> str:
    """The table, read by its key where it has one."""
    name = quoted(table.meta.schema, table.meta.table)
    return f"{name} FORCE INDEX ({quoted(table.index)})" if table.index else name


def integer_ranges(
    catalog: Catalog, table: SnapshotTable, rows: int
) -> Iterator[tuple[int | None, int | None]]:
    """Parts of a table of about `rows` rows, in order: [first key, first key behind it), None where
    a part has no end. Together they are all keys that there can be."""
    key = quoted(table.key[0])
    source = quoted(table.meta.schema, table.meta.table)  # a forced index would not be looked into
    [ends] = catalog.rows(f"SELECT MIN({key}) AS low, MAX({key}) AS high FROM {source}")
    first, last = (0, 0) if ends["low"] is None else (int(ends["low"]), int(ends["high"]) + 1)
    parts, begin, count = [(first, last)], None, 0
    while parts:
        low, high = parts.pop()
        found = _estimate(catalog, source, f"{key} >= {low} AND {key} < {high}")
        if high - low > 1 and found > rows:
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]
            continue
        if count and count + found > rows:  # small ones go together: keys have gaps
            yield begin, low
            begin, count = low, 0
        count += found
    yield begin, None


def condition_of(table: SnapshotTable, part: tuple[int | None, int | None]) -> str:
    """A part as SQL; empty: the whole table."""
    key, (low, high) = quoted(table.key[0]), part
    bounds = [f"{key} >= {low}"] * (low is not None) + [f"{key} < {high}"] * (high is not None)
    return " AND ".join(bounds)


def _estimate(catalog: Catalog, source: str, condition: str) -> int:
    found = catalog.rows(f"EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM {source} WHERE {condition}")
    return int(found[0]["rows"] or 0)
