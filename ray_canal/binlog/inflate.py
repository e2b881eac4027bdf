"""Compressed events, opened: MySQL's TRANSACTION_PAYLOAD, MariaDB's QUERY_COMPRESSED and compressed
row events.

What was in them takes their place in the chunk, behind a frame that keeps their place in the file
(kernels/framing/walk.py describes it), so that the stages behind see plain events only. A chunk
that grows over its size becomes several; a large payload is read piece by piece, so no more than a
chunk and one event of it is in memory. There may be a compressed event for each row, so kernels
(kernels/framing/compressed.py) find them and put what was in them in place, many at once; those
that these leave out, large or broken ones, are read here one by one.

Formats: TRANSACTION_PAYLOAD is fields of packed number, packed length and value (1 payload size,
2 compression: 0 zstd, 255 none, 3 uncompressed size), a 0, then the payload: whole events without
checksums. MariaDB (sql/log_event.cc): behind a query's or rows event's plain head stands a byte
0x80 | algorithm << 4 | length bytes, the uncompressed length (big-endian), and a zlib stream.
CorruptEvent where bytes are missing or disagree.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import zstandard

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.events import event_name
from ray_canal.binlog.reader import Reader
from ray_canal.errors import CorruptEvent, DecodeError, UnsupportedEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import compressed, scan
from ray_canal.kernels.framing.walk import FRAME_BYTES
from ray_canal.model.arrays import Bytes, Int64s

_NOT_COMPRESSED = 255
_PAYLOAD_HEAD_BYTES_MAX = 256
_HEADER = struct.Struct("<IBIIIH")
_MANY = 4096
"""Compressed events that are opened at once."""


def opened(chunk: RawChunk, chunk_bytes: int, event_bytes_max: int) -> Iterator[RawChunk]:
    """A chunk's compressed events opened: one chunk or more, all with the sequence of the first.

    Raises CorruptEvent and UnsupportedEvent, with file and offset, after the good events before.
    """
    opener = _Opener(chunk, chunk_bytes, event_bytes_max)
    try:
        yield from opener.run()
    except DecodeError as error:
        error.at(chunk.head.journal_name, opener.start)
        last = opener.cut(opener.start)
        if last is not None:
            yield last
        raise


class _Opener:
    """One chunk being opened; `start` is the file offset of the event that is read."""

    def __init__(self, chunk: RawChunk, chunk_bytes: int, event_bytes_max: int) -> None:
        self._chunk = chunk
        self._chunk_bytes = chunk_bytes
        self._event_bytes_max = event_bytes_max
        self._trailer = event_types.CHECKSUM_BYTES if chunk.head.has_checksum else 0
        self._id_bytes = _table_id_bytes(chunk.head.post_header_bytes)
        self.start = chunk.head.position
        self._head = chunk.head
        carried = chunk.head.carried_bytes
        self._parts: list[Bytes] = [chunk.data[:carried]] if carried else []
        self._size = 0  # of the parts that are new

    def run(self) -> Iterator[RawChunk]:
        data = self._chunk.data
        at = self._chunk.head.carried_bytes
        while True:
            found = self._open_many(at)
            self.start += found - at
            at = found
            if found == data.size:
                break
            length = int.from_bytes(data[at + 9 : at + 13].tobytes(), "little")
            event = data[at : at + length]
            self._check(event)
            is_payload = event[4] == event_types.TRANSACTION_PAYLOAD
            is_query = event[4] == event_types.MARIADB_QUERY_COMPRESSED
            # A query may stand outside of transactions; rows are always in one.
            if self._size >= self._chunk_bytes and not is_query:
                yield self._cut_before(self.start, in_transaction=not is_payload)
            if is_payload:
                yield from self._payload(event, length)
            else:
                plain = self._plain(event)
                self._add(self._frame(event, 0, plain.size), plain)
            at += length
            self.start += length
        last = self.cut(self.start)
        if last is not None:
            yield last

    def _open_many(self, at: int) -> int:
        """Open the events from `at` on; return where that ends: before one that has to be read
        alone, or before which the chunk has to be cut."""
        data, limit = self._chunk.data, min(self._chunk_bytes, self._event_bytes_max)
        found = np.empty((_MANY, compressed.FIELDS), np.int64)
        count, end = compressed.find_compressed(
            data, at, self._trailer, self._id_bytes, self._chunk_bytes - self._size, limit, found
        )
        opened = _texts(data.data, found[:count])
        texts = np.frombuffer(b"".join(opened), np.uint8)
        good = int(compressed.sound_payloads(found[: len(opened)], texts))
        if good < count:  # read alone, it tells what is wrong
            end = int(found[good, compressed.AT])
        if not good:
            self._add(data[at:end])
            return int(end)
        found = found[:good]
        out = np.empty(compressed.opened_bytes(found, at, end), np.uint8)
        compressed.place_opened(data, at, end, self.start - at, found, texts, out)
        self._add(out)
        return int(end)

    def _plain(self, event: Bytes) -> Bytes:
        return _plain_event(event, self._trailer, self._id_bytes, self._event_bytes_max)

    def _check(self, event: Bytes) -> None:
        if self._trailer:
            expected = int.from_bytes(event[-4:].tobytes(), "little")
            if zlib.crc32(event[:-4].data) != expected:
                name = event_name(int(event[4]))
                raise CorruptEvent(f"{name}: the checksum does not fit the event's bytes")

    def _add(self, *parts: Bytes) -> None:
        for part in parts:
            if part.size:
                self._parts.append(part)
                self._size += part.size

    def _frame(self, event: Bytes, inner: int, size: int) -> Bytes:
        """Return the frame before `size` bytes of events that were compressed."""
        timestamp, _, server_id, length, log_position, flags = _HEADER.unpack_from(event.tobytes())
        header = _HEADER.pack(
            timestamp,
            event_types.TRANSACTION_PAYLOAD,
            server_id,
            FRAME_BYTES,
            log_position,
            flags,
        )
        body = struct.pack("<4q", self.start, length, inner, size)
        return np.frombuffer(header + body, np.uint8)

    # ---- chunks

    def cut(self, end_position: int) -> RawChunk | None:
        """Return the events that were opened since the last cut; None if there are none."""
        if not self._size:
            return None
        head = replace(self._head, end_position=end_position, events=0, gtids=0)
        data = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
        self._parts, self._size = [], 0
        return RawChunk(head, data)

    def _cut_before(self, position: int, *, in_transaction: bool) -> RawChunk:
        """Cut where a transaction may be open: the next chunk carries what it depends on."""
        piece = self.cut(position)
        assert piece is not None
        self._parts = _carried(piece, self._trailer)
        carried_bytes = sum(part.size for part in self._parts)
        self._head = replace(
            self._chunk.head,
            position=position,
            carried_bytes=carried_bytes,
            in_transaction=in_transaction,
        )
        return piece

    # ---- MySQL's payload

    def _payload(self, event: Bytes, length: int) -> Iterator[RawChunk]:
        payload = _payload(event[event_types.HEADER_BYTES : length - self._trailer])
        inner = 0
        rest: Bytes = np.empty(0, np.uint8)
        for block in payload.blocks(self._chunk_bytes):
            rest = np.concatenate([rest, block]) if rest.size else block
            whole, need = (int(n) for n in scan.whole_events(rest))
            if need > self._event_bytes_max or need < 0:
                raise CorruptEvent("TRANSACTION_PAYLOAD: an event in it has an impossible length")
            if not whole:
                continue
            self._add(self._frame(event, inner, whole), rest[:whole])
            inner += whole
            rest = rest[whole:]
            if self._size >= self._chunk_bytes and inner < payload.size:
                yield self._cut_before(self.start, in_transaction=True)
        if rest.size:
            raise CorruptEvent("TRANSACTION_PAYLOAD: it ends inside an event")
        if not inner:  # it still moves the position
            self._add(self._frame(event, 0, 0))


@dataclass(frozen=True, slots=True)
class _Payload:
    """A compressed payload; `size`: bytes when decompressed."""

    data: Bytes
    compression: int
    size: int

    def blocks(self, block_bytes: int) -> Iterator[Bytes]:
        """The decompressed bytes in order."""
        if self.compression == _NOT_COMPRESSED:
            if self.data.size != self.size:
                raise _payload_size()
            yield self.data
            return
        left = self.size
        try:
            source = zstandard.ZstdDecompressor().stream_reader(
                self.data.data, read_across_frames=True
            )
            while left:
                block = np.frombuffer(source.read(min(block_bytes, left)), np.uint8)
                if not block.size:
                    raise _payload_size()
                left -= block.size
                yield block
            if source.read(1):
                raise _payload_size()
        except zstandard.ZstdError as error:
            raise CorruptEvent(f"TRANSACTION_PAYLOAD: its zstd data is broken: {error}") from None


def _texts(data: memoryview, found: Int64s) -> list[bytes]:
    """Open events as far as that succeeds."""
    texts: list[bytes] = []
    zstd = zstandard.ZstdDecompressor()
    with contextlib.suppress(zlib.error, zstandard.ZstdError):
        for at, count, size, kind in found[:, compressed.PACKED : compressed.KIND + 1].tolist():
            packed = data[at : at + count]
            if kind == event_types.TRANSACTION_PAYLOAD:
                if zstandard.frame_content_size(packed) not in (-1, size):
                    break
                text = zstd.decompress(packed, max_output_size=size, allow_extra_data=False)
            else:
                stream = zlib.decompressobj()
                text = stream.decompress(packed, size + 1)
                if not stream.eof:
                    break
            if len(text) != size:
                break
            texts.append(text)
    return texts


def _payload_size() -> CorruptEvent:
    return CorruptEvent("TRANSACTION_PAYLOAD: its data is not as long as it says")


def _payload(body: Bytes) -> _Payload:
    head = body[:_PAYLOAD_HEAD_BYTES_MAX].tobytes()
    reader = Reader(head, "TRANSACTION_PAYLOAD")
    fields: dict[int, int] = {}
    while number := reader.packed():
        value = Reader(reader.take(reader.packed()), "TRANSACTION_PAYLOAD")
        if number <= compressed.UNCOMPRESSED_SIZE:
            fields[number] = value.packed()
    data = body[len(head) - reader.left :]
    compression = fields.get(compressed.COMPRESSION, _NOT_COMPRESSED)
    if fields.get(compressed.PAYLOAD_SIZE, data.size) != data.size:
        raise CorruptEvent("TRANSACTION_PAYLOAD: the payload is not as long as it says")
    if compression not in (compressed.ZSTD, _NOT_COMPRESSED):
        raise UnsupportedEvent(f"TRANSACTION_PAYLOAD: compression {compression} is not known")
    return _Payload(data, compression, fields.get(compressed.UNCOMPRESSED_SIZE, data.size))


# ---- MariaDB


def _table_id_bytes(post_header: bytes) -> int:
    """Return how long table ids are in row events, by the length of their fixed part."""
    number = event_types.TABLE_MAP - 1
    return 4 if len(post_header) > number and post_header[number] == 6 else 6


def _plain_event(event: Bytes, trailer: int, id_bytes: int, bytes_max: int) -> Bytes:
    """MariaDB's compressed event as the plain one, without checksum."""
    kind = int(event[4])
    name = event_name(kind)
    body = event[event_types.HEADER_BYTES : event.size - trailer].tobytes()
    reader = Reader(body, name)
    if kind == event_types.MARIADB_QUERY_COMPRESSED:
        plain_kind = event_types.QUERY
        head = reader.take(compressed.QUERY_HEAD_BYTES)
        reader.skip(int.from_bytes(head[11:13], "little") + head[8] + 1)
    else:
        plain_kind = kind - event_types.MARIADB_WRITE_ROWS_COMPRESSED_V1 + event_types.WRITE_ROWS_V1
        reader.skip(id_bytes + 2)
        if kind >= event_types.MARIADB_WRITE_ROWS_COMPRESSED:
            plain_kind = kind - event_types.MARIADB_WRITE_ROWS_COMPRESSED + event_types.WRITE_ROWS
            extra = reader.integer(2)
            if extra < 2:
                raise CorruptEvent(f"{name}: its extra data is too short")
            reader.skip(extra - 2)
        bitmap_bytes = (reader.packed() + 7) // 8
        is_update = plain_kind in (event_types.UPDATE_ROWS_V1, event_types.UPDATE_ROWS)
        reader.skip(bitmap_bytes * (2 if is_update else 1))
    head_bytes = body[: len(body) - reader.left]
    text = _inflated(reader, name, bytes_max)
    timestamp, _, server_id, _, log_position, flags = _HEADER.unpack_from(event.tobytes())
    size = event_types.HEADER_BYTES + len(head_bytes) + len(text)
    header = _HEADER.pack(timestamp, plain_kind, server_id, size, log_position, flags)
    return np.frombuffer(header + head_bytes + text, np.uint8)


