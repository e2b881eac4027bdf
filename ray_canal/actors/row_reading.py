"""Handles of the actors that read a snapshot's rows (row_readers.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import ray

from ray_canal.actors.answers import answered, unwrap_ray_error
from ray_canal.actors.placement import CONTROL_GROUP, ask_alive
from ray_canal.actors.row_readers import Announced, MomentRows, PlacedRows, RangeRows
from ray_canal.actors.upstream import stages
from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.errors import InstanceNotRunning
from ray_canal.model.message import Payload
from ray_canal.snapshot.chunks import Origin
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.log_chunks import LogPlace
from ray_canal.snapshot.moment_reader import Part
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead
from ray_canal.snapshot.tables import SnapshotTable


class RowReaderProcess:
    """See destination/ports.py `RowReaderHandle`. One whose process, or node, sleeps is lost."""

    def __init__(self, config: InstanceConfig) -> None:
        self._actor = stages.row_reader(config, RangeRows)
        self._limit_s = config.source.read_timeout_s
        self._begun = self._actor.alive.remote().future()
        self._pieces: dict[int, int] = {}

    async def open(self) -> None:
        await asyncio.wrap_future(self._actor.open.remote().future())

    async def read(self, order: RangeOrder) -> RangeRead:
        found: RangeRead
        reading = asyncio.wrap_future(self._actor.read.remote(order).future())
        try:
            while not (await asyncio.wait({reading}, timeout=self._limit_s / 5))[0]:
                if self._begun.done():  # else no node has room for it yet, perhaps
                    await self._answer(ask_alive(self._actor))
            found, self._pieces[order.number] = reading.result()
        finally:
            reading.cancel()
        return found

    async def place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> tuple[list[tuple[ChunkInfo, Payload]], bool]:
        count = self._pieces.pop(number)
        method = self._actor.place.options(concurrency_group=CONTROL_GROUP, num_returns=1 + count)
        replies = method.remote(number, touched, doubted, place, count)
        first, *chunks = replies if count else [replies]
        placed: tuple[list[PlacedRows], bool] = await self._answer(first)  # the log waits for this
        rows, is_whole = placed
        if not is_whole:
            self._pieces[number] = count
        pairs = zip(rows, chunks, strict=False)
        pieces = [(one.info, chunk if one.chunk is None else one.chunk) for one, chunk in pairs]
        return pieces, is_whole

    async def _answer(self, reply: Any) -> Any:
        try:
            return await answered(self._limit_s, reply)
        except asyncio.TimeoutError:
            raise _asleep(self._limit_s) from None

    async def close(self) -> None:
        stages.end(self._actor)


class MomentReaderProcess:
    """See snapshot/moment_reader.py `MomentReading`."""

    def __init__(self, config: InstanceConfig) -> None:
        self._actor = stages.row_reader(config, MomentRows)
        self._limit_s = config.source.read_timeout_s

    def open(self) -> None:
        _answer(self._actor.open.remote())

    def query(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _answer(self._actor.query.remote(sql), self._limit_s)
        return found

    def read(self, part: Part, origin: Origin) -> Generator[RowsElsewhere, None, None]:
        self._actor.begin.remote(part, origin)
        coming = self._actor.next.remote()
        while True:
            while not ray.wait([coming], timeout=self._limit_s / 5)[0]:
                _answer(ask_alive(self._actor), self._limit_s)
            found: Announced | None = _answer(coming)
            if found is None:
                return
            coming = self._actor.next.remote()
            yield RowsElsewhere(part.table, found.rows, self._actor, found.number, self._limit_s)

    def close(self) -> None:
        stages.end(self._actor)


@dataclass(frozen=True, slots=True)
class RowsElsewhere:
    """See snapshot/moment_reader.py `RowsRead`."""

    table: SnapshotTable
    rows: int
    actor: Any
    number: int
    limit_s: float

    def at(self, place: LogPlace) -> tuple[ChunkInfo, Payload]:
        method = self.actor.place.options(concurrency_group=CONTROL_GROUP, num_returns=2)
        reply, chunk = method.remote(self.number, place)
        placed: PlacedRows = _answer(reply, self.limit_s)
        return placed.info, chunk if placed.chunk is None else placed.chunk


def _asleep(limit_s: float) -> InstanceNotRunning:
    return InstanceNotRunning(
        f"a row reader has not answered for {limit_s:.0f} s (source.read_timeout_s): its "
        "process or node was stopped, or gets no time; another one takes over"
    )


def _answer(reply: Any, limit_s: float | None = None) -> Any:
    """Wait for an answer, in a thread. Raises what the actor raised; InstanceNotRunning: it is
    gone, or has not answered for so long."""
    try:
        return ray.get(reply, timeout=limit_s)
    except ray.exceptions.GetTimeoutError:
        assert limit_s is not None
        raise _asleep(limit_s) from None
    except ray.exceptions.RayError as error:
        raise unwrap_ray_error(error) from None
