"""Hostile inputs out of a piece of a real binlog.

A mutation works on a `Document`: events without lengths and checksums in force, which are made good
at the end, so that the damage reaches the code behind the checksum. Damage that is done after that
(`_late`) is for the code in front of it.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from tests.fuzz.corpus import HEADER_BYTES, PAYLOAD, QUERY, ROWS, TABLE_MAP, Piece, pieces
from tests.fuzz.sql import mangled

Rng = random.Random
_KINDS = (*range(0, 43), *range(160, 172), 255)
_TYPES = (*range(0, 21), 140, 141, 242, *range(243, 256))
_TWO_BYTES = (15, 16, 141, 246, 247, 248, 253, 254)
_ONE_BYTE = (4, 5, 17, 18, 19, 140, 242, 245, 249, 250, 251, 252, 255)


@dataclass
class Document:
    """Events (headers included, checksums not) in the making; event 0 is FORMAT_DESCRIPTION."""

    events: list[bytearray]
    has_checksum: bool
    mariadb: bool
    lying: dict[int, int] = field(default_factory=dict)  # id(event): the length that it claims

    def pick(self, rng: Rng, kinds: tuple[int, ...] = ()) -> bytearray | None:
        """An event; of these kinds, where there is one."""
        rest = self.events[1:]
        chosen = [event for event in rest if event[4] in kinds] if kinds else rest
        return rng.choice(chosen) if chosen else None


@dataclass(frozen=True, slots=True)
class Hostile:
    """`intact_bytes`: so many bytes are the piece's own, and what follows must be found bad; -1
    where that cannot be said."""

    data: bytes
    intact_bytes: int
    what: str


def hostile(piece: Piece, rng: Rng) -> Hostile:
    """One input."""
    if rng.random() < 0.15:
        return _late(piece.data, piece, rng)
    trailer = 4 if piece.has_checksum else 0
    # FORMAT_DESCRIPTION has its four bytes whether others have them or not.
    events = [bytearray(e[: len(e) - (trailer if n else 4)]) for n, e in enumerate(piece.events)]
    document = Document(events, piece.has_checksum, piece.mariadb)
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        change = rng.choices(_CHANGES, _WEIGHTS)[0]
        change(document, rng)
        names.append(change.__name__.strip("_"))
    data = _finished(document, rng)
    if rng.random() < 0.05:
        late = _late(data, piece, rng)
        return Hostile(late.data, -1, "+".join([*names, late.what]))
    return Hostile(data, -1, "+".join(names))


def _finished(document: Document, rng: Rng) -> bytes:
    out = bytearray()
    trailing = 4
    for number, event in enumerate(document.events):
        trailing = 4 if document.has_checksum or number == 0 else 0
        length = document.lying.get(id(event), len(event) + trailing)
        struct.pack_into("<I", event, 9, length & 0xFFFFFFFF)
        struct.pack_into("<I", event, 13, (4 + len(out) + len(event) + trailing) & 0xFFFFFFFF)
        out += event
        if trailing:
            out += struct.pack("<I", zlib.crc32(event))
    return bytes(out)


def _late(data: bytes, piece: Piece, rng: Rng) -> Hostile:
    """Damage that no checksum knows of."""
    first = len(piece.events[0])
    way = rng.randrange(3)
    if way == 0:
        at = rng.randrange(len(data))
        return Hostile(data[:at], at if at >= first else -1, "truncate")
    at = rng.randrange(first, len(data)) if len(data) > first and rng.random() < 0.9 else 20
    if way == 1:  # one burst of up to 32 bits: a CRC finds every one
        out = bytearray(data)
        is_known = piece.has_checksum and first <= at <= len(out) - 4
        if at + 4 <= len(out):
            burst = rng.randrange(1, 1 << 32)
            struct.pack_into("<I", out, at, struct.unpack_from("<I", out, at)[0] ^ burst)
            at += ((burst & -burst).bit_length() - 1) // 8  # its first bytes may be zero
        return Hostile(bytes(out), at if is_known else -1, "flip")
    end = min(len(data), at + rng.choice((1, 2, 3, 4, 19, 100)))
    if rng.random() < 0.5:
        return Hostile(data[:at] + data[end:], -1, "cut out")
    return Hostile(data[:at] + rng.randbytes(end - at) + data[at:], -1, "insert")


# ---- values


def _number(rng: Rng, near: int) -> int:
    width = rng.choice((7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 63, 64))
    return rng.choice(
        (0, 1, 2, 250, 251, 252, 253, 254, 255, near, near + 1, max(0, near - 1), 2 * near,
         (1 << width) - 1, 1 << width, (1 << width) - near, rng.getrandbits(width))
    )  # fmt: skip


def _packed(value: int, rng: Rng) -> bytes:
    """MySQL's packed integer, not always in its shortest form."""
    value &= (1 << 64) - 1
    if rng.random() < 0.1:
        return b"\xfe" + struct.pack("<Q", value)
    if value < 251:
        return bytes([value])
    if value < 1 << 16:
        return b"\xfc" + struct.pack("<H", value)
    return b"\xfe" + struct.pack("<Q", value)


