"""Where rows go in a log that grows: behind what the server had written, without touched keys."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import StoreConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.parsing import begin, event_parser
from ray_canal.destination.snapshot.snapshot_placer import SnapshotAttempt, SnapshotPlacer
from ray_canal.errors import (
    InstanceNotRunning,
    PrivilegeMissing,
    TableMetaMismatch,
    UnsupportedEvent,
)
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.canal_types import XACOMMIT
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.model.start import Start
from ray_canal.model.table_event import ERASE, STATEMENT, TRUNCATE, TableEffect, TableEvent
from ray_canal.snapshot.changes import LogPart, touched_keys
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.log_chunks import LogPlace, rows_at
from ray_canal.snapshot.marks import ExecutedLow
from ray_canal.snapshot.plan import PlannedRange
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.source.open_source import open_source
from tests.chunk_cuts import cut_files
from tests.local_destination import instance
from tests.local_runtime import LocalRuntime
from tests.unit.snapshot.test_log_chunks import framed
from tests.unit.snapshot.test_result import META

SHOP: dict[tuple[str, str], tuple[str, ...]] = {("shop", "orders"): ("id",)}
NOTHING_SEEN = ExecutedLow(GtidSet())
"""A read of rows before which nothing was executed: whatever the log has may be missing."""


class Reader:
    """Has rows already; notes with which keys and where they were placed."""

    def __init__(self, rows: int = 5) -> None:
        self._chunk = framed(max(rows, 1))
        self._rows = rows
        self.placed: list[tuple[tuple[Keys, ...], LogPlace]] = []

    async def read(self, order: RangeOrder) -> RangeRead:
        raise NotImplementedError

    async def place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> tuple[list[tuple[ChunkInfo, Any]], bool]:
        self.placed.append((touched, place))
        if not self._rows:
            return [], True
        return [rows_at(self._chunk, np.ones(self._rows, np.bool_), place)], True

    async def close(self) -> None:
        return None


def chunks(chunk_bytes: int) -> list[tuple[ChunkInfo, DecodedChunk]]:
    """The demo's first binlog file."""
    config = instance(binlog_files()[:1], chunk_bytes=chunk_bytes)
    parser, source = event_parser(config), open_source(config)
    start = source.open(None)
    begin(parser, (), (), Start(start, ""), source.identity)
    found = []
    while (raw := source.read(0.0, 0.0)) is not None:
        found.append(parser.decode_chunk(raw))
    source.close()
    return found


