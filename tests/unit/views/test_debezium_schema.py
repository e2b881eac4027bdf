"""Schemas in change events: each value fits the one that it travels with."""

from __future__ import annotations

from typing import Any

from ray_canal.views.debezium import (
    DebeziumOptions,
)
from tests.unit.views import debezium_reference as reference
from tests.unit.views.test_debezium import rendered


def test_with_schemas_each_value_fits_its_schema() -> None:
    """Every field of a payload is one of the schema, and no null is where none may be."""
    for seed in range(10):
        table = reference.random_table(seed)
        options = DebeziumOptions(prefix="pre", schemas=True, ts_us=reference.TS_US)
        plain = rendered(table)
        for (key, message), (own_key, own) in zip(rendered(table, options), plain, strict=True):
            for both, payload in ((key, own_key), (message, own)):
                if both is not None:
                    assert both["payload"] == payload
                    fits(both["schema"], payload)


KINDS = {"int16": int, "int32": int, "int64": int, "float": (int, float), "double": (int, float),
         "string": str, "bytes": str, "boolean": bool}  # fmt: skip


def fits(schema: Any, value: Any) -> None:
    if value is None:
        assert schema["optional"], schema
    elif schema["type"] == "struct":
        assert {field["field"] for field in schema["fields"]} == set(value)
        for field in schema["fields"]:
            fits(field, value[field["field"]])
    else:
        assert isinstance(value, KINDS[schema["type"]]), (schema, value)
