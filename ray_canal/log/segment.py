"""Write chunks of the log that memory has no room for to files, called segments.

Soft state: what is in them is in the binlog, too, and comes again after a restart; so nothing is
fsync'd, and no other process reads what one has written. A key that only that process knows signs
what is unpickled, so that nothing is that somebody else has put there.

    file     chunks, one behind the other
    chunk    header, log chunk (pickle), layout (pickle), arena
    header   magic, lengths of the three, signature of the log chunk, signature of the layout and of
             the arena's crc32
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import pickle
import secrets
import struct
import zlib
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter, FileIO
from typing import IO, Any

import numpy as np

from ray_canal.binlog.chunk import ChunkLayout, DecodedChunk
from ray_canal.errors import InstanceRestarted
from ray_canal.log.spill_folder import SpillFolder
from ray_canal.log.transaction_buffer import LogChunk

SEGMENT_BYTES = 64 << 20
"""A file that is longer is followed by a new one."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAGIC = b"RCS2"
_SIGNATURE_BYTES = 16
_HEADER = struct.Struct(f"<4sQQQ{_SIGNATURE_BYTES}s{_SIGNATURE_BYTES}s")


@dataclass(frozen=True, slots=True)
class Segment:
    """The place of a chunk on disk."""

    path: str
    offset: int
    size_bytes: int


class SegmentFolder:
    """The only user of a folder, which is made when a chunk needs it, and again when somebody has
    removed it, or its disk has failed and was mounted again. A file goes when all of its chunks
    were dropped."""

    def __init__(self, path: str | os.PathLike[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        self._path = path
        self._folder: SpillFolder | None = None
        self._key = secrets.token_bytes(32)
        self._segment_bytes = segment_bytes
        self._file: IO[bytes] | None = None
        self._name = ""
        self._number = 0
        self._chunks: dict[str, int] = {}
        self._unremoved: list[str] = []

    def write(self, chunk: LogChunk, decoded: DecodedChunk) -> Segment:
        """Append a chunk. Raises OSError: the disk is full, say; then nothing was written."""
        log = pickle.dumps(chunk, protocol=5)
        layout = pickle.dumps(decoded.layout, protocol=5)
        arena = np.ascontiguousarray(decoded.arena)
        signatures = self._signed(log), self._signed(layout, arena)
        header = _HEADER.pack(_MAGIC, len(log), len(layout), arena.size, *signatures)
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
        path = os.path.join(self._path, self._name)
        return Segment(path, offset, file.tell() - offset)

    def _signed(self, data: bytes, arena: np.ndarray[Any, Any] | None = None) -> bytes:
        signed = hashlib.blake2b(data, digest_size=_SIGNATURE_BYTES, key=self._key)
        if arena is not None:
            signed.update(zlib.crc32(arena.data).to_bytes(4, "little"))
        return signed.digest()

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
            self._name = f"{self._number:06d}.segment"
            file = self._file = BufferedWriter(FileIO(self._created(self._name), "wb"))
            self._chunks[self._name] = 0
        return file

    def _created(self, name: str) -> int:
        """A new file. Raises OSError: see SpillFolder."""
        if self._folder is None:
            self._folder = SpillFolder(self._path)
        try:
            created = self._folder.create(name)
        except OSError as error:
            if error.errno in _FULL:
                raise
            # The folder was removed; or its disk has failed, and what is open of it stays dead
            # when it is mounted again.
            before, self._folder = self._folder, SpillFolder(self._path)
            before.leave()
            created = self._folder.create(name)
        self._remove_left()
        return created

    def _remove_left(self) -> None:
        names, self._unremoved = self._unremoved, []
        for name in names:
            self._unlink(name)

    def _abandon(self) -> None:
        """Return what follows goes to a new file: this one's end is torn."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what was buffered does not fit either
                file.close()
            self._remove_if_done(self._name)

    def drop(self, segment: Segment) -> None:
        """Release a chunk; its file is removed with its last one."""
        name = os.path.basename(segment.path)
        self._chunks[name] -= 1
        if self._file is None or name != self._name:
            self._remove_if_done(name)

    def _remove_if_done(self, name: str) -> None:
        if self._chunks[name] == 0:
            del self._chunks[name]
            self._unlink(name)

    def _unlink(self, name: str) -> None:
        assert self._folder is not None
        try:
            self._folder.unlink(name)
        except FileNotFoundError:
            return  # somebody removed it
        except OSError:  # the disk has failed, or may not be written to now
            self._unremoved.append(name)

    def close(self) -> None:
        """Remove the folder."""
        if self._file is not None:
            self._file.close()
        if self._folder is not None:
            self._folder.close()

    def read_log_chunk(self, segment: Segment) -> LogChunk:
        """Return what the log needs of the chunk. Raises InstanceRestarted: damaged, or gone."""
        try:
            with self._reading(segment) as file:
                lengths, signatures = _header(file, segment)
                log = file.read(lengths[0])
        except OSError as error:
            raise _lost(segment, str(error)) from error
        if not hmac.compare_digest(self._signed(log), signatures[0]):
            raise _lost(segment, "the log chunk is not as it was written")
        found: LogChunk = pickle.loads(log)
        return found

    def read_decoded(self, segment: Segment) -> DecodedChunk:
        """The chunk itself. Raises InstanceRestarted: it is damaged or gone."""
        try:
            with self._reading(segment) as file:
                lengths, signatures = _header(file, segment)
                file.seek(lengths[0], os.SEEK_CUR)
                layout = file.read(lengths[1])
                arena = np.empty(lengths[2], np.uint8)
                size = file.readinto(arena.data)
        except OSError as error:
            raise _lost(segment, str(error)) from error
        signature = self._signed(layout, arena)
        if size != arena.size or not hmac.compare_digest(signature, signatures[1]):
            raise _lost(segment, "the columns are not as they were written")
        found: ChunkLayout = pickle.loads(layout)
        return DecodedChunk(found, arena)

    def _reading(self, segment: Segment) -> BufferedReader:
        """Open a segment's file. Raises OSError."""
        if self._folder is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return open(self._folder.open(os.path.basename(segment.path)), "rb")


def _header(file: IO[bytes], segment: Segment) -> tuple[tuple[int, int, int], tuple[bytes, bytes]]:
    """Return (lengths of log chunk, layout and arena; signatures)."""
    file.seek(segment.offset)
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size:
        raise _lost(segment, "it ends early")
    magic, log, layout, arena, log_signature, signature = _HEADER.unpack(data)
    if magic != _MAGIC or _HEADER.size + log + layout + arena != segment.size_bytes:
        raise _lost(segment, "there is something else")
    return (log, layout, arena), (log_signature, signature)


def _lost(segment: Segment, why: str) -> InstanceRestarted:
    """For the log, which starts over, and for who was detached while it read a message."""
    return InstanceRestarted(
        f"a chunk of the log cannot be read back from {segment.path} at {segment.offset}: {why}; "
        "what was not acked comes again, nothing is lost"
    )
