"""ChunkCutter on golden binlogs of three servers, against a plain walk of the same bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from ray_canal import demo
from ray_canal.binlog import cutter as module
from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.malloc import large
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from tests.golden import GOLDEN

NAMES = [
    "mysql97/mysql_dml.binlog",
    "mysql97/mysql_xa.binlog",
    "mysql97/mysql_taggedgtid.binlog",
    "mysql97/mysql_ddl.binlog",
    "mysql56/mysql56_dml.binlog",
    "mysql56/mysql56_ddl.binlog",
    "mariadb1011/maria_dml.binlog",
    "mariadb1011/maria_ddl.binlog",
]
ROWS = {20, 21, 22, 23, 24, 25, 30, 31, 32, 39, 166, 167, 168, 169, 170, 171}
GTIDS = {33, 34, 42, 162}
XID = 16
ANNOTATIONS, TABLE_MAP = {29, 160}, 19
FORMAT_DESCRIPTION = 15


def golden(name: str) -> bytes:
    path = GOLDEN / name
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    return path.read_bytes()


def events(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 9)
        found.append(data[at : at + length])
        at += length
    return found


def cut(
    data: bytes, chunk_bytes: int, feed_bytes: int, contiguous: bool = True
) -> tuple[list[RawChunk], ChunkCutter]:
    cutter = ChunkCutter(chunk_bytes, contiguous=contiguous)
    cutter.begin_file("mysql-bin.000001")
    chunks: list[RawChunk] = []
    for at in range(4, len(data), feed_bytes):
        cutter.feed(data[at : at + feed_bytes], 1.5)
        while (chunk := cutter.next()) is not None:
            chunks.append(chunk)
    if (last := cutter.flush()) is not None:
        chunks.append(last)
    return chunks, cutter


def new_bytes(chunk: RawChunk) -> bytes:
    return chunk.data[chunk.head.carried_bytes :].tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize(("chunk_bytes", "feed_bytes"), [(1, 7), (300, 1000), (5000, 1 << 20)])
def test_chunks_are_the_file(
    name: str, contiguous: bool, chunk_bytes: int, feed_bytes: int
) -> None:
    data = golden(name)
    chunks, cutter = cut(data, chunk_bytes, feed_bytes, contiguous)
    assert b"".join(new_bytes(chunk) for chunk in chunks) == data[4:]
    assert cutter.partial_bytes == 0
    at = 4
    for sequence, chunk in enumerate(chunks):
        assert chunk.head.sequence == sequence
        assert (chunk.head.position, chunk.head.end_position) == (at, at + chunk.size_bytes)
        assert chunk.head.has_checksum
        assert chunk.head.received_at == 1.5
        kinds = [event[4] for event in events(new_bytes(chunk)) if event[4] != FORMAT_DESCRIPTION]
        assert chunk.head.events == len(kinds)
        assert chunk.head.gtids == sum(kind in GTIDS for kind in kinds)
        assert (chunk.head.flavor == "mariadb") == ("maria" in name)
        at = chunk.head.end_position


@pytest.mark.parametrize("name", ["mariadb1011/maria_dml.binlog", "mariadb1011/maria_ddl.binlog"])
@pytest.mark.parametrize("chunk_bytes", [1, 300, 1 << 20])
def test_a_dump_whose_transactions_name_no_positions(name: str, chunk_bytes: int) -> None:
    """As MariaDB 11.4 and later write them: between a GTID and the transaction's end they are 0."""
    bare, is_open = [golden(name)[:4]], False
    for event in events(golden(name)[4:]):
        ends = event[4] == 16 or (event[4] == 2 and b"COMMIT" in event)
        if is_open and not ends:
            event = event[:13] + bytes(4) + event[17:-4]
            event += struct.pack("<I", zlib.crc32(event))
        is_open = not ends and (is_open or (event[4] == 162 and not event[31] & 1))
        bare.append(event)
    data = b"".join(bare)
    assert data != golden(name)
    chunks, _ = cut(data, chunk_bytes, 1000, contiguous=False)
    assert b"".join(new_bytes(chunk) for chunk in chunks) == data[4:]
    whole, _ = cut(golden(name), chunk_bytes, 1000)
    places = places_of(chunks)
    assert places == places_of(whole)
    assert sum(rows for _, rows in places) > 3


