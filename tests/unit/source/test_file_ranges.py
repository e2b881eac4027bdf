"""Ranges of binlog files: together they are the file, and each begins where a transaction does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import CorruptEvent, PositionNotFound
from ray_canal.source.file_ranges import FileRange, range_chunks, ranges_of
from tests.unit.source.test_files import binlog, relay_log, xid

LIMIT = 1 << 30
MIB = 1 << 20


@pytest.mark.parametrize("range_bytes", [1, 3000, 50_000, MIB])
@pytest.mark.parametrize("path", binlog_files(), ids=lambda path: Path(path).name)
def test_ranges_together_are_the_file(path: str, range_bytes: int) -> None:
    found = ranges_of(Path(path), range_bytes, LIMIT)
    data = Path(path).read_bytes()
    assert found.ranges[0].begin == 4
    assert found.ranges[-1].end == len(data)
    ends = [each.end for each in found.ranges]
    assert [each.begin for each in found.ranges[1:]] == ends[:-1]
    if range_bytes == MIB:
        assert len(found.ranges) == 1
    elif range_bytes == 1:
        assert len(found.ranges) > 20
    for each in found.ranges:
        chunks = list(range_chunks(each, 4096, LIMIT))
        assert not chunks or not chunks[0].head.in_transaction
        assert not chunks or not chunks[0].head.carried_bytes
        skipped = 0 if each.begin > 4 else chunks[0].head.position - 4  # FORMAT_DESCRIPTION
        assert read_from(each, skipped) == data[each.begin + skipped : each.end]


def read_from(wanted: FileRange, skipped: int) -> bytes:
    found = b""
    for chunk in range_chunks(wanted, 4096, LIMIT):
        assert chunk.head.position == wanted.begin + skipped + len(found)
        found += chunk.data[chunk.head.carried_bytes :].tobytes()
    return found


def test_a_torn_file_is_one_range_from_there_and_says_so_when_read(tmp_path: Path) -> None:
    path = tmp_path / "mysql-bin.000001"
    whole = binlog(*(xid(number) for number in range(100)))
    path.write_bytes(whole[:-5])
    found = ranges_of(path, 1000, LIMIT)
    assert len(found.ranges) > 2
    assert found.ranges[-1].end == len(whole) - 5
    for each in found.ranges[:-1]:
        list(range_chunks(each, 4096, LIMIT))
    with pytest.raises(CorruptEvent, match=r"inside an event.*mysql-bin.000001 offset"):
        list(range_chunks(found.ranges[-1], 4096, LIMIT))


def test_an_event_of_an_impossible_length(tmp_path: Path) -> None:
    path = tmp_path / "mysql-bin.000001"
    good = binlog(*(xid(number) for number in range(40)))
    path.write_bytes(good + b"\0" * 60 + xid(41))
    found = ranges_of(path, 500, LIMIT)
    assert found.ranges[-1].begin <= len(good)
    with pytest.raises(CorruptEvent, match=f"mysql-bin.000001 offset {len(good)}"):
        list(range_chunks(found.ranges[-1], 4096, LIMIT))


def test_what_is_no_binlog_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mysql-bin.000001"
    with pytest.raises(PositionNotFound, match="cannot read"):
        ranges_of(path, 1000, LIMIT)
    path.write_bytes(b"something else")
    with pytest.raises(CorruptEvent, match="no binlog file"):
        ranges_of(path, 1000, LIMIT)


def test_a_file_that_was_cut_since_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "mysql-bin.000001"
    path.write_bytes(binlog(*(xid(number) for number in range(100))))
    last = ranges_of(path, 1000, LIMIT).ranges[-1]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PositionNotFound, match="shorter"):
        list(range_chunks(last, 4096, LIMIT))


def test_a_range_of_a_relay_log_has_its_sources_format(tmp_path: Path) -> None:
    path = tmp_path / "relay-bin.000002"
    path.write_bytes(relay_log())
    found = ranges_of(path, 200, LIMIT)
    assert len({each.format_at for each in found.ranges}) == 3
    read = b"".join(
        chunk.data.tobytes() for each in found.ranges for chunk in range_chunks(each, 4096, LIMIT)
    )
    (whole,) = ranges_of(path, MIB, LIMIT).ranges
    assert read == b"".join(chunk.data.tobytes() for chunk in range_chunks(whole, 4096, LIMIT))
    assert (read.count(xid(1)), read.count(xid(1, checksum=False))) == (1, 1)
