"""Walking event headers: where a stream of binlog events may be cut, and what a chunk must carry.

The walker looks at each event's header, at a query's first words, and at the statement-end flag of
row events; nothing else. It keeps its place in `state` (int64[STATE_SIZE]) and the events that the
open transaction and statement depend on in `carry` (int64[n, 2]: offset and length; row 0 is the
GTID event, rows 1 … CARRY_COUNT the TABLE_MAPs). Offsets are into the buffer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import bare, inlined
from ray_canal.kernels.base.memory import load8, load16, load32, load64

HEADER_BYTES: Final = 19

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
STATE_SIZE: Final = 15

# What `scan` stopped for.
MORE: Final = 0  # no whole event left
FULL: Final = 1  # enough bytes: cut at AT
CUT: Final = 2  # AT is behind an event after which a chunk must end
SPECIAL: Final = 3  # an event for the cutter at AT: artificial, heartbeat, FORMAT_DESCRIPTION
BAD_LENGTH: Final = 4
CARRY_FULL: Final = 5
GAP: Final = 6  # the event at AT does not follow the one before it in the file
BACKWARD: Final = 7  # … and lies before it

QUERY_EVENT: Final = 2
STOP_EVENT: Final = 3
ROTATE_EVENT: Final = 4
FORMAT_EVENT: Final = 15
XID_EVENT: Final = 16
TABLE_MAP_EVENT: Final = 19
HEARTBEAT_EVENT: Final = 27
GTID_EVENT: Final = 33
ANONYMOUS_GTID_EVENT: Final = 34
XA_PREPARE_EVENT: Final = 38
TRANSACTION_PAYLOAD_EVENT: Final = 40
HEARTBEAT_V2_EVENT: Final = 41
GTID_TAGGED_EVENT: Final = 42
MARIADB_GTID_EVENT: Final = 162
MARIADB_START_ENCRYPTION_EVENT: Final = 164
MARIADB_QUERY_COMPRESSED_EVENT: Final = 165

ARTIFICIAL_FLAG: Final = 0x20
_STATEMENT_END_FLAG: Final = 1
_MARIADB_STANDALONE_FLAG: Final = 1


def _word(text: str) -> int:
    return int.from_bytes(text.encode("ascii"), "big")


# First words of statements, up to 8 letters in a number. Statements that change no table's shape
# need no cut behind them; any other word ends the chunk, so that a chunk has one version of each
# table.
_BEGI: Final = int.from_bytes(b"BEGI", "little")
_BEGIN: Final = _word("BEGIN")
_COMMIT: Final = _word("COMMIT")
_ROLLBACK: Final = _word("ROLLBACK")
_XA: Final = _word("XA")
_START: Final = _word("START")
_END: Final = _word("END")
_TO: Final = _word("TO")
_WORK: Final = _word("WORK")
_SAVEPOINT: Final = _word("SAVEPOIN")
_RELEASE: Final = _word("RELEASE")
_INSERT: Final = _word("INSERT")
_UPDATE: Final = _word("UPDATE")
_DELETE: Final = _word("DELETE")
_REPLACE: Final = _word("REPLACE")

# What a query means for the cutter.
_PLAIN: Final = 0
_BEGINS: Final = 1
_ENDS: Final = 2
_SCHEMA: Final = 3
_XA_ENDS: Final = 4  # XA END: the transaction's rows end, XA PREPARE still follows


@bare
def _next_word(text, at, end):
    """(word, offset behind it): up to 8 letters, upper case, as a number; skips blanks and
    comments.
    """
    while at < end:
        byte = np.int64(text[at])
        if byte <= 32:
            at += 1
        elif byte == 47 and at + 2 < end and text[at + 1] == 42 and text[at + 2] != 33:
            # A comment; one that begins with an exclamation mark is code.
            at += 2
            while at + 1 < end and not (text[at] == 42 and text[at + 1] == 47):
                at += 1
            at += 2
        elif byte == 35 or (byte == 45 and at + 1 < end and text[at + 1] == 45):  # # and --
            while at < end and text[at] != 10:
                at += 1
        else:
            break
    word = 0
    letters = 0
    while at < end:
        byte = np.int64(text[at])
        if 97 <= byte <= 122:
            byte -= 32
        if not 65 <= byte <= 90:
            break
        if letters < 8:
            word = word << 8 | byte
        letters += 1
        at += 1
    return word, at


@inlined
def is_begin(data, at, end):
    """Whether data[at:end] is BEGIN, in either case: as every transaction has it."""
    if end - at != 5:
        return False
    return load32(data, at) & 0xDFDFDFDF == _BEGI and load8(data, at + 4) & 0xDF == 78


@bare
def _query_meaning(buffer, at, end):
    """Meaning of the QUERY event at `at` whose body ends at `end`."""
    body = at + HEADER_BYTES
    if body + 13 > end:
        return _SCHEMA  # malformed: the parser will say so
    text = body + 13 + load16(buffer, body + 11) + np.int64(buffer[body + 8]) + 1
    if is_begin(buffer, text, end):
        return _BEGINS
    word, after = _next_word(buffer, text, end)
    if word == _BEGIN:
        return _BEGINS
    if word == _COMMIT:
        return _ENDS
    if word == _ROLLBACK:
        word, after = _next_word(buffer, after, end)
        if word == _WORK:
            word, after = _next_word(buffer, after, end)
        return _PLAIN if word == _TO else _ENDS
    if word == _XA:
        word, after = _next_word(buffer, after, end)
        if word == _START or word == _BEGIN:
            return _BEGINS
        return _XA_ENDS if word == _END else _ENDS
    if (
        word == _SAVEPOINT
        or word == _RELEASE
        or word == _INSERT
        or word == _UPDATE
        or word == _DELETE
        or word == _REPLACE
    ):
        return _PLAIN
    return _SCHEMA


@bare
def _is_rows(kind):
    return 20 <= kind <= 25 or 30 <= kind <= 32 or kind == 39 or 166 <= kind <= 171


@inlined
def _has_no_place(kind, state):
    """Whether an event that names no end position is one of a file all the same: MariaDB 11.4 and
    later write none between a transaction's first and last event (binlog_legacy_event_pos)."""
    return state[MARIADB] != 0 and (
        state[IN_TRANSACTION] != 0 or kind == TABLE_MAP_EVENT or _is_rows(kind)
    )


