"""Types of columns in tables of a lake."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from ray_canal.sinks.lakes.lake_types import fitting, lake_table, lake_type
from ray_canal.sinks.port import SinkError


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
    table = pa.table({"id": pa.array([1 << 40])})
    with pytest.raises(SinkError, match=r"shop\.orders: the column id is int32 .*schema_change"):
        fitting(table, pa.schema([("id", pa.int32())]), "shop.orders")
