"""Binlog files as a source: order, start, following, and what damaged files get."""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ray_canal.binlog.chunk import RawChunk
from ray_canal.config import InstanceConfig
from ray_canal.errors import CorruptEvent, PositionNotFound, UnsupportedEvent
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.source.checks import check_source
from ray_canal.source.files import BinlogFiles


def event(kind: int, body: bytes, timestamp: int = 1, flags: int = 0) -> bytes:
    bare = struct.pack("<IBIIIH", timestamp, kind, 1, 23 + len(body), 0, flags) + body
    return bare + struct.pack("<I", zlib.crc32(bare))


def format_event(checksum: bool = True, flags: int = 0, timestamp: int = 1) -> bytes:
    lengths = bytes(
        [56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 95, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8]
    )
    head = struct.pack("<H50sIB", 4, b"8.0.30", 0, 19)
    return event(15, head + lengths + bytes([checksum]), timestamp, flags)


def xid(number: int, checksum: bool = True) -> bytes:
    body = struct.pack("<Q", number)
    bare = struct.pack("<IBIIIH", 1, 16, 1, 19 + len(body), 0, 0) + body
    return event(16, body) if checksum else bare


def binlog(*events: bytes) -> bytes:
    return b"\xfebin" + format_event() + b"".join(events)


def relay_log() -> bytes:
    """The replica's own format, then two of its source: checksums on, off, on."""
    parts = [b"\xfebin", format_event(flags=0x40, timestamp=9)]
    for number, checksum in enumerate((False, True), 1):
        parts += [format_event(checksum, timestamp=number)]
        parts += [xid(each, checksum) for each in range(50)]
    return b"".join(parts)


def source(*files: Path, chunk_bytes: int = 1 << 16, **settings: Any) -> BinlogFiles:
    named = {"files": [str(path) for path in files], **settings}
    return BinlogFiles(
        InstanceConfig.model_validate(
            {"destination": "d", "source": named, "chunk_bytes": chunk_bytes}
        )
    )


def drain(from_source: BinlogFiles) -> list[RawChunk]:
    chunks = []
    while not from_source.finished:
        chunk = from_source.read(0, 0)
        if chunk is not None:
            chunks.append(chunk)
    return chunks


