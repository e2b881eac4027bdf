"""Tables of simulated servers, snapshots that read them, and a subscriber that keeps a copy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ray_canal.binlog.chunk import (
    ENTRY,
    EVENT_CLOSES,
    EVENT_IN_TRANSACTION,
    GTID,
    ChunkHead,
    ChunkInfo,
)
from ray_canal.client.connector import AsyncConnector
from ray_canal.config import InstanceConfig
from ray_canal.errors import CanalError, ConnectionLost
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.gtid import GtidSet
from ray_canal.model.snapshot_ledger import DONE, FAILED, Ledger, TableLedger
from ray_canal.snapshot.key_numbers import Keys, are_among, joined
from ray_canal.snapshot.marks import ExecutedLow, PlaceLow
from ray_canal.snapshot.plan import PlannedRange
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead
from tests.simulation.client import Client, RowId
from tests.simulation.processes import DESTINATION, OWNER, Outside, Payload
from tests.simulation.servers import (
    BEGIN,
    END,
    INSERT,
    QUERY,
    ROWDATA,
    SCHEMA,
    TABLES,
    Entry,
    Server,
)

if TYPE_CHECKING:
    from tests.simulation.life import Simulation

KEYS = 12
"""A row's key is the rest of its number by this: later rows replace earlier ones."""


def held(server: Server) -> dict[tuple[int, int], int]:
    """What the server's tables hold: the newest row's number by (table, key)."""
    return {(table, number % KEYS): number for number, table in server.rows}


def takes_snapshots(seed: int) -> bool:
    """Whether the subscribers of this life copy tables."""
    return random.Random(f"snapshots {seed}").random() < 0.15


class Copier(Client):
    """A subscriber that wants what the tables hold, and all that is changed then. In the end it has
    what the server has."""

    def __init__(self, run: Simulation, client_id: int) -> None:
        super().__init__(run, client_id)
        self.copy: dict[tuple[int, int], int] = {}

    async def subscribe(self, connector: AsyncConnector) -> None:
        await connector.subscribe(
            self.filter, policy=self.policy, transactions=self.transactions, snapshot="initial"
        )
        self.first = 0

    def missing(self) -> int | None:
        if self.run.faults.is_unseen_reset:
            return None
        record = self.run.outside.records.backend.load(DESTINATION).get(self.client_id)
        known = SubscriberMeta.from_json(record[record.index("{") :]) if record else None
        if known is None or not known.snapshot:
            return 0
        ledger = Ledger.from_json(known.snapshot)
        assert ledger.state != FAILED, f"client {self.client_id}: {ledger.error}"
        wanted = {
            place: number
            for place, number in held(self.run.master).items()
            if self.wants(number)
        }
        lacks = [number for place, number in wanted.items() if self.copy.get(place) != number]
        self.next = min(lacks, default=0)
        return self.next if lacks or ledger.state != DONE else None

    def leaves(self, error: CanalError) -> bool:
        policies = self.run.faults.on_purged, self.run.faults.on_reset
        return "snapshot" not in policies or "has neither GTIDs" in str(error)

    def _take_row(self, row: RowId, number: int) -> bool:
        assert self.wants(number), f"row {number} is not of its tables"
        if row <= self.highest:
            return False
        self.highest = row
        self.copy[self.run.tables[number], number % KEYS] = number
        return True


@dataclass(frozen=True)
class _Table:
    name: str
    key: tuple[str, ...] = ("id",)
    key_order: tuple[str, ...] = ("id",)

    @property
    def meta(self) -> Any:
        return SimpleNamespace(
            schema=SCHEMA, table=self.name, full_name=f"{SCHEMA}.{self.name}"
        )


class _AtServer:
    """Something that is connected to the server at the configured address."""

    def __init__(self, outside: Outside, config: InstanceConfig) -> None:
        self.outside, self._address = outside, config.source.address

    @property
    def server(self) -> Server:
        """Raises ConnectionLost."""
        server = self.outside.server(self._address)
        if not server.alive:
            raise ConnectionLost(f"{self._address} does not answer")
        return server

    def low(self) -> ExecutedLow | PlaceLow:
        server = self.server
        if server.gtids:
            return ExecutedLow(GtidSet.parse(server.executed_text()))
        return PlaceLow(server.end)


class Plan(_AtServer):
    """snapshot/plan.py `SnapshotPlan`, of simulated tables."""

    def __init__(self, config: InstanceConfig, within: Any) -> None:
        owner = OWNER.get()
        assert owner is not None
        super().__init__(owner.outside, config)
        self._within = within
        self._numbers = 0
        self._log_server = self.server.uuid

    def refuse_other_log(self, server: str) -> None:
        self._log_server = server
        if self.server.uuid != server:
            raise ConnectionLost(f"it is {self.server.uuid} now, and not {server}")

    def if_prepared(self) -> None:
        return None

    def wanted(
        self, wishes: Any, known: tuple[TableLedger, ...] = ()
    ) -> tuple[TableLedger, ...]:
        names = (name for name in TABLES if self._within.admits(SCHEMA, name))
        return known or tuple(TableLedger(SCHEMA, name) for name in names)

    def wait_until_visible(self, place: Any, stopped: Callable[[], bool]) -> None:
        assert self.server is not None  # what is in its log shows

    def find(self, wanted: dict[int, TableLedger]) -> dict[int, _Table]:
        return {number: _Table(one.table) for number, one in wanted.items()}

    def refuse_altered(self, wanted: dict[int, TableLedger]) -> None:
        """Nobody alters a table."""

    def made(self, table: _Table) -> str:
        return f"{self.server.uuid}|1"

    def begin(self, number: int, progress: TableLedger) -> TableLedger:
        table = TABLES.index(progress.table)
        keys = [key for at, key in held(self.server) if at == table]
        end = (str(max(keys)),) if keys else None
        made = self.made(_Table(progress.table))
        return progress.begun(("id",), end, len(keys), made)

    def ranges(
        self, number: int, progress: TableLedger, rows: Callable[[], int]
    ) -> Iterator[PlannedRange]:
        if progress.finished or progress.end is None:
            return
        done = -1 if progress.done is None else int(progress.done[0])
        end = int(progress.end[0])
        while done < end:
            upto = min(done + self.outside.random.choice((1, 3, 20)), end)
            self._numbers += 1
            table: Any = _Table(progress.table)
            condition, done = f"{done} {upto}", upto
            order = RangeOrder(
                self._numbers, table, condition, self.server.uuid, self._log_server
            )
            yield PlannedRange(number, (str(upto),), order)

    def row_bytes(self, number: int) -> int:
        return 10

    def close(self) -> None:
        """It holds nothing."""


