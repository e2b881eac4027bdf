"""Transactions of chunks: names, places, rows by table and outcomes, in real logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ray_canal.binlog.open_transactions import OpenTransactions
from ray_canal.model.log_context import LogContext
from ray_canal.offline import decode_chunks
from ray_canal.views.transactions import SCHEMA, ended_transactions, no_transactions
from tests.chunk_cuts import cut_files
from tests.golden import GOLDEN
from tests.transactions_oracle import known_transactions
from tests.unit.views.test_envelope import LOGS, gtid_texts, paths

__all__ = ["paths"]  # a fixture


def ended(files: Sequence[Path], timeline: int = 0) -> list[dict[str, Any]]:
    transactions = OpenTransactions()
    found: list[dict[str, Any]] = []
    for info, chunk in decode_chunks(files):
        context, count = LogContext(timeline, transactions.add(info)), chunk.layout.event_count
        batch = ended_transactions(chunk, (0, count), None, None, context)
        batch.validate(full=True)
        assert batch.schema.equals(SCHEMA)
        found += batch.to_pylist()
    return found


@pytest.mark.parametrize("chunk_bytes", [300, 4096, 3 << 20])
def test_each_transaction_once_with_its_rows(
    paths: Sequence[Path], chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6: however the log is cut, the record of a transaction is the same."""
    cut_files(monkeypatch, chunk_bytes)
    found = ended(paths, 7)
    known = [one for one in known_transactions(decode_chunks(paths), gtid_texts) if one.end]
    assert [one["transaction"] for one in found] == [one.name for one in known]
    for one, wanted in zip(found, known, strict=True):
        assert one["timeline"] == 7
        assert one["gtid"] in (None, one["transaction"])
        assert (one["gtid"] is None) == one["transaction"].startswith(one["journal_name"] + ":")
        assert (one["begin"], one["end"]) == (wanted.begin, wanted.end)
        assert one["rows"] == sum(wanted.rows.values())
        tables = {(each["schema"], each["table"]): each["rows"] for each in one["tables"]}
        assert tables == wanted.rows
        assert [*tables] == sorted(tables)


@pytest.mark.parametrize(
    ("name", "one_phase"),
    [("mysql97/mysql_xa", True), ("mariadb1011/maria_xa", False), ("mysql56/mysql56_xa", False)],
)
def test_outcomes_of_xa(name: str, one_phase: bool) -> None:
    """b8: what was prepared is told from what is committed, and what ends it names it."""
    found = ended([GOLDEN / f"{name}.binlog"])
    outcomes = [(one["outcome"], one["xa_id"], one["rows"]) for one in found]
    if name.startswith("mysql56"):  # whose log has nothing before the commit
        assert {outcome for outcome, *_ in outcomes} == {"committed"}
        return
    x1, x2 = "X'7831',X'',1", "X'7832',X'6272616e6368',7"
    assert outcomes == [
        ("committed", None, 0),  # CREATE TABLE
        ("prepared", x1, 1),
        ("commit_prepared", x1, 0),
        ("prepared", x2, 1),
        ("rollback_prepared", x2, 0),
        ("committed", None, 1),  # XA COMMIT … ONE PHASE
        ("committed", None, 1),
    ]


def test_an_xa_end_is_not_cut_from_its_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """b8: it says whether the transaction was committed in one phase."""
    files = [GOLDEN / "mysql97" / "mysql_xa.binlog"]
    wanted = ended(files)
    for chunk_bytes in range(100, 400, 7):
        cut_files(monkeypatch, chunk_bytes)
        assert ended(files) == wanted


def test_a_rollback_is_told(tmp_path: Path) -> None:
    """b8: MySQL writes ROLLBACK behind rows that it could not leave out of the log."""
    path = tmp_path / "bin.000001"
    data = (GOLDEN / "mysql56" / "mysql56_xa.binlog").read_bytes()
    assert data.count(b"COMMIT") == 2
    path.write_bytes(with_queries(data, b"COMMIT", b"ROLLBACK"))
    outcomes = [one["outcome"] for one in ended([path])]
    assert outcomes == ["committed", "rolled_back", "rolled_back", "committed"]


def with_queries(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return a binlog with another text in some QUERY events."""
    import struct
    import zlib

    found, at = [data[:4]], 4
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        event = data[at : at + size]
        if event[4] == 2 and event[:-4].endswith(old):
            body = event[19:-4].removesuffix(old) + new
            head = event[:9] + struct.pack("<I", 19 + len(body) + 4) + event[13:19]
            event = head + body + struct.pack("<I", zlib.crc32(head + body))
        found.append(event)
        at += size
    return b"".join(found)


def test_commit_times() -> None:
    """In microseconds where the server writes them, else the second of the end."""
    for name, exact in (("gtids", True), ("mariadb", False)):
        times = [one["commit_time"] for one in ended(LOGS[name])]
        assert all(isinstance(time, dt.datetime) and time.tzinfo is not None for time in times)
        assert any(time.microsecond for time in times) == exact


def test_what_a_subscriber_does_not_see_is_not_counted() -> None:
    """A6: of a table that its filter leaves out there is neither a count nor, without an entry of
    its own, a transaction."""
    transactions, some = OpenTransactions(), 0
    for info, chunk in decode_chunks(LOGS["demo"]):
        context, count = LogContext(0, transactions.add(info)), chunk.layout.event_count
        everything = ended_transactions(chunk, (0, count), None, None, context)
        tables = bytes(k % 2 for k in range(len(info.tables)))
        seen = {info.tables[k] for k in range(len(info.tables)) if k % 2}
        hidden_ends = info.entries_of([bool(one) for one in tables])
        hidden_ends[info.entries["table"] < 0] = False
        for mask in (info.entries_of([bool(one) for one in tables]), hidden_ends):
            found = ended_transactions(chunk, (0, count), mask, tables, context).to_pylist()
            wanted = []
            for one in everything.to_pylist():
                one["tables"] = [
                    each for each in one["tables"] if (each["schema"], each["table"]) in seen
                ]
                one["rows"] = sum(each["rows"] for each in one["tables"])
                closer = np.flatnonzero(
                    chunk.events["position"].astype(np.int64) + chunk.events["length"] == one["end"]
                )
                if one["rows"] or mask[closer].any():
                    wanted.append(one)
            assert found == wanted
            some += len(found)
    assert some


def test_there_may_be_none() -> None:
    assert no_transactions().num_rows == 0
    [(_, chunk), *_] = decode_chunks(LOGS["demo"])
    nothing = ended_transactions(chunk, (0, 0), None, None, LogContext())
    assert pa.concat_batches([nothing, no_transactions()]).schema.equals(SCHEMA)
