"""Write Canal's FlatMessage as JSON, one message for each statement and each row event (or each
partition that its rows go to), backwards (entry_bytes.py says why).

Keys are in Canal's order: data, database, es, gtid, id, isDdl, mysqlType, old, pkNames, sql,
sqlType, table, ts, type.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.digits import digits_back, integer_back
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.render.arrays import FlatArrays, MessageArrays, RowArrays
from ray_canal.kernels.render.entry_columns import (
    C_CODE,
    C_IS_WIDENED,
    C_VALIDITY,
    C_VALUES,
    LEFT_OUT,
    NO_SPACE,
    has_top_bit,
    is_null,
    is_present,
)
from ray_canal.kernels.render.entry_values import VALUE_BYTES_MAX
from ray_canal.kernels.render.flat_rows import (
    F_MYSQL_TYPE,
    F_NAME,
    F_NULL_SQL_TYPE,
    F_SQL_TYPE,
    F_VARIES,
    F_WIDE_SQL_TYPE,
    FT_COUNT,
    FT_DATABASE,
    FT_FIRST,
    FT_FROM_OLD,
    FT_REST,
    FT_ROOM,
    FT_TABLE,
    FT_UP_TO_OLD,
    FT_VARIES,
    data_back,
    first_updates,
    old_back,
    piece_back,
    side_bitmap,
)
from ray_canal.kernels.render.flat_text import ESCAPED_MAX, escaped_back
from ray_canal.kernels.render.protobuf import blob_back, short_back

_UPDATE, _DELETE = 2, 3
_BRACKET, _BRACE = 91, 123
_OPEN = np.frombuffer(b'{"data":', np.uint8)
_MYSQL_TYPE = np.frombuffer(b',"isDdl":false,"mysqlType":', np.uint8)
_OLD = np.frombuffer(b',"old":', np.uint8)
_PK_NAMES = np.frombuffer(b',"pkNames":', np.uint8)
_SQL_TYPE = np.frombuffer(b',"sql":"","sqlType":', np.uint8)
_NULL = np.frombuffer(b"null", np.uint8)
_QUERY_OPEN = np.frombuffer(b'{"data":null,"database":"', np.uint8)
_QUERY_ES = np.frombuffer(b'","es":', np.uint8)
_QUERY_DDL = np.frombuffer(b',"isDdl":true', np.uint8)
_QUERY_NO_DDL = np.frombuffer(b',"isDdl":false', np.uint8)
_QUERY_NULLS = np.frombuffer(b',"mysqlType":null,"old":null,"pkNames":null,"sql":"', np.uint8)
_QUERY_TABLE = np.frombuffer(b'","sqlType":null,"table":"', np.uint8)
_QUERY_TS = np.frombuffer(b'","ts":', np.uint8)
_ROOM: Final = 512


@inlined
def _all_back(piece, buf, pos):
    """Write all of a constant piece."""
    return blob_back(piece, 0, piece.size, buf, pos)


@inlined
def _gtid_line(event, gtids):
    """Return the line of `gtids` for an event; the last one if it has no GTID."""
    return event["gtid"] if event["gtid"] >= 0 else gtids.shape[0] - 1


@inlined
def _stamp_back(event, number, gtids, blobs, buf, pos):
    """Write the number after `"es":`, the gtid, and the id."""
    pos = integer_back(number, buf, pos)
    line = _gtid_line(event, gtids)
    pos = blob_back(blobs, gtids[line, 0], gtids[line, 1], buf, pos)
    return digits_back(np.int64(event["timestamp"]) * 1000, 1, buf, pos)


@without_refcounts
def _deviates(event, tables, columns, arena, row):
    """Tell if a value of this row has another sqlType than its column."""
    start = tables[event["table"], FT_FIRST]
    side = 0 if event["event_type"] == _DELETE else 1
    for p in range(start, start + tables[event["table"], FT_COUNT]):
        if columns[p, F_VARIES] and columns[p, C_CODE] != LEFT_OUT:
            if _sql_type(columns, p, side, arena, row) != F_SQL_TYPE:
                return True
    return False


@inlined
def _sql_type(columns, p, side, arena, row):
    """Return which of a column's pieces has the sqlType of this row's value."""
    code, values = columns[p, C_CODE], columns[p, C_VALUES + 3 * side]
    if is_null(code, arena, columns[p, C_VALIDITY + 3 * side], values, row):
        return F_NULL_SQL_TYPE
    if columns[p, C_IS_WIDENED] and has_top_bit(code, arena, values, row):
        return F_WIDE_SQL_TYPE
    return F_SQL_TYPE


@without_refcounts
def _pieces_back(kind, event, tables, columns, arena, blobs, buf, pos):
    """Write the members of mysqlType (F_MYSQL_TYPE) or sqlType (F_SQL_TYPE), or the names of keys
    (F_NAME), of the columns that the event has; null if it has none."""
    table = event["table"]
    start, count = tables[table, FT_FIRST], tables[table, FT_COUNT]
    side = 0 if event["event_type"] == _DELETE else 1
    bitmap = side_bitmap(event, side, count, arena)
    last = np.int64(event["row"]) + event["rows"] - 1
    end = pos
    if event["rows"] <= 0:
        return _all_back(_NULL, buf, end)
    pos -= 1
    buf[pos] = 93 if kind == F_NAME else 125
    empty = pos
    for index in range(count - 1, -1, -1):
        p = start + index
        if columns[p, C_CODE] == LEFT_OUT or not is_present(arena, bitmap, index):
            continue
        field = kind
        if kind == F_SQL_TYPE and columns[p, F_VARIES]:
            field = _sql_type(columns, p, side, arena, last)
        if kind != F_NAME or columns[p, F_NAME + 1]:
            pos = piece_back(blobs, columns, p, field, buf, pos)
    if pos == empty:
        return _all_back(_NULL, buf, end)
    buf[pos] = _BRACKET if kind == F_NAME else _BRACE
    return pos


@without_refcounts
def _query_back(event, number, rows, flat, buf, pos):
    """Write the message of a statement; NO_SPACE."""
    query, gtids, tails = flat.queries[event["aux"]], flat.gtids, flat.tails
    arena, blobs = rows.arena, rows.blobs
    sizes = max(np.int64(query["sql_bytes"]), 0) + max(np.int64(query["table_bytes"]), 0)
    sizes += max(np.int64(query["schema_bytes"]), 0)
    if pos < ESCAPED_MAX * sizes + _ROOM + gtids[_gtid_line(event, gtids), 1]:
        return NO_SPACE
    tail = event["event_type"]
    pos = blob_back(blobs, tails[tail, 0], tails[tail, 1], buf, pos)
    pos = _all_back(_QUERY_TS, buf, pos)
    if query["table_bytes"] > 0:
        pos = escaped_back(arena, query["table"], np.int64(query["table_bytes"]), False, buf, pos)
    pos = _all_back(_QUERY_TABLE, buf, pos)
    if query["sql_bytes"] > 0:
        pos = escaped_back(arena, query["sql"], np.int64(query["sql_bytes"]), False, buf, pos)
    pos = _all_back(_QUERY_NULLS, buf, pos)
    if query["is_ddl"]:
        pos = _all_back(_QUERY_DDL, buf, pos)
    else:
        pos = _all_back(_QUERY_NO_DDL, buf, pos)
    pos = _stamp_back(event, number, gtids, blobs, buf, pos)
    pos = _all_back(_QUERY_ES, buf, pos)
    if query["schema_bytes"] > 0:
        pos = escaped_back(arena, query["schema"], np.int64(query["schema_bytes"]), False, buf, pos)
    return _all_back(_QUERY_OPEN, buf, pos)


@inlined
def _from_old_back(event, is_plain, has_rows, rows, flat, buf, pos):
    """Write what comes after `old`, with the null in its place if the event has no `old`."""
    table, tables, columns = event["table"], rows.tables, rows.columns
    arena, blobs, kind = rows.arena, rows.blobs, event["event_type"]
    pos = short_back(blobs, flat.tails[kind, 0], flat.tails[kind, 1], buf, pos)
    if is_plain:
        if kind == _UPDATE:
            at, size = tables[table, FT_FROM_OLD], tables[table, FT_FROM_OLD + 1]
            return blob_back(blobs, at, size, buf, pos)
        return pos
    pos = blob_back(blobs, tables[table, FT_TABLE], tables[table, FT_TABLE + 1], buf, pos)
    pos = _pieces_back(F_SQL_TYPE, event, tables, columns, arena, blobs, buf, pos)
    pos = _all_back(_SQL_TYPE, buf, pos)
    pos = _pieces_back(F_NAME, event, tables, columns, arena, blobs, buf, pos)
    pos = _all_back(_PK_NAMES, buf, pos)
    if kind != _UPDATE or not has_rows:
        pos = _all_back(_NULL, buf, pos)
    return pos


@inlined
def _up_to_old_back(event, is_plain, rows, buf, pos):
    """Write what comes between the id and `old`, or all that comes after the id of a plain message
    without `old`."""
    table, tables, blobs = event["table"], rows.tables, rows.blobs
    if not is_plain:
        pos = _all_back(_OLD, buf, pos)
        pos = _pieces_back(F_MYSQL_TYPE, event, tables, rows.columns, rows.arena, blobs, buf, pos)
        return _all_back(_MYSQL_TYPE, buf, pos)
    field = FT_UP_TO_OLD if event["event_type"] == _UPDATE else FT_REST
    return blob_back(blobs, tables[table, field], tables[table, field + 1], buf, pos)


@inlined
def _rows_back(event, number, picked, rows, flat, is_exact, buf, pos):
    """Write the message of the picked rows (data_back has them) of an event; NO_SPACE."""
    table, tables, gtids, blobs = event["table"], rows.tables, flat.gtids, rows.blobs
    room = tables[table, FT_ROOM] + gtids[_gtid_line(event, gtids), 1]
    if pos < room:
        return NO_SPACE
    has_rows = picked[2] > 0
    is_plain = event["present"] < 0 and has_rows
    if is_plain and tables[table, FT_VARIES]:
        last = np.int64(event["row"]) + event["rows"] - 1
        is_plain = not _deviates(event, tables, rows.columns, rows.arena, last)
    pos = _from_old_back(event, is_plain, has_rows, rows, flat, buf, pos)
    if event["event_type"] == _UPDATE and has_rows:
        pos = old_back(rows, event, picked, flat.since, is_exact, buf, pos)
        if pos < room:
            return NO_SPACE
    pos = _up_to_old_back(event, is_plain, rows, buf, pos)
    pos = _stamp_back(event, number, gtids, blobs, buf, pos)
    pos = short_back(blobs, tables[table, FT_DATABASE], tables[table, FT_DATABASE + 1], buf, pos)
    pos = data_back(rows, event, picked, buf, pos)
    return _all_back(_OPEN, buf, pos) if pos >= VALUE_BYTES_MAX else NO_SPACE


@without_refcounts
def write_messages(message_fields, done, row_fields, flat_fields, is_exact, buf, used, starts):
    """Write messages done - 1, done - 2, … 0 before the `used` bytes at the buffer's end; return
    (messages not yet written, bytes used): grow the buffer, keep its end, and call again.

    The fields are those of MessageArrays, RowArrays and FlatArrays. `is_exact`: see `old_back`.
    starts[i] becomes the distance from the buffer's end to message i's first byte.
    """
    messages, rows = MessageArrays(*message_fields), RowArrays(*row_fields)
    flat = FlatArrays(*flat_fields)
    pos = np.int64(len(buf) - used)
    known = np.int64(-1)  # the event that `since` is of
    while done > 0:
        m = done - 1
        number = messages.entries[m]
        event = rows.events[number]
        if event["table"] < 0:
            pos = _query_back(event, messages.ids[m], rows, flat, buf, pos)
        else:
            if event["event_type"] == _UPDATE and messages.counts[m] > 0 and known != number:
                first_updates(rows, event, flat.since)
                known = number
            picked = messages.order, messages.firsts[m], messages.counts[m]
            pos = _rows_back(event, messages.ids[m], picked, rows, flat, is_exact, buf, pos)
        if pos < 0:
            return done, used
        done = m
        used = len(buf) - pos
        starts[done] = used
    return done, used
