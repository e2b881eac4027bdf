"""Handles of the actors that read a snapshot's rows (row_readers.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import ray

from ray_canal.actors.answers import unwrap_ray_error
from ray_canal.actors.placement import CONTROL_GROUP
from ray_canal.actors.row_readers import Announced, MomentRows, PlacedRows, RangeRows
from ray_canal.actors.upstream import stages
from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.model.message import Payload
from ray_canal.snapshot.chunks import Origin
from ray_canal.snapshot.log_chunks import LogPlace
from ray_canal.snapshot.moment_reader import Part
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead
from ray_canal.snapshot.tables import SnapshotTable


class RowReaderProcess:
    """See destination/ports.py `RowReaderHandle`."""

    def __init__(self, config: InstanceConfig) -> None:
        self._actor = stages.row_reader(config, RangeRows)
        self._pieces: dict[int, int] = {}

    async def read(self, order: RangeOrder) -> RangeRead:
        reply = self._actor.read.remote(order)
        read, pieces = await asyncio.wrap_future(reply.future())
        self._pieces[order.number] = pieces
        found: RangeRead = read
        return found

    async def place(
        self, number: int, touched: frozenset[bytes], place: LogPlace
    ) -> list[tuple[ChunkInfo, Payload]] | None:
        count = self._pieces.pop(number)
        method = self._actor.place.options(concurrency_group=CONTROL_GROUP, num_returns=1 + count)
        replies = method.remote(number, touched, place, count)
        first, *chunks = replies if count else [replies]
        placed: list[PlacedRows] | None = await asyncio.wrap_future(first.future())
        if placed is None:
            return None
        pairs = zip(placed, chunks, strict=False)
        return [(one.info, chunk if one.chunk is None else one.chunk) for one, chunk in pairs]

    async def close(self) -> None:
        stages.end(self._actor)


class MomentReaderProcess:
    """See snapshot/moment_reader.py `MomentReading`."""

    def __init__(self, config: InstanceConfig) -> None:
        self._actor = stages.row_reader(config, MomentRows)

    def open(self) -> None:
        _answer(self._actor.open.remote())

    def query(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _answer(self._actor.query.remote(sql))
        return found

    def read(self, part: Part, origin: Origin) -> Generator[RowsElsewhere, None, None]:
        self._actor.begin.remote(part, origin)
        coming = self._actor.next.remote()
        while True:
            found: Announced | None = _answer(coming)
            if found is None:
                return
            coming = self._actor.next.remote()
            yield RowsElsewhere(part.table, found.rows, self._actor, found.number)

    def close(self) -> None:
        stages.end(self._actor)


@dataclass(frozen=True, slots=True)
class RowsElsewhere:
    """See snapshot/moment_reader.py `RowsRead`."""

    table: SnapshotTable
    rows: int
    actor: Any
    number: int

    def at(self, place: LogPlace) -> tuple[ChunkInfo, Payload]:
        method = self.actor.place.options(concurrency_group=CONTROL_GROUP, num_returns=2)
        reply, chunk = method.remote(self.number, place)
        placed: PlacedRows = _answer(reply)
        return placed.info, chunk if placed.chunk is None else placed.chunk


def _answer(reply: Any) -> Any:
    """Wait for an answer, in a thread. Raises what the actor raised; InstanceNotRunning: it is
    gone."""
    try:
        return ray.get(reply)
    except ray.exceptions.RayError as error:
        raise unwrap_ray_error(error) from None
