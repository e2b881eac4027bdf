"""A snapshot in a line; conditions and columns by pattern."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from ray_canal.cli.snapshot_control import _by_pattern, line_of
from ray_canal.destination.snapshot.snapshot_home import new_ledger
from ray_canal.destination.snapshot.snapshots import snapshot_report
from ray_canal.model.snapshot_ledger import TableLedger
from ray_canal.model.snapshot_wish import SnapshotWish, wishes_of


def found(**now: Any) -> dict[str, Any]:
    ledger = new_ledger((), "s1")
    table = TableLedger("d", "t").begun(("id",), ("9",), 1000).acked(("5",), 250)
    ledger = ledger.with_table(0, table)
    return snapshot_report(7, ledger, now)


def test_how_it_goes_in_a_line() -> None:
    line = line_of(found(rows_per_s=50.0, waits_for="the subscriber, to ack its rows"))
    assert line == (
        "s1 running, [######..................] 25%, 250 of about 1,000 rows, 0 of 1 tables, "
        "50 rows/s, 15 s left, waits for the subscriber, to ack its rows"
    )
    done = {**found(), "state": "done", "place": "mysql-bin.000001:4711"}
    assert "100%, 250 rows," in line_of(done)
    assert line_of(done).endswith("consistent at mysql-bin.000001:4711")


def test_conditions_are_for_all_tables_or_by_pattern() -> None:
    assert _by_pattern(["total > 1"]) == {"": "total > 1"}
    assert _by_pattern([r"d\.t => a >= 1", r"d\.u=>b"]) == {r"d\.t": "a >= 1", r"d\.u": "b"}
    with pytest.raises(typer.BadParameter, match="name a pattern"):
        _by_pattern(["a", "d => b"])


def test_wishes_are_those_of_all_that_is_said_of_a_pattern() -> None:
    assert wishes_of() == (SnapshotWish(),)
    assert wishes_of("d", "a > 1", ["b"]) == (SnapshotWish("d", "a > 1", ("b",)),)
    assert wishes_of("d", {"t": "a > 1"}, {"t": ["b"], "u": ["c"]}) == (
        SnapshotWish("t", "a > 1", ("b",)),
        SnapshotWish("u", "", ("c",)),
        SnapshotWish("d"),
    )
