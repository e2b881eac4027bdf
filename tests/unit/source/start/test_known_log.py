"""Errors for places that a log does not have: each names the place, and what to do."""

from __future__ import annotations

import pytest

from ray_canal.errors import PositionNotFound, PositionPurged, TransactionsMissing
from ray_canal.model.position import EntryPosition
from ray_canal.source.start.known_log import KnownLog
from tests.unit.source.start.test_decision import FIRST, SECOND, UUID, ServersLog


def test_the_oldest_file_is_the_earliest_place() -> None:
    known = KnownLog(ServersLog())
    assert (known.earliest().journal_name, known.earliest().position) == (FIRST, 4)
    assert known.beginning(SECOND) == EntryPosition(SECOND, 4)
    assert known.search is known.search


def test_a_place_beyond_a_files_end_or_in_no_file_is_not_found() -> None:
    known = KnownLog(ServersLog())
    known.refuse_absent(EntryPosition(SECOND, 4))
    with pytest.raises(PositionNotFound, match=f"past the end of {SECOND}"):
        known.refuse_absent(EntryPosition(SECOND, 1 << 40))
    with pytest.raises(PositionNotFound, match="has no binlog file"):
        known.refuse_absent(EntryPosition("mysql-bin.999999", 4))


def test_a_file_older_than_the_oldest_is_purged_and_its_gtids_are_lost() -> None:
    known = KnownLog(ServersLog())
    with pytest.raises(PositionPurged, match=r"source\.on_purged") as caught:
        known.refuse_absent(EntryPosition("mysql-bin.000000", 4))
    assert caught.value.lost is not None
    assert caught.value.lost.end == f"{FIRST}:4"


def test_gtids_that_were_delivered_and_that_the_server_lacks_are_named() -> None:
    known = KnownLog(ServersLog())
    known.refuse_behind("")
    known.refuse_behind(known.search.end().gtid)
    with pytest.raises(TransactionsMissing, match=f"{UUID}:1-5"):
        known.refuse_behind(f"{UUID}:1-5")


def test_the_error_of_another_log_waits_for_people() -> None:
    error = KnownLog(ServersLog()).other_log(PositionNotFound, "why", EntryPosition(SECOND, 9))
    assert (error.other_log, error.retryable) == (True, False)
    assert "source.on_reset" in str(error)
