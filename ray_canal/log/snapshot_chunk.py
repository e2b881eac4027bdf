"""Chunks of rows that were read from tables, in a log: for one subscriber, at one place."""

from __future__ import annotations

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.binlog.open_transactions import closing_entries
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.position import EntryPosition


def snapshot_chunk(info: ChunkInfo, place: EntryPosition, tag: SnapshotTag) -> LogChunk:
    """The chunk as the log keeps it. Whoever has consumed some of it restarts at `place`."""
    return LogChunk(
        info,
        None,
        closing_entries(info),
        place.position,
        0,
        0,
        place.gtid,
        trail=place.trail,
        tag=tag,
        place=place,
    )
