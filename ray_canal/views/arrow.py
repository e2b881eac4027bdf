"""The Arrow view: a decoded chunk as RecordBatches, one per table version, without copying columns.

Arrow arrays are views over the chunk's arena; only what is no column (positions, times, GTIDs per
row) and SET lists are made here, by vectors. Irregular temporal values (zero dates) are null in
Arrow; Canal's text has them (kernels/codes.py says how both are kept).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ray_canal.binlog.chunk import (
    GTID,
    ColumnLayout,
    DecodedChunk,
    TableLayout,
)
from ray_canal.errors import TableMetaMismatch
from ray_canal.filter import FieldFilter
from ray_canal.kernels import codes
from ray_canal.kernels.gtid_text import GTID_TEXT_BYTES_MAX, gtid_texts
from ray_canal.protocol.table_meta import ColumnMeta, TableMeta
from ray_canal.views.irregular import Irregular, refuse_irregular
from ray_canal.views.sql_types import storage_code

EVENT_TYPES = ("INSERT", "UPDATE", "DELETE")
DELETE, UPDATE = 3, 2

_PRIMITIVES = {
    codes.I8: pa.int8(), codes.U8: pa.uint8(), codes.I16: pa.int16(), codes.U16: pa.uint16(),
    codes.I24: pa.int32(), codes.U24: pa.uint32(), codes.I32: pa.int32(), codes.U32: pa.uint32(),
    codes.I64: pa.int64(), codes.U64: pa.uint64(), codes.F32: pa.float32(),
    codes.F64: pa.float64(), codes.YEAR: pa.uint16(), codes.BIT: pa.uint64(),
    codes.DATE: pa.date32(), codes.DATETIME: pa.timestamp("us"),
    codes.TIMESTAMP: pa.timestamp("us", "UTC"), codes.TIME: pa.duration("us"),
    codes.TEXT: pa.string(), codes.JSON: pa.string(), codes.BYTES: pa.binary(),
    codes.GEOMETRY: pa.binary(), codes.VECTOR: pa.list_(pa.float32()),
}  # fmt: skip

_GTID_OFFSETS: dict[str, int] = {name: at for name, (_, at, *_) in (GTID.fields or {}).items()}
_GTID_FIELDS = np.array(
    [_GTID_OFFSETS[n] for n in ("sid", "gno", "domain", "server_id", "flavor", "tag")]
    + [GTID["tag"].itemsize]
)
"""What kernels/gtid_text.py needs to know of a GTID record."""

_ENVELOPE = [
    pa.field("event_type", pa.dictionary(pa.int8(), pa.string())),
    pa.field("journal_name", pa.dictionary(pa.int8(), pa.string())),
    pa.field("position", pa.int64()),
    pa.field("row", pa.int64()),
    pa.field("execute_time", pa.timestamp("us", "UTC")),
    pa.field("gtid", pa.dictionary(pa.int32(), pa.string())),
]

_JSON_DIFF = pa.field("json_diff", pa.string())


def arrow_type(column: ColumnMeta, code: int) -> pa.DataType:
    """The Arrow type of a column with this storage code (docs/types.md has the table)."""
    if code == codes.DEC128:
        return pa.decimal128(column.precision, column.scale)
    if code == codes.DEC256:
        return pa.decimal256(column.precision, column.scale)
    if code == codes.ENUM:
        return pa.dictionary(pa.uint16(), pa.string())
    if code == codes.SET:
        return pa.list_(pa.string())
    return _PRIMITIVES[code]


def arrow_schema(meta: TableMeta) -> pa.Schema:
    """The schema that `batches` gives a table version, known before any row of it comes.

    Raises UnsupportedEvent: a column type that is not decoded.
    """
    image = pa.struct([pa.field(c.name, arrow_type(c, storage_code(c))) for c in meta.columns])
    return _schema(meta, image, image)


def batches(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: npt.NDArray[np.bool_] | None = None,
    fields: FieldFilter | None = None,
    irregular: Irregular = "null",
    json_diff: bool = False,
) -> Iterator[pa.RecordBatch]:
    """RecordBatches of the row events among entries [first, last), tables in order of the chunk.

    `mask` has one element for each entry of the chunk (None: all); `fields` leaves out columns of
    before and after. Rows are in log order. Columns:
    event_type, journal_name, position (start of the event), row (ordinal in its event; for an event
    that was compressed, its offset in there added),
    execute_time, gtid, before, after. Raises TableMetaMismatch: an ENUM or SET value for which the
    schema has no label; with `irregular` "error" UnsupportedEvent: a date that no calendar has.

    `json_diff` adds a last column of that name: what a partial update changed in JSON columns, as
    JSON text (docs/types.md); null where the server wrote whole values, and where `fields` leaves
    out a JSON column of the table.
    """
    events = chunk.events
    wanted = np.zeros(len(events), np.bool_)
    wanted[first:last] = True if mask is None else mask[first:last]
    wanted &= events["rows"] > 0
    gtid_texts: pa.Array | None = None
    for number in np.unique(events["table"][wanted]):
        table = chunk.layout.tables[int(number)]
        row_event = _array(chunk, table.row_event, table.rows, np.int32)
        chosen = np.flatnonzero(wanted & (events["table"] == number))
        low, high = (
            int(events["row"][chosen[0]]),
            int(events["row"][chosen[-1]] + events["rows"][chosen[-1]]),
        )
        if gtid_texts is None:
            gtid_texts = _gtid_texts(chunk)
        table = _shown(table, fields)
        if irregular == "error":
            refuse_irregular(chunk, table, low + np.flatnonzero(wanted[row_event[low:high]]))
        try:
            batch = _batch(chunk, table, row_event, low, high, gtid_texts)
        except TableMetaMismatch as error:
            raise error.at(chunk.layout.journal_name, int(events["position"][chosen[0]])) from None
        if json_diff:
            batch = batch.append_column(_JSON_DIFF, _diffs(chunk, table, low, high))
        keep = wanted[row_event[low:high]]
        yield batch if keep.all() else batch.filter(pa.array(keep))


def _shown(table: TableLayout, fields: FieldFilter | None) -> TableLayout:
    """The table without the columns that the filter leaves out."""
    meta = table.meta
    shown = [not fields or fields.admits(meta.schema, meta.table, c.name) for c in meta.columns]
    if all(shown):
        return table
    sides = (
        None if side is None else tuple(compress(side, shown))
        for side in (table.before, table.after)
    )
    columns = tuple(compress(meta.columns, shown))
    before, after = sides
    layouts = before or after or ()
    all_json = sum(layout.code == codes.JSON for layout in table.before or table.after or ())
    is_whole = sum(layout.code == codes.JSON for layout in layouts) == all_json
    return dataclasses.replace(
        table,
        meta=dataclasses.replace(meta, columns=columns),
        before=before,
        after=after,
        json_diff=table.json_diff if is_whole else None,  # it must not tell what is left out
    )


def _diffs(chunk: DecodedChunk, table: TableLayout, low: int, high: int) -> pa.Array:
    place, rows = table.json_diff, table.rows
    if place is None:
        return pa.nulls(high - low, pa.string())
    buffers = [
        _buffer(chunk, place.validity, (rows + 7) // 8),
        _buffer(chunk, place.values, 4 * (rows + 1)),
        _buffer(chunk, place.data, place.data_bytes),
    ]
    return pa.Array.from_buffers(pa.string(), rows, buffers).slice(low, high - low)


def _batch(
    chunk: DecodedChunk,
    table: TableLayout,
    row_event: npt.NDArray[np.int32],
    low: int,
    high: int,
    gtid_texts: pa.Array,
) -> pa.RecordBatch:
    """Rows [low, high) of a table."""
    which = row_event[low:high]
    events = chunk.events
    kinds = events["event_type"][which]
    sides = []
    for layout, missing in ((table.before, 1), (table.after, DELETE)):
        absent = kinds == missing
        sides.append(_side(chunk, table, layout, low, high, absent))
    arrays = [*_envelope(chunk, which, low, gtid_texts), *sides]
    return pa.RecordBatch.from_arrays(
        arrays, schema=_schema(table.meta, sides[0].type, sides[1].type)
    )


def _schema(meta: TableMeta, before: pa.DataType, after: pa.DataType) -> pa.Schema:
    keys = [column.name for column in meta.columns if column.is_key]
    fields = [
        *_ENVELOPE,
        pa.field("before", before),
        pa.field("after", after),
    ]
    return pa.schema(
        fields,
        metadata={
            b"canal.schema": meta.schema.encode(),
            b"canal.table": meta.table.encode(),
            b"canal.key": json.dumps(keys).encode(),
        },
    )


def _envelope(
    chunk: DecodedChunk, which: npt.NDArray[np.int32], low: int, gtid_texts: pa.Array
) -> list[pa.Array]:
    events, gtids = chunk.events, chunk.gtids
    kinds = (events["event_type"][which] - 1).astype(np.int8)
    time_us = events["timestamp"][which].astype(np.int64) * 1_000_000
    number = events["gtid"][which]
    named = number >= 0
    if len(gtids):
        commit_us = gtids["commit_us"][np.maximum(number, 0)]
        time_us = np.where(named & (commit_us > 0), commit_us, time_us)
        named = named & gtids["flavor"][np.maximum(number, 0)].astype(np.bool_)
    # Unique among the rows at one position: a row takes a byte at least.
    ordinal = events["inner"][which] + (low + np.arange(len(which)) - events["row"][which])
    return [
        pa.DictionaryArray.from_arrays(pa.array(kinds), pa.array(EVENT_TYPES)),
        pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(which), np.int8)), pa.array([chunk.layout.journal_name])
        ),
        pa.array(events["position"][which]),
        pa.array(ordinal),
        pa.array(time_us).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        pa.DictionaryArray.from_arrays(
            pa.array(np.maximum(number, 0).astype(np.int32), mask=~named), gtid_texts
        ),
    ]


def _gtid_texts(chunk: DecodedChunk) -> pa.Array:
    """The chunk's GTIDs as text, by index."""
    gtids = np.ascontiguousarray(chunk.gtids)
    records = gtids.view(np.uint8).reshape(-1)
    records.flags.writeable = False
    offsets = np.zeros(4 * (len(gtids) + 1), np.uint8)
    text = np.empty(GTID_TEXT_BYTES_MAX * (len(gtids) + 1), np.uint8)
    used = gtid_texts(records, GTID.itemsize, _GTID_FIELDS, offsets, text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text[:used])]
    return pa.Array.from_buffers(pa.string(), len(gtids), buffers)


