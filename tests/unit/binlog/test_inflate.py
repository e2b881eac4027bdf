"""Compressed events against the same events uncompressed: real binlogs, compressed here as the
servers do it."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ray_canal.binlog import inflate
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.errors import CorruptEvent, DecodeError, UnsupportedEvent
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from tests.golden import GOLDEN

HEADER = struct.Struct("<IBIIIH")


def split(data: bytes) -> Iterator[bytes]:
    at = 4
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 9)
        yield data[at : at + length]
        at += length


def packed(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfd" + number.to_bytes(3, "little")


def event(like: bytes, kind: int, body: bytes, checksum: bool = True) -> bytes:
    timestamp, _, server_id, _, _, flags = HEADER.unpack_from(like)
    size = 19 + len(body) + 4 * checksum
    made = HEADER.pack(timestamp, kind, server_id, size, 0, flags) + body
    return made + zlib.crc32(made).to_bytes(4, "little") if checksum else made


def payload_event(inner: list[bytes], compression: int = 0) -> bytes:
    plain = b"".join(event(e, e[4], e[19:-4], checksum=False) for e in inner)
    data = pa.compress(plain, codec="zstd", asbytes=True) if compression == 0 else plain
    fields = b""
    for number, value in ((2, compression), (1, len(data)), (3, len(plain))):
        raw = packed(value)
        fields += packed(number) + packed(len(raw)) + raw
    return event(inner[0], 40, fields + b"\0" + data)


def compressed_mysql(data: bytes, compression: int = 0) -> bytes:
    """Every transaction from BEGIN to XID as one TRANSACTION_PAYLOAD."""
    out, inner = [data[:4]], []
    for e in split(data):
        if inner or (e[4] == 2 and e[19:-4].endswith(b"BEGIN")):
            inner.append(e)
            if e[4] == 16:
                out.append(payload_event(inner, compression))
                inner = []
        else:
            out.append(e)
    assert not inner
    return b"".join(out)


def compressed_maria(data: bytes) -> bytes:
    """Every row event and statement as its compressed twin."""
    out = [data[:4]]
    for e in split(data):
        body = e[19:-4]
        if 23 <= e[4] <= 25:
            bitmap = (body[8] + 7) // 8 * (2 if e[4] == 24 else 1)
            out.append(event(e, e[4] + 143, deflated(body, 9 + bitmap)))
        elif e[4] == 2:
            head = 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
            out.append(event(e, 165, deflated(body, head)))
        else:
            out.append(e)
    return b"".join(out)


def deflated(body: bytes, head: int) -> bytes:
    size = len(body) - head
    return body[:head] + b"\x83" + size.to_bytes(3, "big") + zlib.compress(body[head:])


def cut(data: bytes, chunk_bytes: int = 4 << 20, feed_bytes: int = 1 << 20) -> Iterator[RawChunk]:
    cutter = ChunkCutter(chunk_bytes, contiguous=True)
    cutter.begin_file("mysql-bin.000001")
    for at in range(4, len(data), feed_bytes):
        cutter.feed(data[at : at + feed_bytes], 1.5)
        while (chunk := cutter.next()) is not None:
            yield chunk
    while (chunk := cutter.flush()) is not None:
        yield chunk


def decoded(data: bytes, schema: str = "", **sizes: int) -> list[tuple[ChunkInfo, DecodedChunk]]:
    parser = EventParser(SchemaRegistry(create_table_sql=schema, catalog=None))
    results = [parser.decode_chunk(chunk) for chunk in cut(data, **sizes)]
    for info, _ in results:
        if info.failure is not None:
            raise info.failure
    return results


def rendered(chunks: list[tuple[ChunkInfo, DecodedChunk]], keep_place: bool) -> list[pb.Entry]:
    entries = []
    for _, chunk in chunks:
        for entry in iter_entries(chunk, 0, chunk.layout.event_count, gtid=True):
            if not keep_place:
                entry.header.logfileOffset = entry.header.eventLength = 0
                entry.header.ClearField("gtid")  # the set starts again with each chunk
            entries.append(entry)
    return entries


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("chunk_bytes", [1, 300, 2000, 1 << 20])
@pytest.mark.parametrize("compression", [0, 255])
def test_payloads_hold_the_events_that_were_compressed(chunk_bytes: int, compression: int) -> None:
    plain = golden("mysql97/mysql_dml.binlog")
    packed_file = compressed_mysql(plain, compression)
    expected = rendered(decoded(plain), keep_place=False)
    found = rendered(decoded(packed_file, chunk_bytes=chunk_bytes), keep_place=False)
    assert found == expected


@pytest.mark.parametrize("chunk_bytes", [1, 100, 700, 1 << 20])
def test_one_large_payload_becomes_many_chunks(chunk_bytes: int) -> None:
    """All rows of a file in one payload: pieces carry the GTID and TABLE_MAPs."""
    plain = golden("mysql97/mysql_dml.binlog")
    events = list(split(plain))
    first = next(k for k, e in enumerate(events) if e[4] == 2 and e[19:-4].endswith(b"BEGIN"))
    last = max(k for k, e in enumerate(events) if e[4] == 16)
    inside = [e for e in events[first : last + 1] if e[4] not in (33, 2, 16)]
    inside = [events[first], *inside, events[last]]
    before = plain[:4] + b"".join(events[:first])
    whole = before + b"".join(inside)
    once = before + payload_event(inside)
    expected = rendered(decoded(whole), keep_place=False)
    chunks = decoded(once, chunk_bytes=chunk_bytes)
    assert rendered(chunks, keep_place=False) == expected
    if chunk_bytes == 1:
        assert len(chunks) > 50
    assert [info.head.sequence for info, _ in chunks] == list(range(len(chunks)))
    places = [
        place
        for _, chunk in chunks
        for batch in batches(chunk, 0, chunk.layout.event_count)
        for place in zip(batch["position"].to_pylist(), batch["row"].to_pylist(), strict=True)
    ]
    assert len({position for position, _ in places}) == 1
    assert len(set(places)) == len(places) > 50


def test_places_do_not_depend_on_chunk_sizes() -> None:
    data = compressed_mysql(golden("mysql97/mysql_dml.binlog"))
    wholes = [rendered(decoded(data, chunk_bytes=n), keep_place=True) for n in (1, 900, 1 << 20)]
    for entries in wholes:
        for entry in entries:
            entry.header.ClearField("gtid")
    assert wholes[0] == wholes[1] == wholes[2]
    starts = [e.header.logfileOffset for e in wholes[0]]
    assert starts == sorted(starts)


@pytest.mark.parametrize("chunk_bytes", [1, 300, 1 << 20])
def test_mariadb_events_are_the_plain_ones(chunk_bytes: int) -> None:
    plain = golden("mariadb1011/maria_dml.binlog")
    schema = golden("mariadb1011/maria_dml.schema.sql").decode()
    expected = rendered(decoded(plain, schema), keep_place=False)
    found = decoded(compressed_maria(plain), schema, chunk_bytes=chunk_bytes)
    assert rendered(found, keep_place=False) == expected


def broken(data: bytes, kind: int, change: str) -> tuple[bytes, int]:
    """The file with its second event of a kind changed, checksum mended; and that event's place."""
    out, at, place, seen = [data[:4]], 4, 0, 0
    for e in split(data):
        seen += e[4] == kind
        if e[4] == kind and seen == 2:
            place = at
            body = bytearray(e[19:-4])
            if change == "checksum":
                e = e[:-1] + bytes([e[-1] ^ 1])
            else:
                if change == "data":
                    body[-9] ^= 0xFF
                elif change == "shorter":
                    del body[-7:]
                elif change == "size":
                    size_at = 7 + body[4]  # the uncompressed size
                    body[size_at + (body[size_at] == 0xFD)] ^= 1
                elif change == "method":
                    body[body.index(b"\x83")] = 0x93
                e = event(e, kind, bytes(body))
        out.append(e)
        at += len(e)
    return b"".join(out), place


