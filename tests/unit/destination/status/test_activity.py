"""What a destination counts of the chunks that it puts into its log."""

from __future__ import annotations

from ray_canal.demo import binlog_files
from ray_canal.destination.skipped import SkippedEvents
from ray_canal.destination.status.activity import Activity
from ray_canal.offline import decode_chunks


def test_chunks_are_counted() -> None:
    activity = Activity(SkippedEvents("x"))
    chunks = [info for info, _ in decode_chunks(binlog_files()[:1])]
    for info in chunks:
        activity.note_chunk(info)
    counted = activity.rates.per_second()
    assert counted["entries"] == sum(len(info.entries) for info in chunks) > 0
    assert counted["rows"] == sum(int(info.entries["rows"].sum()) for info in chunks) > 0
    assert counted["bytes"] == sum(info.size_bytes for info in chunks)
    assert activity.last_event_time == max(
        int(info.entries["timestamp"][-1]) for info in chunks if len(info.entries)
    )
    assert (activity.generations, activity.errors, activity.quarantined_chunks) == (0, 0, 0)
    assert activity.skipped.count == 0
