"""One subscriber's record, as people read it."""

from __future__ import annotations

from ray_canal.cli.subscriber import lines
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.meta.subscribers import subscriber_report
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.reports import PlaceReport


def test_moments_and_sizes_are_for_people() -> None:
    place = EntryPosition("bin.000001", 4, timestamp=1795636000)
    cursor = LogPosition(SourceIdentity("db:3306"), place)
    one = SubscriberMeta(0, "shop.*", cursor, label="nightly", paused=1795636905)
    behind: PlaceReport = {"bytes_behind": 3 << 20, "last_call_s": 4000.0, "entries_behind": 0}
    found = lines(subscriber_report(one, behind))
    assert "paused_at: 2026-11-25 20:01:45Z" in found
    assert "cursor_time: 2026-11-25 19:46:40Z" in found
    assert "bytes_behind: 3.1 MB" in found
    assert "last_call_s: 66.7 min" in found
    assert "label: nightly" in found
    assert "entries_behind: 0" in found
    assert not [line for line in found if line.startswith(("client_id", "expired_at", "failure"))]
