"""Rows that tables hold, as lines: hidden values, what goes wrong, and who gives its place back.
(tests/integration/test_console.py reads those of a server.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.config import load
from ray_canal.console import rows
from ray_canal.console.live_tail import Tails
from ray_canal.demo import binlog_files
from ray_canal.errors import AccessDenied, CanalError, ConsumerError, SourceError
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_files

INSTANCE = {
    "destination": "d",
    "source": {"address": "127.0.0.1:3306"},
    "filter": {"tables": r"shop\..*", "black_tables": r"shop\.users"},
}
CONFIG = load({"meta": {"backend": "memory"}, "instance": [INSTANCE]})


class Read:
    """A snapshot that ends with this failure, or well."""

    def __init__(self, failure: CanalError | None = None) -> None:
        self._failure = failure
        self.tables, self.left_out = ("shop.t",), (("shop.v", "a view"),)
        self.position, self.rows = EntryPosition("bin.000001", 930, gtid="u:1-9"), 1
        self.closed = False

    def __enter__(self) -> Read:
        return self

    def __exit__(self, *failure: object) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield next(iter(decode_files(binlog_files()[:1]))).slice(0, 1)
        if self._failure is not None:
            raise self._failure


def lines(monkeypatch: pytest.MonkeyPatch, read: Read, tails: Tails, hidden: Any = ()) -> Any:
    monkeypatch.setattr(rows, "read_snapshot", lambda *_, **__: read)
    return rows.read_rows(tails, CONFIG, "d", ".*", "consistent", hidden)


def test_tables_rows_and_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    tails, read = Tails(1), Read()
    found = [json.loads(line) for line in lines(monkeypatch, read, tails, ["*.*.*"])]
    assert found[0] == {"tables": ["shop.t"], "left_out": {"shop.v": "a view"}}
    assert set(found[1]["after"].values()) == {"•••"}
    assert found[2] == {"position": "bin.000001:930", "gtid_set": "u:1-9", "rows": 1}
    assert read.closed
    tails.enter()  # its place is free again


def test_what_goes_wrong_is_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Read(SourceError("the server is away"))
    last = json.loads(list(lines(monkeypatch, read, Tails(1)))[-1])
    assert (last["error"], last["message"]) == ("SourceError", "the server is away")


def test_who_leaves_early_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tails, read = Tails(1), Read()
    reading = lines(monkeypatch, read, tails)
    next(reading)
    with pytest.raises(ConsumerError, match="tails_max"):
        next(lines(monkeypatch, Read(), tails))
    reading.close()
    assert read.closed
    tails.enter()


@pytest.mark.parametrize("table", ["mysql.user", "shop.users"])
def test_nobody_reads_beyond_the_destinations_filter(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The source's user may read more than the destination gives anybody."""
    tails, read = Tails(1), Read()
    read.tables = ("shop.t", table)
    with pytest.raises(AccessDenied, match=f"^{table}: not among"):
        next(lines(monkeypatch, read, tails))
    assert read.closed
    tails.enter()
