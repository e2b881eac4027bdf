"""One pass over a chunk's events: checksums, positions, transactions, GTIDs, which table a row
belongs to.

Offsets are into the chunk's data. `events` gets a record per log entry (EVENT in binlog/chunk.py,
`table` an index in `maps`), `bodies` where its body begins and ends, `gtids` a GTID record per GTID
event and `seconds` its header's time, `maps` a column per distinct TABLE_MAP body (the table id
left out, for a table that is merely reopened).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.crc import crc32
from ray_canal.kernels.base.crc_run import fitting_run
from ray_canal.kernels.base.jit import bare, inlined
from ray_canal.kernels.base.memory import (
    load8,
    load16,
    load32,
    load64,
    load_le,
    same_bytes,
    set_word,
)
from ray_canal.kernels.framing import gtid_events as g
from ray_canal.kernels.framing.scan import is_begin

# Rows of `maps`.
M_START: Final = 0
M_END: Final = 1
M_HASH: Final = 2
M_AT: Final = 3  # offset of the event that brought it first
M_ASKED: Final = 4  # 1: a row event of it has been met
MAP_FIELDS: Final = 5

# KIND: Canal's EntryType, or a query that Python must look at.
KIND_BEGIN: Final = 1
KIND_ROWS: Final = 2
KIND_END: Final = 3
KIND_SPECIAL: Final = 9

ROLLS_BACK: Final = 4  # a query that is an END, too

# What a query means beyond that: XA's transactions begin and end with queries that have entries of
# their own.
XA_BEGINS: Final = 10
XA_ENDS: Final = 11

HEADER_BYTES: Final = 19

# Codes of `walk`.
OK: Final = 0
BAD_LENGTH: Final = 1
BAD_CHECKSUM: Final = 2
TRUNCATED: Final = 3
NO_TABLE_MAP: Final = 4
UNSUPPORTED: Final = 5
INCIDENT: Final = 6
BAD_FRAME: Final = 7
NO_ROOM: Final = 8  # not an error: more of something than the arrays hold; see `survey`
BAD_TAG: Final = 9

FRAME_BYTES: Final = HEADER_BYTES + 32
"""A frame stands before events that were compressed (binlog/inflate.py): an event of type
TRANSACTION_PAYLOAD whose body is four int64: start and length of the compressed event in its file,
offset of the first event behind the frame in what was decompressed, and how many bytes of events
behind the frame belong to it. They have no checksum."""

# A bit for each: versions 1 and 2 of INSERT, UPDATE, DELETE, and PARTIAL_UPDATE_ROWS.
_ROW_EVENTS: Final = 7 << 20 | 7 << 23 | 7 << 30 | 1 << 39
_BETWEEN_STATEMENTS: Final = 1 << 2 | 1 << 16 | 1 << 33 | 1 << 34 | 1 << 38 | 1 << 42
_DUMMY_TABLE_ID: Final = 0xFFFFFF
_START_TRANSACTION = np.frombuffer(b"START TRANSACTION", np.uint8)
_IGNORABLE_FLAG: Final = 0x80
_STANDALONE_FLAG: Final = 1
_STATEMENT_END_FLAG: Final = 1

# As in binlog/chunk.py.
_ROLLED_BACK: Final = 8
_ONE_PHASE: Final = 16


@bare
def survey(data):
    """(events, GTID events, TABLE_MAPs) up to the end or the first event of an impossible
    length."""
    events = gtids = maps = at = 0
    while at + HEADER_BYTES <= data.size:
        length = load32(data, at + 9)
        if length < HEADER_BYTES or length > data.size - at:
            break
        kind = data[at + 4]
        gtids += kind == 33 or kind == 34 or kind == 42 or kind == 162
        maps += kind == 19
        events += 1
        at += length
    return events, gtids, maps


@inlined
def _is_word(data, at, end, word):
    """Whether data[at:end] is these letters (upper case), in either case."""
    if end - at != word.size:
        return False
    for k in range(word.size):
        if data[at + k] & (0xDF if word[k] > 64 else 0xFF) != word[k]:
            return False
    return True


_BEGIN = np.frombuffer(b"BEGIN", np.uint8)
_COMMIT = np.frombuffer(b"COMMIT", np.uint8)
_ROLLBACK = np.frombuffer(b"ROLLBACK", np.uint8)
_XA_START = np.frombuffer(b"XA START ", np.uint8)  # as servers write it
_XA_END = np.frombuffer(b"XA END ", np.uint8)


@bare
def query_meaning(data, body, end):
    """KIND_BEGIN, KIND_END, ROLLS_BACK, XA_BEGINS, XA_ENDS, KIND_SPECIAL; -1: too short."""
    if end - body < 13:
        return -1
    text = body + 13 + load16(data, body + 11) + np.int64(data[body + 8]) + 1
    if text > end:
        return -1
    if is_begin(data, text, end):
        return KIND_BEGIN
    while end > text and (data[end - 1] <= 32 or data[end - 1] == 59):  # blanks, semicolons
        end -= 1
    if _is_word(data, text, end, _BEGIN):
        return KIND_BEGIN
    if _is_word(data, text, end, _COMMIT):
        return KIND_END
    if _is_word(data, text, end, _ROLLBACK):
        return ROLLS_BACK
    if _is_word(data, text, min(end, text + _XA_START.size), _XA_START):
        return XA_BEGINS
    if _is_word(data, text, min(end, text + _XA_END.size), _XA_END):
        return XA_ENDS
    return KIND_SPECIAL


@bare
def _intern(data, start, end, at, maps, count, slots):
    """Index in `maps` of the TABLE_MAP data[start:end]; `count` itself if it is new."""
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
    """Where a table id is, or would be, in the open-addressed `ids` (-1: free)."""
    slot = ((table_id & 0x7FFFFFFF) * 0x9E3779B1 >> 8) & (ids.size - 1)
    while ids[slot] != table_id and ids[slot] != -1:
        slot = (slot + 1) & (ids.size - 1)
    return slot


@inlined
def _table_map(
    data, body, end, at, id_bytes, maps, count, slots, ids, active, since, statement
):
    """Note what a table id stands for in this statement. How many maps and ids are new: 0 or 1
    each."""
    table_id = load_le(data, body, id_bytes)
    slot = _slot_of(ids, table_id)
    k = active[slot]
    first = maps[M_START, k] if k >= 0 else 0
    size = end - body - id_bytes
    known = k >= 0 and maps[M_END, k] - first == size
    if not (known and same_bytes(data, first, body + id_bytes, size)):
        k = _intern(data, body + id_bytes, end, at, maps, count, slots)
    new_id = 0 if ids[slot] == table_id else 1
    ids[slot] = table_id
    active[slot] = k
    since[slot] = statement
    return 1 if k == count else 0, new_id


@bare
def _opens_transaction(data, body, end):
    """Whether it is MySQL's atomic CREATE TABLE … SELECT: its rows follow, under one XID."""
    start = end - _START_TRANSACTION.size
    return start >= body and _is_word(data, start, end, _START_TRANSACTION)


