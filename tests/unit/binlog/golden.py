"""Golden binlogs as chunks, decoded columns as plain Python values: for tests of decoding only."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ray_canal.binlog.assemble import assemble, walk
from ray_canal.binlog.chunk import ChunkHead, ChunkInfo, DecodedChunk, RawChunk, TableLayout
from ray_canal.binlog.decode import decode
from ray_canal.binlog.events import (
    HEADER_BYTES,
    MAGIC,
    EventHeader,
    parse_format_description,
    parse_header,
)
from ray_canal.binlog.parsed import QueryEvent, QueryRecord
from ray_canal.binlog.table_map import TableMap, table_meta_from_metadata
from ray_canal.errors import CorruptEvent
from ray_canal.kernels.base import codes
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from tests.golden import GOLDEN

needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden binlogs here")


def read_events(path: str | Path) -> Iterator[tuple[int, EventHeader, bytes]]:
    """Yield (offset, header, whole event) of a binlog file, unchecked."""
    data = Path(path).read_bytes()
    at = len(MAGIC)
    while at < len(data):
        header = parse_header(data[at : at + HEADER_BYTES])
        if header.length < HEADER_BYTES or at + header.length > len(data):
            raise CorruptEvent(f"event length {header.length} is wrong").at(str(path), at)
        yield at, header, data[at : at + header.length]
        at += header.length


def golden_chunk(name: str) -> RawChunk:
    """A whole binlog file as one chunk; `name` like `mysql97/mysql_dml`."""
    path = GOLDEN / f"{name}.binlog"
    data = path.read_bytes()
    described = parse_format_description(next(iter(read_events(path)))[2])
    head = ChunkHead(
        0,
        path.name,
        len(MAGIC),
        len(data),
        has_checksum=described.has_checksum,
        flavor=described.flavor,
        server_version=described.server_version,
        post_header_bytes=described.post_header_bytes,
    )
    return RawChunk(head, np.frombuffer(data, np.uint8)[len(MAGIC) :])


def resolve(table_map: TableMap, position: int = 0) -> TableMeta:
    """From the row metadata; without it, numbered columns, signed, in utf8mb4."""
    meta = table_meta_from_metadata(table_map)
    if meta:
        return meta
    columns = (ColumnMeta(f"c{n}", t, "", charset="utf8mb4") for n, t in enumerate(table_map.types))
    return TableMeta(table_map.schema, table_map.table, tuple(columns))


def classify(event: QueryEvent) -> list[QueryRecord]:
    return [QueryRecord(7, event.schema, "", event.sql, event.schema, False)]


def decode_chunk(raw: RawChunk) -> tuple[ChunkInfo, DecodedChunk]:
    return decode(raw, assemble(raw, walk(raw), resolve, classify))


_NUMPY = {
    codes.I8: "i1", codes.U8: "u1", codes.I16: "i2", codes.U16: "u2", codes.I24: "i4",
    codes.U24: "u4", codes.I32: "i4", codes.U32: "u4", codes.I64: "i8", codes.U64: "u8",
    codes.F32: "f4", codes.F64: "f8", codes.YEAR: "u2", codes.BIT: "u8", codes.SET: "u8",
    codes.ENUM: "u2", codes.DATE: "i4", codes.DATETIME: "i8", codes.TIMESTAMP: "i8",
    codes.TIME: "i8",
}  # fmt: skip


def values(chunk: DecodedChunk, table: TableLayout, side: str) -> list[dict[str, object]]:
    """Rows of one side: slot values by column name; None for NULL, ("irregular", digits) where
    so."""
    columns = getattr(table, side)
    names = [c.name for c in table.meta.columns]
    lists = [
        _column(chunk.arena, c, table.rows, m.scale)
        for c, m in zip(columns, table.meta.columns, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def _column(arena: np.ndarray, column, rows: int, scale: int) -> list[object]:
    bits = np.unpackbits(
        arena[column.validity : column.validity + (rows + 7) // 8], bitorder="little"
    )
    valid = bits[:rows].astype(bool)
    assert column.null_count == rows - valid.sum()
    width = codes.WIDTH_BYTES[column.code]
    if column.code >= codes.FIRST_VARIABLE:
        offsets = arena[column.values : column.values + 4 * (rows + 1)].view("<i4")
        assert offsets[0] == 0
        assert offsets[-1] == column.data_bytes
        data = arena[column.data : column.data + column.data_bytes].tobytes()
        cells: list[object] = [data[a:b] for a, b in pairwise(offsets)]
        if column.code in (codes.TEXT, codes.JSON):
            cells = [c.decode() for c in cells]  # type: ignore[attr-defined]
    elif column.code in (codes.DEC128, codes.DEC256):
        raw = arena[column.values : column.values + width * rows].tobytes()
        with decimal.localcontext(decimal.Context(prec=80)):
            cells = [
                decimal.Decimal(
                    int.from_bytes(raw[k * width : (k + 1) * width], "little", signed=True)
                ).scaleb(-scale)
                for k in range(rows)
            ]
    else:
        cells = (
            arena[column.values : column.values + width * rows]
            .view("<" + _NUMPY[column.code])
            .tolist()
        )
    return [
        cell if ok else _invalid(column.code, cell) for cell, ok in zip(cells, valid, strict=True)
    ]


def _invalid(code: int, cell: object) -> object:
    if code == codes.DATE:
        return None if cell == codes.NULL_SLOT32 else ("irregular", cell - codes.IRREGULAR32)  # type: ignore[operator]
    if code in (codes.DATETIME, codes.TIMESTAMP, codes.TIME):
        return None if cell == codes.NULL_SLOT64 else ("irregular", cell - codes.IRREGULAR64)  # type: ignore[operator]
    return None
