"""Canal's `Entry` messages as protobuf wire bytes, written backwards from the end of a buffer.

Every nested message of protobuf has its length in front of it. Written from the end, a message's
length is known when its front is reached, so one pass does, with no measuring. Fields and their
order are those of Canal's own output (EntryProtocol.proto; Canal writes zero and empty fields of
headers and columns explicitly).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels import codes
from ray_canal.kernels.entry_values import (
    LIMBS_MAX,
    VALUE_BYTES_MAX,
    digits_back,
    fixed_back,
    integer_back,
    latin1_back,
    signed,
    unsigned,
)
from ray_canal.kernels.jit import kernel
from ray_canal.kernels.memory import copy, load32

NO_SPACE: Final = -1

# Columns of `columns`: one record (int64) for each column of each table, tables one after the
# other.
C_CODE, C_SQL, C_WIDE, C_NULL_SQL, C_PARAMETER = 0, 1, 2, 3, 4
C_MIDDLE, C_MIDDLE_BYTES, C_TAIL, C_TAIL_BYTES = 5, 6, 7, 8
C_VALIDITY, C_VALUES, C_DATA = 9, 10, 11  # before side; the after side's are 3 further
C_STILL: Final = 15  # never `updated`: a hidden key
COLUMN_FIELDS: Final = 16
LEFT_OUT: Final = -1  # C_CODE of a column that no entry shows
# Columns of `tables`.
T_FIRST, T_COUNT, T_NAMES, T_NAMES_BYTES = 0, 1, 2, 3
TABLE_FIELDS: Final = 4
# Columns of `gtids`: blobs of header props, and of header.gtid.
G_PROPS, G_PROPS_BYTES, G_SET, G_SET_BYTES = 0, 1, 2, 3
GTID_FIELDS: Final = 4

_BEGIN, _END = 1, 3
_INSERT, _DELETE, _QUERY = 1, 3, 7
_XACOMMIT, _XAROLLBACK = 13, 14
_XA_TYPE = np.frombuffer(b"XA_TYPE", np.uint8)
_XA_XID = np.frombuffer(b"XA_XID", np.uint8)
_XA_START = np.frombuffer(b"XA START", np.uint8)
_XA_END = np.frombuffer(b"XA END", np.uint8)
_XA_COMMIT = np.frombuffer(b"XA COMMIT", np.uint8)
_XA_ROLLBACK = np.frombuffer(b"XA ROLLBACK", np.uint8)


@kernel
def _varint_back(value, buf, pos):  # type: ignore[no-untyped-def]
    """A varint; negative numbers take ten bytes."""
    count = 1
    rest = (value >> 7) & 0x01FFFFFFFFFFFFFF
    while rest:
        rest >>= 7
        count += 1
    pos -= count
    for i in range(count):
        byte = value & 127
        value = (value >> 7) & 0x01FFFFFFFFFFFFFF
        buf[pos + i] = byte | 128 if i < count - 1 else byte
    return pos


@kernel
def _number_back(tag, value, buf, pos):  # type: ignore[no-untyped-def]
    pos = _varint_back(value, buf, pos) - 1
    buf[pos] = tag
    return pos


@kernel
def _close_back(tag, end, buf, pos):  # type: ignore[no-untyped-def]
    """Length and tag before the message that lies between pos and end."""
    return _number_back(tag, end - pos, buf, pos)


@kernel
def _blob_back(source, at, size, buf, pos):  # type: ignore[no-untyped-def]
    copy(buf, pos - size, source, at, size)
    return pos - size


@kernel
def _text_back(tag, source, at, size, buf, pos):  # type: ignore[no-untyped-def]
    return _close_back(tag, pos, buf, _blob_back(source, at, size, buf, pos))


@kernel
def _is_null(code, arena, validity, values, row):  # type: ignore[no-untyped-def]
    """NULL, and not a temporal value that no calendar has."""
    if (arena[validity + (row >> 3)] >> (row & 7)) & 1:
        return False
    if code == codes.DATE:
        return signed(arena, values + 4 * row, 4) == codes.NULL_SLOT32
    if code == codes.DATETIME or code == codes.TIMESTAMP:
        return signed(arena, values + 8 * row, 8) == codes.NULL_SLOT64
    return True


@kernel
def _same(code, width, arena, column, row):  # type: ignore[no-untyped-def]
    """Whether a column's before and after image are equal."""
    b_validity, b_values, b_data = column[C_VALIDITY], column[C_VALUES], column[C_DATA]
    a_validity, a_values, a_data = column[C_VALIDITY + 3], column[C_VALUES + 3], column[C_DATA + 3]
    b_null = _is_null(code, arena, b_validity, b_values, row)
    a_null = _is_null(code, arena, a_validity, a_values, row)
    if b_null or a_null:
        return b_null and a_null
    size = width
    b_at, a_at = b_values + width * row, a_values + width * row
    if code >= codes.FIRST_VARIABLE:
        b_start, a_start = load32(arena, b_at), load32(arena, a_at)
        size = load32(arena, b_at + 4) - b_start
        if load32(arena, a_at + 4) - a_start != size:
            return False
        b_at, a_at = b_data + b_start, a_data + a_start
    for i in range(size):
        if arena[b_at + i] != arena[a_at + i]:
            return False
    return True


