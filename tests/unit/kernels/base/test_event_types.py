"""The one table of event types."""

from __future__ import annotations

from ray_canal.binlog.events import event_name, may_be_skipped
from ray_canal.kernels.base import event_types as ev


def kinds(bits: int) -> set[str]:
    return {ev.NAMES[kind] for kind in range(64) if bits >> kind & 1}


def test_groups_are_of_known_types() -> None:
    assert len(kinds(ev.ROWS)) == 10
    assert "PARTIAL_UPDATE_ROWS" in kinds(ev.ROWS)
    assert "XID" in kinds(ev.BETWEEN_STATEMENTS)
    assert not kinds(ev.WITHOUT_ENTRY) & kinds(ev.ROWS | ev.NEXT_TO_ROWS)
    compressed = range(ev.FIRST_MARIADB_COMPRESSED, ev.LAST_MARIADB_COMPRESSED + 1)
    assert all(ev.NAMES[kind].endswith(("COMPRESSED", "COMPRESSED_V1")) for kind in compressed)


def test_names_are_for_messages() -> None:
    assert event_name(ev.WRITE_ROWS) == "WRITE_ROWS (30)"
    assert event_name(99) == "unknown (99)"
    assert may_be_skipped(ev.ROWS_QUERY)
    assert not may_be_skipped(ev.GTID)
