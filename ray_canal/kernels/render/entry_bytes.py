"""Write Canal's `Entry` messages as protobuf wire bytes, backwards from the end of a buffer.

Every nested message of protobuf has its length before it. Written from the end, a message's length
is known when its start is reached, so one pass suffices, without measuring. Fields and their order
are those of Canal's own output (EntryProtocol.proto; Canal writes zero and empty fields of headers
and columns explicitly).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.digits import digits_back, integer_back
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import copy
from ray_canal.kernels.render.arrays import HeaderArrays, RowArrays, WindowArrays
from ray_canal.kernels.render.entry_columns import (
    NO_PIECES,
    NO_SPACE,
    T_NAMES,
    T_NAMES_BYTES,
    W_HIGH,
)
from ray_canal.kernels.render.entry_rows import rows_back
from ray_canal.kernels.render.entry_values import VALUE_BYTES_MAX
from ray_canal.kernels.render.protobuf import (
    blob_back,
    close_back,
    number_back,
    text_back,
    varint_back,
)

LENGTH_PREFIX: Final = 1
# Columns of `gtids`: blobs of header props, and of header.gtid.
G_PROPS, G_PROPS_BYTES, G_SET, G_SET_BYTES = 0, 1, 2, 3
GTID_FIELDS: Final = 4

_BEGIN, _ROWDATA, _END = 1, 2, 3
_EMPTY_NAMES_BYTES: Final = 4
"""Empty schema and table names are the blob after the journal name."""
_DELETE: Final = 3
_XACOMMIT, _XAROLLBACK = 13, 14
_XA_TYPE = np.frombuffer(b"XA_TYPE", np.uint8)
_XA_XID = np.frombuffer(b"XA_XID", np.uint8)
_XA_START = np.frombuffer(b"XA START", np.uint8)
_XA_END = np.frombuffer(b"XA END", np.uint8)
_XA_COMMIT = np.frombuffer(b"XA COMMIT", np.uint8)
_XA_ROLLBACK = np.frombuffer(b"XA ROLLBACK", np.uint8)


@without_refcounts
def _header_back(event, names, names_place, header, blobs, buf, pos):
    """Write the Header message with its tag (field 1 of Entry); NO_SPACE.

    `names` has the fields schemaName and tableName; `names_place`: their offset and length."""
    gtids, journal_bytes = header.gtids, header.journal_bytes
    names_at, names_bytes = names_place
    end = pos
    if event["gtid"] >= 0 and len(gtids):
        gtid = gtids[event["gtid"]]
        if pos < VALUE_BYTES_MAX + gtid[G_SET_BYTES] + gtid[G_PROPS_BYTES] + names_bytes:
            return NO_SPACE
        pos = blob_back(blobs, gtid[G_SET], gtid[G_SET_BYTES], buf, pos)
        pos = _rows_count_back(event, buf, pos)
        pos = blob_back(blobs, gtid[G_PROPS], gtid[G_PROPS_BYTES], buf, pos)
    else:
        pos = _rows_count_back(event, buf, pos)
    if pos < VALUE_BYTES_MAX + names_bytes + journal_bytes:
        return NO_SPACE
    if event["event_type"]:
        pos = number_back(0x58, np.int64(event["event_type"]), buf, pos)
    pos = number_back(0x50, np.int64(event["length"]), buf, pos)
    pos = blob_back(names, names_at, names_bytes, buf, pos)
    pos -= 2
    buf[pos] = 0x38
    buf[pos + 1] = 2
    pos = number_back(0x30, np.int64(event["timestamp"]) * 1000, buf, pos)
    pos -= 7
    buf[pos] = 0x2A
    buf[pos + 1] = 5
    buf[pos + 2] = 85  # UTF-8
    buf[pos + 3] = 84
    buf[pos + 4] = 70
    buf[pos + 5] = 45
    buf[pos + 6] = 56
    pos = number_back(0x20, np.int64(event["server_id"]), buf, pos)
    pos = number_back(0x18, np.int64(event["position"]), buf, pos)
    pos = blob_back(blobs, 0, journal_bytes, buf, pos)
    pos -= 2
    buf[pos] = 0x08
    buf[pos + 1] = 1
    return close_back(0x0A, end, buf, pos)


@without_refcounts
def _rows_count_back(event, buf, pos):
    """Write props: rowsCount, on row entries."""
    if event["rows"] <= 0 or pos < VALUE_BYTES_MAX:
        return pos
    end = pos
    pos = close_back(0x12, pos, buf, digits_back(np.int64(event["rows"]), 1, buf, pos))
    pos -= 11
    buf[pos] = 0x0A
    buf[pos + 1] = 9
    buf[pos + 2] = 114  # rowsCount
    buf[pos + 3] = 111
    buf[pos + 4] = 119
    buf[pos + 5] = 115
    buf[pos + 6] = 67
    buf[pos + 7] = 111
    buf[pos + 8] = 117
    buf[pos + 9] = 110
    buf[pos + 10] = 116
    return close_back(0x62, end, buf, pos)


@without_refcounts
def _letters_back(letters, count, buf, pos):
    """Write the first `count` letters."""
    copy(buf, pos - count, letters, 0, count)
    return pos - count


@without_refcounts
def _xa_props_back(tag, letters, count, query, arena, buf, pos):
    """Write props XA_TYPE (`XA START`, …: the statement's first `count` letters) and XA_XID (the
    statement's rest, its blank included)."""
    end = pos
    size = max(np.int64(query["sql_bytes"]) - count, 0)
    pos = text_back(0x12, arena, query["sql"] + count, size, buf, pos)
    pos = close_back(0x0A, pos, buf, _letters_back(_XA_XID, 6, buf, pos))
    pos = close_back(tag, end, buf, pos)
    end = pos
    pos = close_back(0x12, pos, buf, _letters_back(letters, count, buf, pos))
    pos = close_back(0x0A, pos, buf, _letters_back(_XA_TYPE, 7, buf, pos))
    return close_back(tag, end, buf, pos)


@without_refcounts
def _transaction_back(event, queries, arena, buf, pos):
    """Write storeValue of BEGIN and END; NO_SPACE."""
    end = pos
    begins = event["kind"] == _BEGIN
    if begins and event["aux"]:
        pos = number_back(0x20, np.int64(event["aux"]), buf, pos)
    if event["present"] >= 0:
        query = queries[event["present"]]
        if pos < VALUE_BYTES_MAX + query["sql_bytes"]:
            return NO_SPACE
        if begins:
            pos = _xa_props_back(0x1A, _XA_START, 8, query, arena, buf, pos)
        else:
            pos = _xa_props_back(0x1A, _XA_END, 6, query, arena, buf, pos)
    if not begins:
        pos = close_back(0x12, pos, buf, integer_back(np.int64(event["aux"]), buf, pos))
    return close_back(0x1A, end, buf, pos)


@without_refcounts
def _query_back(event, query, arena, buf, pos):
    """Write storeValue of a QUERY or DDL entry; NO_SPACE."""
    if pos < VALUE_BYTES_MAX + 2 * query["sql_bytes"] + query["ddl_schema_bytes"]:
        return NO_SPACE
    end = pos
    stands_for_rows = event["event_type"] <= _DELETE  # statement format: DML as text
    if query["ddl_schema_bytes"] > 0 and (query["is_ddl"] or stands_for_rows):
        size = np.int64(query["ddl_schema_bytes"])
        pos = text_back(0x72, arena, query["ddl_schema"], size, buf, pos)
    if event["event_type"] == _XACOMMIT:
        pos = _xa_props_back(0x6A, _XA_COMMIT, 9, query, arena, buf, pos)
    if event["event_type"] == _XAROLLBACK:
        pos = _xa_props_back(0x6A, _XA_ROLLBACK, 11, query, arena, buf, pos)
    pos = text_back(0x5A, arena, query["sql"], np.int64(query["sql_bytes"]), buf, pos)
    if query["is_ddl"] or stands_for_rows:
        pos -= 2
        buf[pos] = 0x50
        buf[pos + 1] = query["is_ddl"]
    pos = number_back(0x10, np.int64(event["event_type"]), buf, pos)
    return close_back(0x1A, end, buf, pos)


@without_refcounts
def _query_names_back(event, query, arena, buf, pos):
    """Write header.schemaName and tableName of a query, where it has them."""
    if query["table_bytes"] >= 0:
        pos = text_back(0x4A, arena, query["table"], np.int64(query["table_bytes"]), buf, pos)
    if query["schema_bytes"] >= 0:
        pos = text_back(0x42, arena, query["schema"], np.int64(query["schema_bytes"]), buf, pos)
    return pos


@inlined
def _value_back(chosen, at, rows, header, window, buf, pos):
    """Write storeValue of entry chosen[at]; NO_SPACE, NO_PIECES."""
    event = rows.events[chosen[at]]
    if event["kind"] == _BEGIN or event["kind"] == _END:
        return _transaction_back(event, header.queries, rows.arena, buf, pos)
    if event["table"] >= 0:
        return rows_back(chosen, at, rows, window, buf, pos)
    return _query_back(event, header.queries[event["aux"]], rows.arena, buf, pos)


@inlined
def _named_header_back(event, rows, header, buf, pos):
    """Write the Header message with its table's or statement's names; NO_SPACE."""
    names, blobs = header.names, rows.blobs
    table = event["table"]
    if event["kind"] == _ROWDATA and table < 0:
        query = header.queries[event["aux"]]
        size = 32 + np.int64(query["schema_bytes"]) + np.int64(query["table_bytes"])
        at = np.int64(_query_names_back(event, query, rows.arena, names, size))
        return _header_back(event, names, (at, size - at), header, blobs, buf, pos)
    place = np.int64(header.journal_bytes), np.int64(_EMPTY_NAMES_BYTES)
    if table >= 0:
        place = rows.tables[table, T_NAMES], rows.tables[table, T_NAMES_BYTES]
    return _header_back(event, blobs, place, header, blobs, buf, pos)


@without_refcounts
def write_entries(chosen, done, row_fields, header_fields, window_fields, buf, used, starts):
    """Write entries chosen[done - 1], chosen[done - 2], … 0 before the `used` bytes at the buffer's
    end; return (entries not yet written, bytes used, code).

    The fields are those of RowArrays, HeaderArrays and WindowArrays. starts[i] becomes the distance
    from the buffer's end to entry i's first byte. If entries are left, the buffer (NO_SPACE: grow
    it, keep its end) or `pieces` (NO_PIECES) is too small: call again.
    """
    rows, header = RowArrays(*row_fields), HeaderArrays(*header_fields)
    window = WindowArrays(*window_fields)
    pos = len(buf) - used
    window.windows[:, W_HIGH] = 0
    while done > 0:
        event = rows.events[chosen[done - 1]]
        if pos < 2 * VALUE_BYTES_MAX:
            return done, used, NO_SPACE
        end = pos
        pos = _value_back(chosen, done - 1, rows, header, window, buf, pos)
        if pos < 0:
            return done, used, NO_PIECES if pos == NO_PIECES else NO_SPACE
        pos -= 2
        buf[pos] = 0x10  # entryType
        buf[pos + 1] = event["kind"]
        pos = _named_header_back(event, rows, header, buf, pos)
        if pos < 16:
            return done, used, NO_SPACE
        if header.prefix:
            pos = varint_back(end - pos, buf, pos)
            if header.prefix != LENGTH_PREFIX:
                pos -= 1
                buf[pos] = header.prefix
        done -= 1
        used = len(buf) - pos
        starts[done] = used
    return done, used, 0