def places_of(chunks: list[RawChunk]) -> list[tuple[int, int]]:
    """(position, rows) of each entry, with the schemas that the log's DDL gives."""
    parser = EventParser(SchemaRegistry(), SchemaKeeper(None))
    found: list[tuple[int, int]] = []
    for chunk in chunks:
        info, decoded = parser.decode_chunk(chunk)
        assert info.failure is None
        events = decoded.events
        found += zip(events["position"].tolist(), events["rows"].tolist(), strict=True)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("feed_bytes", [50, 1 << 20])
def test_carried_events_are_those_of_the_open_transaction_and_statement(
    name: str, feed_bytes: int
) -> None:
    data = golden(name)
    chunks, _ = cut(data, 1, feed_bytes)
    gtid: list[bytes] = []
    maps: list[bytes] = []
    carried_some = False
    for chunk in chunks:
        carried = events(chunk.data[: chunk.head.carried_bytes].tobytes())
        assert carried == gtid + maps
        carried_some = carried_some or bool(maps)
        for event in events(new_bytes(chunk)):
            kind = event[4]
            if kind in GTIDS:
                gtid, maps = [event], []
            elif kind == 19:
                maps.append(event)
            elif kind in ROWS and struct.unpack_from("<H", event, 25)[0] & 1:
                maps = []
            elif kind in (16, 38, 3, 4, 40):
                gtid, maps = [], []
            elif kind == 2:
                text = query_text(event)
                if not chunk_in_transaction(text, gtid):
                    gtid = []
    assert carried_some or name.endswith("maria_ddl.binlog")  # all of its rows have a text


def query_text(event: bytes) -> bytes:
    schema_bytes, status_bytes = event[19 + 8], struct.unpack_from("<H", event, 19 + 11)[0]
    return event[19 + 13 + status_bytes + schema_bytes + 1 : -4]


def chunk_in_transaction(text: bytes, gtid: list[bytes]) -> bool:
    """Whether the transaction is still open behind this query."""
    word = text.split(b" ")[0].upper()
    if word == b"XA":
        return text.split()[1].upper() in (b"START", b"END")
    if word in (b"COMMIT", b"ROLLBACK"):
        return b" TO " in text.upper()
    if word in (b"BEGIN", b"SAVEPOINT", b"INSERT", b"UPDATE"):
        return True
    mariadb_open = bool(gtid) and gtid[0][4] == 162 and not gtid[0][31] & 1
    return mariadb_open or b"START TRANSACTION" in text.upper()


def test_a_chunk_ends_behind_ddl() -> None:
    data = golden("mysql97/mysql_dml.binlog")
    chunks, _ = cut(data, 1 << 20, 1 << 20)
    for chunk in chunks:
        inside = events(new_bytes(chunk))[:-1]
        texts = [query_text(event) for event in inside if event[4] == 2]
        assert all(text.split(b" ")[0] in (b"BEGIN", b"COMMIT", b"SAVEPOINT") for text in texts)
    assert len(chunks) > 1


def test_a_chunk_ends_where_a_transaction_does_if_it_is_nearly_full() -> None:
    data = (Path(demo.__file__).parent / "mysql-bin.000001").read_bytes()
    ends_early = 0
    for chunk_bytes in (8000, 30_000, 100_000):
        early = chunk_bytes - chunk_bytes // 16
        for chunk in cut(data, chunk_bytes, 1 << 20)[0][:-1]:
            found = events(new_bytes(chunk))
            behind = np.cumsum([len(event) for event in found]).tolist()
            ends = [at for event, at in zip(found, behind, strict=True) if event[4] == XID]
            assert [at for at in ends if at >= early] in ([], behind[-1:])
            if found[-1][4] == XID:
                assert behind[-1] >= early
                ends_early += behind[-1] < chunk_bytes
    assert ends_early > 5


@pytest.mark.parametrize("name", ["mariadb1011/maria_dml.binlog", "mysql97/mysql_rowsquery.binlog"])
def test_no_full_chunk_parts_the_text_of_a_statement_from_its_rows(name: str) -> None:
    """However the bytes come: whether a filter keeps the text back, the rows say."""
    data = golden(name)
    annotated = 0
    for feed_bytes in (70, 997, len(data)):
        chunks, cutter = cut(data, 100, feed_bytes)
        assert not cutter.is_held
        for chunk in chunks:
            kinds = [event[4] for event in events(new_bytes(chunk))]
            assert kinds[-1] not in ANNOTATIONS
            for kind, after in itertools.pairwise(kinds):
                annotated += kind in ANNOTATIONS
                assert kind not in ANNOTATIONS or after in {TABLE_MAP, *ANNOTATIONS, *ROWS}
            while len(kinds) > 1 and kinds[-1] == TABLE_MAP:
                assert kinds.pop(-2) not in ANNOTATIONS
    assert annotated > 20


