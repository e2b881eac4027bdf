"""The state of a table from its changes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ray_canal.errors import ConfigError
from ray_canal.spark.frames import to_frames
from ray_canal.spark.history import scd2
from ray_canal.spark.state import latest
from tests.spark.conftest import ITEM, change_batch, inserts


def item(number: int, name: str) -> dict[str, object]:
    return {"id": number, "name": name}


def test_latest_applies_changes_in_order(spark) -> None:
    batches = [
        inserts(1, 5),
        change_batch(
            [
                ("UPDATE", item(1, "item 1 ñ"), item(1, "renamed")),
                ("DELETE", item(2, "item 2 ñ"), None),
                ("UPDATE", item(3, "item 3 ñ"), item(30, "moved")),
                ("UPDATE", item(1, "renamed"), item(1, "again")),
                ("DELETE", item(4, "item 4 ñ"), None),
                ("INSERT", None, item(4, "back")),
            ],
            ITEM,
            position=2000,
        ),
    ]
    with to_frames(spark, batches) as made:
        rows = latest(made.by_table["shop.item"]).collect()
    assert {(row.id, row.name) for row in rows} == {
        (1, "again"),
        (4, "back"),
        (5, "item 5 ñ"),
        (30, "moved"),
    }


def test_journals_are_ordered_by_number(spark) -> None:
    older = change_batch(
        [("INSERT", None, item(1, "old"))], ITEM, journal_name="bin.999999", position=9000
    )
    newer = change_batch(
        [("UPDATE", item(1, "old"), item(1, "new"))], ITEM, journal_name="bin.1000000", position=4
    )
    with to_frames(spark, [older, newer]) as made:
        assert [row.name for row in latest(made.by_table["shop.item"]).collect()] == ["new"]


def test_key_may_be_given_and_must_be_there(spark) -> None:
    with to_frames(spark, [inserts(1, 2)]) as made:
        frame = made.by_table["shop.item"]
        assert latest(frame, ["name"]).count() == 2
        with pytest.raises(ConfigError, match="no primary key"):
            latest(frame, [])
        with pytest.raises(ConfigError, match="no column nothing"):
            latest(frame, ["nothing"])


@pytest.mark.parametrize("applied", [latest, partial(latest, absent="flag"), scd2])
def test_a_key_tells_rows_apart(spark, applied: Any) -> None:
    """Rows that have NULL there would become one."""
    rows = [("INSERT", None, {"id": 1, "name": None}), ("INSERT", None, {"id": 2, "name": None})]
    with to_frames(spark, [change_batch(rows, ITEM)]) as made:
        frame = made.by_table["shop.item"]
        assert len(applied(frame, ["id"]).collect()) == 2
        with pytest.raises(Exception, match="NULL in the key column name"):
            applied(frame, ["name"]).collect()
