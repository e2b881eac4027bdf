"""What the live tail shows of a change, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from ray_canal.client.message import Message
from ray_canal.console.live_tail import (
    BYTES_MAX,
    HIDDEN,
    Tails,
    masked,
    refuse_hidden,
    rows_of,
    shown,
)
from ray_canal.errors import AccessDenied, ConfigError, ConsumerError

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


@pytest.mark.parametrize(
    "where",
    [
        "after.email like 'a%'",
        "before.`EMAIL` = 'a'",
        "e_mail=1",
        "upper(after.`e-mail`) = 'A'",
        "after.id = 1 and after.`a.b` > 2",
        "case when after.x_key = 1 then 1 end = 1",
    ],
)
def test_a_condition_may_not_ask_for_hidden_values(where: str) -> None:
    hidden = ["shop.users.email", "*.*.e_*", "shop.users.e-mail", "shop.users.a.b", "*.*.*_KEY"]
    with pytest.raises(AccessDenied, match="hidden"):
        refuse_hidden(where, hidden)
    refuse_hidden("after.id > 3 and after.note = 'email'", hidden)
    refuse_hidden(where, [])


@pytest.mark.parametrize("pattern", ["shop.*", "*", "*secret*", "shop.?????.*"])
def test_a_pattern_over_whole_tables_allows_no_condition(pattern: str) -> None:
    """Of some table it hides every column."""
    with pytest.raises(AccessDenied, match="hidden"):
        refuse_hidden("after.id > 3", [pattern])


def test_a_text_that_is_no_condition_is_refused() -> None:
    with pytest.raises(ConfigError, match="no SQL expression"):
        refuse_hidden("after.id >", ["*.*.secret"])


def test_statements_that_changed_rows_do_not_tell_hidden_values() -> None:
    """In statement format the log has the text alone, with every value in it."""
    statement = {**CHANGE, "before": None, "after": None, "event_type": "STATEMENT",
                 "sql": "insert into users values (1, 'a@b')"}  # fmt: skip
    hidden = ["shop.users.email"]
    assert shown(statement, hidden)["sql"] == masked(statement, hidden)["sql"] == HIDDEN
    assert "a@b" in shown(statement, [])["sql"]
    ddl = {**statement, "event_type": "TRUNCATE", "sql": "truncate users"}
    assert shown(ddl, hidden)["sql"] == masked(ddl, hidden)["sql"] == "truncate users"


def test_large_rows_are_fewer() -> None:
    """What is shown is cut, but was a Python object before."""
    notes = pa.array([str(i) + "x" * (1 << 20) for i in range(40)])
    places = pa.array(range(40))
    batch = pa.record_batch(
        {"event_type": pa.array(["INSERT"] * 40), "position": places, "row": places,
         "after": pa.StructArray.from_arrays([notes], ["note"])}
    ).replace_schema_metadata({"canal.schema": "shop", "canal.table": "t"})  # fmt: skip
    message = cast(Message, SimpleNamespace(batches_by_part=lambda: iter([[batch]])))
    rows, skipped = rows_of(message, [], 200)
    assert rows[-1]["after"]["note"].startswith("39x")
    assert 1 <= len(rows) <= BYTES_MAX >> 20
    assert len(rows) + skipped == 40


def test_so_many_tails_and_no_more() -> None:
    tails = Tails(1)
    tails.enter()
    with pytest.raises(ConsumerError, match="tails_max"):
        tails.enter()
    tails.leave()
    tails.enter()
