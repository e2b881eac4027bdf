"""A subscriber of a simulated destination, and the judge of what it gets."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from ray_canal.client.connector import AsyncConnector
from ray_canal.errors import (
    CanalError,
)
from ray_canal.filter import TableFilter
from ray_canal.model.position import journal_key
from tests.simulation.disk import OnDisk
from tests.simulation.processes import Payload
from tests.simulation.servers import ROWDATA, SCHEMA, TABLES, Entry

if TYPE_CHECKING:
    from tests.simulation.life import Simulation

RowId = tuple[int, int, int, int]
IN_FLIGHT_S = 10.0
"""A client takes what was on its way to it by then."""
FILTERS = (rf"{SCHEMA}\..*", rf"{SCHEMA}\.item", rf"{SCHEMA}\.(item|person)")
NAMES_OF = {
    text: {name for name in TABLES if TableFilter(text).admits(SCHEMA, name)} for text in FILTERS
}


class Client:
    """A subscriber that follows the documented recipe: keep the highest id that was taken, skip
    what is not above it. It remembers what it took through its own restarts."""

    def __init__(self, run: Simulation, client_id: int) -> None:
        self.run, self.client_id = run, client_id
        self.random = random.Random(run.random.random())
        self.filter = self.random.choice(FILTERS)
        self.policy: Any = self.random.choice(("block", "spill", "detach"))
        self.transactions = self.random.random() < 0.3
        self.highest: RowId = (0, 0, 0, 0)
        self.taken: dict[int, int] = {}  # row number: the timeline in which it was taken
        self.acked = -1
        self.first: int | None = None  # the number from which on all rows are to come
        self.next = 0
        self.start: Any = None  # where it has asked to begin
        self.consumer: asyncio.Task[None] | None = None
        self.paused_s: float | None = None  # when an operator had paused it
        self.passed: set[int] = set()  # rows that it may have passed over, by a filter of before
        self.expired = False  # an operator has made void what it was handed

    def say(self, *words: Any) -> None:
        self.run.say(f"client {self.client_id}:", *words)

    def take_terms(self, other: Client) -> None:
        """Be a copy of another one."""
        self.filter, self.policy = other.filter, other.policy
        self.transactions, self.paused_s = other.transactions, other.paused_s
        self.passed = set(other.passed)

    def wants(self, number: int) -> bool:
        return TABLES[self.run.tables[number]] in NAMES_OF[self.filter]

    def missing(self) -> int | None:
        """The next row that it has not taken; None: it has all that there is."""
        assert self.first is not None
        end = len(self.run.tables)
        while self.next < end and (self._may_miss(self.next) or not self.wants(self.next)):
            self.next += 1
        return self.next if self.next < end else None

    def _may_miss(self, number: int) -> bool:
        return number in self.run.faults.gone or number in self.passed

    async def live(self) -> None:
        while not self.run.over:
            connector = AsyncConnector(self.run.transport(), self.client_id)
            try:
                await self.subscribe(connector)
                await self._consume(connector)
                if self.random.random() < 0.05:
                    await self._leave(connector)
            except CanalError as error:
                self.say(type(error).__name__, error)
                if self.run.is_lost(self, error) and self.leaves(error):
                    with contextlib.suppress(CanalError):
                        await self._leave(connector)
                await asyncio.sleep(self.random.choice((0.01, 0.3, 1.0)))

    async def subscribe(self, connector: AsyncConnector) -> None:
        """Subscribe, where it was or somewhere."""
        self.start = self.run.operator.start() if self.first is None else None
        await connector.subscribe(
            self.filter, policy=self.policy, transactions=self.transactions, start=self.start
        )
        self._subscribed()

    def leaves(self, error: CanalError) -> bool:
        """Return whether it answers an error that nothing helps by another subscription."""
        return True

    async def _leave(self, connector: AsyncConnector) -> None:
        """Unsubscribe; what comes of it is seen at the next subscription. A call that failed may
        have been done, or not."""
        self.say("unsubscribes")
        self.first = self.paused_s = None
        await connector.unsubscribe()

    async def stop(self) -> None:
        """End the program, in the midst of whatever it does; what it has asked for comes to its
        end, too, as a subscription that comes late would be one."""
        assert self.consumer is not None
        self.consumer.cancel()
        await asyncio.wait({self.consumer})
        calls = [call for owner in self.run.outside.owners for call in owner.calls]
        if tasks := {task for client_id, task in calls if client_id == self.client_id}:
            await asyncio.wait(tasks)

    def change_filter(self, text: str) -> None:
        """Ask for other tables. What it has read past without seeing it does not come."""
        rows = range(len(self.run.tables))
        passed = self.passed | {number for number in rows if not self.wants(number)}
        self.moved()
        self.filter, self.passed = text, passed

    def moved(self) -> None:
        """Somebody has moved its cursor: all that comes from there on is new."""
        self.first, self.next, self.acked, self.passed = None, 0, -1, set()
        self.highest, self.taken = (0, 0, 0, 0), {}

    def begin_copy(self) -> None:
        """Forget what it has of tables, all of which it is about to get."""

    def has_no_snapshot(self) -> None:
        """Its snapshot is over, perhaps without all rows."""

    def _subscribed(self) -> None:
        """The judge looks where its first row is to come from. After it has left, that is where its
        new cursor is; or the old one, where leaving has failed."""
        if self.first is None:
            self.first = self.run.number_at(self.run.cursor(self.client_id))
            self.next, self.acked = max(self.next, self.first), -1
            self.say("subscribed", self.filter, self.policy, self.transactions, "at", self.first)

    async def _consume(self, connector: AsyncConnector) -> None:
        if self.random.random() < 0.5:
            await self._by_loop(connector)
        else:
            await self._by_gets(connector)

    async def _by_loop(self, connector: AsyncConnector) -> None:
        left = self.random.randrange(1, 30)
        messages = connector.messages(self.random.choice((1, 16, 1000)), 1.0)
        async for message in messages:
            self._take(message)  # acked with the next call, if it is not void by then
            await self._work()
            left -= 1
            if self.run.over or left == 0:
                break
        await messages.aclose()  # type: ignore[attr-defined]

    async def _by_gets(self, connector: AsyncConnector) -> None:
        outstanding: list[tuple[int, int]] = []
        for _ in range(self.random.randrange(1, 30)):
            if self.run.over:
                break
            what = self.random.random()
            if what < 0.06:
                cut = self.random.choice([None, *(batch for batch, _ in outstanding)])
                self.say("rollback", cut)
                await connector.rollback(cut)
                outstanding = [o for o in outstanding if cut is not None and o[0] < cut]
            elif outstanding and (what < 0.5 or len(outstanding) > 3):
                batch_id, last = outstanding.pop(0)
                self.say("ack", batch_id)
                await connector.ack(batch_id)
                self.acked = max(self.acked, last)
            else:
                message = await self._get(connector)
                if message:
                    outstanding.append((message.id, self._take(message)))
            await self._work()

    async def _get(self, connector: AsyncConnector) -> Any:
        size, timeout = self.random.choice((1, 16, 1000)), self.random.choice((None, 0.2, 2.0))
        get = connector.get_without_ack(size, timeout)
        if self.random.random() < 0.15:
            try:
                return await asyncio.wait_for(get, self.random.choice((0.001, 0.01, 0.3)))
            except asyncio.TimeoutError:
                self.say("gave a get up")
                return None
        return await get

    async def _work(self) -> None:
        await asyncio.sleep(self.random.choice((0.0, 0.0, 0.005, 0.05, 0.3, 2.0)))

    def _take(self, message: Any) -> int:
        """Take a message's rows; the number of the last one."""
        paused_s, now_s = self.paused_s, self.run.loop.clock.now
        assert paused_s is None or now_s < paused_s + IN_FLIGHT_S, (
            f"client {self.client_id} is paused, and gets message {message.id}"
        )
        timeline = getattr(message.head, "timeline", 0)
        last, new = -1, 0
        for part in message.head.parts:
            payload = part.payload
            if isinstance(payload, OnDisk):
                payload = payload.read()
            journal = journal_key(payload.journal_name)[1]
            for k in range(part.first, part.last):
                entry = payload.entries[k]
                if entry.kind != ROWDATA or (part.mask is not None and not part.mask[k]):
                    continue
                first = timeline, journal, entry.position, entry.ordinal
                if not entry.rows:
                    self._take_statement(first, entry, payload)
                for row, number in enumerate(entry.rows, entry.ordinal):
                    new += self._take_row((*first[:3], row), number, entry, payload)
                    last = number
        self.say("message", message.id, "rows", message.head.row_count, "new", new, "up to", last)
        return last

    def _take_statement(self, row: RowId, entry: Entry, payload: Payload) -> None:
        """Take an entry without rows."""

    def _take_row(self, row: RowId, number: int, entry: Entry, payload: Payload) -> bool:
        assert self.wants(number), f"row {number} is not of its tables"
        if row <= self.highest:
            assert number in self.taken or number < self.next, (
                f"client {self.client_id}: the recipe drops row {number}: {row} is not above "
                f"{self.highest}"
            )
            return False
        self.highest = row
        faults = self.run.faults
        assert not faults.must_be_told(self.acked, number), (
            f"client {self.client_id}: acked row {self.acked} is gone, and {number} comes without "
            "an error"
        )
        if number < self.next:
            assert row[0] > self.taken.get(number, -1), (
                f"client {self.client_id}: row {number} comes again under a higher id, {row}"
            )
            # Another server may have more rows in an event than fit behind the cursor; one without
            # GTIDs is searched by commit time (guarantees.md, "Limits").
            commits = self.run.commits
            repeats = faults.guesses or faults.begins_again
            repeats |= commits[number] == commits[self.acked]
            assert number > self.acked or repeats, (
                f"client {self.client_id}: acked row {number} comes again"
            )
            return False
        wanted = self.missing()
        before = self._may_miss(number) and (wanted is None or number < wanted)
        assert number == wanted or before or faults.is_unseen_reset, (
            f"client {self.client_id}: row {number} comes at {row}, and {wanted} never came"
        )
        self.taken[number] = row[0]
        self.next = number + 1
        return True
