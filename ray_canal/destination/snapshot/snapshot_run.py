"""Reads the rows of a snapshot into one subscriber's log, from where it has come to until it ends.

Each attempt begins at what was acked: a new plan, new connections, a new name in the log that
the subscriber is at now. Whatever comes between (a restart, another log, DDL of a table that is
read) makes the attempt void, and the next one begins: nothing is half read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ray_canal.config import InstanceConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.ports import RowReaderHandle, Runtime
from ray_canal.destination.snapshot.snapshot_home import AttemptVoid, SnapshotHome, after_acks
from ray_canal.destination.snapshot.snapshot_pace import Pace
from ray_canal.destination.snapshot.snapshot_placer import SnapshotAttempt, SnapshotPlacer
from ray_canal.destination.supervisor import Backoff
from ray_canal.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionLost,
    Fenced,
    InstanceError,
    NotSubscribed,
    PrivilegeMissing,
    ServerSettingRefused,
    TableMetaMismatch,
)
from ray_canal.filter import TableFilter
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.model.reports import SnapshotPace
from ray_canal.model.snapshot_ledger import DONE, FAILED, Ledger, TableLedger
from ray_canal.model.snapshot_marks import (
    MARK,
    MARK_BEGIN,
    MARK_END,
    REASON,
    STATE,
    TABLES,
    Props,
    joined,
)
from ray_canal.model.snapshot_wish import KEYED
from ray_canal.snapshot.plan import PlannedRange, SnapshotPlan
from ray_canal.snapshot.row_reader import RangeRead
from ray_canal.snapshot.tables import SnapshotTable

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TICK_S = 0.2
_ORDERS = 2
"""Ranges that a reader has: the one that it reads, and the next."""
_FORGET_S = 1.0
_REMEMBERED_MAX = 20_000
"""Keys of changes: so many are kept at least while a range waits."""
_TRIES = 5
"""So many attempts may fail one after the other, without a row acked between, before the snapshot
does; lost connections do not count."""
_NO_USE = (ConfigError, PrivilegeMissing, AuthenticationFailed, ServerSettingRefused)
"""Trying again cannot help, unless the error says that it may."""


class SnapshotRun:
    """One subscriber's snapshot. `ledger` is how far it has come, as far as is known here."""

    def __init__(
        self, home: SnapshotHome, client_id: int, ledger: Ledger, runtime: Runtime
    ) -> None:
        self.home = home
        self._client_id = client_id
        self._runtime = runtime
        self.ledger = ledger
        self.pace = Pace(home.source_config().snapshot)
        self.waits_for = "it begins"
        self._placer: SnapshotPlacer | None = None
        self._log: LogPipeline | None = None  # of the attempt that reads now
        self.attempt_name = ""
        """Names the attempt whose chunks count."""
        self.attempt = ledger.attempt  # the last one that was to begin
        self._backoff = Backoff(home.source_config().source.reconnect_max_s)
        self._failed, self._failed_rows = 0, -1

    # --- what is acked ----------------------------------------------------------------------------

    def after(self, tags: Sequence[SnapshotTag]) -> Ledger:
        """Return the ledger once these chunks are acked."""
        return after_acks(self.ledger, tags)

    def acked(self, tags: Sequence[SnapshotTag]) -> None:
        """These chunks are acked: durable already."""
        self.ledger = self.after(tags)
        if self._placer is not None:
            self._placer.unacked_bytes -= sum(tag.size_bytes for tag in tags)
        self.pace.acked(self.ledger.rows)

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Return when it has ended: done, or failed. Raises Fenced."""
        while not self.ledger.is_over:
            try:
                await self._attempt()
            except Fenced:
                raise
            except Exception as error:
                await self._failed_with(error)

    async def _failed_with(self, error: Exception) -> None:
        error = self._runtime.unwrap(error)
        name = f"snapshot {self.ledger.id} for client {self._client_id}"
        if isinstance(error, TableMetaMismatch) and self._placer is not None:
            self.restart_tables(self._placer.renamed)
        if self.ledger.rows > self._failed_rows:
            self._failed, self._failed_rows = 0, self.ledger.rows
            self._backoff.reset()
        if isinstance(error, AttemptVoid):
            await asyncio.sleep(_TICK_S)
            return
        if not isinstance(error, ConnectionLost | InstanceError | NotSubscribed):
            self._failed += 1
        logger.warning("%s: %s", name, error)
        is_final = isinstance(error, _NO_USE) and not error.retryable
        if is_final or self._failed >= _TRIES:
            self.ledger = self.home.followed(self._client_id, self.ledger)
            text = f"{type(error).__name__}: {error}"
            failed = replace(self.ledger, state=FAILED, error=text, ended=int(time.time()))
            await self.home.keep(self._client_id, failed)
            self.ledger = failed
            return
        self.waits_for = f"another try, after: {error}"
        await asyncio.sleep(self._backoff.next())

    def restart_tables(self, names: Collection[tuple[str, str]]) -> None:
        """Read these tables, which have other rows than before, from the first row on."""
        now = self.ledger.with_restarted(names)
        if now != self.ledger and now.mode == KEYED:  # of one moment none is read on anyway
            self._failed_rows = min(self._failed_rows, now.rows)  # rows from now on count again
        self.ledger = now

    def looks_elsewhere(self, log: LogPipeline) -> bool:
        """Return whether it reads for another log than this one now: it sees what that one gets."""
        return self._log is not None and self._log is not log

    async def _attempt(self) -> None:
        self.attempt_name = ""  # what is acked of the last attempt from now on comes again
        log = await self._own_log()
        self.ledger = self.home.followed(self._client_id, self.ledger)
        config = self.home.source_config()
        thread = BackendThread("snapshot plan")
        plan: SnapshotPlan | None = None
        try:
            self.waits_for = "the server"
            within = self.home.table_filter(self._client_id)
            plan = await thread.run(SnapshotPlan, config, within)
            await thread.run(plan.refuse_other_log, log.identity.server_uuid)
            ledger = self.ledger
            tables = await thread.run(plan.wanted, ledger.wishes, ledger.tables)
            ledger = replace(ledger, tables=tables)
            ledger = replace(ledger.begun_again(), began=ledger.began or int(time.time()))
            self.attempt = ledger.attempt
            await self.home.keep(self._client_id, ledger)
            self.ledger = ledger
            found = await thread.run(self._find_tables, plan)
            name = ledger.attempt_name_of(self._client_id)
            attempt = SnapshotAttempt(
                self._client_id, ledger.id, ledger.attempt, name, found,
                unacked_bytes_max(config), plan.if_prepared(),
            )
            self.attempt_name = name
            async with self._placing(log, attempt, within) as placer:
                await self._read(config, log, placer, plan, thread)
        finally:
            await thread.close(plan.close if plan is not None else lambda: None)

    async def _own_log(self) -> LogPipeline:
        self.waits_for = "the subscriber's log"
        while True:
            log = self.home.log_of(self._client_id)
            if log is not None:
                return log
            await self.home.changed.wait(time.monotonic() + _TICK_S)

    def _find_tables(self, plan: SnapshotPlan) -> dict[tuple[str, str], SnapshotTable]:
        """The tables that are not read yet."""
        tables, left = {}, self._left()
        for number, found in plan.find(left).items():
            table = left[number]
            if not table.is_of(found.key_order, plan.made(found)):  # another one has its name
                self.restart_tables([(table.schema, table.table)])
            tables[table.schema, table.table] = found
        return tables

    def _left(self) -> dict[int, TableLedger]:
        return {n: table for n, table in enumerate(self.ledger.tables) if not table.finished}

    @contextlib.asynccontextmanager
    async def _placing(
        self, log: LogPipeline, attempt: SnapshotAttempt, within: TableFilter
    ) -> AsyncIterator[SnapshotPlacer]:
        """A placer that sees what the log gets from now on."""
        async with log.placing:
            if self.home.table_filter(self._client_id) != within:
                raise AttemptVoid("the subscriber sees other tables now")
            log.store.begin_attempt(self._client_id, attempt.name)
            placer = self._placer = SnapshotPlacer(log, attempt, self._runtime)
            log.taps.append(placer)
        self._log = log
        try:
            yield placer
        finally:
            self._log = None
            log.taps.remove(placer)

    async def _read(
        self,
        config: InstanceConfig,
        log: LogPipeline,
        placer: SnapshotPlacer,
        plan: SnapshotPlan,
        thread: BackendThread,
    ) -> None:
        self.waits_for = "the end of a transaction in the log"
        await self._wait_until(placer, placer.is_between)
        self.waits_for = "all that the log has to show on the server"
        begin = log.store.last_position
        placer.is_reading = True  # what lies before shows in all that is read
        readers = [self._runtime.row_reader(config) for _ in range(config.snapshot.readers)]
        # Not waited for: a reader that cannot connect, or has no node yet, is told by its read.
        opening = asyncio.gather(*(each.open() for each in readers), return_exceptions=True)
        governing = asyncio.create_task(self.pace.govern(config, lambda: placer.backlog_s))
        try:
            seen = thread.run(plan.wait_until_visible, begin, placer.is_void)
            await self._unless_void(placer, seen)
            # What was altered since they were found, before the placer looked on, shows by now.
            await thread.run(plan.refuse_altered, self._left())
            await self._mark(placer, MARK_BEGIN, ((REASON, self.ledger.reason),))
            rows = _Rows(self, placer, plan, thread, readers, config)
            await self._unless_void(placer, rows.read())
        finally:
            governing.cancel()
            opening.cancel()
            closing = (reader.close() for reader in readers)
            await asyncio.gather(opening, *closing, return_exceptions=True)
        await self._mark(placer, MARK_END, ((STATE, DONE),), DONE)
        placer.is_complete = True
        self.waits_for = "the subscriber, to ack its rows"
        await self._wait_until(placer, lambda: self.ledger.is_over)

    async def _mark(self, placer: SnapshotPlacer, kind: str, props: Props, ended: str = "") -> None:
        names = joined(table.full_name for table in self.ledger.tables)
        shown = ((MARK, kind), (TABLES, names), *(pair for pair in props if pair[1]))
        self.waits_for = "the end of a transaction in the log"
        while True:
            await self._wait_until(placer, placer.is_between)
            if await placer.mark(shown, ended):
                break
        await self.home.changed.wake()

    async def _wait_until(self, placer: SnapshotPlacer, condition: Any) -> None:
        """Return when it holds. Raises AttemptVoid, what made the attempt void."""
        while not condition():
            self.refuse_void(placer)
            await self.home.changed.wait(time.monotonic() + _TICK_S)
        self.refuse_void(placer)

    async def _unless_void(self, placer: SnapshotPlacer, work: Awaitable[T]) -> T:
        """Await work, which ends when the attempt becomes void."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_TICK_S)
                if not task.done():
                    self.refuse_void(placer)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def refuse_void(self, placer: SnapshotPlacer) -> None:
        """Raise what made the attempt void, or AttemptVoid where the subscriber's log is another
        one now; nothing if the snapshot is over."""
        if self.ledger.is_over:
            return
        if placer.failure is not None:
            raise placer.failure
        if placer.is_void() or self.home.log_of(self._client_id) is not placer.log:
            raise AttemptVoid("the subscriber's log is another one now")

    def status(self) -> SnapshotPace:
        """Return how it goes, beyond what its ledger says: plain values."""
        placer = self._placer
        return {
            "rows_per_s": self.pace.rows_per_s,
            "waits_for": self.waits_for,
            "chunks_waiting": 0 if placer is None else placer.waiting,
            "bytes_unacked": 0 if placer is None else placer.held_bytes,
            "readers": self.pace.in_flight,
        }


