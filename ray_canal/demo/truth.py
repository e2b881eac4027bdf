"""Comparing a replay of the demo's binlogs with what the server itself said.

A table's digest is SHA-256 over its rows in key order, each row as the JSON list of its values in
column-name order, in one form for values that drivers and Arrow type differently (`canonical`).
"""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]

KEYS = {
    "customers": ("id",),
    "items": ("id",),
    "orders": ("id",),
    "order_lines": ("order_id", "line_no"),
}
"""Primary keys of the shop's tables."""


def canonical(value: Any) -> Any:
    """One JSON form for a value: instants in UTC without zone, sets as MySQL prints them."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.timezone.utc).replace(tzinfo=None)
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return round(value / dt.timedelta(microseconds=1))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple | set):
        return ",".join(value)
    return value


def digest(table: str, rows: Iterable[Row], columns: Iterable[str]) -> str:
    """SHA-256 of a table's rows; a column that a row lacks counts as NULL."""
    key, names = KEYS[table], sorted(columns)
    total = hashlib.sha256()
    for row in sorted(rows, key=lambda r: tuple(r[name] for name in key)):
        line = json.dumps([canonical(row.get(name)) for name in names], ensure_ascii=False)
        total.update(line.encode() + b"\n")
    return total.hexdigest()


class ShopReplica:
    """The shop's tables, built by applying changes in order; counts what it applied."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[tuple[Any, ...], Row]] = {table: {} for table in KEYS}
        self.changes = {table: {"INSERT": 0, "UPDATE": 0, "DELETE": 0} for table in KEYS}

    def apply(self, table: str, event_type: str, before: Row | None, after: Row | None) -> None:
        """Apply one change. Raises KeyError: it changes a row that is not there."""
        rows, key = self.rows[table], KEYS[table]
        self.changes[table][event_type] += 1
        if before is not None:
            del rows[tuple(before[name] for name in key)]
        if after is not None:
            rows[tuple(after[name] for name in key)] = after

    def differences(self, expected: Mapping[str, Any]) -> list[str]:
        """Return what differs from `expected()`; empty when the replay is right."""
        found = []
        for table, truth in expected["tables"].items():
            rows = self.rows[table].values()
            mine = {
                "rows": len(rows),
                "changes": self.changes[table],
                "digest": digest(table, rows, truth["columns"]),
            }
            found += [
                f"{table}.{name}: replay {mine[name]}, server {truth[name]}"
                for name in mine
                if mine[name] != truth[name]
            ]
        return found
