"""Segments: files that hold chunks of the log that memory has no room for.

Soft state: what is in them is in the binlog, too, and comes again after a restart; so nothing is
fsync'd, and a folder is emptied when it is taken into use. Checksums tell a damaged chunk.

    file     chunks, one behind the other
    chunk    header, log chunk (pickle), layout (pickle), arena
    header   magic, lengths of the three, crc32 of the log chunk, crc32 of layout and arena
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import struct
import zlib
from dataclasses import dataclass
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import IO

import numpy as np

from ray_canal.binlog.chunk import ChunkLayout, DecodedChunk
from ray_canal.errors import InstanceError
from ray_canal.store.transaction_buffer import LogChunk

SEGMENT_BYTES = 64 << 20
"""A file that is longer is followed by a new one."""

_MAGIC = b"RCS1"
_HEADER = struct.Struct("<4sQQQII")


@dataclass(frozen=True, slots=True)
class Segment:
    """Where a chunk is on disk."""

    path: str
    offset: int
    size_bytes: int


class SegmentFolder:
    """The only writer of a folder, which is made when a chunk needs it. A file goes when all of its
    chunks were dropped."""

    def __init__(self, path: str | os.PathLike[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        self._path = Path(path)
        self._segment_bytes = segment_bytes
        shutil.rmtree(self._path, ignore_errors=True)
        self._file: IO[bytes] | None = None
        self._name = ""
        self._number = 0
        self._chunks: dict[str, int] = {}

    def write(self, chunk: LogChunk, decoded: DecodedChunk) -> Segment:
        """Append a chunk. Raises OSError: the disk is full, say; then nothing was written."""
        log = pickle.dumps(chunk, protocol=5)
        layout = pickle.dumps(decoded.layout, protocol=5)
        arena = np.ascontiguousarray(decoded.arena)
        check = zlib.crc32(arena.data, zlib.crc32(layout))
        header = _HEADER.pack(_MAGIC, len(log), len(layout), arena.size, zlib.crc32(log), check)
        file = self._opened()
        offset = file.tell()
        try:
            for part in (header, log, layout, arena.data):
                file.write(part)
            file.flush()
        except OSError:
            self._abandon()
            raise
        self._chunks[self._name] += 1
        return Segment(self._name, offset, file.tell() - offset)

    def _opened(self) -> IO[bytes]:
        file = self._file
        if file is not None and file.tell() >= self._segment_bytes:
            file.close()
            file, self._file = None, None
            self._remove_if_done(self._name)
        if file is not None and not os.fstat(file.fileno()).st_nlink:
            self._abandon()  # somebody removed it: what is written there could not be read
            file = None
        if file is None:
            self._number += 1
            self._name = str(self._path / f"{self._number:06d}.segment")
            self._path.mkdir(parents=True, mode=0o700, exist_ok=True)
            file = self._file = BufferedWriter(FileIO(self._name, "xb"))
            self._chunks[self._name] = 0
        return file

    def _abandon(self) -> None:
        """What follows goes to a new file: this one's end is torn."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what was buffered does not fit either
                file.close()
            self._remove_if_done(self._name)

    def drop(self, segment: Segment) -> None:
        """The chunk is not needed any more."""
        self._chunks[segment.path] -= 1
        if self._file is None or segment.path != self._name:
            self._remove_if_done(segment.path)

    def _remove_if_done(self, name: str) -> None:
        if self._chunks[name] == 0:
            del self._chunks[name]
            Path(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder."""
        if self._file is not None:
            self._file.close()
        shutil.rmtree(self._path, ignore_errors=True)


def read_log_chunk(segment: Segment) -> LogChunk:
    """What the log needs of the chunk. Raises InstanceError: it is damaged or gone."""
    try:
        with open(segment.path, "rb") as file:
            lengths, checks = _header(file, segment)
            log = file.read(lengths[0])
    except OSError as error:
        raise _lost(segment, str(error)) from error
    if zlib.crc32(log) != checks[0]:
        raise _lost(segment, "the checksum of the log chunk is wrong")
    found: LogChunk = pickle.loads(log)
    return found


def read_decoded(segment: Segment) -> DecodedChunk:
    """The chunk itself. Raises InstanceError: it is damaged or gone."""
    try:
        with open(segment.path, "rb") as file:
            lengths, checks = _header(file, segment)
            file.seek(lengths[0], os.SEEK_CUR)
            layout = file.read(lengths[1])
            arena = np.empty(lengths[2], np.uint8)
            size = file.readinto(arena.data)
    except OSError as error:
        raise _lost(segment, str(error)) from error
    if size != arena.size or zlib.crc32(arena.data, zlib.crc32(layout)) != checks[1]:
        raise _lost(segment, "the checksum of the columns is wrong")
    found: ChunkLayout = pickle.loads(layout)
    return DecodedChunk(found, arena)


def _header(file: IO[bytes], segment: Segment) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """(lengths of log chunk, layout and arena; checksums)."""
    file.seek(segment.offset)
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size:
        raise _lost(segment, "it ends early")
    magic, log, layout, arena, log_check, check = _HEADER.unpack(data)
    if magic != _MAGIC or _HEADER.size + log + layout + arena != segment.size_bytes:
        raise _lost(segment, "there is something else")
    return (log, layout, arena), (log_check, check)


def _lost(segment: Segment, why: str) -> InstanceError:
    return InstanceError(
        f"a chunk of the log cannot be read back from {segment.path} at {segment.offset}: {why}; "
        "the destination starts over, nothing is lost"
    )
