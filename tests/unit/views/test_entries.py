"""Entries against Canal's own where tests/golden does not look: GTIDs, time zones, number texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_canal.binlog.events import MAGIC
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.config import InstanceConfig
from ray_canal.errors import ConfigError
from ray_canal.model.gtid import GtidSet
from ray_canal.model.table_meta import RDS_HIDDEN_KEY
from ray_canal.offline import decode_chunks, decode_entries
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.open_source import open_source
from ray_canal.views.entries import iter_entries, render_entries
from tests.golden import GOLDEN, GTIDLOG, split_delimited
from tests.unit.binlog.golden import read_events

Place = tuple[int, str, int]


def place(entry: Any) -> Place:
    return entry.header.logfileOffset, entry.header.tableName, entry.entryType


def canal(path: Path) -> list[Any]:
    entries = [pb.Entry.FromString(m) for m in split_delimited(path.read_bytes())]
    return [entry for entry in entries if entry.entryType != GTIDLOG]


def ours(server: str, name: str, **options: Any) -> dict[Place, Any]:
    """Our entries by place; `gtid_set` is what was executed before the file."""
    path = GOLDEN / server / f"{name}.binlog"
    found: dict[Place, Any] = {}
    for data in decode_entries([path], schema_sql=path.with_suffix(".schema.sql"), **options):
        for message in split_delimited(data):
            entry = pb.Entry.FromString(message)
            found.setdefault(place(entry), entry)
    return found


def columns(entry: Any) -> list[Any]:
    rows = pb.RowChange.FromString(entry.storeValue).rowDatas
    return [c for row in rows for c in (*row.beforeColumns, *row.afterColumns)]


DIGEST = """
import hashlib, sys
from ray_canal.offline import decode_chunks
from ray_canal.views.entries import delimited_pieces
digest = hashlib.sha256()
for name in sys.argv[1:]:
    for _, chunk in decode_chunks([name]):
        count = chunk.layout.event_count
        for piece in delimited_pieces(chunk, 0, count, gtid=True, time_zone="Asia/Shanghai"):
            digest.update(piece)
