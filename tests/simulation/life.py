"""The whole life of a destination under random schedules: its generations, catch-ups, owners and
subscribers, while servers, processes, the network, the disk, the backend of cursors and the clocks
misbehave.

A schedule is a seed. `Simulation.run` raises AssertionError at the first broken promise; replay by

    python -m tests.simulation.life SEED

which prints every step. With a number behind it so many schedules are run, from SEED on, and the
broken ones named.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Coroutine
from typing import Any

from ray_canal.config import InstanceConfig
from ray_canal.destination.ownership import Claim
from ray_canal.errors import (
    BatchNotFound,
    CanalError,
    Fenced,
    InstanceRestarted,
    PositionNotFound,
    PositionPurged,
    TransactionsMissing,
    TransactionTooLarge,
)
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import LogPosition
from ray_canal.views.transactions import COMMIT_PREPARED, PREPARED, ROLLBACK_PREPARED
from tests.simulation.client import Client
from tests.simulation.copier import Copier
from tests.simulation.faults import Faults
from tests.simulation.operations import Operator
from tests.simulation.processes import DESTINATION, Outside, Owner, Transport
from tests.simulation.runtime import in_place
from tests.simulation.servers import ALL_ROWS, SOME_ROWS, TABLES, Server
from tests.simulation.tables import keys_in
from tests.simulation.virtual_time import EPOCH_S, virtual_time

CLIENTS = 3
DRAIN_S = 600.0
_SPILL = tempfile.mkdtemp(prefix="ray_canal_simulation.")


class Simulation:
    """One destination and everything that happens to it."""

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.verbose = verbose
        self.over = False
        self.tables: list[int] = []  # by row number
        self.commits: list[int] = []  # likewise, counted
        self._committed = 0
        self.writes = True
        self._statements = random.Random(f"statements {seed}")
        self._ends: list[asyncio.Task[None]] = []
        self.faults = Faults(self)
        parts = (0.0, 0.04) if self.faults.copies else (0.0, 0.0, 0.04)
        self._statement_part = self._statements.choice(parts)
        self._xa = random.Random(f"xa {seed}")
        self._xa_part = self._xa.choice((0.0, 0.1, 0.4)) if self.faults.copies else 0.0
        self._xa_ids = 0

    def say(self, *words: Any) -> None:
        if self.verbose:
            print(f"{self.loop.clock.now - 1000:9.3f}", *words)

    def run(self) -> None:
        """Raises AssertionError."""
        with virtual_time() as self.loop:
            gtids = self.random.random() < 0.7
            servers = [Server("a", self.random, gtids=gtids, now=self._now)]
            if self.random.random() < 0.4:
                number = self.random.choice((1, 40))
                more = {"gtids": gtids, "first_number": number, "now": self._now}
                servers.append(Server("b", self.random, **more))
            self.outside = Outside(self.loop, self.random, servers)
            self.settings: dict[str, Any] = {
                "destination": DESTINATION,
                "source": {
                    "address": servers[0].address,
                    "standby": [server.address for server in servers[1:]],
                    "gtid": gtids and self.random.random() < 0.3,
                    "start": "earliest",
                    "reconnect_max_s": 2.0,
                    "on_reset": self.faults.on_reset,
                    "on_purged": self.faults.on_purged,
                },
                "store": {
                    "batch_mode": "MEMSIZE",
                    "buffer_size": self.random.choice((2, 8, 64)),
                    "memunit_bytes": 512,
                    "spill_bytes": self.random.choice((0, 8 << 10, 1 << 20)),
                    "spill_path": _SPILL,
                    "transaction_size": self.random.choice((0, 4, 1024)),
                },
                "chunk_bytes": 4096,
                "decoders": 0,
                "tsdb": {"enable": False},
                "snapshot": {"mode": self.faults.snapshot_mode},
                "runs": self.random.choice(("always", "while_subscribed")),
            }
            self.configure()
            kind = Copier if self.faults.copies else Client
            self.clients = [kind(self, client_id) for client_id in range(CLIENTS)]
            self.operator = Operator(self, self.seed)
            with in_place(self.outside):
                self.loop.run_until_complete(self._life())
            assert not self.loop.unexpected, self.loop.unexpected[0]

    def configure(self) -> None:
        """Take the settings; who begins next has them."""
        self.config = InstanceConfig.model_validate(self.settings)

    async def _life(self) -> None:
        self._commit(5)
        self.replicate()
        self.outside.owner = Owner(self.outside, self.config, Claim())
        supervisor = asyncio.create_task(self._supervise())
        writer = asyncio.create_task(self._write())
        faults = asyncio.create_task(self.faults.happen())
        operator = asyncio.create_task(self.operator.live())
        everything = self._everything = [supervisor, writer, faults, operator]
        for client in self.clients:
            self.consume(client)
        try:
            await self._watched(asyncio.sleep(self.faults.time_s()), everything)
            self.faults.heal()
            faults.cancel()
            self.writes, self.outside.quiet = False, True
            self.end_all_prepared()
            self.replicate()
            self.say("drain")
            await self._watched(asyncio.wait({operator}), everything)
            await self._watched(self._drained(), everything)
        finally:
            self.over = True
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            await asyncio.gather(*self._ends, *(owner.kill() for owner in self.outside.owners))

    async def _watched(self, work: Awaitable[Any], others: list[asyncio.Task[None]]) -> None:
        """Until the work is done; what another one raised meanwhile."""
        task = asyncio.ensure_future(work)
        while not task.done():
            # A while: others may have come.
            await asyncio.wait({task, *others}, timeout=5.0, return_when=asyncio.FIRST_COMPLETED)
            for other in list(others):
                if other.done():
                    others.remove(other)
                    if not other.cancelled() and other.exception() is not None:
                        task.cancel()
                        other.result()
        await task

    def end(self, owner: Owner) -> None:
        """Kill an owner; wait for it at the end of everything."""
        self._ends.append(asyncio.create_task(owner.kill()))

    def consume(self, client: Client) -> None:
        """Begin a client's life, or go on with it."""
        client.consumer = self.go_on(self._later(client))

    def go_on(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something happen next to everything else."""
        task = asyncio.create_task(work)
        self._everything.append(task)
        return task

    async def _later(self, client: Client) -> None:
        await asyncio.sleep(self.random.choice((0.0, 0.2, 2.0)))
        await client.live()

    async def _drained(self) -> None:
        end = self.loop.clock.now + DRAIN_S
        while self._waits():
            if self.loop.clock.now > end:
                stuck = [
                    f"client {c.client_id} waits for row {c.first if c.first is None else c.next}"
                    for c in self.clients
                    if c.first is None or c.missing() is not None
                ]
                owner = self.outside.owner
                status = None if owner is None else await owner.destination.status()
                what = ", ".join(stuck) or "who was replaced has taken it back, or the owner waits"
                raise AssertionError(f"{what} for ever: {status}")
            await asyncio.sleep(0.5)

    def _waits(self) -> bool:
        """Whether a client waits for rows, or a new owner for its takeover."""
        if any(client.first is None or client.missing() is not None for client in self.clients):
            return True
        owner, backend = self.outside.owner, self.outside.records.backend
        assert owner is not None
        return owner.alive and backend._owners.get(DESTINATION) != owner.claim.owner

    # --- what the judge knows -------------------------------------------------------------------

    def cursor(self, client_id: int) -> LogPosition | None:
        """A subscriber's durable cursor."""
        known = self.record(client_id)
        assert known is not None, f"client {client_id} has no record"
        return known.cursor

    def record(self, client_id: int) -> SubscriberMeta | None:
        """A subscriber's durable record; None: it has none."""
        record = self.outside.records.backend.load(DESTINATION).get(client_id)
        return SubscriberMeta.from_json(record[record.index("{") :]) if record else None

    def number_at(self, cursor: LogPosition | None) -> int:
        """The number of the first row that a cursor has not consumed."""
        assert cursor is not None
        position, uuid = cursor.position, cursor.identity.server_uuid
        (server,) = (server for server in self.outside.servers if server.uuid == uuid)
        skipped = 0
        for entry in server.entries_from(position):
            for number in entry.rows:
                if skipped == position.row:
                    return number
                skipped += 1
        rows = [number for transaction in server.transactions for number, _ in transaction.rows]
        return rows[-1] + 1 if rows else len(self.tables)

    def is_lost(self, client: Client, error: CanalError) -> bool:
        """An error that a client has met: is it one that it may meet? True: nothing but a new
        subscription helps it."""
        if isinstance(error, TransactionTooLarge) and client.transactions:
            client.transactions = False  # what the error says
            return False
        gone = isinstance(error, TransactionsMissing | PositionPurged | PositionNotFound)
        # Nothing was consumed where it came from: another server is searched by time, if at all.
        unknown = "has neither GTIDs" in str(error) or "Lost: everything" in str(error)
        faults = self.faults
        if gone and (faults.logs_gone or faults.guesses or unknown or client.start is not None):
            return True
        if isinstance(error, Fenced) and faults.taken_over:
            return False
        if isinstance(error, BatchNotFound) and client.expired:
            return False
        assert error.retryable or isinstance(error, InstanceRestarted) or faults.lagging, (
            f"client {client.client_id}: {type(error).__name__}: {error}"
        )
        return False

    def transport(self) -> Any:
        return Transport(self.outside)

    # --- what happens ---------------------------------------------------------------------------

    def _now(self) -> float:
        return self.loop.clock.now

    @property
    def master(self) -> Server:
        return self.outside.servers[0]

    def replicate(self) -> None:
        """The standby has what the master has."""
        for server in self.outside.servers[1:]:
            for transaction in self.master.transactions[len(server.transactions) :]:
                server.apply(transaction)
                if self.random.random() < 0.05:
                    server.rotate()

    def _commit(self, count: int) -> None:
        server = self.master
        for _ in range(count):
            rows = []
            self._committed += 1
            if server.prepared and self._xa.random() < 0.3:
                self._end_prepared(self._xa.choice(list(server.prepared)))
            if self._statements.random() < self._statement_part:
                self.end_all_prepared()  # it waits for them
                what = self._statements.choice((ALL_ROWS, SOME_ROWS))
                on = self._statements.randrange(len(TABLES))
                server.commit((), self._commit_us(), (what, on))
                continue
            for _ in range(self.random.choice((0, 1, 2, 3, 12))):
                rows.append((len(self.tables), self._unlocked(self.random.randrange(len(TABLES)))))
                self.tables.append(rows[-1][1])
                self.commits.append(self._committed)
            if rows and self._xa.random() < self._xa_part:
                self._xa_ids += 1
                xa_id = f"x{self._xa_ids}"
                server.commit(rows, self._commit_us(), outcome=PREPARED, xa_id=xa_id)
            else:
                server.commit(rows, self._commit_us())
            if self.random.random() < 0.08:
                server.rotate()

    def _commit_us(self) -> int:
        return round((EPOCH_S + self._now()) * 1_000_000) + len(self.tables)

    def _unlocked(self, table: int) -> int:
        """Return a table in which the next row is of no XA transaction that is prepared: this one,
        if it can be."""
        tables = [table, *range(len(TABLES))]
        locked = keys_in(row for rows in self.master.prepared.values() for row in rows)
        for one in tables if locked else ():
            if not keys_in([(len(self.tables), one)]) & locked:
                return one
        self.end_all_prepared()
        return table

    def _end_prepared(self, xa_id: str) -> None:
        outcome = self._xa.choice((COMMIT_PREPARED, ROLLBACK_PREPARED))
        self.master.commit((), self._commit_us(), outcome=outcome, xa_id=xa_id)

    def end_all_prepared(self) -> None:
        for xa_id in list(self.master.prepared):
            self._end_prepared(xa_id)

    async def _write(self) -> None:
        while self.writes:
            if self.master.alive:
                self._commit(self.random.choice((1, 1, 1, 5)))
                if self.random.random() < 0.5:
                    self.replicate()
            await asyncio.sleep(self.random.choice((0.01, 0.1, 0.3, 1.0)))

    async def _supervise(self) -> None:
        """Ray restarts a process that has died. An operator starts a deployment again that died in
        the midst of its takeover, and found the old one's newer epoch after that."""
        while True:
            owner = self.outside.owner
            if owner is not None and not owner.alive:
                await asyncio.sleep(self.random.choice((0.05, 1.0)))
                if self.outside.owner is owner:  # no other deployment has taken over meanwhile
                    self.outside.owner = Owner(self.outside, self.config, owner.claim)
            elif owner is not None and owner.is_fenced:
                await asyncio.sleep(1.0)
                self.end(owner)
                self.outside.owner = Owner(self.outside, self.config, Claim())
            await asyncio.sleep(0.4)


def broken(first: int, count: int, verbose: bool = False) -> list[str]:
    """What these schedules have broken, each with its seed."""
    logging.disable(logging.CRITICAL)
    gc.freeze()  # a tenth of the time went into looking for garbage among what is loaded
    gc.set_threshold(100_000, 50, 50)
    found = []
    began = time.monotonic()
    try:
        for seed in range(first, first + count):
            try:
                Simulation(seed, verbose).run()
            except AssertionError as error:
                found.append(f"schedule {seed}: {error}")
                print(found[-1], flush=True)
            if (done := seed + 1 - first) % 1000 == 0 or done == count:
                took_s = time.monotonic() - began
                print(f"{done} lives up to {seed}: {len(found)} broken, {took_s:.0f} s", flush=True)
    finally:
        logging.disable(logging.NOTSET)
    return found


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    sys.exit(1 if broken(int(sys.argv[1]), wanted, verbose=wanted == 1) else 0)
