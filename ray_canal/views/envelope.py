"""Make the columns that every Arrow batch has next to its table's: what each change is, its place
in the log, its transaction."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import ChunkLayout, DecodedChunk
from ray_canal.binlog.layout import aligned
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import envelope as e
from ray_canal.kernels.render import transactions as t
from ray_canal.kernels.render.gtid_text import GTID_TEXT_BYTES_MAX, gtid_texts
from ray_canal.model.arrays import Int32s, Int64s
from ray_canal.model.log_context import NO_CONTEXT, LogContext
from ray_canal.model.table_event import ERASE, RENAME, STATEMENT, TRUNCATE
from ray_canal.views import plain_arrays

EVENT_TYPES = ("INSERT", "UPDATE", "DELETE", TRUNCATE, ERASE, RENAME, STATEMENT, "READ")
"""Operations of rows, of whole tables (views/table_events.py), of rows that a snapshot has read."""

_INSTANT = pa.timestamp("us", "UTC")
_NAMES = pa.dictionary(pa.int32(), pa.string())
ENVELOPE = [
    pa.field("event_type", pa.dictionary(pa.int8(), pa.string())),
    pa.field("timeline", pa.int64()),
    pa.field("journal_name", pa.dictionary(pa.int8(), pa.string())),
    pa.field("position", pa.int64()),
    pa.field("row", pa.int64()),
    pa.field("execute_time", _INSTANT),
    pa.field("gtid", _NAMES),
    pa.field("transaction", _NAMES),
    pa.field("transaction_row", pa.int64()),
]

_ROWS_KEPT = 1 << 17  # of a number in every row: 1 MiB


class ChunkTransactions(NamedTuple):
    """A chunk's transactions: `numbers` has that of each event, `found` a line for each
    (kernels/render/transactions.py)."""

    numbers: Int32s
    found: Int64s


def transactions_of(chunk: DecodedChunk, context: LogContext) -> ChunkTransactions:
    """Return a chunk's transactions, in log order."""
    events = chunk.events
    numbers = np.empty(len(events), np.int32)
    found = np.empty((len(events), t.TRANSACTION_FIELDS), np.int64)
    begin, rows = (-1, 0) if context.open is None else context.open[:2]
    count = t.split_transactions(
        read_only(events), read_only(chunk.gtids), begin, rows, numbers, found
    )
    return ChunkTransactions(numbers, found[:count])


def transaction_names(chunk: DecodedChunk, found: Int64s, gtids: pa.Array) -> pa.Array:
    """Return the names of transactions: their GTIDs, else `file:position` of where they begin.
    `gtids`: the chunk's, as text."""
    journal = chunk.layout.journal_name.encode()
    _, ends, text = gtids.buffers()
    gtid_bytes = 0 if text is None else text.size
    room = gtid_bytes + len(found) * (len(journal) + t.PLACE_BYTES_MAX)
    offsets, out = np.zeros(4 * (len(found) + 1), np.uint8), np.empty(room, np.uint8)
    used = t.name_transactions(
        read_only(found),
        read_only(np.frombuffer(journal, np.uint8)),
        read_only(np.frombuffer(ends, np.uint8)),
        read_only(np.frombuffer(text if gtid_bytes else b"", np.uint8)),
        offsets,
        out,
    )
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out[:used])]
    return pa.Array.from_buffers(pa.string(), len(found), buffers)


def chunk_gtids(chunk: DecodedChunk) -> pa.Array:
    """The chunk's GTIDs as text, by index."""
    if not chunk.layout.gtid_count:
        return plain_arrays.strings(())
    gtids = np.ascontiguousarray(chunk.gtids)
    records = read_only(np.ndarray((gtids.nbytes,), np.uint8, gtids.data))
    offsets = np.zeros(4 * (len(gtids) + 1), np.uint8)
    text = np.empty(GTID_TEXT_BYTES_MAX * (len(gtids) + 1), np.uint8)
    used = gtid_texts(records, offsets, text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text[:used])]
    return pa.Array.from_buffers(pa.string(), len(gtids), buffers)


