"""What the live tail shows of a change, and what it refuses."""

from __future__ import annotations

import pytest

from ray_canal.console.live_tail import HIDDEN, Tails, refuse_hidden, shown
from ray_canal.errors import AccessDenied, ConsumerError

CHANGE = {
    "schema": "shop",
    "table": "users",
    "event_type": "UPDATE",
    "journal_name": "mysql-bin.000001",
    "position": 4,
    "before": {"id": 1, "email": "a@b", "note": "x"},
    "after": {"id": 1, "email": "c@d", "note": "y" * 1000},
}


def test_hidden_values_are_dots_and_what_changed_is_named() -> None:
    row = shown(CHANGE, ["shop.*.email"])
    assert row["before"]["email"] == row["after"]["email"] == HIDDEN
    assert row["changed"] == ["email", "note"]
    assert len(row["after"]["note"]) < 300
    assert row["after"]["id"] == 1


def test_an_insert_has_no_before() -> None:
    row = shown({**CHANGE, "before": None}, [])
    assert row["before"] is None
    assert row["changed"] == []


@pytest.mark.parametrize("where", ["after.email like 'a%'", "before.`EMAIL` = 'a'", "e_mail=1"])
def test_a_condition_may_not_ask_for_hidden_values(where: str) -> None:
    with pytest.raises(AccessDenied, match="hidden"):
        refuse_hidden(where, ["shop.users.email", "*.*.e_*"])
    refuse_hidden("after.id > 3", ["shop.users.email"])


def test_so_many_tails_and_no_more() -> None:
    tails = Tails(1)
    tails.enter()
    with pytest.raises(ConsumerError, match="tails_max"):
        tails.enter()
    tails.leave()
    tails.enter()
