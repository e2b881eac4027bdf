"""Debezium's change events in JSON, against a plain rendering of random tables."""

from __future__ import annotations

import itertools
import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, UnsupportedEvent
from ray_canal.model.table_meta import TableMeta
from ray_canal.offline import decode_debezium
from ray_canal.views.debezium import (
    DebeziumOptions,
    events_of,
    json_keys,
    json_values,
    placed,
)
from tests.unit.views import debezium_reference as reference

OPTIONS = DebeziumOptions(prefix="pre", ts_us=reference.TS_US)


def rendered(table: reference.Table, options: DebeziumOptions = OPTIONS) -> list[tuple[Any, Any]]:
    """(key, message) as JSON has them, of one batch."""
    events = events_of(table.batch, table.meta, table.chunk, 0, len(table.rows), options)
    keys, values = json_keys(events, options).to_pylist(), json_values(events, options).to_pylist()
    return [
        (None if key is None else json.loads(key), None if value is None else json.loads(value))
        for key, value in zip(keys, values, strict=True)
    ]


def floats_as_written(value: Any) -> Any:
    """JSON's value with floats as the nearest float32, which is what a FLOAT was."""
    if isinstance(value, dict):
        return {key: floats_as_written(each) for key, each in value.items()}
    if isinstance(value, float) and abs(value) < 3e38:
        return struct.unpack("f", struct.pack("f", value))[0]
    return value


@pytest.mark.parametrize("seed", range(30))
def test_random_tables_are_rendered_as_by_the_plain_way(seed: int) -> None:
    table = reference.random_table(seed)
    expected = [(reference.with_base64(k), reference.with_base64(m))
                for k, m in reference.messages(table, "pre")]  # fmt: skip
    found = rendered(table)
    assert [floats_as_written(k) for k, _ in found] == [floats_as_written(k) for k, _ in expected]
    for (_, mine), (_, theirs) in zip(found, expected, strict=True):
        assert floats_as_written(mine) == floats_as_written(theirs)
        if mine is not None:
            assert list(mine) == list(theirs)  # in Debezium's order
            assert list(mine["source"]) == list(theirs["source"])


def test_without_tombstones() -> None:
    table = reference.random_table(3)
    options = DebeziumOptions(prefix="pre", tombstones=False, ts_us=reference.TS_US)
    plain = reference.messages(table, "pre", tombstones=False)
    assert [message["op"] for _, message in rendered(table, options)] == [
        message["op"] for _, message in plain
    ]


def test_topics_have_names_that_kafka_takes() -> None:
    table = reference.random_table(1)
    events = events_of(table.batch, table.meta, table.chunk, 0, len(table.rows), OPTIONS)
    assert events.form.topic == "pre.sh_op.t_b"
    found = placed([events], [json_values(events, OPTIONS)], [json_keys(events, OPTIONS)])
    assert found.topic_names == ("pre.sh_op.t_b",)
    assert (found.partitions == -1).all()


def test_rows_of_several_tables_are_in_log_order() -> None:
    lines = [json.loads(line) for line in decode_debezium([binlog_files()[0]], OPTIONS)]
    places = [(m["source"]["pos"], m["source"]["row"]) for m in (x["message"] for x in lines) if m]
    assert places == sorted(places)
    assert len({line["topic"] for line in lines}) > 2
    for one, other in itertools.pairwise(lines):
        if one["message"] and one["message"]["op"] == "d":
            assert other == {"topic": one["topic"], "key": one["key"], "message": None}


def test_what_cannot_be_rendered_is_told() -> None:
    table = reference.random_table(1)
    with pytest.raises(ConfigError, match="gtid"):
        events_of(table.batch.drop_columns(["gtid"]), table.meta, table.chunk, 0, 40, OPTIONS)
    one = table.batch.slice(0, 1)
    kind = pa.array(["STATEMENT"]).dictionary_encode().cast(one.schema.field(0).type)
    statement = one.set_column(0, one.schema.field(0), kind)
    with pytest.raises(UnsupportedEvent, match="binlog_format=ROW"):
        events_of(statement, TableMeta("a", "b", ()), table.chunk, 0, 40, OPTIONS)
