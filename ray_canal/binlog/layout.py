"""Laying out a decoded chunk's arena: which region begins where, every one at a multiple of 64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ray_canal.binlog.chunk import ALIGNMENT_BYTES, QUERY, ColumnLayout, TableLayout
from ray_canal.binlog.parsed import QueryRecord, TableVersion
from ray_canal.binlog.plan import Plan
from ray_canal.kernels import codes, rows, wire

Int64s = npt.NDArray[np.int64]


class ArenaSketch:
    """Hands out regions of an arena that does not exist yet."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0

    def take(self, size_bytes: int) -> int:
        """Offset of a new region."""
        offset = self.size_bytes
        self.size_bytes += -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return offset


def place_table(
    sketch: ArenaSketch, plan: Plan, shape: Int64s, sizes: Int64s, dest: Int64s
) -> None:
    """Give one table's columns their regions: `shape` is its line, `sizes` and `dest` its columns'.

    A side without rows gets none (and stays 0 in `dest`: the kernel does not touch it).
    """
    count = int(shape[rows.S_ROWS])
    shape[rows.S_ROW_EVENT] = sketch.take(4 * count)
    for side, filled in ((0, shape[rows.S_BEFORE]), (1, shape[rows.S_AFTER])):
        if not filled:
            continue
        base = side * wire.DEST_FIELDS
        for column, code in enumerate(plan.codes):
            line = dest[column]
            line[base + wire.VALIDITY] = sketch.take((count + 7) // 8)
            variable = code >= codes.FIRST_VARIABLE
            slots = count + 1 if variable else count
            line[base + wire.VALUES] = sketch.take(codes.WIDTH_BYTES[code] * slots)
            if variable:
                data_bytes = int(sizes[column, side])
                data = sketch.take(data_bytes)
                line[base + wire.DATA] = data
                line[base + wire.DATA_END] = data + data_bytes


def table_layout(version: TableVersion, plan: Plan, shape: Int64s, dest: Int64s) -> TableLayout:
    """The finished layout, after the kernel has filled the columns."""
    count = int(shape[rows.S_ROWS])

    def side(filled: int, base: int) -> tuple[ColumnLayout, ...] | None:
        if not filled:
            return None
        columns = []
        lines = dest[:, base : base + wire.DEST_FIELDS].tolist()
        for code, line in zip(plan.codes, lines, strict=True):
            validity, values, data, _, used, valid, _ = line
            if code < codes.FIRST_VARIABLE:
                data = -1
            columns.append(ColumnLayout(code, validity, values, data, used, count - valid))
        return tuple(columns[: len(version.meta.columns)])  # hidden ones end here

    before = side(int(shape[rows.S_BEFORE]), 0)
    after = side(int(shape[rows.S_AFTER]), wire.DEST_FIELDS)
    return TableLayout(version.meta, count, int(shape[rows.S_ROW_EVENT]), before, after)


def place_queries(
    sketch: ArenaSketch, queries: tuple[QueryRecord, ...]
) -> tuple[npt.NDArray[np.void], list[tuple[int, bytes]]]:
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
