"""Pass over a chunk's EVENT records (binlog/chunk.py), and make other records from them.

Field by field, numpy would go over them a dozen times with strides.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.framing import query as q
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows.rows import VERSION_PARTIAL


@without_refcounts
def number_tables(events, table_index):
    """Replace the numbers of row events' tables."""
    for i in range(events.size):
        table = events[i]["table"]
        if table >= 0:
            events[i]["table"] = table_index[table]


@without_refcounts
def row_events(events, bodies, lines, of_table):
    """Fill the lines of kernels/rows/rows.py for the row events among `events`; return (how many,
    True if any is PARTIAL_UPDATE_ROWS). `of_table` counts those of each table."""
    count = 0
    any_partial = False
    for i in range(events.size):
        event = events[i]
        if event["table"] < 0:
            continue
        code = event["type_code"]
        version = 2 if code >= ev.WRITE_ROWS else 1 if code >= ev.WRITE_ROWS_V1 else 0
        lines[count, r.E_START] = bodies[i, 0]
        lines[count, r.E_END] = bodies[i, 1]
        if code == ev.PARTIAL_UPDATE_ROWS:
            version = VERSION_PARTIAL
            any_partial = True
        lines[count, r.E_VERSION] = version
        lines[count, r.E_TYPE] = event["event_type"]
        lines[count, r.E_TABLE] = event["table"]
        lines[count, r.E_NUMBER] = i
        of_table[event["table"]] += 1
        count += 1
    return count, any_partial


@without_refcounts
def place_rows(heads, numbers, rows, row, present, events):
    """Fill in row events' row counts, first rows and bitmaps; `rows`, `row`, `present` are heads'
    columns, `numbers` the events' indexes."""
    for i in range(numbers.size):
        event = events[numbers[i]]
        event["rows"] = heads[i, rows]
        event["row"] = heads[i, row]
        event["present"] = heads[i, present]


NO_ROWS: Final = -1
HIDDEN_ROWS: Final = -2

# Flags of binlog/chunk.py.
_ROWDATA: Final = 2
_IN_TRANSACTION: Final = 1
_SILENT: Final = 2
_CLOSES: Final = 4


@inlined
def closes(events, i):
    """Tell if event `i` ends a transaction: its END, or a statement that stands alone; of several
    entries of one event or one GTID, the last one."""
    event = events[i]
    if event["kind"] == q.KIND_END:
        return True
    if event["kind"] != _ROWDATA or event["flags"] & _IN_TRANSACTION or event["rows"] != 0:
        return False
    if i + 1 == events.size:
        return True
    following = events[i + 1]
    named = event["gtid"] >= 0 and event["gtid"] == following["gtid"]
    return not named and event["position"] != following["position"]


@without_refcounts
def follow_annotations(events, annotations, shown):
    """Fill `annotations` with the numbers of the texts of statements, and `shown` with the first
    event of each whose rows are shown: NO_ROWS if none follow, HIDDEN_ROWS if all of them are
    hidden. Return how many there are."""
    count = 0
    for i in range(events.size):
        if not q.is_annotation(events[i]["type_code"]):
            continue
        annotations[count], shown[count] = i, NO_ROWS
        for k in range(i + 1, events.size):
            kind = np.int64(events[k]["type_code"])
            if kind >= 64 or not ev.ROWS >> kind & 1 or events[k]["kind"] != _ROWDATA:
                break
            if not events[k]["flags"] & _SILENT:
                shown[count] = k
                break
            shown[count] = HIDDEN_ROWS
        count += 1
    return count


@without_refcounts
def place_entries(events, entries):
    """Fill ENTRY records from EVENT records, with which of them close a transaction; tell if there
    is anything to thin: a silent entry, or an empty transaction."""
    thins = False
    for i in range(events.size):
        event, entry = events[i], entries[i]
        entry["position"] = event["position"]
        entry["inner"] = event["inner"]
        entry["length"] = event["length"]
        entry["timestamp"] = event["timestamp"]
        entry["rows"] = event["rows"]
        entry["table"] = event["table"]
        entry["kind"] = event["kind"]
        entry["event_type"] = event["event_type"]
        entry["transaction"] = event["gtid"]
        flags = event["flags"]
        behind_begin = i > 0 and events[i - 1]["kind"] == q.KIND_BEGIN
        if flags & _SILENT or (behind_begin and event["kind"] == q.KIND_END):
            thins = True
        entry["flags"] = flags | _CLOSES if closes(events, i) else flags
    return thins


@without_refcounts
def shown_entries(events, first, last, mask, chosen):
    """Fill `chosen` with the numbers of the entries [first, last) that are shown; return how many.
    `mask` has an element for each entry, or none at all."""
    count = 0
    for i in range(first, last):
        if (mask.size == 0 or mask[i]) and not events[i]["flags"] & _SILENT:
            chosen[count] = i
            count += 1
    return count


@without_refcounts
def entry_pieces(events, chosen, expansion, entry_bytes, piece_bytes, ends, binlog_bytes):
    """Cut entries into pieces of about `piece_bytes`, if a byte of binlog becomes `expansion` bytes
    and an entry takes `entry_bytes` more; fill in where each ends in `chosen`, and its bytes of
    binlog; return how many pieces."""
    count = 0
    total = length = 0
    for i in range(chosen.size):
        size = events[chosen[i]]["length"]
        length += size
        total += expansion * size + entry_bytes
        if total >= piece_bytes or i == chosen.size - 1:
            ends[count] = i + 1
            binlog_bytes[count] = length
            count += 1
            total = length = 0
    return count
