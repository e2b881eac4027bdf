"""Cutting a table into ranges of its key, where that is one integer column.

The keys are halved until the optimizer's estimate of a part is small enough: it looks into the
index, and reads no rows. Parts are made as they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ray_canal.snapshot.columns import quoted
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.source.catalog import Catalog
from ray_canal.types.numeric import INTEGERS

Ask = Callable[[str], list[dict[str, Any]]]
"""Runs a query and returns its rows."""


def has_integer_key(table: SnapshotTable) -> bool:
    """Return whether the table's key is one integer column."""
    if len(table.key) != 1:
        return False
    kinds = {column.name: column.type_code for column in table.meta.columns}
    return kinds.get(table.key[0]) in INTEGERS


def from_clause(table: SnapshotTable) -> str:
    """Return the table as FROM has it: read by its key where it has one."""
    name = quoted(table.meta.schema, table.meta.table)
    return f"{name} FORCE INDEX ({quoted(table.index)})" if table.index else name


def halved_keys(
    ask: Ask, table: SnapshotTable, low: int, high: int, rows: Callable[[], int]
) -> Iterator[tuple[int, int]]:
    """Cut the integer keys from `low` to `high` into parts of at most about `rows()` rows each;
    yield of each, in order, its last key and its estimated rows."""
    parts, count = [(low, high)], 0
    while parts:
        first, last = parts.pop()
        found, most = _estimate(ask, table, first, last), rows()
        if first < last and found > most:
            middle = (first + last) // 2
            parts += [(middle + 1, last), (first, middle)]
            continue
        if count and count + found > most:  # small ones go together: keys have gaps
            yield first - 1, count
            count = 0
        count += found
    yield high, count


def _estimate(ask: Ask, table: SnapshotTable, first: int, last: int) -> int:
    """Return about how many rows have a key from `first` to `last`."""
    key = quoted(table.key[0])
    source = quoted(table.meta.schema, table.meta.table)  # a forced index would not be looked into
    [found, *_] = ask(
        f"EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM {source} WHERE {key} >= {first} AND "
        f"{key} <= {last}"
    )
    return int(found["rows"] or 0)


def integer_ranges(
    catalog: Catalog, table: SnapshotTable, rows: int
) -> Iterator[tuple[int | None, int | None]]:
    """Cut a table into parts of about `rows` rows; yield of each, in order, its first key and the
    first key after it, None where a part has no end. Together they are all keys that there can
    be."""
    key, source = quoted(table.key[0]), quoted(table.meta.schema, table.meta.table)
    [ends] = catalog.rows(f"SELECT MIN({key}) AS low, MAX({key}) AS high FROM {source}")
    low, high = (0, 0) if ends["low"] is None else (int(ends["low"]), int(ends["high"]))
    begin = None
    for last, _ in halved_keys(catalog.rows, table, low, high, lambda: rows):
        end = None if last == high else last + 1
        yield begin, end
        begin = end


def condition_of(table: SnapshotTable, part: tuple[int | None, int | None]) -> str:
    """Return a part as a condition in SQL; empty: the whole table."""
    key, (low, high) = quoted(table.key[0]), part
    bounds = [f"{key} >= {low}"] * (low is not None) + [f"{key} < {high}"] * (high is not None)
    return " AND ".join(bounds)
