"""Find a chunk's compressed events, and put what was in them in their place.

binlog/inflate.py has the formats, opens what is found, and reads itself what is left out here: an
event that is large, unknown or broken.
"""

from __future__ import annotations

from typing import Final

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.crc import crc32
from ray_canal.kernels.base.event_types import HEADER_BYTES
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import (
    copy,
    load8,
    load16,
    load32,
    load_be,
    store8,
    store32,
    store64,
)
from ray_canal.kernels.base.packed import packed_integer
from ray_canal.kernels.framing.scan import is_compressed
from ray_canal.kernels.framing.walk import FRAME_BYTES

# Fields of a compressed event.
AT: Final = 0  # its offset in the chunk
LENGTH: Final = 1
PACKED: Final = 2  # offset of what is compressed, and its bytes
PACKED_BYTES: Final = 3
BYTES: Final = 4  # when it is opened
KIND: Final = 5  # of the plain event; TRANSACTION_PAYLOAD: whole events
HEAD_BYTES: Final = 6  # behind the header, before what is compressed: a plain event's head
FIELDS: Final = 7

# Fields of a payload's head.
PAYLOAD_SIZE: Final = 1
COMPRESSION: Final = 2
UNCOMPRESSED_SIZE: Final = 3
ZSTD: Final = 0
QUERY_HEAD_BYTES: Final = 13
ZLIB_FACTOR_MAX: Final = 1100
"""Deflate makes at most 1,032 bytes of one; a header that says more lies."""


@without_refcounts
def _read_payload(data, at, end, event):
    """Read a payload's head; tell if it is a sound one of zstd."""
    size, method, opened = -1, -1, -1
    while True:
        number, at = packed_integer(data, at, end)
        if number == 0:
            break
        length, at = packed_integer(data, at, end)
        if number < 0 or length < 0 or length > end - at:
            return False
        if number <= UNCOMPRESSED_SIZE:
            value, _ = packed_integer(data, at, at + length)
            if value < 0:
                return False
            if number == PAYLOAD_SIZE:
                size = value
            elif number == COMPRESSION:
                method = value
            else:
                opened = value
        at += length
    event[PACKED], event[PACKED_BYTES], event[BYTES] = at, end - at, opened
    event[KIND], event[HEAD_BYTES] = ev.TRANSACTION_PAYLOAD, 0
    return method == ZSTD and size == end - at and opened >= 0


@without_refcounts
def _head_of_rows(data, at, end, kind, id_bytes):
    """Return the offset behind a row event's bitmaps, and the plain event's type; -1 if it is
    broken."""
    at += id_bytes + 2
    plain = kind - ev.MARIADB_WRITE_ROWS_COMPRESSED_V1 + ev.WRITE_ROWS_V1
    if kind >= ev.MARIADB_WRITE_ROWS_COMPRESSED:
        plain = kind - ev.MARIADB_WRITE_ROWS_COMPRESSED + ev.WRITE_ROWS
        if end - at < 2 or load16(data, at) < 2:
            return -1, plain
        at += load16(data, at)
    columns, at = packed_integer(data, at, end)
    if columns < 0 or columns > 8 * (end - at):
        return -1, plain
    is_update = plain == ev.UPDATE_ROWS_V1 or plain == ev.UPDATE_ROWS
    at += (columns + 7) // 8 * (2 if is_update else 1)
    return at, plain


@without_refcounts
def _read_event(data, at, end, id_bytes, event):
    """Read the head of MariaDB's compressed event `data[at:end]`; tell if it is a sound one."""
    kind, body = load8(data, at + 4), at + HEADER_BYTES
    if kind == ev.MARIADB_QUERY_COMPRESSED:
        plain, mark = ev.QUERY, body + QUERY_HEAD_BYTES
        if mark > end:
            return False
        mark += load16(data, body + 11) + load8(data, body + 8) + 1
    else:
        mark, plain = _head_of_rows(data, body, end, kind, id_bytes)
    if mark < 0 or mark >= end:
        return False
    length_bytes = load8(data, mark) & 7
    packed = mark + 1 + length_bytes
    if load8(data, mark) != 0x80 | length_bytes or not 1 <= length_bytes <= 4 or packed > end:
        return False
    opened = load_be(data, mark + 1, length_bytes)
    event[PACKED], event[PACKED_BYTES], event[BYTES] = packed, end - packed, opened
    event[KIND], event[HEAD_BYTES] = plain, mark - body
    return opened <= (end - packed) * ZLIB_FACTOR_MAX


