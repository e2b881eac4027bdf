"""The disk of a simulated destination."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from ray_canal.errors import InstanceNotRunning, InstanceRestarted
from tests.simulation.processes import Outside, Payload


@dataclass(frozen=True)
class DiskSegment:
    number: int
    size_bytes: int


@dataclass(frozen=True)
class OnDisk:
    """The payload of a chunk on disk."""

    spill: SimulatedSpill
    segment: DiskSegment

    def read(self) -> Payload:
        return self.spill.read(self.segment)


class SimulatedSpill:
    """The part of one log on disk; see destination/ports.py `Spill`."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._segments: dict[int, tuple[Any, Any]] = {}
        self._number = 0
        self._closed = False

    def _segment(self, number: int) -> tuple[Any, Any]:
        """Raises InstanceNotRunning, as actors/disk.py: the folder went with the log. A
        segment that is gone from a log that lives is a fault of the log: KeyError."""
        if self._closed:
            raise InstanceNotRunning("a chunk cannot be read from disk: the log was closed")
        return self._segments[number]

    async def _pause(self) -> None:
        await asyncio.sleep(self._outside.random.choice((0.0, 0.001, 0.05)))

    async def write(self, chunk: Any, payload: Any) -> Any:
        if self._outside.disk_full:
            raise OSError(28, "No space left on device")
        self._number += 1
        segment = DiskSegment(self._number, chunk.info.size_bytes)
        self._segments[self._number] = (chunk, payload)
        await self._pause()
        return segment

    def read_log_chunk(self, segment: Any) -> Awaitable[Any]:
        return self._read(self._segment(segment.number)[0])

    async def _read(self, chunk: Any) -> Any:
        await self._pause()
        return chunk

    def payload(self, segment: Any) -> OnDisk:
        return OnDisk(self, segment)

    def read(self, segment: DiskSegment) -> Payload:
        """What a client has of a log from which its subscriber was detached meanwhile is gone."""
        if segment.number not in self._segments:
            raise InstanceRestarted("a chunk on disk is gone: what was not acked comes again")
        payload: Payload = self._segments[segment.number][1]
        return payload

    def drop(self, segments: Any) -> None:
        for segment in segments:
            del self._segments[segment.number]

    async def close(self) -> None:
        self._closed = True
        self._segments.clear()
