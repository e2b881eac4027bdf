"""What does nothing to a target: sequences, and statements that change none of its tables."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.client.message import TableChange
from ray_canal.config import MirrorConfig
from ray_canal.model.table_event import ERASE
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.sinks.left_out import is_left_out, is_of_sequence, refuse_changes
from ray_canal.sinks.port import Changed, SinkError
from ray_canal.sinks.rows import Rows
from ray_canal.views.arrow import arrow_schema

(SEQUENCE, KEYLESS) = parse_tables(
    "create sequence db.s; create table db.t (next_not_cached_value bigint, minimum_value bigint)"
)


def rows_of(meta: TableMeta, key: list[str]) -> Rows:
    notes = {"canal.schema": "db", "canal.table": meta.table, "canal.key": json.dumps(key)}
    batch = pa.RecordBatch.from_pylist([], arrow_schema(meta).with_metadata(notes))
    return Rows(batch, None)


@pytest.mark.parametrize("without_key", ["stop", "rows"])
def test_the_row_of_a_sequence_is_left_out_and_no_others(without_key: Any) -> None:
    """It is inserted again and again: as a table's it would be there as often."""
    policy = MirrorConfig(without_key=without_key)
    assert is_left_out(policy, rows_of(SEQUENCE, []))
    assert not is_left_out(policy, rows_of(SEQUENCE, ["start_value"]))  # a table that has a key
    assert not is_left_out(policy, rows_of(KEYLESS, []))


def changed(meta: TableMeta, kind: str = "ALTER") -> Changed:
    shape = None if kind == ERASE else arrow_schema(meta)
    change = TableChange("b.1", 4, meta.schema, meta.table, shape, kind=kind)
    return Changed(change, None if kind == ERASE else meta, 99)


def test_what_changes_nothing_in_the_target_does_not_stop_a_sink_that_stops_at_changes() -> None:
    policy = MirrorConfig(schema_change="stop")
    assert is_of_sequence(changed(SEQUENCE))
    refuse_changes(policy, [changed(SEQUENCE), changed(KEYLESS, ERASE)], lambda *_: False)
    with pytest.raises(SinkError, match=r"ERASE of db\.t at b\.1:4") as refused:
        refuse_changes(policy, [changed(KEYLESS, ERASE)], lambda *of: of == ("db", "t"))
    assert refused.value.source_table == ("db", "t")
    with pytest.raises(SinkError, match=r"ALTER of db\.t at b\.1:4"):
        refuse_changes(policy, [changed(KEYLESS)], lambda *_: False)
