"""A subscriber of a simulated destination that keeps a copy of tables."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ray_canal.client.connector import AsyncConnector
from ray_canal.errors import CanalError
from ray_canal.model.snapshot_ledger import CANCELLED, DONE, FAILED, Ledger
from ray_canal.model.snapshot_marks import MARK, MARK_BEGIN, MARK_END, REASON, SNAPSHOT
from ray_canal.model.snapshot_wish import KEYED
from ray_canal.views.transactions import COMMIT_PREPARED
from tests.simulation.client import NAMES_OF, Client, RowId
from tests.simulation.processes import Payload
from tests.simulation.servers import ALL_ROWS, QUERY, RENAME, TABLES, XA_ENDS, Entry
from tests.simulation.tables import KEYS, Copy, change, held

if TYPE_CHECKING:
    from tests.simulation.life import Simulation


class Copier(Client):
    """A subscriber that wants what the tables hold, and all that is changed then. In the end it has
    what the server has."""

    def __init__(self, run: Simulation, client_id: int) -> None:
        super().__init__(run, client_id)
        self.copy: Copy = {}
        self._prepared: dict[str, list[int]] = {}  # rows that count from XA COMMIT on
        self._snapshot = ""
        self._has_ended = False  # its end has come
        self._leaves = False  # whether it has left is not known
        self._lacks: set[int] = set()  # tables that no snapshot reads again

    def take_terms(self, other: Client) -> None:
        assert isinstance(other, Copier)
        super().take_terms(other)
        self.highest, self.copy = other.highest, dict(other.copy)
        self._prepared = {xa_id: list(rows) for xa_id, rows in other._prepared.items()}
        self._snapshot, self._has_ended = other._snapshot, other._has_ended
        self._leaves = other._leaves
        self._lacking(other._lacks)

    async def subscribe(self, connector: AsyncConnector) -> None:
        if self._leaves:  # its call has failed: with rows of before it cannot begin again
            await connector.subscribe(self.filter, snapshot="never")
            await self._leave(connector)
        await connector.subscribe(
            self.filter, policy=self.policy, transactions=self.transactions, snapshot="initial"
        )
        self.first = 0

    async def _leave(self, connector: AsyncConnector) -> None:
        """Unsubscribe; what it has is void, as the next subscription brings all rows."""
        self._leaves = True
        await super()._leave(connector)
        self._leaves = False
        self.copy, self._prepared = {}, {}

    def missing(self) -> int | None:
        if self.run.faults.is_unseen_reset:
            return None
        ledger = self._ledger()
        if ledger is None:
            return 0
        if ledger.state == FAILED:  # where statements and changes came faster than acks it may
            may_be = "TableMetaMismatch" in ledger.error or "snapshot.bytes" in ledger.error
            assert may_be, f"client {self.client_id}: {ledger.error}"
        if ledger.state in (FAILED, CANCELLED):  # it may have asked under the name of before
            self.has_no_snapshot()
        wanted = {
            (table, key): number
            for (table, key), number in held(self.run.master).items()
            if self._wants_table(table)
        }
        differs = {
            place: number
            for place, number in wanted.items() ^ self.copy.items()
            if place not in self.run.faults.undone_places  # it may have got what was lost
        }
        self.next = min(differs.values(), default=0)
        return self.next if differs or ledger.state != DONE else None

    def _ledger(self) -> Ledger | None:
        """How far its snapshot has come, as its record says."""
        known = self.run.record(self.client_id)
        return None if known is None or not known.snapshot else Ledger.from_json(known.snapshot)

    def _wants_table(self, table: int) -> bool:
        return TABLES[table] in NAMES_OF[self.filter]

    def leaves(self, error: CanalError) -> bool:
        policies, text = (self.run.faults.on_purged, self.run.faults.on_reset), str(error)
        is_behind = "lacks transactions" in text and "Its log is not" not in text
        return "snapshot" not in policies or "has neither GTIDs" in text or is_behind

    def change_filter(self, text: str) -> None:
        """What it has of other tables is void; of new ones it has nothing."""
        self.filter = text
        self.copy = {at: number for at, number in self.copy.items() if self._wants_table(at[0])}
        self.has_no_snapshot()

    def has_no_snapshot(self) -> None:
        self._lacking(set(range(len(TABLES))))

    def begin_copy(self) -> None:
        self.copy = {}

    def _take_statement(self, row: RowId, entry: Entry, payload: Payload) -> None:
        if entry.event_type == QUERY:
            mark = payload.props.get(MARK)
            if mark == MARK_BEGIN:
                self._begin(payload.props)
            self._has_ended = mark == MARK_END or (self._has_ended and mark != MARK_BEGIN)
            return
        is_end = entry.outcome in XA_ENDS
        wanted = is_end or self._wants_table(entry.table)
        assert wanted, f"{TABLES[entry.table]} is not of its tables"
        if row <= self.highest:
            return
        self.highest = row
        if is_end:
            rows = self._prepared.pop(entry.xa_id, [])
            for number in rows if entry.outcome == COMMIT_PREPARED else ():
                if self.wants(number):  # its tables may be others since
                    change(self.copy, self.run.tables[number], number)
            return
        change(self.copy, entry.table, ALL_ROWS)
        if entry.event_type == RENAME and not self._is_read_again(TABLES[entry.table]):
            self._lacking({entry.table})

    def _is_read_again(self, table: str) -> bool:
        """Return whether a snapshot that goes on reads a table that is another one now."""
        ledger = self._ledger()
        if ledger is None or ledger.mode != KEYED:
            return False
        if self._has_ended or ledger.state in (DONE, CANCELLED):
            return False
        left = [one.table for one in ledger.tables if not one.finished]
        return table in left or not ledger.tables  # it has not looked for tables yet

    def _lacking(self, tables: set[int]) -> None:
        if tables and not self._lacks:
            self.run.go_on(self._ask())
        self._lacks |= tables

    async def _ask(self) -> None:
        """Have what it lacks read by another snapshot."""
        while self._lacks and not self.run.over:
            await asyncio.sleep(0.3)
            if self._lacks and await self.run.operator.begin_snapshot(self):
                self._lacks.clear()

    def _begin(self, props: Mapping[str, str]) -> None:
        """A snapshot begins, or does so again: where changes have been left out before it, what it
        has is void."""
        if props[SNAPSHOT] != self._snapshot and REASON in props:
            self.copy = {}
        self._snapshot = props[SNAPSHOT]

    def _take_row(self, row: RowId, number: int, entry: Entry, payload: Payload) -> bool:
        assert self.wants(number), f"row {number} is not of its tables"
        if row <= self.highest:
            return False
        self.highest = row
        table = self.run.tables[number]
        if payload.props:  # it was read
            self.copy[table, number % KEYS] = number
        elif entry.xa_id:
            self._prepared.setdefault(entry.xa_id, []).append(number)
        else:
            change(self.copy, table, number)
        return True