def _poke(event: bytearray, at: int, rng: Rng) -> None:
    """Put a hostile number, or a few hostile bytes, over what is there."""
    if at >= len(event):
        return
    if rng.random() < 0.5:
        for _ in range(rng.choice((1, 1, 2, 4, 8))):
            where = min(len(event) - 1, at + rng.choice((0, 0, 1, 2, 3, 5, 8)))
            value = rng.choice((0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFE, 0xFF, rng.randrange(256)))
            event[where] = value if rng.random() < 0.7 else event[where] ^ 1 << rng.randrange(8)
        return
    width = rng.choice((1, 2, 2, 3, 4, 4, 8))
    order: Literal["little", "big"] = rng.choice(("little", "little", "big"))
    value = _number(rng, len(event) - at) & (1 << 8 * width) - 1
    event[at : at + width] = value.to_bytes(width, order)[: len(event) - at]


# ---- changes


def _bytes(document: Document, rng: Rng) -> None:
    event = document.pick(rng, rng.choice(((), ROWS, ROWS, (TABLE_MAP,), (QUERY,))))
    if event is not None and len(event) > HEADER_BYTES:
        _poke(event, rng.randrange(HEADER_BYTES, len(event)), rng)


def _resize(document: Document, rng: Rng) -> None:
    event = document.pick(rng, rng.choice(((), ROWS, (TABLE_MAP,))))
    if event is None or len(event) <= HEADER_BYTES:
        return
    at, count = rng.randrange(HEADER_BYTES, len(event)), rng.choice((1, 1, 2, 4, 8, 64, 1000))
    if rng.random() < 0.6:
        del event[at : at + count]
    else:
        event[at:at] = rng.choice((rng.randbytes(count), bytes(count), b"\xff" * count))


def _length(document: Document, rng: Rng) -> None:
    event = rng.choice(document.events)
    document.lying[id(event)] = _number(rng, len(event))


def _header(document: Document, rng: Rng) -> None:
    event = rng.choice(document.events)
    way = rng.randrange(3)
    if way == 0:
        event[4] = rng.choice(_KINDS)
    elif way == 1:
        struct.pack_into("<H", event, 17, rng.getrandbits(16))
    else:
        _poke(event, rng.choice((0, 5)), rng)


def _kind_of_rows(document: Document, rng: Rng) -> None:
    event = document.pick(rng, ROWS)
    if event is not None:
        event[4] = rng.choice((*ROWS, 166, 167, 168, 169, 170, 171))


def _rows_head(document: Document, rng: Rng) -> None:
    event = document.pick(rng, ROWS)
    if event is not None:
        _poke(event, HEADER_BYTES + rng.choice((0, 6, 8, 9, 10, 11, 12, 13, 14, 15)), rng)


def _row_bytes(document: Document, rng: Rng) -> None:
    event = document.pick(rng, ROWS)
    if event is None or len(event) <= HEADER_BYTES + 12:
        return
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        _poke(event, rng.randrange(HEADER_BYTES + 10, len(event)), rng)


