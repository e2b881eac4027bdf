"""What goes wrong around a simulated destination, and what its judge has to know of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ray_canal.destination.ownership import Claim
from tests.simulation.processes import Owner
from tests.simulation.servers import Server
from tests.simulation.tables import places_of, takes_snapshots
from tests.simulation.virtual_time import EPOCH_S

if TYPE_CHECKING:
    from tests.simulation.life import Simulation

TIME_S = (0.5, 0.5, 6.0)
"""For how long things happen to a destination. Of the first 13 lives that broke, 12 were of 6 s; a
short one costs less than a third of that."""


class Faults:
    """Faults of processes, servers, the network, the disk and the clocks. In a part of the lives
    servers also lose transactions that were committed, as from a restored copy or a standby that
    lagged; the other ones are as without that."""

    def __init__(self, run: Simulation) -> None:
        self.run, self.random = run, run.random
        chance = random.Random(f"losses {run.seed}")
        self.copies = takes_snapshots(run.seed)  # subscribers copy tables
        self._loses = chance.random() < 0.35
        self.on_reset = chance.choice(("fail", "earliest")) if self._loses else "fail"
        self.on_purged = chance.choice(("fail", "fail", "earliest")) if self._loses else "fail"
        self.snapshot_mode = "keyed"
        if self.copies:
            self.on_reset = chance.choice(("fail", "snapshot"))
            self.on_purged = self.on_reset
            self.snapshot_mode = chance.choice(("keyed", "keyed", "consistent"))
        self.gone: set[int] = set()  # rows that may be left out: no log of a server has them
        self._purged: set[int] = set()
        self.undone_places: set[tuple[int, int]] = set()  # what is there was also never committed
        self._undone: list[tuple[int, int]] = []  # rows from one number to another: never committed
        self.logs_gone = False  # a log was reset or put back, or files of it were purged
        self.is_unseen_reset = False  # files were purged of a log that was reset
        self.begins_again = False  # a log comes again from its beginning, as the settings say
        self._was_reset = False
        self.guesses = False  # a server without GTIDs was left for another one
        self.taken_over = False
        self.lagging = False  # the server that is left lacks what was delivered

    def time_s(self) -> float:
        """For how long things happen."""
        return max(self.random.choice(TIME_S), 2.0 * (self._loses or self.copies))

    def must_be_told(self, acked: int, number: int) -> bool:
        """Return whether a subscriber that has acked a row meets an error before this one: its
        server has lost the one, and committed the other after that."""
        told = self.on_reset == "fail" and not self.guesses and not self.is_unseen_reset
        return told and any(first <= acked < end <= number for first, end in self._undone)

    async def happen(self) -> None:
        """Let one after the other happen."""
        kinds: dict[Callable[[], Awaitable[None]], int] = {
            self.kill_owner: 4,
            self.break_upstream: 4,
            self.records_away: 2,
            self.records_in_doubt: 2,
            self.answers_get_lost: 4,
            self.disk_full: 2,
            self.step_the_clock: 1,
            self.purge: 1,
            self.take_over: 1,
            self.restart_server: 2,
        }
        if len(self.run.outside.servers) > 1:
            kinds[self.fail_over] = 4
        else:
            if self.random.random() < 0.3:
                kinds[self.reset_server] = 2
            if self._loses:
                kinds[self.restore_server] = 8
        while True:
            await asyncio.sleep(self.random.choice((0.05, 0.3, 1.0)))
            (fault,) = self.random.choices(list(kinds), list(kinds.values()))
            self.run.say("fault:", fault.__name__)
            await fault()

    def heal(self) -> None:
        """End all that would go on."""
        outside = self.run.outside
        outside.records.away, outside.records.in_doubt = False, 0.0
        outside.disk_full = False
        outside.answers_lost = 0.0
        for server in outside.servers:
            server.alive = True
        self.run.replicate()

    # --- processes, the network, the disk, the clocks ---------------------------------------------

    async def kill_owner(self) -> None:
        assert self.run.outside.owner is not None
        self.run.end(self.run.outside.owner)

    async def break_upstream(self) -> None:
        upstreams = self.run.outside.upstreams  # type: ignore[attr-defined]
        for upstream in upstreams[-3:]:
            upstream.cut = True

    async def records_away(self) -> None:
        records = self.run.outside.records
        records.away, records.silent = True, self.random.random() < 0.5
        await asyncio.sleep(self.random.choice((0.1, 1.0, 8.0)))
        records.away = False

    async def records_in_doubt(self) -> None:
        self.run.outside.records.in_doubt = 0.3
        await asyncio.sleep(2.0)
        self.run.outside.records.in_doubt = 0.0

    async def answers_get_lost(self) -> None:
        self.run.outside.answers_lost = self.random.choice((0.1, 0.5))
        await asyncio.sleep(self.random.choice((0.5, 3.0)))
        self.run.outside.answers_lost = 0.0

    async def disk_full(self) -> None:
        self.run.outside.disk_full = True
        await asyncio.sleep(self.random.choice((0.5, 5.0)))
        self.run.outside.disk_full = False

    async def step_the_clock(self) -> None:
        self.run.loop.clock.wall_offset_s += self.random.choice((-3600.0, -11.0, 5.0, 7200.0))

    async def take_over(self) -> None:
        """Another deployment starts the destination, while the old one's processes go on and are
        restarted. Who was replaced never takes it back."""
        outside = self.run.outside
        old = outside.owner
        if old is None or old.claim.epoch() is None:
            return  # of two that begin at once, either may be the last
        self.taken_over = True
        outside.owner = Owner(outside, self.run.config, Claim())
        try:
            await asyncio.sleep(self.random.choice((0.1, 1.0, 5.0)))
        finally:  # also where the faults end meanwhile: clients may still have its handle
            self.run.end(old)
            Owner(outside, self.run.config, old.claim)

    # --- servers ----------------------------------------------------------------------------------

    async def purge(self) -> None:
        self.logs_gone = True
        self.is_unseen_reset |= self._was_reset
        purged = self.run.master.purge(self.random.choice((1, 2)))
        self._purged.update(purged)
        if self.on_purged == "earliest":
            self.gone.update(purged)

    async def restart_server(self) -> None:
        server = self.run.master
        server.alive = False
        self.guesses |= not server.gtids and len(self.run.outside.servers) > 1
        await asyncio.sleep(self.random.choice((0.1, 1.0)))
        server.alive = True
        server.rotate()

    async def reset_server(self) -> None:
        await asyncio.sleep(1.0)
        await self._next_second(self.run.master)
        self.logs_gone = self._was_reset = True
        rows = self.run.master.reset()
        if self.on_reset == "earliest":  # also what a subscriber has not heard of yet
            self.gone.update(rows, self._purged)
            self.begins_again = True

    async def restore_server(self) -> None:
        """The server is put back to a copy of its data, and goes on from there."""
        server = self.run.master
        server.alive = False
        await asyncio.sleep(self.random.choice((0.1, 0.1, 1.0, 3.0)))
        await self._next_second(server)
        had = len(server.transactions)
        self._put_back(server, had - self.random.choice((1, 1, 3, 10)))
        server.alive = True

    async def fail_over(self) -> None:
        """The master dies. The standby takes over at once, or once it has all that was written; or
        it never gets that. The old master comes back as its replica."""
        old, new = self.run.outside.servers
        if not old.alive:
            return
        old.alive = False
        self.guesses |= not old.gtids
        if self.random.random() < 0.3:
            self.lagging = True
            await asyncio.sleep(self.random.choice((0.3, 2.0)))
        if self._loses and self.random.random() < 0.7:
            await self._next_second(old)
            self._put_back(old, len(new.transactions))
        self.run.replicate()
        self.run.outside.servers[:] = [new, old]
        await asyncio.sleep(self.random.choice((0.1, 1.0, 3.0)))
        old.alive = True

    async def _next_second(self, server: Server) -> None:
        """Wait: no two logs have a file of one name and one second."""
        while int(EPOCH_S + self.run.loop.clock.now) <= server.files[-1].created_s:
            await asyncio.sleep(0.1)

    def _put_back(self, server: Server, count: int) -> None:
        """Let a server have its first `count` transactions alone, if it still has their log."""
        lost = server.transactions[count:]
        if not lost or not server.put_back(count):
            return
        self.lagging = self.logs_gone = self._was_reset = True
        numbers = [number for transaction in lost for number, _ in transaction.rows]
        self.run.say("lost:", numbers)
        for made in lost:
            self.undone_places |= places_of(made)
        self.gone.update(numbers)
        self.begins_again |= self.on_reset == "earliest"
        if numbers:
            self._undone.append((numbers[0], len(self.run.tables)))