def _inflated(reader: Reader, name: str, bytes_max: int) -> bytes:
    mark = reader.integer(1)
    length_bytes, algorithm = mark & 7, mark >> 4 & 7
    if not mark & 0x80 or algorithm or not 1 <= length_bytes <= 4:
        raise UnsupportedEvent(f"{name}: compression header {mark:#x} is not known")
    size = int.from_bytes(reader.take(length_bytes), "big")
    packed = reader.take(reader.left)
    if size > min(bytes_max, len(packed) * compressed.ZLIB_FACTOR_MAX):
        raise CorruptEvent(f"{name}: {len(packed)} bytes cannot hold {size}")
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(packed, size + 1)
    except zlib.error as error:
        raise CorruptEvent(f"{name}: its zlib data is broken: {error}") from None
    if len(text) != size or not stream.eof:
        raise CorruptEvent(f"{name}: its data is not as long as it says")
    return text


# ---- what a cut inside a transaction carries


def _carried(chunk: RawChunk, trailer: int) -> list[Bytes]:
    """The GTID event and the open statement's TABLE_MAPs of what was cut off here."""
    data = chunk.data
    capacity = 64
    while True:
        found = np.zeros((capacity, 3), np.int64)
        count = int(scan.dependencies(data, trailer, chunk.head.flavor == "mariadb", found))
        if count <= capacity:
            break
        capacity = count
    parts: list[Bytes] = []
    for at, length, framed in found[:count].tolist():
        event = data[at : at + length].copy()
        if framed:  # it has no checksum: a frame says so
            header = _HEADER.unpack_from(event.tobytes())
            frame = _HEADER.pack(
                header[0], event_types.TRANSACTION_PAYLOAD, header[2], FRAME_BYTES, *header[4:]
            )
            body = struct.pack("<4q", chunk.head.position, 0, 0, length)
            parts.append(np.frombuffer(frame + body, np.uint8))
        parts.append(event)
    return parts
