"""Names of a mirror's tables where its sink is moved, in a DuckDB file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ray_canal.sinks.databases import renames
from ray_canal.sinks.databases.duckdb import DuckDatabase
from ray_canal.sinks.databases.renames import DatabaseFollower
from ray_canal.sinks.port import Changed, Cursor, SinkError
from tests.unit.sinks.test_schema_follower import (
    altered,
    database,
    fill,
    follower,
    renamed,
    rows_of,
    rows_to_write,
)

__all__ = ["database"]


def at(position: int, *steps: Changed, time_s: int = 0) -> list[Changed]:
    return [
        replace(step, time_s=time_s, change=replace(step.change, position=position))
        for step in steps
    ]


def place(position: int, timeline: int = 1) -> Cursor:
    return Cursor(timeline=timeline, journal_name="b.1", position=position)


def names(database: DuckDatabase) -> dict[str, Any]:
    """The value that each table has."""
    tables = database._run("SELECT table_name FROM duckdb_tables() WHERE schema_name = 's'")
    return {str(table): rows_of(database, str(table))[0][1] for (table,) in tables}


@pytest.fixture
def shop(database: DuckDatabase) -> DatabaseFollower:
    """1 became b, c and, of 2, a; 3 and 2 were swapped then."""
    shop = follower(database)
    for table, value in (("a", 1), ("x", 2), ("y", 3)):
        shop.follow([altered(table, is_new=True)])
        fill(database, table, value)
    shop.follow(at(10, *renamed("a", "b")), 1)
    shop.follow(at(20, *renamed("b", "c"), *renamed("x", "a")), 1)
    swap = at(30, *renamed("a", "_"), *renamed("y", "a"), *renamed("_", "y"))
    shop.follow([step for step in swap if step.change.table != "_"], 1)
    return shop


AT = {
    5: {"a": 1, "x": 2, "y": 3},
    10: {"a": 1, "x": 2, "y": 3},
    11: {"b": 1, "x": 2, "y": 3},
    20: {"b": 1, "x": 2, "y": 3},
    21: {"c": 1, "a": 2, "y": 3},
    31: {"c": 1, "a": 3, "y": 2},
}


def test_tables_have_the_names_of_the_place(shop: DatabaseFollower, database: DuckDatabase) -> None:
    for position in (31, 21, 20, 11, 10, 5, 31, 5, 11, 5, 21, 11, 31):
        shop.move_to(place(position), 0)
        assert names(database) == AT[position], position
    shop.move_to(place(20), 0)
    shop.follow(at(20, *renamed("b", "c"), *renamed("x", "a")), 1)
    for position in (21, 31, 5, 31):
        shop.move_to(place(position), 0)
        assert names(database) == AT[position], position


def test_a_table_that_got_the_name_later_goes(
    shop: DatabaseFollower, database: DuckDatabase
) -> None:
    """The log makes it again, with all its rows."""
    shop.follow(at(40, altered("b", is_new=True)), 1)
    fill(database, "b", 4)
    shop.move_to(place(20), 0)
    assert names(database) == AT[20]


def test_names_that_are_not_kept_any_more_stop_the_sink(
    shop: DatabaseFollower, database: DuckDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renames, "_BYTES_MAX", 200)
    shop.follow(at(40, *renamed("c", "d")), 1)
    with pytest.raises(SinkError, match=r"up to b\.1:20 is not kept.*seek s` to a place behind"):
        shop.move_to(place(11), 0)
    assert names(database) == {"d": 1, "a": 3, "y": 2}
    shop.move_to(place(30), 0)
    assert names(database) == AT[21]


def test_a_rename_that_comes_again_from_another_log_takes_nothing_away(
    shop: DatabaseFollower, database: DuckDatabase
) -> None:
    """What was not acknowledged comes again after a failover, under new places: the table that had
    the new name was dropped."""
    chain = [*renamed("y", "x"), *renamed("a", "y")]
    shop.follow(at(40, *chain, time_s=100), 1)
    now = {"c": 1, "x": 2, "y": 3}
    assert names(database) == now
    again = follower(database)
    again.move_to(place(6, timeline=2), 100)
    again.follow(at(7, *chain, time_s=100), 2)
    assert names(database) == now
    again.move_to(place(7, timeline=2), 100)
    assert names(database) == AT[31]
    again.follow(at(7, *chain, time_s=100), 2)
    assert names(database) == now


def test_a_place_of_another_log_before_a_rename_stops_the_sink(
    shop: DatabaseFollower, database: DuckDatabase
) -> None:
    shop.follow(at(40, *renamed("c", "d"), time_s=100), 1)
    with pytest.raises(SinkError, match=r"RENAME TABLE at b\.1:40 of timeline 1 \(s\.c to s\.d\)"):
        shop.move_to(place(6, timeline=2), 99)
    assert names(database) == {"d": 1, "a": 3, "y": 2}
    shop.move_to(place(6, timeline=2), 101)


def test_a_rename_that_was_undone_comes_again_from_another_log(
    shop: DatabaseFollower, database: DuckDatabase
) -> None:
    """It was done at the failover, so that rows from before it came to a table that it dropped; and
    kept as one to do, it dropped the table at the next move."""
    shop.follow(at(40, *renamed("c", "d"), time_s=100), 1)
    for where, time_s in ((place(35), 99), (place(6, timeline=2), 95)):
        shop.move_to(where, time_s)
        assert names(database) == AT[31]
    shop.follow(at(7, *renamed("c", "d"), time_s=100), 2)
    for position in (20, 7, 20):
        shop.move_to(place(position, timeline=2), 101)
        assert names(database) == (AT[31] if position == 7 else {"d": 1, "a": 3, "y": 2})


def test_one_that_was_undone_is_done_where_another_log_is_behind_it(
    shop: DatabaseFollower, database: DuckDatabase
) -> None:
    shop.follow(at(40, *renamed("c", "d"), time_s=100), 1)
    shop.move_to(place(35), 99)
    shop.move_to(place(6, timeline=2), 101)
    assert names(database) == {"d": 1, "a": 3, "y": 2}


def test_another_destination_or_policy_leaves_names_alone(
    shop: DatabaseFollower, database: DuckDatabase
) -> None:
    other = follower(database)
    other._destination = "y"
    for each in (other, follower(database, schema_change="ignore")):
        each.move_to(place(5), 0)
        assert names(database) == AT[31]


def test_triggers_of_a_table_are_told_once(
    database: DuckDatabase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They act on rows that the log has of the source's own ones, too: a row more in MySQL."""
    monkeypatch.setattr(database, "triggers", lambda name: [f"of_{name.table}"])
    shop, rows = follower(database), rows_to_write("id", "v0")
    for _ in range(2):
        shop.columns(rows)
        shop.forget()
    [told] = caplog.messages
    assert told.startswith("s.t has triggers (of_t), which act on what is written there")