def test_feeding_in_any_pieces_gives_the_same_chunks() -> None:
    data = golden("mysql97/mysql_dml.binlog")
    expected, _ = cut(data, 700, 1 << 20)
    rng = random.Random(3)
    for _ in range(10):
        cutter = ChunkCutter(700, contiguous=True)
        cutter.begin_file("mysql-bin.000001")
        at, found = 4, []
        while at < len(data):
            size = rng.choice([1, 18, 19, 20, 100, 3000])
            cutter.feed(data[at : at + size], 1.5)
            at += size
            while (chunk := cutter.next()) is not None:
                found.append(chunk)
        if (last := cutter.flush()) is not None:
            found.append(last)
        assert [c.head for c in found] == [c.head for c in expected]
        assert all(np.array_equal(a.data, b.data) for a, b in zip(found, expected, strict=True))


def event(kind: int, body: bytes, log_position: int, flags: int = 0) -> bytes:
    length = 19 + len(body) + 4
    bare = struct.pack("<IBIIIH", 1, kind, 1, length, log_position & 0xFFFFFFFF, flags) + body
    return bare + struct.pack("<I", zlib.crc32(bare))


def format_event(log_position: int = 0) -> bytes:
    data = golden("mysql97/mysql_dml.binlog")
    first = data[4 : 4 + struct.unpack_from("<I", data, 13)[0]]
    return first[:13] + struct.pack("<I", log_position) + first[17:]


def stream(contiguous: bool = False) -> ChunkCutter:
    cutter = ChunkCutter(1 << 16, 1 << 20, contiguous=contiguous)
    cutter.begin_file("a.000001", 500)
    cutter.feed(event(4, struct.pack("<Q", 500) + b"a.000007", 0, 0x20))
    cutter.feed(format_event())
    assert cutter.next() is None
    return cutter


def test_artificial_events_name_the_file_and_make_no_chunk() -> None:
    cutter = stream()
    assert cutter.flush() is None
    assert (cutter.journal_name, cutter.position) == ("a.000007", 500)
    assert cutter.server_version.startswith("9.7")
    assert len(cutter.post_header_bytes) > 30


def test_heartbeat_moves_only_its_own_position() -> None:
    cutter = stream()
    first = event(16, bytes(8), 531)
    cutter.feed(first + event(27, b"a.000007", 9000))
    chunk = cutter.next() or cutter.flush()
    assert chunk is not None
    assert new_bytes(chunk) == first
    assert cutter.next() is None
    assert (cutter.position, cutter.heartbeat_position) == (531, 9000)
    cutter.feed(event(41, b"\x01\x08a.000007\x02\x09\xfe" + struct.pack("<Q", 1 << 33), 0))
    assert cutter.next() is None
    assert cutter.heartbeat_position == 1 << 33


@pytest.mark.parametrize("kind", [27, 41])
def test_a_heartbeat_in_a_file_takes_room_there_and_has_a_checksum(kind: int) -> None:
    cutter = ChunkCutter(1 << 16, contiguous=True)
    cutter.begin_file("a.000001")
    beat = event(kind, b"\x01\x08a.000001", 0)
    after = event(16, bytes(8), 0)
    cutter.feed(format_event() + beat + after)
    chunks = [chunk for _ in range(2) if (chunk := cutter.next() or cutter.flush())]
    assert [new_bytes(chunk) for chunk in chunks] == [format_event(), beat + after]
    start = 4 + len(format_event())
    assert (cutter.position, cutter.heartbeat_position) == (start + len(beat + after), 0)
    parser = EventParser(SchemaRegistry())
    assert parser.decode_chunk(chunks[1])[0].failure is None
    broken = bytearray(beat + after)
    broken[20] ^= 1
    bad = RawChunk(chunks[1].head, np.frombuffer(broken, np.uint8))
    failure = parser.decode_chunk(bad)[0].failure
    assert isinstance(failure, CorruptEvent)
    assert failure.position == start


def test_a_version_of_other_digits_is_no_number() -> None:
    cutter = ChunkCutter(1 << 16, contiguous=True)
    cutter.begin_file("a.000001")
    first = bytearray(format_event())
    version = b"9\xb2.7.0-log"  # a superscript two, which int() refuses
    first[21 : 21 + len(version) + 1] = version + b"\0"
    cutter.set_format(bytes(first))
    assert cutter.has_checksum


