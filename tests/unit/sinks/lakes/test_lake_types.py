"""Types of columns in tables of a lake."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ray_canal.config.sink import LakeConfig
from ray_canal.sinks.lakes.lake_types import (
    fitting,
    lake_table,
    lake_type,
    retyping_advice,
)
from ray_canal.sinks.open import lake_of
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName
from ray_canal.views.row_places import RowPlace
from tests.in_process_sink import sink_config
from tests.unit.sinks.lakes.test_lake import options

NAME = TableName("s", "t")


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (pa.uint8(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.duration("us"), pa.int64()),
        (pa.decimal256(65, 30), pa.string()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    ],
)
def test_each_type_has_one_that_lakes_know(kind: pa.DataType, found: pa.DataType) -> None:
    assert lake_type(kind, naive_is_utc=True) == found


def test_the_largest_unsigned_value_and_a_negative_time_survive() -> None:
    table = pa.table(
        {
            "big": pa.array([2**64 - 1, None], pa.uint64()),
            "span": pa.array([-1, 5], pa.duration("us")),
            "wide": pa.array([Decimal(0), None], pa.decimal256(65, 10)),
        }
    )
    found = lake_table(table, naive_is_utc=False)
    assert [int(each) if each is not None else None for each in found["big"].to_pylist()] == [
        2**64 - 1,
        None,
    ]
    assert found["span"].to_pylist() == [-1, 5]
    assert found["wide"].to_pylist() == ["0.0000000000", None]


def test_a_value_that_does_not_fit_names_table_column_and_what_to_do() -> None:
    table, advice = pa.table({"id": pa.array([1 << 40])}), retyping_advice(LakeConfig())
    what = r"shop\.orders: the column id is int32 .*set lake\.schema_change"
    with pytest.raises(SinkError, match=what):
        fitting(table, pa.schema([("id", pa.int32())]), "shop.orders", advice)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_log_of_changes_keeps_the_letters_of_a_column(kind: str, tmp_path: Path) -> None:
    """ALTER TABLE … CHANGE v V: Delta refused the second name, Iceberg had two columns of which
    readers that ignore case can read none."""
    lake: Any = lake_of(sink_config(kind, lake=options(kind, tmp_path)))
    lake.open()
    for number, name in enumerate(("v", "V"), 1):
        image = pa.array([{name: number}], pa.struct([(name, pa.int32())]))
        rows = pa.table({"event_type": ["INSERT"], "after": image})
        lake.append(NAME, rows, RowPlace(0, 1, number, 0, "b.1"))
    if kind == "delta":
        held = DeltaTable(str(tmp_path / "lake/s/t")).to_pyarrow_table()
    else:
        held = lake._known(NAME).scan().to_arrow()
    assert sorted(row["v"] for row in held["after"].to_pylist()) == [1, 2]
