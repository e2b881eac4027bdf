"""Column types in change events, where one may choose how they look."""

from __future__ import annotations

import json

import pyarrow as pa

from ray_canal.views.debezium import (
    DebeziumOptions,
    json_value,
)
from tests.unit.views import debezium_reference as reference
from tests.unit.views.test_debezium import rendered


def test_doubles_are_exact() -> None:
    values = [0.1, 1e300, -2.5e-300, 1e22, 123456789.0]
    assert [json.loads(text) for text in json_value(pa.array(values)).to_pylist()] == values


def test_a_decimal_is_as_one_chooses() -> None:
    table = next(
        table
        for table in map(reference.random_table, range(99))
        if any("decimal" in c.meta.mysql_type for c in table.columns)
    )
    names = [c.meta.name for c in table.columns if "decimal" in c.meta.mysql_type]
    for way, kind in (("string", str), ("double", float)):
        options = DebeziumOptions(prefix="p", decimals=way, ts_us=1)  # type: ignore[arg-type]
        images = [m["after"] for _, m in rendered(table, options) if m and m["after"]]
        for name in names:
            values = [image[name] for image in images if image[name] is not None]
            assert all(isinstance(value, kind) for value in values)
