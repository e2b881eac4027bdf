"""Ranges of binlog files that can be read each by itself: they begin where a transaction does.

Finding them looks at event headers alone (kernels/framing/scan.py), in the file as it is mapped. No
transaction spans two files, and none two ranges: so nothing has to be carried into a range but the
format of its events, and the schemas of its tables. A relay log has several formats: the replica's
own and, behind it, those of its source, whose `binlog_checksum` may be another one.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.binlog.events import parse_format_description
from ray_canal.binlog.scan_format import learn_format
from ray_canal.errors import CorruptEvent, DecodeError, PositionNotFound
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import scan
from ray_canal.model.arrays import Bytes, Int64s
from ray_canal.model.position import BINLOG_START
from ray_canal.source.binlog_files import MAGIC, check_magic, format_event

_READ_BYTES = 256 << 10
_STATEMENT_BYTES = 1 << 20
"""About so much of a file is read for a statement in it."""
_RELAY_LOG_FLAG = 0x40
"""LOG_EVENT_RELAY_LOG_F: a replica has made the event for its relay log (MySQL's log_event.h)."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes [begin, end) of a binlog file: whole transactions. `format_at`: where the
    FORMAT_DESCRIPTION is that holds there."""

    path: str
    begin: int
    end: int
    format_at: int = BINLOG_START

    @property
    def size_bytes(self) -> int:
        """Return its length."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class FileRanges:
    """A file's ranges, in order. `statements`: small ones within them that have a statement which
    may change schemas, or the file's end."""

    ranges: tuple[FileRange, ...]
    statements: tuple[FileRange, ...]


def ranges_of(path: Path, range_bytes: int, event_bytes_max: int) -> FileRanges:
    """Divide a file into ranges of about `range_bytes`, none much smaller than the others; a longer
    transaction is in one.

    From the first event on that cannot be walked the file is one range: whoever reads that finds
    out what is wrong with it. Raises PositionNotFound, CorruptEvent, UnsupportedEvent: it is no
    binlog file that can be read.
    """
    data = _mapped(path)
    range_bytes = -(-data.size // max(1, round(data.size / range_bytes)))
    ranges, statements, formats = list[FileRange](), list[FileRange](), list[int]()
    begin = at = BINLOG_START
    step_bytes = min(range_bytes, _STATEMENT_BYTES)
    for end, has_statement in _walked(data, step_bytes, event_bytes_max, formats):
        if has_statement:
            statements.append(FileRange(str(path), at, end, _last_before(formats, at)))
        at = end
        if end - begin >= range_bytes or end == data.size:
            ranges.append(FileRange(str(path), begin, end, _last_before(formats, begin)))
            begin = end
    return FileRanges(tuple(ranges), tuple(statements))


def begin_within(cutter: ChunkCutter, file: FileIO, format_at: int) -> None:
    """Have a cutter know what holds for events in the middle of a file, which stays at some place.
    Raises as `ChunkCutter.set_format`."""
    cutter.set_format(format_event(file))  # it tells when the file was made
    if format_at > BINLOG_START:
        cutter.set_format(format_event(file, format_at))


def format_place(path: Path, file: FileIO, position: int, event_bytes_max: int) -> int:
    """Return where the FORMAT_DESCRIPTION is that holds at a position of a file: the first event of
    all files but relay logs, which are walked up to there. Raises PositionNotFound, CorruptEvent:
    it is no binlog file."""
    if not int.from_bytes(format_event(file)[17:19], "little") & _RELAY_LOG_FLAG:
        return BINLOG_START
    formats = list[int]()
    for end, _ in _walked(_mapped(path), _STATEMENT_BYTES, event_bytes_max, formats):
        if end >= position:
            break
    return _last_before(formats, position)


def _last_before(formats: list[int], position: int) -> int:
    return max((at for at in formats if at < position), default=BINLOG_START)


def _mapped(path: Path) -> Bytes:
    try:
        with FileIO(path) as file:
            check_magic(path, file.read(len(MAGIC)))
            # A private mapping that could be written: kernels are compiled for such arrays.
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    except OSError as error:
        raise PositionNotFound(f"cannot read {path}: {error.strerror}") from error


def _walked(
    data: Bytes, step_bytes: int, event_bytes_max: int, formats: list[int]
) -> Iterator[tuple[int, bool]]:
    """Yield places about so far apart where a transaction ends, and the file's end; and whether a
    statement that may change schemas lies before each of them. `formats` gets the places of the
    FORMAT_DESCRIPTION events that were walked over."""
    state = np.zeros(scan.STATE_SIZE, np.int64)
    state[scan.AT] = state[scan.POSITION] = BINLOG_START
    state[scan.EVENT_BYTES_MAX] = event_bytes_max
    state[scan.CONTIGUOUS] = 1
    state[scan.ROWS_HEADER_BYTES] = 8
    carry = np.zeros((256, 2), np.int64)
    has_statement, full_at = False, BINLOG_START + step_bytes
    while True:
        code = scan.scan(data, data.size, full_at, data.size + 1, state, carry)
        if code == scan.CARRY_FULL:
            carry = np.concatenate([carry, np.zeros_like(carry)])
        elif code in (scan.CUT, scan.FULL):
            at = int(state[scan.AT])
            has_statement = has_statement or code == scan.CUT
            is_between = not state[scan.IN_TRANSACTION] and not carry[0, 1]
            if at >= full_at and (code == scan.FULL or is_between):
                yield at, has_statement
                has_statement, full_at = False, at + step_bytes
        elif code != scan.SPECIAL or not _passed(data, state, formats):
            break
    if full_at - step_bytes < data.size:
        yield data.size, has_statement


def _passed(data: Bytes, state: Int64s, formats: list[int]) -> bool:
    """Pass over an event that the kernel leaves to its caller; False: nothing behind it can be
    walked."""
    at = int(state[scan.AT])
    length = int.from_bytes(data[at + 9 : at + 13].tobytes(), "little")
    kind = int(data[at + 4])
    if kind == event_types.FORMAT_DESCRIPTION:
        try:
            learn_format(state, parse_format_description(data[at : at + length].tobytes()))
        except DecodeError:
            return False
        formats.append(at)
    elif kind == event_types.MARIADB_START_ENCRYPTION:
        return False
    state[scan.AT] += length
    state[scan.POSITION] += length
    return True


def range_chunks(
    wanted: FileRange,
    chunk_bytes: int,
    event_bytes_max: int,
    skips: tuple[tuple[str, int], ...] = (),
) -> Iterator[RawChunk]:
    """Raw chunks of a range, in order. Raises as a source of files (source/files.py)."""
    path = Path(wanted.path)
    cutter = ChunkCutter(chunk_bytes, event_bytes_max, contiguous=True, skips=skips)
    cutter.begin_file(path.name, wanted.begin)
    try:
        file = FileIO(path)
    except OSError as error:
        raise PositionNotFound(f"cannot read {path}: {error.strerror}") from error
    with file:
        if os.fstat(file.fileno()).st_size < wanted.end:
            raise PositionNotFound(
                f"{path} has become shorter than {wanted.end} bytes since its ranges were found"
            ).at(path.name, wanted.begin)
        if wanted.begin > BINLOG_START:
            begin_within(cutter, file, wanted.format_at)
        file.seek(wanted.begin)
        left = wanted.size_bytes
        while left:
            target = cutter.reserve(_READ_BYTES)
            count = file.readinto(target[: min(left, _READ_BYTES)].data) or 0
            if not count:
                break
            cutter.commit(count, time.time())
            left -= count
            while (chunk := cutter.next()) is not None:
                yield chunk
                del chunk  # its memory is the next one's
        while (chunk := cutter.flush()) is not None:
            yield chunk
    if cutter.partial_bytes:
        raise CorruptEvent(
            f"the file ends inside an event: {cutter.partial_bytes} bytes of it are there"
        ).at(cutter.journal_name, cutter.position)