@inlined
def _row_event_type(kind):
    """Canal's EventType: INSERT 1, UPDATE 2, DELETE 3."""
    if kind == 39:  # PARTIAL_UPDATE_ROWS
        return 2
    return kind - (19 if kind <= 22 else 22 if kind <= 25 else 29)


@inlined
def _has_no_entry(kind, mariadb):
    """Known events that no entry shows: FORMAT_DESCRIPTION, ROTATE, STOP, heartbeats, lists of
    GTIDs, those of group replication, XA_PREPARE, and the file of a LOAD DATA statement."""
    return (
        kind == 15 or kind == 4 or kind == 3 or kind == 27 or kind == 41 or kind == 35
        or kind == 36 or kind == 37 or kind == 38 or kind == 9 or kind == 11 or kind == 17
        or (mariadb and (kind == 161 or kind == 163))
    )  # fmt: skip


@inlined
def _ends_statement(kind, mariadb):
    """1: none goes on behind such an event (QUERY, XID, XA_PREPARE, a GTID), else 0. Row events
    say it themselves."""
    if kind == 162:
        return 1 if mariadb else 0
    return _BETWEEN_STATEMENTS >> kind & 1 if kind < 64 else 0


@inlined
def _ask(entry, table, maps, number, questions):
    """Put entry `number` among the questions if it is one."""
    if entry == KIND_SPECIAL or (table >= 0 and maps[M_ASKED, table] == 0):
        if table >= 0:
            maps[M_ASKED, table] = 1
        questions[0] += 1
        questions[questions[0]] = number


