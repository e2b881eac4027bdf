"""What the Arrow view has per row beside the columns: where the row stands in the log, and SET
values as lists. One pass each, where vectors would take a dozen."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.jit import bare
from ray_canal.kernels.memory import (
    copy,
    copy32,
    load8,
    load64,
    next_bit,
    store8,
    store32,
    store64,
)

_INSERT: Final = 1
_DELETE: Final = 3
_MICROSECONDS: Final = 1_000_000

# Indexes into what `row_envelopes` counts: rows without a GTID, a before, an after image.
NO_GTID: Final = 0
NO_BEFORE: Final = 1
NO_AFTER: Final = 2

# Offsets of `row_envelopes`' output regions, in `regions`.
KIND: Final = 0
JOURNAL: Final = 1
POSITION: Final = 2
ORDINAL: Final = 3
TIME: Final = 4
GTID: Final = 5
HAS_GTID: Final = 6  # bitmaps from here on
HAS_BEFORE: Final = 7
HAS_AFTER: Final = 8
REGIONS: Final = 9

# Fields of `spans`.
SPAN_ROWS: Final = 0
SPAN_LOW: Final = 1
SPAN_HIGH: Final = 2
SPAN_FIRST: Final = 3  # number of the event
SPAN_PARTIAL: Final = 4  # 1: some event's images lack columns
SPAN_FIELDS: Final = 5


@bare
def row_spans(events, wanted, spans):  # type: ignore[no-untyped-def]
    """Of each table, how many rows the wanted events have, between which rows they lie, the first
    of them, and whether some lack columns. `spans` has a line for each table, all zero before."""
    for i in range(wanted.size):
        if not wanted[i]:
            continue
        event = events[i]
        rows, table = event["rows"], event["table"]
        if rows <= 0 or table < 0:
            continue
        if spans[table, SPAN_ROWS] == 0:
            spans[table, SPAN_LOW] = event["row"]
            spans[table, SPAN_FIRST] = i
        spans[table, SPAN_ROWS] += rows
        spans[table, SPAN_HIGH] = event["row"] + rows
        if event["present"] >= 0:
            spans[table, SPAN_PARTIAL] = 1


@bare
def row_envelopes(events, gtids, owners, low, out, regions, absent):  # type: ignore[no-untyped-def]
    """Fill the regions of `out` (zero before) for a table's rows from `low` on.

    `owners` says which event each row is of. Per row: event type (0 INSERT, 1 UPDATE, 2 DELETE) and
    0 as int8; position and ordinal as int64 (the ordinal within the event, for one that was
    compressed its offset in there added); execution time in microseconds; index of the GTID as
    int32; three bits.
    """
    for i in range(owners.size):
        event = events[owners[i]]
        kind = event["event_type"]
        store8(out, regions[KIND] + i, kind - 1)
        store64(out, regions[POSITION] + 8 * i, event["position"])
        store64(out, regions[ORDINAL] + 8 * i, event["inner"] + low + i - event["row"])
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
            out[regions[HAS_GTID] + byte] |= bit
        else:
            absent[NO_GTID] += 1
        if kind == _INSERT:
            absent[NO_BEFORE] += 1
        else:
            out[regions[HAS_BEFORE] + byte] |= bit
        if kind == _DELETE:
            absent[NO_AFTER] += 1
        else:
            out[regions[HAS_AFTER] + byte] |= bit


LABEL_SLACK_BYTES: Final = 32


@bare
def count_members(arena, validity, values, rows, label_ends):  # type: ignore[no-untyped-def]
    """(members of all of a column's SET values, bytes of their labels, first row with a bit beyond
    its labels or -1). `label_ends`: where each label ends in the text of all."""
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


@bare
def list_members(arena, validity, values, rows, label_ends, texts, ends, offsets, out):  # type: ignore[no-untyped-def]
    """Fill the lists' offsets (`ends`, rows + 1), and offsets and text of their members' labels.

    `texts` are the labels, one after the other; it and `out` have LABEL_SLACK_BYTES more at their
    end.
    """
    count = to = 0
    ends[0] = 0
    offsets[0] = 0
    for row in range(rows):
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
