"""Segments: what is written comes back, what is damaged is told, what is dropped frees its file."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.errors import InstanceError
from ray_canal.log.segment import _HEADER, SegmentFolder
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks

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
        made.append(SegmentFolder(tmp_path / "x" / "log", **options))
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
        assert same(folder.read_log_chunk(segment), chunk)
        found = folder.read_decoded(segment)
        assert found.layout == decoded.layout
        assert np.array_equal(found.arena, decoded.arena)
    folder.close()
    assert not (tmp_path / "x" / "log").exists()


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
    assert same(folder.read_log_chunk(first), pairs[0][0])


class _Explosive:
    """What an attacker would put in place of a chunk."""

    def __reduce__(self) -> Any:
        return os.abort, ()


@pytest.mark.parametrize("place", ["log chunk", "layout"])
def test_what_others_have_written_is_not_unpickled(
    pairs: Pairs, make: Make, tmp_path: Path, place: str
) -> None:
    """C6: who can write to a segment, or put another in its place, gets no code run."""
    folder = make()
    segment = folder.write(*pairs[0])
    path = Path(segment.path)
    whole = path.read_bytes()
    log_bytes, layout_bytes = struct.unpack_from("<QQ", whole, 4)
    at = _HEADER.size + (0 if place == "log chunk" else log_bytes)
    length = log_bytes if place == "log chunk" else layout_bytes
    bomb = pickle.dumps(_Explosive()).ljust(length, b".")
    path.write_bytes(whole[:at] + bomb + whole[at + length :])
    read = folder.read_log_chunk if place == "log chunk" else folder.read_decoded
    with pytest.raises(InstanceError, match=r"as (?:it was|they were) written"):
        read(segment)
    other = SegmentFolder(tmp_path / "x" / "other")  # one of ours, with another key
    found = other.write(*pairs[0])
    path.write_bytes(Path(found.path).read_bytes())
    with pytest.raises(InstanceError, match=r"as (?:it was|they were) written"):
        read(segment)
    other.close()


def test_segments_are_for_their_user_alone(pairs: Pairs, make: Make) -> None:
    """C6: rows on disk are 0600, in a folder of mode 0700."""
    path = Path(make().write(*pairs[0]).path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_damage_is_told(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    folder = make()
    folder.write(*pairs[0])
    segment = folder.write(*pairs[1])
    path = Path(segment.path)
    whole = path.read_bytes()
    for offset, read in (
        (segment.offset, folder.read_log_chunk),
        (segment.offset + 100, folder.read_log_chunk),
        (len(whole) - 1, folder.read_decoded),
    ):
        damaged = bytearray(whole)
        damaged[offset] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(InstanceError, match=rf"cannot be read back from {path}"):
            read(segment)
    for size in (segment.offset, segment.offset + 10, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InstanceError, match="cannot be read back"):
            folder.read_decoded(segment)
    path.unlink()
    with pytest.raises(InstanceError, match="No such file"):
        folder.read_log_chunk(segment)
    path.write_bytes(whole)
    with pytest.raises(InstanceError, match="something else"):
        folder.read_decoded(replace(segment, size_bytes=segment.size_bytes + 1))


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
    assert same(folder.read_log_chunk(first), pairs[0][0])
    assert same(folder.read_log_chunk(again), pairs[1][0])


def test_a_folder_that_was_removed_is_made_again(pairs: Pairs, make: Make, tmp_path: Path) -> None:
    """B2: what somebody removes is told when it is read; what is written after that is there."""
    folder = make()
    first = folder.write(*pairs[0])
    shutil.rmtree(tmp_path / "x" / "log")
    again, third = folder.write(*pairs[1]), folder.write(*pairs[0])
    assert again.path == third.path != first.path
    assert same(folder.read_log_chunk(again), pairs[1][0])
    with pytest.raises(InstanceError, match="No such file"):
        folder.read_log_chunk(first)
    folder.drop(first)
    folder.drop(again)
    assert same(folder.read_log_chunk(third), pairs[0][0])


def test_a_disk_that_failed_and_is_there_again(
    pairs: Pairs, make: Make, tmp_path: Path
) -> None:
    """What was open of a disk that was mounted again stays dead: chunks went nowhere any more."""
    folder = make(segment_bytes=1)
    first, second, third = (folder.write(*pairs[0]) for _ in range(3))
    assert folder._folder is not None
    with open(os.devnull, "rb") as dead:
        os.dup2(dead.fileno(), folder._folder._folder)
    folder.drop(first)
    folder.drop(second)
    with pytest.raises(InstanceError, match="Not a directory"):
        folder.read_log_chunk(third)
    fourth = folder.write(*pairs[1])
    for segment, (chunk, _) in ((third, pairs[0]), (fourth, pairs[1])):
        assert same(folder.read_log_chunk(segment), chunk)
    left = {os.path.basename(segment.path) for segment in (third, fourth)}
    assert {path.name for path in tmp_path.rglob("*.segment")} == left
    folder.close()
    assert not list(tmp_path.rglob("log"))
