"""The source of a simulated destination: entries of a server's log, cut anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ray_canal.binlog.chunk import ENTRY, GTID, ChunkHead, ChunkInfo
from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.destination.ports import Fetched
from ray_canal.destination.status.stages import FetchReport
from ray_canal.destination.wakeup import seen
from ray_canal.errors import (
    ConnectionLost,
    PositionPurged,
)
from ray_canal.model.position import BINLOG_START, EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.port import SourceStatus
from ray_canal.source.start.decision import decide
from ray_canal.source.start.failover import choose
from tests.simulation.processes import OWNER, Outside, Payload
from tests.simulation.servers import SearchedLog, Server, chunk_of


class SimulatedFetcher:
    """A fetcher with its parser and decoder: entries of a server's log, cut anywhere."""

    decoding = ()

    def __init__(self, outside: Outside, config: InstanceConfig) -> None:
        self._outside, self._config = outside, config
        self._owner = OWNER.get()
        self._server: Server | None = None
        self._place = EntryPosition("")
        self._life = 0
        self._sequence = 0
        self._closed = False
        self._turn = asyncio.Lock()  # calls are answered in their order
        self.cut = False  # the connection broke

    def _answering(self, source: SourceConfig) -> Server:
        server = self._outside.server(source.address)
        if not server.alive:
            raise ConnectionLost(f"{source.address} does not answer")
        return server

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Any,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Any]:
        await self._outside.pause(self._outside.random.choice((0.01, 0.5, 3.0)))

        def open_with(options: StartOptions, source: SourceConfig) -> Start:
            server = self._answering(source)
            start = decide(source, cursors, SearchedLog(server), delivered, options)
            self._server, self._life = server, server.life
            return start

        whole = partial(open_with, replace(options, partial=False))
        partly = partial(open_with, options) if options.partial else None
        probe = lambda source: self._answering(source).uuid  # noqa: E731
        start = choose(self._config.source, cursors, probe, whole, partly)
        assert self._server is not None
        place = start.position
        if not place.journal_name:
            place = _place_of_gtids(self._server, place)
            start = replace(start, position=place)
        self._place = place
        self._outside.upstreams.append(self)  # type: ignore[attr-defined]
        return start, SourceIdentity(self._server.address, self._server.uuid), ()

    def next_decoded(self) -> Callable[[], Any]:
        future = asyncio.ensure_future(self._next())
        future.add_done_callback(seen)  # nobody asks for the answer when the upstream is left

        async def found() -> Fetched:
            return await future

        return found

    async def _next(self) -> Fetched:
        async with self._turn:
            return await self._read()

    async def _read(self) -> Fetched:
        outside, server = self._outside, self._server
        assert server is not None
        await outside.pause()
        for _ in range(25):
            if self._closed:
                return Fetched(report=FetchReport(False, False, 0.0, 0.0))
            if self.cut or not server.alive or server.life != self._life:
                raise ConnectionLost(f"the connection to {server.address} broke")
            taken = self._take(server)
            if taken is not None:
                return taken
            await asyncio.sleep(0.4 if outside.quiet else 0.05)
        return Fetched(report=FetchReport(False, False, 0.0, 0.0))

    def _take(self, server: Server) -> Fetched | None:
        """The next chunk."""
        place = self._place
        names = [file.name for file in server.files]
        if place.journal_name not in names:
            raise PositionPurged(f"{server.address} has purged {place.journal_name}")
        file = server.files[names.index(place.journal_name)]
        rest = [entry for entry in file.entries if entry.position >= place.position]
        if not rest:
            if place.position < file.size:  # its first events, which have no entries
                self._place = EntryPosition(file.name, file.size)
                self._sequence += 1
                head = ChunkHead(
                    self._sequence - 1, file.name, place.position, file.size,
                    created_s=file.created_s,
                )  # fmt: skip
                none = np.zeros(0, ENTRY), np.zeros(0, GTID), ()
                size_bytes = file.size - place.position
                info = ChunkInfo(head, size_bytes, size_bytes, *none)
                return Fetched(info=info, payload=Payload(file.name, []))
            if file is not server.files[-1]:
                following = server.files[names.index(file.name) + 1]
                self._place = EntryPosition(following.name, BINLOG_START)
                return self._take(server)
            return None
        count = min(self._outside.random.choice((1, 2, 5, 30)), len(rest))
        taken = rest[:count]
        end = taken[-1].position + taken[-1].length
        info = chunk_of(self._sequence, file, place.position, taken, server.gtids)
        self._place = EntryPosition(file.name, end)
        self._sequence += 1
        return Fetched(info=info, payload=Payload(file.name, taken))

    def next_raw(self) -> Callable[[], Any]:
        raise NotImplementedError  # it is fused

    def appended(self) -> None:
        """Nothing is decoded next to what is read."""

    def hurry(self) -> None:
        """Chunks are there as they come."""

    def processes(self) -> dict[str, Any]:
        return {}

    async def status(self, oldest: EntryPosition | None) -> Any:
        place = self._place
        return SourceStatus(place.journal_name, place.position, place.position)

    async def close(self) -> None:
        self._closed = True


def _place_of_gtids(server: Server, start: EntryPosition) -> EntryPosition:
    """Where the server begins a dump that leaves out a GTID set."""
    from ray_canal.source.start.search import Search

    found = Search(SearchedLog(server)).gtids(start.gtid)
    assert found is not None
    return found
