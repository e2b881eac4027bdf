"""Keep a chunk's TABLE_MAPs while its events are walked: the distinct ones, and which of them each
table id stands for in a statement."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ray_canal.kernels.base.crc import crc32
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load_le, same_bytes

# Rows of `maps`.
M_START: Final = 0
M_END: Final = 1
M_HASH: Final = 2
M_AT: Final = 3  # offset of the event that brought it first
M_ASKED: Final = 4  # 1: it has a row event
MAP_FIELDS: Final = 5

DUMMY_TABLE_ID: Final = 0xFFFFFF
"""Table id of a row event without rows, which ends a statement."""

# Fields of `counts`.
MAPS: Final = 0  # distinct TABLE_MAPs
_IDS: Final = 1  # table ids
COUNTS: Final = 2


class TableMaps(NamedTuple):
    """TABLE_MAPs and hash tables to find them by.

    `maps` has a column per distinct body, without the table id, which changes when a table is
    merely reopened. The hash tables have one power of two each, twice the columns of `maps` or
    more, and are filled with -1: distinct bodies by hash, table ids, the last map of each table id,
    and the statement of that. (A TABLE_MAP counts to its statement's end, as for servers and in
    `scan`.) `counts` is int64[COUNTS], zero before.
    """

    maps: Any
    slots: Any
    ids: Any
    active: Any
    since: Any
    counts: Any


@without_refcounts
def _intern(data, start, end, at, maps, count, slots):
    """Return the column of `maps` of the TABLE_MAP data[start:end]; `count` if it is new."""
    digest = crc32(data, start, end)
    slot = digest & (slots.size - 1)
    while slots[slot] >= 0:
        k = slots[slot]
        first = maps[M_START, k]
        alike = maps[M_HASH, k] == digest and maps[M_END, k] - first == end - start
        if alike and same_bytes(data, first, start, end - start):
            return k
        slot = (slot + 1) & (slots.size - 1)
    slots[slot] = count
    maps[M_START, count] = start
    maps[M_END, count] = end
    maps[M_HASH, count] = digest
    maps[M_AT, count] = at
    maps[M_ASKED, count] = 0
    return count


@inlined
def _slot_of(ids, table_id):
    """Return the place of a table id, or the free one (-1) for it, in the open-addressed `ids`."""
    slot = ((table_id & 0x7FFFFFFF) * 0x9E3779B1 >> 8) & (ids.size - 1)
    while ids[slot] != table_id and ids[slot] != -1:
        slot = (slot + 1) & (ids.size - 1)
    return slot


@inlined
def note_map(data, place, id_bytes, statement, tables):
    """Note which map a TABLE_MAP's id stands for in a statement; return False if there is no room.

    `place`: offsets of the event, its body and its end. `id_bytes`: length of the id.
    """
    at, body, end = place
    maps, ids, active, counts = tables.maps, tables.ids, tables.active, tables.counts
    count = counts[MAPS]
    if count == maps.shape[1] or 2 * counts[_IDS] >= ids.size:
        return False
    table_id = load_le(data, body, id_bytes)
    slot = _slot_of(ids, table_id)
    k = active[slot]
    first = maps[M_START, k] if k >= 0 else 0
    start, size = body + id_bytes, end - body - id_bytes
    known = k >= 0 and maps[M_END, k] - first == size
    if not (known and same_bytes(data, first, start, size)):
        k = _intern(data, start, end, at, maps, count, tables.slots)
    counts[_IDS] += 0 if ids[slot] == table_id else 1
    counts[MAPS] += 1 if k == count else 0
    ids[slot] = table_id
    active[slot] = k
    tables.since[slot] = statement
    return True


@inlined
def map_of(table_id, statement, tables):
    """Return the column of the map that a table id stands for in a statement; -1 if none."""
    slot = _slot_of(tables.ids, table_id)
    return tables.active[slot] if tables.since[slot] == statement else -1
