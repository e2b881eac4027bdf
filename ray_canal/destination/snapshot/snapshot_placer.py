"""Puts rows that were read for one subscriber into its log, each chunk where it belongs.

It sees every chunk that the log gets meanwhile, before the next one comes: the keys of all its row
images (log/snapshot_sequencer.py says why), and how far the log has come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.destination.ports import RowReaderHandle, Runtime
from ray_canal.destination.snapshot.replaced_tables import replaced_by
from ray_canal.destination.snapshot.snapshot_home import AttemptVoid
from ray_canal.errors import TableMetaMismatch, UnsupportedEvent
from ray_canal.log.event_store import EventStore
from ray_canal.log.snapshot_chunk import snapshot_chunk
from ray_canal.log.snapshot_sequencer import Placed, ReadRange
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_ledger import Border
from ray_canal.model.snapshot_marks import CHUNK, SNAPSHOT, Props
from ray_canal.model.table_event import ANY_TABLE
from ray_canal.schema.names import Name
from ray_canal.snapshot.changes import (
    LogPart,
    TouchedKeys,
    ends_prepared,
    refuse_altered,
    touched_by_outcome,
)
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.keys import undone_meanwhile
from ray_canal.snapshot.log_chunks import ATTEMPT_SHIFT, LogPlace, mark_at
from ray_canal.snapshot.logged_keys import LoggedKeys, Sequencer
from ray_canal.snapshot.marks import ExecutedLow, PlaceLow, stretch_of
from ray_canal.snapshot.plan import PlannedRange
from ray_canal.snapshot.row_reader import RangeRead
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.snapshot.whole_ranges import WholeRanges


class SnapshotLog(Protocol):
    """The part of a log pipeline that is needed here. `placing` is held by whoever puts a chunk
    into the log. `end`: of what came into it."""

    placing: asyncio.Lock
    end: EntryPosition

    @property
    def store(self) -> EventStore:
        """Return the log's entries and cursors."""
        ...

    async def caught_up_to(self) -> tuple[EntryPosition, EntryPosition] | None:
        """Return what `LogPipeline.caught_up_to` does."""
        ...


@dataclass(frozen=True, slots=True)
class SnapshotAttempt:
    """One attempt of a subscriber's snapshot. `name` tells it from all others. `if_prepared`: why
    it is void if an XA transaction ends in the log; None: those do not matter. The log's keys that
    are kept for rows without a place may take `touched_bytes_max`."""

    client_id: int
    snapshot: str
    attempt: int
    name: str
    tables: Mapping[Name, SnapshotTable]
    touched_bytes_max: int
    if_prepared: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    planned: PlannedRange
    reader: RowReaderHandle
    size_bytes: int
    since_s: float


