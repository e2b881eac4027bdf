"""Segments: what is written comes back, what is damaged is told, what is dropped frees its file."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.errors import InstanceError
from ray_canal.offline import decode_chunks
from ray_canal.protocol.position import EntryPosition
from ray_canal.store.segment import SegmentFolder, read_decoded, read_log_chunk
from ray_canal.store.transaction_buffer import LogChunk, TransactionBuffer

DEMO = sorted((Path(__file__).parents[3] / "ray_canal" / "demo").glob("mysql-bin.0*"))
Pairs = list[tuple[LogChunk, DecodedChunk]]


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    chunks: list[tuple[ChunkInfo, DecodedChunk]] = list(decode_chunks(DEMO))
    head = chunks[0][0].head
    buffer = TransactionBuffer(EntryPosition(head.journal_name, 4))
    return [(buffer.add(info), decoded) for info, decoded in chunks]


Make = Callable[..., SegmentFolder]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[SegmentFolder] = []

    def one(**options: Any) -> SegmentFolder:
        made.append(SegmentFolder(tmp_path / "log", **options))
        return made[-1]

    yield one
    for folder in made:
        folder.close()


def same(one: LogChunk, other: LogChunk) -> bool:
    return bool(
        (one.info.entries == other.info.entries).all()
        and one.after == other.after
        and (one.resumes()[1] == other.resumes()[1]).all()
        and one.info.head == other.info.head
        and one.gtid_set == other.gtid_set
    )


def test_chunks_come_back_as_they_were(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    folder = make()
    segments = [folder.write(*pair) for pair in pairs]
    assert len({segment.path for segment in segments}) == 1
    assert sum(s.size_bytes for s in segments) == Path(segments[0].path).stat().st_size
    for segment, (chunk, decoded) in reversed(list(zip(segments, pairs, strict=True))):
        assert same(read_log_chunk(segment), chunk)
        found = read_decoded(segment)
        assert found.layout == decoded.layout
        assert np.array_equal(found.arena, decoded.arena)
    folder.close()
    assert not (tmp_path / "log").exists()


def test_a_file_goes_with_its_last_chunk(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    folder = make(segment_bytes=1)
    first, second, third = (folder.write(*pairs[0]) for _ in range(3))
    assert len({first.path, second.path, third.path}) == 3
    folder.drop(second)
    assert not Path(second.path).exists()
    folder.drop(third)
    assert Path(third.path).exists(), "the newest file is still written to"
    folder.write(*pairs[0])
    assert not Path(third.path).exists()
    assert same(read_log_chunk(first), pairs[0][0])


def test_what_was_left_over_is_removed(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    make().write(*pairs[0])
    folder = make()
    assert not (tmp_path / "log").exists()
    folder.write(*pairs[0])
    assert len(list((tmp_path / "log").iterdir())) == 1


def test_damage_is_told(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    folder = make()
    folder.write(*pairs[0])
    segment = folder.write(*pairs[1])
    path = Path(segment.path)
    whole = path.read_bytes()
    for offset, read in (
        (segment.offset, read_log_chunk),
        (segment.offset + 100, read_log_chunk),
        (len(whole) - 1, read_decoded),
    ):
        damaged = bytearray(whole)
        damaged[offset] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(InstanceError, match=rf"cannot be read back from {path}"):
            read(segment)
    for size in (segment.offset, segment.offset + 10, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InstanceError, match="cannot be read back"):
            read_decoded(segment)
    path.unlink()
    with pytest.raises(InstanceError, match="No such file"):
        read_log_chunk(segment)
    path.write_bytes(whole)
    with pytest.raises(InstanceError, match="something else"):
        read_decoded(replace(segment, size_bytes=segment.size_bytes + 1))


def test_a_full_disk_leaves_what_was_written(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    folder = make()
    first = folder.write(*pairs[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (first.size_bytes + 100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            folder.write(*pairs[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    again = folder.write(*pairs[1])
    assert again.path != first.path
    assert same(read_log_chunk(first), pairs[0][0])
    assert same(read_log_chunk(again), pairs[1][0])


def test_a_folder_that_was_removed_is_made_again(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    """B2: what somebody removes is told when it is read; what is written after that is there."""
    folder = make()
    first = folder.write(*pairs[0])
    shutil.rmtree(tmp_path / "log")
    again, third = folder.write(*pairs[1]), folder.write(*pairs[0])
    assert again.path == third.path != first.path
    assert same(read_log_chunk(again), pairs[1][0])
    with pytest.raises(InstanceError, match="No such file"):
        read_log_chunk(first)
    folder.drop(first)
    folder.drop(again)
    assert same(read_log_chunk(third), pairs[0][0])
