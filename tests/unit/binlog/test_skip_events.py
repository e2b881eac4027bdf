"""Events that nobody can read: what stops at them, what names them, what leaves them out."""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.binlog.events import event_name
from ray_canal.binlog.packed_chunk import pack, unpack
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, CorruptEvent, DecodeError, IncidentEvent, UnsupportedEvent
from ray_canal.kernels.base import event_types
from ray_canal.offline import decode_chunks, decode_files
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.search import Search

NAME = "mysql-bin.000001"
UNKNOWN, INCIDENT = 200, 26
Event = tuple[int, int, bytes]  # its offset, its type, itself


def events_of(data: bytes) -> list[Event]:
    found, at = [], 4
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 9)
        found.append((at, data[at + 4], data[at : at + length]))
        at += length
    return found


def event(kind: int, body: bytes = b"what is this") -> bytes:
    size = event_types.HEADER_BYTES + len(body) + event_types.CHECKSUM_BYTES
    return checked(struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, 0, 0) + body + bytes(4))


def checked(data: bytes) -> bytes:
    """The event with the checksum that fits it."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


@pytest.fixture(scope="module")
def original() -> bytes:
    return binlog_files()[0].read_bytes()


def places_of(data: bytes, kinds: range) -> list[int]:
    return [at for at, kind, _ in events_of(data) if kind in kinds]


ROWS = range(30, 33)


def written(folder: Path, data: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(data)
    return path


def rows(path: Path, **options: Any) -> list[tuple[int, int, Any, Any]]:
    """(event's number among row events, row, before, after): positions are shifted by what was put
    in between."""
    found = [
        (row["position"], row["row"], row.get("before"), row.get("after"))
        for batch in decode_files([path], **options)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: row[:2])


def values(found: list[tuple[int, int, Any, Any]]) -> list[tuple[Any, Any]]:
    return [row[2:] for row in found]


@pytest.mark.parametrize("kind", [UNKNOWN, INCIDENT, 0, 99])
@pytest.mark.parametrize("inside", [True, False])
def test_an_event_that_is_named_may_pass(
    original: bytes, tmp_path: Path, kind: int, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """a8: one event, by its file and offset; without that it stops, and says what lets it pass."""
    places = places_of(original, ROWS if inside else range(16, 17))
    at = places[len(places) // 2]
    path = written(tmp_path, original[:at] + event(kind) + original[at:])
    whole = rows(binlog_files()[0])
    with pytest.raises(IncidentEvent if kind == INCIDENT else UnsupportedEvent) as stopped:
        infos(path)
    assert (stopped.value.journal_name, stopped.value.position) == (NAME, at)
    assert f'source.skip_events = ["{NAME}:{at}"]' in str(stopped.value)
    caplog.set_level(logging.WARNING)
    assert values(rows(path, skip_events=[f"{NAME}:{at}"])) == values(whole)
    told = f"an event was left out: {event_name(kind)} at {NAME}:{at}, 35 bytes"
    assert told in caplog.text
    with pytest.raises(DecodeError):
        rows(path, skip_events=[f"{NAME}:{at + 1}", f"mysql-bin.000002:{at}"])


def infos(path: Path, *skips: int) -> list[ChunkInfo]:
    places = [f"{NAME}:{at}" for at in skips]
    return [info for info, _ in decode_chunks([path], skip_events=places)]


@pytest.mark.parametrize("kind", sorted(event_types.OLD))
def test_events_of_old_servers_are_counted_and_left_out(
    original: bytes, tmp_path: Path, kind: int
) -> None:
    """a8: what Canal's switch knows and makes nothing of needs no name, but is told."""
    at = places_of(original, ROWS)[3]
    path = written(tmp_path, original[:at] + event(kind) + original[at:])
    (skipped,) = [skipped for info in infos(path) for skipped in info.skipped]
    assert skipped[:3] == (at, event_name(kind), 35)
    assert "Canal" in skipped.reason
    assert values(rows(path)) == values(rows(binlog_files()[0]))


@pytest.mark.parametrize("kind", [9, 11, 17])
def test_the_files_of_load_data_make_nothing(original: bytes, tmp_path: Path, kind: int) -> None:
    """a8: APPEND_BLOCK, DELETE_FILE, BEGIN_LOAD_QUERY; EXECUTE_LOAD_QUERY has an entry."""
    at = places_of(original, ROWS)[3]
    path = written(tmp_path, original[:at] + event(kind) + original[at:])
    assert not any(info.skipped for info in infos(path))
    assert values(rows(path)) == values(rows(binlog_files()[0]))


def test_two_in_one_chunk_each_by_its_own_name(original: bytes, tmp_path: Path) -> None:
    one, two = places_of(original, ROWS)[2:4]
    data = original[:one] + event(UNKNOWN) + original[one:two] + event(201) + original[two:]
    path, two = written(tmp_path, data), two + 35
    with pytest.raises(UnsupportedEvent) as stopped:
        infos(path, one)
    assert stopped.value.position == two
    skipped = [each for info in infos(path, one, two) for each in info.skipped]
    assert [each.position for each in skipped] == [one, two]
    assert values(rows(path, skip_events=[f"{NAME}:{one}", f"{NAME}:{two}"])) == values(
        rows(binlog_files()[0])
    )


def test_rows_that_cannot_be_read_are_left_out_alone(original: bytes, tmp_path: Path) -> None:
    """a8: a row event with a bad checksum, and one whose rows end too early."""
    at = places_of(original, ROWS)[5]
    (_, _, found) = next(each for each in events_of(original) if each[0] == at)
    whole = rows(binlog_files()[0])
    expected = [row for row in whole if row[0] != at]
    assert len(expected) < len(whole)
    flipped = found[:-6] + bytes([found[-6] ^ 1]) + found[-5:]
    shorter = struct.pack("<I", len(found) - 3)
    cut = checked(found[:9] + shorter + found[13:-7] + bytes(4))
    for broken, why in ((flipped, "checksum"), (cut, "ends inside a row")):
        path = written(tmp_path, original[:at] + broken + original[at + len(found) :])
        with pytest.raises(CorruptEvent, match=why):
            infos(path)
        (skipped,) = [each for info in infos(path, at) for each in info.skipped]
        assert (skipped.position, skipped.reason[:18]) == (at, "source.skip_events")
        assert values(rows(path, skip_events=[f"{NAME}:{at}"])) == values(expected)


def test_what_can_be_read_is_never_left_out(original: bytes) -> None:
    """a8: a name that is out of date, or of another server's file, costs nothing."""
    path = binlog_files()[0]
    places = [at for at, _, _ in events_of(original)]
    assert not any(info.skipped for info in infos(path, *places))
    assert rows(path, skip_events=[f"{NAME}:{at}" for at in places]) == rows(path)


def test_what_holds_the_log_together_cannot_be_left_out(original: bytes, tmp_path: Path) -> None:
    """a8: without the end of a transaction, or its GTID, what follows would be another thing."""
    for kind in (2, 16, 33):
        at, _, found = [each for each in events_of(original) if each[1] == kind][3]
        broken = found[:-6] + bytes([found[-6] ^ 1]) + found[-5:]
        path = written(tmp_path, original[:at] + broken + original[at + len(found) :])
        with pytest.raises(CorruptEvent, match="checksum"):
            infos(path, at)


def test_searches_pass_them_too(original: bytes, tmp_path: Path) -> None:
    """a8: a start is searched in logs that have them."""
    at = places_of(original, ROWS)[5]
    path = written(tmp_path, original[:at] + event(UNKNOWN) + original[at:])
    end = path.stat().st_size
    with pytest.raises(UnsupportedEvent):
        Search(FilesLog([path])).boundary(NAME, end)
    found = Search(FilesLog([path], [(NAME, at)])).boundary(NAME, end)
    assert found.gtid == Search(FilesLog([binlog_files()[0]])).boundary(NAME, end - 35).gtid


def test_a_chunk_in_quarantine_keeps_the_names(original: bytes) -> None:
    """a8: so that redrive can read it."""
    at = places_of(original, ROWS)[5]
    cutter = ChunkCutter(1 << 20, contiguous=True, skips=[(NAME, at), ("other", at)])
    cutter.begin_file(NAME)
    cutter.feed(original[4:at] + event(UNKNOWN) + original[at:])
    chunks = []
    while (chunk := cutter.next() or cutter.flush()) is not None:
        chunks.append(chunk)
    (raw,) = [chunk for chunk in chunks if chunk.head.skips]
    assert raw.head.skips == (at,)
    parsed = EventParser(SchemaRegistry()).parse(unpack(pack(raw)))
    assert parsed.failure is None
    assert [each.position for each in parsed.skipped] == [at]


@pytest.mark.parametrize("text", ["", "mysql-bin.000012", ":4711", "mysql-bin.000012:x"])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mysql-bin\.000012:4711"):
        list(decode_chunks([binlog_files()[0]], skip_events=[text]))