@kernel
def _has_top_bit(code, arena, values, row):  # type: ignore[no-untyped-def]
    if code == codes.U8:
        return arena[values + row] >= 128
    if code == codes.U16:
        return arena[values + 2 * row + 1] >= 128
    if code == codes.U24:
        return unsigned(arena, values + 4 * row, 4) >= 1 << 23
    if code == codes.U32:
        return arena[values + 4 * row + 3] >= 128
    return arena[values + 8 * row + 7] >= 128


@kernel
def _column_back(
    column, index, side, row, updated, width, arena, blobs, zone, limbs, scratch, buf, pos
):  # type: ignore[no-untyped-def]
    """One Column message with its tag; NO_SPACE if it does not fit."""
    code = column[C_CODE]
    validity = column[C_VALIDITY + 3 * side]
    values = column[C_VALUES + 3 * side]
    start = size = 0
    if code >= codes.FIRST_VARIABLE:
        start = load32(arena, values + 4 * row)
        size = load32(arena, values + 4 * row + 4) - start
        start += column[C_DATA + 3 * side]
    need = VALUE_BYTES_MAX + 2 * size + column[C_MIDDLE_BYTES] + column[C_TAIL_BYTES]
    if pos < need:
        return NO_SPACE
    end = pos
    pos = _blob_back(blobs, column[C_TAIL], column[C_TAIL_BYTES], buf, pos)
    null = _is_null(code, arena, validity, values, row)
    sql_type = column[C_SQL]
    if null:
        sql_type = column[C_NULL_SQL]
    else:
        value_end = pos
        if code == codes.TEXT or code == codes.JSON:
            pos = _blob_back(arena, start, size, buf, pos)
        elif code >= codes.FIRST_VARIABLE:
            pos = latin1_back(arena, start, start + size, buf, pos)
        else:
            pos = fixed_back(
                code, arena, values, row, column[C_PARAMETER], zone[0], zone[1], limbs, scratch,
                buf, pos,
            )  # fmt: skip
        pos = _close_back(0x42, value_end, buf, pos)
        if column[C_WIDE] != sql_type and _has_top_bit(code, arena, values, row):
            sql_type = column[C_WIDE]
    pos -= 4
    buf[pos] = 0x28
    buf[pos + 1] = 1 if updated else 0
    buf[pos + 2] = 0x30
    buf[pos + 3] = 1 if null else 0
    pos = _blob_back(blobs, column[C_MIDDLE], column[C_MIDDLE_BYTES], buf, pos)
    pos = _number_back(0x10, sql_type, buf, pos)
    pos = _number_back(0x08, index, buf, pos)
    return _close_back(0x0A if side == 0 else 0x12, end, buf, pos)


