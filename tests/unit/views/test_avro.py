"""Debezium's change events in Avro, read back by fastavro, against a plain rendering."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ray_canal.errors import ConfigError
from ray_canal.views.avro import append_to_file, avro_keys, avro_name, avro_schema, avro_values
from ray_canal.views.debezium import DebeziumOptions, events_of
from tests.unit.views import debezium_reference as reference

OPTIONS = DebeziumOptions(prefix="pre", ts_us=reference.TS_US)


def events(table: reference.Table) -> Any:
    return events_of(table.batch, table.meta, table.chunk, 0, len(table.rows), OPTIONS)


def renamed(value: Any) -> Any:
    """A value of the plain rendering with Avro's names."""
    if isinstance(value, dict):
        return {avro_name(key): renamed(each) for key, each in value.items()}
    return value


def read_back(data: bytes, schema: Any) -> Any:
    """A record without its logical types: bytes as bytes."""
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), plain(schema), None)


def plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: plain(each) for key, each in schema.items() if key != "logicalType"}
    return [plain(each) for each in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("seed", range(15))
def test_random_tables_come_back_as_the_plain_way_has_them(seed: int) -> None:
    table, known = reference.random_table(seed), {}

    def register(subject: str, schema: Any) -> int:
        known[subject] = schema
        return len(known) + 256

    found = events(table)
    values = avro_values(found, OPTIONS, register).to_pylist()
    keys = avro_keys(found, register).to_pylist()
    expected = reference.messages(table, "pre")
    assert len(values) == len(keys) == len(expected)
    for value, key, (own_key, own) in zip(values, keys, expected, strict=True):
        assert (value is None) == (own is None)
        if value is not None:
            assert value[:5] == b"\x00\x00\x00\x01\x01"
            assert read_back(value, known["pre.sh_op.t_b-value"]) == renamed(own)
        assert (key is None) == (own_key is None)
        if key is not None:
            assert key[:5] == b"\x00\x00\x00\x01\x02"
            assert read_back(key, known["pre.sh_op.t_b-key"]) == renamed(own_key)


def test_without_a_registry_each_message_is_a_file() -> None:
    table = reference.random_table(2)
    for value in avro_values(events(table), OPTIONS, None).to_pylist():
        if value is not None:
            ((record,),) = [list(fastavro.reader(io.BytesIO(value)))]
            assert record["source"]["table"] == 't"b'


def test_decimals_have_their_logical_type(tmp_path: Path) -> None:
    """Any reader of Avro sees the number, and a file takes more of the same form."""
    seed = next(
        n for n in range(200)
        if any(c.meta.mysql_type == "decimal(10,2)" for c in reference.random_table(n).columns)
    )  # fmt: skip
    table, path = reference.random_table(seed), tmp_path / "t.avro"
    for _ in range(2):
        append_to_file(path, events(table), OPTIONS)
    with path.open("rb") as file:
        records = list(fastavro.reader(file))
    name = next(c.meta.name for c in table.columns if c.meta.mysql_type == "decimal(10,2)")
    images = [row[side] for row in table.rows for side in ("before", "after") if row[side]]
    given = {image[name] for image in images}
    seen = {record["after"][avro_name(name)] for record in records if record["after"]}
    assert len(records) % 2 == 0
    assert seen <= given


def test_two_columns_of_one_name_are_refused() -> None:
    field = {"type": "int32", "optional": True}
    fields = [{**field, "field": "a b"}, {**field, "field": "a_b"}]
    with pytest.raises(ConfigError, match="a_b"):
        avro_schema({"type": "struct", "name": "x.Value", "fields": fields, "optional": False})
