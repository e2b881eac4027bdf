"""Walk a chunk's events once: checksums, positions, transactions, GTIDs, and the table of each row
event.

Offsets are into the chunk's data. `events` gets a record per log entry (EVENT in binlog/chunk.py,
`table` a column of the table maps), `bodies` start and end of its body, `gtids` a GTID record per
GTID event and `seconds` its header's time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.crc_run import fitting_run
from ray_canal.kernels.base.event_types import HEADER_BYTES
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import (
    load8,
    load16,
    load32,
    load64,
    load_le,
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
    is_annotation,
    is_savepoint,
    opens_transaction,
)
from ray_canal.kernels.framing.table_maps import (
    DUMMY_TABLE_ID,
    M_ASKED,
    TableMaps,
    map_of,
    note_map,
)

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
offset of the first event after the frame in the decompressed bytes, and how many bytes of events
after the frame belong to it. They have no checksum."""


class WalkStart(NamedTuple):
    """A chunk's head: bytes carried from before it, its position, and how its events are read."""

    carried: Any
    position: Any
    in_transaction: Any
    checksum: Any  # its length in bytes
    mariadb: Any
    id_bytes: Any


class WalkOutput(NamedTuple):
    """Arrays that `walk` fills, with the table maps. `events` has a record more than there may be
    entries. `bodies` are flat, `gtids` bytes. `questions` gets their number, zero before, and then
    the entries that Python must look at, in log order: each special one but SAVEPOINTs and texts
    of statements whose rows follow, and each table's first row event. `state` is
    int64[STATE_FIELDS], zero before."""

    events: Any
    bodies: Any
    questions: Any
    gtids: Any
    seconds: Any
    state: Any


class _Event(NamedTuple):
    """An event that is read: its type, header, body and end, its number as an entry, its place in
    the file, and if it is new: not carried from before the chunk."""

    kind: Any
    at: Any
    body: Any
    end: Any
    number: Any
    start: Any
    new: Any


# Fields of `state`.
IN_TRANSACTION: Final = 0
GTIDS: Final = 1  # how many GTID events
_GTID: Final = 2  # the open transaction's GTID, -1: none
_STATEMENT: Final = 3  # number of the statement
_FRAME_START: Final = 4  # where the open frame's compressed event starts in the file
_FRAME_LENGTH: Final = 5
_INNER: Final = 6  # what is added to an offset to give that in the decompressed bytes
UNASKED: Final = 7  # how many special entries Python need not look at
STATE_FIELDS: Final = 8

# Flags of binlog/chunk.py.
_SILENT: Final = 2
_ROLLED_BACK: Final = 8
_ONE_PHASE: Final = 16


@without_refcounts
def survey(data):
    """Return (events, GTID events, TABLE_MAPs) up to the end or the first event of an impossible
    length."""
    events = gtids = maps = at = 0
    while at + HEADER_BYTES <= data.size:
        length = load32(data, at + 9)
        if length < HEADER_BYTES or length > data.size - at:
            break
        kind = data[at + 4]
        gtids += g.is_mysql_gtid(kind) or kind == ev.MARIADB_GTID
        maps += kind == ev.TABLE_MAP
        events += 1
        at += length
    return events, gtids, maps


@inlined
def _row_event_type(kind):
    """Return Canal's EventType: INSERT 1, UPDATE 2, DELETE 3."""
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
def _is_next_to_rows(kind, mariadb):
    """Tell if it has an entry and is next to rows: the text of their statement, its variables."""
    if kind < 64:
        return ev.NEXT_TO_ROWS >> kind & 1 != 0
    return mariadb and kind == ev.MARIADB_ANNOTATE_ROWS


@inlined
def _ends_statement(kind, mariadb):
    """Return 1 if no statement continues after such an event, else 0."""
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
def _start_before(position, log_position, length):
    """Return where an event from before a chunk at `position` starts, by its end in its header; the
    chunk's position if the header has none (MariaDB 11.4)."""
    start = (position & ~0xFFFFFFFF) + log_position - length
    if log_position == 0:
        return position
    return start if start <= position else start - (1 << 32)


@inlined
def _open_frame(data, at, state):
    """Note the frame at `at` in `state`; return where its events end, -1 if it is broken."""
    if load32(data, at + 9) != FRAME_BYTES or data.size - at < FRAME_BYTES:
        return -1
    body, first = at + HEADER_BYTES, at + FRAME_BYTES
    size = load64(data, body + 24)
    if size < 0 or size > data.size - first:
        return -1
    state[_FRAME_START] = load64(data, body)
    state[_FRAME_LENGTH] = load64(data, body + 8)
    state[_INNER] = load64(data, body + 16) - first
    return first + size


