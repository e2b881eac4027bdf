"""Starts that leave some cursors out: those that are gone, and those that are far behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ray_canal.errors import (
    ConnectionLost,
    PositionNotFound,
    PositionPurged,
    SourceError,
    TransactionsMissing,
)
from ray_canal.model.position import EntryPosition
from ray_canal.model.start import StartOptions
from ray_canal.source.start.decision import decide
from ray_canal.source.start.failover import choose
from ray_canal.source.start.reach import lowest_of, too_far_behind
from tests.unit.source.start.test_decision import (
    FILES,
    FIRST,
    SECOND,
    THERE,
    THIRD,
    UUID,
    ServersLog,
    cursor,
    of_transaction,
    source,
)

PARTIAL = StartOptions(partial=True)
SIZES = [("a.000009", 1000), ("b.000001", 2000), ("b.000002", 300)]


def at(name: str, position: int) -> EntryPosition:
    return EntryPosition(name, position)


def test_distances_are_bytes_of_binlog_over_files() -> None:
    places = [at("a.000009", 100), at("b.000001", 500), None, at("b.000002", 50), at("x.1", 4)]
    assert too_far_behind(places, SIZES, 0) == (2950, 1550, 0, 0, 0)
    assert too_far_behind(places, SIZES, 1550) == (2950, 0, 0, 0, 0)
    assert too_far_behind(places, SIZES, None) == (0,) * 5
    assert too_far_behind([], SIZES, 0) == ()


def test_the_lowest_is_what_the_log_comes_to_first() -> None:
    """b14: file names of two bases are in the log's order, not in the alphabet's."""
    assert lowest_of([at("b.000001", 4), at("a.000009", 900)], SIZES) == at("a.000009", 900)
    reversed_ = [("b.000009", 1000), ("a.000001", 2000)]
    assert lowest_of([at("a.000001", 4), at("b.000009", 900)], reversed_) == at("b.000009", 900)
    assert lowest_of([replace(at("x.1", 4), row=2), at("x.1", 4)], []) == at("x.1", 4)


def test_a_cursor_that_cannot_be_served_is_left_out() -> None:
    """b2: it is told for that cursor; the start is at the smallest of the others."""
    log = ServersLog(FILES[1:])
    place, _ = of_transaction(SECOND, 5)
    later, _ = of_transaction(THIRD, 5)
    gone, unknown = EntryPosition(FIRST, 4), EntryPosition(THIRD, 1 << 40)
    cursors = [cursor(each) for each in (gone, later, unknown, place)]
    start = decide(source(), cursors, log, "", PARTIAL)
    assert start.position == place
    assert start.same_log
    assert start.cursors == (gone, later, unknown, place)
    assert [type(failure) for failure in start.failures] == [
        PositionPurged, type(None), PositionNotFound, type(None)
    ]  # fmt: skip
    with pytest.raises(PositionPurged):
        decide(source(), cursors, log)


def test_if_no_cursor_can_be_served_that_is_told() -> None:
    log = ServersLog(FILES[1:])
    with pytest.raises(PositionPurged):
        decide(source(), [cursor(EntryPosition(FIRST, 4))] * 2, log, "", PARTIAL)


def test_who_is_far_behind_is_left_out() -> None:
    """b16: the start is at the smallest of those that are near the newest one."""
    log = ServersLog()
    places = [of_transaction(name, 5)[0] for name in (FIRST, SECOND, THIRD)]
    cursors = [cursor(place) for place in places]
    sizes = dict(log.files())
    last_two = sizes[SECOND] - places[1].position + places[2].position
    start = decide(source(), cursors, log, "", StartOptions(reach_bytes=last_two))
    assert start.position == places[1]
    assert start.behind == (sizes[FIRST] - places[0].position + sizes[SECOND]
                            + places[2].position, 0, 0)
    assert decide(source(), cursors, log, "", StartOptions(reach_bytes=0)).position == places[2]
    assert decide(source(), cursors, log).position == places[0]


def test_a_cursor_that_is_left_out_begins_no_timeline() -> None:
    """b2: rows of those who go on are of the same log as before."""
    log = ServersLog(FILES[1:])
    place, _ = of_transaction(SECOND, 5)
    for other in (cursor(EntryPosition(FIRST, 4)), cursor(EntryPosition(FIRST, 4), THERE)):
        start = decide(source(), [other, cursor(place)], log, "", PARTIAL)
        assert start.failures[0] is not None
        assert start.same_log


def test_a_log_that_nobody_subscribed_to_goes_on_where_it_began() -> None:
    """B8, b15: nobody has lost anything, so nothing is refused for nobody."""
    place, _ = of_transaction(FIRST, 5)
    options = StartOptions(unattended=cursor(place))
    start = decide(source(), (), ServersLog(), "", options)
    assert (start.position, start.same_log, start.cursors) == (place, True, ())
    later = ServersLog(FILES[1:])
    start = decide(source(), (), later, "", options)
    assert start.position == later.end()
    assert "is gone; latest" in start.how
    start = decide(source(start="earliest"), (), later, "", options)
    assert start.position == EntryPosition(SECOND, 4)
    settings = source(start="position", journal_name=FIRST, position=4)
    assert decide(settings, (), later, "", options).position == later.end()
    with pytest.raises(PositionPurged):
        decide(settings, (), later)


def test_another_server_that_has_all_cursors_comes_before_one_that_has_some() -> None:
    """b2: failover is not blocked by one purged cursor, and takes it along where it can."""
    all_, some = "all", "some"

    def chosen(away: str, *, lacks: tuple[str, ...], cursors: int = 2) -> tuple[str, str]:
        def probe(config: object) -> str:
            address = config.address  # type: ignore[attr-defined]
            if address.startswith(away):
                raise ConnectionLost("away")
            return str(address)

        def open_at(config: object) -> tuple[str, str]:
            address = str(config.address)[0]  # type: ignore[attr-defined]
            if address in lacks:
                raise PositionPurged(address)
            return address, all_

        def partly(config: object) -> tuple[str, str]:
            return str(config.address)[0], some  # type: ignore[attr-defined]

        servers = source(address="a:1", standby=["b:1", "c:1"])
        known = [cursor(EntryPosition(FIRST, 4))] * cursors
        return choose(servers, known, probe, open_at, partly)

    assert chosen("x", lacks=("a",)) == ("b", all_)
    assert chosen("a", lacks=("b", "c")) == ("b", some)
    with pytest.raises(SourceError):
        chosen("a", lacks=("b", "c"), cursors=1)


def test_a_start_serves_the_files_of_one_name() -> None:
    """b14: of cursors before and behind a change of the files' name, those before are too far."""
    files = [("old.000008", 100), ("old.000009", 100), ("new.000001", 100), ("new.000002", 100)]
    places = [
        EntryPosition("old.000009", 50),
        EntryPosition("new.000001", 4),
        EntryPosition("new.000002", 60),
        None,
    ]
    assert too_far_behind(places, files, None, one_name=True) == (210, 0, 0, 0)
    assert too_far_behind(places, files, 100, one_name=True) == (210, 156, 0, 0)
    assert too_far_behind(places, files, None) == (0, 0, 0, 0)
    assert too_far_behind(places[:1], files, None, one_name=True) == (0,)


def test_who_has_more_than_the_server_keeps_nobody_else_from_it() -> None:
    """Seed 1421033 of the simulation: a standby had lacked what one subscriber was given; the other
    ones, which had gone on there, waited with it, and had no error."""
    place, _ = of_transaction(SECOND, 3)
    old = EntryPosition("mysql-bin.000033", 999)
    ahead = cursor(replace(old, gtid=f"{place.gtid},{UUID}:1-5"), THERE)
    for other in (cursor(replace(old, gtid=place.gtid), THERE), cursor(place)):
        start = decide(source(), [ahead, other], ServersLog(), options=PARTIAL)
        assert [type(failure) for failure in start.failures] == [TransactionsMissing, type(None)]
        assert start.position == place
    with pytest.raises(TransactionsMissing, match=f"{UUID}:1-5"):
        decide(source(), [ahead], ServersLog(), options=PARTIAL)
