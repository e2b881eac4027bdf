"""Rows that were read, as chunks of a log: rows left out, ids, props, both views."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.config import SourceConfig
from ray_canal.model import canal_types
from ray_canal.model.snapshot_marks import (
    MARK,
    MARK_END,
    STATE,
    TABLES,
    SnapshotMark,
    joined,
    mark_of,
    names_in,
)
from ray_canal.snapshot.chunks import Origin, decoded
from ray_canal.snapshot.columns import selection
from ray_canal.snapshot.log_chunks import LogPlace, emptied_at, mark_at, rows_at
from ray_canal.snapshot.result import ResultReader
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from ray_canal.views.table_events import change_batches
from tests.unit.snapshot.test_result import END, META, Server, head, row_of

ROWS = 2500
PLACE = LogPlace("mysql-bin.000007", 4711, 50, (("snapshot", "s1"), ("snapshotChunk", "d.t/1")))


def framed(rows: int = ROWS) -> DecodedChunk:
    """A chunk of rows with NULLs, texts of all lengths, wide decimals and times."""
    values = [
        (
            key,
            None if key % 5 == 0 else b"x" * (key % 11),
            b"%d.50" % key,
            None if key % 3 else b"1.25",
            (2026, 2, 3, 4, 5, 6, key),
            b"\xe9" * (key % 4),
        )
        for key in range(rows)
    ]
    answer, chunks = head() + b"".join(map(row_of, values)) + END, list[DecodedChunk]()
    while len(chunks) != 1:  # a machine under load may let the reader see some rows earlier
        chunks = chunks_of(answer)
    return chunks[0]


def chunks_of(answer: bytes) -> list[DecodedChunk]:
    server, wanted = Server(answer), selection(META)
    reader = ResultReader(server, SourceConfig(address="127.0.0.1:1", username="root"))
    try:
        return [
            decoded(wanted, piece, Origin("", 0, 9, 1_700_000_000), 0, framed=True)
            for piece in reader.pieces("SELECT", wanted)
        ]
    finally:
        server.close()


def rows_of(chunk: DecodedChunk) -> list[dict[str, Any]]:
    found = batches(chunk, 0, chunk.layout.event_count)
    return [row for batch in found for row in batch.to_pylist()]


def test_rows_are_at_their_place_with_ids_that_rise() -> None:
    info, chunk = rows_at(framed(), np.ones(ROWS, np.bool_), PLACE)
    rows = rows_of(chunk)
    assert [row["after"]["id"] for row in rows] == list(range(ROWS))
    assert {row["event_type"] for row in rows} == {"READ"}
    assert {(row["journal_name"], row["position"]) for row in rows} == {(PLACE.journal_name, 4711)}
    assert [row["row"] for row in rows] == list(range(50, 50 + ROWS))
    assert {row["before"] for row in rows} == {None}
    kinds = info.entries["kind"].tolist()
    assert kinds == [canal_types.BEGIN, *[canal_types.ROWDATA] * 3, canal_types.END]
    assert int(info.entries["rows"].sum()) == ROWS


def test_rows_that_are_left_out_leave_all_others_as_they_are() -> None:
    everything = {row["after"]["id"]: row["after"] for row in rows_of(framed())}
    for seed in range(6):
        kept = np.random.default_rng(seed).random(ROWS) < (0.001, 0.1, 0.5, 0.9, 0.999, 0.3)[seed]
        kept[seed] = True
        _, chunk = rows_at(framed(), kept, PLACE)
        rows = rows_of(chunk)
        assert [row["after"] for row in rows] == [everything[k] for k in np.flatnonzero(kept)]
        assert [row["row"] for row in rows] == list(range(50, 50 + int(kept.sum())))


def test_entries_are_a_transaction_whose_headers_name_the_snapshot() -> None:
    _, chunk = rows_at(framed(1500), np.ones(1500, np.bool_), PLACE)
    entries = list(iter_entries(chunk, 0, chunk.layout.event_count))
    assert [e.entryType for e in entries] == [
        pb.TRANSACTIONBEGIN, pb.ROWDATA, pb.ROWDATA, pb.TRANSACTIONEND,
    ]  # fmt: skip
    for entry in entries:
        assert {p.key: p.value for p in entry.header.props if p.key.startswith("snap")} == {
            "snapshot": "s1", "snapshotChunk": "d.t/1",
        }  # fmt: skip
        assert (entry.header.logfileName, entry.header.logfileOffset) == (PLACE.journal_name, 4711)
    change = pb.RowChange.FromString(entries[1].storeValue)
    assert change.eventType == pb.INSERT
    assert len(change.rowDatas) == 1000
    assert all(column.updated for column in change.rowDatas[1].afterColumns)


def test_a_mark_says_what_it_is_and_has_no_rows() -> None:
    props = (("snapshot", "s1"), (MARK, MARK_END), (TABLES, "d.t,d.u"), (STATE, "done"))
    info, chunk = mark_at(LogPlace("mysql-bin.000007", 4711, 99, props), 1_700_000_000, 9)
    assert rows_of(chunk) == []
    assert len(info.entries) == 1
    [entry] = iter_entries(chunk, 0, 1)
    assert entry.entryType == pb.ROWDATA
    assert entry.header.eventType == pb.QUERY
    found = mark_of(dict(chunk.layout.props), chunk.layout.journal_name, 4711)
    assert found == SnapshotMark(
        MARK_END, "s1", ("d.t", "d.u"), "mysql-bin.000007", 4711, "done", ""
    )
    assert mark_of({}, "x", 4) is None


@pytest.mark.parametrize(
    "names", [(), ("d.t",), ("d.t", "d.a,b", "a`,`b.t", "d.`", "d.x y"), ("`.`", "`,.,`", ",.``")]
)
def test_names_of_a_mark_may_have_commas_and_backticks(names: tuple[str, ...]) -> None:
    assert names_in(joined(names)) == names


def test_tables_that_are_emptied() -> None:
    metas = [dataclasses.replace(META, table=name) for name in ("t", "a`b")]
    info, chunk = emptied_at(metas, PLACE, 1_700_000_000, 9)
    found = [
        (batch.schema.metadata[b"canal.table"].decode(), row["event_type"], row["row"])
        for batch in change_batches(chunk, 0, 2)
        for row in batch.to_pylist()
    ]
    assert found == [("t", "TRUNCATE", 50), ("a`b", "TRUNCATE", 51)]
    assert info.tables == (("d", "t"), ("d", "a`b"))
    assert info.entries["table"].tolist() == [0, 1]
    entries = list(iter_entries(chunk, 0, 2))
    changes = [pb.RowChange.FromString(entry.storeValue) for entry in entries]
    assert [(one.eventType, one.isDdl) for one in changes] == [(pb.TRUNCATE, True)] * 2
    assert [one.sql for one in changes] == ["TRUNCATE TABLE `d`.`t`", "TRUNCATE TABLE `d`.`a``b`"]
    assert {entry.header.logfileOffset for entry in entries} == {4711}
