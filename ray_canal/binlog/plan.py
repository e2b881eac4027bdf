"""Plans: how a table version's rows are read, one line of numbers per column for the row kernels.

Types and sizes come from the TABLE_MAP event, for the rows' bytes follow it; sign and character set
too where it has them (MySQL 8), else from the table's schema. TableMetaMismatch where the two
cannot be the same table; UnsupportedEvent, naming the column, for what is not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ray_canal.binlog.parsed import TableVersion
from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import CorruptEvent, TableMetaMismatch, UnsupportedEvent
from ray_canal.kernels.rows import wire
from ray_canal.model.arrays import Int64s
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types import mysql
from ray_canal.types.column_type import RowColumn
from ray_canal.types.registry import may_be, plan_line


@dataclass(frozen=True, slots=True, eq=False)
class DecodePlan:
    """Plan of a table: `lines` is int64[columns, wire.PLAN_FIELDS], of hidden columns, too."""

    lines: Int64s
    codes: tuple[int, ...]


_HIDDEN = ColumnMeta("DB_ROW_HASH", mysql.LONGLONG, "bigint unsigned", unsigned=True, visible=False)


@lru_cache(maxsize=2048)
def make_plan(version: TableVersion) -> DecodePlan:
    """The plan of a table version."""
    table_map, meta = version.table_map, version.meta
    hidden = (_HIDDEN,) * meta.hidden
    if len(meta.columns) + meta.hidden != len(table_map.types):
        raise TableMetaMismatch(
            f"{table_map.full_name}: the schema has {len(meta.columns) + meta.hidden} columns, "
            f"the TABLE_MAP {len(table_map.types)}"
        )
    lines = []
    for number, column in enumerate((*meta.columns, *hidden)):
        _check_type(table_map, number, column)
        try:
            lines.append(plan_line(_row_column(table_map, number, column)))
        except (UnsupportedEvent, CorruptEvent) as error:
            name = f"{table_map.full_name}.{column.name}"
            raise type(error)(f"column {name}: {error}") from None
    plan = np.zeros((len(lines), wire.PLAN_FIELDS), np.int64)
    plan[:, : wire.RUN] = np.reshape(lines, (len(lines), wire.RUN))
    note_runs(plan)
    return DecodePlan(plan, tuple(int(code) for code in plan[:, wire.CODE]))


def note_runs(plan: Int64s) -> None:
    """Fill RUN and RUN_BYTES."""
    run = size = 0
    for line in plan[::-1]:
        if line[wire.SIZE] < 0 or run == wire.RUN_MAX:
            run = size = 0
        if line[wire.SIZE] >= 0:
            run, size = run + 1, size + int(line[wire.SIZE])
            line[[wire.RUN, wire.RUN_BYTES]] = run, size


def _check_type(table_map: TableMap, number: int, column: ColumnMeta) -> None:
    if not may_be(table_map.types[number], column.type_code):
        raise TableMetaMismatch(
            f"{table_map.full_name}: column {number + 1} ({column.name}) is "
            f"{mysql.type_name(column.type_code)} in the schema, "
            f"{mysql.type_name(table_map.types[number])} in the TABLE_MAP"
        )


def _row_column(table_map: TableMap, number: int, column: ColumnMeta) -> RowColumn:
    return RowColumn(
        table_map.types[number],
        table_map.metadata[number],
        table_map.unsigned[number] if table_map.unsigned else column.unsigned,
        table_map.collations[number] if table_map.collations else 0,
        column,
    )