@kernel
def _present(arena, bitmap, index):  # type: ignore[no-untyped-def]
    return bitmap < 0 or (arena[bitmap + (index >> 3)] >> (index & 7)) & 1 != 0


@kernel
def _row_back(event, row, table, columns, widths, arena, blobs, zone, limbs, scratch, buf, pos):  # type: ignore[no-untyped-def]
    """One RowData message with its tag."""
    first, count = table[T_FIRST], table[T_COUNT]
    kind = event["event_type"]
    before_bits = np.int64(-1)
    after_bits = np.int64(-1)
    if event["present"] >= 0:
        before_bits = np.int64(event["present"])
        after_bits = before_bits + (count + 7) // 8
    end = pos
    for side in range(1, -1, -1):
        if (side == 0 and kind == _INSERT) or (side == 1 and kind == _DELETE):
            continue
        bits = after_bits if side else before_bits
        for index in range(count - 1, -1, -1):
            column = columns[first + index]
            if column[C_CODE] == LEFT_OUT or not _present(arena, bits, index):
                continue
            updated = False
            if side == 1 and not column[C_STILL]:
                updated = (
                    kind == _INSERT
                    or not _present(arena, before_bits, index)
                    or not _same(column[C_CODE], widths[column[C_CODE]], arena, column, row)
                )
            pos = _column_back(
                column, index, side, row, updated, 0, arena, blobs, zone, limbs, scratch, buf, pos
            )
            if pos < 0:
                return pos
    if pos < VALUE_BYTES_MAX:
        return NO_SPACE
    return _close_back(0x62, end, buf, pos)


@kernel
def _header_back(event, names, names_at, names_bytes, gtids, blobs, journal_bytes, buf, pos):  # type: ignore[no-untyped-def]
    """The Header message with its tag (field 1 of Entry)."""
    end = pos
    if event["gtid"] >= 0 and len(gtids):
        gtid = gtids[event["gtid"]]
        if pos < VALUE_BYTES_MAX + gtid[G_SET_BYTES] + gtid[G_PROPS_BYTES] + names_bytes:
            return NO_SPACE
        pos = _blob_back(blobs, gtid[G_SET], gtid[G_SET_BYTES], buf, pos)
        pos = _rows_count_back(event, buf, pos)
        pos = _blob_back(blobs, gtid[G_PROPS], gtid[G_PROPS_BYTES], buf, pos)
    else:
        pos = _rows_count_back(event, buf, pos)
    if pos < VALUE_BYTES_MAX + names_bytes + journal_bytes:
        return NO_SPACE
    if event["event_type"]:
        pos = _number_back(0x58, np.int64(event["event_type"]), buf, pos)
    pos = _number_back(0x50, np.int64(event["length"]), buf, pos)
    pos = _blob_back(names, names_at, names_bytes, buf, pos)
    pos -= 2
    buf[pos] = 0x38
    buf[pos + 1] = 2
    pos = _number_back(0x30, np.int64(event["timestamp"]) * 1000, buf, pos)
    pos -= 7
    buf[pos] = 0x2A
    buf[pos + 1] = 5
    buf[pos + 2] = 85  # UTF-8
    buf[pos + 3] = 84
    buf[pos + 4] = 70
    buf[pos + 5] = 45
    buf[pos + 6] = 56
    pos = _number_back(0x20, np.int64(event["server_id"]), buf, pos)
    pos = _number_back(0x18, np.int64(event["position"]), buf, pos)
    pos = _blob_back(blobs, 0, journal_bytes, buf, pos)  # journal name's field lies first
    pos -= 2
    buf[pos] = 0x08
    buf[pos + 1] = 1
    return _close_back(0x0A, end, buf, pos)


