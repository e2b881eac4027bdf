"""Positions: order by (base, number), never as text."""

from __future__ import annotations

import pytest

from ray_canal.errors import ConfigError
from ray_canal.model.position import EntryPosition, journal_key


def test_names_are_compared_by_number() -> None:
    assert journal_key("mysql-bin.999999") < journal_key("mysql-bin.1000000")
    assert journal_key("my.dotted.base.000010") == ("my.dotted.base", 10)
    assert journal_key("no-number") == ("no-number", -1)


def test_order_is_file_position_row() -> None:
    ordered = [
        EntryPosition("b.000009", 500),
        EntryPosition("b.000010", 4),
        EntryPosition("b.000010", 120),
        EntryPosition("b.000010", 120, row=3),
        EntryPosition("b.000010", 121),
    ]
    shuffled = [ordered[i] for i in (3, 0, 4, 2, 1)]
    assert sorted(shuffled) == ordered


def test_equality_ignores_time_and_gtid() -> None:
    assert EntryPosition("b.1", 4, gtid="x:1", timestamp=5) == EntryPosition("b.1", 4)
    assert len({EntryPosition("b.1", 4, gtid="x:1"), EntryPosition("b.1", 4)}) == 1


def test_two_bases_have_no_order() -> None:
    with pytest.raises(ConfigError, match="two binlog bases"):
        _ = EntryPosition("a.1", 4) < EntryPosition("b.1", 4)


def test_text() -> None:
    inside = EntryPosition("b.000001", 120, row=7, entry=2)
    assert str(inside) == "b.000001:120+7.2"
    assert str(inside.boundary) == "b.000001:120"


def test_the_beginning_of_a_transaction_is_not_behind_its_commit() -> None:
    """A9: a place at the beginning of an open transaction kept that one's commit time: after a
    failover without GTIDs it was found behind it, and the transaction was skipped in silence."""
    inside = EntryPosition("b.000001", 297, row=2, entry=3, commit_us=7, open_gtid="u:9")
    assert inside.boundary.commit_us == 0
    assert (inside.boundary.is_inside, inside.boundary.open_gtid) == (False, "")
    behind = EntryPosition("b.000001", 297, commit_us=7)
    assert behind.boundary.commit_us == 7
