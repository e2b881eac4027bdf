"""Split row events by the partitions that their rows go to, as Canal does for message queues."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.render.arrays import RowArrays
from ray_canal.kernels.render.entry_columns import C_CODE, LEFT_OUT, is_present
from ray_canal.kernels.render.flat_rows import F_HASHED, FT_COUNT, FT_FIRST, side_bitmap, value_hash
from ray_canal.kernels.render.flat_text import partition_of

# How a table's messages find their partition, in `routes`: a line of mode, number of partitions,
# and the one partition (ONE) or what the keys' hash begins with (BY_ROW).
R_MODE, R_PARTITIONS, R_VALUE = 0, 1, 2
ROUTE_FIELDS: Final = 3
ONE, BY_ROW = 0, 1
WHOLE: Final = -1
"""A message's place in `order` if it has all rows of its event."""

_UPDATE: Final = 2
_DELETE: Final = 3
MOVE_FIELDS: Final = 4


@inlined
def _row_partition(rows, event, side, row, route, text):
    """Return the partition of one row, by the texts of its keys before (0) or after the change."""
    table, tables = event["table"], rows.tables
    start, count = tables[table, FT_FIRST], tables[table, FT_COUNT]
    bitmap = side_bitmap(event, side, count, rows.arena)
    found = route[R_VALUE]
    for index in range(count):
        p = start + index
        if rows.columns[p, F_HASHED] and is_present(rows.arena, bitmap, index):
            found ^= value_hash(rows, p, side, row, text)
    return partition_of(found, route[R_PARTITIONS])


@without_refcounts
def _has_columns(event, tables, columns, arena):
    """Tell if an event's rows have any column that is shown."""
    start, count = tables[event["table"], FT_FIRST], tables[event["table"], FT_COUNT]
    bitmap = side_bitmap(event, 0 if event["event_type"] == _DELETE else 1, count, arena)
    for index in range(count):
        if columns[start + index, C_CODE] != LEFT_OUT and is_present(arena, bitmap, index):
            return True
    return False


@inlined
def _put_message(messages, line, number, first, rows, partition):
    """Fill a line of `messages`."""
    messages[line, 0] = number
    messages[line, 1] = first
    messages[line, 2] = rows
    messages[line, 3] = partition


@inlined
def _group_rows(event, number, total, used, room, order, messages):
    """Put an event's rows into `order` from `used` on, partition by partition, with a line of
    `messages` from `total` on for each; return the number of lines.

    places[i] of `room` is row i's partition, counts[p] how many rows partition p gets."""
    _, counts, places = room
    first, rows = np.int64(event["row"]), np.int64(event["rows"])
    for partition in range(counts.size):
        if counts[partition] == 0:
            continue
        _put_message(messages, total, number, used, counts[partition], partition)
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


@without_refcounts
def moved_rows(chosen, row_fields, routes, text, moves):
    """Fill `moves` (entry, row, partition before, and after) with all rows of each UPDATE that
    moves a row to another partition; return how many. It has a line for each row.

    Rows without all columns are left out. The other arguments are those of `split_by_partition`.
    """
    rows = RowArrays(*row_fields)
    total = 0
    for number in chosen:
        event = rows.events[number]
        table = event["table"]
        if event["event_type"] != _UPDATE or event["present"] >= 0 or table < 0:
            continue
        if routes[table, R_MODE] != BY_ROW:
            continue
        here, is_moved = total, False
        for i in range(event["rows"]):
            row = np.int64(event["row"]) + i
            before = _row_partition(rows, event, 0, row, routes[table], text)
            after = _row_partition(rows, event, 1, row, routes[table], text)
            is_moved |= before != after
            moves[here, 0] = number
            moves[here, 1] = row
            moves[here, 2] = before
            moves[here, 3] = after
            here += 1
        if is_moved:
            total = here
    return total


@without_refcounts
def split_by_partition(chosen, by_entry, fixed, row_fields, routes, room, order, messages):
    """Fill the lines of `messages` (entry, place in `order`, rows, partition); return how many.

    There is a line for each chosen entry; for one whose rows choose their partition, a line for
    each partition that they go to, in the partitions' order. Statements go to the partition
    `fixed`, and so do rows without any column, except for entries (`by_entry`). The row fields are
    those of RowArrays. `order` gets the rows' numbers; `messages` has a line for each row and each
    entry without. `room`: bytes for a text, a number for the most partitions (zero before and
    after), a number for the most rows of an event.
    """
    rows = RowArrays(*row_fields)
    text, counts, places = room
    total = used = 0
    for number in chosen:
        event = rows.events[number]
        table, size = event["table"], np.int64(event["rows"])
        _put_message(messages, total, number, WHOLE, size, fixed)
        if (
            table < 0
            or size == 0
            or (not by_entry and not _has_columns(event, rows.tables, rows.columns, rows.arena))
        ):
            total += 1
            continue
        if routes[table, R_MODE] != BY_ROW:
            messages[total, 3] = routes[table, R_VALUE]
            total += 1
            continue
        for i in range(size):
            row = np.int64(event["row"]) + i
            side = 0 if event["event_type"] == _DELETE else 1
            place = _row_partition(rows, event, side, row, routes[table], text)
            places[i] = place
            counts[place] += 1
        if counts[places[0]] == size:
            counts[places[0]] = 0
            messages[total, 3] = places[0]
            total += 1
            continue
        total = _group_rows(event, number, total, used, room, order, messages)
        used += size
    return total
