"""Make what Arrow batches have per row next to their columns: the row's place in the log, and SET
values as lists. Each takes one pass, where array operations would take a dozen."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import (
    copy,
    copy32,
    load8,
    load64,
    next_bit,
    store8,
    store32,
    store64,
)
from ray_canal.kernels.rows.records import closes

_INSERT: Final = 1
_DELETE: Final = 3
_MICROSECONDS: Final = 1_000_000
_READ: Final = 7  # in views/envelope.py's EVENT_TYPES
_FLAG_READ: Final = 32  # binlog/chunk.py's EVENT_READ



@without_refcounts
def row_numbers(numbers, owners, out):
    """Fill `out` with the number of each row's event. All int32."""
    for i in range(owners.size):
        out[i] = numbers[owners[i]]


class EnvelopeArrays(NamedTuple):
    """Output of `row_envelopes`: int64 and int32 values in regions of bytes, and bitmaps."""

    out: Any  # uint8
    regions: Any  # int64: where each region begins in `out`
    numbers: Any  # int64
    bits: Any  # uint8, zero before
    absent: Any  # int64[3], zero before: rows without a GTID, a before, an after image


# Indexes into `absent`.
NO_GTID: Final = 0
NO_BEFORE: Final = 1
NO_AFTER: Final = 2

# Offsets of `row_envelopes`' output regions, in `regions`.
POSITION: Final = 0
ORDINAL: Final = 1
TIME: Final = 2
GTID: Final = 3
KIND: Final = 4

# Its bitmaps, in their own array, each of (rows + 7) // 8 bytes.
HAS_GTID: Final = 0
HAS_BEFORE: Final = 1
HAS_AFTER: Final = 2
BITMAPS: Final = 3

# Fields of `spans`.
SPAN_ROWS: Final = 0
SPAN_LOW: Final = 1
SPAN_HIGH: Final = 2
SPAN_FIRST: Final = 3  # number of the event
SPAN_PARTIAL: Final = 4  # 1: some event's images lack columns
SPAN_FIELDS: Final = 5


@without_refcounts
def row_spans(events, wanted, open_rows, spans, before):
    """Fill `spans` with a line for each table (rows of the wanted events, between which rows they
    lie, the first event, 1 if some lack columns), and `before` with the rows of its transaction
    before each event. `spans` is zero before; `open_rows` of the first transaction came before the
    chunk."""
    total = open_rows
    for i in range(wanted.size):
        event = events[i]
        rows, table = event["rows"], event["table"]
        before[i] = total
        total += rows
        if closes(events, i):
            total = 0
        if not wanted[i]:
            continue
        if rows <= 0 or table < 0:
            continue
        if spans[table, SPAN_ROWS] == 0:
            spans[table, SPAN_LOW] = event["row"]
            spans[table, SPAN_FIRST] = i
        spans[table, SPAN_ROWS] += rows
        spans[table, SPAN_HIGH] = event["row"] + rows
        if event["present"] >= 0:
            spans[table, SPAN_PARTIAL] = 1


@without_refcounts
def row_envelopes(events, gtids, owners, before, low, envelope_fields):
    """Fill the fields of EnvelopeArrays for a table's rows from `low` on.

    `owners` has the event of each row, `before` the rows of its transaction before each event. Per
    row: position and ordinal as int64 (the ordinal in the event; for a compressed one plus its
    offset inside); execution time in microseconds; index of the GTID as int32 (0 where there is
    none); event type (0 INSERT, 1 UPDATE, 2 DELETE, _READ) as int8; the row's number in its
    transaction; three bits.
    """
    out, regions, numbers, bits, absent = envelope_fields
    size = (owners.size + 7) // 8
    for i in range(owners.size):
        event = events[owners[i]]
        kind = event["event_type"]
        store8(out, regions[KIND] + i, _READ if event["flags"] & _FLAG_READ else kind - 1)
        store64(out, regions[POSITION] + 8 * i, event["position"])
        in_event = low + i - event["row"]
        store64(out, regions[ORDINAL] + 8 * i, event["inner"] + in_event)
        numbers[i] = before[owners[i]] + in_event
        time_us = np.int64(event["timestamp"]) * _MICROSECONDS
        number = event["gtid"]
        byte, bit = i >> 3, 1 << (i & 7)
        named = False
        if number >= 0:
            gtid = gtids[number]
            if gtid["commit_us"] > 0:
                time_us = gtid["commit_us"]
            named = gtid["flavor"] != 0
        store64(out, regions[TIME] + 8 * i, time_us)
        if named:
            store32(out, regions[GTID] + 4 * i, number)
            bits[HAS_GTID * size + byte] |= bit
        else:
            store32(out, regions[GTID] + 4 * i, 0)
            absent[NO_GTID] += 1
        if kind == _INSERT:
            absent[NO_BEFORE] += 1
        else:
            bits[HAS_BEFORE * size + byte] |= bit
        if kind == _DELETE:
            absent[NO_AFTER] += 1
        else:
            bits[HAS_AFTER * size + byte] |= bit


LABEL_SLACK_BYTES: Final = 32


@without_refcounts
def count_members(arena, validity, values, rows, label_ends):
    """Return (members of all of a column's SET values, bytes of their labels, first row with a bit
    beyond its labels or -1). `label_ends`: where each label ends in the text of all."""
    count = size = 0
    labels = label_ends.size
    for row in range(rows):
        if not load8(arena, validity + (row >> 3)) >> (row & 7) & 1:
            continue
        mask = load64(arena, values + 8 * row)
        if labels < 64 and mask >> labels:
            return count, size, row
        while mask:
            label, mask = next_bit(mask)
            size += label_ends[label] - (label_ends[label - 1] if label else 0)
            count += 1
    return count, size, -1


@without_refcounts
def list_members(arena, validity, values, label_ends, texts, ends, offsets, out):
    """Fill the lists' offsets (`ends`, one more than there are rows), and offsets and text of their
    members' labels.

    `texts` has the labels, one after the other; it and `out` have LABEL_SLACK_BYTES more at their
    end.
    """
    count = to = 0
    ends[0] = 0
    offsets[0] = 0
    for row in range(ends.size - 1):
        if load8(arena, validity + (row >> 3)) >> (row & 7) & 1:
            mask = load64(arena, values + 8 * row)
            while mask:
                label, mask = next_bit(mask)
                start = label_ends[label - 1] if label else 0
                size = label_ends[label] - start
                if size <= LABEL_SLACK_BYTES:
                    copy32(out, to, texts, start)
                else:
                    copy(out, to, texts, start, size)
                to += size
                count += 1
                offsets[count] = to
        ends[row + 1] = count