class SnapshotPlacer:
    """One snapshot attempt in one log. `failure`: why it is void: nothing more is placed then."""

    def __init__(self, log: SnapshotLog, attempt: SnapshotAttempt, runtime: Runtime) -> None:
        self.log = log
        self._attempt = attempt
        self._runtime = runtime
        self._sequencer = Sequencer()
        self._logged = LoggedKeys(
            self._sequencer, {n for n, table in attempt.tables.items() if table.transactional}
        )
        self._waiting: dict[int, _Waiting] = {}
        self._reached = self._stood_at = log.end
        self._ordinal = attempt.attempt << ATTEMPT_SHIFT
        self.failure: Exception | None = None
        self.is_reading = False
        """Chunks of the log from now on may be newer than the rows that are read."""
        self.is_complete = False
        """Everything is placed, so what comes to the log does not matter any more."""
        self.renamed: set[tuple[str, str]] = set()
        """Tables of the snapshot whose rows are others than before."""
        self.placed = 0
        """Number of ranges that have got their place."""
        self.unacked_bytes = 0
        """Bytes of rows that were placed and not acked."""
        self._whole = WholeRanges()

    @property
    def waiting(self) -> int:
        """Number of ranges with rows that wait for their place."""
        return len(self._waiting)

    @property
    def backlog_s(self) -> float:
        """Return for how many seconds the first of these has waited."""
        since_s = min((each.since_s for each in self._waiting.values()), default=None)
        return 0.0 if since_s is None else time.monotonic() - since_s

    @property
    def remembered(self) -> int:
        """Number of keys of the log that are kept for chunks to come."""
        return sum(keys.shape[1] for keys in self._logged.kept)

    @property
    def has_doubts(self) -> bool:
        """Return whether XA transactions that have changed the tables are prepared: chunks may
        wait for their end."""
        return self._sequencer.has_doubts

    def seen(self, low: ExecutedLow | PlaceLow) -> None:
        """Everything up to this mark shows by now."""
        self._sequencer.seen(low)

    @property
    def held_bytes(self) -> int:
        """Bytes of all rows that were read and not acked."""
        return self.unacked_bytes + sum(each.size_bytes for each in self._waiting.values())

    def is_void(self) -> bool:
        """Return whether nothing more can come of it."""
        client_id, name = self._attempt.client_id, self._attempt.name
        return self.failure is not None or self.log.store.attempt_name_of(client_id) != name

    def is_between(self) -> bool:
        """Return whether the log ends between two transactions."""
        return not self.log.store.last_position.is_inside

    # --- the log goes on ------------------------------------------------------------------------

    async def logged(self, chunk: LogChunk, payload: Payload) -> None:
        """The log got a chunk. With `placing` held."""
        if self.failure is not None or self.is_complete:
            return
        try:
            await self._note(chunk, payload)
            await self._place_due()
        except Exception as error:  # the log goes on whatever becomes of a snapshot
            self.failure = error

    async def _note(self, chunk: LogChunk, payload: Payload) -> None:
        info = chunk.info
        end = EntryPosition(info.head.journal_name, info.head.end_position)
        if self._attempt.if_prepared is not None and ends_prepared(info):
            raise self._attempt.if_prepared
        # What is known of a transaction goes on in chunks that have none of the tables.
        goes_on = self._logged.is_inside or info.savepoints
        is_settled = self.has_doubts and ends_prepared(info)
        if goes_on or is_settled or any(
            name == ANY_TABLE or name in self._attempt.tables for name in info.tables
        ):
            decoded = await self._runtime.load(payload)
            part = LogPart(info, decoded, 0, len(info.entries), True, end)
            try:
                if not self.is_reading:
                    refuse_altered(part, self._key_of)
                else:
                    found = await asyncio.to_thread(touched_by_outcome, part, self._key_of)
                    self._keep(info, end, found)
            except TableMetaMismatch:
                self.renamed |= replaced_by(decoded, self._attempt.tables)
                raise
        self._reached = end

    def _keep(self, info: ChunkInfo, end: EntryPosition, found: Sequence[TouchedKeys]) -> None:
        """Keep keys for the rows that have no place yet. Raises UnsupportedEvent: too many."""
        self._logged.add(stretch_of(info, end), found)
        if sum(keys.nbytes for keys in self._logged.kept) > self._attempt.touched_bytes_max:
            raise UnsupportedEvent(
                f"{self.remembered:,} keys of its tables were changed while rows were "
                "read and the log came to their place, which is more than snapshot.bytes has room "
                "for: they are read again; if that goes on, raise it, or change fewer rows at once"
            )

    def _key_of(self, schema: str, table: str) -> Sequence[str] | None:
        found = self._attempt.tables.get((schema, table))
        return None if found is None else found.key

    # --- rows ------------------------------------------------------------------------------------

    def begin(self, planned: PlannedRange) -> None:
        """Note that a range is about to be read: from now on, changes of its keys count."""
        self._sequencer.begin(planned.order.number)
        self._whole.begin(planned)

    async def add(self, planned: PlannedRange, reader: RowReaderHandle, read: RangeRead) -> None:
        """A range was read. Ranges come in the order in which their reading was begun."""
        self._waiting[read.number] = _Waiting(
            planned, reader, read.size_bytes, time.monotonic()
        )
        meta = planned.order.table.meta
        name = meta.schema, meta.table
        self._sequencer.read(ReadRange(read.number, name, read.low, read.high))
        async with self.log.placing:
            await self._place_due()

    async def look(self) -> None:
        """Place what a log that stands still has come far enough for. Raises what makes the attempt
        void."""
        stood_at, self._stood_at = self._stood_at, self._reached
        if not self._sequencer.waiting or self._reached != stood_at:
            return
        # Not while the log waits for this: the source may take its time to answer.
        found = await self.log.caught_up_to()
        async with self.log.placing:
            # The server's log may go on behind our log's last chunk without anything to read.
            if found is not None and found[0] == self._reached and found[1] > found[0]:
                self._reached = found[1]
            await self._place_due()

    async def _place_due(self) -> None:
        if self.is_void() or not self.is_between():
            return
        for placed in self._sequencer.due(self._reached):
            await self._place(self._waiting[placed.number], placed)

    async def _place(self, one: _Waiting, placed: Placed[Keys]) -> None:
        store, planned, number = self.log.store, one.planned, placed.number
        place = store.last_position
        name = planned.order.table.meta.full_name
        if placed.is_unsure:
            raise undone_meanwhile(name)
        at = self._at(place, ((SNAPSHOT, self._attempt.snapshot), (CHUNK, f"{name}/{number}")))
        pieces, is_whole = await one.reader.place(number, placed.touched, placed.doubted, at)
        if is_whole:
            del self._waiting[number]
            self._sequencer.done(number)
            self._whole.add(planned)
        for index, (info, payload) in enumerate(pieces):
            rows = int(info.entries["rows"].sum())
            is_last = index == len(pieces) - 1
            upto = self._whole.take(planned.table) if is_last else None
            tag = SnapshotTag(
                self._attempt.name, planned.table, rows, info.arena_bytes, upto
            )
            store.put(snapshot_chunk(info, place, tag), payload)
            self.unacked_bytes += info.arena_bytes
            self._ordinal += rows + 1
        self.placed += 1

    async def put(
        self, info: ChunkInfo, payload: Payload, *, table: int = -1, ordinals: int = 1
    ) -> None:
        """Put a chunk at the log's end as it is: rows of a table, or what is of none. Raises
        what made the attempt void."""
        async with self.log.placing:
            if self.is_void():
                raise self.failure or AttemptVoid("the subscriber's log is another one now")
            rows, place = int(info.entries["rows"].sum()), self.log.store.last_position
            tag = SnapshotTag(self._attempt.name, table, rows, info.arena_bytes)
            self.log.store.put(snapshot_chunk(info, place, tag), payload)
            self.unacked_bytes += info.arena_bytes
            self._ordinal += ordinals

    def here(self, props: Props = ()) -> LogPlace:
        """Return the place of the next chunk at the log's end."""
        shown = ((SNAPSHOT, self._attempt.snapshot), *props)
        return self._at(self.log.store.last_position, shown)

    def take_borders(self) -> dict[int, Border]:
        """Take the borders, by table, up to which the log has all rows, and that no chunk brings,
        once everything that was placed before is acked: none earlier, as whoever begins again
        begins behind them."""
        return {} if self.unacked_bytes else self._whole.take_all()

    def _at(self, place: EntryPosition, props: Props) -> LogPlace:
        return LogPlace(
            place.journal_name, place.position, self._ordinal, props, place.created_s
        )  # fmt: skip

    async def mark(self, props: Props, ended: str = "") -> bool:
        """Put a mark at the log's end; False: that is within a transaction, or the attempt is
        void. `ended`: the state that the snapshot is in once it is acked."""
        async with self.log.placing:
            if self.is_void() or not self.is_between():
                return False
            place = self.log.store.last_position
            at = self._at(place, ((SNAPSHOT, self._attempt.snapshot), *props))
            info, chunk = mark_at(at, int(time.time()))
            tag = SnapshotTag(self._attempt.name, ended=ended, place=str(place))
            self.log.store.put(snapshot_chunk(info, place, tag), chunk)
            self._ordinal += 1
            return True