def joined(chunks: list[RawChunk]) -> bytes:
    return b"".join(chunk.data[chunk.head.carried_bytes :].tobytes() for chunk in chunks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (9, 10, 999999, 1000000):
        (tmp_path / f"bin.{number:06}").write_bytes(binlog(xid(number), event(3, b"")))
    (tmp_path / "bin.index").write_text("x")
    (tmp_path / "other.000001").write_text("no binlog")
    return tmp_path


def test_a_relay_log_goes_on_in_the_format_that_holds_there(tmp_path: Path) -> None:
    path, data = tmp_path / "relay-bin.000002", relay_log()
    path.write_bytes(data)
    for checksum in (False, True):
        found = source(path)
        found.open(EntryPosition(path.name, at := data.index(xid(40, checksum))))
        chunks = drain(found)
        assert chunks[0].head.has_checksum == checksum
        assert b"".join(chunk.data.tobytes() for chunk in chunks) == data[at:]
        found.close()


def test_a_directory_is_read_in_order_of_numbers(folder: Path) -> None:
    reader = source(folder)
    assert reader.open(None) == EntryPosition("bin.000009", 4)
    chunks = drain(reader)
    names = list(dict.fromkeys(chunk.head.journal_name for chunk in chunks))
    assert names == ["bin.000009", "bin.000010", "bin.999999", "bin.1000000"]
    assert joined(chunks) == b"".join((folder / name).read_bytes()[4:] for name in names)
    assert [chunk.head.sequence for chunk in chunks] == list(range(len(chunks)))
    assert reader.status().received_bytes > 0
    reader.close()


def test_start_in_the_middle(folder: Path) -> None:
    reader = source(folder)
    position = 4 + len(format_event())
    reader.open(EntryPosition("bin.999999", position))
    first = drain(reader)[0]
    assert (first.head.journal_name, first.head.position) == ("bin.999999", position)
    assert first.head.server_version == "8.0.30"
    assert first.head.has_checksum
    assert first.data.tobytes() == xid(999999) + event(3, b"")
    reader.close()


def test_a_cursor_is_of_the_same_log_while_its_file_lies_where_it_did(folder: Path) -> None:
    """A6: rows of other files of the same name have ids of another timeline."""
    files = [folder / "bin.000009", folder / "bin.000010"]
    place, elsewhere = EntryPosition("bin.000010", 4), folder / "copy"
    elsewhere.mkdir()
    for path in files:
        (elsewhere / path.name).write_bytes(path.read_bytes())

    def same(was: list[Path], now: list[Path]) -> bool:
        cursor = LogPosition(source(*was).identity, place)
        reader = source(*now)
        try:
            return reader.resume([cursor]).same_log
        finally:
            reader.close()

    assert same(files, files)
    assert same(files, [*files, folder / "bin.999999"])
    assert same(files, [folder])
    assert same([folder], files)
    assert not same(files, [elsewhere])
    assert not same([elsewhere], files)
    reader = source(folder)
    assert not reader.resume(()).same_log
    reader.close()


def test_another_file_of_the_name_is_refused(folder: Path) -> None:
    """A1: a file that was put in another one's place is told by the second it was created in."""
    reader = source(folder)
    reader.resume(())
    chunk = reader.read(0, 0)
    assert chunk is not None
    reader.close()
    created_s = chunk.head.created_s
    assert created_s == 1
    place = EntryPosition("bin.000009", chunk.head.end_position, created_s=created_s)
    for known, is_other in ((0, False), (created_s, False), (created_s + 1, True)):
        cursor = LogPosition(source(folder).identity, replace(place, created_s=known))
        reader = source(folder)
        if is_other:
            with pytest.raises(PositionNotFound, match=r"bin\.000009 was created 1970"):
                reader.resume([cursor])
        else:
            assert reader.resume([cursor]).position == place
        reader.close()


@pytest.mark.parametrize(
    ("name", "position"), [("bin.000077", 4), ("bin.000009", 10_000)], ids=["file", "offset"]
)
def test_unknown_start(folder: Path, name: str, position: int) -> None:
    with pytest.raises(PositionNotFound, match=f"{name}"):
        source(folder).open(EntryPosition(name, position))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(PositionNotFound, match="nothing"):
        source(tmp_path / "nothing").open(None)
    with pytest.raises(PositionNotFound, match="directory"):
        source(tmp_path).open(None)
    assert not check_source(_config(tmp_path / "nothing"))[0].ok


def _config(path: Path) -> InstanceConfig:
    return InstanceConfig.model_validate({"destination": "d", "source": {"files": [str(path)]}})


def test_two_files_of_one_name(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "bin.000009").write_bytes(binlog())
    with pytest.raises(PositionNotFound, match="one name"):
        source(folder / "bin.000009", folder / "sub" / "bin.000009").open(None)


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"", CorruptEvent), (b"\xfdbin123", UnsupportedEvent), (b"#!/bin/sh", CorruptEvent)],
)
def test_no_binlog(tmp_path: Path, data: bytes, error: type[Exception]) -> None:
    (tmp_path / "bin.000001").write_bytes(data)
    with pytest.raises(error, match=r"bin\.000001"):
        source(tmp_path / "bin.000001").open(None)


def test_a_truncated_file_gives_its_good_events_first(tmp_path: Path) -> None:
    path = tmp_path / "bin.000001"
    data = binlog(xid(1), xid(2))
    for cut in range(len(data) - 30, len(data)):
        path.write_bytes(data[:cut])
        reader = source(path)
        reader.open(None)
        good = reader.read(0, 0)
        assert good is not None
        assert joined([good]) == data[4 : len(data) - 31]
        with pytest.raises(CorruptEvent, match=r"ends inside an event.*bin\.000001") as caught:
            reader.read(0, 0)
        assert caught.value.position == len(data) - 31
        reader.close()


def test_following(tmp_path: Path) -> None:
    first, second = tmp_path / "bin.000001", tmp_path / "bin.000002"
    data = binlog(xid(1), xid(2))
    first.write_bytes(data[:-10])
    reader = source(first, follow=True)
    reader.open(None)

    def write() -> None:
        time.sleep(0.2)
        with open(first, "ab") as file:
            file.write(data[-10:])
        time.sleep(0.2)
        os.replace(_written(tmp_path / "tmp", binlog(xid(3))), second)

    writer = threading.Thread(target=write)
    writer.start()
    chunks = []
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        chunk = reader.read(0.0, 0.3)
        if chunk is not None:
            chunks.append(chunk)
        if len(joined(chunks)) == len(data) - 4 + len(second_bytes := binlog(xid(3))) - 4:
            break
    writer.join()
    assert joined(chunks) == data[4:] + second_bytes[4:]
    assert not reader.finished
    threading.Timer(0.1, reader.interrupt).start()
    waited_s = reader.waited_s
    assert reader.read(0.0, 20.0) is None
    assert reader.waited_s > waited_s
    reader.close()


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
