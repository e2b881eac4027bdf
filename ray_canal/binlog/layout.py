"""Lay out a decoded chunk's arena: the regions' offsets, each a multiple of 64."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import QUERY, ColumnLayout, TableLayout
from ray_canal.binlog.parsed import QueryRecord
from ray_canal.binlog.plan import DecodePlan
from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import rows, wire
from ray_canal.model.arrays import Int64s, Records
from ray_canal.model.table_meta import TableMeta


def aligned(size_bytes: int) -> int:
    """Round a size up to the next region."""
    return -(-size_bytes // codes.ALIGNMENT_BYTES) * codes.ALIGNMENT_BYTES


class ArenaSketch:
    """An arena that is not allocated yet, of which regions are taken."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0

    def take(self, size_bytes: int) -> int:
        """Offset of a new region."""
        offset = self.size_bytes
        self.size_bytes += aligned(size_bytes)
        return offset


def table_layout(meta: TableMeta, plan: DecodePlan, shape: Int64s, dest: Int64s) -> TableLayout:
    """Return a table's finished layout, after the kernel has filled the columns: `shape` is the
    table's line, `dest` its columns'."""
    count, row_event = int(shape[rows.S_ROWS]), int(shape[rows.S_ROW_EVENT])
    shown = len(meta.columns)  # hidden ones are behind them

    def side(filled: int, base: int) -> tuple[ColumnLayout, ...] | None:
        if not filled:
            return None
        lines = zip(plan.codes, dest[:shown, base : base + wire.DEST_FIELDS].tolist(), strict=False)
        return tuple(
            [
                ColumnLayout(
                    code,
                    validity,
                    values,
                    data if code >= codes.FIRST_VARIABLE else -1,
                    used,
                    count - valid,
                )
                for code, (validity, values, data, _, used, valid, _) in lines
            ]
        )

    before = side(int(shape[rows.S_BEFORE]), 0)
    after = side(int(shape[rows.S_AFTER]), wire.DEST_FIELDS)
    return TableLayout(meta, count, row_event, before, after)


def place_queries(
    sketch: ArenaSketch, queries: tuple[QueryRecord, ...]
) -> tuple[Records, list[tuple[int, bytes]]]:
    """QUERY records, and the texts that go to their offsets."""
    records = np.zeros(len(queries), QUERY)
    texts: list[tuple[int, bytes]] = []
    for record, query in zip(records, queries, strict=True):
        record["is_ddl"] = query.is_ddl
        for name in ("schema", "table", "sql", "ddl_schema"):
            value: str | None = getattr(query, name)
            text = (value or "").encode("utf-8", "replace")
            record[name + "_bytes"] = -1 if value is None else len(text)
            if text:
                record[name] = sketch.take(len(text))
                texts.append((int(record[name]), text))
    return records, texts
