"""Column names, keys and type texts of rows, from row metadata and the DDL in real binlogs,
against what Canal's own history of DDL made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.errors import DecodeError
from ray_canal.offline import decode_entries
from tests.golden import GOLDEN, split_delimited

CASES = sorted(path for path in GOLDEN.glob("*/*.tsdb.pb"))

Column = tuple[str, str, bool]


def columns(messages: list[bytes]) -> dict[tuple[int, str], list[Column]]:
    """(offset, table) of row entries: their columns' names, types and keys."""
    found: dict[tuple[int, str], list[Column]] = {}
    for message in messages:
        entry = pb.Entry.FromString(message)
        change = pb.RowChange.FromString(entry.storeValue if entry.entryType == 2 else b"")
        for row in change.rowDatas:
            found.setdefault((entry.header.logfileOffset, entry.header.tableName), []).extend(
                (column.name, column.mysqlType, column.isKey)
                for column in (*row.beforeColumns, *row.afterColumns)
            )
    return found


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_columns_are_canals(path: Path) -> None:
    mine: dict[tuple[int, str], list[Column]] = {}
    decoded_all = True
    try:
        for rendered in decode_entries([path.with_name(path.name.replace("tsdb.pb", "binlog"))]):
            mine.update(columns(split_delimited(rendered)))
    except DecodeError as error:
        if "is not decoded" not in str(error) and "COMPRESSED" not in str(error):
            raise
        decoded_all = False  # an event type that is not decoded yet
    canals = columns(split_delimited(path.read_bytes()))
    for place in mine.keys() & canals.keys():
        # Canal leaves the doubled back-tick in the name.
        theirs = [(name.replace("``", "`"), *rest) for name, *rest in canals[place]]
        assert mine[place] == theirs
    assert mine.keys() >= canals.keys() or not decoded_all
