"""An operator of a simulated destination, who pauses, moves, renames and copies subscribers,
changes their tables, and applies other settings, while everything else goes wrong.

What an operator has done counts: a paused subscriber gets nothing, one that was moved gets what
comes from its new place on, and one with another name goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
from typing import TYPE_CHECKING, Any

from ray.exceptions import ActorDiedError, ActorUnavailableError

from ray_canal.errors import CanalError, Fenced, InstanceRestarted
from ray_canal.model.position import EntryPosition
from ray_canal.model.subscription import StartWish
from tests.simulation.client import FILTERS, Client
from tests.simulation.processes import DESTINATION, OWNER, Owner
from tests.simulation.servers import BinlogFile

if TYPE_CHECKING:
    from tests.simulation.life import Simulation

_CLIENTS_MAX = 5
_TRIES = 100


class Operator:
    """What people do to a destination in half of its lives; the other ones are as without it."""

    def __init__(self, run: Simulation, seed: int) -> None:
        self.run = run
        self.random = random.Random(f"operator {seed}")
        self._acts = self.random.random() < 0.5
        self._next_id = 100

    async def live(self) -> None:
        """Act until nobody writes any more, and end what has begun."""
        acts = (
            self.pause, self.pause, self.resume, self.resume, self.expire, self.seek, self.seek,
            self.rename, self.copy, self.apply, self.filter,
        )  # fmt: skip
        if self.run.faults.copies:
            acts = (
                self.pause, self.resume, self.expire, self.rename, self.copy, self.apply, self.seek,
                self.snapshot, self.filter,
            )  # fmt: skip
        while self._acts and self.run.writes:
            await asyncio.sleep(self.random.choice((0.05, 0.3, 1.0)))
            await self.random.choice(acts)(self.random.choice(self.run.clients))
        for client in self.run.clients if self._acts else ():
            await self.resume(client)  # also one that could not leave, and is paused still
            if self.run.faults.copies:
                await self._operate(client, "snapshot", "resume")

    async def pause(self, client: Client) -> None:
        if await self._operate(client, "pause") and client.client_id in self._records():
            client.paused_s = self.run.loop.clock.now

    async def resume(self, client: Client) -> None:
        client.paused_s = None
        await self._operate(client, "resume")

    async def expire(self, client: Client) -> None:
        client.expired = True
        await self._operate(client, "expire")

    async def seek(self, client: Client) -> None:
        """Its program is stopped meanwhile, as it has to forget what it took."""
        await client.stop()
        server = self.run.master
        (place, first), life = self._place(), server.life
        done = await self._operate(client, "seek", place)
        if done and first is not None and (server, life) == (self.run.master, server.life):
            cursor = self.run.cursor(client.client_id)
            if cursor is not None and cursor.identity.server_uuid == server.uuid:
                found, first = map(self._there, (self.run.number_at(cursor), first))
                purged = place == "earliest" and found > first
                assert found == first or purged, f"seek {place}: it is at {found}, not {first}"
        client.moved()
        if self.run.faults.copies:
            # One that goes on begins again.
            begun = await self._operate(client, "snapshot", "start")
            if done is not False or begun:
                client.begin_copy()
        self.run.consume(client)

    async def snapshot(self, client: Client) -> None:
        """Pause, resume or cancel a subscriber's snapshot; who does the last begins another one."""
        action = self.random.choice(("pause", "resume", "cancel"))
        await self._operate(client, "snapshot", action)
        if action == "cancel":
            client.has_no_snapshot()

    async def filter(self, client: Client) -> None:
        """Change its tables: what comes behind its cursor is of the new ones. What it took by the
        old ones it has to forget."""
        await client.stop()
        text = self.random.choice(FILTERS)
        if self.random.random() < 0.5:
            await self._operate(client, "filter", text)
        client.change_filter(text)
        self.run.consume(client)

    async def rename(self, client: Client) -> None:
        """Where that fails midway, there may be both: one is removed."""
        await client.stop()
        new_id = self._new_id()
        await self._operate(client, "rename", new_id)
        if new_id in self._records():
            while await self._operate(client, "show"):  # it may be known though its record is gone
                await self._operate(client, "remove")
            client.client_id = new_id
        self.run.consume(client)

    async def copy(self, client: Client) -> None:
        if len(self.run.clients) >= _CLIENTS_MAX:
            return
        new_id, stops = self._new_id(), self.run.faults.copies
        if stops:  # what it has is as its cursor, or newer
            await client.stop()
        await self._operate(client, "copy", new_id)
        if new_id in self._records():
            made = type(client)(self.run, new_id)
            made.take_terms(client)
            self.run.clients.append(made)
            self.run.consume(made)
        if stops:
            self.run.consume(client)

    async def apply(self, _: Client) -> None:
        """Other settings: the destination ends, and begins again with them."""
        owner = self.run.outside.owner
        assert owner is not None
        store = self.run.settings["store"]
        store["buffer_size"] = self.random.choice((2, 8, 64))
        store["spill_bytes"] = self.random.choice((0, 8 << 10, 1 << 20))
        store["transaction_size"] = self.random.choice((0, 4, 1024))
        self.run.settings["runs"] = self.random.choice(("always", "while_subscribed"))
        self.run.configure()
        self.run.say("operator: apply", store)
        token = OWNER.set(owner)
        try:
            ending = asyncio.create_task(owner.destination.stop(for_good=False))
        finally:
            OWNER.reset(token)
        await asyncio.wait({ending}, timeout=30.0)
        await owner.kill()  # the supervisor begins the next one

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _records(self) -> Any:
        return self.run.outside.records.backend.load(DESTINATION)

    def start(self) -> StartWish | None:
        """Return where a new subscriber is to begin; None: where the log does."""
        if not self._acts or self.random.random() < 0.5:
            return None
        place, _ = self._place()
        with contextlib.suppress(ValueError):
            return dt.datetime.fromisoformat(place)
        name, _, offset = place.partition(":")
        if name in {file.name for file in self.run.outside.servers[0].files}:
            return EntryPosition(name, int(offset))
        return None if place == "earliest" else place

    def _place(self) -> tuple[str, int | None]:
        """Return a place, and the first row that comes from there on; None: where the destination's
        log begins or ends."""
        server = self.run.master
        kind = self.random.choice(("head", "tail", "earliest", "offset", "time", "gtids"))
        file = self.random.choice(server.files)
        if kind == "gtids" and server.gtids and file.before:
            return file.before, self._first(server.files[server.files.index(file) :])
        if kind == "time" and server.transactions:
            second = self.random.choice(server.transactions).commit_us // 1_000_000
            since = [made for made in server.transactions if made.commit_us >= second * 1_000_000]
            rows = [number for made in since for number, _ in made.rows]
            text = dt.datetime.fromtimestamp(second, dt.timezone.utc).isoformat()
            return text, rows[0] if rows else len(self.run.tables)
        if kind == "offset" and file.entries:
            entry = self.random.choice(file.entries)
            files = server.files[server.files.index(file) :]
            return f"{file.name}:{entry.position}", self._first(files, entry.begin)
        if kind in ("head", "tail"):
            return kind, None
        return "earliest", self._first(server.files)

    def _there(self, number: int) -> int:
        """Return a row's number, or that of the next one that was not lost."""
        while number in self.run.faults.gone:
            number += 1
        return number

    def _first(self, files: list[BinlogFile], position: int = 0) -> int:
        """Return the first row of these files, of the first one from a position on."""
        entries = [entry for entry in files[0].entries if entry.position >= position]
        entries += [entry for file in files[1:] for entry in file.entries]
        return next((row for entry in entries for row in entry.rows), len(self.run.tables))

    async def _operate(self, client: Client, action: str, argument: Any = None) -> bool:
        """Do it until an answer says that it is done, or cannot be; return whether it is done.
        Nothing of it goes on after that."""
        say = self.run.say
        tasks: set[asyncio.Task[None]] = set()
        found, tries = None, 0
        while found is None:
            found, tries = await self._answer(client, action, argument, tasks), tries + 1
            if found is None and tries == _TRIES:
                found = False  # a server lacks what is asked for, and may never have it
            elif found is None:
                await asyncio.sleep(self.random.choice((0.1, 1.0)))
        if tasks:
            await asyncio.wait(tasks)
        say(f"operator: client {client.client_id}:", action, argument, "" if found else "refused")
        return found

    async def begin_snapshot(self, client: Client) -> bool:
        """Ask for a snapshot, once; return whether it has begun, as far as is known."""
        return bool(await self._answer(client, "snapshot", "start", set()))

    async def _answer(
        self, client: Client, action: str, argument: Any, tasks: set[asyncio.Task[None]]
    ) -> bool | None:
        owner: Owner | None = self.run.outside.owner
        if owner is None or not owner.alive:
            return None
        call: Any = ("operate", (client.client_id, action, argument))
        if action == "filter":
            call = ("change_filter", (client.client_id, argument))
        if action == "snapshot":
            call = ("snapshot", (client.client_id, argument))
        reply = owner.call(*call)
        assert reply.task is not None
        tasks.add(reply.task)
        try:
            await reply
        except (ActorDiedError, ActorUnavailableError):
            return None
        except CanalError as error:
            self.run.say(f"operator: {action}: {type(error).__name__}: {error}")
            again = error.retryable or isinstance(error, Fenced | InstanceRestarted)
            return None if again else False
        return True
