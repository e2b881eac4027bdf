"""`ray-canal snapshot read`: what is asked for, and what is said of what was read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ray_canal.cli import app
from ray_canal.demo import binlog_files
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_files
from ray_canal.snapshot import read


class Read:
    """Batches, as a server's snapshot gives them: the demo's first ones."""

    rows = 0
    position = EntryPosition("b.000007", 4711, gtid="u:1-9")
    tables = ("shop.orders",)
    left_out = (("shop.totals", "a view"),)

    def __enter__(self) -> Read:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch, _ in zip(decode_files(binlog_files()), range(2), strict=False):
            self.rows += batch.num_rows
            yield batch


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def read_snapshot(config: Path, destination: str, **how: Any) -> Read:
        found.append((config.name, destination, how))
        return Read()

    monkeypatch.setattr(read, "read_snapshot", read_snapshot)
    return found


def test_rows_go_to_the_output_and_the_place_beside_it(asked: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    told = CliRunner().invoke(
        app,
        ["snapshot", "read", "c.toml", "orders", "--tables", "shop.*", "--mode", "keyed",
         "--readers", "3", "--may-lock", "-o", str(out)],
        catch_exceptions=False,
    )  # fmt: skip
    how = {"tables": "shop.*", "mode": "keyed", "readers": 3, "may_lock": True}
    assert asked == [("c.toml", "orders", how)]
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows
    assert {"table", "after", "event_type"} <= rows[0].keys()
    assert told.stderr.splitlines() == [
        "not read: shop.totals is a view",
        f"{len(rows):,} rows of 1 tables",
        "journal_name = 'b.000007'",
        "position = 4711",
        "gtid_set = 'u:1-9'",
    ]


def test_it_locks_nothing_and_reads_one_moment_unless_told(asked: list[Any]) -> None:
    arguments = ["snapshot", "read", "c.toml", "orders", "--tables", "t"]
    told = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert asked[0][2] == {"tables": "t", "mode": "consistent", "readers": 1, "may_lock": False}
    assert json.loads(told.stdout.splitlines()[0])["after"]


@pytest.mark.parametrize("wrong", [[], ["--tables", "t", "--mode", "x"], ["--readers", "0"]])
def test_what_cannot_be_meant_is_refused(asked: list[Any], wrong: list[str]) -> None:
    assert CliRunner().invoke(app, ["snapshot", "read", "c.toml", "orders", *wrong]).exit_code == 2
    assert asked == []