@inlined
def _draft(record, aux, flags, state):
    """Begin an entry's record; `_complete` does the rest."""
    record["aux"] = aux
    record["table"] = -1
    record["event_type"] = 0
    record["flags"] = flags
    record["gtid"] = state[_GTID]


@inlined
def _complete(record, data, event, entry, length, inner):
    """Fill in what every entry's record has from its header."""
    record["position"] = event.start
    record["present"] = -1
    record["inner"] = inner
    record["timestamp"] = load32(data, event.at)
    record["length"] = length
    record["server_id"] = load32(data, event.at + 5)
    record["row"] = 0
    record["rows"] = 0
    record["kind"] = entry
    record["type_code"] = event.kind


@inlined
def _read_rows(data, event, id_bytes, found, tables):
    """Draft a row event's record with its table; return its entry kind or a negative code."""
    state = found.state
    if event.end - event.body < id_bytes + 2:
        return -TRUNCATED
    table_id = load_le(data, event.body, id_bytes)
    statement = state[_STATEMENT]
    state[_STATEMENT] = statement + (
        load16(data, event.body + id_bytes) & ev.FLAG_STATEMENT_END
    )
    if table_id == DUMMY_TABLE_ID:  # which only ends a statement
        return 0
    table = map_of(table_id, statement, tables)
    if table < 0:
        return -NO_TABLE_MAP
    record = found.events[event.number]
    record["aux"] = table_id
    record["table"] = table
    record["event_type"] = _row_event_type(event.kind)
    record["flags"] = state[IN_TRANSACTION]
    record["gtid"] = state[_GTID]
    return KIND_ROWS


@inlined
def _read_query(data, event, found):
    """Draft a statement's record; return its entry kind or a negative code."""
    state, record = found.state, found.events[event.number]
    meaning = entry_of_query(data, event.body, event.end)
    if meaning < 0:
        return -TRUNCATED
    entry = KIND_SPECIAL if meaning >= XA_BEGINS else meaning
    aux, flags = 0, state[IN_TRANSACTION]
    if meaning == KIND_BEGIN or meaning == XA_BEGINS:
        aux = load32(data, event.body)
        state[IN_TRANSACTION] = 1
        flags = 0
    elif meaning == KIND_END or meaning == XA_ENDS:
        state[IN_TRANSACTION] = 0
    elif meaning == ROLLS_BACK:
        entry = KIND_END
        state[IN_TRANSACTION] = 0
        flags |= _ROLLED_BACK
    elif opens_transaction(data, event.body, event.end):
        state[IN_TRANSACTION] = flags = 1
    elif entry == KIND_SPECIAL and flags and is_savepoint(data, event.body, event.end):
        flags |= _SILENT
    _draft(record, aux, flags, state)
    if event.new and (entry == KIND_END or meaning == XA_ENDS):
        state[_GTID] = -1
    return entry


@inlined
def _read_xid(data, event, found):
    """Draft a commit's record; return its entry kind or a negative code."""
    state = found.state
    if event.end - event.body < 8:
        return -TRUNCATED
    flags = state[IN_TRANSACTION]
    _draft(found.events[event.number], load64(data, event.body), flags, state)
    state[IN_TRANSACTION] = 0
    if event.new:
        state[_GTID] = -1
    return KIND_END


@inlined
def _read_gtid_event(data, event, found):
    """Read a GTID event, of MariaDB also as the BEGIN that it is; return its entry kind or a
    negative code."""
    state, number = found.state, found.state[GTIDS]
    if number == found.seconds.size:
        return -NO_ROOM
    code = g.read_gtid(
        data, event.at, event.body, event.end, event.start, found.gtids, number * g.RECORD_BYTES
    )
    if code != g.READ:
        return -BAD_TAG if code == g.BAD_TAG else -TRUNCATED
    set_word(found.seconds, number, load32(data, event.at))
    state[_GTID] = number
    state[GTIDS] = number + 1
    if not event.new:
        return 0
    state[IN_TRANSACTION] = 0
    if event.kind == ev.MARIADB_GTID and not data[event.body + 12] & ev.FLAG_STANDALONE:
        state[IN_TRANSACTION] = 1
        _draft(found.events[event.number], 0, 0, state)
        return KIND_BEGIN
    return 0