class _Rows:
    """One attempt to read all tables that are left."""

    def __init__(
        self,
        run: SnapshotRun,
        placer: SnapshotPlacer,
        plan: SnapshotPlan,
        thread: BackendThread,
        readers: list[RowReaderHandle],
        config: InstanceConfig,
    ) -> None:
        self._run = run
        self._placer = placer
        self._plan = plan
        self._thread = thread
        self._free = deque(readers * _ORDERS)
        self._readers = len(readers)
        self._forget_at_s = 0.0
        self._told = 0  # ranges of whose place those who wait were told
        capacity = config.store.capacity_bytes
        self._bytes_max = unacked_bytes_max(config)
        self._chunk_bytes = min(config.snapshot.chunk_bytes, max(capacity // 16, 1))
        self._reading: deque[
            tuple[PlannedRange, RowReaderHandle, asyncio.Task[RangeRead]]
        ] = deque()

    async def read(self) -> None:
        """Read, and place, everything. Raises what makes the attempt void."""
        try:
            for number, table in enumerate(self._run.ledger.tables):
                if not table.finished:
                    await self._table(number)
            while self._reading or self._placer.waiting:
                self._run.waits_for = "the log, to come as far as the rows that were read"
                if self._placer.has_doubts:
                    self._run.waits_for = "XA transactions that have changed its tables, to end"
                await self._forget()
                await self._step()
        finally:
            for _, _, task in self._reading:
                task.cancel()

    async def _table(self, number: int) -> None:
        run, plan = self._run, self._plan
        progress = run.ledger.tables[number]
        if progress.end is None:
            progress = await self._thread.run(plan.begin, number, progress)
            run.ledger = run.ledger.with_table(number, progress)
        run.pace.begin_table(number)
        ranges = plan.ranges(number, progress, lambda: self._rows_of(number))
        ahead, is_first = asyncio.ensure_future(self._thread.run(next, ranges, None)), True
        try:
            while (planned := await ahead) is not None:
                if not is_first:
                    ahead = asyncio.ensure_future(self._thread.run(next, ranges, None))
                await self._room()
                run.waits_for = ""
                self._placer.begin(planned)
                reader = self._free.popleft()
                task = asyncio.create_task(reader.read(planned.order))
                self._reading.append((planned, reader, task))
                run.pace.in_flight = min(len(self._reading), self._readers)
                while is_first and planned.upto != progress.end and not task.done():
                    await self._step()  # it says how many rows the next ranges may have
                if is_first:
                    ahead = asyncio.ensure_future(self._thread.run(next, ranges, None))
                is_first = False
        finally:
            ahead.cancel()

    def _rows_of(self, number: int) -> int:
        return self._run.pace.rows_of(self._chunk_bytes, self._plan.row_bytes(number))

    async def _room(self) -> None:
        """Return when another range may be read."""
        while True:
            await self._collect()
            if not self._free:
                self._run.waits_for = ""
            elif (held := self._placer.held_bytes) >= self._bytes_max:
                self._run.waits_for = "the subscriber, to ack its rows"
            elif (ahead := self._bytes_ahead) and held + ahead >= self._bytes_max:
                self._run.waits_for = ""
            else:
                why = self._run.pace.refuses(len(self._reading))
                if not why:
                    return
                self._run.waits_for = why
            await self._forget()
            await self._step()

    @property
    def _bytes_ahead(self) -> int:
        """Bytes of the ranges that would wait for their reader, with another one."""
        return max(len(self._reading) + 1 - self._readers, 0) * self._chunk_bytes

    async def _forget(self) -> None:
        """Let go of the keys of changes that every range to come has seen: waiting may take hours,
        in which the log goes on. Raises where an XA transaction stays prepared."""
        is_wanted = self._placer.has_doubts or self._placer.remembered > _REMEMBERED_MAX
        if is_wanted and time.monotonic() >= self._forget_at_s:
            self._forget_at_s = time.monotonic() + _FORGET_S
            self._placer.seen(await self._thread.run(self._plan.low))

    async def _step(self) -> None:
        """Wait a little, or for the range that is read first; then take what there is."""
        tasks = [task for _, _, task in list(self._reading)[:1]]
        if tasks:
            await asyncio.wait(tasks, timeout=_TICK_S)
        else:
            await self._run.home.changed.wait(time.monotonic() + _TICK_S)
        await self._collect()
        await self._placer.look()
        await self._wake()

    async def _collect(self) -> None:
        """Take ranges that were read, in the order in which they were begun."""
        while self._reading and self._reading[0][2].done():
            planned, reader, task = self._reading.popleft()
            self._free.append(reader)
            read = task.result()
            self._run.pace.read(read, planned.estimate, planned.table)
            await self._placer.add(planned, reader, read)
            await self._wake()
        self._run.pace.in_flight = min(len(self._reading), self._readers)

    async def _wake(self) -> None:
        for table, upto in self._placer.take_borders().items():
            self._run.ledger = self._run.ledger.acked(table, upto, 0)
        told, self._told = self._told, self._placer.placed
        if told != self._told:  # else two snapshots that wait would wake each other all the time
            await self._run.home.changed.wake()


def unacked_bytes_max(config: InstanceConfig) -> int:
    """Return how much may be kept of rows that were read and not acked, and so much again of keys
    that the log has touched."""
    return min(config.snapshot.bytes, config.store.capacity_bytes // 4)
