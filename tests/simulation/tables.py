"""Tables of simulated servers, and snapshots that read them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from ray_canal.binlog.chunk import (
    ENTRY,
    EVENT_CLOSES,
    EVENT_IN_TRANSACTION,
    GTID,
    ChunkHead,
    ChunkInfo,
)
from ray_canal.config import InstanceConfig
from ray_canal.errors import ConnectionLost, TableMetaMismatch
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_ledger import TableLedger
from ray_canal.snapshot.key_numbers import Keys, are_among, joined
from ray_canal.snapshot.marks import ExecutedLow, PlaceLow
from ray_canal.snapshot.plan import PlannedRange
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead
from ray_canal.views.transactions import COMMITTED
from tests.simulation.processes import OWNER, Outside, Payload
from tests.simulation.servers import (
    ALL_ROWS,
    BEGIN,
    END,
    INSERT,
    QUERY,
    RENAME,
    ROWDATA,
    SCHEMA,
    SOME_ROWS,
    TABLES,
    TRUNCATE,
    Entry,
    Server,
    Transaction,
)

KEYS = 12
"""A row's key is the rest of its number by this: later rows replace earlier ones."""
Copy = dict[tuple[int, int], int]
"""The newest row's number by (table, key)."""


def keys_of(number: int) -> tuple[int, ...]:
    """The keys of a row change: two if it gives another key to the row of the second one."""
    key = number % KEYS
    return (key, number // KEYS % KEYS) if number % 7 == 5 else (key,)


def change(copy: Copy, table: int, number: int) -> None:
    """Do to a copy what a row change does: a DELETE, or a row that comes in the place of others."""
    if number in (ALL_ROWS, SOME_ROWS):
        for key in range(0, KEYS, 1 if number == ALL_ROWS else 3):
            copy.pop((table, key), None)
        return
    for key in keys_of(number):
        copy.pop((table, key), None)
    if number % 11 != 4:
        copy[table, number % KEYS] = number


def places_of(made: Transaction) -> set[tuple[int, int]]:
    """Where in tables a transaction has changed something."""
    if made.statement is not None:
        return {(made.statement[1], key) for key in range(KEYS)}
    return keys_in(made.rows + made.prepared)


def keys_in(rows: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """(table, key) of what these row changes touch."""
    return {(table, key) for number, table in rows for key in keys_of(number)}


def held(server: Server) -> Copy:
    """What the server's tables hold."""
    copy: Copy = {}
    for number, table in server.changes:
        change(copy, table, number)
    return copy


def takes_snapshots(seed: int) -> bool:
    """Whether the subscribers of this life copy tables."""
    return random.Random(f"snapshots {seed}").random() < 0.15


@dataclass(frozen=True)
class _Table:
    name: str
    made: int
    key: tuple[str, ...] = ("id",)
    key_order: tuple[str, ...] = ("id",)
    rows: int = 0  # an estimate
    transactional: bool = True

    @property
    def meta(self) -> Any:
        return SimpleNamespace(
            schema=SCHEMA, table=self.name, full_name=f"{SCHEMA}.{self.name}"
        )


class _AtServer:
    """A connection to the server at the configured address."""

    def __init__(self, outside: Outside, config: InstanceConfig) -> None:
        self.outside, self._address = outside, config.source.address
        self._start: int | None = None

    @property
    def reached(self) -> Server:
        """Raises ConnectionLost."""
        server = self.outside.server(self._address)
        if not server.alive or self._start not in (None, server.starts):
            raise ConnectionLost(f"{self._address} does not answer")
        self._start = server.starts
        return server

    def table(self, name: str) -> _Table:
        """A table as it is now: a statement makes another one."""
        number = TABLES.index(name)
        return _Table(name, sum(what < 0 and of == number for what, of in self.reached.changes))

    def low(self) -> ExecutedLow | PlaceLow:
        server = self.reached
        if server.gtids:
            return ExecutedLow(GtidSet.parse(server.executed_text()))
        return PlaceLow(server.end)


class _Prepared(Exception):
    """An XA transaction is prepared."""


class Plan(_AtServer):
    """snapshot/plan.py `SnapshotPlan`, of simulated tables."""

    def __init__(self, config: InstanceConfig, within: Any) -> None:
        owner = OWNER.get()
        assert owner is not None
        super().__init__(owner.outside, config)
        self._within = within
        self._numbers = 0
        self._found: dict[int, _Table] = {}
        self._log_server = self.reached.uuid
        self._waits_for: tuple[ExecutedLow | PlaceLow, frozenset[str]] | None = None

    def low(self) -> ExecutedLow | PlaceLow:
        """Raises _Prepared: to be called again, until what was prepared the first time is not."""
        low, prepared = self._waits_for or (super().low(), frozenset(self.reached.prepared))
        self._waits_for = (low, prepared) if prepared & self.reached.prepared.keys() else None
        if self._waits_for is not None:
            raise _Prepared
        return low

    def refuse_other_log(self, server: str) -> None:
        self._log_server = server
        if self.reached.uuid != server:
            raise ConnectionLost(f"it is {self.reached.uuid} now, and not {server}")

    def if_prepared(self) -> None:
        return None

    def wanted(
        self, wishes: Any, known: tuple[TableLedger, ...] = ()
    ) -> tuple[TableLedger, ...]:
        names = [name for name in TABLES if self._within.admits(SCHEMA, name)]
        goes_on = [one for one in known if one.table in names]
        new = set(names) - {one.table for one in goes_on}
        return (*goes_on, *(TableLedger(SCHEMA, name) for name in sorted(new)))

    def wait_until_visible(self, place: Any, stopped: Callable[[], bool]) -> None:
        self.low()  # what is in its log shows, but for what is prepared

    def find(self, wanted: dict[int, TableLedger]) -> dict[int, _Table]:
        self._found = self._now(wanted)
        return self._found

    def _now(self, wanted: dict[int, TableLedger]) -> dict[int, _Table]:
        return {number: self.table(one.table) for number, one in wanted.items()}

    def refuse_altered(self, wanted: dict[int, TableLedger]) -> None:
        for number, table in self._now(wanted).items():
            if table != self._found[number]:
                raise TableMetaMismatch(f"{table.name} was altered")

    def made(self, table: _Table) -> str:
        return f"{self.reached.uuid}|{table.made}"

    def begin(self, number: int, progress: TableLedger) -> TableLedger:
        table = TABLES.index(progress.table)
        keys = [key for at, key in held(self.reached) if at == table]
        end = (str(max(keys)),) if keys else None
        return progress.begun(("id",), end, len(keys), self.made(self._found[number]))

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
            table: Any = self._found[number]
            condition, done = f"{done} {upto}", upto
            order = RangeOrder(
                self._numbers, table, condition, self.reached.uuid, self._log_server
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
        while True:
            await asyncio.sleep(self._random.choice((0.0, 0.01, 0.1)))
            with contextlib.suppress(_Prepared):
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
        return self.reached

    async def read(self, order: RangeOrder) -> RangeRead:
        async with self._turn:
            server = await self._pause()
            if order.server != server.uuid:
                raise ConnectionLost(f"it is {server.uuid} now, and not {order.server}")
            low, prepared = self.low(), frozenset(server.prepared)
            while prepared & (await self._pause()).prepared.keys():
                await asyncio.sleep(0.1)
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
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: Any
    ) -> tuple[list[tuple[ChunkInfo, Payload]], bool]:
        await self.outside.pause()
        table, rows = self._ranges.pop(number)
        keys = _key_numbers(row % KEYS for row in rows)
        gone, waits = are_among(keys, touched), are_among(keys, doubted)
        placed = [row for row, *no in zip(rows, gone, waits, strict=True) if not any(no)]
        left = [row for row, no, yes in zip(rows, gone, waits, strict=True) if yes and not no]
        if left:
            self._ranges[number] = table, left
        return [rows_at(place, table, placed)] if placed else [], not left

    async def close(self) -> None:
        """It holds nothing."""


class Moment(_AtServer):
    """snapshot/consistent.py `ConsistentSnapshot`, of simulated tables."""

    def __init__(
        self, config: InstanceConfig, wishes: Any, readers: Any, may_lock: bool, within: Any
    ) -> None:
        owner = OWNER.get()
        assert owner is not None
        super().__init__(owner.outside, config)
        if self.reached.prepared:
            raise ConnectionLost("XA transactions are prepared")
        names = [name for name in TABLES if within.admits(SCHEMA, name)]
        self.tables = tuple(self.table(name) for name in names)
        self.wanted = tuple((table, wishes[0]) for table in self.tables)
        self._place = replace(self.reached.end, created_s=self.reached.files[-1].created_s)
        self._held = held(self.reached)
        self.server = self.reached.uuid

    def log_place(self) -> EntryPosition:
        return self._place

    def not_wanted(self) -> list[str]:
        return []

    def chunks(self) -> Iterator[_Read]:
        for table in self.tables:
            number = TABLES.index(table.name)
            rows = [row for (at, _), row in sorted(self._held.items()) if at == number]
            while rows:
                assert self.reached is not None  # its connection holds
                count = self.outside.random.choice((1, 3, 20))
                yield _Read(table, rows[:count])
                rows = rows[count:]
        if any(self.table(table.name) != table for table in self.tables):
            raise TableMetaMismatch("a table was altered while it was read")

    def stop(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """It holds nothing."""


@dataclass(frozen=True)
class _Read:
    table: _Table
    numbers: list[int]

    @property
    def rows(self) -> int:
        return len(self.numbers)

    def at(self, place: Any) -> tuple[ChunkInfo, Payload]:
        return rows_at(place, TABLES.index(self.table.name), self.numbers)


class Load:
    """snapshot/source_load.py `SourceLoad`, of a server that keeps nothing."""

    def __init__(self, source: Any) -> None:
        """It is of no server."""

    def read(self) -> Any:
        return SimpleNamespace(history_list=None)

    def close(self) -> None:
        """It holds nothing."""


def _key_numbers(keys: Iterable[int]) -> Keys:
    return np.array([list(keys)], np.uint64)


def touched_keys(part: Any, keys: Any) -> dict[tuple[str, str], Keys]:
    """snapshot/changes.py `touched_keys`, of a simulated chunk."""
    refuse_altered(part, keys)
    found: dict[tuple[str, str], list[Keys]] = {}
    for entry in part.chunk.entries[part.first : part.last]:
        if entry.rows and keys(SCHEMA, TABLES[entry.table]) is not None:
            name = SCHEMA, TABLES[entry.table]
            touched = (key for number in entry.rows for key in keys_of(number))
            found.setdefault(name, []).append(_key_numbers(touched))
    return {name: joined(parts) for name, parts in found.items()}


def outcomes(chunk: Payload, closers: Iterable[int]) -> list[tuple[str, str]]:
    """views/transactions.py `outcomes`, of a simulated chunk."""
    found = [(chunk.entries[k].outcome, chunk.entries[k].xa_id) for k in closers]
    return found if any(outcome != COMMITTED for outcome, _ in found) else []


def refuse_altered(part: Any, keys: Any) -> None:
    """snapshot/changes.py `refuse_altered`, of a simulated chunk."""
    for entry in part.chunk.entries[part.first : part.last]:
        is_statement = entry.event_type in (TRUNCATE, RENAME)
        if is_statement and keys(SCHEMA, TABLES[entry.table]) is not None:
            raise TableMetaMismatch(f"{TABLES[entry.table]} was emptied or renamed")


def replaced_by(chunk: Payload, names: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """snapshot/replaced_tables.py `replaced_by`, of a simulated chunk."""
    renamed = (entry.table for entry in chunk.entries if entry.event_type == RENAME)
    return {(SCHEMA, TABLES[table]) for table in renamed} & set(names)


def rows_at(place: Any, table: int, rows: Sequence[int]) -> tuple[ChunkInfo, Payload]:
    """Return rows that were read as a chunk of the log."""
    kinds = (BEGIN, 0, -1, ()), (ROWDATA, INSERT, table, tuple(rows)), (END, 0, -1, ())
    return _at(place, kinds)


def mark_at(place: Any, timestamp: int, server_id: int = 0) -> tuple[ChunkInfo, Payload]:
    """snapshot/log_chunks.py `mark_at`, as a simulated chunk."""
    return _at(place, ((ROWDATA, QUERY, -1, ()),))


def emptied_at(metas: Any, place: Any, timestamp: int) -> tuple[ChunkInfo, Payload]:
    """snapshot/log_chunks.py `emptied_at`, as a simulated chunk."""
    return _at(place, [(ROWDATA, TRUNCATE, TABLES.index(meta.table), ()) for meta in metas])


def _at(
    place: Any, kinds: Sequence[tuple[int, int, int, tuple[int, ...]]]
) -> tuple[ChunkInfo, Payload]:
    records, made = np.zeros(len(kinds), ENTRY), []
    records["position"], records["length"] = place.position, 40
    records["inner"] = place.ordinal + np.arange(len(kinds))
    records["transaction"] = -1
    for k, (record, (kind, event_type, table, rows)) in enumerate(zip(records, kinds, strict=True)):
        record["kind"], record["event_type"], record["rows"] = kind, event_type, len(rows)
        record["table"] = table
        closes = kind == END or (kind == ROWDATA and not rows)
        record["flags"] = EVENT_IN_TRANSACTION * (kind == ROWDATA and not closes)
        record["flags"] |= EVENT_CLOSES * closes
        made.append(
            Entry(place.position, 40, kind, event_type, table, rows, kind == END, (b"", 0), 0,
                  place.position, place.ordinal + k)
        )  # fmt: skip
    head = ChunkHead(
        0, place.journal_name, place.position, place.position, created_s=place.created_s
    )
    tables = tuple((SCHEMA, name) for name in TABLES)
    info = ChunkInfo(
        head, 40 * len(kinds), 10 * max(len(kinds), 1), records, np.zeros(0, GTID), tables,
        thins=False,
    )  # fmt: skip
    return info, Payload(place.journal_name, made, dict(place.props))
