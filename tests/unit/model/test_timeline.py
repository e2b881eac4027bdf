"""When a new timeline begins, and its record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ray_canal.errors import ConfigError
from ray_canal.model.position import SourceIdentity
from ray_canal.model.timeline import NO_FILE, LogFile, Timeline, row_id, timeline_in

A, B = SourceIdentity("a:3306", "uuid-a"), SourceIdentity("b:3306", "uuid-b")


def test_it_rises_with_every_change_of_server_or_log() -> None:
    """A6, b4: ids of another log are higher than all ids before, whatever its files are called."""
    first = timeline_in(None, A, False, now_s=100)
    assert first == Timeline(100, A)
    assert timeline_in(first, A, True, now_s=200) == first
    moved_house = SourceIdentity("other-name:3306", "uuid-a")
    assert timeline_in(first, moved_house, True, now_s=200) == first
    for identity, same_log in ((B, False), (B, True), (A, False)):
        assert timeline_in(first, identity, same_log, now_s=200) == Timeline(200, identity)
        # In the same second, or by a clock that went back.
        for now_s in (100, 3):
            assert timeline_in(first, identity, same_log, now_s) == Timeline(101, identity)


def test_it_rises_where_its_record_was_lost() -> None:
    """A6: cursors that were removed, or kept in memory only, make no id come again."""
    lost = timeline_in(None, A, False, now_s=100)
    assert timeline_in(None, A, False, now_s=160).number > lost.number


def test_a_log_has_no_two_files_of_one_name_and_none_before_what_was_read() -> None:
    read = LogFile("bin.000003", 17)
    for there in (("bin.000003", 17), ("bin.000004", 17), ("bin.1000000", 18)):
        assert not read.cannot_lead_to(LogFile(*there))
        assert not NO_FILE.cannot_lead_to(LogFile(*there))
    for there in (("bin.000003", 18), ("bin.000002", 18), ("other.000004", 18)):
        assert read.cannot_lead_to(LogFile(*there))


def test_its_record() -> None:
    kept = Timeline(3, SourceIdentity("server:3306", "uuid-ñ"), LogFile("bin.000003", 17))
    assert Timeline.from_json(kept.to_json()) == kept
    older = '{"number": 3, "identity": {"address": "server:3306", "server_uuid": "uuid-ñ"}}'
    assert Timeline.from_json(older) == replace(kept, newest=NO_FILE)
    for text in ("", "{}", '{"number": 1}', '{"number": "x", "identity": {}}', "[]"):
        with pytest.raises(ConfigError):
            Timeline.from_json(text)


def test_ids_compare_as_delivery_order() -> None:
    """A6, b4: files are compared by number, and a later timeline is higher than all before."""
    places = [
        (1, "mysql-bin.000120", 4, 0), (1, "mysql-bin.000120", 400, 0),
        (1, "mysql-bin.000120", 400, 1), (1, "mysql-bin.999999", 4, 0),
        (1, "mysql-bin.1000000", 4, 0), (2, "binlog.000003", 4, 0), (10, "binlog.000001", 4, 0),
    ]  # fmt: skip
    names = ("timeline", "journal_name", "position", "row")
    ids = [row_id(dict(zip(names, place, strict=True))) for place in places]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