class Envelopes:
    """Envelopes of one chunk's batches. `before`: for each event, the rows of its transaction
    before it."""

    def __init__(self, chunk: DecodedChunk, context: LogContext, before: Int64s) -> None:
        self._chunk = chunk
        self._context = context
        self._events, self._gtids = read_only(chunk.events), read_only(chunk.gtids)
        self._gtid_texts = chunk_gtids(chunk)
        self._journal = plain_arrays.strings((chunk.layout.journal_name,))
        self._before = read_only(before)
        self._named: tuple[Int32s, pa.Array] | None = None

    def columns(
        self, owners: Int32s, low: int
    ) -> tuple[list[pa.Array], tuple[pa.Buffer, pa.Buffer], Int64s]:
        """ENVELOPE's columns of a table's rows from `low` on, whose events are `owners`; the
        validity bitmaps of before and after; how many rows lack a GTID, a before, an after
        image."""
        count = len(owners)
        sizes = [8 * count, 8 * count, 8 * count, 4 * count, count]
        places = [0, *accumulate(map(aligned, sizes))]
        out, numbers = np.empty(places[-1], np.uint8), np.empty(count, np.int64)
        bit_bytes = (count + 7) // 8
        bits = np.zeros(e.BITMAPS * bit_bytes, np.uint8)
        absent = np.zeros(3, np.int64)
        filled = e.EnvelopeArrays(out, np.array(places), numbers, bits, absent)
        e.row_envelopes(
            self._events, self._gtids, read_only(owners), self._before, low, tuple(filled)
        )
        whole, all_bits = pa.py_buffer(out), pa.py_buffer(bits)
        parts = [whole.slice(at, size) for at, size in zip(places, sizes, strict=False)]
        bitmaps = [all_bits.slice(k * bit_bytes, bit_bytes) for k in range(e.BITMAPS)]

        def plain(kind: pa.DataType, region: int, valid: pa.Buffer | None = None) -> pa.Array:
            return pa.Array.from_buffers(kind, count, [valid, parts[region]])

        labelled = pa.DictionaryArray.from_arrays
        unnamed = bool(absent[e.NO_GTID])
        gtid_index = plain(pa.int32(), e.GTID, bitmaps[e.HAS_GTID] if unnamed else None)
        gtids = labelled(gtid_index, self._gtid_texts, safe=False)
        numbered = self._context.numbered
        arrays = [
            labelled(plain(pa.int8(), e.KIND), plain_arrays.strings(EVENT_TYPES), safe=False),
            constant(self._context.timeline, count),
            labelled(zeros(count), self._journal, safe=False),
            plain(pa.int64(), e.POSITION),
            plain(pa.int64(), e.ORDINAL),
            plain(_INSTANT, e.TIME),
            gtids,
            self._names(owners) if unnamed and numbered else gtids,
            plain_arrays.numbers(numbers, pa.int64()) if numbered else _unnumbered(count),
        ]
        return arrays, (bitmaps[e.HAS_BEFORE], bitmaps[e.HAS_AFTER]), absent

    def _names(self, owners: Int32s) -> pa.Array:
        """Return the transactions' names where not every one has a GTID."""
        if self._named is None:
            numbers, found = transactions_of(self._chunk, self._context)
            self._named = numbers, transaction_names(self._chunk, found, self._gtid_texts)
        numbers, names = self._named
        index = np.empty(len(owners), np.int32)
        e.row_numbers(read_only(numbers), read_only(owners), index)
        place = plain_arrays.numbers(index, pa.int32())
        return pa.DictionaryArray.from_arrays(place, names, safe=False)


def constant(number: int, rows: int) -> pa.Array:
    """Return a number in every row."""
    if rows > _ROWS_KEPT:
        return plain_arrays.numbers(np.full(rows, number, np.int64), pa.int64())
    # Slices of the buffer, not of an array, which would take all of it along when it is pickled.
    buffer = _kept_numbers(number).slice(0, 8 * rows)
    return pa.Array.from_buffers(pa.int64(), rows, [None, buffer], 0)


def zeros(rows: int) -> pa.Array:
    """Return 0 as int8 in every row."""
    if rows > 8 * _ROWS_KEPT:
        return plain_arrays.numbers(np.zeros(rows, np.int8), pa.int8())
    buffer = _kept_numbers(0).slice(0, rows)
    return pa.Array.from_buffers(pa.int8(), rows, [None, buffer], 0)


def _unnumbered(rows: int) -> pa.Array:
    """Return NULL as int64 in every row."""
    if rows > _ROWS_KEPT:
        return pa.nulls(rows, pa.int64())
    nothing = _kept_numbers(0)
    buffers = [nothing.slice(0, (rows + 7) // 8), nothing.slice(0, 8 * rows)]
    return pa.Array.from_buffers(pa.int64(), rows, buffers, rows)


@lru_cache(maxsize=3)
def _kept_numbers(number: int) -> pa.Buffer:
    return pa.py_buffer(np.full(_ROWS_KEPT, number, np.int64))


def load_kernels() -> None:
    """Load the machine code into this process before it is needed."""
    nothing = DecodedChunk(ChunkLayout("", 0, 0, 0, 0, 0, 0, ()), np.zeros(0, np.uint8))
    envelopes = Envelopes(nothing, NO_CONTEXT, np.zeros(0, np.int64))
    envelopes.columns(np.zeros(0, np.int32), 0)
    envelopes._names(np.zeros(0, np.int32))
    found = transactions_of(nothing, NO_CONTEXT).found
    transaction_names(nothing, found, chunk_gtids(nothing))