@pytest.mark.parametrize("change", ["checksum", "data", "shorter", "size"])
def test_a_broken_payload_is_an_error_with_its_place(change: str) -> None:
    data, place = broken(compressed_mysql(golden("mysql97/mysql_dml.binlog")), 40, change)
    chunks = []
    with pytest.raises(CorruptEvent) as caught:
        chunks.extend(iter(cut(data)))
    assert (caught.value.journal_name, caught.value.position) == ("mysql-bin.000001", place)
    assert chunks[-1].head.end_position == place  # the good events before it came out


@pytest.mark.parametrize("change", ["checksum", "data", "shorter", "method"])
def test_a_broken_mariadb_event_is_an_error_with_its_place(change: str) -> None:
    data, place = broken(compressed_maria(golden("mariadb1011/maria_dml.binlog")), 166, change)
    with pytest.raises((CorruptEvent, UnsupportedEvent)) as caught:
        list(cut(data))
    assert caught.value.position == place


def outcome(data: bytes, chunk_bytes: int) -> list[object]:
    found: list[object] = []
    try:
        found.extend((chunk.head, chunk.data.tobytes()) for chunk in cut(data, chunk_bytes))
    except DecodeError as error:
        found.append((type(error), str(error)))
    return found


def changed(data: bytes, rng: random.Random) -> bytes:
    """Some bytes of one compressed event changed, often of its head; its checksum mended."""
    events = [*split(data)]
    number = rng.choice([k for k, e in enumerate(events) if e[4] == 40 or e[4] >= 165])
    e, body = events[number], bytearray(events[number][19:-4])
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(min(len(body), rng.choice([16, 40, 1 << 20])))
        if rng.random() < 0.8:
            body[at] = rng.choice([0, 1, 2, 3, 0x81, 250, 252, 253, 254, 255, rng.randrange(256)])
        elif rng.random() < 0.5:
            del body[at : at + rng.randint(1, 9)]
        else:
            body[at:at] = rng.randbytes(rng.randint(1, 9))
        body = body or bytearray(1)
    events[number] = event(e, e[4], bytes(body))
    return data[:4] + b"".join(events)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_many_at_once_are_what_each_alone_is(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is wrong with a broken one, and what comes before it."""
    rng, is_mysql = random.Random(seed), kind == "mysql"
    name = "mysql97/mysql_dml.binlog" if is_mysql else "mariadb1011/maria_dml.binlog"
    data = compressed_mysql(golden(name)) if is_mysql else compressed_maria(golden(name))
    files = [(data, size) for size in (500, 3000)]
    files += [(changed(data, rng), rng.choice([500, 3000, 1 << 20])) for _ in range(25)]
    many = [outcome(*each) for each in files]
    monkeypatch.setattr(inflate, "_MANY", 0)
    for (_, size), one, other in zip(files, [outcome(*each) for each in files], many, strict=True):
        assert one == other, f"chunks of {size} bytes"


def test_a_failed_cutter_gives_nothing_more() -> None:
    data, _ = broken(compressed_mysql(golden("mysql97/mysql_dml.binlog")), 40, "data")
    cutter = ChunkCutter(contiguous=True)
    cutter.begin_file("f")
    cutter.feed(data[4:])

    def take_all() -> None:
        while cutter.next() is not None or cutter.flush() is not None:
            pass

    for _ in range(3):
        with pytest.raises(DecodeError):
            take_all()


def test_a_length_that_lies_takes_no_memory() -> None:
    plain = golden("mariadb1011/maria_dml.binlog")
    e = next(e for e in split(plain) if e[4] == 23)
    body = e[19:-4]
    lie = body[:10] + b"\x84\xff\xff\xff\x3f" + zlib.compress(b"x")
    head = next(split(plain))
    with pytest.raises(CorruptEvent, match="cannot hold"):
        list(cut(plain[:4] + head + event(e, 166, lie)))


def test_row_events_version_0_are_version_1_with_one_bitmap() -> None:
    """No server since MySQL 5.1.16 writes them; their layout is in MySQL's internals manual."""
    plain = golden("mariadb1011/maria_dml.binlog")
    schema = golden("mariadb1011/maria_dml.schema.sql").decode()
    out, changed = [plain[:4]], 0
    for e in split(plain):
        body = e[19:-4]
        bitmap = (body[8] + 7) // 8 if e[4] == 24 else 0
        one_does = body[9 : 9 + bitmap] == body[9 + bitmap : 9 + 2 * bitmap]
        if 23 <= e[4] <= 25 and one_does:
            e = event(e, e[4] - 3, body[: 9 + bitmap] + body[9 + 2 * bitmap :])
            changed += 1
        out.append(e)
    expected = rendered(decoded(plain, schema), keep_place=False)
    assert rendered(decoded(b"".join(out), schema), keep_place=False) == expected
    assert changed > 30
