"""Searches over real files, each held against a plain walk over all of their transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ray_canal.binlog.chunk import EVENT_CLOSES
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.open_transactions import begins
from ray_canal.binlog.walked import walk
from ray_canal.demo import binlog_files
from ray_canal.kernels.framing import query as q
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks
from ray_canal.source.gtid_sets import missing_gtids, unknown_gtids
from ray_canal.source.start import log_file
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.log_file import MICROS, read_head, transactions
from ray_canal.source.start.search import Search

GOLDEN = Path(__file__).parents[3] / "golden" / "data"
LOGS = {
    "mysql97": binlog_files(),
    "mysql56": [GOLDEN / "mysql56" / "mysql56_strings.binlog"],
    "mariadb": [GOLDEN / "mariadb1011" / "maria_dml.binlog"],
}


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest) -> FilesLog:
    return FilesLog(LOGS[request.param])


def all_transactions(log: FilesLog) -> Iterator[tuple[EntryPosition, int, int]]:
    """(where it begins, its time, its original commit time) of each, in order."""
    for name, _ in log.files():
        gtids = read_head(log, name).gtids
        for some in transactions(log, name):
            for k in range(len(some.position)):
                before = gtid_set_after(gtids, some.gtids[:k])
                place = EntryPosition(name, int(some.position[k]), gtid=before)
                yield place, int(some.time_us[k]), int(some.original_us[k])
            gtids = gtid_set_after(gtids, some.gtids)


def test_by_time(log: FilesLog) -> None:
    known = list(all_transactions(log))
    assert len(known) > 5
    search = Search(log)
    exact = bool(known[0][2])
    for time_us in {known[k][1] + d for k in range(0, len(known), 7) for d in (-1, 0, 1, MICROS)}:
        threshold = time_us if exact else time_us // MICROS * MICROS
        wanted = next((place for place, t, _ in known if t >= threshold), log.end())
        found = search.time(time_us)
        if found is None:
            assert time_us <= known[0][1] + MICROS
        else:
            assert (found, found.gtid) == (wanted, wanted.gtid), time_us
    assert search.time(1 << 52) == log.end()
    assert search.time(0) is None


def test_by_gtids(log: FilesLog) -> None:
    known = list(all_transactions(log))
    search = Search(log)
    for place, *_ in known[1::5]:
        assert search.gtids(place.gtid) == place
    assert search.gtids(log.executed()) == log.end()


def test_by_gtids_that_lie_before_the_log() -> None:
    later = FilesLog(LOGS["mysql97"][1:])
    assert Search(later).gtids("") is None
    assert Search(later).gtids(Search(later).first.gtids) == EntryPosition(
        "mysql-bin.000002", int(next(transactions(later, "mysql-bin.000002")).position[0])
    )
    assert later.purged() == Search(later).first.gtids != ""


def test_behind_a_commit() -> None:
    log = FilesLog(LOGS["mysql97"])
    known = list(all_transactions(log))
    search = Search(log)
    times = [original for *_, original in known]
    assert all(times)
    for k in range(0, len(known), 9):
        first = times.index(times[k])
        after = known[first + 1][0] if first + 1 < len(known) else log.end()
        found = search.commit(times[k], 60 * MICROS)
        assert found == after
        assert search.commit(times[k], 60 * MICROS, inside=True) == known[first][0]
        assert found is not None
        assert found.gtid == after.gtid
    assert search.commit(times[3] + 1, MICROS) in (None, known[4][0])
    assert search.commit(1, MICROS) is None


def test_a_position_inside_a_transaction_goes_back(log: FilesLog) -> None:
    known = [place for place, *_ in all_transactions(log)]
    search = Search(log)
    for name, _ in log.files():
        events = np.concatenate([walk(chunk).events for chunk in log.chunks(name, 1 << 20)])
        starts = [place for place in known if place.journal_name == name]
        closing = events[events["kind"] == q.KIND_END]
        ends = set((closing["position"] + closing["length"]).tolist())
        for position in sorted({*events["position"].tolist(), *ends})[::3]:
            at = search.boundary(name, int(position))
            if int(position) in ends or position in {place.position for place in starts}:
                assert at.position == position
                after = [place for place in starts if place.position >= position]
                assert not after or at.gtid == after[0].gtid
            else:
                inside = [place for place in starts if place.position < position][-1]
                assert (at, at.gtid) == (inside, inside.gtid)


class Growing(FilesLog):
    """Files that are longer by now than they were looked at."""

    def __init__(self, paths: list[Path], grown: list[Path]) -> None:
        super().__init__(paths)
        self._grown = FilesLog(grown)

    def end(self) -> EntryPosition:
        return self._grown.end()


@pytest.mark.parametrize("piece_bytes", [700, 4 << 20])
def test_what_is_written_during_a_search_is_not_passed_over(
    log: FilesLog, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place behind all transactions is where the search has looked, not where the log ends by
    the time that it is over; a cursor at the later place loses what came in between. Found by a
    fault run: a standby that took over while it still replicated."""
    monkeypatch.setattr(log_file, "WALK_CHUNK_BYTES", piece_bytes)
    *before, last = log._paths.values()
    data = last.read_bytes()
    events = np.concatenate([walk(chunk).events for chunk in log.chunks(last.name, 1 << 20)])
    begins = [place.position for place, *_ in all_transactions(log)]
    original_us = [original for *_, original in all_transactions(log)]
    places = events["position"].tolist()
    for at in sorted({*begins[-3:], *places[:: len(places) // 4], len(data)}):
        shorter = tmp_path / last.name
        shorter.write_bytes(data[:at])
        some = Growing([*before, shorter], [*before, last])
        looked_at = FilesLog([*before, shorter])
        search = Search(some)
        for found in (search.gtids(log.executed()), search.time(1 << 52)):
            assert (found, found and found.gtid) == (looked_at.end(), looked_at.end().gtid)
        whole = [original for *_, original in all_transactions(looked_at)]
        if original_us[0] and whole and whole.count(whole[-1]) == 1:
            assert search.commit(whole[-1], MICROS) == looked_at.end()


def test_few_heads_are_read() -> None:
    log = FilesLog(LOGS["mysql97"])
    search = Search(log)
    middle = list(all_transactions(log))[300][1]
    log.read.clear()
    assert search.time(middle) is not None
    # Two or three heads, the file itself, and what was purged before the first.
    assert len(log.read) <= 5


@pytest.mark.parametrize(
    ("wanted", "have", "missing"),
    [
        ("", "", ""),
        ("0-1-5,1-1-7", "0-2-9", "1-1-7"),
        ("0-1-5", "", "0-1-5"),
        ("0-1-5", "0-1-4", "0-1-5"),
        (
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:4-5",
        ),
    ],
)
def test_missing_gtids(wanted: str, have: str, missing: str) -> None:
    assert missing_gtids(wanted, have) == missing


@pytest.mark.parametrize(
    ("wanted", "known", "unknown"),
    [
        ("", "", ""),
        ("0-1-5", "0-1-9", ""),
        ("0-1-5", "0-1-4,0-2-9", "0-1-5"),  # another server's number says nothing of this one's
        ("0-1-5,7-1-3", "0-2-9,0-1-5", "7-1-3"),
        ("0-1-5", "0-1-3,0-1-8", ""),  # of the log, and of what was replicated
        ("0-1-5", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9", "0-1-5"),
        (f"{'3e11fa47-71ca-11e1-9e33-c80aa9429562'}:1-5", "0-1-9",
         "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"),
    ],
)  # fmt: skip
def test_what_a_server_never_had(wanted: str, known: str, unknown: str) -> None:
    """A12: a MariaDB that was replaced does not pass for one that has the same domain."""
    assert unknown_gtids(wanted, known) == unknown


def test_what_lies_around_every_offset() -> None:
    """A1: what an own cursor is checked against, where it does not know its file's age."""
    for kind in ("mysql97", "mysql56", "mariadb"):
        log = FilesLog(LOGS[kind])
        search = Search(log)
        name = log.files()[0][0]
        data = log._paths[name].read_bytes()
        at, begins = 4, {}
        while at < len(data):
            begins[at] = int.from_bytes(data[at : at + 4], "little")
            at += int.from_bytes(data[at + 9 : at + 13], "little")
        places = sorted(begins)[:: max(1, len(begins) // 12)]
        for place in places:
            around = search.surroundings(name, place)
            assert around.is_event
            assert around.at_s == begins[place]
            assert around.start.position <= place
            assert around.start.created_s == begins[4]
            assert not search.surroundings(name, place + 1).is_event
        assert search.surroundings(name, len(data)).is_event


XA_LOGS = [GOLDEN / "mysql97" / "mysql_xa.binlog", GOLDEN / "mariadb1011" / "maria_xa.binlog"]


@pytest.mark.parametrize("path", XA_LOGS, ids=lambda path: path.stem)
def test_xa_transactions_begin_and_end_as_others(path: Path) -> None:
    """XA START was taken for the end of one, and XA END for none: a place inside was no boundary,
    and (MariaDB) the place behind was."""
    log = FilesLog([path])
    search, (name, _) = Search(log), log.files()[0]
    seen = 0
    for info, _ in decode_chunks([path]):
        seen += len(info.entries)
        starts = begins(info, np.arange(len(info.entries)))
        for number, entry in enumerate(info.entries):
            position = int(entry["position"])
            assert search.boundary(name, position).position == starts[number]
            if entry["flags"] & EVENT_CLOSES:
                behind = position + int(entry["length"])
                assert search.boundary(name, behind).position == behind
    assert seen > 10
