"""The order of decisions about where reading starts, over real files posing as servers' logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.executed import gtid_set_after
from ray_canal.config import SourceConfig
from ray_canal.demo import binlog_files
from ray_canal.errors import (
    ConfigError,
    PositionNotFound,
    PositionPurged,
    TransactionsMissing,
)
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity, utc_text
from ray_canal.source.start.decision import Start, configured_start, decide
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.known_log import CLOCKS_APART_S
from ray_canal.source.start.log_file import MICROS, transactions
from ray_canal.source.start.search import Search

FILES = binlog_files()
FIRST, SECOND, THIRD = (path.name for path in FILES)
HERE, THERE = (SourceIdentity("127.0.0.1:3306", f"server-{n}") for n in "ab")
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@dataclass
class ServersLog(FilesLog):
    """Files that claim to be a server's."""

    paths: Sequence[Path] = tuple(FILES)
    server: SourceIdentity = HERE
    gtids_on: bool = True
    clock_us: int = 0
    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.paths)

    @property
    def identity(self) -> SourceIdentity:
        return self.server

    def executed(self) -> str:
        return super().executed() if self.gtids_on else ""

    def now_us(self) -> int:
        return self.clock_us or super().now_us()

    def purged(self) -> str:
        return super().purged() if self.gtids_on else ""


def source(**settings: Any) -> SourceConfig:
    return SourceConfig.model_validate({"address": "127.0.0.1:3306", **settings})


def cursor(position: EntryPosition, server: SourceIdentity = HERE) -> LogPosition:
    return LogPosition(server, position)


def of_transaction(name: str, index: int) -> tuple[EntryPosition, Any]:
    """(the position at the beginning of a transaction with all that a cursor knows, its record)."""
    log = ServersLog()
    gtids = np.concatenate([some.gtids for some in transactions(log, name)])
    return Search(log).boundary(name, int(gtids["position"][index])), gtids[index]


# ---- no cursor


def test_latest_and_earliest() -> None:
    log = ServersLog()
    latest = decide(source(), (), log)
    assert latest == Start(log.end(), how="latest")
    assert latest.position.journal_name == THIRD
    assert latest.position.gtid == log.executed() != ""
    earliest = decide(source(start="earliest"), (), ServersLog(FILES[1:])).position
    assert earliest == EntryPosition(SECOND, 4)
    assert earliest.gtid == Search(ServersLog(FILES[1:])).first.gtids != ""


def test_a_position_knows_its_gtids_and_goes_back_to_a_beginning() -> None:
    place, _ = of_transaction(SECOND, 5)
    for inside in (0, 10):
        settings = source(start="position", journal_name=SECOND, position=place.position + inside)
        found = configured_start(settings, ServersLog())
        assert (found, found.gtid) == (place, place.gtid)


@pytest.mark.parametrize(
    ("name", "position", "kind"),
    [
        ("mysql-bin.000000", 4, PositionPurged),
        ("mysql-bin.000009", 4, PositionNotFound),
        ("other.000001", 4, PositionNotFound),
        (THIRD, 1 << 40, PositionNotFound),
    ],
)
def test_a_position_that_is_not_there(name: str, position: int, kind: type[Exception]) -> None:
    settings = source(start="position", journal_name=name, position=position)
    with pytest.raises(kind, match=name):
        configured_start(settings, ServersLog())


def test_a_gtid_set_is_left_to_the_server() -> None:
    executed = Search(ServersLog(FILES[1:])).first.gtids
    start = decide(source(start="gtid", gtid_set=executed), (), ServersLog(FILES[1:]))
    assert start.by_gtid
    assert (start.position.journal_name, start.position.gtid) == ("", executed)
    with pytest.raises(PositionPurged, match=":1-") as caught:
        decide(source(start="gtid", gtid_set=f"{UUID}:1-5"), (), ServersLog(FILES[1:]))
    assert caught.value.lost is not None
    assert GtidSet.parse(caught.value.lost.gtids) == GtidSet.parse(executed)


