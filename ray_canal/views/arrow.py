"""Render a decoded chunk as Arrow RecordBatches, one per table version, without copying columns.

Arrow arrays are views over the chunk's arena; only what is no column (positions, times, GTIDs per
row) and SET lists are made here, by vectors. Irregular temporal values (zero dates) are null in
Arrow; Canal's text has them (kernels/base/codes.py says how both are kept).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ray_canal.binlog.chunk import ChunkLayout, ColumnLayout, DecodedChunk, TableLayout
from ray_canal.errors import TableMetaMismatch, UnsupportedEvent
from ray_canal.filter import FieldFilter
from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import envelope as e
from ray_canal.model.arrays import Bools, Bytes, Int32s, Int64s
from ray_canal.model.log_context import NO_CONTEXT, LogContext
from ray_canal.model.table_meta import UNIQUE_KEY_NOTE, ColumnMeta, TableMeta
from ray_canal.types.registry import STORAGES, storage_code
from ray_canal.views.envelope import ENVELOPE, Envelopes
from ray_canal.views.envelope import load_kernels as load_envelope_kernels
from ray_canal.views.irregular import Irregular, refuse_irregular
from ray_canal.views.mysql_texts import fraction_notes
from ray_canal.views.plain_arrays import bools, strings
from ray_canal.views.presence import with_presence

_TEXT_BYTES_MAX = (1 << 31) - 1  # offsets are int32
_NULLS_MAX = 1 << 16  # rows; kept nulls are a megabyte or two at most
JSON_DIFF = pa.field("json_diff", pa.string())


def arrow_type(column: ColumnMeta, code: int) -> pa.DataType:
    """The Arrow type of a column with this storage code (docs/reference/types.md has the table)."""
    return STORAGES[code].arrow(pa, column)


def arrow_schema(meta: TableMeta) -> pa.Schema:
    """The schema that `batches` gives a table version, known before any row of it comes; where
    images lack columns, two more follow (views/presence.py).

    Raises UnsupportedEvent: a column type that is not decoded.
    """
    return _image(meta, tuple(storage_code(c) for c in meta.columns)).schema


def batches(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None = None,
    fields: FieldFilter | None = None,
    irregular: Irregular = "null",
    json_diff: bool = False,
    context: LogContext = NO_CONTEXT,
) -> Iterator[pa.RecordBatch]:
    """RecordBatches of the row events among entries [first, last), tables in order of the chunk.

    `mask` has one element for each entry of the chunk (None: all); `fields` leaves out columns of
    before and after; `context` is what lay before the chunk. Rows are in log order. Columns:
    event_type, timeline, journal_name, position (start of the event), row (ordinal in its event;
    for an event that was compressed, its offset in there added), execute_time, gtid, transaction
    (its GTID, else file:position of its begin), transaction_row (the row's number in it, from 0),
    before, after. Raises TableMetaMismatch: an ENUM or SET value for which the
    schema has no label; with `irregular` "error" UnsupportedEvent: a date that no calendar has.

    `json_diff` adds a last column of that name: what a partial update changed in JSON columns, as
    JSON text (docs/reference/types.md); null where the server wrote whole values, and where
    `fields` leaves out a JSON column of the table.

    Where images lack columns (binlog_row_image MINIMAL, NOBLOB), two more columns follow `after`,
    before_present and after_present: views/presence.py says what is in them.
    """
    events = chunk.events
    wanted = np.zeros(len(events), np.bool_)
    wanted[first:last] = True if mask is None else mask[first:last]
    spans = np.zeros((len(chunk.layout.tables), e.SPAN_FIELDS), np.int64)
    before = np.empty(len(events), np.int64)
    open_rows = context.open.rows if context.open else 0
    e.row_spans(read_only(events), wanted, open_rows, spans, before)
    envelopes: Envelopes | None = None
    for whole, span in zip(chunk.layout.tables, spans.tolist(), strict=True):
        rows, low, high, event, is_partial = span
        if not rows:
            continue
        row_event = _array(chunk, whole.row_event, whole.rows, np.int32)
        if envelopes is None:
            envelopes = Envelopes(chunk, context, before)
        table = _shown(whole, fields)
        if irregular == "error":
            refuse_irregular(chunk, table, low + np.flatnonzero(wanted[row_event[low:high]]))
        try:
            batch = _batch(chunk, table, row_event, low, high, envelopes)
        except TableMetaMismatch as error:
            raise error.at(chunk.layout.journal_name, int(events["position"][event])) from None
        if is_partial:
            batch = with_presence(batch, chunk, whole, row_event[low:high], low)
        if json_diff:
            batch = batch.append_column(JSON_DIFF, _diffs(chunk, table, low, high))
        is_whole = rows == high - low
        yield batch if is_whole else batch.filter(bools(wanted[row_event[low:high]]))


def load_kernels() -> None:
    """Load the machine code into this process before the first batches are asked for: that takes
    half a second."""
    nothing = DecodedChunk(ChunkLayout("", 0, 0, 0, 0, 0, 0, ()), np.zeros(0, np.uint8))
    list(batches(nothing, 0, 0))
    load_envelope_kernels()


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
    return table._replace(
        meta=dataclasses.replace(meta, columns=columns),
        before=before,
        after=after,
        json_diff=table.json_diff if is_whole else None,  # it must not tell what is left out
    )


def _diffs(chunk: DecodedChunk, table: TableLayout, low: int, high: int) -> pa.Array:
    place, rows = table.json_diff, table.rows
    if place is None:
        return pa.nulls(high - low, pa.string())
    arena = pa.py_buffer(chunk.arena)
    buffers = [
        arena.slice(place.validity, (rows + 7) // 8),
        arena.slice(place.values, 4 * (rows + 1)),
        arena.slice(place.data, place.data_bytes),
    ]
    return pa.Array.from_buffers(pa.string(), rows, buffers).slice(low, high - low)


def _batch(
    chunk: DecodedChunk,
    table: TableLayout,
    row_event: Int32s,
    low: int,
    high: int,
    envelopes: Envelopes,
) -> pa.RecordBatch:
    """Rows [low, high) of a table."""
    layouts = table.before or table.after or ()
    image = _image(table.meta, tuple(layout.code for layout in layouts))
    envelope, bitmaps, absent = envelopes.columns(row_event[low:high], low)
    arena = pa.py_buffer(chunk.arena)
    sides = [
        _side(arena, table, image, side, (low, high), bitmap, int(missing))
        for side, bitmap, missing in zip(
            (table.before, table.after), bitmaps, absent[e.NO_BEFORE :], strict=True
        )
    ]
    return pa.RecordBatch.from_arrays([*envelope, *sides], schema=image.schema)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Image:
    """The Arrow types of a table version's columns, of an image, and of its batches."""

    kinds: tuple[pa.DataType, ...]
    image: pa.StructType
    schema: pa.Schema


@lru_cache(maxsize=512)
def _image(meta: TableMeta, storage: tuple[int, ...]) -> _Image:
    kinds = tuple(arrow_type(c, code) for c, code in zip(meta.columns, storage, strict=True))
    image = pa.struct([_field(c, kind) for c, kind in zip(meta.columns, kinds, strict=True)])
    keys = [column.name for column in meta.columns if column.is_key]
    metadata = {
        b"canal.schema": meta.schema.encode(),
        b"canal.table": meta.table.encode(),
        b"canal.key": json.dumps(keys).encode(),
    }
    if meta.unique_key:
        metadata[UNIQUE_KEY_NOTE] = json.dumps(meta.unique_key).encode()
    fields = [*ENVELOPE, pa.field("before", image), pa.field("after", image)]
    return _Image(kinds, image, pa.schema(fields, metadata=metadata))


def _field(column: ColumnMeta, kind: pa.DataType) -> pa.Field:
    """Return a column's field; of times with the declared fractional digits, which MySQL's text has
    and Arrow's type does not tell."""
    has_fraction = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    notes = fraction_notes(column.fraction) if has_fraction else None
    return pa.field(column.name, kind, metadata=notes)


def _no_images(image: _Image, rows: int) -> pa.Array:
    """Return a side that no row has."""
    if rows > _NULLS_MAX:
        return pa.nulls(rows, image.image)
    return _nulls(image, 1 << rows.bit_length()).slice(0, rows)


@lru_cache(maxsize=64)
def _nulls(image: _Image, rows: int) -> pa.Array:
    """Return NULLs, kept, as a null takes the room of a value: for sixty columns, half a megabyte
    to zero for each batch of inserts."""
    return pa.nulls(rows, image.image)


def _side(
    arena: pa.Buffer,
    table: TableLayout,
    image: _Image,
    layouts: tuple[ColumnLayout, ...] | None,
    rows: tuple[int, int],
    bitmap: pa.Buffer,
    absent: int,
) -> pa.Array:
    """The before or after struct of rows [low, high); null where a row has no such image."""
    low, high = rows
    if layouts is None or not image.kinds:
        return _no_images(image, high - low)
    columns = zip(table.meta.columns, layouts, image.kinds, strict=True)
    arrays = [_column(arena, table, *column) for column in columns]
    if low or high < table.rows:
        arrays = [array.slice(low, high - low) for array in arrays]
    bits = [bitmap if absent else None]
    return pa.Array.from_buffers(image.image, high - low, bits, absent, children=arrays)


def _column(
    arena: pa.Buffer,
    table: TableLayout,
    column: ColumnMeta,
    layout: ColumnLayout,
    kind: pa.DataType,
) -> pa.Array:
    """One whole column over the arena."""
    rows, code = table.rows, layout.code
    validity = arena.slice(layout.validity, (rows + 7) // 8)
    if code >= codes.FIRST_VARIABLE:
        offsets = arena.slice(layout.values, (rows + 1) * 4)
        data = arena.slice(layout.data, layout.data_bytes)
        if code == codes.VECTOR:
            elements = pa.Array.from_buffers(pa.float32(), layout.data_bytes // 4, [None, data])
            starts = np.frombuffer(offsets, np.int32) // 4
            parts = [validity, pa.py_buffer(starts)]
            return pa.Array.from_buffers(kind, rows, parts, children=[elements])
        return pa.Array.from_buffers(kind, rows, [validity, offsets, data], layout.null_count)
    if code == codes.SET:
        return _set_lists(arena, table, column, layout)
    parts = [validity, arena.slice(layout.values, rows * codes.WIDTH_BYTES[code])]
    if code == codes.ENUM:
        index = pa.Array.from_buffers(pa.uint16(), rows, parts)
        try:
            return pa.DictionaryArray.from_arrays(index, strings(("", *column.labels)))
        except pa.ArrowIndexError as error:
            raise _unlabelled(table.meta, column, str(error)) from None
    return pa.Array.from_buffers(kind, rows, parts, layout.null_count)


def _unlabelled(meta: TableMeta, column: ColumnMeta, found: str) -> TableMetaMismatch:
    return TableMetaMismatch(
        f"{meta.full_name}.{column.name}: {found}, but the schema knows {len(column.labels)} labels"
    )


def _set_lists(
    arena: pa.Buffer, table: TableLayout, column: ColumnMeta, layout: ColumnLayout
) -> pa.Array:
    """SET bit masks as lists of labels."""
    rows = table.rows
    label_ends, texts = _label_texts(column.labels)
    bits = read_only(np.frombuffer(arena, np.uint8))
    place = bits, layout.validity, layout.values
    count, size, bad_row = e.count_members(*place, rows, label_ends)
    if bad_row >= 0:
        slots = np.frombuffer(arena.slice(layout.values, 8 * rows), np.uint64)
        raise _unlabelled(table.meta, column, f"bit mask {int(slots[bad_row])}")
    if size > _TEXT_BYTES_MAX:
        raise UnsupportedEvent(
            f"{table.meta.full_name}.{column.name}: over 2 GiB of SET labels in a chunk; set a "
            "smaller chunk_bytes"
        )
    ends, offsets = np.empty(rows + 1, np.int32), np.empty(count + 1, np.int32)
    out = np.empty(size + e.LABEL_SLACK_BYTES, np.uint8)
    e.list_members(*place, label_ends, texts, ends, offsets, out)
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(out).slice(0, size)]
    values = pa.Array.from_buffers(pa.string(), count, parts)
    parts = [arena.slice(layout.validity, (rows + 7) // 8), pa.py_buffer(ends)]
    return pa.Array.from_buffers(
        pa.list_(pa.string()), rows, parts, layout.null_count, children=[values]
    )


@lru_cache(maxsize=1024)
def _label_texts(labels: tuple[str, ...]) -> tuple[Int64s, Bytes]:
    """Return the end of each label in the text of all, and that text."""
    texts = [label.encode() for label in labels]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    slack = bytes(e.LABEL_SLACK_BYTES)
    return read_only(ends), read_only(np.frombuffer(b"".join(texts) + slack, np.uint8))


def _array(chunk: DecodedChunk, offset: int, count: int, dtype: Any) -> npt.NDArray[Any]:
    size = count * np.dtype(dtype).itemsize
    return chunk.arena[offset : offset + size].view(dtype)
