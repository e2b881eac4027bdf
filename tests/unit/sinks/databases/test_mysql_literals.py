"""Literals as text; what servers make of them is tests/integration/test_mysql_mirror.py's."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.sinks.databases.mysql_literals import literals, tuples

UTC = dt.timezone.utc


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.uint64(), 2**64 - 1, "18446744073709551615"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float64(), -0.0, "-0e0"),
        (pa.float64(), 1e16, "1e+16"),
        (pa.float32(), 3.4028234663852886e38, "3.4028234663852886e+38"),
        (pa.float32(), -0.0, "-0e0"),
        (pa.float32(), 0.1, "0.10000000149011612"),
        (pa.decimal128(30, 10), Decimal("0.0000000001"), "'1E-10'"),
        (pa.string(), "it's \\ \u00fc", "'it''s \\ \u00fc'"),
        (pa.binary(), b"\x00'\xff", "x'0027FF'"),
        (pa.binary(), b"", "x''"),
        (pa.date32(), dt.date(2026, 1, 2), "'2026-01-02'"),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
         "'2026-01-02 03:04:05.000006'"),
        (pa.duration("us"), -dt.timedelta(hours=838, seconds=59), "'-838:00:59.000000'"),
        (pa.duration("us"), dt.timedelta(microseconds=-1), "'-00:00:00.000001'"),
        (pa.list_(pa.string()), ["x", "y"], "'x,y'"),
        (pa.list_(pa.float32()), [1.0, 2.0], "x'0000803F00000040'"),
        (pa.bool_(), True, "1"),
    ],
)  # fmt: skip
def test_values(kind: pa.DataType, value: Any, text: str) -> None:
    array = pa.array([None, value, None, value], kind)
    found = literals(array.slice(1)).to_pylist()
    assert [each.decode() for each in found] == [text, "NULL", text]


def test_rows_come_in_pieces() -> None:
    table = pa.table({"a": [1, 22, 333], "b": ["x", None, "z"]})
    assert list(tuples(table, 1 << 20, 100)) == [b"(1,'x'),(22,NULL),(333,'z')"]
    assert list(tuples(table, 1, 100)) == [b"(1,'x')", b"(22,NULL)", b"(333,'z')"]
    assert list(tuples(table, 1 << 20, 2)) == [b"(1,'x'),(22,NULL)", b"(333,'z')"]
    assert list(tuples(table.slice(1, 1).select(["a"]), 100, 2)) == [b"(22)"]
    assert list(tuples(table.slice(0, 0), 100, 2)) == []
