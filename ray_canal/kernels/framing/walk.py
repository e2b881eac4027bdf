"""One pass over a chunk's events: checksums, positions, transactions, GTIDs, which table a row
belongs to.

Offsets are into the chunk's data. `events` gets a record per log entry (EVENT in binlog/chunk.py,
`table` an index in `maps`), `bodies` where its body begins and ends, `gtids` a GTID record per GTID
event and `seconds` its header's time, `maps` a column per distinct TABLE_MAP body (the table id
left out, for a table that is merely reopened).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.crc import crc32
from ray_canal.kernels.base.crc_run import fitting_run
from ray_canal.kernels.base.event_types import HEADER_BYTES
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
from ray_canal.kernels.framing.query import (
    KIND_BEGIN,
    KIND_END,
    KIND_ROWS,
    KIND_SPECIAL,
    ROLLS_BACK,
    XA_BEGINS,
    XA_ENDS,
    entry_of_query,
    opens_transaction,
)

# Rows of `maps`.
M_START: Final = 0
M_END: Final = 1
M_HASH: Final = 2
M_AT: Final = 3  # offset of the event that brought it first
M_ASKED: Final = 4  # 1: a row event of it has been met
MAP_FIELDS: Final = 5

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

_DUMMY_TABLE_ID: Final = 0xFFFFFF


class Start(NamedTuple):
    """What a chunk's head says: bytes carried from before, where it lies, and how to read it."""

    carried: Any
    position: Any
    in_transaction: Any
    checksum: Any  # bytes of it
    mariadb: Any
    id_bytes: Any


class Found(NamedTuple):
    """Arrays that `walk` fills. `bodies` come flat, `gtids` as bytes. `questions` gets entries that
    Python must look at, in log order: each special one, and each table's first row event; before
    them how many, which is zero before."""

    events: Any
    bodies: Any
    questions: Any
    gtids: Any
    seconds: Any
    maps: Any


class TableIds(NamedTuple):
    """Hash tables of one power of two each, twice what `maps` holds or more, filled with -1:
    distinct bodies by hash, table ids, the map that each table id stood for last, and in which
    statement. (A TABLE_MAP counts to its statement's end, for servers as for what `scan` carries
    on.)"""

    slots: Any
    ids: Any
    active: Any
    since: Any


# As in binlog/chunk.py.
_ROLLED_BACK: Final = 8
_ONE_PHASE: Final = 16


@inlined
def _is_gtid(kind):
    """Tell if it is one of MySQL's GTID events."""
    return kind == ev.GTID or kind == ev.ANONYMOUS_GTID or kind == ev.GTID_TAGGED


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
        gtids += _is_gtid(kind) or kind == ev.MARIADB_GTID
        maps += kind == ev.TABLE_MAP
        events += 1
        at += length
    return events, gtids, maps


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
def _table_map(data, body, end, at, id_bytes, maps, count, tables, statement):
    """Note what a table id stands for in this statement. Return how many maps and ids are new: 0
    or 1 each."""
    ids, active = tables.ids, tables.active
    table_id = load_le(data, body, id_bytes)
    slot = _slot_of(ids, table_id)
    k = active[slot]
    first = maps[M_START, k] if k >= 0 else 0
    size = end - body - id_bytes
    known = k >= 0 and maps[M_END, k] - first == size
    if not (known and same_bytes(data, first, body + id_bytes, size)):
        k = _intern(data, body + id_bytes, end, at, maps, count, tables.slots)
    new_id = 0 if ids[slot] == table_id else 1
    ids[slot] = table_id
    active[slot] = k
    tables.since[slot] = statement
    return 1 if k == count else 0, new_id


@inlined
def _row_event_type(kind):
    """Canal's EventType: INSERT 1, UPDATE 2, DELETE 3."""
    if kind == ev.PARTIAL_UPDATE_ROWS:
        return 2
    if kind >= ev.WRITE_ROWS:
        return kind - ev.WRITE_ROWS + 1
    return kind - (ev.WRITE_ROWS_V1 if kind >= ev.WRITE_ROWS_V1 else ev.PRE_GA_WRITE_ROWS) + 1


@inlined
def _has_no_entry(kind, mariadb):
    """Tell if it is a known event that no entry shows."""
    if kind < 64:
        return ev.WITHOUT_ENTRY >> kind & 1 != 0
    return mariadb and (kind == ev.MARIADB_BINLOG_CHECKPOINT or kind == ev.MARIADB_GTID_LIST)


@inlined
def _is_read_by_python(kind, mariadb):
    """Tell if it is an event beside rows that Python reads: a statement's text, its variables."""
    if kind < 64:
        return ev.ASIDE_ROWS >> kind & 1 != 0
    return mariadb and kind == ev.MARIADB_ANNOTATE_ROWS


@inlined
def _ends_statement(kind, mariadb):
    """Return 1 if no statement goes on behind such an event, else 0."""
    if kind < 64:
        return ev.BETWEEN_STATEMENTS >> kind & 1
    return 1 if mariadb and kind == ev.MARIADB_GTID else 0


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
def walk(data, head, found, tables):
    """Return (code, offset, entries, GTIDs, distinct TABLE_MAPs, event type) up to the first bad
    event, of which the last is the type. Records are as Start, Found and TableIds say."""
    carried, position, in_transaction, checksum, mariadb, id_bytes = head
    events, bodies, questions, gtids, seconds, maps = found
    ids, active, since = tables.ids, tables.active, tables.since
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
        if kind == ev.TRANSACTION_PAYLOAD:
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
        if kind == ev.TABLE_MAP:
            if end - body < id_bytes + 2:
                return TRUNCATED, at, entries, gtid_count, map_count, kind
            if map_count == maps.shape[1] or 2 * id_count >= ids.size:
                return NO_ROOM, at, entries, gtid_count, map_count, kind
            new_map, new_id = _table_map(
                data, body, end, at, id_bytes, maps, map_count, tables, statement
            )
            map_count += new_map
            id_count += new_id
        elif kind < 64 and ev.ROWS >> kind & 1:
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
            statement += load16(data, body + id_bytes) & ev.FLAG_STATEMENT_END
        elif kind == ev.QUERY:
            meaning = entry_of_query(data, body, end)
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
            elif opens_transaction(data, body, end):
                in_transaction = flags = 1
        elif kind == ev.XA_PREPARE:
            # XA COMMIT … ONE PHASE is written as such a prepare.
            if new and entries and end > body and data[body] != 0:
                events[entries - 1]["flags"] |= _ONE_PHASE
        elif kind == ev.XID:
            if end - body < 8:
                return TRUNCATED, at, entries, gtid_count, map_count, kind
            entry = KIND_END
            aux = load64(data, body)
            in_transaction = 0
        elif kind == ev.MARIADB_GTID if mariadb else _is_gtid(kind):
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
                if kind == ev.MARIADB_GTID and not data[body + 12] & ev.FLAG_STANDALONE:
                    entry = KIND_BEGIN
                    in_transaction = 1
                    flags = 0
        elif _is_read_by_python(kind, mariadb):
            entry = KIND_SPECIAL
        elif kind == ev.INCIDENT:
            return INCIDENT, at, entries, gtid_count, map_count, kind
        elif not (_has_no_entry(kind, mariadb) or load16(data, at + 17) & ev.FLAG_IGNORABLE):
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
