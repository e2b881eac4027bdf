"""Rows of prepared XA transactions in a table of the lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.sinks.lakes.lake import Lake
from ray_canal.sinks.lakes.lake_prepared import LakePrepared, kept_name
from ray_canal.sinks.open import lake_of
from ray_canal.sinks.port import Cursor
from ray_canal.sinks.schema_follower import TableName
from tests.in_process_sink import sink_config
from tests.unit.sinks.lakes.test_lake import options
from tests.unit.sinks.test_prepared_table import ID, LATER, golden_rows, place_of

PLACE = Cursor(timeline=3, journal_name="bin.000004", position=1 << 33)
NAME = TableName("ray_canal", kept_name("s", "x"))


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    lake = lake_of(sink_config(request.param, lake=options(request.param, tmp_path)))
    lake.open()
    return lake


def opened(lake: Lake) -> LakePrepared:
    """The table, as a sink finds it that starts."""
    lake.close()
    lake.open()
    table = LakePrepared("s", "x", lake)
    table.open()
    return table


def test_what_is_kept_is_there_with_its_place_until_its_end(lake: Lake) -> None:
    rows, table = golden_rows(), opened(lake)
    table.keep(ID, "t1", rows, place_of(rows))
    assert table.place is None
    table.commit(PLACE)
    assert table.place == PLACE

    table = opened(lake)
    assert table.place == PLACE
    assert not table.has("")
    (found,) = table.rows(ID, LATER)
    assert found.batch.equals(rows.batch, check_metadata=True)
    assert found.meta == rows.meta
    assert "joined" in lake.compact(NAME, True, 0)
    lake.rewind(NAME)  # the tables are to be written again

    table = opened(lake)
    assert table.place is None
    assert table.has(ID)
    table.end(ID)
    table.commit(PLACE)
    table = opened(lake)
    assert table.place == PLACE
    assert not table.has(ID)


def test_what_begins_and_ends_before_a_commit_is_not_written(lake: Lake) -> None:
    rows, table = golden_rows(), opened(lake)
    table.keep(ID, "t1", rows, place_of(rows))
    assert table.rows(ID, LATER)
    table.end(ID)
    table.commit(PLACE)
    assert lake.find(NAME) is None
    assert not table.has(ID)


def test_each_sink_has_a_table_of_its_own_whose_name_a_catalog_takes() -> None:
    names = [kept_name(*each) for each in (("a.b", "c"), ("a-b", "c"), ("b", "c.a"), ("A.B", "c"))]
    assert len(set(names)) == len(names)
    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in names)
    assert len(kept_name("ä" * 200, "x" * 200)) < 100
