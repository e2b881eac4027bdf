"""Rows as COPY's text; what servers make of it is tests/integration/test_postgres_mirror.py's."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.sinks.databases.postgres_text import copy_text, postgres_type


@pytest.mark.parametrize(
    ("kind", "declared", "value", "text", "type_"),
    [
        (pa.int8(), "tinyint", -5, "-5", "smallint"),
        (pa.uint64(), "bigint unsigned", 2**64 - 1, "18446744073709551615", "numeric(20,0)"),
        (pa.uint64(), "bit(12)", 5, "5", "bigint"),
        (pa.uint64(), "BIT(64)", 5, "5", "numeric(20,0)"),
        (pa.float32(), "", 0.1, "0.1", "real"),
        (pa.decimal128(30, 10), "", Decimal("0.0000000001"), "1E-10", "numeric(30,10)"),
        (pa.string(), "text", "a\tb\\\n\r\\.", "a\\tb\\\\\\n\\r\\\\.", "text"),
        (pa.string(), "json", "{}", "{}", "jsonb"),
        (pa.binary(), "", b"\x00\xff", "\\\\x00FF", "bytea"),
        (pa.binary(), "", b"", "\\\\x", "bytea"),
        (pa.date32(), "", dt.date(2026, 1, 2), "2026-01-02", "date"),
        (pa.duration("us"), "", -dt.timedelta(microseconds=1), "-00:00:00.000001", "interval"),
        (pa.list_(pa.string()), "set('x','y')", ["x", "y"], "x,y", "text"),
        (pa.list_(pa.float32()), "", [1.0, 2.5], "{1,2.5}", "real[]"),
        (pa.bool_(), "", True, "true", "boolean"),
    ],
)
def test_values(kind: pa.DataType, declared: str, value: Any, text: str, type_: str) -> None:
    table = pa.table({"a": pa.array([None, value, None, value], kind)}).slice(1)
    assert bytes(copy_text(table)).decode() == f"{text}\n\\N\n{text}\n"
    assert postgres_type(kind, declared) == type_


def test_columns_are_separated_by_tabs() -> None:
    table = pa.table({"a": [1, None], "b": ["x", ""], "c": pa.array([None, None], pa.int8())})
    assert bytes(copy_text(table)) == b"1\tx\t\\N\n\\N\t\t\\N\n"
    assert bytes(copy_text(table.slice(0, 0))) == b""
