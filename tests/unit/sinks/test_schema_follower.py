"""Tables of a DuckDB file, and of lakes, that follow statements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ray_canal.client.message import TableChange
from ray_canal.config import MirrorConfig
from ray_canal.config.sink import LakeConfig
from ray_canal.model.table_event import ERASE, RENAME
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.duckdb import DuckDatabase
from ray_canal.sinks.databases.mysql_types import canonical_type, has_no_empty_label
from ray_canal.sinks.databases.renames import DatabaseFollower
from ray_canal.sinks.lakes.lake import LakeFollower
from ray_canal.sinks.open import lake_of, make_sink
from ray_canal.sinks.port import Changed, SinkError
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.schema_follower import TableName
from ray_canal.views.arrow import arrow_schema
from ray_canal.views.row_places import RowPlace
from tests.in_process_sink import sink_config
from tests.unit.sinks.lakes.test_lake import options


@pytest.fixture
def database(tmp_path: Path) -> Iterator[DuckDatabase]:
    database = DuckDatabase(MirrorConfig(), tmp_path / "shop.duckdb")
    database.connect()
    database.take_over("s")
    yield database
    database.close()


def follower(database: DuckDatabase, **policy: Any) -> DatabaseFollower:
    return following(MirrorConfig.model_validate(policy), database)


def following(config: MirrorConfig, database: DuckDatabase) -> DatabaseFollower:
    return DatabaseFollower(config, database, lambda: None, "s", "x")


def altered(table: str, types: str = "int", schema: str = "s", **more: Any) -> Changed:
    """A table whose columns are `id` and, of these types, v0, v1 …"""
    columns = [column_meta(f"v{n}", kind) for n, kind in enumerate(types.split())]
    meta = TableMeta(schema, table, (column_meta("id", "int", is_key=True), *columns))
    return Changed(TableChange("b.1", 4, schema, table, arrow_schema(meta), **more), meta, 99)


def renamed(old: str, new: str) -> list[Changed]:
    gone = TableChange("b.1", 4, "s", old, None, kind=ERASE, renamed_to=f"s.{new}")
    step = altered(new, kind=RENAME, renamed_from=f"s.{old}")
    return [step, Changed(gone, None, 99)]


def fill(database: DuckDatabase, table: str, value: int) -> None:
    rows = pa.table({"id": pa.array([1], pa.int32()), "v0": pa.array([value], pa.int32())})
    database.upsert(TableName("s", table), ["id"], rows)


def rows_of(database: DuckDatabase, table: str) -> list[tuple[Any, ...]]:
    return database._run(f"SELECT * FROM shop.s.{table}")


def test_a_new_table_has_no_rows_of_the_old_one(database: DuckDatabase) -> None:
    shop = follower(database)
    shop.follow([altered("t", is_new=True)])
    fill(database, "t", 7)
    shop.follow([altered("t")])
    assert rows_of(database, "t") == [(1, 7)]
    shop.follow([altered("t", is_new=True)])
    assert rows_of(database, "t") == []
    fill(database, "t", 7)
    shop.follow([altered("t", "double", is_new=True)])
    assert rows_of(database, "t") == []
    fill(database, "t", 7)
    shop.follow([altered("t", "date int", is_new=True)])
    found = database.find(TableName("s", "t"))
    assert found is not None
    assert found.columns == ("id", "v0", "v1")
    assert rows_of(database, "t") == []


def test_an_empty_table_of_other_columns_goes_unless_it_was_made_by_hand(
    database: DuckDatabase,
) -> None:
    shop = follower(database)
    shop.follow([altered("t", is_new=True)])
    database._run("ALTER TABLE shop.s.t RENAME COLUMN v0 TO other")
    shop.follow([altered("t", is_new=True)])  # DROP and CREATE at the source
    found = database.find(TableName("s", "t"))
    assert found is not None
    assert found.columns == ("id", "v0")
    database._run("CREATE TABLE shop.s.mine (id INT, other INT)")
    for _ in range(2):  # it is not known to be followed by having been refused
        with pytest.raises(SinkError, match="and no other any more"):
            shop.follow([altered("mine", is_new=True)])


def rows_to_write(key: str, value: str) -> Rows:
    kind = pa.struct([(key, pa.int32()), (value, pa.int32())])
    schema = pa.schema(
        [("after", kind)], {"canal.schema": "s", "canal.table": "t", "canal.key": f'["{key}"]'}
    )
    return Rows(pa.record_batch([pa.array([], kind)], schema), None)


@pytest.mark.parametrize("policy", ["add", "evolve", "ignore"])
def test_columns_have_the_letters_that_the_target_gave_them(
    policy: str, database: DuckDatabase
) -> None:
    """One made by hand in other letters, one whose name the source writes otherwise since."""
    database._run("CREATE SCHEMA shop.s; CREATE TABLE shop.s.t (ID INT, \"Värd\" INT)")
    shop = follower(database, schema_change=policy)
    if policy != "ignore":
        columns = column_meta("Id", "int", is_key=True), column_meta("vÄrd", "int")
        meta = TableMeta("s", "t", columns)
        shop.follow([Changed(TableChange("b.1", 4, "s", "t", arrow_schema(meta)), meta, 99)])
    name, columns_there = shop.columns(rows_to_write("Id", "vÄrd"))
    assert columns_there == {"Id": "ID", "vÄrd": "Värd"}
    found = database.find(name)
    assert found is not None
    assert found.columns == ("ID", "Värd")


def test_bytes_that_become_text_are_that_text(database: DuckDatabase) -> None:
    shop = follower(database, schema_change="evolve")
    shop.follow([altered("t", "blob", is_new=True)])
    octets = "é\\x41".encode()
    rows = pa.table({"id": pa.array([1], pa.int32()), "v0": pa.array([octets])})
    database.upsert(TableName("s", "t"), ["id"], rows)
    shop.follow([altered("t", "text")])
    assert rows_of(database, "t") == [(1, octets.decode())]
    shop.follow([altered("t", "blob")])
    assert rows_of(database, "t") == [(1, octets)]


def test_values_that_do_not_fit_a_new_type_set_their_table_aside(database: DuckDatabase) -> None:
    """An entry that is left out, and not the table, would be of a transaction that is aborted."""
    shop = follower(database, schema_change="evolve")
    shop.follow([altered("t", "varchar(9)", is_new=True)])
    rows = pa.table({"id": pa.array([1], pa.int32()), "v0": pa.array(["x"])})
    database.upsert(TableName("s", "t"), ["id"], rows)
    with pytest.raises(SinkError, match="Could not convert string 'x'") as refused:
        shop.follow([altered("t", "int")])
    assert refused.value.kind == "schema"


def test_renamed_tables_take_the_place_of_those_that_are_gone(database: DuckDatabase) -> None:
    shop = follower(database)
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        shop.follow([altered(name, is_new=True)])
        fill(database, name, value)
    swap = [step for old, new in (("a", "x"), ("b", "a"), ("x", "b")) for step in renamed(old, new)]
    shop.follow([step for step in swap if step.change.table != "x"])
    assert rows_of(database, "a") == [(1, 2)]
    assert rows_of(database, "b") == [(1, 1)]
    shop.follow(renamed("c", "a"))  # a was dropped, and kept
    assert rows_of(database, "a") == [(1, 3)]
    assert database.find(TableName("s", "c")) is None
    shop.follow(renamed("never", "b"))  # it had no rows for the mirror yet
    assert rows_of(database, "b") == []


def test_rows_that_are_not_known_stop_it(database: DuckDatabase) -> None:
    shop = follower(database)
    for name in ("t", "T2"):
        shop.follow([altered(name, is_new=True)])
        fill(database, name, 1)
    with pytest.raises(SinkError, match=r"s\.other, which is not.*seek NAME b\.1:99") as caught:
        shop.follow(renamed("other", "t")[:1])
    assert caught.value.kind == "schema"
    assert caught.value.source_table == ("s", "t")
    assert rows_of(database, "t") == [(1, 1)]
    with pytest.raises(SinkError, match=r"mixed with those of s\.T2"):
        shop.claim(TableName("s", "t2"), "s", "t2")  # the same table for DuckDB
    merging = MirrorConfig(database="s")
    again = following(merging, database)  # another run, and another source
    with pytest.raises(SinkError, match=r"mixed with those of s\.t in s\.t"):
        again.follow([altered("t", schema="other", is_new=True)])
    evolving = MirrorConfig(database="s", schema_change="evolve")
    gone = TableChange("b.1", 4, "other", "t", None, kind=ERASE)
    following(evolving, database).follow([Changed(gone, None, 99)])
    assert rows_of(database, "t") == [(1, 1)]
    database.drop(TableName("s", "t"))
    again.follow([altered("t", schema="other", is_new=True)])


def test_a_table_of_another_destination_of_the_same_name_stops_it(database: DuckDatabase) -> None:
    """What empties it in one would take the rows of the other."""
    follower(database).follow([altered("t", is_new=True)])
    fill(database, "t", 1)
    database._run("UPDATE shop.ray_canal.canal_cursor SET place = ?", '{"destination": "x"}')
    database.take_over("s2")
    database.destination = "y"
    with pytest.raises(SinkError, match=r"s\.t would get mixed with those of s\.t \(destination x"):
        follower(database).follow([altered("t", is_new=True)])
    assert rows_of(database, "t") == [(1, 1)]
    database.destination = "x"
    follower(database).follow([altered("t")])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lake_has_no_table_of_two_destinations(kind: str, tmp_path: Path) -> None:
    for destination in ("x", "x", "y"):
        settings = options(kind, tmp_path)
        sink: Any = make_sink(sink_config(kind, lake=settings, destination=destination))
        sink.open()
        if destination == "x":
            sink._follower.follow([at(4, altered("t"))], 1)
            continue
        with pytest.raises(SinkError, match=r"s\.t would get mixed with .*\(destination x\)"):
            sink._follower.follow([at(4, altered("t"))], 1)
        sink.close()


def test_a_type_to_which_values_might_be_rounded_stops_it(database: DuckDatabase) -> None:
    shop = follower(database)
    shop.follow([altered("t", "int bigint", is_new=True)])
    shop.follow([altered("t", "bigint bigint", retyped=("v0",))])  # refuses what does not fit
    change = altered("t", "double bigint", retyped=("v0",))
    with pytest.raises(SinkError, match=r"v0 of s\.t became double"):
        shop.follow([change])
    evolving = follower(database, schema_change="evolve")
    evolving.follow([change])
    shop.follow([change])
    database._run("CREATE TABLE shop.s.wide (id INT PRIMARY KEY, v0 DECIMAL(20,6))")
    shop.follow([altered("wide", "decimal(9,4)", retyped=("v0",))])  # it has more digits


def test_columns_that_may_round_values_are_named_once(
    database: DuckDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    database._run("CREATE SCHEMA shop.s")
    database._run("CREATE TABLE shop.s.t (ID INT, v0 DECIMAL(9,1), v1 DOUBLE, v2 BIGINT)")
    shop, table = follower(database), altered("t", "decimal(9,4) double int")
    schema = table.change.arrow_schema
    rows = Rows(pa.RecordBatch.from_pylist([], schema), table.meta)
    for _ in range(2):
        shop.columns(rows)
        shop.forget()
    [told] = caplog.messages
    assert "s.t has other types than the source in v0 (decimal(9,4)): the target may" in told


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_a_lake_made_has_no_other_types(kind: str, tmp_path: Path) -> None:
    lake = lake_of(sink_config(kind, lake=options(kind, tmp_path)))
    name, kinds = TableName("s", "t"), (pa.string(), pa.binary(), pa.decimal256(65, 30), pa.int8())
    columns = [ColumnSpec(f"c{n}", kind) for n, kind in enumerate(kinds)]
    lake.open()
    lake.create(name, columns)
    assert lake.differing(name, columns) == []
    lake.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_of_a_lake_are_renamed_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def lake() -> Any:
        found = lake_of(sink_config(kind, lake=options(kind, tmp_path)))
        found.open()
        request.addfinalizer(found.close)
        return found

    def rows(table: str) -> list[int]:
        if kind == "delta":
            held = DeltaTable(str(tmp_path / "lake" / "s" / table)).to_pyarrow_table()
        else:
            held = first._known(TableName("s", table)).scan().to_arrow()
        found: list[int] = held["v0"].to_pylist()
        return found

    first = lake()
    shop = LakeFollower(LakeConfig(), first)
    shop.follow([altered(name, is_new=True) for name in ("a", "b")])
    nothing = pa.table({"id": pa.array([], pa.int32())})
    for name, value in (("a", 1), ("b", 2)):
        new = pa.table({"id": pa.array([1], pa.int32()), "v0": pa.array([value], pa.int32())})
        first.merge(TableName("s", name), ["id"], nothing, new, RowPlace(0, 1, 50, 0, "b.1"))
    chain = [at(90, step) for step in (*renamed("a", "old"), *renamed("b", "a"))]
    for _ in range(2):  # the second time by a run that does not know of the first
        shop.follow(chain)
        first.close()
        first.open()
        assert (rows("old"), rows("a")) == ([1], [2])
        assert first.find(TableName("s", "b")) is None
        assert first.source_of(TableName("s", "a")) == "s.a"
        assert first.source_of(TableName("s", "old")) == "s.old"
        first = lake()
        shop = LakeFollower(LakeConfig(), first)
    swap = [step for old, new in (("a", "x"), ("old", "a"), ("x", "old"))
            for step in renamed(old, new)]  # fmt: skip
    with pytest.raises(SinkError, match="swaps the names"):
        shop.follow([at(99, step) for step in swap])


@pytest.mark.parametrize("old", ["blob", "bigint"])
def test_values_that_do_not_fit_another_type_stop_a_lake(old: str, tmp_path: Path) -> None:
    """delta-rs tells them as what may pass, so the sink tried again and again."""
    config = sink_config("delta", lake={**options("delta", tmp_path), "schema_change": "evolve"})
    lake = lake_of(config)
    lake.open()
    shop = LakeFollower(config.lake, lake)
    shop.follow([at(4, altered("t", old, is_new=True))], 1)
    values = pa.array([b"\xff"]) if old == "blob" else pa.array([1 << 40])
    rows = pa.table({"id": pa.array([1], pa.int32()), "v0": values})
    gone = rows.select(["id"]).slice(1)
    lake.merge(TableName("s", "t"), ["id"], gone, rows, RowPlace(1, 1, 5, 0))
    with pytest.raises(SinkError) as refused:
        shop.follow([at(99, altered("t", "text" if old == "blob" else "int"))], 1)
    assert refused.value.kind == "schema"
    assert "lake/s/t: the column v0 is " in str(refused.value)
    assert "drop s.t, start the sink again" in str(refused.value)
    lake.close()


def at(position: int, step: Changed) -> Changed:
    return replace(step, change=replace(step.change, position=position))


@pytest.mark.parametrize(
    ("declared", "shown"),
    [("NUMERIC (10, 2)", "decimal(10,2)"), ("dec", "decimal(10,0)"), ("FIXED(5)", "decimal(5,0)"),
     ("DOUBLE PRECISION", "double"), ("real", "double"), ("INTEGER unsigned", "int unsigned"),
     ("decimal(3,1)", "decimal(3,1)"), ("datetime(6)", "datetime(6)"), ("BOOL", "tinyint"),
     ("int(11) unsigned", "int unsigned"), ("year(4)", "year"), ("Point", "point"),
     ("datetime(0)", "datetime"), ("timestamp( 0 )", "timestamp"), ("time(10)", "time(10)"),
     ("float(24) unsigned", "float unsigned"), ("FLOAT(25)", "double"), ("float8", "double"),
     ("float4", "float"), ("float(7,3)", "float(7,3)"), ("decimal(0)", "decimal(10,0)"),
     ("decimal unsigned", "decimal(10,0) unsigned"), ("dec(5) unsigned", "decimal(5,0) unsigned"),
     ("decimal(10, 2) unsigned", "decimal(10,2) unsigned"), ("set('a', 'b')", "set('a','b')")],
)  # fmt: skip
def test_canonical_types(declared: str, shown: str) -> None:
    assert canonical_type(declared) == shown


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ("enum('a','b')", True), ("enum('','b')", False), ("enum('a','')", False),
        ("enum('it''s','b')", True), ("set('a')", False), ("int", False),
    ],
)  # fmt: skip
def test_an_enum_that_has_no_empty_label(declared: str, told: bool) -> None:
    assert has_no_empty_label(declared) == told
