"""The spiller actor: puts chunks of one log on disk, and reads them back.

A process of its own, because the store's process never holds a chunk. The store waits for what is
written; clients ask it for what they read, chunk by chunk, and own what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray_canal.actors.log_settings import StageActor
from ray_canal.actors.priority import as_ray_itself
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.log.segment import Segment, SegmentFolder
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.malloc import keep_freed_memory


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The payload of a chunk on disk, as a message carries it: who reads it, and where it is."""

    spiller: Any
    segment: Segment


class Spiller(StageActor):
    """The only user of a folder; see SegmentFolder."""

    def __init__(self, folder: str) -> None:
        as_ray_itself()
        keep_freed_memory()
        self._folder = SegmentFolder(folder)

    def write(self, chunk: LogChunk, decoded: DecodedChunk) -> Segment:
        """Write a chunk to the folder; return its segment. Raises OSError."""
        return self._folder.write(chunk, decoded)

    def read_log_chunk(self, segment: Segment) -> LogChunk:
        """Read back what the log keeps of a chunk. Raises InstanceError: it is damaged or gone."""
        return self._folder.read_log_chunk(segment)

    def read(self, segment: Segment) -> DecodedChunk:
        """Raises InstanceError."""
        return self._folder.read_decoded(segment)

    def drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._folder.drop(segment)

    def close(self) -> None:
        self._folder.close()
