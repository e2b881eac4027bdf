"""Column types in change events, where one may choose how they look."""

from __future__ import annotations

import decimal
import json

import pyarrow as pa
import pytest

from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.types import mysql
from ray_canal.views.arrow import arrow_schema
from ray_canal.views.debezium import (
    DebeziumOptions,
    json_value,
)
from ray_canal.views.debezium_types import kind_of
from tests.unit.views import debezium_reference as reference
from tests.unit.views.test_debezium import rendered


def test_doubles_are_exact() -> None:
    values = [0.1, 1e300, -2.5e-300, 1e22, 123456789.0]
    assert [json.loads(text) for text in json_value(pa.array(values)).to_pylist()] == values


@pytest.mark.parametrize(
    ("code", "word", "signed", "unsigned"),
    [
        (mysql.TINY, "tinyint", "int16", "int16"),
        (mysql.SHORT, "smallint", "int16", "int32"),
        (mysql.INT24, "mediumint", "int32", "int32"),
        (mysql.LONG, "int", "int32", "int64"),
        (mysql.LONGLONG, "bigint", "int64", "int64"),
    ],
)
def test_integers_have_debeziums_types(code: int, word: str, signed: str, unsigned: str) -> None:
    for column, expected in (
        (ColumnMeta("c", code, word), signed),
        (ColumnMeta("c", code, f"{word} unsigned", unsigned=True), unsigned),
    ):
        arrow = arrow_schema(TableMeta("s", "t", (column,))).field("after").type.field("c").type
        assert kind_of(arrow, column, "precise").connect == expected


@pytest.mark.parametrize("digits", [20, 65])
def test_a_decimal_as_text_has_all_its_digits(digits: int) -> None:
    """As Debezium 3.6.3 has them: no exponents."""
    numbers = [decimal.Decimal(text) for text in ("0", "0.0000000001", "-1.5", "100")]
    kind = pa.decimal128(digits, 10) if digits < 39 else pa.decimal256(digits, 10)
    column = ColumnMeta("c", mysql.NEWDECIMAL, f"decimal({digits},10)", precision=digits, scale=10)
    found = kind_of(kind, column, "string").physical(pa.array(numbers, kind))
    assert found.to_pylist() == [
        "0.0000000000", "0.0000000001", "-1.5000000000", "100.0000000000",
    ]  # fmt: skip


def test_a_decimal_is_as_one_chooses() -> None:
    table = next(
        table
        for table in map(reference.random_table, range(99))
        if any("decimal" in c.meta.mysql_type for c in table.columns)
    )
    names = [c.meta.name for c in table.columns if "decimal" in c.meta.mysql_type]
    for way, kind in (("string", str), ("double", (int, float))):  # JSON's 5 is as good as 5.0
        options = DebeziumOptions(prefix="p", decimals=way, ts_us=1)  # type: ignore[arg-type]
        images = [m["after"] for _, m in rendered(table, options) if m and m["after"]]
        for name in names:
            values = [image[name] for image in images if image[name] is not None]
            assert all(isinstance(value, kind) for value in values)