def test_a_gtid_set_that_the_server_never_had_is_refused() -> None:
    """It may be of another server, or of a replica with transactions of its own."""
    executed = ServersLog().executed()
    for lacking, wanted in (
        (f"{UUID}:1-5", f"{executed},{UUID}:1-5"),
        ("9999998-9999999", f"{executed}:9999998-9999999"),
    ):
        with pytest.raises(TransactionsMissing, match=lacking) as caught:
            configured_start(source(start="gtid", gtid_set=wanted), ServersLog())
        assert f"it has {executed}" in str(caught.value)
        assert not caught.value.retryable  # a call that asks for it is not repeated
    gtids_off = ServersLog(gtids_on=False)
    with pytest.raises(TransactionsMissing, match="it has no GTIDs"):
        configured_start(source(start="gtid", gtid_set=f"{UUID}:1-5"), gtids_off)


def test_a_time_in_the_future_is_refused() -> None:
    """It would begin at the log's end as it is now, with changes of before that time."""
    log = ServersLog()
    newest = utc_text(int(list(transactions(log, THIRD))[-1].time_us[-1]) // MICROS)
    for later_s in (CLOCKS_APART_S - 1, CLOCKS_APART_S + 1):
        log.clock_us = 4_000_000_000 * MICROS
        settings = source(start="timestamp", timestamp=_iso(log.clock_us + later_s * MICROS))
        if later_s < CLOCKS_APART_S:  # nothing was written since
            assert configured_start(settings, log) == log.end()
            continue
        with pytest.raises(PositionNotFound, match="2096-10-02 07:06:51Z is in the future") as it:
            configured_start(settings, log)
        assert "its clock says 2096-10-02 07:06:40Z" in str(it.value)
        assert f"the newest in its log is of {newest}" in str(it.value)


def test_a_time() -> None:
    place, record = of_transaction(THIRD, 4)
    time_us = int(record["commit_us"])
    text = f"{time_us // 1000}"
    assert source(start="timestamp", timestamp=text).start_time_us == time_us // 1000 * 1000
    settings = source(start="timestamp", timestamp=_iso(time_us))
    assert settings.start_time_us == time_us
    found = configured_start(settings, ServersLog())
    assert found <= place
    assert found > of_transaction(THIRD, 3)[0] or int(
        of_transaction(THIRD, 3)[1]["commit_us"]
    ) == time_us
    # Before all, and nothing is gone: the beginning. Something is gone: an error.
    settings = source(start="timestamp", timestamp="2020-01-01T00:00:00Z")
    assert configured_start(settings, ServersLog()) == EntryPosition(FIRST, 4)
    with pytest.raises(PositionPurged, match="2020-01-01"):
        configured_start(settings, ServersLog(FILES[1:]))


def _iso(time_us: int) -> str:
    import datetime as dt

    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    return (epoch + dt.timedelta(microseconds=time_us)).isoformat(timespec="microseconds")


@pytest.mark.parametrize("text", ["yesterday", "2026-10-01 08:00:00", ""])
def test_a_time_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        source(start="timestamp", timestamp=text)


# ---- cursors


def test_a_saved_cursor_stays_where_it_is() -> None:
    places = [
        replace(of_transaction(THIRD, 4)[0], row=3),
        of_transaction(SECOND, 5)[0],
    ]
    log = ServersLog()
    start = decide(source(start="earliest"), [cursor(place) for place in places], log)
    assert start.position == places[1]
    assert start.cursors == tuple(places)
    assert start.cursors[0].row == 3
    assert not start.by_gtid
    assert log.read.count(SECOND) == 1  # its head, and nothing is walked


def test_a_cursor_without_gtids_learns_them() -> None:
    place, _ = of_transaction(SECOND, 5)
    bare = EntryPosition(SECOND, place.position, row=3, timestamp=7)
    start = decide(source(), [cursor(bare)], ServersLog())
    assert start.position == bare
    assert (start.position.gtid, start.position.timestamp) == (place.gtid, 7)
    assert start.position.created_s == place.created_s > 0
    off = decide(source(), [cursor(bare)], ServersLog(gtids_on=False))
    assert off.position.gtid == ""


def test_a_cursor_in_a_purged_file() -> None:
    place, _ = of_transaction(FIRST, 7)
    place = EntryPosition(FIRST, place.position, 2, place.gtid, 1_700_000_000)
    saved = [cursor(place), cursor(EntryPosition(THIRD, 4))]
    log = ServersLog(FILES[1:])
    with pytest.raises(PositionPurged) as caught:
        decide(source(), saved, log)
    lost = caught.value.lost
    assert lost is not None
    assert lost.start == str(place)
    assert lost.end == f"{SECOND}:4"
    before_second = GtidSet.parse(Search(log).first.gtids)
    assert GtidSet.parse(lost.gtids) == before_second.subtract(GtidSet.parse(place.gtid))
    assert lost.start_time == 1_700_000_000 < lost.end_time
    for word in (lost.start, lost.end, lost.gtids, "2023-11-14 22:13:20Z", "on_purged"):
        assert word in str(caught.value)

    earliest = decide(source(on_purged="earliest"), saved, log)
    assert earliest.position == EntryPosition(SECOND, 4)
    assert earliest.position.gtid == str(before_second)
    assert earliest.cursors == (EntryPosition(SECOND, 4), EntryPosition(THIRD, 4))
    assert lost.gtids in earliest.how

    latest = decide(source(on_purged="latest"), saved[:1], log)
    assert latest.position == log.end()
    everything = GtidSet.parse(log.executed()).subtract(GtidSet.parse(place.gtid))
    assert str(everything) in latest.how


def test_a_file_that_was_renamed_is_found_by_gtid() -> None:
    """Its last transaction is the one before, by its very microsecond or its file's age."""
    place, _ = of_transaction(SECOND, 3)
    last_us = Search(ServersLog()).surroundings(SECOND, place.position).last_us
    renamed = EntryPosition("old-name.000007", 4711, gtid=place.gtid)
    for known in (
        replace(renamed, commit_us=last_us),
        replace(renamed, created_s=place.created_s),
    ):
        assert decide(source(), [cursor(known)], ServersLog()).position == place
    for known in (renamed, replace(renamed, created_s=7), replace(renamed, commit_us=7)):
        with pytest.raises(TransactionsMissing, match="old-name"):
            decide(source(), [cursor(known)], ServersLog())
    with pytest.raises(PositionNotFound, match="old-name"):
        decide(source(), [cursor(EntryPosition("old-name.000007", 4711))], ServersLog())


# ---- cursors of another server


def opened(name: str, index: int) -> str:
    """A transaction's GTID."""
    return gtid_set_after("", of_transaction(name, index)[1].reshape(1))


def test_another_server_by_gtid() -> None:
    places = [of_transaction(SECOND, 3)[0], of_transaction(THIRD, 2)[0]]
    inside = [opened(SECOND, 3), opened(THIRD, 2)]
    saved = [
        cursor(EntryPosition("mysql-bin.000033", 999 * n, n, place.gtid, entry=9), THERE)
        for n, place in enumerate(places, 1)
    ]
    named = [
        replace(one, position=replace(one.position, open_gtid=gtid))
        for one, gtid in zip(saved, inside, strict=True)
    ]
    start = decide(source(), named, ServersLog())
    wanted = [replace(place, row=n, entry=9) for n, place in enumerate(places, 1)]
    assert start.cursors == tuple(wanted)
    assert all(place.moved for place in start.cursors)
    assert start.position == wanted[0]
    assert start.position.gtid == places[0].gtid
    assert start.by_gtid
    assert "server-b to server-a, by GTID" in start.how
    assert decide(source(), saved, ServersLog()).cursors == tuple(places)


def test_a_server_that_takes_no_gtid_set_is_asked_for_the_place() -> None:
    """gtid_mode = ON_PERMISSIVE has GTIDs, and refuses a dump by them (AUTO_POSITION). What is
    executed at the place is what its log has before it, not what all cursors have in common."""
    places = [of_transaction(SECOND, 3)[0], of_transaction(THIRD, 2)[0]]
    saved = [cursor(EntryPosition("mysql-bin.000033", 999, 0, p.gtid), THERE) for p in places]
    log = ServersLog()
    log.takes_gtid_sets = lambda: False  # type: ignore[method-assign]
    start = decide(source(), saved, log)
    assert not start.by_gtid
    assert start.position == places[0]
    assert start.cursors == tuple(places)


def test_rows_of_an_open_transaction_count_only_where_it_is_certainly_the_same() -> None:
    """A9: it is known by its GTID, or its commit time; a server that may lack rows of it, or that
    has another transaction next, gives it as a whole."""
    place, record = of_transaction(SECOND, 3)
    old = EntryPosition("mysql-bin.000033", 999, 5, place.gtid, entry=7)
    gtid, commit_us = opened(SECOND, 3), int(record["original_us"])
    for known, same in (
        (old, False),
        (replace(old, open_gtid=gtid), True),
        (replace(old, open_gtid=opened(SECOND, 4)), False),
        (replace(old, commit_us=commit_us), True),
        (replace(old, commit_us=commit_us + 1), False),
        (replace(old, open_gtid=opened(SECOND, 4), commit_us=commit_us), False),
    ):
        found = decide(source(), [cursor(known, THERE)], ServersLog()).position
        assert found == (replace(place, row=5, entry=7) if same else place)
        assert found.moved == same
    filtering = ServersLog()
    filtering.leaves_rows_out = lambda: "a filter"  # type: ignore[method-assign]
    start = decide(source(), [cursor(replace(old, open_gtid=gtid), THERE)], filtering)
    assert (start.position, start.position.moved) == (place, False)
    assert "as a whole: a filter" in start.how


def test_a_transaction_that_was_acked_in_part_and_is_not_there() -> None:
    """A9: a part of it was delivered, so a server without it lacks what was delivered."""
    place, _ = of_transaction(SECOND, 3)
    old = EntryPosition("mysql-bin.000033", 999, 5, place.gtid, entry=7, open_gtid=f"{UUID}:9")
    with pytest.raises(TransactionsMissing, match=f"{UUID}:9"):
        decide(source(), [cursor(old, THERE)], ServersLog())


def test_what_only_some_subscribers_have_is_not_left_out() -> None:
    """A12: the dump leaves out what all have, also where that lies behind the place; of what one
    lacks, nothing."""
    place, _ = of_transaction(SECOND, 3)
    later = GtidSet.parse(of_transaction(SECOND, 9)[0].gtid)
    later = later.subtract(GtidSet.parse(of_transaction(SECOND, 7)[0].gtid))
    more = str(GtidSet.parse(place.gtid).union(later))  # as from another order of commits
    old = EntryPosition("mysql-bin.000033", 999)
    one, other = (cursor(replace(old, gtid=gtid), THERE) for gtid in (more, place.gtid))
    for cursors, left_out in (([one], more), ([one, other], place.gtid), ([other], place.gtid)):
        start = decide(source(), cursors, ServersLog())
        assert start.position == place
        assert start.by_gtid
        assert GtidSet.parse(start.position.gtid) == GtidSet.parse(left_out)


@pytest.mark.parametrize("where", ["cursor", "delivered"])
def test_a_server_that_lacks_what_was_delivered_is_refused(where: str) -> None:
    place, _ = of_transaction(SECOND, 3)
    foreign = f"{UUID}:1-5"
    gtid = f"{place.gtid},{foreign}" if where == "cursor" else place.gtid
    saved = cursor(EntryPosition("mysql-bin.000033", 999, 0, gtid), THERE)
    with pytest.raises(TransactionsMissing, match=foreign) as caught:
        decide(source(), [saved], ServersLog(), "" if where == "cursor" else foreign)
    assert caught.value.retryable


def test_another_server_without_gtids_behind_the_very_transaction() -> None:
    this_place, record = of_transaction(SECOND, 3)
    next_place, _ = of_transaction(SECOND, 4)
    commit_us = int(record["original_us"])
    old = EntryPosition("mysql-bin.000033", 999, 2, "", commit_us // MICROS, commit_us=commit_us)
    old = replace(old, row=0)
    start = decide(source(), [cursor(old, THERE)], ServersLog(gtids_on=False))
    assert start.position == next_place
    assert f"after the transaction of {commit_us}" in start.how
    # Of an open transaction the rows that are consumed are not repeated.
    inside = replace(old, row=2, entry=3)
    start = decide(source(), [cursor(inside, THERE)], ServersLog(gtids_on=False))
    assert start.position == replace(this_place, row=2, entry=3)
    assert start.position.moved
    assert f"inside the transaction of {commit_us}" in start.how


def test_another_server_without_gtids_by_time() -> None:
    place, record = of_transaction(THIRD, 4)
    seconds = int(record["commit_us"]) // MICROS
    old = EntryPosition("mysql-bin.000033", 999, 2, "", seconds)
    start = decide(source(fallback_s=0.5), [cursor(old, THERE)], ServersLog(gtids_on=False))
    assert start.position <= place
    assert "twice" in start.how
    bare = cursor(EntryPosition("mysql-bin.000033", 999), THERE)
    with pytest.raises(PositionNotFound, match="neither GTIDs"):
        decide(source(), [bare], ServersLog(gtids_on=False))


def test_another_server_that_has_purged_it() -> None:
    place, _ = of_transaction(FIRST, 7)
    saved = cursor(EntryPosition("mysql-bin.000033", 999, 0, place.gtid), THERE)
    with pytest.raises(PositionPurged, match="server-b to server-a"):
        decide(source(), [saved], ServersLog(FILES[1:]))
    start = decide(source(on_purged="earliest"), [saved], ServersLog(FILES[1:]))
    assert start.position == EntryPosition(SECOND, 4)


def test_whether_all_cursors_are_where_they_were_in_the_same_log() -> None:
    """A6: only then do row ids stay in their timeline."""
    place, _ = of_transaction(SECOND, 3)
    here, foreign = cursor(place), cursor(place, THERE)
    unknown = cursor(place, SourceIdentity("127.0.0.1:3306"))
    renamed = cursor(replace(place, journal_name="old-name.000007"))
    assert decide(source(), [here], ServersLog()).same_log
    for other in (foreign, unknown, renamed):
        assert not decide(source(), [other], ServersLog()).same_log
        assert not decide(source(), [here, other], ServersLog()).same_log
    assert not decide(source(), (), ServersLog()).same_log
    purged = cursor(of_transaction(FIRST, 7)[0])
    on_purged = source(on_purged="earliest")
    assert not decide(on_purged, [here, purged], ServersLog(FILES[1:])).same_log
    assert decide(on_purged, [here], ServersLog(FILES[1:])).same_log



def test_gtids_that_another_server_has_given_again() -> None:
    """A1: both servers of a topology were reset; the second one has as many transactions by now. By
    their commit times they are others, so none is left out."""
    place, _ = of_transaction(THIRD, 2)
    _, before = of_transaction(THIRD, 1)
    committed_us = int(before["original_us"])
    assert committed_us
    at = replace(place, journal_name="mysql-bin.000033", commit_us=committed_us)
    assert decide(source(), [cursor(at, THERE)], ServersLog()).position.boundary == replace(
        place, commit_us=committed_us
    )
    # In another order: the cursor's last transaction lies further ahead.
    _, earlier = of_transaction(SECOND, 1)
    elsewhere = cursor(replace(at, commit_us=int(earlier["original_us"])), THERE)
    assert "by GTID" in decide(source(), [elsewhere], ServersLog()).how
    unknown = cursor(replace(at, commit_us=committed_us - 1), THERE)
    with pytest.raises(TransactionsMissing, match="other transactions under the GTIDs") as caught:
        decide(source(), [unknown], ServersLog())
    assert caught.value.other_log
    start = decide(source(on_reset="earliest"), [unknown], ServersLog())
    assert (start.position.journal_name, start.same_log) == (FIRST, False)


def test_a_start_at_what_is_no_gtid_set_is_refused() -> None:
    with pytest.raises(ConfigError):
        decide(source(start="gtid", gtid_set="nonsense"), (), ServersLog())