def _order(document: Document, rng: Rng) -> None:
    events = document.events
    if len(events) < 3:
        return
    at, to = rng.randrange(1, len(events)), rng.randrange(1, len(events))
    way = rng.randrange(4)
    if way == 0:
        events.insert(to, bytearray(events[at]))
    elif way == 1:
        del events[at]
    elif way == 2:
        events[at], events[to] = events[to], events[at]
    else:
        events.insert(to, events.pop(at))


def _other(rng: Rng, kinds: tuple[int, ...] = ()) -> bytearray | None:
    """An event of another piece, without its checksum."""
    piece = rng.choice(pieces())
    chosen = [e for e in piece.events[1:] if not kinds or e[4] in kinds]
    if not chosen:
        return None
    event = rng.choice(chosen)
    return bytearray(event[:-4] if piece.has_checksum else event)


def _splice(document: Document, rng: Rng) -> None:
    stranger = _other(rng)
    if stranger is None:
        return
    if rng.random() < 0.5:
        document.events.insert(rng.randrange(1, len(document.events) + 1), stranger)
        return
    event = document.pick(rng)
    if event is not None:
        event[rng.randrange(len(event)) :] = stranger[rng.randrange(len(stranger)) :]
        event.extend(bytes(max(0, HEADER_BYTES - len(event))))


def _other_table(document: Document, rng: Rng) -> None:
    """Rows under the TABLE_MAP of another table."""
    event, stranger = document.pick(rng, (TABLE_MAP,)), _other(rng, (TABLE_MAP,))
    if event is not None and stranger is not None:
        event[HEADER_BYTES + 6 :] = stranger[HEADER_BYTES + 6 :]


def _other_rows(document: Document, rng: Rng) -> None:
    """The rows of another table under this TABLE_MAP."""
    event, stranger = document.pick(rng, ROWS), _other(rng, ROWS)
    if event is not None and stranger is not None:
        event[HEADER_BYTES + 6 :] = stranger[HEADER_BYTES + 6 :]
        if rng.random() < 0.8:
            event[4] = stranger[4]


def _query(document: Document, rng: Rng) -> None:
    event = document.pick(rng, (QUERY,))
    if event is None or len(event) < HEADER_BYTES + 13:
        return
    if rng.random() < 0.3:
        _poke(event, HEADER_BYTES + rng.choice((8, 11, 13, 14, 15, 18, 22)), rng)
        return
    schema_bytes = event[HEADER_BYTES + 8]
    vars_bytes = struct.unpack_from("<H", event, HEADER_BYTES + 11)[0]
    text = HEADER_BYTES + 13 + vars_bytes + schema_bytes + 1
    event[text:] = mangled(rng).encode("utf-8", "surrogatepass")


def _format(document: Document, rng: Rng) -> None:
    _poke(document.events[0], rng.randrange(HEADER_BYTES, len(document.events[0])), rng)


def _no_checksum(document: Document, rng: Rng) -> None:
    """The same without checksums; now and then only FORMAT_DESCRIPTION says so."""
    head = document.events[0]
    head[-1] = 0 if head[-1] else 1
    if rng.random() < 0.8:
        document.has_checksum = bool(head[-1])


def _payload(document: Document, rng: Rng) -> None:
    """Some events in a TRANSACTION_PAYLOAD; its numbers may lie."""
    events = document.events
    if len(events) < 2:
        return
    first = rng.randrange(1, len(events))
    last = min(len(events), first + rng.randrange(1, 8))
    inner = bytearray()
    for event in events[first:last]:
        struct.pack_into("<I", event, 9, document.lying.get(id(event), len(event)) & 0xFFFFFFFF)
        inner += event
    if rng.random() < 0.1:
        _poke(inner, rng.randrange(len(inner)), rng)
    if rng.random() < 0.05:
        inner += bytes(rng.choice((1 << 10, 1 << 20, 1 << 24)))
    size = _number(rng, len(inner)) if rng.random() < 0.2 else len(inner)
    stored = rng.random() < 0.2
    packed = bytes(inner) if stored else pa.compress(bytes(inner), codec="zstd", asbytes=True)
    stated = _number(rng, len(packed)) if rng.random() < 0.1 else len(packed)
    head = bytearray()
    for number, value in ((2, 255 if stored else 0), (3, size), (1, stated)):
        text = _packed(value, rng)
        head += bytes([number, len(text)]) + text
    event = bytearray(events[first][:HEADER_BYTES]) + head + b"\0" + packed
    event[4] = PAYLOAD
    if rng.random() < 0.15:
        _poke(event, rng.randrange(HEADER_BYTES, len(event)), rng)
    events[first:last] = [event]