@inlined
def _read_event(data, event, mariadb, id_bytes, found, tables):
    """Read one event; return its entry kind with a drafted record, 0 if it has no entry, or a
    negative code."""
    kind, state = event.kind, found.state
    if kind == ev.TABLE_MAP:
        if event.end - event.body < id_bytes + 2:
            return -TRUNCATED
        place = event.at, event.body, event.end
        return 0 if note_map(data, place, id_bytes, state[_STATEMENT], tables) else -NO_ROOM
    if kind < 64 and ev.ROWS >> kind & 1:
        return _read_rows(data, event, id_bytes, found, tables)
    if kind == ev.QUERY:
        return _read_query(data, event, found)
    if kind == ev.XA_PREPARE:
        # XA COMMIT … ONE PHASE is written as such a prepare.
        if event.new and event.number and event.end > event.body and data[event.body] != 0:
            found.events[event.number - 1]["flags"] |= _ONE_PHASE
        return 0
    if kind == ev.XID:
        return _read_xid(data, event, found)
    if kind == ev.MARIADB_GTID if mariadb else g.is_mysql_gtid(kind):
        return _read_gtid_event(data, event, found)
    if _is_next_to_rows(kind, mariadb):
        _draft(found.events[event.number], 0, state[IN_TRANSACTION], state)
        return KIND_SPECIAL
    if kind == ev.INCIDENT:
        return -INCIDENT
    if not (_has_no_entry(kind, mariadb) or load16(data, event.at + 17) & ev.FLAG_IGNORABLE):
        return -UNSUPPORTED
    return 0


@inlined
def _put_entry(data, event, entry, length, inner, found, tables):
    """Complete an entry of a drafted record."""
    record = found.events[event.number]
    _complete(record, data, event, entry, length, inner)
    set_word(found.bodies, 2 * event.number, event.body)
    set_word(found.bodies, 2 * event.number + 1, event.end)
    if is_annotation(event.kind) or record["flags"] & _SILENT:  # there may be one for each row
        found.state[UNASKED] += 1
    else:
        _ask(entry, record["table"], tables.maps, event.number, found.questions)


@without_refcounts
def walk(data, start_fields, found_fields, table_fields):
    """Walk events to the end or the first bad one; return (code, offset, entries, the bad event's
    type). The fields are those of WalkStart, WalkOutput and TableMaps; counts are in `state`."""
    head, found, tables = (
        WalkStart(*start_fields),
        WalkOutput(*found_fields),
        TableMaps(*table_fields),
    )
    state = found.state
    state[IN_TRANSACTION], state[_GTID] = head.in_transaction, -1
    entries = 0
    follows = head.position  # where the next event that is not in a frame starts in the file
    at = checked = frame_end = 0
    while at < data.size:
        if data.size - at < HEADER_BYTES:
            return TRUNCATED, at, entries, 0
        kind, new = load8(data, at + 4), at >= head.carried
        if kind == ev.TRANSACTION_PAYLOAD:
            frame_end = _open_frame(data, at, state)
            if frame_end < 0:
                return BAD_FRAME, at, entries, kind
            if new:
                follows = state[_FRAME_START] + state[_FRAME_LENGTH]
            at += FRAME_BYTES
            continue
        length, framed = load32(data, at + 9), at < frame_end
        trailer = 0 if framed else head.checksum
        if length < HEADER_BYTES + trailer or length > (frame_end if framed else data.size) - at:
            return BAD_LENGTH, at, entries, kind
        if trailer and at >= checked:
            checked = fitting_run(data, at)
            if checked == at:
                return BAD_CHECKSUM, at, entries, kind
        start = follows
        if framed:
            start = state[_FRAME_START]
        elif new:
            follows += length
        else:
            start = _start_before(head.position, load32(data, at + 13), length)
        event = _Event(kind, at, at + HEADER_BYTES, at + length - trailer, entries, start, new)
        entry = _read_event(data, event, head.mariadb, head.id_bytes, found, tables)
        if entry < 0:
            return -entry, at, entries, kind
        if entry and new:
            if entries == found.events.size - 1:
                return NO_ROOM, at, entries, kind
            size, inner = (state[_FRAME_LENGTH], at + state[_INNER]) if framed else (length, 0)
            _put_entry(data, event, entry, size, inner, found, tables)
            entries += 1
        state[_STATEMENT] += _ends_statement(kind, head.mariadb)
        at += length
    return OK, at, entries, 0
