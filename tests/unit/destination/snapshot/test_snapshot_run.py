"""A run from its first row to its last over a real log, with a pretended server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.snapshot import snapshot_pace, snapshot_run
from ray_canal.destination.snapshot.snapshot_home import new_ledger
from ray_canal.destination.snapshot.snapshot_run import SnapshotRun
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import ConfigError, ConnectionLost, ServerSettingRefused, TableMetaMismatch
from ray_canal.filter import TableFilter
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.model.gtid import GtidSet
from ray_canal.model.snapshot_ledger import DONE, FAILED, Ledger, TableLedger
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.snapshot.governor import LoadReading
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.log_chunks import LogPlace, rows_at
from ray_canal.snapshot.marks import ExecutedLow
from ray_canal.snapshot.plan import PlannedRange
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead
from ray_canal.snapshot.tables import SnapshotTable
from tests.local_destination import run as run_async
from tests.local_runtime import LocalRuntime
from tests.unit.destination.pumping import noted, nothing
from tests.unit.destination.test_log_pipeline import EVERYTHING, pipeline_of
from tests.unit.snapshot.test_log_chunks import framed
from tests.unit.snapshot.test_result import META

CLIENT, ROWS, BORDERS = 1, 5, 8
LEFT = {"short": 1, "two": 2}
"""Wishes for one table of which so many ranges are left."""
asked: list[int] = []
"""Marks that were asked for to forget changes."""
TABLE = SnapshotTable(META, ("id",), "PRIMARY", ROWS * BORDERS, 100, True)


class Plan:
    """Two tables of eight ranges, but for `LEFT`."""

    def __init__(self, config: InstanceConfig, within: TableFilter) -> None:
        self.numbers = 0

    def refuse_other_log(self, server: str) -> None:
        return None

    def if_prepared(self) -> None:
        return None

    def wanted(
        self, wishes: Any, known: tuple[TableLedger, ...] = ()
    ) -> tuple[TableLedger, ...]:
        if known:
            return known
        if wishes[0].tables == "none":
            raise ConfigError("no table to read matches 'none'")
        if wishes[0].tables in LEFT:
            done = (str(BORDERS - LEFT[wishes[0].tables]),)
            return (TableLedger("d", "t", done=done),)
        return TableLedger("d", "t"), TableLedger("d", "u")

    def find(self, wanted: dict[int, TableLedger]) -> dict[int, SnapshotTable]:
        return dict.fromkeys(wanted, TABLE)

    def refuse_altered(self, wanted: dict[int, TableLedger]) -> None:
        return None

    def made(self, table: SnapshotTable) -> str:
        return "server|then"

    def begin(self, number: int, progress: TableLedger) -> TableLedger:
        return progress.begun(("id",), (str(BORDERS),), ROWS * BORDERS, "server|then")

    def ranges(
        self, number: int, progress: TableLedger, rows: Callable[[], int]
    ) -> Iterator[PlannedRange]:
        assert rows() > 0
        first = 0 if progress.done is None else int(progress.done[0])
        for border in range(first + 1, BORDERS + 1):
            self.numbers += 1
            order = RangeOrder(self.numbers, TABLE, f"id <= {border}")
            yield PlannedRange(number, (str(border),), order)

    def row_bytes(self, number: int) -> int:
        return 100

    def wait_until_visible(self, *_: Any) -> None:
        return None

    def low(self) -> ExecutedLow:
        asked.append(1)
        return ExecutedLow(GtidSet())

    def close(self) -> None:
        return None


class Load:
    def __init__(self, source: Any) -> None:
        return None

    def read(self) -> LoadReading:
        return LoadReading(1)

    def close(self) -> None:
        return None


class Reader:
    """Reads five rows a range, none of the range up to `empty`; the `broken`th read fails once."""

    def __init__(
        self, log: LogPipeline, broken: list[int], empty: int, error: Exception
    ) -> None:
        self._log = log
        self._broken = broken
        self._error = error
        self._empty = f"id <= {empty}"
        self._numbers: set[int] = set()
        self.orders = self.most = 0

    async def open(self) -> None:
        return None

    async def read(self, order: RangeOrder) -> RangeRead:
        self.orders += 1
        self.most = max(self.most, self.orders)
        await asyncio.sleep(0.001)
        self.orders -= 1
        if self._broken:
            self._broken[0] -= 1
            if not self._broken[0]:
                self._broken.clear()
                raise self._error
        if order.condition == self._empty:
            self._numbers.add(order.number)
        high = self._log.store.last_position
        return RangeRead(order.number, ROWS, 900, ExecutedLow(GtidSet()), high, 0.001)

    async def place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> tuple[list[tuple[ChunkInfo, Any]], bool]:
        if number in self._numbers:
            return [], True
        return [rows_at(framed(ROWS), np.ones(ROWS, np.bool_), place)], True

    async def close(self) -> None:
        return None


class Home:
    """A destination with one log, whose records are in memory."""

    def __init__(self, log: LogPipeline, changed: Wakeup) -> None:
        self.log, self.changed = log, changed
        self.settings: dict[str, Any] = {}
        self.kept: list[Ledger] = []

    def source_config(self) -> InstanceConfig:
        source = {"address": "127.0.0.1:1", "username": "x"}
        tree = {"destination": "x", "source": source, "snapshot": self.settings}
        return InstanceConfig.model_validate(tree)

    def log_of(self, client_id: int) -> LogPipeline | None:
        return self.log

    def table_filter(self, client_id: int) -> TableFilter:
        return TableFilter()

    def followed(self, client_id: int, ledger: Ledger) -> Ledger:
        return ledger

    async def keep(self, client_id: int, ledger: Ledger) -> None:
        self.kept.append(Ledger.from_json(ledger.to_json()))


class Runtime(LocalRuntime):
    error: Exception = ConnectionLost("the server was restarted")

    def __init__(self, log: LogPipeline, broken: list[int], empty: int = 0) -> None:
        self._log = log
        self._broken = broken
        self._empty = empty

    def row_reader(self, config: InstanceConfig) -> Any:
        self.reader = Reader(self._log, self._broken, self._empty, self.error)
        return self.reader


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_run, "SnapshotPlan", Plan)
    monkeypatch.setattr(snapshot_pace, "SourceLoad", Load)


@contextlib.asynccontextmanager
async def at_log() -> Any:
    """(home, log) of a subscriber that is in a log which has been read to its end."""
    changed = Wakeup()
    log = pipeline_of(changed, buffer_size=1 << 16)
    start, _, _ = await log.open((), ())
    log.begin(start.position, 0)
    log.store.subscribe(CLIENT, EVERYTHING, None)
    pumping = asyncio.create_task(log.run(nothing, noted))
    await pumping
    try:
        yield Home(log, changed), log
    finally:
        await log.close()


class Consumer:
    """Gets and acks everything; what is done with goes to the run."""

    def __init__(self, log: LogPipeline, run: SnapshotRun) -> None:
        self._log, self._run = log, run
        self.tags: list[SnapshotTag] = []

    async def until(self, condition: Callable[[], bool]) -> None:
        store = self._log.store
        while not condition():
            batch = store.get(CLIENT, 8)
            if batch is None:
                await asyncio.sleep(0.005)
                continue
            tags = store.read_chunks(CLIENT, batch.id)
            store.ack(CLIENT, batch.id)
            self.tags += tags
            if tags and tags[-1].attempt_name == self._run.attempt_name:
                self._run.acked(tags)


def test_all_ranges_come_in_order_and_it_is_done() -> None:
    run_async(all_ranges([]))


def test_a_lost_connection_is_made_good() -> None:
    run_async(all_ranges([5]))


def test_a_setting_that_is_being_changed_is_made_good() -> None:
    """A dump that gtid_mode refuses: the next attempt asks in the mode of then."""
    error = ServerSettingRefused("GTID_MODE = ON_PERMISSIVE instead of ON")
    error.retryable = True
    run_async(all_ranges([5], error))


async def all_ranges(broken: list[int], error: Exception = Runtime.error) -> None:
    attempts = 2 if broken else 1
    async with at_log() as (home, log):
        runtime = Runtime(log, broken)
        runtime.error = error
        run = SnapshotRun(home, CLIENT, new_ledger((), "s"), runtime)
        task = asyncio.create_task(run.run())
        consumer = Consumer(log, run)
        await consumer.until(lambda: run.ledger.is_over)
        await task
    assert run.ledger.state == DONE
    assert [table.finished for table in run.ledger.tables] == [True, True]
    assert run.ledger.place
    assert broken == []
    assert run.ledger.attempt == attempts
    newest = [tag for tag in consumer.tags if tag.upto is not None]
    for number in (0, 1):
        borders = [int(tag.upto[0]) for tag in newest if tag.upto and tag.table == number]
        assert sorted(set(borders)) == list(range(1, BORDERS + 1))
        if attempts == 1:
            assert borders == list(range(1, BORDERS + 1))


def test_an_empty_range_is_not_done_before_those_before_it_are_acked() -> None:
    run_async(empty_range())


async def empty_range() -> None:
    """The first attempt ends when it has placed one range, found the next one empty, and nothing
    is acked."""
    async with at_log() as (home, log):
        home.settings = {"readers": 1}
        run = SnapshotRun(home, CLIENT, new_ledger((), "s"), Runtime(log, [3], empty=2))
        task = asyncio.create_task(run.run())
        while run.ledger.attempt < 2:
            await asyncio.sleep(0.01)
        consumer = Consumer(log, run)
        await consumer.until(lambda: run.ledger.is_over)
        await task
    assert run.ledger.state == DONE
    assert [table.finished for table in run.ledger.tables] == [True, True]
    assert run.ledger.rows == 2 * (BORDERS - 1) * ROWS


def test_while_it_waits_changes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_run, "_REMEMBERED_MAX", -1)
    asked.clear()
    run_async(waits_for_acks())
    assert asked


async def waits_for_acks() -> None:
    async with at_log() as (home, log):
        home.settings = {"readers": 1, "rows_per_s": 4 * ROWS}  # a range, then 0.25 s of waiting
        run = SnapshotRun(home, CLIENT, new_ledger((SnapshotWish("two"),)), Runtime(log, []))
        task = asyncio.create_task(run.run())
        await Consumer(log, run).until(lambda: run.ledger.is_over)
        await task
    assert run.ledger.state == DONE


@pytest.mark.parametrize(("room", "orders"), [(1, 1), (1 << 30, 2)])
def test_a_reader_has_its_next_order_before_it_is_free(
    monkeypatch: pytest.MonkeyPatch, room: int, orders: int
) -> None:
    """Unless what it reads then has no room."""
    monkeypatch.setattr(snapshot_run, "unacked_bytes_max", lambda config: room)
    run_async(most_orders(orders))


async def most_orders(expected: int) -> None:
    async with at_log() as (home, log):
        home.settings = {"readers": 1}
        runtime = Runtime(log, [])
        run = SnapshotRun(home, CLIENT, new_ledger((), "s"), runtime)
        task = asyncio.create_task(run.run())
        await Consumer(log, run).until(lambda: run.ledger.is_over)
        await task
    assert runtime.reader.most == expected


def test_another_log_goes_on_where_it_was_acked() -> None:
    run_async(another_log())


async def another_log() -> None:
    async with at_log() as (home, log):
        run = SnapshotRun(home, CLIENT, new_ledger((), "s"), Runtime(log, []))
        task = asyncio.create_task(run.run())
        consumer = Consumer(log, run)
        await consumer.until(lambda: run.ledger.rows >= 4 * ROWS)
        done = run.ledger.tables[0].done
        log.store.begin_attempt(CLIENT, "")  # as who comes back from elsewhere
        await consumer.until(lambda: run.ledger.is_over)
        await task
    assert run.ledger.state == DONE
    assert run.ledger.attempt == 2
    assert home.kept[-1].tables[0].done in (done, (str(BORDERS),))
    assert run.ledger.rows == 2 * BORDERS * ROWS


def test_a_late_ack_is_not_of_a_table_that_was_replaced_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_run, "unacked_bytes_max", lambda config: 1)  # a range, then acks
    run_async(late_ack())


async def late_ack() -> None:
    """What the table had before is acked between two attempts: all of it is still to be read."""
    async with at_log() as (home, log):
        home.settings = {"readers": 1}
        run = SnapshotRun(home, CLIENT, new_ledger((SnapshotWish("two"),), "s"), Runtime(log, []))
        task = asyncio.create_task(run.run())
        while not run.waits_for.startswith("the subscriber"):
            await asyncio.sleep(0.005)
        placer = run._placer
        assert placer is not None
        placer.renamed, placer.failure = {("d", "t")}, TableMetaMismatch("d.t was renamed")
        while not run.waits_for.startswith("another try"):
            await asyncio.sleep(0.001)
        consumer = Consumer(log, run)
        await consumer.until(lambda: run.ledger.is_over)
        await task
    assert (run.ledger.state, run.ledger.attempt) == (DONE, 2)
    assert {tag.upto for tag in consumer.tags if tag.attempt_name.endswith(":2")} >= {
        (str(border),) for border in range(1, BORDERS + 1)
    }


def test_rows_of_a_table_that_begins_again_count_as_rows_that_came() -> None:
    run_async(tries_counted())


async def tries_counted() -> None:
    """What was read before the table was replaced is no measure of how it goes since."""
    async with at_log() as (home, log):
        read = TableLedger("d", "t").begun(("id",), ("8",), 40).acked(("4",), 20)
        ledger = replace(new_ledger((), "s"), tables=(read,))
        run = SnapshotRun(home, CLIENT, ledger, Runtime(log, []))
        await run._failed_with(TableMetaMismatch("d.t was replaced"))
        run.restart_tables({("d", "t")})
        for border in range(1, 4):
            again = run.ledger.tables[0].begun(("id",), ("8",), 40).acked((str(border),), border)
            run.ledger = run.ledger.with_table(0, again)
            await run._failed_with(TableMetaMismatch("d.u was altered"))
    assert run._failed == 1


def test_the_last_range_is_not_waited_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing left to read for which the rate, a row a second, could matter."""
    monkeypatch.setattr(sys.modules[__name__], "ROWS", 90)
    run_async(last_range(), seconds=60)


async def last_range() -> None:
    async with at_log() as (home, log):
        home.settings = {"rows_per_s": 1, "readers": 1}
        run = SnapshotRun(home, CLIENT, new_ledger((SnapshotWish("short"),)), Runtime(log, []))
        task = asyncio.create_task(run.run())
        await Consumer(log, run).until(lambda: run.ledger.is_over)
        await task
    assert (run.ledger.state, run.ledger.rows) == (DONE, ROWS)


def test_what_cannot_be_read_fails_and_says_why() -> None:
    run_async(fails())


async def fails() -> None:
    async with at_log() as (home, log):
        ledger = new_ledger((SnapshotWish("none"),), "s")
        run = SnapshotRun(home, CLIENT, ledger, Runtime(log, []))
        await run.run()
    assert run.ledger.state == FAILED
    assert home.kept[-1].error == "ConfigError: no table to read matches 'none'"
