"""Counters of a destination in this process, for its status."""

from __future__ import annotations

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.destination.skipped import SkippedEvents
from ray_canal.destination.status.rates import Rates
from ray_canal.destination.status.traffic import Traffic


class Activity:
    """`generations` begun, `errors` that ended one, `quarantined_chunks`, and the time of the
    newest event in the log, in seconds since the epoch (0: none)."""

    def __init__(self, skipped: SkippedEvents) -> None:
        """`skipped`: of all streams of the destination."""
        self.generations = self.errors = self.quarantined_chunks = 0
        self.last_event_time = 0
        self.rates = Rates()
        self.traffic = Traffic()
        self.skipped = skipped

    def note_chunk(self, info: ChunkInfo) -> None:
        """Count a chunk that was put into the log."""
        self.quarantined_chunks += len(info.quarantined)
        self.skipped.note(info)
        self.rates.add(info.size_bytes, int(info.entries["rows"].sum()), len(info.entries))
        self.traffic.note(info)
        if len(info.entries):
            self.last_event_time = int(info.entries["timestamp"][-1])
