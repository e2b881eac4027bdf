"""Dates that no calendar has (`0000-00-00`, `2026-02-31`): null in Arrow, or refused.

`irregular_dates` of a destination chooses. Entries keep the digits either way.
"""

from __future__ import annotations

from typing import Literal

from ray_canal.binlog.chunk import ColumnLayout, DecodedChunk, TableLayout
from ray_canal.errors import UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.model.arrays import Bools, Int64s

Irregular = Literal["null", "error"]

_DATES = (codes.DATE, codes.DATETIME, codes.TIMESTAMP)


def refuse_irregular(chunk: DecodedChunk, table: TableLayout, rows: Int64s) -> None:
    """UnsupportedEvent, with its place, if one of these rows of a table has an irregular value."""
    for side in (table.before, table.after):
        for column, layout in zip(table.meta.columns, side or (), strict=side is not None):
            if layout.code not in _DATES:
                continue
            found = rows[_irregular(chunk, layout, table.rows)[rows]]
            if found.size:
                owner = chunk.arena[table.row_event :][: 4 * table.rows].view("<i4")[found[0]]
                raise UnsupportedEvent(
                    f"{table.meta.full_name}.{column.name}: a date that no calendar has (zero, "
                    'partial, or a day too many); irregular_dates = "null" shows it as null in '
                    "Arrow, entries have its digits"
                ).at(chunk.layout.journal_name, int(chunk.events["position"][owner]))


def _irregular(chunk: DecodedChunk, layout: ColumnLayout, rows: int) -> Bools:
    narrow = layout.code == codes.DATE
    slots = chunk.arena[layout.values :][: rows * codes.WIDTH_BYTES[layout.code]]
    values = slots.view("<i4" if narrow else "<i8")
    null = codes.NULL_SLOT32 if narrow else codes.NULL_SLOT64
    end = codes.IRREGULAR_END32 if narrow else codes.IRREGULAR_END64
    found: Bools = (values > null) & (values < end)
    return found