@bare
def _is_compressed(kind):
    return kind == TRANSACTION_PAYLOAD_EVENT or MARIADB_QUERY_COMPRESSED_EVENT <= kind <= 171


@bare
def next_compressed(data, at):
    """Offset of the first compressed event at or behind `at`; the data's size if there is none.

    The data is whole events.
    """
    while at < data.size:
        kind = data[at + 4]
        if kind == TRANSACTION_PAYLOAD_EVENT or MARIADB_QUERY_COMPRESSED_EVENT <= kind <= 171:
            break
        at += load32(data, at + 9)
    return at


@bare
def whole_events(data):
    """(bytes of whole events from the start, length of the event that follows; -1: impossible)."""
    at = 0
    while data.size - at >= HEADER_BYTES:
        length = load32(data, at + 9)
        if length < HEADER_BYTES:
            return at, -1
        if length > data.size - at:
            return at, length
        at += length
    return at, 0


@bare
def dependencies(data, trailer, mariadb, found):
    """What events behind this data may depend on: the last GTID event, then the TABLE_MAPs of the
    open statement. `found`: offset, length, whether it stands in a frame. Returns how many; where
    `found` is too small, the rest is only counted.
    """
    at = frame_end = count = gtid = 0
    while at < data.size:
        kind = np.int64(data[at + 4])
        length = load32(data, at + 9)
        framed = at < frame_end
        if kind == TRANSACTION_PAYLOAD_EVENT:
            frame_end = at + length + load64(data, at + HEADER_BYTES + 24)
        elif (
            kind == GTID_EVENT or kind == ANONYMOUS_GTID_EVENT or kind == GTID_TAGGED_EVENT
            or (mariadb and kind == MARIADB_GTID_EVENT)
        ):  # fmt: skip
            found[0, 0] = at
            found[0, 1] = length
            found[0, 2] = framed
            count = gtid = 1
        elif kind == TABLE_MAP_EVENT:
            if count < found.shape[0]:
                found[count, 0] = at
                found[count, 1] = length
                found[count, 2] = framed
            count += 1
        elif _is_rows(kind):
            if length >= 27 and load16(data, at + 25) & _STATEMENT_END_FLAG:
                count = gtid
        elif kind == QUERY_EVENT or kind == XA_PREPARE_EVENT:
            count = gtid
        elif kind == XID_EVENT:
            count = gtid = 0
        at += length
    return count


@bare
def _end_transaction(state, carry):
    state[IN_TRANSACTION] = 0
    state[CARRY_COUNT] = 0
    carry[0, 1] = 0


@bare
def _begin_transaction(state, carry, at, length):
    """With its GTID event."""
    _end_transaction(state, carry)
    carry[0, 0] = at
    carry[0, 1] = length
    state[GTIDS] += 1


