"""Cutting a stream of binlog events into raw chunks (ChunkHead says what a chunk holds).

Bytes go in by `reserve` + `commit` (or `feed`), chunks come out by `next` and `flush`. Pure: no
sockets, no files, no clock. Events are walked by a kernel (kernels/framing/scan.py); Python sees
only the rare ones:

- FORMAT_DESCRIPTION says how to read the rest; one that is really in the file goes into a chunk,
  too.
- Artificial events and heartbeats, which a server sends, go into no chunk: they move the file name,
  the format and `heartbeat_position`.

Chunks share buffers: a chunk is a view of what was received, and no byte of it is written again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from ray_canal.binlog.chunk import (
    FLAVOR_MYSQL,
    ChunkHead,
    OnUndecodable,
    RawChunk,
)
from ray_canal.binlog.events import (
    parse_format_description,
    parse_heartbeat,
    parse_rotate,
)
from ray_canal.binlog.inflate import opened
from ray_canal.binlog.scan_format import learn_format
from ray_canal.errors import CorruptEvent, DecodeError, PositionNotFound, UnsupportedEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import scan
from ray_canal.malloc import large
from ray_canal.model.arrays import Bytes
from ray_canal.model.position import BINLOG_START, utc_text

_SMALL_TAIL_BYTES = 256 << 10
"""So much of a buffer's unread end is copied to the next chunk's buffer at once."""

_EARLY_PART = 16
"""A chunk may be smaller by this part if it then ends where a transaction does."""

_HEARTBEATS = (event_types.HEARTBEAT, event_types.HEARTBEAT_V2)
_EVENT_BYTES_MAX = (1 << 30) + (1 << 20)


class ChunkCutter:
    """One stream's cutter. `journal_name` and `position` say where the next event lies.

    `contiguous`: the bytes are a file's, so an event's place is where it was read; without it they
    are a dump's, where a server may leave events out and headers tell their events' places. (Of
    MariaDB 11.4 and later, those within a transaction tell none: they follow one on the other.)
    `skips`: places (file, offset) of events that may be left out; `on_undecodable`: see ChunkHead.
    """

    def __init__(
        self,
        chunk_bytes: int = 4 << 20,
        event_bytes_max: int = _EVENT_BYTES_MAX,
        *,
        contiguous: bool = False,
        sequence: int = 0,
        skips: Iterable[tuple[str, int]] = (),
        on_undecodable: OnUndecodable = "stop",
    ) -> None:
        self.journal_name = ""
        self._skips = frozenset(skips)
        self._on_undecodable = on_undecodable
        self.created_s = 0  # when the server created that file; 0: not told yet
        self.heartbeat_position = 0
        self.server_version = ""
        self.flavor = FLAVOR_MYSQL
        self.has_checksum = False
        self.first_since_start = False  # see FormatDescription
        self.post_header_bytes = b""
        self.chunk_bytes = chunk_bytes  # may be changed between two chunks
        self._sequence = sequence
        self._buffer: Bytes = np.empty(0, np.uint8)  # `reserve` makes room
        self._start = 0  # of the chunk in making, with its carried prefix if that is in the buffer
        self._carried_bytes = 0  # of the prefix in the buffer
        self._prefix: list[Bytes] = []  # carried events that are not in the buffer
        self._filled = 0
        self._head_position = 0
        self._head_in_transaction = False
        self._received_at = 0.0
        self._state = np.zeros(scan.STATE_SIZE, np.int64)
        self._state[scan.EVENT_BYTES_MAX] = event_bytes_max
        self._state[scan.CONTIGUOUS] = contiguous
        self._state[scan.ROWS_HEADER_BYTES] = 8
        self._carry = np.zeros((256, 2), np.int64)
        self._opening: Iterator[RawChunk] = iter(())  # a chunk whose compressed events are opened

    # ---- where the stream stands

    @property
    def position(self) -> int:
        """Offset of the next event: everything before it is in chunks or whole in the buffer."""
        return int(self._state[scan.POSITION])

    @property
    def head_position(self) -> int:
        """Offset of the first event that is in no chunk yet."""
        return self._head_position

    @property
    def in_transaction(self) -> bool:
        return bool(self._state[scan.IN_TRANSACTION])

    @property
    def is_between(self) -> bool:
        """True if the next event begins a transaction, or stands alone."""
        return not self.in_transaction and not self._carry[0, 1]

    @property
    def is_held(self) -> bool:
        """True if the last event is better not parted from the next: `flush` parts them."""
        return bool(self._state[scan.HELD])

    @property
    def last_timestamp(self) -> int:
        """Header time of the last event, seconds; 0: none yet."""
        return int(self._state[scan.TIMESTAMP])

    @property
    def pending_bytes(self) -> int:
        """Bytes of whole, scanned events that `flush` would return."""
        return int(self._state[scan.AT]) - self._start - self._carried_bytes

    @property
    def partial_bytes(self) -> int:
        """Bytes after the last whole event (call after `next` has returned None)."""
        return self._filled - int(self._state[scan.AT])

    def begin_file(self, journal_name: str, position: int = BINLOG_START) -> None:
        """The next byte is `journal_name`'s at `position`. Nothing may be pending."""
        if self.pending_bytes:
            raise ValueError("flush() before begin_file()")
        self.discard_partial()
        self._enter(journal_name, position)

    def discard_partial(self) -> None:
        """Forget the beginning of an event that will be sent again, from `position` on."""
        self._filled = int(self._state[scan.AT])

    def set_format(self, event: bytes) -> None:
        """Learn from a FORMAT_DESCRIPTION event. Raises CorruptEvent, UnsupportedEvent;
        PositionNotFound: it belongs to another file with the name of the one that was read so
        far."""
        try:
            told = parse_format_description(event)
        except DecodeError as error:
            raise error.at(self.journal_name, self.position) from None
        self._learn_created(told.created_s)
        self.server_version, self.flavor = told.server_version, told.flavor
        self.has_checksum, self.first_since_start = told.has_checksum, told.first_since_start
        self.post_header_bytes = told.post_header_bytes
        learn_format(self._state, told)

    @property
    def _trailer(self) -> int:
        return event_types.CHECKSUM_BYTES if self.has_checksum else 0

    def _learn_created(self, created_s: int) -> None:
        if self._state[scan.CONTIGUOUS] and self.created_s:
            return  # a relay log has its source's FORMAT_DESCRIPTION, too
        if self.created_s and created_s != self.created_s:
            raise PositionNotFound(
                f"{self.journal_name} is another file than before: it was created "
                f"{utc_text(created_s)}, and what was read so far is of one created "
                f"{utc_text(self.created_s)}; was the server's log reset, or restored from a copy?"
            ).at(self.journal_name, self.position)
        self.created_s = created_s

    # ---- bytes in

    def reserve(self, size: int) -> Bytes:
        """A writable view of at least `size` bytes; `commit` says how many were filled."""
        if self._filled + size > self._buffer.size:
            # Room for the whole of an event whose length is known, so that a giant one moves once.
            event_bytes = size + int(self._state[scan.NEED_BYTES])
            self._move(max(self.rest_bytes + _SMALL_TAIL_BYTES, event_bytes))
        return self._buffer[self._filled :]

    @property
    def rest_bytes(self) -> int:
        """Bytes that fill the chunk and a little of the next one. If no more arrive at once, little
        is copied into the next one's buffer."""
        return max(self._full_at - self._filled, 0) + _SMALL_TAIL_BYTES

    @property
    def _full_at(self) -> int:
        """Return the offset in the buffer at which the chunk is full."""
        return self._start + self._carried_bytes + self.chunk_bytes

    def commit(self, size: int, received_at: float = 0.0) -> None:
        """Take `size` bytes that were written to the reserved view at `received_at`
        (time.time())."""
        if not self._received_at:
            self._received_at = received_at
        self._filled += size

    def feed(self, data: bytes | bytearray | memoryview | Bytes, received_at: float = 0.0) -> None:
        """reserve + commit of a copy of `data`."""
        source = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        self.reserve(source.size)[: source.size] = source
        self.commit(source.size, received_at)

    # ---- chunks out

    def next(self) -> RawChunk | None:
        """The next full chunk, or None: more bytes are needed (or `flush` gives what is there).

        Raises CorruptEvent with file and offset, after all good events before it have come out.
        """
        piece = self._opened_piece()
        if piece is not None:
            return piece
        state = self._state
        while True:
            limit = self._full_at
            early = limit - self.chunk_bytes // _EARLY_PART
            code = scan.scan(self._buffer, self._filled, early, limit, state, self._carry)
            if code == scan.MORE:
                return None
            if code == scan.CARRY_FULL:
                self._carry = np.concatenate([self._carry, np.zeros_like(self._carry)])
                continue
            if code not in (scan.FULL, scan.CUT) and not self.pending_bytes:
                self._handle(int(code))
                continue
            piece = self._cut()
            if piece is not None:
                return piece

    def flush(self) -> RawChunk | None:
        """A chunk of the whole events that are there, if any. Call after `next` has returned
        None.
        """
        piece = self._opened_piece()
        if piece is None and self.pending_bytes:
            piece = self._cut()
        return piece

    def _opened_piece(self) -> RawChunk | None:
        """The next piece of a chunk whose compressed events are being opened."""
        try:
            piece = next(self._opening, None)
        except DecodeError as error:
            self._opening = _failing(error)  # what follows may depend on it
            raise
        if piece is None:
            return None
        piece = RawChunk(replace(piece.head, sequence=self._sequence), piece.data)
        self._sequence += 1
        return piece

    def _cut(self) -> RawChunk | None:
        """Cut a chunk off; return None if its compressed events turn out empty."""
        state = self._state
        at, start = int(state[scan.AT]), self._start
        data = self._buffer[start:at]
        carried_bytes = self._carried_bytes
        if self._prefix:
            carried_bytes = sum(part.size for part in self._prefix)
            data = np.concatenate([*self._prefix, data])
        chunk = RawChunk(
            head=ChunkHead(
                sequence=self._sequence,
                journal_name=self.journal_name,
                position=self._head_position,
                end_position=self.position,
                carried_bytes=carried_bytes,
                in_transaction=self._head_in_transaction,
                has_checksum=self.has_checksum,
                flavor=self.flavor,
                server_version=self.server_version,
                post_header_bytes=self.post_header_bytes,
                received_at=self._received_at,
                events=int(state[scan.EVENTS]),
                gtids=int(state[scan.GTIDS]),
                created_s=self.created_s,
                skips=self._skips_here() if self._skips else (),
                on_undecodable=self._on_undecodable,
                first_since_start=self.first_since_start,
            ),
            data=data,
        )
        self._carry_on(at)
        state[scan.EVENTS] = state[scan.GTIDS] = 0
        if state[scan.COMPRESSED]:
            state[scan.COMPRESSED] = 0
            limit = int(state[scan.EVENT_BYTES_MAX])
            self._opening = opened(chunk, self.chunk_bytes, limit)
            return self._opened_piece()
        self._sequence += 1
        return chunk

    def _skips_here(self) -> tuple[int, ...]:
        """Return the skipped places of the chunk that is cut."""
        here = range(self._head_position, self.position)
        return tuple(at for name, at in self._skips if name == self.journal_name and at in here)

    def _carry_on(self, at: int) -> None:
        """Start the next chunk at buffer offset `at` with what it depends on."""
        has_gtid = bool(self._carry[0, 1])
        rows = range(0 if has_gtid else 1, 1 + int(self._state[scan.CARRY_COUNT]))
        carried = [self._carried_event(row) for row in rows]
        self._start = at
        self._carried_bytes = 0
        self._prefix = carried
        self._mark_head()
        if self._filled - at <= _SMALL_TAIL_BYTES:
            # Now, while there is little to copy: later it would be half of the next chunk. And
            # aside: who has done with this chunk before more comes gives its memory to the next.
            self._move(0)
            return
        row = 0 if has_gtid else 1
        for index in range(len(carried)):
            self._carry[row + index, 0] = -1 - index

    def _carried_event(self, row: int) -> Bytes:
        offset, length = int(self._carry[row, 0]), int(self._carry[row, 1])
        if offset < 0:  # still in the prefix that is not in the buffer
            return self._prefix[-1 - offset]
        return self._buffer[offset : offset + length].copy()

    def _move(self, free_bytes: int) -> None:
        """Go on in a new buffer with so much room: the carried prefix, then all that is in no
        chunk yet.
        """
        old, start, filled = self._buffer, self._start, self._filled
        # A prefix can only be put before the chunk's first event while that has not been walked.
        prefix = [] if self.pending_bytes else self._prefix
        to = sum(part.size for part in prefix)
        self._buffer = large(to + filled - start + free_bytes)
        if prefix:
            np.concatenate(prefix, out=self._buffer[:to])
            offsets = np.cumsum([0, *(part.size for part in prefix[:-1])])
            row = 0 if self._carry[0, 1] else 1
            self._carry[row : row + len(prefix), 0] = offsets
            self._carried_bytes, self._prefix = to, []
        else:
            self._carry[self._carry[:, 0] >= 0, 0] -= start
        self._buffer[to : to + filled - start] = old[start:filled]
        self._state[scan.AT] += to - start
        self._start, self._filled = 0, to + filled - start

    def _mark_head(self) -> None:
        self._head_position = self.position
        self._head_in_transaction = self.in_transaction
        self._received_at = 0.0 if self._filled == int(self._state[scan.AT]) else self._received_at

    # ---- rare events

    def _handle(self, code: int) -> None:
        """Handle the event that `scan` stopped at, while no event is pending."""
        state = self._state
        at = int(state[scan.AT])
        if code == scan.GAP:
            state[scan.POSITION] = state[scan.GAP_POSITION]
            self._mark_head()
            return
        if code == scan.BACKWARD:
            raise self._corrupt("the event's end position lies before its beginning")
        length = int.from_bytes(self._buffer[at + 9 : at + 13].tobytes(), "little")
        if code == scan.BAD_LENGTH:
            raise self._corrupt(
                f"event length {length} is not between {event_types.HEADER_BYTES} and "
                f"{int(state[scan.EVENT_BYTES_MAX])} (source.event_bytes_max)"
            )
        event = self._buffer[at : at + length].tobytes()
        kind = event[4]
        log_position, flags = struct.unpack_from("<IH", event, 13)
        # (Where a dump by GTID begins in the midst of a file, MySQL 9 sends the file's first event
        # with the position that it has there.)
        elsewhere = kind == event_types.FORMAT_DESCRIPTION and self.position != BINLOG_START
        artificial = not state[scan.CONTIGUOUS] and (
            log_position == 0 or bool(flags & event_types.FLAG_ARTIFICIAL) or elsewhere
        )
        # One in a file takes up room there, as any event, and its checksum is looked at as theirs.
        is_heartbeat = not state[scan.CONTIGUOUS] and kind in _HEARTBEATS
        if is_heartbeat:
            told = parse_heartbeat(event, self.position, self._trailer)
            self.heartbeat_position = self.heartbeat_position if told is None else told
        elif kind == event_types.FORMAT_DESCRIPTION:
            self.set_format(event)
        elif kind == event_types.MARIADB_START_ENCRYPTION and state[scan.CONTIGUOUS]:
            raise UnsupportedEvent(
                "the binlog file is encrypted (MariaDB START_ENCRYPTION); read it from the server, "
                "or turn encrypt_binlog off"
            ).at(self.journal_name, self.position)
        state[scan.AT] = at + length
        if artificial or is_heartbeat:
            self._drop_event(at, length)
            if kind == event_types.ROTATE:
                self._rotate(event)
        else:
            state[scan.POSITION] += length

    def _drop_event(self, at: int, length: int) -> None:
        """Take an event that belongs to no chunk out of the stream; none is pending before it."""
        if not self._carried_bytes:
            self._start = at + length
            return
        # The carried prefix stands right before it: close the gap (no chunk shows these bytes yet).
        rest = self._buffer[at + length : self._filled].copy()
        self._buffer[at : at + rest.size] = rest
        self._filled = at + rest.size
        self._state[scan.AT] = at

    def _rotate(self, event: bytes) -> None:
        """Go on in the file that an artificial ROTATE names: the next events are of it."""
        try:
            name, position = parse_rotate(event)
        except CorruptEvent as error:
            raise error.at(self.journal_name, self.position) from None
        if (name, position) != (self.journal_name, self.position):
            self._enter(name, position)

    def _enter(self, journal_name: str, position: int) -> None:
        self.journal_name = journal_name
        self.created_s = 0
        self.heartbeat_position = 0  # it was one of the file before
        state = self._state
        state[scan.POSITION] = position
        state[scan.IN_TRANSACTION] = state[scan.HELD] = 0
        state[scan.CARRY_COUNT] = 0
        self._carry[0, 1] = 0
        self._start = int(state[scan.AT])
        self._carried_bytes, self._prefix = 0, []
        self._mark_head()

    def _corrupt(self, what: str) -> CorruptEvent:
        return CorruptEvent(what).at(self.journal_name, self.position)


def _failing(error: DecodeError) -> Iterator[RawChunk]:
    while True:
        raise error
        yield
