"""Canal's FlatMessage as JSON, one message for each row event (or for each partition that its rows
go to) and statement, written backwards (entry_bytes.py says why).

Keys are in Canal's order: data, database, es, gtid, id, isDdl, mysqlType, old, pkNames, sql,
sqlType, table, ts, type.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.digits import digits_back, integer_back
from ray_canal.kernels.base.jit import bare, inlined
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
    F_HASHED,
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
    value_hash,
)
from ray_canal.kernels.render.flat_text import ESCAPED_MAX, escaped_back, partition_of
from ray_canal.kernels.render.protobuf import blob_back, short_back

# How a table's messages find their partition, in `routes`: a line of mode, number of partitions,
# and the one partition (ONE) or what the keys' hash begins with (BY_ROW).
R_MODE, R_PARTITIONS, R_VALUE = 0, 1, 2
ROUTE_FIELDS: Final = 3
ONE, BY_ROW = 0, 1
WHOLE: Final = -1
"""A message's place in `order` if it has all rows of its event."""

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
    return blob_back(piece, 0, piece.size, buf, pos)


@inlined
def _gtid_line(event, gtids):
    return event["gtid"] if event["gtid"] >= 0 else gtids.shape[0] - 1


@inlined
def _stamp_back(event, number, gtids, blobs, buf, pos):
    """The number behind `"es":`, the gtid, and the id."""
    pos = integer_back(number, buf, pos)
    line = _gtid_line(event, gtids)
    pos = blob_back(blobs, gtids[line, 0], gtids[line, 1], buf, pos)
    return digits_back(np.int64(event["timestamp"]) * 1000, 1, buf, pos)


@bare
def _deviates(event, tables, columns, arena, row):
    """Whether a value of this row has another sqlType than its column's."""
    start = tables[event["table"], FT_FIRST]
    side = 0 if event["event_type"] == _DELETE else 1
    for p in range(start, start + tables[event["table"], FT_COUNT]):
        if columns[p, F_VARIES] and columns[p, C_CODE] != LEFT_OUT:
            if _sql_type(columns, p, side, arena, row) != F_SQL_TYPE:
                return True
    return False


@inlined
def _sql_type(columns, p, side, arena, row):
    """Which of a column's pieces says the sqlType of this row's value."""
    code, values = columns[p, C_CODE], columns[p, C_VALUES + 3 * side]
    if is_null(code, arena, columns[p, C_VALIDITY + 3 * side], values, row):
        return F_NULL_SQL_TYPE
    if columns[p, C_IS_WIDENED] and has_top_bit(code, arena, values, row):
        return F_WIDE_SQL_TYPE
    return F_SQL_TYPE


@bare
def _pieces_back(kind, event, tables, columns, arena, blobs, buf, pos):
    """The members of mysqlType (F_MYSQL_TYPE) or sqlType (F_SQL_TYPE), or the names of keys
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


@bare
def _query_back(event, query, number, gtids, tails, arena, blobs, buf, pos):
    """The message of a statement; NO_SPACE."""
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


@bare
def write_messages(
    entries, firsts, rows, numbers, done, order, is_exact, events, queries, tables, columns, widths,
    gtids, tails, arena, blobs, transitions, offsets, limbs, scratch, since, buf, used, starts,
): # fmt: skip
    """Write messages done - 1, done - 2, … 0 before the `used` bytes at the buffer's end.

    Message i is of the event entries[i]: of all its rows (firsts[i] WHOLE), or of the rows[i] rows
    that `order` has from firsts[i] on. `numbers`: ids. `gtids`: a blob of `,"gtid":"…","id":` for
    each of the chunk's GTIDs, and of that without one. `tails`: a blob of `TS,"type":"…"}` for each
    event type. starts[i] becomes the distance from the buffer's end to message i's first byte.
    Returns (messages not yet written, bytes used): grow the buffer, keep its end, and call again.
    `limbs`, `scratch`, `since`: room, int64[LIMBS_MAX], uint8[VALUE_BYTES_MAX], int64[columns].
    """
    pos = np.int64(len(buf) - used)
    known = np.int64(-1)  # the event that `since` is of
    while done > 0:
        m = done - 1
        number = entries[m]
        event = events[number]
        table = event["table"]
        if table < 0:
            pos = _query_back(
                event, queries[event["aux"]], numbers[m], gtids, tails, arena, blobs, buf, pos
            )
            if pos < 0:
                return done, used
            done -= 1
            used = len(buf) - pos
            starts[done] = used
            continue
        kind = event["event_type"]
        room = tables[table, FT_ROOM] + gtids[_gtid_line(event, gtids), 1]
        if pos < room:
            return done, used
        last = np.int64(event["row"]) + event["rows"] - 1
        plain = event["present"] < 0 and rows[m] > 0
        if plain and tables[table, FT_VARIES]:
            plain = not _deviates(event, tables, columns, arena, last)
        pos = short_back(blobs, tails[kind, 0], tails[kind, 1], buf, pos)
        if not plain:
            pos = blob_back(blobs, tables[table, FT_TABLE], tables[table, FT_TABLE + 1], buf, pos)
            pos = _pieces_back(F_SQL_TYPE, event, tables, columns, arena, blobs, buf, pos)
            pos = _all_back(_SQL_TYPE, buf, pos)
            pos = _pieces_back(F_NAME, event, tables, columns, arena, blobs, buf, pos)
            pos = _all_back(_PK_NAMES, buf, pos)
            if kind != _UPDATE or rows[m] == 0:
                pos = _all_back(_NULL, buf, pos)
        elif kind == _UPDATE:
            pos = blob_back(
                blobs, tables[table, FT_FROM_OLD], tables[table, FT_FROM_OLD + 1], buf, pos
            )
        if kind == _UPDATE and rows[m] > 0:
            if known != number:
                first_updates(event, tables, columns, widths, arena, since)
                known = number
            pos = old_back(
                event, order, firsts[m], rows[m], since, is_exact, tables, columns, widths, arena,
                blobs, transitions, offsets, limbs, scratch, buf, pos,
            )  # fmt: skip
            if pos < room:
                return done, used
        if not plain:
            pos = _all_back(_OLD, buf, pos)
            pos = _pieces_back(F_MYSQL_TYPE, event, tables, columns, arena, blobs, buf, pos)
            pos = _all_back(_MYSQL_TYPE, buf, pos)
        elif kind == _UPDATE:
            pos = blob_back(
                blobs, tables[table, FT_UP_TO_OLD], tables[table, FT_UP_TO_OLD + 1], buf, pos
            )
        else:
            pos = blob_back(blobs, tables[table, FT_REST], tables[table, FT_REST + 1], buf, pos)
        pos = _stamp_back(event, numbers[m], gtids, blobs, buf, pos)
        pos = short_back(
            blobs, tables[table, FT_DATABASE], tables[table, FT_DATABASE + 1], buf, pos
        )
        pos = data_back(
            event, order, firsts[m], rows[m], tables, columns, arena, blobs, transitions, offsets,
            limbs, scratch, buf, pos,
        )  # fmt: skip
        if pos < VALUE_BYTES_MAX:
            return done, used
        pos = _all_back(_OPEN, buf, pos)
        done -= 1
        used = len(buf) - pos
        starts[done] = used
    return done, used


@bare
def _row_partition(
    event, row, route, start, count, columns, arena, transitions, offsets, limbs, scratch, text
):
    """The partition of one row, by its keys' texts."""
    side = 0 if event["event_type"] == _DELETE else 1
    bitmap = side_bitmap(event, side, count, arena)
    found = route[R_VALUE]
    for index in range(count):
        p = start + index
        if columns[p, F_HASHED] and is_present(arena, bitmap, index):
            found ^= value_hash(
                columns, p, side, row, arena, transitions, offsets, limbs, scratch, text
            )
    return partition_of(found, route[R_PARTITIONS])