@kernel
def _rows_count_back(event, buf, pos):  # type: ignore[no-untyped-def]
    """props: rowsCount, on row entries."""
    if event["rows"] <= 0 or pos < VALUE_BYTES_MAX:
        return pos
    end = pos
    pos = _close_back(0x12, pos, buf, digits_back(np.int64(event["rows"]), 1, buf, pos))
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
    return _close_back(0x62, end, buf, pos)


@kernel
def _letters_back(letters, count, buf, pos):  # type: ignore[no-untyped-def]
    copy(buf, pos - count, letters, 0, count)
    return pos - count


@kernel
def _xa_props_back(tag, letters, count, query, arena, buf, pos):  # type: ignore[no-untyped-def]
    """props XA_TYPE (`XA START`, …: the statement's first `count` letters) and XA_XID (what is
    behind them in the statement, its blank included)."""
    end = pos
    size = max(np.int64(query["sql_bytes"]) - count, 0)
    pos = _text_back(0x12, arena, query["sql"] + count, size, buf, pos)
    pos = _close_back(0x0A, pos, buf, _letters_back(_XA_XID, 6, buf, pos))
    pos = _close_back(tag, end, buf, pos)
    end = pos
    pos = _close_back(0x12, pos, buf, _letters_back(letters, count, buf, pos))
    pos = _close_back(0x0A, pos, buf, _letters_back(_XA_TYPE, 7, buf, pos))
    return _close_back(tag, end, buf, pos)


@kernel
def _transaction_back(event, queries, arena, buf, pos):  # type: ignore[no-untyped-def]
    """storeValue of BEGIN and END."""
    end = pos
    begins = event["kind"] == _BEGIN
    if begins and event["aux"]:
        pos = _number_back(0x20, np.int64(event["aux"]), buf, pos)
    if event["present"] >= 0:
        query = queries[event["present"]]
        if pos < VALUE_BYTES_MAX + query["sql_bytes"]:
            return NO_SPACE
        if begins:
            pos = _xa_props_back(0x1A, _XA_START, 8, query, arena, buf, pos)
        else:
            pos = _xa_props_back(0x1A, _XA_END, 6, query, arena, buf, pos)
    if not begins:
        pos = _close_back(0x12, pos, buf, integer_back(np.int64(event["aux"]), buf, pos))
    return _close_back(0x1A, end, buf, pos)


@kernel
def _query_back(event, query, arena, buf, pos):  # type: ignore[no-untyped-def]
    """storeValue of a QUERY or DDL entry."""
    if pos < VALUE_BYTES_MAX + 2 * query["sql_bytes"] + query["ddl_schema_bytes"]:
        return NO_SPACE
    end = pos
    stands_for_rows = event["event_type"] <= _DELETE  # statement format: DML as text
    if query["ddl_schema_bytes"] > 0 and (query["is_ddl"] or stands_for_rows):
        size = np.int64(query["ddl_schema_bytes"])
        pos = _text_back(0x72, arena, query["ddl_schema"], size, buf, pos)
    if event["event_type"] == _XACOMMIT:
        pos = _xa_props_back(0x6A, _XA_COMMIT, 9, query, arena, buf, pos)
    if event["event_type"] == _XAROLLBACK:
        pos = _xa_props_back(0x6A, _XA_ROLLBACK, 11, query, arena, buf, pos)
    pos = _text_back(0x5A, arena, query["sql"], np.int64(query["sql_bytes"]), buf, pos)
    if query["is_ddl"] or stands_for_rows:
        pos -= 2
        buf[pos] = 0x50
        buf[pos + 1] = query["is_ddl"]
    pos = _number_back(0x10, np.int64(event["event_type"]), buf, pos)
    return _close_back(0x1A, end, buf, pos)


