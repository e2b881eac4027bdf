"""Gives one subscriber all rows of one moment, then the changes from there on.

Its cursor moves to the moment's place, and a log of its own (rows_log.py) gets the rows: first a
TRUNCATE of each table, as what it had of them is replaced. Nothing of this can go on later:
whatever comes between makes the attempt void, and the next one begins with another moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.destination.fetcher import SMALL_CHUNK_BYTES
from ray_canal.destination.snapshot.snapshot_placer import SnapshotAttempt, SnapshotPlacer
from ray_canal.destination.snapshot.snapshot_run import SnapshotRun, unacked_bytes_max
from ray_canal.errors import ConfigError, SourceError
from ray_canal.filter import TableFilter
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_ledger import DONE, TableLedger
from ray_canal.model.snapshot_marks import CHUNK, MARK_BEGIN, MARK_END, MODE, REASON, STATE
from ray_canal.model.snapshot_wish import CONSISTENT, SnapshotWish
from ray_canal.snapshot.consistent import ConsistentSnapshot
from ray_canal.snapshot.log_chunks import LogPlace, emptied_at
from ray_canal.snapshot.moment_reader import MomentReading, RowsRead
from ray_canal.snapshot.source_load import SourceLoad

_TICK_S = 0.2
_HISTORY_S = 5.0


class MomentRun(SnapshotRun):
    """A SnapshotRun whose rows are all of one moment."""

    async def _attempt(self) -> None:
        self.attempt_name = ""  # what is acked of the last attempt from now on is void
        config = self.home.source_config()
        if config.snapshot.address:
            raise ConfigError(
                "snapshot.address: a consistent snapshot is read from the server whose log is "
                "read; take mode keyed, or leave the address out"
            )
        while why := self.pace.refuses(0):
            self.waits_for = why
            await asyncio.sleep(_TICK_S)
        # What it gets until the rows' place is known would lie behind that place.
        self.home.begin_rows_log(self._client_id)
        within = self.home.table_filter(self._client_id)
        readers = [self._runtime.moment_reader(config) for _ in range(config.snapshot.readers)]
        reader = _MomentThread(config, self.ledger.wishes, within, readers)
        try:
            self.waits_for = "read views at one place of the server's log"
            source = await reader.open()
            place = await reader.log_place(source)
            tables = tuple(
                TableLedger(
                    table.meta.schema, table.meta.table, wish.where, wish.columns,
                    estimate=table.rows,
                )
                for table, wish in source.wanted
            )  # fmt: skip
            began = self.ledger.began or int(time.time())
            ledger = replace(self.ledger, tables=tables, began=began).begun_again()
            self.attempt = ledger.attempt
            log = await self.home.begin_rows(self._client_id, ledger, source.server, place)
            self.ledger = ledger
            name = ledger.attempt_name_of(self._client_id)
            self.attempt_name = name
            attempt = SnapshotAttempt(self._client_id, ledger.id, ledger.attempt, name, {}, 0)
            async with self._placing(log, attempt, within) as placer:
                await self._put_everything(config, placer, source, reader)
        finally:
            await reader.close()

    async def _put_everything(
        self,
        config: InstanceConfig,
        placer: SnapshotPlacer,
        source: ConsistentSnapshot,
        reader: _MomentThread,
    ) -> None:
        mode = (MODE, CONSISTENT)
        await self._mark(placer, MARK_BEGIN, ((REASON, self.ledger.reason), mode))
        metas = [table.meta for table in source.tables]
        info, emptied = emptied_at(metas, placer.here(), int(time.time()))
        await placer.put(info, emptied, ordinals=len(metas))
        numbers = {table: number for number, table in enumerate(source.tables)}
        room = _Room(self, config, placer)
        try:
            count = 0
            while (read := await self._unless_void(placer, reader.next())) is not None:
                await room.wait()
                self.pace.spend(read.rows)
                count += 1
                await self._put(placer, read, numbers[read.table], count)
        finally:
            await room.close()
        await reader.close()  # the server need not keep that moment any longer
        await self._mark(placer, MARK_END, ((STATE, DONE), mode), DONE)
        placer.is_complete = True
        self.waits_for = "the subscriber, to ack its rows"
        await self._wait_until(placer, lambda: self.ledger.is_over)

    async def _put(
        self, placer: SnapshotPlacer, read: RowsRead, number: int, count: int
    ) -> None:
        if not read.rows:
            return
        self.waits_for = ""
        place = placer.here(((CHUNK, f"{read.table.meta.full_name}/{count}"),))
        info, payload = await asyncio.to_thread(self._placed, read, place)
        await placer.put(info, payload, table=number, ordinals=read.rows + 1)
        await self.home.changed.wake()

    def _placed(self, read: RowsRead, place: LogPlace) -> tuple[ChunkInfo, Payload]:
        """Return rows as a chunk at a place of the log; a large one is kept in shared memory."""
        info, payload = read.at(place)
        if isinstance(payload, DecodedChunk) and payload.arena.size > SMALL_CHUNK_BYTES:
            payload = self._runtime.keep(payload)
        return info, payload


class _MomentThread:
    """Reads in threads of its own, by readers that may be elsewhere."""

    def __init__(
        self,
        config: InstanceConfig,
        wishes: Sequence[SnapshotWish],
        within: TableFilter,
        readers: Sequence[MomentReading],
    ) -> None:
        self._config, self._wishes, self._within = config, wishes, within
        self._readers = readers
        self._thread = BackendThread("snapshot of one moment")
        self._source: ConsistentSnapshot | None = None

    async def open(self) -> ConsistentSnapshot:
        """Begin the moment. Raises SourceError kinds, ServerSettingRefused, ConfigError."""
        return await self._thread.run(self._open)

    def _open(self) -> ConsistentSnapshot:
        may_lock = self._config.snapshot.may_lock
        source = self._source = ConsistentSnapshot(
            self._config, self._wishes, self._readers, may_lock, self._within
        )
        others = source.not_wanted()
        if others:
            raise ConfigError(
                f"{', '.join(others)}: the subscriber sees it, and its changes up to the "
                "snapshot's moment would be left out; a consistent snapshot is of all tables that "
                "a subscriber sees"
            )
        self._chunks = source.chunks()
        return source

    async def log_place(self, source: ConsistentSnapshot) -> EntryPosition:
        """Return the moment's place, as a cursor has it. Raises SourceError kinds."""
        return await self._thread.run(source.log_place)

    async def next(self) -> RowsRead | None:
        """Return the next rows; None: those were all. Raises what `chunks` does."""
        return await self._thread.run(self._next)

    def _next(self) -> RowsRead | None:
        return next(self._chunks, None)

    async def close(self) -> None:
        """End its connections, and so the moment."""
        if self._source is not None:
            self._source.stop()
        await self._thread.close(self._close)

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()