print(digest.hexdigest())
"""


def test_plain_python_writes_the_same_bytes() -> None:
    """The kernels' source runs without numba, and is its own reference."""
    names = ["dml", "enumsetbit", "numeric", "temporal", "json", "strings", "geometry", "rowsquery"]
    files = [str(GOLDEN / "mysql97" / f"mysql_{name}.binlog") for name in names]
    digests = [
        subprocess.run(
            [sys.executable, "-W", "error::RuntimeWarning", "-c", DIGEST, *files],
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ("0", "1")
    ]
    assert digests[0] == digests[1]
    assert len(digests[0].strip()) == 64


def test_mysql_gtid_headers() -> None:
    """header.gtid is the whole set, the earlier servers' transactions included."""
    wanted = canal(GOLDEN / "mysql97" / "mysql_dml.gtid.pb")
    before = "00000000-0000-0000-0000-000000000001:1-5"
    assert wanted[0].header.gtid.startswith(before)
    found = ours("mysql97", "mysql_dml", gtid=True, gtid_set=before)
    assert all(found[place(entry)].header == entry.header for entry in wanted)
    last = GtidSet.parse(wanted[-1].header.gtid)
    assert GtidSet.parse(before).issubset(last)
    assert len({entry.header.gtid for entry in wanted}) > 20


def test_mariadb_gtid_headers() -> None:
    """MariaDB's GTID stands in header.gtid alone; Canal has no curtGtid there."""
    found = ours("mariadb1011", "maria_dml", gtid=True)
    compared = 0
    for entry in canal(GOLDEN / "mariadb1011" / "maria_dml.gtid.pb"):
        mine = found.get(place(entry))
        if mine is None or entry.header.eventType not in (pb.INSERT, pb.UPDATE, pb.DELETE):
            continue
        entry.header.logfileName = mine.header.logfileName  # Canal saw the server's own name
        assert mine.header == entry.header
        compared += 1
    assert compared == 40


def test_no_gtid_fields_unless_asked() -> None:
    for entry in ours("mysql97", "mysql_dml").values():
        assert not entry.header.gtid
        assert {pair.key for pair in entry.header.props} <= {"rowsCount"}


@pytest.mark.parametrize(
    ("kind", "zone"),
    [("tsdb", "UTC"), ("tzBerlin", "Europe/Berlin"), ("tzShanghai", "Asia/Shanghai")],
)
def test_timestamps_in_a_zone(kind: str, zone: str) -> None:
    found = ours("mysql97", "mysql_temporal", time_zone=zone)
    moved = 0
    utc = ours("mysql97", "mysql_temporal")
    for entry in canal(GOLDEN / "mysql97" / f"mysql_temporal.{kind}.pb"):
        if entry.header.eventType not in (pb.INSERT, pb.UPDATE, pb.DELETE):
            continue
        for theirs, mine, plain in zip(
            columns(entry), columns(found[place(entry)]), columns(utc[place(entry)]), strict=True
        ):
            theirs.mysqlType = mine.mysqlType  # tsdb keeps the DDL's words: timestamp(0)
            assert mine == theirs
            moved += mine.value != plain.value
    assert (moved > 20) == (zone != "UTC")


def test_numbers_as_java_25_prints_them() -> None:
    """All types' values; Canal drops a decimal's trailing group of zeros, which we keep."""
    found = ours("mysql97", "mysql_numeric")
    floats = shortened = 0
    for entry in canal(GOLDEN / "mysql97" / "mysql_numeric.jdk25.pb"):
        if entry.header.eventType not in (pb.INSERT, pb.UPDATE, pb.DELETE):
            continue
        for theirs, mine in zip(columns(entry), columns(found[place(entry)]), strict=True):
            theirs.mysqlType = mine.mysqlType
            if theirs.value != mine.value:
                assert theirs.sqlType == 3
                assert mine.value.startswith(theirs.value)
                assert set(mine.value[len(theirs.value) :]) == {"0"}
                theirs.value = mine.value
                shortened += 1
            assert mine == theirs
            floats += theirs.sqlType in (7, 8) and bool(theirs.value)
    assert floats > 100
    assert 0 < shortened < 20


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "Europe", "../UTC", "/etc", "x" * 300])
def test_what_is_no_zone(zone: str) -> None:
    [(_, chunk)] = list(decode_chunks([GOLDEN / "mysql97" / "mysql_geometry.binlog"]))[:1]
    with pytest.raises(ConfigError, match="no time zone"):
        render_entries(chunk, 0, 1, time_zone=zone)


def test_a_hidden_key_is_a_key_that_never_counts_as_updated(tmp_path: Path) -> None:
    """As Canal shows Alibaba RDS's: here, a table's real BIGINT that its schema does not tell."""
    events = list(read_events(GOLDEN / "mysql56" / "mysql56_ddl.binlog"))
    number = next(
        i for i, (_, head, raw) in enumerate(events) if head.type_code == 19 and b"d2" in raw
    )
    path = tmp_path / "hidden.binlog"
    parts = [raw for _, _, raw in (events[0], events[number], events[number + 1])]
    path.write_bytes(MAGIC + b"".join(parts))
    config = InstanceConfig.model_validate({"destination": "d", "source": {"files": [str(path)]}})
    sql = "CREATE TABLE g_ddl.d2 (first_c int, id int, nm2 varchar(30))"
    parser = EventParser(SchemaRegistry(sql, hidden_key=lambda: RDS_HIDDEN_KEY))
    source = open_source(config)
    source.open(None)
    raw = source.read(0.0, 0.0)
    source.close()
    assert raw is not None
    _, chunk = parser.decode_chunk(raw)
    [entry] = iter_entries(chunk, 0, chunk.layout.event_count)
    *others, hidden = columns(entry)
    assert all(column.updated and not column.isKey for column in others)
    assert (hidden.name, hidden.mysqlType, hidden.sqlType) == (RDS_HIDDEN_KEY, "bigint", -5)
    assert hidden.isKey
    assert not hidden.updated
    assert hidden.value == "1"