class PlanThread:
    """The thread in which a plan is made."""

    def __init__(self, name: str) -> None:
        owner = OWNER.get()
        assert owner is not None
        self._random = owner.outside.random

    async def run(self, function: Any, *values: Any) -> Any:
        await asyncio.sleep(self._random.choice((0.0, 0.01, 0.1)))
        return function(*values)

    async def close(self, last: Any) -> None:
        last()


class RowReader(_AtServer):
    """snapshot/row_reader.py `RowReader`, of simulated tables."""

    def __init__(self, outside: Outside, config: InstanceConfig) -> None:
        super().__init__(outside, config)
        self._ranges: dict[int, tuple[int, list[int]]] = {}
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        await self.outside.pause()

    async def _pause(self) -> Server:
        await asyncio.sleep(self.outside.random.choice((0.0, 0.02, 0.2, 0.5)))
        return self.server

    async def read(self, order: RangeOrder) -> RangeRead:
        async with self._turn:
            server = await self._pause()
            if order.server != server.uuid:
                raise ConnectionLost(f"it is {server.uuid} now, and not {order.server}")
            low = self.low()
            await self._pause()
            first, last = map(int, order.condition.split())
            table = TABLES.index(order.table.meta.table)
            rows = [
                number
                for (at, key), number in sorted(held(server).items())
                if at == table and first < key <= last
            ]
            await self._pause()
            self._ranges[order.number] = table, rows
            return RangeRead(order.number, len(rows), 10 * len(rows), low, server.end, 0.1)

    async def place(
        self, number: int, touched: tuple[Keys, ...], place: Any
    ) -> list[tuple[ChunkInfo, Payload]]:
        await self.outside.pause()
        table, rows = self._ranges.pop(number)
        if rows:
            known = are_among(keys_of(rows), touched)
            rows = [row for row, is_touched in zip(rows, known, strict=True) if not is_touched]
        return [rows_at(place, table, rows)] if rows else []

    async def close(self) -> None:
        """It holds nothing."""


def keys_of(numbers: Sequence[int]) -> Keys:
    return np.array([[number % KEYS for number in numbers]], np.uint64)


def touched_keys(part: Any, keys: Any) -> dict[tuple[str, str], Keys]:
    """snapshot/changes.py `touched_keys`, of a simulated chunk."""
    found: dict[tuple[str, str], list[Keys]] = {}
    for entry in part.chunk.entries[part.first : part.last]:
        if entry.rows and keys(SCHEMA, TABLES[entry.table]) is not None:
            found.setdefault((SCHEMA, TABLES[entry.table]), []).append(keys_of(entry.rows))
    return {name: joined(parts) for name, parts in found.items()}


def rows_at(place: Any, table: int, rows: Sequence[int]) -> tuple[ChunkInfo, Payload]:
    """Return rows that were read as a chunk of the log."""
    return _at(place, ((BEGIN, 0, ()), (ROWDATA, INSERT, tuple(rows)), (END, 0, ())), table)


def mark_at(place: Any, timestamp: int, server_id: int = 0) -> tuple[ChunkInfo, Payload]:
    """snapshot/log_chunks.py `mark_at`, as a simulated chunk."""
    return _at(place, ((ROWDATA, QUERY, ()),), -1)


def _at(
    place: Any, kinds: Sequence[tuple[int, int, tuple[int, ...]]], table: int
) -> tuple[ChunkInfo, Payload]:
    records, made = np.zeros(len(kinds), ENTRY), []
    records["position"], records["length"] = place.position, 40
    records["inner"] = place.ordinal + np.arange(len(kinds))
    records["transaction"] = -1
    for record, (kind, event_type, rows) in zip(records, kinds, strict=True):
        record["kind"], record["event_type"], record["rows"] = kind, event_type, len(rows)
        record["table"] = table if kind == ROWDATA else -1
        closes = kind == END or len(kinds) == 1
        record["flags"] = EVENT_IN_TRANSACTION * (kind == ROWDATA and not closes)
        record["flags"] |= EVENT_CLOSES * closes
        made.append(
            Entry(place.position, 40, kind, event_type, table, rows, kind == END, (b"", 0), 0,
                  place.position, place.ordinal)
        )  # fmt: skip
    head = ChunkHead(
        0, place.journal_name, place.position, place.position, created_s=place.created_s
    )
    tables = tuple((SCHEMA, name) for name in TABLES)
    info = ChunkInfo(
        head, 40 * len(kinds), 10 * max(len(kinds), 1), records, np.zeros(0, GTID), tables,
        thins=False,
    )  # fmt: skip
    return info, Payload(place.journal_name, made)