@bare
def scan(buffer, filled, early, limit, state, carry):
    """Walk whole events from state[AT] on, up to `filled`; stop as the codes above say.

    `limit` is the offset at and behind which a chunk is full; at and behind `early` it is when a
    transaction ends. What is cut there is delivered as one piece, and nothing of it must be carried
    on.
    """
    at = state[AT]
    position = state[POSITION]
    code = MORE
    holds = False  # XA END is followed by what says whether it is a commit
    while True:
        if at >= limit and not holds:
            code = FULL
            break
        if at + HEADER_BYTES > filled:
            state[NEED_BYTES] = HEADER_BYTES
            break
        length = load32(buffer, at + 9)
        if length < HEADER_BYTES + state[TRAILER_BYTES] or length > state[EVENT_BYTES_MAX]:
            code = BAD_LENGTH
            break
        if at + length > filled:
            state[NEED_BYTES] = length
            break
        kind = np.int64(buffer[at + 4])
        flags = load16(buffer, at + 17)
        log_position = load32(buffer, at + 13)
        contiguous = state[CONTIGUOUS] != 0
        if (
            kind == FORMAT_EVENT
            or kind == HEARTBEAT_EVENT
            or kind == HEARTBEAT_V2_EVENT
            or kind == MARIADB_START_ENCRYPTION_EVENT
            or (not contiguous and flags & ARTIFICIAL_FLAG)
            or (not contiguous and log_position == 0 and not _has_no_place(kind, state))
        ):
            code = SPECIAL
            break
        follows = position + length
        if not contiguous and log_position and (follows & 0xFFFFFFFF) != log_position:
            end = (position >> 32 << 32) | log_position
            if end < follows:
                end += 1 << 32  # the header's 32 bits have wrapped
            if end - follows > 1 << 31:
                code = BACKWARD
                break
            state[GAP_POSITION] = end - length
            code = GAP
            break
        stop = ends = holds = False
        count = state[CARRY_COUNT]
        if kind == TABLE_MAP_EVENT:
            if count + 1 >= carry.shape[0]:
                code = CARRY_FULL
                break
            carry[count + 1, 0] = at
            carry[count + 1, 1] = length
            state[CARRY_COUNT] = count + 1
        elif _is_rows(kind):
            flags_at = HEADER_BYTES + (4 if state[ROWS_HEADER_BYTES] == 6 else 6)
            if length >= flags_at + 2 and load16(buffer, at + flags_at) & _STATEMENT_END_FLAG:
                state[CARRY_COUNT] = 0
            state[COMPRESSED] |= _is_compressed(kind)
        elif kind == XID_EVENT or kind == XA_PREPARE_EVENT or kind == TRANSACTION_PAYLOAD_EVENT:
            _end_transaction(state, carry)
            ends = True
            state[COMPRESSED] |= _is_compressed(kind)
        elif kind == GTID_EVENT or kind == ANONYMOUS_GTID_EVENT or kind == GTID_TAGGED_EVENT:
            _begin_transaction(state, carry, at, length)
        elif kind == MARIADB_GTID_EVENT and state[MARIADB]:
            _begin_transaction(state, carry, at, length)
            if length > 31 and not buffer[at + 31] & _MARIADB_STANDALONE_FLAG:
                state[IN_TRANSACTION] = 1
        elif kind == QUERY_EVENT:
            meaning = _query_meaning(buffer, at, at + length - state[TRAILER_BYTES])
            state[CARRY_COUNT] = 0
            if meaning == _BEGINS:
                state[IN_TRANSACTION] = 1
            elif meaning == _XA_ENDS:
                state[IN_TRANSACTION] = 0
                holds = True
            elif meaning == _ENDS:
                _end_transaction(state, carry)
                ends = True
            else:
                stop = meaning == _SCHEMA
                if not state[IN_TRANSACTION]:
                    _end_transaction(state, carry)
        elif kind == MARIADB_QUERY_COMPRESSED_EVENT:
            stop = True  # its text cannot be seen here
            state[COMPRESSED] = 1
            state[CARRY_COUNT] = 0
            if not state[IN_TRANSACTION]:
                _end_transaction(state, carry)
        elif kind == ROTATE_EVENT or kind == STOP_EVENT:
            _end_transaction(state, carry)
            stop = True
        state[TIMESTAMP] = load32(buffer, at)
        state[EVENTS] += 1
        at += length
        position = follows
        if stop:
            code = CUT
            break
        if ends and at >= early:
            code = FULL
            break
    state[AT] = at
    state[POSITION] = position
    return code