class _Room:
    """Waits for the subscriber, and looks at what the server has to keep meanwhile."""

    def __init__(self, run: MomentRun, config: InstanceConfig, placer: SnapshotPlacer) -> None:
        self._run = run
        self._placer = placer
        self._bytes_max = unacked_bytes_max(config)
        self._history_max = config.snapshot.history_max
        self._load, self._thread = SourceLoad(config.source), BackendThread("snapshot history")
        self._look_at_s = 0.0

    async def wait(self) -> None:
        """Return when rows may be put into the log. Raises ConfigError: the server keeps too much;
        what made the attempt void."""
        run, placer = self._run, self._placer
        while True:
            await self._look()
            if placer.held_bytes >= self._bytes_max:
                run.waits_for = "the subscriber, to ack its rows"
            elif why := run.pace.too_fast():
                run.waits_for = why
            else:
                return
            await run.home.changed.wait(time.monotonic() + _TICK_S)
            run.refuse_void(placer)

    async def _look(self) -> None:
        now_s = time.monotonic()
        if not self._history_max or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _HISTORY_S
        with contextlib.suppress(SourceError):  # who reads rows tells it
            history = (await self._thread.run(self._load.read)).history_list
            if history is not None and history > self._history_max:
                raise ConfigError(
                    f"the server keeps {history:,} old row versions (snapshot.history_max is "
                    f"{self._history_max:,}): read when less is written, or by mode keyed"
                )

    async def close(self) -> None:
        await self._thread.close(self._load.close)
