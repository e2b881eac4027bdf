"""The two views of one chunk agree: Arrow's values are what Canal's entries print."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.generated import CanalProtocol_pb2 as packets
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError
from ray_canal.filter import FieldFilter
from ray_canal.offline import decode_chunks
from ray_canal.render import plain
from ray_canal.views.arrow import batches
from ray_canal.views.entries import delimited_pieces, iter_entries, render_entries
from tests.golden import split_delimited


@pytest.fixture(scope="module")
def chunk() -> DecodedChunk:
    """The bundled files' chunk with the most entries."""
    chunks = [chunk for _, chunk in decode_chunks(binlog_files())]
    return max(chunks, key=lambda chunk: chunk.layout.event_count)


def printed(value: Any, labels: tuple[str, ...], mysql_type: str) -> str:
    """An Arrow value as Canal prints it."""
    fraction = int(mysql_type[-2]) if mysql_type.endswith(")") and "time" in mysql_type else 0
    if isinstance(value, dt.datetime):
        text = value.strftime("%Y-%m-%d %H:%M:%S.%f")
        return text[: 20 + fraction] if fraction else text[:19]
    if isinstance(value, dt.timedelta):
        return str(plain(value))
    if isinstance(value, list):
        return str(sum(1 << labels.index(label) for label in value))
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if labels:
        return str(labels.index(value) + 1)
    return str(value)


def test_entries_print_what_arrow_holds(chunk: DecodedChunk) -> None:
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for batch in batches(chunk, 0, chunk.layout.event_count):
        for row in batch.to_pylist():
            rows[row["position"], row["row"]] = row
    metas = {t.meta.table: {c.name: c for c in t.meta.columns} for t in chunk.layout.tables}
    compared = 0
    for entry in iter_entries(chunk, 0, chunk.layout.event_count):
        if entry.entryType != pb.ROWDATA:
            continue
        change = pb.RowChange.FromString(entry.storeValue)
        columns = metas.get(entry.header.tableName, {})
        for number, data in enumerate(change.rowDatas):
            row = rows[entry.header.logfileOffset, number]
            for side, found in (("before", data.beforeColumns), ("after", data.afterColumns)):
                assert (row[side] is None) == (len(found) == 0)
                for column in found:
                    value, meta = row[side][column.name], columns[column.name]
                    assert column.isNull == (value is None)
                    if value is not None and not isinstance(value, float):
                        assert column.value == printed(value, meta.labels, meta.mysql_type)
                        compared += 1
    assert compared > 5_000


def test_slices_make_the_whole(chunk: DecodedChunk) -> None:
    count = chunk.layout.event_count
    whole = render_entries(chunk, 0, count)
    assert len(whole) == count
    pieces = [render_entries(chunk, low, min(low + 97, count)) for low in range(0, count, 97)]
    assert b"".join(p.buffer.tobytes() for p in pieces) == whole.buffer.tobytes()
    each = [bytes(whole[index]) for index in range(count)]
    assert split_delimited(b"".join(delimited_pieces(chunk, 0, count))) == each


def test_a_tag_makes_entries_a_field_of_another_message(chunk: DecodedChunk) -> None:
    """Canal's Messages.messages, field 2: what the TCP server sends."""
    count = chunk.layout.event_count
    whole = render_entries(chunk, 0, count)
    messages = packets.Messages.FromString(
        render_entries(chunk, 0, count, tag=0x12).buffer.tobytes()
    )
    assert list(messages.messages) == [bytes(whole[i]) for i in range(count)]


def test_mask_chooses_entries_and_rows(chunk: DecodedChunk) -> None:
    count = chunk.layout.event_count
    mask = np.arange(count) % 3 == 0
    chosen = render_entries(chunk, 0, count, mask)
    whole = render_entries(chunk, 0, count)
    assert [bytes(chosen[i]) for i in range(len(chosen))] == [
        bytes(whole[i]) for i in np.flatnonzero(mask)
    ]
    rows = sum(batch.num_rows for batch in batches(chunk, 0, count, mask))
    assert rows == int(chunk.events["rows"][mask].sum())


def test_a_field_filter_leaves_columns_out_of_both_views(chunk: DecodedChunk) -> None:
    """Those that stay keep their bytes, and so their index in the table."""
    count = chunk.layout.event_count
    meta = chunk.layout.tables[0].meta
    hidden = meta.columns[1].name
    fields = FieldFilter(black_fields=f"{meta.full_name}:{hidden}")
    whole = list(iter_entries(chunk, 0, count))
    seen = 0
    for before, after in zip(whole, iter_entries(chunk, 0, count, fields=fields), strict=True):
        assert before.header == after.header
        wanted = pb.RowChange.FromString(before.storeValue)
        if before.header.tableName == meta.table and before.entryType == pb.ROWDATA:
            for row in wanted.rowDatas:
                for side in (row.beforeColumns, row.afterColumns):
                    kept = [column for column in side if column.name != hidden]
                    seen += len(side) - len(kept)
                    del side[:]
                    side.extend(kept)
            assert pb.RowChange.FromString(after.storeValue) == wanted
    assert seen > 10
    for batch in batches(chunk, 0, count, fields=fields):
        names = [field.name for field in batch.schema.field("after").type]
        other = batch.schema.metadata[b"canal.table"].decode() != meta.table
        assert (hidden in names) == (other and hidden in names)
        assert names


def test_a_table_may_show_no_column_at_all(chunk: DecodedChunk) -> None:
    meta = chunk.layout.tables[0].meta
    fields = FieldFilter(f"{meta.full_name}:none")
    rows = sum(b.num_rows for b in batches(chunk, 0, chunk.layout.event_count, fields=fields))
    assert rows == int(chunk.events["rows"].sum())


def test_arrow_columns_are_views_of_the_arena(chunk: DecodedChunk) -> None:
    start = chunk.arena.ctypes.data
    batch = next(batches(chunk, 0, chunk.layout.event_count))
    key = batch.column("after").field("id")
    address = key.buffers()[1].address
    assert start <= address < start + chunk.arena.size


def test_unknown_time_zone(chunk: DecodedChunk) -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        render_entries(chunk, 0, 1, time_zone="Mars/Olympus")
