"""The Arrow view's schema before any row, and what a schema without the right labels gets."""

from __future__ import annotations

import dataclasses

import pytest

from ray_canal.binlog.chunk import DecodedChunk, TableLayout
from ray_canal.demo import binlog_files
from ray_canal.errors import TableMetaMismatch
from ray_canal.model.log_context import LogContext
from ray_canal.offline import decode_chunks
from ray_canal.views import envelope
from ray_canal.views.arrow import arrow_schema, batches
from ray_canal.views.presence import PRESENT
from tests.golden import GOLDEN

FILES = ["dml", "enumsetbit", "geometry", "json", "numeric", "strings", "temporal", "vector"]


def golden_chunks(name: str) -> list[DecodedChunk]:
    return [chunk for _, chunk in decode_chunks([GOLDEN / "mysql97" / f"mysql_{name}.binlog"])]


@pytest.mark.parametrize("name", [*FILES, "demo"])
def test_schema_is_known_before_any_row(name: str) -> None:
    if name == "demo":
        chunks = [chunk for _, chunk in decode_chunks(binlog_files())]
    else:
        chunks = golden_chunks(name)
    compared = 0
    for chunk in chunks:
        metas = [table.meta for table in chunk.layout.tables if table.rows]
        for meta, batch in zip(metas, batches(chunk, 0, chunk.layout.event_count), strict=True):
            columns = [name for name in batch.schema.names if name not in PRESENT]
            known = batch.select(columns).schema
            assert arrow_schema(meta).equals(known, check_metadata=True)
            compared += 1
    assert compared


def relabelled(chunk: DecodedChunk, kind: str) -> DecodedChunk:
    """The same chunk, the first label alone left to columns of ENUM or SET."""

    def cut(table: TableLayout) -> TableLayout:
        columns = tuple(
            dataclasses.replace(c, labels=c.labels[:1]) if c.mysql_type.startswith(kind) else c
            for c in table.meta.columns
        )
        meta = dataclasses.replace(table.meta, columns=columns)
        return table._replace(meta=meta)

    tables = tuple(cut(table) for table in chunk.layout.tables)
    return dataclasses.replace(chunk, layout=chunk.layout._replace(tables=tables))


@pytest.mark.parametrize("kind", ["enum", "set"])
def test_a_value_without_a_label_is_told(kind: str) -> None:
    [chunk] = [c for c in golden_chunks("enumsetbit") if c.layout.tables]
    with pytest.raises(TableMetaMismatch, match=r"g_enumsetbit\.t_esb.*1 labels") as caught:
        list(batches(relabelled(chunk, kind), 0, chunk.layout.event_count))
    first = chunk.events["position"][chunk.events["rows"] > 0][0]
    assert (caught.value.journal_name, caught.value.position) == (
        chunk.layout.journal_name,
        int(first),
    )


def test_every_row_has_its_timeline() -> None:
    """A6: a column beside the place in the log; of files that are decoded alone it is 0."""
    chunk = next(chunk for _, chunk in decode_chunks(binlog_files()) if chunk.layout.tables)
    for timeline in (0, 7, 1 << 40):
        context = LogContext(timeline)
        found = list(batches(chunk, 0, chunk.layout.event_count, context=context))
        assert found
        for batch in found:
            assert batch.schema.names[1:5] == ["timeline", "journal_name", "position", "row"]
            assert batch.column("timeline").to_pylist() == [timeline] * batch.num_rows
            batch.validate(full=True)
    small = min(found, key=lambda batch: batch.num_rows)
    assert sum(b.size for b in small.column("timeline").buffers() if b) == 8 * small.num_rows
    count = envelope._ROWS_KEPT + 1
    assert envelope.constant(3, count).to_pylist() == [3] * count
