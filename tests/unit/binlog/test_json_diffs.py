"""PARTIAL_UPDATE_ROWS of a real server: whole values, the diffs beside them, and what cannot be."""

from __future__ import annotations

import json
import zlib
from itertools import pairwise
from typing import Any

from ray_canal.binlog.chunk import DecodedChunk, RawChunk, TableLayout
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.errors import CorruptEvent
from ray_canal.filter import FieldFilter
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from tests.unit.binlog.golden import decode_chunk, golden_chunk, needs_golden, values

pytestmark = needs_golden

MINIMAL = 8
"""The row at offset 7677, from which on the file has an event of a minimal row image."""


def diffs(chunk: DecodedChunk, table: TableLayout) -> list[Any]:
    """Each row's diffs, None where it has no partial value."""
    place = table.json_diff
    assert place is not None
    ends = chunk.arena[place.values : place.values + 4 * (table.rows + 1)].view("<i4").tolist()
    data = chunk.arena[place.data : place.data + place.data_bytes].tobytes()
    bits = int.from_bytes(
        chunk.arena[place.validity :][: (table.rows + 7) // 8].tobytes(), "little"
    )
    found = [json.loads(data[a:b]) if a < b else None for a, b in pairwise(ends)]
    assert [row is not None for row in found] == [bool(bits >> k & 1) for k in range(table.rows)]
    assert found.count(None) == place.null_count
    return found


def test_each_after_image_is_the_next_before_image() -> None:
    info, chunk = decode_chunk(golden_chunk("mysql97/mysql_partialjson"))
    assert info.failure is None
    (table,) = chunk.layout.tables
    before, after = values(chunk, table, "before"), values(chunk, table, "after")
    assert len(after) == 11
    whole = [row for row in pairwise(range(11)) if MINIMAL not in row]
    assert all(before[b] == after[a] for a, b in whole)
    assert {table.meta.columns[k].name for k in range(4)} == {"id", "j", "j2", "v"}
    assert [row["v"] for row in after[:8]] == [1, 1, 1, 1, 2, 2, 2, 3]
    assert after[7]["j"] == '{"a": {"n": null}, "arr": ["zero", 2, 3]}'
    assert after[7]["j2"] == '{"w": 1.50, "z": "q"}'
    rows = diffs(chunk, table)
    assert rows[0] is None
    assert rows[1] == {"j": [{"op": "replace", "path": "$.a", "value": 2}], "j2": []}
    assert rows[3] == {"j": [{"op": "remove", "path": "$.b"}], "j2": []}
    assert rows[5] == {"j": [], "j2": [{"op": "insert", "path": "$.w", "value": 1.5}]}
    assert rows[7] == {"j": [], "j2": []}


def test_diffs_without_the_value_before_them_are_null_and_diffs() -> None:
    """binlog_row_image=MINIMAL: Arrow has null and the diffs, entries have SQL, as Canal's."""
    _, chunk = decode_chunk(golden_chunk("mysql97/mysql_partialjson"))
    (table,) = chunk.layout.tables
    assert values(chunk, table, "after")[MINIMAL]["j"] is None
    found = diffs(chunk, table)[MINIMAL]
    assert found == {"j": [{"op": "replace", "path": "$.a", "value": 5}]}
    count = chunk.layout.event_count
    texts = [
        column.value
        for entry in iter_entries(chunk, 0, count)
        if entry.header.logfileOffset == 7677
        for row in pb.RowChange.FromString(entry.storeValue).rowDatas
        for column in row.afterColumns
    ]
    assert texts == ["JSON_REPLACE(j, '$.a', 5)"]


def test_broken_bytes_end_in_an_error() -> None:
    """Each byte of the first partial event's after image changed, checksums left out."""
    raw = golden_chunk("mysql97/mysql_partialjson")
    start, size = 1586 - 4, 642
    data = raw.data[: start + size].copy()
    for at in range(start + size - 4 - 24, start + size - 4):
        for value in (0, 1, 36, 255):
            bad = data.copy()
            bad[at] = value
            reseal(bad, start, size)
            info, chunk = decode_chunk(RawChunk(raw.head, bad))
            assert info.failure is None or isinstance(info.failure, CorruptEvent)
            assert len(chunk.events) == 6 - (info.failure is not None)


def reseal(data: Any, start: int, size: int) -> None:
    """Give a changed event the checksum that fits it."""
    crc = zlib.crc32(data[start : start + size - 4].tobytes())
    data[start + size - 4 : start + size].view("<u4")[0] = crc


def test_diffs_in_arrow_are_asked_for_and_obey_the_field_filter() -> None:
    _, chunk = decode_chunk(golden_chunk("mysql97/mysql_partialjson"))
    count = chunk.layout.event_count
    (plain,) = batches(chunk, 0, count)
    assert "json_diff" not in plain.schema.names
    (batch,) = batches(chunk, 0, count, json_diff=True)
    (table,) = chunk.layout.tables
    texts = batch["json_diff"].to_pylist()
    assert [text and json.loads(text) for text in texts] == diffs(chunk, table)
    for left_out, null_count in (("j2", len(texts)), ("v", texts.count(None))):
        fields = FieldFilter("", rf"g_partialjson.t_pj:{left_out}")
        (batch,) = batches(chunk, 0, count, fields=fields, json_diff=True)
        assert left_out not in {field.name for field in batch.schema.field("after").type}
        assert batch["json_diff"].null_count == null_count