class Log:
    """The demo's binlog, chunk by chunk."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunks = deque(chunks(chunk_bytes))
        self.placing = asyncio.Lock()
        self.store = EventStore(StoreConfig(), EntryPosition(binlog_files()[0].name, 4))
        self._buffer = TransactionBuffer(self.store.last_position)
        self.store.subscribe(1, Terms(TableFilter()), None)
        self.server_at: EntryPosition | None = None
        self.reached: EntryPosition | None = None

    @property
    def end(self) -> EntryPosition:
        return self.reached or self.store.last_position

    async def caught_up_to(self) -> tuple[EntryPosition, EntryPosition] | None:
        if self.server_at is None or self.reached is None:
            return None
        return self.reached, self.server_at

    def buffered(self, info: ChunkInfo) -> LogChunk:
        return TransactionBuffer(self.store.last_position).add(info)

    async def grow(self, placer: SnapshotPlacer) -> tuple[ChunkInfo, DecodedChunk] | None:
        found = self._chunks.popleft() if self._chunks else None
        if found is not None:
            info, chunk = found
            async with self.placing:
                added = self._buffer.add(info)
                self.store.put(added, chunk)
                self.reached = EntryPosition(info.head.journal_name, info.head.end_position)
                await placer.logged(added, chunk)
        return found

    async def grow_to_rows(self, placer: SnapshotPlacer) -> None:
        """Let it grow by what makes the tables."""
        while not self._chunks[0][0].entries["rows"].any():
            await self.grow(placer)


def table_of(name: tuple[str, str], key: tuple[str, ...]) -> SnapshotTable:
    return SnapshotTable(META, key, "PRIMARY", 5, 100, True)


def planned(number: int, name: tuple[str, str]) -> PlannedRange:
    order = RangeOrder(number, table_of(name, ("id",)), "id < 9")
    return PlannedRange(0, ("9",), order)


def of_keys(
    keys: dict[tuple[str, str], tuple[str, ...]], log: Log, touched_bytes_max: int = 1 << 20
) -> SnapshotPlacer:
    log.store.begin_attempt(1, "1:s:2")
    tables = {name: table_of(name, key) for name, key in keys.items()}
    attempt = SnapshotAttempt(1, "s", 2, "1:s:2", tables, touched_bytes_max)
    placer = SnapshotPlacer(log, attempt, LocalRuntime())
    placer.is_reading = True
    return placer


def test_rows_wait_for_the_high_mark_and_go_between_transactions() -> None:
    asyncio.run(waits_for_the_high_mark())


async def waits_for_the_high_mark() -> None:
    log, reader = Log(chunk_bytes=4096), Reader()
    placer = of_keys({("d", "t"): ("id",)}, log)
    high = EntryPosition(binlog_files()[0].name, 20_000)
    read = RangeRead(1, 5, 900, NOTHING_SEEN, high, 0.1)
    placer.begin(planned(1, ("d", "t")))
    await placer.add(planned(1, ("d", "t")), reader, read)
    assert placer.waiting == 1
    while not reader.placed:
        assert await log.grow(placer) is not None
    assert placer.failure is None
    [(touched, place)] = reader.placed
    assert touched == ()
    assert place.ordinal == 2 << 40
    assert log.reached is not None
    assert log.reached >= high
    assert not log.store.last_position.is_inside
    assert placer.unacked_bytes > 0
    assert placer.waiting == 0


def test_a_log_that_stands_still_has_come_as_far_as_the_servers() -> None:
    asyncio.run(stands_still())


async def stands_still() -> None:
    log, reader = Log(chunk_bytes=1 << 20), Reader(0)
    placer = of_keys({("d", "t"): ("id",)}, log)
    while await log.grow(placer) is not None:
        pass
    assert log.reached is not None
    name, end = log.reached.journal_name, log.reached.position
    read = RangeRead(1, 0, 0, NOTHING_SEEN, EntryPosition(name, end + 100), 0.1)
    placer.begin(planned(1, ("d", "t")))
    await placer.add(planned(1, ("d", "t")), reader, read)
    await placer.look()
    assert placer.waiting == 1
    log.server_at = EntryPosition(name, end + 100)
    await placer.look()
    await placer.look()
    assert placer.waiting == 0
    placer.unacked_bytes = 1
    assert placer.take_borders() == {}
    placer.unacked_bytes = 0
    assert placer.take_borders() == {0: ("9",)}
    assert placer.take_borders() == {}


def test_a_log_that_has_come_into_a_file_without_entries() -> None:
    """Seed 1600098 of the simulation: the server had begun a new file and been idle since, when the
    attempt began. Its rows waited for the next transaction."""
    asyncio.run(new_file())


async def new_file() -> None:
    log, reader = Log(chunk_bytes=1 << 20), Reader(0)
    log.reached = log.server_at = EntryPosition("mysql-bin.999999", 157)
    placer = of_keys({("d", "t"): ("id",)}, log)
    read = RangeRead(1, 0, 0, NOTHING_SEEN, log.server_at, 0.1)
    placer.begin(planned(1, ("d", "t")))
    await placer.add(planned(1, ("d", "t")), reader, read)
    assert placer.waiting == 0


def test_every_key_of_both_images_is_told_to_who_places_rows() -> None:
    asyncio.run(keys_are_told())


async def keys_are_told() -> None:
    log, reader = Log(chunk_bytes=4096), Reader()
    await log.grow_to_rows(of_keys({}, log))
    placer = of_keys(SHOP, log)
    high = EntryPosition(binlog_files()[0].name, 1 << 40)
    table = SnapshotTable(META, ("id",), "PRIMARY", 5, 100, True)
    order = RangeOrder(1, table, "")
    read = RangeRead(1, 5, 900, NOTHING_SEEN, high, 0.1)
    placer.begin(PlannedRange(0, ("9",), order))
    await placer.add(PlannedRange(0, ("9",), order), reader, read)
    expected = list[Keys]()
    while (found := await log.grow(placer)) is not None and placer.failure is None:
        info, chunk = found
        part = LogPart(info, chunk, 0, len(info.entries), True, high)
        expected += touched_keys(part, lambda schema, table: SHOP.get((schema, table))).values()
    assert expected
    assert ids_in(placer._logged.kept) == ids_in(expected)


def ids_in(runs: Iterable[Keys]) -> set[int]:
    return {int(number) for run in runs for number in run[0]}


def test_a_transaction_has_ended_though_none_of_the_tables_is_in_the_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its keys waited for the next chunk with one of them, and got the outcome that was there."""
    cut_files(monkeypatch, 300)
    asyncio.run(ends_elsewhere())


async def ends_elsewhere() -> None:
    log = Log(chunk_bytes=4096)
    await log.grow_to_rows(of_keys({}, log))
    placer, ended = of_keys(SHOP, log), 0
    while (found := await log.grow(placer)) is not None and placer.failure is None:
        if not log.store.last_position.is_inside:
            assert not placer._logged.is_inside
            ended += not {*SHOP} & {*found[0].tables}
    assert ended > 10


def test_no_key_is_kept_of_what_lies_before_the_reading() -> None:
    asyncio.run(before_the_reading())


async def before_the_reading() -> None:
    log = Log(chunk_bytes=4096)
    await log.grow_to_rows(of_keys({}, log))
    placer = of_keys(SHOP, log)
    placer.is_reading = False
    while await log.grow(placer) is not None:
        assert placer.remembered == 0
    assert placer.failure is None


def test_more_keys_than_there_is_room_for_are_a_failure() -> None:
    asyncio.run(more_keys_than_room())


