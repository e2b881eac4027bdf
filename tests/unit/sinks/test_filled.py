"""A DEFAULT's constant as a value of its column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.column_type import column_meta
from ray_canal.sinks.filled import constant
from ray_canal.views.arrow import arrow_schema


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", "-7", -7), ("int", "7.5", 8), ("int", "x", None),
        ("bigint unsigned", "18446744073709551615", 2**64 - 1),
        ("tinyint", "300", None), ("bit(4)", b"\x05", 5), ("year", "2020", 2020),
        ("year", "20", None),
        ("decimal(10,2)", "1.005", Decimal("1.01")), ("double", "1e3", 1000.0),
        ("decimal(60,2)", "1" * 58, Decimal("1" * 58)), ("varchar(9)", b"\xc3\xa9", None),
        ("varchar(9)", "é ", "é "), ("char(9)", "é ", "é"), ("text", "", ""),
        ("enum('a','B')", "b", "B"), ("enum('a')", "z", None), ("set('a','b')", "b,a", ["b", "a"]),
        ("set('a')", "", []), ("binary(4)", "ab", b"ab\0\0"), ("varbinary(4)", b"\xff", b"\xff"),
        ("date", "2020-01-31", dt.date(2020, 1, 31)), ("date", "0000-00-00", None),
        ("datetime(3)", "2020-01-31 01:02:03.5", dt.datetime(2020, 1, 31, 1, 2, 3, 500000)),
        ("datetime(3)", "2020-01-31 01:02:03.9999", None),
        ("datetime", "2020-01-31 00:00:00.5", None),
        ("timestamp", "2020-01-31", None), ("time(3)", "01:02:03.5", dt.timedelta(seconds=3723.5)),
        ("time", "-838:59:59", -dt.timedelta(hours=838, minutes=59, seconds=59)),
        ("time", "01:02:03.5", None), ("time", "10", None),
    ],
)  # fmt: skip
def test_each_type(kind: str, value: str | bytes, expected: Any) -> None:
    is_bytes = "binary" in kind
    column = column_meta("c", kind, charset="binary" if is_bytes else "utf8mb4")
    schema = arrow_schema(TableMeta("s", "t", (column,)))
    found = constant(value, column, schema.field("after").type.field("c").type)
    assert (None if found is None else found.as_py()) == expected