def _side(
    chunk: DecodedChunk,
    table: TableLayout,
    layouts: tuple[ColumnLayout, ...] | None,
    low: int,
    high: int,
    absent: npt.NDArray[np.bool_],
) -> pa.Array:
    """The before or after struct of rows [low, high); null where a row has no such image."""
    columns = table.meta.columns
    other = layouts or table.before or table.after or ()
    types = [arrow_type(c, layout.code) for c, layout in zip(columns, other, strict=True)]
    fields = [pa.field(c.name, t) for c, t in zip(columns, types, strict=True)]
    if layouts is None or not columns:
        return pa.nulls(high - low, pa.struct(fields))
    arrays = [
        _column(chunk, table, column, layout, kind).slice(low, high - low)
        for column, layout, kind in zip(columns, layouts, types, strict=True)
    ]
    valid = None if not absent.any() else pa.array(absent)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=valid)


def _column(
    chunk: DecodedChunk,
    table: TableLayout,
    column: ColumnMeta,
    layout: ColumnLayout,
    kind: pa.DataType,
) -> pa.Array:
    """One whole column over the arena."""
    rows = table.rows
    validity = _buffer(chunk, layout.validity, (rows + 7) // 8)
    width = codes.WIDTH_BYTES[layout.code]
    if layout.code >= codes.FIRST_VARIABLE:
        offsets = _buffer(chunk, layout.values, (rows + 1) * 4)
        data = _buffer(chunk, layout.data, layout.data_bytes)
        if layout.code == codes.VECTOR:
            elements = pa.Array.from_buffers(pa.float32(), layout.data_bytes // 4, [None, data])
            starts = np.frombuffer(offsets, np.int32) // 4
            parts = [validity, pa.py_buffer(starts)]
            return pa.Array.from_buffers(kind, rows, parts, children=[elements])
        return pa.Array.from_buffers(kind, rows, [validity, offsets, data])
    values = _buffer(chunk, layout.values, rows * width)
    if layout.code == codes.ENUM:
        index = pa.Array.from_buffers(pa.uint16(), rows, [validity, values])
        try:
            return pa.DictionaryArray.from_arrays(index, pa.array(["", *column.labels]))
        except pa.ArrowIndexError as error:
            raise _unlabelled(table.meta, column, str(error)) from None
    if layout.code == codes.SET:
        masks = pa.Array.from_buffers(pa.uint64(), rows, [validity, values])
        bits = masks.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)
        if len(column.labels) < 64 and (bits >> np.uint64(len(column.labels))).any():
            raise _unlabelled(table.meta, column, f"bit mask {int(bits.max())}")
        return _set_lists(bits, masks.is_null(), column.labels)
    return pa.Array.from_buffers(kind, rows, [validity, values])


def _unlabelled(meta: TableMeta, column: ColumnMeta, found: str) -> TableMetaMismatch:
    return TableMetaMismatch(
        f"{meta.full_name}.{column.name}: {found}, but the schema knows {len(column.labels)} labels"
    )


def _set_lists(bits: npt.NDArray[np.uint64], null: pa.Array, labels: tuple[str, ...]) -> pa.Array:
    """SET bit masks as lists of labels."""
    member = (bits[:, None] >> np.arange(len(labels), dtype=np.uint64)) & np.uint64(1)
    row, label = np.nonzero(member)
    offsets = np.zeros(len(bits) + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=len(bits)), out=offsets[1:])
    values = pa.array(labels, pa.string()).take(pa.array(label))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=null)


def _buffer(chunk: DecodedChunk, offset: int, size: int) -> pa.Buffer:
    return pa.py_buffer(chunk.arena[offset : offset + size])


def _array(chunk: DecodedChunk, offset: int, count: int, dtype: Any) -> npt.NDArray[Any]:
    size = count * np.dtype(dtype).itemsize
    return chunk.arena[offset : offset + size].view(dtype)
