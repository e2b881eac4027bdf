"""Columns that statements rename and add, in a DuckDB file and in lakes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ray_canal.client.message import TableChange
from ray_canal.config.sink import LakeConfig
from ray_canal.model.table_event import TRUNCATE
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.sinks.databases.duckdb import DuckDatabase
from ray_canal.sinks.lakes.lake import LakeFollower
from ray_canal.sinks.open import lake_of
from ray_canal.sinks.port import Changed, SinkError
from ray_canal.sinks.schema_follower import TableName
from ray_canal.views.arrow import arrow_schema
from ray_canal.views.row_places import RowPlace
from tests.in_process_sink import sink_config
from tests.unit.sinks.lakes.test_lake import options
from tests.unit.sinks.test_schema_follower import altered, at, database, fill, follower, rows_of

__all__ = ["database"]
NAME = TableName("s", "t")


def changed(kinds: dict[str, str], **more: Any) -> Changed:
    """The table `t` whose columns are `id` and these."""
    columns = [column_meta(name, kind) for name, kind in kinds.items()]
    meta = TableMeta("s", "t", (column_meta("id", "int", is_key=True), *columns))
    return Changed(TableChange("b.1", 4, "s", "t", arrow_schema(meta), **more), meta, 99)


@pytest.mark.parametrize("policy", ["add", "evolve"])
def test_values_stay_under_a_new_name_and_new_columns_are_filled(
    policy: str, database: DuckDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    shop = follower(database, schema_change=policy)
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    step = changed(
        {"w": "int", "d": "decimal(9,2)", "c": "int", "z": "datetime"},
        renamed=(("v0", "w"),), filled=(("d", "1.5"), ("c", "0"), ("z", None)),
    )  # fmt: skip
    for _ in range(2):  # it may come again
        shop.follow([step])
        found = database.find(NAME)
        assert found is not None
        assert found.columns == ("id", "w", "d", "c", "z")
        assert [str(v) for v in rows_of(database, "t")[0]] == ["1", "7", "1.50", "0", "None"]
    assert "b.1:4 s.t got column z, and the log does not tell" in caplog.text


@pytest.mark.parametrize("policy", ["add", "evolve"])
def test_a_table_that_a_snapshot_empties_has_the_columns_that_it_reads(
    policy: str, database: DuckDatabase
) -> None:
    """DDL came between two attempts of the snapshot; the sink had stopped at its rows."""
    shop = follower(database, schema_change=policy)
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    for _ in range(2):
        shop.follow([changed({"w": "bigint", "d": "date"}, kind=TRUNCATE)])
        found = database.find(NAME)
        assert found is not None
        assert found.columns == ("id", "w", "d")
        assert not rows_of(database, "t")


def test_a_table_without_rows_takes_a_type_that_no_value_becomes(database: DuckDatabase) -> None:
    shop = follower(database, schema_change="evolve")
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    for _ in range(2):
        shop.follow([changed({"v0": "date"}, kind=TRUNCATE)])
        assert database.types(NAME) == {"id": "INTEGER", "v0": "DATE"}


@pytest.mark.parametrize("policy", ["add", "evolve"])
def test_a_column_that_is_dropped_and_added_has_no_values(
    policy: str, database: DuckDatabase
) -> None:
    shop = follower(database, schema_change=policy)
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    for _ in range(2):
        shop.follow([changed({"v0": "int"}, remade=("v0",))])
        assert rows_of(database, "t") == [(1, 7 if policy == "add" else None)]


@pytest.mark.parametrize("policy", ["add", "evolve"])
def test_one_statement_drops_a_column_and_adds_another_one(
    policy: str, database: DuckDatabase
) -> None:
    """Whether the new one was the old one could not be told, it said, though the statement tells.
    With the policy add, which keeps the old one, no later statement could add a column."""
    shop = follower(database, schema_change=policy)
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    kept = ("v0",) if policy == "add" else ()
    for _ in range(2):
        shop.follow([changed({"w": "int"}, added=("w",), filled=(("w", "5"),))])
    shop.follow([changed({"w": "int", "X": "int"}, added=("X",))])
    found = database.find(NAME)
    assert found is not None
    assert found.columns == ("id", *kept, "w", "X")
    assert rows_of(database, "t") == [(1, *(7 for _ in kept), 5, None)]
    if policy == "add":
        with pytest.raises(SinkError, match="has y, and no v0 any more"):
            shop.follow([changed({"w": "int", "X": "int", "y": "int", "z": "int"}, added=("z",))])


def test_a_key_whose_values_in_rows_that_are_there_are_not_known_is_refused(
    database: DuckDatabase,
) -> None:
    """They had NULL in it, so that none was found again: a later image was another row."""
    shop = follower(database, without_key="rows")
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    step = changed({"v0": "int", "row_end": "timestamp(6)"}, added=("row_end",))
    assert step.meta is not None
    columns = tuple(replace(c, is_key=c.name != "v0") for c in step.meta.columns)
    step = replace(step, meta=replace(step.meta, columns=columns))
    with pytest.raises(SinkError, match=r"s\.t lacks row_end of .*drop s\.t") as caught:
        shop.follow([step])
    assert caught.value.kind == "schema"
    database.empty(NAME)
    shop.follow([step])
    found = database.find(NAME)
    assert found is not None
    assert found.columns == ("id", "v0", "row_end")


@pytest.mark.parametrize("policy", ["add", "evolve"])
def test_a_key_that_has_values_of_a_column_that_is_gone_is_refused(
    policy: str, database: DuckDatabase
) -> None:
    """ALTER TABLE t DROP id, ADD id INT AUTO_INCREMENT PRIMARY KEY, or by one statement each: rows
    stayed under their old ids. The target does not drop `id` with the first one."""
    shop = follower(database, schema_change=policy)
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    step = changed({"v0": "int"}, added=("id",), filled=(("id", None),))
    assert step.meta is not None
    keyless = tuple(replace(c, is_key=False) for c in step.meta.columns[1:])
    meta = replace(step.meta, columns=keyless)
    dropped = Changed(replace(step.change, added=(), arrow_schema=arrow_schema(meta)), meta, 99)
    remade = changed({"v0": "int"}, added=("id",), remade=("id",), filled=(("id", "0"),))
    shop.follow([dropped])
    for refused in (step, remade) if policy == "add" else (step,):
        with pytest.raises(SinkError, match=r"s\.t lacks id of .*drop s\.t"):
            shop.follow([refused])
    database.empty(NAME)
    shop.follow([step])


def test_names_that_both_are_there_are_refused(database: DuckDatabase) -> None:
    shop = follower(database)
    shop.follow([altered("t", "int int", is_new=True)])
    with pytest.raises(SinkError, match=r"v0 of s\.t became v1, and s\.t has both"):
        shop.follow([changed({"v0": "int", "v1": "int"}, renamed=(("v0", "v1"), ("v1", "v0")))])


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_lake(kind: str, tmp_path: Path) -> None:
    lake: Any = lake_of(sink_config(kind, lake=options(kind, tmp_path)))
    lake.open()
    shop = LakeFollower(LakeConfig(), lake)
    shop.follow([altered("t", is_new=True)])
    rows = pa.table({"id": pa.array([1], pa.int32()), "v0": pa.array([7], pa.int32())})
    lake.merge(NAME, ["id"], rows.select(["id"]).slice(1), rows, RowPlace(0, 1, 5, 0, "b.1"))
    step = at(90, changed({"w": "int", "c": "int"}, renamed=(("v0", "w"),), filled=(("c", "5"),)))
    for _ in range(2):
        shop.follow([step])
        delta = kind == "delta"
        held = DeltaTable(str(tmp_path / "lake/s/t")).to_pyarrow_table() if delta else (
            lake._known(NAME).scan().to_arrow()
        )
        assert held.to_pylist() == [{"id": 1, "w": 7, "c": 5}]
    for _ in range(2):
        shop.follow([at(95, changed({"w": "int", "d": "int"}, added=("d",)))])
        found = lake.find(NAME)
        assert set(found.columns) == {"id", "w", "c", "d"}  # the policy is add


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_lake_table_without_rows_takes_a_type_that_no_value_becomes(
    kind: str, tmp_path: Path
) -> None:
    lake: Any = lake_of(sink_config(kind, lake=options(kind, tmp_path)))
    lake.open()
    shop = LakeFollower(LakeConfig.model_validate({"schema_change": "evolve"}), lake)
    shop.follow([altered("t", is_new=True)])
    rows = pa.table({"id": pa.array([1], pa.int32()), "v0": pa.array([7], pa.int32())})
    lake.merge(NAME, ["id"], rows.select(["id"]).slice(1), rows, RowPlace(0, 1, 5, 0, "b.1"))
    for _ in range(2):
        shop.follow([at(90, changed({"v0": "date"}, kind=TRUNCATE))])
        assert "date" in lake.types(NAME)["v0"]


def test_a_time_that_becomes_a_number_is_another_number(tmp_path: Path) -> None:
    """A Delta table had microseconds where the source's server has 10203 for 01:02:03, and went on
    with both in one column."""
    lake: Any = lake_of(sink_config("delta", lake=options("delta", tmp_path)))
    lake.open()
    shop = LakeFollower(LakeConfig(schema_change="evolve"), lake)
    kinds = {"v0": "time(2)", "v1": "datetime", "v2": "date", "v3": "int"}
    shop.follow([at(80, changed(kinds, is_new=True))])
    shop.follow([at(85, changed(kinds | {"v0": "bigint"}, retyped=("v0",)))])  # it has no rows
    shop.follow([at(86, changed(kinds, retyped=("v0",)))])
    held = DeltaTable(str(tmp_path / "lake/s/t")).schema().to_arrow()
    row = {"id": 1, "v0": 3723000000, "v1": None, "v2": None, "v3": 7}
    rows = pa.Table.from_pylist([row], pa.schema(held))
    lake.merge(NAME, ["id"], rows.select(["id"]).slice(1), rows, RowPlace(0, 1, 5, 0, "b.1"))
    wrong = "v0 bigint", "v0 datetime", "v1 bigint", "v1 time", "v2 int", "v3 date"
    for name, other in map(str.split, wrong):
        with pytest.raises(SinkError, match=f"{other} in {name}, which was a time or a number"):
            shop.follow([at(90, changed(kinds | {name: other}, retyped=(name,)))])
    new = {"v0": "time(6)", "v2": "datetime"}, {"v0": "varchar(20)", "v3": "bigint"}
    for place, others in zip((95, 97), new, strict=True):
        shop.follow([at(place, changed(kinds | others, retyped=tuple(others)))])
    (found,) = DeltaTable(str(tmp_path / "lake/s/t")).to_pyarrow_table().to_pylist()
    assert (found["v0"], found["v3"]) == ("01:02:03.000000", 7)


def test_integers_become_decimals_that_have_room_for_them(tmp_path: Path) -> None:
    lake: Any = lake_of(sink_config("delta", lake=options("delta", tmp_path)))
    lake.open()
    shop = LakeFollower(LakeConfig(schema_change="evolve"), lake)
    shop.follow([at(80, changed({"v0": "int"}, is_new=True))])
    rows = pa.table({"id": pa.array([1], pa.int32()), "v0": pa.array([-123456], pa.int32())})
    lake.merge(NAME, ["id"], rows.select(["id"]).slice(1), rows, RowPlace(0, 1, 5, 0, "b.1"))
    shop.follow([at(85, changed({"v0": "decimal(8,2)"}, retyped=("v0",)))])
    (found,) = DeltaTable(str(tmp_path / "lake/s/t")).to_pyarrow_table().to_pylist()
    assert found["v0"] == Decimal("-123456.00")
    with pytest.raises(SinkError, match="does not fit in precision 4"):
        shop.follow([at(90, changed({"v0": "decimal(4,2)"}, retyped=("v0",)))])
