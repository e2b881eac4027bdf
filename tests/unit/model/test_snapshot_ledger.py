"""A ledger's life: what is acked counts, texts come back as they were, what has ended stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ray_canal.errors import ConfigError
from ray_canal.model.snapshot_ledger import DONE, Ledger, TableLedger, restarted
from ray_canal.model.snapshot_wish import SnapshotWish

TABLE = TableLedger("shop", "orders", "id > 3", ("id",))


def ledger() -> Ledger:
    begun = TABLE.begun(("id",), ("9",), 100)
    return Ledger("s1", (SnapshotWish("shop\\..*", "id > 3", ("id",)),), (begun,))


def test_what_is_acked_counts_up_to_the_end() -> None:
    found = ledger().acked(0, None, 2).acked(0, ("5",), 3)
    assert (found.rows, found.tables[0].done, found.tables[0].finished) == (5, ("5",), False)
    found = found.acked(0, ("9",), 1)
    assert found.tables[0].finished
    assert found.rows == 6


def test_what_is_acked_of_a_range_counts_once_though_it_is_read_again() -> None:
    found = ledger().acked(0, ("5",), 3).acked(0, None, 2)
    assert (found.rows, found.tables[0].rows) == (5, 3)
    again = found.begun_again()
    assert (again.attempt, again.rows, again.tables[0].done) == (found.attempt + 1, 3, ("5",))
    assert again.acked(0, None, 2).acked(0, ("9",), 1).rows == 6


def test_what_is_acked_late_is_not_of_the_table_that_begins_anew() -> None:
    """Else its rows up to that key would never be read."""
    anew = ledger().acked(0, ("5",), 3).tables[0].restarted()
    assert anew.acked(("7",), 2) == anew
    assert anew.begun(("id",), ("9",), 7).acked(("7",), 2).done == ("7",)


def test_a_table_that_was_made_again_is_another_one() -> None:
    begun = TABLE.begun(("id",), ("9",), 100, "uuid|2026-01-01 10:00:00")
    assert begun.is_of(("id",), "uuid|2026-01-01 10:00:00")
    assert begun.is_of(("id",), "other|2026-02-02 10:00:00")
    assert not begun.is_of(("id",), "uuid|2026-01-01 10:00:01")
    assert not begun.is_of(("id", "day"), "uuid|2026-01-01 10:00:00")
    assert not begun.is_of(("id DESC",), "uuid|2026-01-01 10:00:00")
    assert TABLE.is_of(("id",), "uuid|2026-01-01 10:00:01")
    assert not TABLE.begun(("id",), ("9",), 100, "uuid|").is_of(("id",), "uuid|")
    assert TABLE.begun(("id",), ("9",), 100, "uuid|").is_of(("id",), "other|")


def test_a_table_without_rows_is_finished_when_it_begins() -> None:
    assert TABLE.begun(("id",), None, 7).finished
    assert not TABLE.begun(("id",), ("9",), 7).finished


def test_it_is_the_same_after_it_was_kept() -> None:
    found = replace(ledger().acked(0, ("5",), 3), attempt=2, began=7, reason="initial")
    assert Ledger.from_json(found.to_json()) == found
    assert Ledger.from_json(Ledger("x", ()).to_json()) == Ledger("x", ())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"id": "x", "wishes": [], "tables": [{}]}'])
def test_another_record_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a snapshot's record cannot be read"):
        Ledger.from_json(text)


def test_a_moved_cursor_begins_what_goes_on_anew() -> None:
    halfway = ledger().acked(0, ("5",), 3)
    again = Ledger.from_json(restarted(halfway.to_json()))
    assert again.tables == (TABLE,)
    assert again.wishes == halfway.wishes
    ended = replace(halfway, state=DONE).to_json()
    assert restarted(ended) == ended
    assert restarted("") == ""


def test_what_the_record_has_as_unread_is_read_again() -> None:
    read, unread = TableLedger("d", "t", part=7), TableLedger("d", "t")
    mine, other = Ledger("s", (), tables=(read, TableLedger("d", "new"))), Ledger("o", ())
    assert mine.follow(Ledger("s", (), tables=(read,))) == mine
    assert mine.follow(Ledger("s", (), tables=(unread,))).tables == (unread, mine.tables[1])
    assert mine.follow(replace(other, tables=(unread,))) == mine
