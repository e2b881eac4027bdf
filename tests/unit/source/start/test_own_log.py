"""Whether a cursor is still at its place in the same log, over real files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.executed import gtid_set_after
from ray_canal.errors import PositionNotFound, PositionPurged, SourceError, TransactionsMissing
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition, SourceIdentity
from ray_canal.model.start import StartOptions
from ray_canal.model.timeline import LogFile
from ray_canal.source.start.decision import decide
from ray_canal.source.start.log_file import MICROS, transactions
from ray_canal.source.start.search import Search
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
    opened,
    source,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "data"


def place_of(name: str = SECOND, index: int = 5) -> EntryPosition:
    """What a cursor behind the transaction before this one knows."""
    place, _ = of_transaction(name, index)
    around = Search(ServersLog()).surroundings(name, place.position)
    return replace(place, commit_us=around.last_us, timestamp=around.before_s)


def refused(position: EntryPosition, **settings: object) -> SourceError:
    log = ServersLog(**settings)  # type: ignore[arg-type]
    with pytest.raises(SourceError) as caught:
        decide(source(), [cursor(position)], log)
    error = caught.value
    assert error.other_log
    assert not error.retryable
    for word in ("on_reset", "reset", str(position)):
        assert word in str(error)
    return error


def test_a_cursor_in_its_own_log_stays() -> None:
    place = place_of()
    for known in (place, replace(place, created_s=0), replace(place, created_s=0, gtid="")):
        start = decide(source(), [cursor(known)], ServersLog())
        assert start.position == place
        assert start.position.created_s == place.created_s > 0
        assert start.same_log


def test_a_first_event_that_a_proxy_makes_up() -> None:
    """A1: the file's age differs, and the last commit is the same to the microsecond."""
    place = place_of()
    start = decide(source(), [cursor(replace(place, created_s=1))], ServersLog())
    assert start.position == place
    assert start.position.created_s == place.created_s
    assert start.same_log
    assert "was created" in str(refused(replace(place, created_s=1, commit_us=0)))


@pytest.mark.parametrize(
    ("newest", "same_log"),
    [
        (LogFile(), True),
        (LogFile("mysql-bin.000000", 5), True),  # purged since
        (LogFile(THIRD, 5), False),
        (LogFile("mysql-bin.000009", 5), False),
        (LogFile("binlog.000001", 5), False),
    ],
)
def test_what_was_handed_out_beyond_the_cursors(newest: LogFile, same_log: bool) -> None:
    """A1, A6: a cursor is where it was, and a file behind it that was read is not there."""
    place, options = place_of(), StartOptions(newest=newest)
    start = decide(source(), [cursor(place)], ServersLog(), options=options)
    assert (start.position, start.same_log) == (place, same_log)
    began = StartOptions(newest=newest, unattended=cursor(place))
    assert decide(source(), [], ServersLog(), options=began).same_log == same_log
    joins = StartOptions(newest=newest, joins=True)  # a new subscriber that begins elsewhere
    assert decide(source(), [], ServersLog(), options=joins).same_log == same_log
    assert not decide(source(), [], ServersLog(), options=StartOptions(newest=newest)).same_log
    there = LogFile(THIRD, Search(ServersLog()).head(THIRD).created_s)
    options = StartOptions(newest=there)
    assert decide(source(), [cursor(place)], ServersLog(), options=options).same_log


def test_a_place_inside_of_a_transaction_that_the_file_ends_before() -> None:
    """A1, seeds 1320226 and 1420581 of the simulation: rows of the last transaction were acked, and
    the server lost it. Its beginning is where the file ends now."""
    place = replace(place_of(), position=dict(ServersLog().files())[SECOND])
    assert decide(source(), [cursor(place)], ServersLog()).position == place
    inside = replace(place, row=3, entry=4, open_gtid="")
    assert "ends at" in str(refused(inside))
    read = StartOptions(read_to=inside)
    assert not decide(source(), [cursor(place_of())], ServersLog(), options=read).same_log


@pytest.mark.parametrize(("missing", "same_log"), [(0, True), (1, False)])
def test_a_file_that_was_read_further_than_it_is_long(missing: int, same_log: bool) -> None:
    """A1: the server's machine died before all that it had sent was on its disk, or a copy with the
    same file was put back: the cursor is where it was, and an ack since may be behind the end."""
    place, sizes = place_of(), dict(ServersLog().files())
    read_to = EntryPosition(THIRD, sizes[THIRD] + missing)
    start = decide(source(), [cursor(place)], ServersLog(), options=StartOptions(read_to=read_to))
    assert (start.position, start.same_log) == (place, same_log)
    purged = StartOptions(read_to=EntryPosition("mysql-bin.000000", 1 << 31))
    assert decide(source(), [cursor(place)], ServersLog(), options=purged).same_log


