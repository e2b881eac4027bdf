"""Scan event headers: where a stream of binlog events may be cut, and what a chunk must carry.

The scan looks at each event's header, at a query's first words, and at the statement-end flag of
row events; nothing else. It keeps its place in `state` (int64[STATE_SIZE]) and the events that the
open transaction and statement depend on in `carry` (int64[n, 2]: offset and length; row 0 is the
GTID event, rows 1 … CARRY_COUNT the TABLE_MAPs). Offsets are into the buffer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.event_types import HEADER_BYTES
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load16, load32, load64
from ray_canal.kernels.framing import query as q
from ray_canal.kernels.framing.gtid_events import is_mysql_gtid

# Indexes into `state`.
AT: Final = 0  # next event's offset in the buffer
POSITION: Final = 1  # its 64-bit offset in the binlog file
IN_TRANSACTION: Final = 2
CARRY_COUNT: Final = 3  # TABLE_MAPs carried
TRAILER_BYTES: Final = 4  # checksum length
ROWS_HEADER_BYTES: Final = 5  # post-header length of row events version 1 (6: 4-byte table ids)
CONTIGUOUS: Final = 6  # 1: a file, read without gaps; header positions are not looked at
EVENT_BYTES_MAX: Final = 7
NEED_BYTES: Final = 8  # out: the whole size of an event that is not all there yet
GAP_POSITION: Final = 9  # out: where the next event lies, if not at POSITION
TIMESTAMP: Final = 10  # out: the last event's time
MARIADB: Final = 11
COMPRESSED: Final = 12  # out: 1 if compressed events were walked
EVENTS: Final = 13  # out: how many were walked
GTIDS: Final = 14  # out: how many of them are GTID events
HELD: Final = 15  # out: not 0: the last one is better not parted from the next (_HOLDS)
STATE_SIZE: Final = 16

# Why `scan` stopped.
MORE: Final = 0  # no whole event left
FULL: Final = 1  # enough bytes: cut at AT
CUT: Final = 2  # AT is after an event that must end a chunk
SPECIAL: Final = 3  # an event for the cutter at AT: artificial, heartbeat, FORMAT_DESCRIPTION
BAD_LENGTH: Final = 4
CARRY_FULL: Final = 5
GAP: Final = 6  # the event at AT does not follow the one before it in the file
BACKWARD: Final = 7  # … and lies before it
_CLEAR: Final = -1  # nothing keeps the event from being walked

# Effects of an event.
_CUTS: Final = 1  # a chunk must end after it
_ENDS: Final = 2  # a transaction ends with it
_HOLDS: Final = 4
"""No full chunk ends after it. XA END: the next event says if it is a commit. The text of a
statement, and the tables behind it: whose it is, its rows say (binlog/annotations.py)."""

@without_refcounts
def _is_rows(kind):
    """Tell if it is a row event, of MariaDB also a compressed one."""
    if kind < 64:
        return ev.ROWS >> kind & 1 != 0
    return ev.FIRST_MARIADB_COMPRESSED < kind <= ev.LAST_MARIADB_COMPRESSED


@inlined
def _has_no_place(kind, state):
    """Tell if an event without an end position is in a file all the same: MariaDB 11.4 and later
    write none between a transaction's first and last event (binlog_legacy_event_pos)."""
    return state[MARIADB] != 0 and (
        state[IN_TRANSACTION] != 0 or kind == ev.TABLE_MAP or _is_rows(kind)
    )


@without_refcounts
def is_compressed(kind):
    """Tell if it holds compressed events or is one."""
    return kind == ev.TRANSACTION_PAYLOAD or (
        ev.FIRST_MARIADB_COMPRESSED <= kind <= ev.LAST_MARIADB_COMPRESSED
    )


@without_refcounts
def whole_events(data):
    """Return (bytes of whole events from the start, length of the next event or -1: impossible)."""
    at = 0
    while data.size - at >= HEADER_BYTES:
        length = load32(data, at + 9)
        if length < HEADER_BYTES:
            return at, -1
        if length > data.size - at:
            return at, length
        at += length
    return at, 0


@without_refcounts
def dependencies(data, trailer, mariadb, found):
    """Find what events after this data may depend on: the last GTID event, then the TABLE_MAPs of
    the open statement. `found` gets offset, length, and 1 if it is in a frame. Return how many;
    where `found` is too small, the rest is only counted.
    """
    at = frame_end = count = gtid = 0
    while at < data.size:
        kind = np.int64(data[at + 4])
        length = load32(data, at + 9)
        framed = at < frame_end
        if kind == ev.TRANSACTION_PAYLOAD and not framed:
            frame_end = at + length + load64(data, at + HEADER_BYTES + 24)
        elif is_mysql_gtid(kind) or (mariadb and kind == ev.MARIADB_GTID):
            found[0, 0] = at
            found[0, 1] = length
            found[0, 2] = framed
            count = gtid = 1
        elif kind == ev.TABLE_MAP:
            if count < found.shape[0]:
                found[count, 0] = at
                found[count, 1] = length
                found[count, 2] = framed
            count += 1
        elif _is_rows(kind):
            if length >= 27 and load16(data, at + 25) & ev.FLAG_STATEMENT_END:
                count = gtid
        elif kind == ev.QUERY or kind == ev.XA_PREPARE:
            count = gtid
        elif kind == ev.XID:
            count = gtid = 0
        at += length
    return count


@without_refcounts
def _end_transaction(state, carry):
    """Carry nothing on."""
    state[IN_TRANSACTION] = 0
    state[CARRY_COUNT] = 0
    carry[0, 1] = 0