@bare
def _has_columns(event, tables, columns, arena):
    """Whether its rows have any column that is shown."""
    start, count = tables[event["table"], FT_FIRST], tables[event["table"], FT_COUNT]
    bitmap = side_bitmap(event, 0 if event["event_type"] == _DELETE else 1, count, arena)
    for index in range(count):
        if columns[start + index, C_CODE] != LEFT_OUT and is_present(arena, bitmap, index):
            return True
    return False


@bare
def split_by_partition(
    chosen, by_entry, fixed, events, tables, columns, routes, arena, transitions, offsets,
    limbs, scratch, text, counts, places, order, messages,
): # fmt: skip
    """Make the lines of `messages` (entry, place in `order`, rows, partition); how many there are.

    A line for each of the chosen entries; of one whose rows choose their partition, a line for each
    partition that they go to, in the partitions' order. Statements go to the partition `fixed`, and
    so do rows without any column, but for entries (`by_entry`). `order` gets those rows' numbers,
    `places` has room for one event's rows, `counts` (zero before and after) for the most
    partitions, `messages` for a line for each row and each entry without.
    """
    total = used = 0
    for number in chosen:
        event = events[number]
        table, rows = event["table"], np.int64(event["rows"])
        messages[total, 0] = number
        messages[total, 1] = WHOLE
        messages[total, 2] = rows
        messages[total, 3] = fixed
        if table < 0 or rows == 0:
            total += 1
            continue
        if not by_entry and not _has_columns(event, tables, columns, arena):
            total += 1
            continue
        if routes[table, R_MODE] != BY_ROW:
            messages[total, 3] = routes[table, R_VALUE]
            total += 1
            continue
        start, count = tables[table, FT_FIRST], tables[table, FT_COUNT]
        partitions = routes[table, R_PARTITIONS]
        first = np.int64(event["row"])
        for i in range(rows):
            place = _row_partition(
                event, first + i, routes[table], start, count, columns, arena, transitions, offsets,
                limbs, scratch, text,
            )  # fmt: skip
            places[i] = place
            counts[place] += 1
        if counts[places[0]] == rows:
            counts[places[0]] = 0
            messages[total, 3] = places[0]
            total += 1
            continue
        for partition in range(partitions):
            if counts[partition] == 0:
                continue
            messages[total, 0] = number
            messages[total, 1] = used
            messages[total, 2] = counts[partition]
            messages[total, 3] = partition
            total += 1
            here = used
            used += counts[partition]
            counts[partition] = here
        for i in range(rows):
            order[counts[places[i]]] = first + i
            counts[places[i]] += 1
        for i in range(rows):
            counts[places[i]] = 0
    return total