def _reader(event: bytearray, at: int) -> tuple[int, int]:
    """(value, offset behind it) of a packed integer. Raises IndexError, struct.error."""
    first = event[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3}.get(first, 8)
    return int.from_bytes(event[at + 1 : at + 1 + width], "little"), at + 1 + width


def _table_parts(event: bytearray) -> tuple[bytes, bytes, list[bytes], bytes]:
    """A TABLE_MAP: what stands before its column count, the types, each one's metadata, the rest.
    Raises IndexError: it is broken already."""
    at = HEADER_BYTES + 8
    for _ in range(2):
        at += 2 + event[at]
    count, after = _reader(event, at)
    types = bytes(event[after : after + count])
    _, after = _reader(event, after + count)
    metadata = []
    for kind in types:
        size = 2 if kind in _TWO_BYTES else 1 if kind in _ONE_BYTE else 0
        metadata.append(bytes(event[after : after + size]))
        after += size
    return bytes(event[:at]), types, metadata, bytes(event[after:])


def _columns(document: Document, rng: Rng) -> None:
    """A TABLE_MAP with other column types, metadata that fits them or not, or other counts."""
    event = document.pick(rng, (TABLE_MAP,))
    if event is None:
        return
    try:
        head, kinds, metadata, rest = _table_parts(event)
    except IndexError:
        return
    types = bytearray(kinds)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not types:
            break
        column = rng.randrange(len(types))
        if rng.random() < 0.7:
            types[column] = rng.choice(_TYPES)
        kind = types[column]
        size = 2 if kind in _TWO_BYTES else 1 if kind in _ONE_BYTE else 0
        small = (0, 1, 2, 3, 4, 6, 8, 10, 16, 30, 65, 247, 248, 254, 255, rng.randrange(256))
        metadata[column] = bytes(rng.choice(small) for _ in range(size))
    count = len(types)
    if rng.random() < 0.1:  # more columns, without an end
        extra = rng.choice((1, 8, 100, 4000))
        types += bytes(rng.choice((1, 3, 8, 13)) for _ in range(extra))
        count += extra
        rest = bytes(extra // 8) + rest
    if rng.random() < 0.1:
        count = _number(rng, count)
    block = b"".join(metadata)
    stated = _number(rng, len(block)) if rng.random() < 0.1 else len(block)
    event[:] = head + _packed(count, rng) + types + _packed(stated, rng) + block + rest


def _table_tail(document: Document, rng: Rng) -> None:
    """Damage in the optional metadata: signs, character sets, names, labels, keys."""
    event = document.pick(rng, (TABLE_MAP,))
    if event is None:
        return
    try:
        _, types, _, rest = _table_parts(event)
    except IndexError:
        return
    tail = len(event) - len(rest) + (len(types) + 7) // 8
    if tail < len(event):
        for _ in range(rng.choice((1, 1, 2, 4))):
            _poke(event, rng.randrange(tail, len(event)), rng)


_TABLE: tuple[tuple[Callable[[Document, Rng], None], int], ...] = (
    (_bytes, 6), (_resize, 3), (_length, 2), (_header, 2), (_kind_of_rows, 3), (_rows_head, 4),
    (_row_bytes, 10), (_order, 3), (_splice, 3), (_other_table, 3), (_other_rows, 3), (_query, 4),
    (_format, 1), (_no_checksum, 1), (_payload, 3), (_columns, 7), (_table_tail, 4),
)  # fmt: skip
_CHANGES = tuple(change for change, _ in _TABLE)
_WEIGHTS = tuple(weight for _, weight in _TABLE)