@without_refcounts
def _begin_transaction(state, carry, at, length):
    """Carry a transaction's GTID event on."""
    _end_transaction(state, carry)
    carry[0, 0] = at
    carry[0, 1] = length
    state[GTIDS] += 1


@inlined
def _obstacle(buffer, at, filled, position, state):
    """Return why the event at `at` is not walked, or _CLEAR."""
    if at + HEADER_BYTES > filled:
        state[NEED_BYTES] = HEADER_BYTES
        return MORE
    length = load32(buffer, at + 9)
    if length < HEADER_BYTES + state[TRAILER_BYTES] or length > state[EVENT_BYTES_MAX]:
        return BAD_LENGTH
    if at + length > filled:
        state[NEED_BYTES] = length
        return MORE
    kind = np.int64(buffer[at + 4])
    log_position = load32(buffer, at + 13)
    contiguous = state[CONTIGUOUS] != 0
    if (
        kind == ev.FORMAT_DESCRIPTION
        or kind == ev.HEARTBEAT
        or kind == ev.HEARTBEAT_V2
        or kind == ev.MARIADB_START_ENCRYPTION
        or (not contiguous and load16(buffer, at + 17) & ev.FLAG_ARTIFICIAL)
        or (not contiguous and log_position == 0 and not _has_no_place(kind, state))
    ):
        return SPECIAL
    follows = position + length
    if not contiguous and log_position and (follows & 0xFFFFFFFF) != log_position:
        end = (position >> 32 << 32) | log_position
        if end < follows:
            end += 1 << 32  # the header's 32 bits have wrapped
        if end - follows > 1 << 31:
            return BACKWARD
        state[GAP_POSITION] = end - length
        return GAP
    return _CLEAR


@inlined
def _effect_of_query(buffer, at, length, state, carry):
    """Note a statement in `state` and `carry`; return its effects."""
    meaning = q.effect_of_query(buffer, at + HEADER_BYTES, at + length - state[TRAILER_BYTES])
    state[CARRY_COUNT] = 0
    if meaning == q.BEGINS:
        state[IN_TRANSACTION] = 1
    elif meaning == q.XA_ENDED:
        state[IN_TRANSACTION] = 0
        return _HOLDS
    elif meaning == q.ENDS:
        _end_transaction(state, carry)
        return _ENDS
    else:
        if not state[IN_TRANSACTION]:
            _end_transaction(state, carry)
        return _CUTS if meaning == q.SCHEMA else 0
    return 0


@inlined
def _effect_of(buffer, at, length, state, carry):
    """Note an event in `state` and `carry`; return its effects, -1 if `carry` is full."""
    kind = np.int64(buffer[at + 4])
    if kind == ev.TABLE_MAP:
        count = state[CARRY_COUNT]
        if count + 1 >= carry.shape[0]:
            return -1
        carry[count + 1, 0] = at
        carry[count + 1, 1] = length
        state[CARRY_COUNT] = count + 1
        return state[HELD]
    elif _is_rows(kind):
        flags_at = HEADER_BYTES + (4 if state[ROWS_HEADER_BYTES] == 6 else 6)
        if length >= flags_at + 2 and load16(buffer, at + flags_at) & ev.FLAG_STATEMENT_END:
            state[CARRY_COUNT] = 0
        state[COMPRESSED] |= is_compressed(kind)
    elif kind == ev.XID or kind == ev.XA_PREPARE or kind == ev.TRANSACTION_PAYLOAD:
        _end_transaction(state, carry)
        state[COMPRESSED] |= is_compressed(kind)
        return _ENDS
    elif is_mysql_gtid(kind):
        _begin_transaction(state, carry, at, length)
    elif kind == ev.MARIADB_GTID and state[MARIADB]:
        _begin_transaction(state, carry, at, length)
        if length > 31 and not buffer[at + 31] & ev.FLAG_STANDALONE:
            state[IN_TRANSACTION] = 1
    elif kind == ev.QUERY:
        return _effect_of_query(buffer, at, length, state, carry)
    elif q.is_annotation(kind):
        return _HOLDS
    elif kind == ev.MARIADB_QUERY_COMPRESSED:  # its text cannot be seen here
        state[COMPRESSED] = 1
        state[CARRY_COUNT] = 0
        if not state[IN_TRANSACTION]:
            _end_transaction(state, carry)
        return _CUTS
    elif kind == ev.ROTATE or kind == ev.STOP:
        _end_transaction(state, carry)
        return _CUTS
    return 0


@without_refcounts
def scan(buffer, filled, early, limit, state, carry):
    """Walk whole events from state[AT] on, up to `filled`; return why it stopped (codes above).

    A chunk is full at the offset `limit` or after it, and at or after `early` when a transaction
    ends. What is cut there is delivered as one piece, and nothing of it must be carried on.
    """
    at = state[AT]
    position = state[POSITION]
    while True:
        if at >= limit and not state[HELD]:
            code = FULL
            break
        code = _obstacle(buffer, at, filled, position, state)
        if code != _CLEAR:
            break
        length = load32(buffer, at + 9)
        effect = _effect_of(buffer, at, length, state, carry)
        if effect < 0:
            code = CARRY_FULL
            break
        state[HELD] = effect & _HOLDS
        state[TIMESTAMP] = load32(buffer, at)
        state[EVENTS] += 1
        at += length
        position += length
        if effect & _CUTS:
            code = CUT
            break
        if effect & _ENDS and at >= early:
            code = FULL
            break
    state[AT] = at
    state[POSITION] = position
    return code
