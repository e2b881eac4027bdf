"""The part of one log on disk, behind a spiller actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from ray_canal.actors.answers import answered, unwrap_ray_error
from ray_canal.actors.spiller import OnDisk
from ray_canal.actors.upstream import stages
from ray_canal.errors import CanalError, InstanceNotRunning
from ray_canal.log.segment import Segment
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import Payload

logger = logging.getLogger(__name__)

_END_S = 5.0


class SpillProcess:
    """See destination/ports.py `Spill`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._spiller = stages.spiller(folder)

    async def write(self, chunk: LogChunk, payload: Payload) -> Segment:
        reply = self._spiller.write.remote(chunk, payload)
        try:
            segment: Segment = await asyncio.wrap_future(reply.future())
            return segment
        except RayTaskError as error:
            if isinstance(error.cause, OSError):
                raise error.cause from None
            raise

    def read_log_chunk(self, segment: Segment) -> Awaitable[LogChunk]:
        return self._read(self._spiller.read_log_chunk.remote(segment))

    async def _read(self, reply: Any) -> LogChunk:
        try:
            chunk: LogChunk = await asyncio.wrap_future(reply.future())
            return chunk
        except RayError as error:
            found = unwrap_ray_error(error)
            if isinstance(found, CanalError):
                raise found from error
            raise InstanceNotRunning(f"a chunk cannot be read from disk: {found}") from error

    def payload(self, segment: Segment) -> OnDisk:
        return OnDisk(self._spiller, segment)

    def drop(self, segments: Sequence[Segment]) -> None:
        self._spiller.drop.remote(segments)

    async def close(self) -> None:
        try:
            await answered(_END_S, self._spiller.close.remote())
        except (asyncio.TimeoutError, RayError):
            logger.warning("the process that had %s did not answer", self._folder)
        ray.kill(self._spiller)