@inlined
def _note(
    event, data, at, start, length, inner, aux, table, gtid, kind, event_type, type_code, flags
):
    event["position"] = start
    event["aux"] = aux
    event["present"] = -1
    event["inner"] = inner
    event["timestamp"] = load32(data, at)
    event["length"] = length
    event["server_id"] = load32(data, at + 5)
    event["table"] = table
    event["row"] = 0
    event["rows"] = 0
    event["gtid"] = gtid
    event["kind"] = kind
    event["event_type"] = event_type
    event["type_code"] = type_code
    event["flags"] = flags


@inlined
def _start_before(position, log_position, length):
    """Where an event from before a chunk at `position` starts, by its header, which says where it
    ends; at the chunk where it does not say (MariaDB 11.4)."""
    start = (position & ~0xFFFFFFFF) + log_position - length
    if log_position == 0:
        return position
    return start if start <= position else start - (1 << 32)


@bare
def walk(
    data, carried, position, in_transaction, checksum, mariadb, id_bytes,
    events, bodies, questions, gtids, seconds, maps, slots, ids, active, since,
):  # fmt: skip
    """(code, offset, entries, GTIDs, distinct TABLE_MAPs, event type) up to the first bad event.

    `slots`, `ids`, `active`, `since` are hash tables of one power of two each, twice what `maps`
    holds or more, filled with -1: distinct bodies by hash, table ids, the map that each table id
    stood for last, and in which statement. (A TABLE_MAP counts to its statement's end, for servers
    as for what `scan` carries on.) `bodies` come flat, `gtids` as bytes. `questions` gets entries
    that Python must look at, in log order: each special one, and each table's first row event;
    before them how many, which is zero before."""
    entries = gtid_count = map_count = id_count = statement = 0
    gtid = -1
    follows = position  # where the next event that is not in a frame starts in the file
    at = checked = frame_end = frame_start = frame_length = inner = 0
    while at < data.size:
        if data.size - at < HEADER_BYTES:
            return TRUNCATED, at, entries, gtid_count, map_count, 0
        kind = load8(data, at + 4)
        length = load32(data, at + 9)
        new = at >= carried
        if kind == 40:
            if length != FRAME_BYTES or data.size - at < FRAME_BYTES:
                return BAD_FRAME, at, entries, gtid_count, map_count, kind
            body = at + HEADER_BYTES
            at += FRAME_BYTES
            frame_start = load64(data, body)
            frame_length = load64(data, body + 8)
            inner = load64(data, body + 16) - at
            size = load64(data, body + 24)
            if size < 0 or size > data.size - at:
                return BAD_FRAME, at - FRAME_BYTES, entries, gtid_count, map_count, kind
            frame_end = at + size
            if new:
                follows = frame_start + frame_length
            continue
        framed = at < frame_end
        trailer = 0 if framed else checksum
        rest = (frame_end if framed else data.size) - at
        if length < HEADER_BYTES + trailer or length > rest:
            return BAD_LENGTH, at, entries, gtid_count, map_count, kind
        if trailer and at >= checked:
            checked = fitting_run(data, at)
            if checked == at:
                return BAD_CHECKSUM, at, entries, gtid_count, map_count, kind
        body = at + HEADER_BYTES
        end = at + length - trailer
        start = follows
        if framed:
            start = frame_start
        elif new:
            follows += length
        else:
            start = _start_before(position, load32(data, at + 13), length)
        entry = meaning = event_type = aux = 0
        table = -1
        flags = in_transaction
        if kind == 19:
            if end - body < id_bytes + 2:
                return TRUNCATED, at, entries, gtid_count, map_count, kind
            if map_count == maps.shape[1] or 2 * id_count >= ids.size:
                return NO_ROOM, at, entries, gtid_count, map_count, kind
            new_map, new_id = _table_map(
                data, body, end, at, id_bytes, maps, map_count, slots, ids, active, since, statement
            )
            map_count += new_map
            id_count += new_id
        elif kind < 64 and _ROW_EVENTS >> kind & 1:
            if end - body < id_bytes + 2:
                return TRUNCATED, at, entries, gtid_count, map_count, kind
            aux = load_le(data, body, id_bytes)
            if aux != _DUMMY_TABLE_ID:  # which only ends a statement
                slot = _slot_of(ids, aux)
                if since[slot] != statement:
                    return NO_TABLE_MAP, at, entries, gtid_count, map_count, kind
                table = active[slot]
                entry = KIND_ROWS
                event_type = _row_event_type(kind)
            statement += load16(data, body + id_bytes) & _STATEMENT_END_FLAG
        elif kind == 2:
            meaning = query_meaning(data, body, end)
            if meaning < 0:
                return TRUNCATED, at, entries, gtid_count, map_count, kind
            entry = KIND_SPECIAL if meaning >= XA_BEGINS else meaning
            if meaning == KIND_BEGIN or meaning == XA_BEGINS:
                aux = load32(data, body)
                in_transaction = 1
                flags = 0
            elif meaning == KIND_END or meaning == XA_ENDS:
                in_transaction = 0
            elif meaning == ROLLS_BACK:
                entry = KIND_END
                in_transaction = 0
                flags |= _ROLLED_BACK
            elif _opens_transaction(data, body, end):
                in_transaction = flags = 1
        elif kind == 38:
            # XA COMMIT … ONE PHASE is written as such a prepare.
            if new and entries and end > body and data[body] != 0:
                events[entries - 1]["flags"] |= _ONE_PHASE
        elif kind == 16:
            if end - body < 8:
                return TRUNCATED, at, entries, gtid_count, map_count, kind
            entry = KIND_END
            aux = load64(data, body)
            in_transaction = 0
        elif kind == 162 if mariadb else kind == 33 or kind == 34 or kind == 42:
            if gtid_count == seconds.size:
                return NO_ROOM, at, entries, gtid_count, map_count, kind
            code = g.read_gtid(data, at, body, end, start, gtids, gtid_count * g.RECORD_BYTES)
            if code != g.READ:
                code = BAD_TAG if code == g.BAD_TAG else TRUNCATED
                return code, at, entries, gtid_count, map_count, kind
            set_word(seconds, gtid_count, load32(data, at))
            gtid = gtid_count
            gtid_count += 1
            if new:
                in_transaction = 0
                if kind == 162 and not data[body + 12] & _STANDALONE_FLAG:
                    entry = KIND_BEGIN
                    in_transaction = 1
                    flags = 0
        elif (
            kind == 29 or kind == 5 or kind == 13 or kind == 14 or kind == 18
            or (kind == 160 and mariadb)
        ):  # fmt: skip
            entry = KIND_SPECIAL
        elif kind == 26:
            return INCIDENT, at, entries, gtid_count, map_count, kind
        elif not (_has_no_entry(kind, mariadb) or load16(data, at + 17) & _IGNORABLE_FLAG):
            return UNSUPPORTED, at, entries, gtid_count, map_count, kind
        if entry and new:
            if entries == events.size:
                return NO_ROOM, at, entries, gtid_count, map_count, kind
            size = frame_length if framed else length
            inside = at + inner if framed else 0
            _note(
                events[entries], data, at, start, size, inside, aux, table, gtid, entry,
                event_type, kind, flags,
            )  # fmt: skip
            set_word(bodies, 2 * entries, body)
            set_word(bodies, 2 * entries + 1, end)
            _ask(entry, table, maps, entries, questions)
            entries += 1
            if entry == KIND_END or meaning == XA_ENDS:
                gtid = -1
        statement += _ends_statement(kind, mariadb)
        at += length
    return OK, at, entries, gtid_count, map_count, 0