@without_refcounts
def find_compressed(data, at, trailer, id_bytes, room, limit, found):
    """Fill `found` with compressed events from `at` on; return how many, and where it stopped:
    before an event that is not sound or has more than `limit` bytes, or where `room` bytes are full
    when they are opened, but not before a query, which may stand outside of transactions."""
    count, size = 0, 0
    while at < data.size:
        kind, length = load8(data, at + 4), load32(data, at + 9)
        if not is_compressed(kind):
            size += length
            at += length
            continue
        end = at + length - trailer
        if count == found.shape[0] or (size >= room and kind != ev.MARIADB_QUERY_COMPRESSED):
            break
        if trailer and crc32(data, at, end) != load32(data, end):
            break
        event = found[count]
        event[AT], event[LENGTH] = at, length
        if kind == ev.TRANSACTION_PAYLOAD:
            is_sound = _read_payload(data, at + HEADER_BYTES, end, event)
        else:
            is_sound = _read_event(data, at, end, id_bytes, event)
        if not is_sound or event[BYTES] > limit:
            break
        size += FRAME_BYTES + _plain_head_bytes(event) + event[BYTES]
        count += 1
        at += length
    return count, at


@inlined
def _plain_head_bytes(event):
    """Return the bytes of a plain event before what was compressed."""
    return 0 if event[KIND] == ev.TRANSACTION_PAYLOAD else HEADER_BYTES + event[HEAD_BYTES]


@without_refcounts
def opened_bytes(found, at, stop):
    """Return how many bytes `place_opened` writes for data[at:stop]."""
    size = stop - at
    for k in range(found.shape[0]):
        event = found[k]
        size += FRAME_BYTES + _plain_head_bytes(event) + event[BYTES] - event[LENGTH]
    return size


@without_refcounts
def sound_payloads(found, texts):
    """Return the number of the first payload whose text, of `texts` one behind the other, is not
    whole events; how many there are if all are."""
    at = 0
    for k in range(found.shape[0]):
        end = at + found[k, BYTES]
        if found[k, KIND] != ev.TRANSACTION_PAYLOAD:
            at = end
        while at < end:
            if end - at < HEADER_BYTES or load32(texts, at + 9) < HEADER_BYTES:
                return k
            at += load32(texts, at + 9)
        if at != end:
            return k
    return found.shape[0]


@without_refcounts
def place_opened(data, at, stop, start, found, texts, out):
    """Write data[at:stop] to `out` with each compressed event as a frame and what was in it, of
    `texts` one behind the other. `start`: the offset of data[0] in its file."""
    to, text = 0, 0
    for k in range(found.shape[0]):
        event = found[k]
        here, size = event[AT], _plain_head_bytes(event) + event[BYTES]
        copy(out, to, data, at, here - at)
        to += here - at
        copy(out, to, data, here, HEADER_BYTES)
        store8(out, to + 4, ev.TRANSACTION_PAYLOAD)
        store32(out, to + 9, FRAME_BYTES)
        store64(out, to + HEADER_BYTES, start + here)
        store64(out, to + HEADER_BYTES + 8, event[LENGTH])
        store64(out, to + HEADER_BYTES + 16, 0)
        store64(out, to + HEADER_BYTES + 24, size)
        to += FRAME_BYTES
        if event[KIND] != ev.TRANSACTION_PAYLOAD:
            head = HEADER_BYTES + event[HEAD_BYTES]
            copy(out, to, data, here, head)
            store8(out, to + 4, event[KIND])
            store32(out, to + 9, size)
            to += head
        copy(out, to, texts, text, event[BYTES])
        to += event[BYTES]
        text += event[BYTES]
        at = here + event[LENGTH]
    copy(out, to, data, at, stop - at)