def test_a_log_that_was_reset() -> None:
    """A1: the log was reset and the cursor's file is gone, or there again: its GTIDs tell."""
    own = ServersLog().executed().split(":", maxsplit=1)[0]
    more = f"{own}:1-100000"
    for name, position in (
        ("mysql-bin.000040", 5000),
        (THIRD, place_of(THIRD, 4).position),
        (THIRD, place_of(THIRD, 4).position + 7),
        (THIRD, 1 << 31),
    ):
        old = EntryPosition(name, position, gtid=more, timestamp=1_700_000_000)
        error = refused(old)
        assert isinstance(error, TransactionsMissing)
        lacking = GtidSet.parse(more).subtract(GtidSet.parse(ServersLog().executed()))
        assert str(lacking) in str(error)
    # It has grown past the cursor's GTIDs since: they name other transactions now.
    place = place_of()
    for other in (
        replace(place, created_s=place.created_s - 1, commit_us=place.commit_us - 1),
        replace(place, created_s=place.created_s - 1, commit_us=0, timestamp=0),
        replace(place, journal_name="mysql-bin.000040"),
        replace(place, position=1 << 31),
    ):
        assert isinstance(refused(other), PositionNotFound)
    # … and its first files are purged, or its files have another name.
    for other in (
        replace(place, journal_name="binlog.000007", commit_us=place.commit_us - MICROS),
        replace(place, journal_name="mysql-bin.000000", commit_us=place.commit_us - 1),
        replace(place, journal_name="mysql-bin.000000", commit_us=0, timestamp=7),
    ):
        error = refused(other)
        assert isinstance(error, TransactionsMissing)
        assert "other transactions" in str(error)


def test_without_gtids() -> None:
    """A1, A12: without GTIDs, a file of another age, a shorter one, or one with something else
    there is another log."""
    place = replace(place_of(), gtid="")
    for other, why in (
        (replace(place, created_s=place.created_s - 1, commit_us=0), "was created"),
        (replace(place, position=1 << 31), "ends at"),
        (replace(place, journal_name="mysql-bin.000040"), "it has no mysql-bin.000040"),
        (replace(place, created_s=0, position=place.position + 7), "no event begins"),
        (replace(place, created_s=0, timestamp=7, commit_us=0), "the event before"),
        (replace(place, created_s=0, commit_us=7), "committed"),
    ):
        error = refused(other, gtids_on=False)
        assert isinstance(error, PositionNotFound)
        assert why in str(error)
    older = replace(place, journal_name=FIRST)
    with pytest.raises(PositionPurged):
        decide(source(), [cursor(older)], ServersLog(FILES[1:], gtids_on=False))


def test_a_restored_server_that_has_more_before_the_same_offset() -> None:
    """A1: what the log has before the offset, and the cursor has not, would be skipped."""
    place = replace(place_of(), created_s=0, commit_us=0, timestamp=0)
    own = place.gtid.split(":", maxsplit=1)[0]
    with pytest.raises(SourceError, match="executed already"):
        decide(source(), [cursor(replace(place, gtid=f"{own}:1-3"))], ServersLog(FILES[1:]))


def test_on_reset_goes_on() -> None:
    """A1: what to do is the configuration's choice, and it is said in the start."""
    old = EntryPosition("mysql-bin.000040", 5000, gtid=f"{UUID}:1-9")
    start = decide(source(on_reset="earliest"), [cursor(old)], ServersLog())
    assert start.position == EntryPosition(FIRST, 4)
    assert f"{UUID}:1-9" in start.how
    assert not start.same_log
    start = decide(source(on_reset="latest"), [cursor(old)], ServersLog())
    assert start.position == ServersLog().end()
    with pytest.raises(TransactionsMissing):
        decide(source(on_purged="earliest"), [cursor(old)], ServersLog())


def test_an_imported_cursor_is_known_by_its_events_time() -> None:
    """b7: Canal's cursor is where the last acked entry begins; that entry comes again, no more."""
    place, nobody = place_of(), SourceIdentity("127.0.0.1:3306")
    log = ServersLog()
    search = Search(log)
    data = FILES[1].read_bytes()
    at, begins = place.position, []
    while at < of_transaction(SECOND, 6)[0].position:
        begins.append(at)
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    for at in begins:
        around = search.surroundings(SECOND, at)
        canals = EntryPosition(SECOND, at, timestamp=around.at_s)
        found = decide(source(), [cursor(canals, nobody)], ServersLog()).position
        assert (found.position, found.gtid) == (place.position, place.gtid)
        assert found.entry == around.entries
        with pytest.raises(PositionNotFound, match="is an event of"):
            decide(source(), [cursor(replace(canals, timestamp=7), nobody)], ServersLog())
    assert found.entry > 0
    for wrong in (
        EntryPosition(SECOND, place.position),
        EntryPosition(SECOND, place.position + 1, timestamp=7),
    ):
        with pytest.raises(PositionNotFound, match="on_reset"):
            decide(source(), [cursor(wrong, nobody)], ServersLog())