@kernel
def _query_names_back(event, query, arena, buf, pos):  # type: ignore[no-untyped-def]
    """header.schemaName and tableName of a query, where it has them."""
    if query["table_bytes"] >= 0:
        pos = _text_back(0x4A, arena, query["table"], np.int64(query["table_bytes"]), buf, pos)
    if query["schema_bytes"] >= 0:
        pos = _text_back(0x42, arena, query["schema"], np.int64(query["schema_bytes"]), buf, pos)
    return pos


@kernel
def _rows_back(event, table, columns, widths, arena, blobs, zone, limbs, scratch, buf, pos):  # type: ignore[no-untyped-def]
    """storeValue of a row entry."""
    end = pos
    for row in range(event["row"] + event["rows"] - 1, event["row"] - 1, -1):
        pos = _row_back(
            event, row, table, columns, widths, arena, blobs, zone, limbs, scratch, buf, pos
        )
        if pos < 0:
            return pos
    if pos < VALUE_BYTES_MAX:
        return NO_SPACE
    pos -= 2
    buf[pos] = 0x50  # isDdl = false
    buf[pos + 1] = 0
    pos = _number_back(0x10, np.int64(event["event_type"]), buf, pos)
    pos = _number_back(0x08, np.int64(event["aux"]), buf, pos)
    return _close_back(0x1A, end, buf, pos)


@kernel
def write_entries(
    chosen, done, events, queries, tables, columns, widths, gtids, arena, blobs, journal_bytes,
    transitions, offsets, delimited, buf, used, starts,
):  # type: ignore[no-untyped-def] # fmt: skip
    """Write entries chosen[done - 1], chosen[done - 2], … 0 before the `used` bytes at the buffer's
    end.

    starts[i] becomes the distance from the buffer's end to entry i's first byte. Returns (entries
    not yet written, bytes used); not zero entries left means that the buffer is too small: grow it,
    keep its end, and call again.
    """
    limbs = np.zeros(LIMBS_MAX, np.int64)
    scratch = np.empty(VALUE_BYTES_MAX, np.uint8)
    zone = (transitions, offsets)
    pos = len(buf) - used
    while done > 0:
        event = events[chosen[done - 1]]
        if pos < 2 * VALUE_BYTES_MAX:
            return done, used
        end = pos
        names_at = np.int64(0)
        names_bytes = np.int64(4)
        if event["kind"] == _BEGIN or event["kind"] == _END:
            pos = _transaction_back(event, queries, arena, buf, pos)
        elif event["table"] >= 0:
            table = tables[event["table"]]
            names_at, names_bytes = table[T_NAMES], table[T_NAMES_BYTES]
            pos = _rows_back(
                event, table, columns, widths, arena, blobs, zone, limbs, scratch, buf, pos
            )
        else:
            pos = _query_back(event, queries[event["aux"]], arena, buf, pos)
        if pos < 0:
            return done, used
        pos -= 2
        buf[pos] = 0x10  # entryType
        buf[pos + 1] = event["kind"]
        if event["kind"] == 2 and event["table"] < 0:
            query = queries[event["aux"]]
            size = 32 + np.int64(query["schema_bytes"]) + np.int64(query["table_bytes"])
            names = np.empty(size, np.uint8)
            names_at = np.int64(_query_names_back(event, query, arena, names, size))
            pos = _header_back(
                event, names, names_at, size - names_at, gtids, blobs, journal_bytes, buf, pos
            )
        elif event["table"] >= 0:
            pos = _header_back(
                event, blobs, names_at, names_bytes, gtids, blobs, journal_bytes, buf, pos
            )
        else:
            # Empty schema and table names lie behind the journal name.
            pos = _header_back(
                event, blobs, journal_bytes, 4, gtids, blobs, journal_bytes, buf, pos
            )
        if pos < 0 or pos < 16:
            return done, used
        if delimited:
            pos = _varint_back(end - pos, buf, pos)
        done -= 1
        used = len(buf) - pos
        starts[done] = used
    return done, used
