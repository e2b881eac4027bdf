"""What a log has at a place: held against a walk over all transactions of real files."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path

import pytest

from ray_canal.binlog.walked import walk
from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, PositionNotFound, PositionPurged, TransactionsMissing
from ray_canal.model.position import EntryPosition
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.lookup import Located, locate, log_of, parse_place, told
from ray_canal.source.start.search import Search
from tests.unit.source.start.test_search import LOGS, all_transactions

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def instance(files: list[Path]) -> InstanceConfig:
    return InstanceConfig.model_validate(
        {"destination": "orders", "source": {"files": [str(path) for path in files]}}
    )


def located(files: list[Path], text: str, *, looking: bool) -> Located:
    config = instance(files)
    with log_of(config) as log:
        return locate(config.source, log, text, looking=looking)


def found_at(files: list[Path], text: str) -> Located:
    return located(files, text, looking=True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("latest", {"start": "latest"}),
        (" earliest ", {"start": "earliest"}),
        ("my-bin.000012:4711",
         {"start": "position", "journal_name": "my-bin.000012", "position": 4711}),
        ("2026-10-01T08:00:00Z",
         {"start": "timestamp", "timestamp": "2026-10-01T08:00:00+00:00"}),
        ("2026-10-01 08:00:00.5+08:00",
         {"start": "timestamp", "timestamp": "2026-10-01T08:00:00.500000+08:00"}),
        (f"{UUID.upper()}:1-5", {"start": "gtid", "gtid_set": f"{UUID}:1-5"}),
        ("0-1-5", {"start": "gtid", "gtid_set": "0-1-5"}),
    ],
)  # fmt: skip
def test_what_a_text_means(text: str, wanted: dict[str, object]) -> None:
    assert parse_place(text) == wanted


@pytest.mark.parametrize("text", ["", "yesterday", "2026-10-01T08:00:00", "2026-13-01T08:00:00Z"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        parse_place(text)


@pytest.mark.parametrize("name", LOGS)
def test_the_same_place_by_every_name(name: str) -> None:
    """An offset, a time, a GTID and a GTID set lead to one transaction."""
    files = LOGS[name]
    log = FilesLog(files)
    known = list(all_transactions(log))
    for place, time_us, _ in known[1 :: max(1, len(known) // 6)]:
        found = found_at(files, str(place))
        assert (found.place, found.place.gtid, found.commit_us) == (place, place.gtid, time_us)
        assert (found.is_event, found.inside_entries) == (True, 0)
        if place.gtid:
            assert located(files, place.gtid, looking=False).place == place
        if found.gtid and name != "mariadb":
            assert found_at(files, found.gtid) == found
    end = found_at(files, "latest")
    assert (end.place, end.commit_us, end.bytes_to_end) == (log.end(), 0, 0)
    assert "it is the end of the log" in "\n".join(told(end, "latest"))
    first = found_at(files, "earliest")
    sizes = sum(size for _, size in log.files())
    assert (first.place.position, first.bytes_to_end) == (4, sizes - 4)
    assert "a file begins there" in "\n".join(told(first, "earliest"))


def test_a_time_leads_to_the_first_transaction_not_before_it() -> None:
    known = list(all_transactions(FilesLog(binlog_files())))
    place, time_us, _ = known[len(known) // 2]
    epoch = dt.datetime.fromtimestamp(0, dt.timezone.utc)
    time = epoch + dt.timedelta(microseconds=time_us)
    found = found_at(binlog_files(), time.isoformat())
    assert found.place == next(each for each, t, _ in known if t >= time_us)
    assert found.commit_us == time_us
    assert f"executed before: {place.gtid}" in told(found, "then")


def test_inside_a_transaction_and_beside_an_event() -> None:
    """A person who copies an offset from a log message stands at the transaction's beginning."""
    files = binlog_files()
    log = FilesLog(files)
    places = [place for place, *_ in all_transactions(log)]
    pairs = itertools.pairwise(places)
    near = [(one, two) for one, two in pairs if one.journal_name == two.journal_name]
    place, after = max(near, key=lambda pair: pair[1].position - pair[0].position)
    events = [
        int(event)
        for chunk in log.chunks(place.journal_name, 1 << 20)
        for event in walk(chunk).events["position"]
        if place.position < event < after.position
    ]
    found = found_at(files, f"{place.journal_name}:{events[-1]}")
    assert (found.place, found.is_event) == (place, True)
    assert found.inside_entries > 0
    assert "is inside its transaction" in "\n".join(told(found, "there"))
    beside = found_at(files, f"{place.journal_name}:{place.position + 1}")
    assert not beside.is_event
    assert "no event begins" in "\n".join(told(beside, "there"))


def test_what_is_not_in_the_log_is_told() -> None:
    files = binlog_files()
    with pytest.raises(PositionNotFound, match="past the end"):
        found_at(files, f"{files[0].name}:999999999")
    with pytest.raises(PositionNotFound, match="no binlog file"):
        found_at(files, "other-bin.000001:4")
    later = LOGS["mysql97"][1:]
    with pytest.raises(PositionPurged):
        found_at(later, f"{UUID}:1-5")
    with pytest.raises(PositionPurged):
        found_at(later, f"{files[0].name}:4")
    assert Search(FilesLog(later)).one(f"{UUID}:5") is None
    server = found_at(files, "latest").place.gtid.partition(":")[0]
    for missing in (f"{UUID}:5", f"{server}:9999999"):
        with pytest.raises(PositionNotFound, match="purged, or has not been executed there"):
            found_at(later, missing)
    with pytest.raises(PositionNotFound, match="is in the future"):
        found_at(files, "2120-01-01T00:00:00Z")


@pytest.mark.parametrize("name", ["mysql97", "mariadb"])
def test_gtids_that_were_never_executed_are_told(name: str) -> None:
    files = LOGS[name]
    end = FilesLog(files).end().gtid
    assert located(files, end, looking=False).place == FilesLog(files).end()
    foreign = {"mysql97": [f"{UUID}:5"], "mariadb": ["0-77-136", "0-198-137"]}
    for more in foreign[name]:
        wanted = f"{end},{more}" if name == "mysql97" else more
        with pytest.raises(TransactionsMissing, match=f"never had {more}; it has {end}"):
            located(files, wanted, looking=False)


def test_plain_values_are_complete() -> None:
    tree = found_at(binlog_files(), "earliest").as_dict()
    assert tree["journal_name"] == binlog_files()[0].name
    assert {"address", "server", "gtids_before", "gtid", "commit_us", "end"} <= set(tree)
    assert EntryPosition(tree["journal_name"], tree["position"]) == EntryPosition(tree["first"])
