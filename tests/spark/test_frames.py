"""RecordBatches -> DataFrames, on a real session."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.errors import CanalError
from ray_canal.spark import chunks, row_transfer
from ray_canal.spark.frames import common_schema, to_frames
from ray_canal.spark.keys import key_of
from ray_canal.spark.row_transfer import Way
from ray_canal.views.row_places import table_name
from tests.spark.conftest import ITEM, change_batch, inserts

WAYS: tuple[Way, ...] = ("memory", "objects", "rows", "driver")


@pytest.mark.parametrize("way", WAYS)
def test_one_frame_per_table_in_log_order(spark, monkeypatch, way: Way) -> None:
    monkeypatch.setattr(chunks, "PARTITION_BYTES", 1)
    monkeypatch.setattr(row_transfer, "ROWS_PARTITION_BYTES", 1)  # a partition for each batch
    batches = [inserts(0, 5), inserts(100, 2, table="order"), inserts(5, 5, position=2000)]
    with to_frames(spark, batches, way=way) as made:
        assert made.rows == {"shop.item": 10, "shop.order": 2}
        rows = made.by_table["shop.item"].collect()
        assert [row.after.id for row in rows] == list(range(10))
        assert [row.position for row in rows] == [1000] * 5 + [2000] * 5
        assert {row.before for row in rows} == {None}
        assert rows[0].event_type == "INSERT"
        assert rows[3].after.name == "item 3 ñ"
        assert made.by_table["shop.order"].count() == 2
        frame = made.by_table["shop.order"]
    if way == "memory":  # the others may have a copy for a while
        with pytest.raises(Exception, match="released"):
            frame.collect()


def test_no_python_worker_in_the_plan(spark) -> None:
    with to_frames(spark, [inserts(0, 3)]) as made:
        plan = made.by_table["shop.item"]._jdf.queryExecution().executedPlan().toString()
    assert "Python" not in plan
    assert "MapInPandas" not in plan


def test_only_wanted_tables(spark) -> None:
    batches = [inserts(0, 1), inserts(0, 1, table="order")]
    with to_frames(spark, batches, tables=["shop.order"]) as made:
        assert list(made.by_table) == ["shop.order"]


def test_versions_of_a_table_share_a_schema(spark) -> None:
    wider = pa.struct([("id", pa.uint64()), ("price", pa.decimal128(10, 2)), ("name", pa.string())])
    newer = change_batch([("INSERT", None, {"id": 7, "price": None, "name": "n"})], wider)
    with to_frames(spark, [inserts(0, 1), newer]) as made:
        frame = made.by_table["shop.item"]
        assert frame.schema["after"].dataType.fieldNames() == ["id", "price", "name"]
        assert [int(row.after.id) for row in frame.collect()] == [0, 7]


def test_one_log_line_where_rows_are_made(spark, monkeypatch, caplog) -> None:
    monkeypatch.setattr(row_transfer, "_chosen", {})
    probe = row_transfer._probe

    def without_jar(spark: Any, way: Way) -> None:
        if way != "driver":
            raise RuntimeError("no such data source")
        probe(spark, way)

    monkeypatch.setattr(row_transfer, "_probe", without_jar)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with to_frames(spark, [inserts(0, 3)]) as made:
                assert made.by_table["shop.item"].count() == 3
    lines = [r.getMessage() for r in caplog.records if "makes rows" in r.getMessage()]
    assert len(lines) == 1
    assert 'way "driver"' in lines[0]
    assert "no such data source" in lines[0]


def test_another_way_is_tried_when_the_cluster_has_grown(monkeypatch) -> None:
    class Context:
        applicationId, master = "app", "ray://here"

    class Session:
        sparkContext = Context

    nodes = [{"Alive": True}]
    monkeypatch.setattr(row_transfer, "_chosen", {})
    monkeypatch.setattr(row_transfer, "_NODES_S", 0.0)
    monkeypatch.setattr(row_transfer, "_probe", lambda spark, way: None)
    monkeypatch.setattr(row_transfer.ray, "nodes", lambda: nodes)
    assert [row_transfer.chosen_way(Session()) for _ in range(2)] == ["memory", "memory"]
    nodes.append({"Alive": True})
    assert [row_transfer.chosen_way(Session()) for _ in range(2)] == ["objects", "objects"]


def test_foreign_batch_is_refused() -> None:
    with pytest.raises(CanalError, match="no metadata"):
        table_name(pa.record_batch({"a": [1]}))


def test_a_key_that_was_dropped_is_not_that_of_the_frame() -> None:
    """Rows that it would not tell apart were one row in `latest` and `scd2`."""
    keyed, dropped = inserts(0, 2), inserts(0, 2, position=2000)
    dropped = dropped.replace_schema_metadata({**dropped.schema.metadata, b"canal.key": b"[]"})
    assert key_of(common_schema([keyed, dropped])) == ()
    assert key_of(common_schema([dropped, keyed])) == ("id",)
    unknown = change_batch([("TRUNCATE", None, None)], pa.struct([]), position=3000)
    noted = unknown.append_column("sql", pa.nulls(1, pa.string()))
    noted = noted.replace_schema_metadata({b"canal.key": b"[]"})
    assert key_of(common_schema([keyed, noted])) == ("id",)
    assert key_of(common_schema([dropped, noted])) == ()


def test_key_travels_with_the_frame(spark) -> None:
    from ray_canal.spark.state import key_columns

    with to_frames(spark, [change_batch([("DELETE", {"id": 1, "name": "x"}, None)], ITEM)]) as made:
        assert key_columns(made.by_table["shop.item"]) == ("id",)


@pytest.mark.usefixtures("interpreted")
def test_what_is_null_is_null_where_spark_compiles_nothing(spark) -> None:
    """Spark walks an expression whose code gets too large, as of a wide table, and asks for a
    decimal without asking first whether there is one: it was zero."""
    kinds = {"wide": pa.decimal128(30, 2), "natural": pa.uint64(), "text": pa.string(),
             "octets": pa.binary(), "short": pa.decimal128(9, 2)}  # fmt: skip
    row = pa.struct([("id", pa.int32()), *kinds.items()])
    one = {"id": 1, "wide": Decimal(1), "natural": 1, "text": "t", "octets": b"o",
           "short": Decimal(1)}  # fmt: skip
    none = {"id": 2, **dict.fromkeys(kinds)}
    batch = change_batch([("INSERT", None, one), ("INSERT", None, none)], row)
    with to_frames(spark, [batch]) as made:
        found = made.by_table["shop.item"].select("after.*").orderBy("id").collect()
    assert [each.asDict() for each in found] == [one, none]