@pytest.mark.parametrize("started_s", [0, 1_700_000_000])
def test_chunks_of_the_first_file_since_the_servers_start_say_so(started_s: int) -> None:
    cutter = ChunkCutter(1 << 16, contiguous=True)
    cutter.begin_file("a.000001")
    first = bytearray(format_event())
    struct.pack_into("<I", first, 71, started_s)
    cutter.feed(first)
    chunk = cutter.next() or cutter.flush()
    assert chunk is not None
    assert chunk.head.first_since_start == bool(started_s)


def test_events_left_out_by_the_server_start_a_new_chunk() -> None:
    cutter = stream()
    cutter.feed(event(16, bytes(8), 531) + event(16, bytes(8), 2031))
    first, second = cutter.next(), cutter.next() or cutter.flush()
    assert first is not None
    assert second is not None
    assert (first.head.position, first.head.end_position) == (500, 531)
    assert (second.head.position, second.head.end_position) == (2000, 2031)


def test_positions_pass_4_gib() -> None:
    cutter = ChunkCutter(1 << 16)
    start = (1 << 32) - 40
    cutter.begin_file("a.000001", start)
    cutter.feed(format_event())
    for number in range(1, 5):
        cutter.feed(event(16, bytes(8), start + 31 * number))
    assert cutter.next() is None
    chunk = cutter.flush()
    assert chunk is not None
    assert chunk.head.end_position == start + 4 * 31


@pytest.mark.parametrize("length", [0, 18, 22, 1 << 21, (1 << 32) - 1])
def test_a_bad_length_names_file_and_offset_behind_the_good_events(length: int) -> None:
    cutter = stream()
    bad = event(16, bytes(8), 562)
    cutter.feed(event(16, bytes(8), 531) + bad[:9] + struct.pack("<I", length) + bad[13:])
    good = cutter.next()
    assert good is not None
    assert good.head.end_position == 531
    with pytest.raises(CorruptEvent, match=r"length.*a\.000007 offset 531") as caught:
        cutter.next()
    assert caught.value.position == 531


def test_a_giant_event_grows_the_buffer() -> None:
    cutter = ChunkCutter(1 << 12, 64 << 20, contiguous=True)
    cutter.begin_file("a.000001", 4)
    giant = event(29, os.urandom(5 << 20), 0)
    after = event(16, bytes(8), 0)
    data = format_event() + giant + after
    found = b""
    for at in range(0, len(data), 100_000):
        cutter.feed(data[at : at + 100_000])
        while (chunk := cutter.next()) is not None:
            found += new_bytes(chunk)
    last = cutter.flush()
    assert found + (new_bytes(last) if last else b"") == data


def test_a_buffer_has_room_for_one_chunk_and_little_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Pieces that did not fit had nearly full chunks copied, into buffers for two.
    asked: list[int] = []

    def noted(size_bytes: int) -> np.ndarray:
        asked.append(size_bytes)
        return large(size_bytes)

    monkeypatch.setattr(module, "large", noted)
    rng = random.Random(3)
    chunk_bytes, tail_bytes = 4 << 20, 256 << 10
    data = format_event() + b"".join(
        event(5 if k % 90 else 16, os.urandom(rng.randrange(8, 40_000)), 0) for k in range(3000)
    )
    cutter = ChunkCutter(chunk_bytes, 64 << 20, contiguous=True)
    cutter.begin_file("a.000001", 4)
    found, at = [], 0
    while at < len(data):
        piece = data[at : at + min(rng.randrange(1, 3 << 20), cutter.rest_bytes)]
        cutter.feed(piece)
        at += len(piece)
        while (chunk := cutter.next()) is not None:
            found.append(new_bytes(chunk))
    last = cutter.flush()
    assert b"".join(found) + (new_bytes(last) if last else b"") == data
    assert len(found) > 10
    assert max(asked) <= chunk_bytes + 4 * tail_bytes
    assert sum(size > tail_bytes for size in asked) <= len(found) + 1


def test_random_bytes_never_crash() -> None:
    rng = random.Random(5)
    data = bytearray(golden("mysql56/mysql56_dml.binlog")[4:])
    for _ in range(150):
        broken = bytearray(data[:4000])
        for _ in range(rng.randrange(1, 20)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        cutter = ChunkCutter(500, 1 << 20, contiguous=True)
        cutter.begin_file("x.000001")
        cutter.feed(bytes(broken))
        with contextlib.suppress(CorruptEvent, UnsupportedEvent):
            while cutter.next() is not None:
                pass