async def more_keys_than_room() -> None:
    log = Log(chunk_bytes=4096)
    await log.grow_to_rows(of_keys({}, log))
    placer = of_keys(SHOP, log, touched_bytes_max=64)
    while await log.grow(placer) is not None and placer.failure is None:
        assert sum(run.nbytes for run in placer._logged.kept) <= 64
    assert isinstance(placer.failure, UnsupportedEvent)
    assert "snapshot.bytes" in str(placer.failure)
    assert placer.is_void()


@pytest.mark.parametrize("voided", ["attempt", "failure"])
def test_nothing_more_is_placed_by_who_is_void(voided: str) -> None:
    asyncio.run(void(voided))


async def void(voided: str) -> None:
    log, reader = Log(chunk_bytes=4096), Reader()
    placer = of_keys({("d", "t"): ("id",)}, log)
    assert await placer.mark((("snapshotMark", "SNAPSHOT_BEGIN"),))
    if voided == "attempt":
        log.store.begin_attempt(1, "1:s:3")
    else:
        placer.failure = TableMetaMismatch("altered")
    read = RangeRead(1, 5, 900, NOTHING_SEEN, log.store.last_position, 0.1)
    placer.begin(planned(1, ("d", "t")))
    await placer.add(planned(1, ("d", "t")), reader, read)
    assert reader.placed == []
    assert not await placer.mark((("snapshotMark", "SNAPSHOT_END"),), "done")


@pytest.mark.parametrize("if_prepared", [None, PrivilegeMissing("run: GRANT")])
def test_a_prepared_transaction_that_ends_voids_who_could_not_see_it(
    if_prepared: Exception | None,
) -> None:
    asyncio.run(ends_prepared(if_prepared))


async def ends_prepared(if_prepared: Exception | None) -> None:
    log = Log(chunk_bytes=4096)
    log.store.begin_attempt(1, "1:s:2")
    attempt = SnapshotAttempt(1, "s", 2, "1:s:2", {}, 0, if_prepared)
    placer = SnapshotPlacer(log, attempt, LocalRuntime())
    await log.grow(placer)
    assert placer.failure is None
    found = await log.grow(placer)
    assert found is not None
    info, chunk = found
    entries = info.entries.copy()
    entries["event_type"][-1] = XACOMMIT
    async with log.placing:
        await placer.logged(log.buffered(replace(info, entries=entries)), chunk)
    assert placer.failure is if_prepared


@pytest.mark.parametrize(
    ("effect", "again"),
    [
        (TableEffect(STATEMENT, "shop", "orders"), {("shop", "orders")}),  # EXCHANGE PARTITION
        (TableEffect(STATEMENT, "", ""), {("shop", "orders"), ("shop", "items")}),
        (TableEffect(ERASE, "shop", "items", ("shop", "old")), {("shop", "items")}),
        (TableEffect(TRUNCATE, "shop", "items"), set()),
        (TableEffect(STATEMENT, "shop", "customers"), None),
    ],
)
def test_tables_with_rows_that_the_log_does_not_have_are_read_again(
    effect: TableEffect, again: set[tuple[str, str]] | None
) -> None:
    asyncio.run(rows_not_in_the_log(effect, again))


async def rows_not_in_the_log(effect: TableEffect, again: set[tuple[str, str]] | None) -> None:
    log = Log(chunk_bytes=4096)
    await log.grow_to_rows(of_keys({}, log))
    placer = of_keys({**SHOP, ("shop", "items"): ("id",)}, log)
    found = await log.grow(of_keys({}, log))
    assert found is not None
    info, chunk = found
    events = (TableEvent(0, len(info.tables), effect),)
    async with log.placing:
        changed = log.buffered(replace(info, tables=(*info.tables, effect[1:3])))
        layout = chunk.layout._replace(table_events=events)
        await placer.logged(changed, DecodedChunk(layout, chunk.arena))
    assert isinstance(placer.failure, TableMetaMismatch) == (again is not None)
    assert placer.renamed == (again or set())


class Asleep(Reader):
    """On a node that sleeps."""

    async def place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> tuple[list[tuple[ChunkInfo, Any]], bool]:
        await super().place(number, touched, doubted, place)
        raise InstanceNotRunning("it has not answered")


def test_the_log_goes_on_without_a_reader_that_does_not_answer() -> None:
    asyncio.run(goes_on_without())


async def goes_on_without() -> None:
    log, reader = Log(chunk_bytes=4096), Asleep()
    placer = of_keys({("d", "t"): ("id",)}, log)
    high = EntryPosition(binlog_files()[0].name, 20_000)
    placer.begin(planned(1, ("d", "t")))
    await placer.add(planned(1, ("d", "t")), reader, RangeRead(1, 5, 900, NOTHING_SEEN, high, 0.1))
    while await log.grow(placer) is not None:
        assert placer.is_void() == bool(reader.placed)
    assert len(reader.placed) == 1
    assert isinstance(placer.failure, InstanceNotRunning)
    assert log.reached is not None
    assert log.reached > high