def test_a_younger_server_without_gtids() -> None:
    """A11: a standby whose log begins behind the cursor's last event lacks what lies between."""
    first = Search(ServersLog(gtids_on=False)).first
    early = EntryPosition("mysql-bin.000077", 999, timestamp=first.created_s - 3600)
    elsewhere = SourceIdentity("127.0.0.1:3306", "server-b")
    with pytest.raises(PositionPurged) as caught:
        decide(source(), [cursor(early, elsewhere)], ServersLog(gtids_on=False))
    assert caught.value.lost is not None
    start = decide(
        source(on_purged="earliest"), [cursor(early, elsewhere)], ServersLog(gtids_on=False)
    )
    assert start.position == EntryPosition(FIRST, 4)


@pytest.mark.parametrize("wide", [True, False])
def test_an_offset_beyond_4_gib(wide: bool) -> None:
    """B7: where a server cannot be asked for it, the file is read from its beginning, and what lies
    before the cursor is passed over; a start that is configured so is refused."""
    place = place_of()
    far = replace(place, position=(1 << 32) + 7)
    log = ServersLog()
    sizes = dict(log.files()) | {SECOND: 1 << 33}
    log.files = lambda: list(sizes.items())  # type: ignore[method-assign]
    log.offsets_max = lambda: 1 << (63 if wide else 32)  # type: ignore[method-assign]
    start = decide(source(), [cursor(far)], log)
    assert start.cursors == (far,)
    assert start.same_log
    assert start.position == (far if wide else EntryPosition(SECOND, 4))
    if not wide:
        assert start.position.gtid == Search(ServersLog()).head(SECOND).gtids
        assert "from its beginning" in start.how
        log.end = lambda: far  # type: ignore[method-assign]
        with pytest.raises(PositionNotFound, match="below 4 GiB"):
            decide(source(start="latest"), (), log)


@pytest.mark.parametrize("kind", ["mysql56/mysql56_strings", "mariadb1011/maria_dml"])
def test_another_server_that_began_its_gtids_again_without_microseconds(kind: str) -> None:
    """A1: both servers were reset, and the other one's log is past the cursor's GTIDs by now. What
    it has under them is later than what was delivered; a replica's commit may be earlier."""
    log = ServersLog([GOLDEN / f"{kind}.binlog"])
    (name, _), = log.files()
    gtids = np.concatenate([some.gtids for some in transactions(log, name)])
    for index in (1, len(gtids) // 2, len(gtids) - 1):
        place = Search(log).boundary(name, int(gtids["position"][index]))
        last_s = Search(log).surroundings(name, place.position).before_s
        begun = int(gtids["position"][index - 1])
        rows_s = Search(log).surroundings(name, begun).at_s
        old = EntryPosition("mysql-bin.000033", 999, gtid=place.gtid)
        for second in (0, min(rows_s, last_s), last_s, last_s + 5):
            known = cursor(replace(old, timestamp=second), THERE)
            assert decide(source(), [known], log).position == place
        earlier = replace(old, timestamp=Search(log).first.created_s - 1)
        for known in (earlier, replace(earlier, row=1, entry=2, open_gtid=of(gtids[index]))):
            with pytest.raises(TransactionsMissing, match="transactions under the GTIDs") as it:
                decide(source(), [cursor(known, THERE)], log)
            # Behind a parallel replica of MySQL 5 it may be the right log: that is said.
            told = "slave_preserve_commit_order" in str(it.value) and "seek GTIDS" in str(it.value)
            assert told == kind.startswith("mysql56")
        accepted = source(start="gtid", gtid_set=place.gtid)
        assert decide(accepted, (), log).position.gtid == place.gtid


def of(gtid: Any) -> str:
    return gtid_set_after("", gtid.reshape(1))


def test_a_partly_acked_transaction_of_a_server_that_began_its_gtids_again() -> None:
    """A1: the open transaction's GTID names another one, which its commit time tells."""
    place, record = of_transaction(SECOND, 3)
    old = EntryPosition("mysql-bin.000033", 999, 5, place.gtid, entry=7, timestamp=1_700_000_000)
    old = replace(old, open_gtid=opened(SECOND, 3), commit_us=int(record["original_us"]))
    assert decide(source(), [cursor(old, THERE)], ServersLog()).position.row == 5
    with pytest.raises(TransactionsMissing, match="other transactions under the GTIDs"):
        decide(source(), [cursor(replace(old, commit_us=old.commit_us - 7), THERE)], ServersLog())
