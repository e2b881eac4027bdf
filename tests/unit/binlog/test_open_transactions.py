"""The transaction that is open between two chunks, however the log is cut."""

from __future__ import annotations

import pytest

from ray_canal.binlog.open_transactions import OpenTransactions, closing_entries
from ray_canal.demo import binlog_files
from ray_canal.model.log_context import OpenTransaction
from ray_canal.offline import decode_chunks
from tests.chunk_cuts import cut_files
from tests.golden import GOLDEN


@pytest.mark.parametrize("chunk_bytes", [300, 2000, 20_000])
def test_what_is_open_before_each_chunk(
    chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6: where it began, its rows so far, and those of each table."""
    paths = [*binlog_files(), GOLDEN / "mysql97" / "mysql_dml.binlog"]
    cut_files(monkeypatch, chunk_bytes)
    follows, opened = OpenTransactions(), 0
    begin, tables, journal_name = -1, dict[tuple[str, str], int](), ""
    for info, chunk in decode_chunks(paths):
        if info.head.journal_name != journal_name:
            journal_name, begin = info.head.journal_name, -1
        before = follows.add(info)
        if begin < 0:
            assert before is None
        else:
            opened += 1
            assert before is not None
            assert (before.begin, before.rows) == (begin, sum(tables.values()))
            assert {(schema, table): rows for schema, table, rows in before.tables} == tables
        closing = set(closing_entries(info).tolist())
        for number, entry in enumerate(info.entries):
            if begin < 0:
                gtid = int(entry["transaction"])
                begin = int(info.gtids["position"][gtid] if gtid >= 0 else entry["position"])
                tables = {}
            if entry["rows"]:
                meta = chunk.layout.tables[int(entry["table"])].meta
                name = (meta.schema, meta.table)
                tables[name] = tables.get(name, 0) + int(entry["rows"])
            if number in closing:
                begin = -1
    assert opened > 3


def test_a_subscriber_sees_its_own_tables_only() -> None:
    is_open = OpenTransaction(4, 6, (("a", "x", 1), ("b", "y", 5)))
    assert is_open.seen(lambda schema, table: True) is is_open
    seen = is_open.seen(lambda schema, table: schema == "b")
    assert seen == OpenTransaction(4, 6, (("b", "y", 5),))
