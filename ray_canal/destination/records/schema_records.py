"""Schema records of a destination: the history, and tables in quarantine."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar, cast

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.errors import MetaDamaged, MetaUnavailable, QuarantineFull
from ray_canal.meta.open import open_schema_store
from ray_canal.meta.schema_store import (
    ChunkKey,
    SchemaStore,
    chunk_key,
    is_newer,
    newest_marks,
)
from ray_canal.model.position import EntryPosition, SourceIdentity
from ray_canal.model.reports import SchemaHistoryReport, TableChangeReport
from ray_canal.model.schema_record import (
    EVENT_AT,
    SNAPSHOT,
    Quarantined,
    SchemaMark,
    SchemaRecord,
    held_name,
)
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.history import place_of
from ray_canal.schema.records import expired, log_number, numbered_log, present_log
from ray_canal.schema.table_changes import known_tables, newest_version, table_changes

logger = logging.getLogger(__name__)
T = TypeVar("T")

_AGAIN_S = 1.0
_REPEATED = 32
"""So many of the last records are written again with the next one."""


class SchemaRecords:
    """One destination's. A write is durable when it returns, and harmless the second time. What
    talks to the store of the records is awaited (backend_thread.py)."""

    def __init__(self, meta: MetaConfig, config: InstanceConfig) -> None:
        self._destination = config.destination
        self._hours = config.tsdb.snapshot_expire_hours
        self._meta, self._path = meta, config.tsdb.path
        self._bytes_max = config.tsdb.quarantine_bytes_max
        self._records_max = config.tsdb.records_max
        self._quarantined: set[tuple[str, str]] = set()
        self._sizes: dict[ChunkKey, int] = {}
        self.quarantine_bytes = 0
        self.problem = ""
        """Why the log waits with a change of its schemas; empty: it does not."""
        self._thread = BackendThread(f"schemas of {config.destination}")
        self._opened: SchemaStore | None = None
        self.damaged = False
        self._newest: dict[str, SchemaMark] = {}
        self._log = ""
        self._last: deque[SchemaRecord] = deque(maxlen=_REPEATED)

    async def open(self) -> None:
        """Read what is kept; to be called before any other call but `quarantined`, and again when
        it is `damaged`. Raises ConfigError: damaged, removed, refused; MetaUnavailable."""
        await self._thread.run(self._open)
        self.damaged = False

    def _open(self) -> None:
        before, must_exist = self._opened, self._opened is not None
        self._opened = open_schema_store(self._meta, self._path, must_exist=must_exist)
        if before is not None:
            before.close()
        self._measure()

    @property
    def _store(self) -> SchemaStore:
        assert self._opened is not None
        return self._opened

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await self._thread.run(call)
        except MetaDamaged:
            self.damaged = True
            raise

    async def records(self) -> list[SchemaRecord]:
        """Return all schema records of the destination, in order. Raises MetaUnavailable."""
        return await self._run(lambda: self._store.records(self._destination))

    async def trusted(self, marks: Iterable[SchemaMark | None]) -> list[SchemaRecord]:
        """Return all schema records but those of a log that lack what subscribers have seen
        written: a copy was put back, or a server has lost its last writes. Such ones are forgotten,
        for columns that have changed since would have their old names. Raises MetaUnavailable."""
        records = await self.records()
        newest = newest_marks(records)
        for mark in marks:
            found = None if mark is None else newest.get(mark[0])
            if mark is None or found is None or not is_newer(mark, found):
                continue
            log, journal_name, position = mark
            logger.warning(
                "destination %s: the schema history of %s ends at %s:%d, and the one that was "
                "written went on to %s:%d: it is read from the catalog again",
                self._destination, log, found[1], found[2], journal_name, position,
            )  # fmt: skip
            await self._run(partial(self._store.forget_log, self._destination, log))
            del newest[log]
            records = [record for record in records if record.server != log]
        self._newest = newest
        self._last.clear()
        return records

    @property
    def newest(self) -> SchemaMark | None:
        """The newest record of the log that is read; None: there is none, or not known."""
        return self._newest.get(self._log)

    async def append(self, records: Sequence[SchemaRecord]) -> None:
        if records:
            await self._run(lambda: self._append(records))

    def _append(self, records: Sequence[SchemaRecord]) -> None:
        """Write records, and the last ones again: since then their server may have been replaced by
        one that lacks them."""
        if records:
            self._store.append(self._destination, [*self._last, *records])
            if any(each.kind == SNAPSHOT for each in records):
                self._last.clear()
            else:
                self._last.extend(records)
            known = self._newest
            for log, mark in newest_marks(records).items():
                if log not in known or is_newer(mark, known[log]):
                    known[log] = mark

    async def keep(
        self, info: ChunkInfo, oldest: Callable[[], EntryPosition | None] | None = None
    ) -> None:
        """Keep the records of a chunk, before anything of it is seen: a cursor behind it needs
        them. `oldest`: from where on the log may be read again; what was needed before it alone may
        go. Raises QuarantineFull."""
        if info.records or info.quarantined:
            await self._patiently(lambda: self._keep(info))
        snapshot = next((r for r in info.records if r.kind == SNAPSHOT), None)
        start = None if snapshot is None or oldest is None else oldest()
        if snapshot is not None and start is not None:
            log, place = snapshot.server, start
            await self._patiently(lambda: self._thin(log, place, None))

    async def _patiently(self, call: Callable[[], T]) -> T:
        """While the server of the records is away, or the disk is full, the log goes no further:
        what was handed out stays so, and nothing is read again."""
        try:
            while True:
                try:
                    return await self._run(call)
                except MetaUnavailable as error:
                    if not self.problem:
                        logger.warning(
                            "destination %s waits with a change of its schemas: %s",
                            self._destination, error,
                        )  # fmt: skip
                    self.problem = str(error)
                await asyncio.sleep(_AGAIN_S)
        finally:
            self.problem = ""

    def _keep(self, info: ChunkInfo) -> None:
        self._append(info.records)
        if info.quarantined:
            self._refuse_too_much(info.quarantined)
            self._store.quarantine(self._destination, info.quarantined)
            self._count(info.quarantined)
        self._quarantined.update(table for held in info.quarantined for table in held.tables)

    def _measure(self) -> None:
        held = self._store.quarantined(self._destination)
        self._quarantined = {table for chunk in held for table in chunk.tables}
        self._sizes = {chunk_key(chunk): chunk.size_bytes for chunk in held}
        self.quarantine_bytes = sum(self._sizes.values())

    def _count(self, chunks: Sequence[Quarantined]) -> None:
        for chunk in chunks:
            key = chunk_key(chunk)
            self.quarantine_bytes += len(chunk.data) - self._sizes.get(key, 0)
            self._sizes[key] = len(chunk.data)

    def _refuse_too_much(self, chunks: Sequence[Quarantined]) -> None:
        def total() -> int:
            more = (len(c.data) - self._sizes.get(chunk_key(c), 0) for c in chunks)
            return self.quarantine_bytes + sum(more)

        if total() > self._bytes_max:
            self._measure()  # some of it may have been given back
        if total() <= self._bytes_max:
            return
        names = sorted({held_name(pair) for c in chunks for pair in c.tables})
        raise QuarantineFull(
            f"the quarantine is full: events of {', '.join(names)} would make it {total()} bytes, "
            f"tsdb.quarantine_bytes_max is {self._bytes_max}. Say what its tables looked like "
            f"(`ray-canal redrive CONFIG {self._destination} --schema FILE`) or raise the limit, "
            f"then start again. {chunks[0].reason}"
        ).at(chunks[0].journal_name, chunks[0].position, destination=self._destination)

    async def keep_from(
        self, start: EntryPosition, identity: SourceIdentity, records: Sequence[SchemaRecord]
    ) -> None:
        """Forget the schema records that nobody who reads from `start` on needs."""
        await self._run(lambda: self._forget(start, identity, records))

    def _forget(
        self, start: EntryPosition, identity: SourceIdentity, records: Sequence[SchemaRecord]
    ) -> None:
        server = identity.server_uuid or identity.address
        log = self._log = present_log(records, server)
        self._thin(log, start, records)
        held = {each for of_log, _, _ in self._sizes for each in (of_log, numbered_log(of_log, 1))}
        for other in {record.server for record in records} - {log} - held:
            if log_number(server, other) >= 0:  # an older log of this server, which has it no more
                self._store.forget_log(self._destination, other)

    def _thin(self, log: str, start: EntryPosition, records: Sequence[SchemaRecord] | None) -> None:
        """Forget what comes before a snapshot that nobody needs older ones than who reads from
        `start` on: an old one, or where there are too many records, any."""
        known = self._store.outline(self._destination) if records is None else records
        count = sum(record.server == log for record in known)
        hours = self._hours if count <= self._records_max else None
        needed = [place_of(start.journal_name, start.position)]
        needed += [
            place_of(journal_name, position)
            for of_log, journal_name, position in self._sizes
            if log in (of_log, numbered_log(of_log, 1))  # redrive reads its other tables, too
        ]
        oldest = expired(known, log, time.time(), hours, min(needed))
        if oldest is not None:
            self._store.forget_before(self._destination, oldest)

    async def history(self, identity: SourceIdentity, table: str) -> SchemaHistoryReport:
        """Return `tables`, the names of those that are known, and `changes`: the versions of one of
        them (schema.table; none if empty). Raises ConfigError: a record cannot be read."""
        records = await self.records()
        log = present_log(records, identity.server_uuid or identity.address)
        schema, _, name = table.partition(".")

        def read() -> SchemaHistoryReport:
            changes = table_changes(records, log, (schema, name)) if table else []
            shown = [cast(TableChangeReport, dataclasses.asdict(change)) for change in changes]
            return {"tables": known_tables(records, log), "changes": shown}

        return await asyncio.to_thread(read)

    async def table_meta(self, identity: SourceIdentity, table: str) -> TableMeta | None:
        """Return the newest version of a table (schema.table). Raises ConfigError: a record cannot
        be read."""
        records = await self.records()
        log = present_log(records, identity.server_uuid or identity.address)
        schema, _, name = table.partition(".")
        return await asyncio.to_thread(newest_version, records, log, (schema, name))

    def quarantined(self) -> list[str]:
        """Return the tables whose events are held aside."""
        return [held_name(pair) for pair in sorted(self._quarantined) if pair[0] != EVENT_AT]

    @property
    def dead_letters(self) -> int:
        """Number of events that could not be decoded and are kept."""
        return sum(schema == EVENT_AT for schema, _ in self._quarantined)

    async def close(self) -> None:
        await self._thread.close(lambda: self._opened.close() if self._opened else None)
