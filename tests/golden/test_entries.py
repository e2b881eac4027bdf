"""Our entries against Canal's own, byte for byte, where nothing but the row images decides.

Every case of cases.tsv will be compared when every event and type is decoded and DDL is applied to
schemas; here are those that today's decoder does completely. """

from __future__ import annotations

import pytest

from ray_canal.offline import decode_entries
from ray_canal.protocol.generated import EntryProtocol_pb2 as pb
from tests.golden import GOLDEN, GTIDLOG, split_delimited

WHOLE = [
    ("mysql97", "mysql_temporal", "live"),
    ("mysql97", "mysql_geometry", "live"),
]
"""Files whose every entry is byte-identical to Canal's."""

# Files whose row entries are byte-identical; their other entries differ for named reasons.
ROWS = [
    ("mysql97", "mysql_dml", "live"),
    ("mysql97", "mysql_enumsetbit", "live"),
]


def canal(server: str, name: str, kind: str) -> list[bytes]:
    data = (GOLDEN / server / f"{name}.{kind}.pb").read_bytes()
    return [m for m in split_delimited(data) if pb.Entry.FromString(m).entryType != GTIDLOG]


def ours(server: str, name: str) -> list[bytes]:
    folder = GOLDEN / server
    rendered = decode_entries(
        [folder / f"{name}.binlog"], schema_sql=folder / f"{name}.schema.sql"
    )
    return [message for chunk in rendered for message in split_delimited(chunk)]


@pytest.mark.parametrize(("server", "name", "kind"), WHOLE)
def test_byte_identical(server: str, name: str, kind: str) -> None:
    assert ours(server, name) == canal(server, name, kind)


@pytest.mark.parametrize(("server", "name", "kind"), ROWS)
def test_row_entries_are_the_same(server: str, name: str, kind: str) -> None:
    """Each of Canal's row entries is among ours, by its place, with the same bytes."""
    mine = {}
    for message in ours(server, name):
        entry = pb.Entry.FromString(message)
        mine.setdefault((entry.header.logfileOffset, entry.header.tableName), message)
    compared = different = 0
    for message in canal(server, name, kind):
        entry = pb.Entry.FromString(message)
        if entry.entryType != pb.ROWDATA or not pb.RowChange.FromString(entry.storeValue).rowDatas:
            continue
        compared += 1
        place = (entry.header.logfileOffset, entry.header.tableName)
        different += mine.get(place) != message
    assert compared > 5
    assert different == 0
