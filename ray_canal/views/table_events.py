"""Changes of tables as a whole, as rows of Arrow batches at their place among the changes of rows.

A statement such as TRUNCATE changes rows that no row event tells of. Its row has its `event_type`
and no images: TRUNCATE (all rows are gone), ERASE (the table is gone: DROP TABLE, DROP DATABASE, or
it has another name now), RENAME (the table has the rows of one that had another name), STATEMENT
(rows were changed by a statement of which the log has the text alone, or with a partition). The
batch's metadata say more: `canal.sql`, `canal.renamed_from`, `canal.renamed_to`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.errors import UnsupportedEvent
from ray_canal.filter import FieldFilter
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import envelope as e
from ray_canal.model.arrays import Bools
from ray_canal.model.log_context import NO_CONTEXT, LogContext
from ray_canal.model.table_event import RENAME, STATEMENT, TableEvent
from ray_canal.model.table_meta import TableMeta
from ray_canal.views.arrow import JSON_DIFF, arrow_schema, batches
from ray_canal.views.envelope import ENVELOPE, EVENT_TYPES, Envelopes
from ray_canal.views.plain_arrays import numbers, strings

SQL, RENAMED_FROM, RENAMED_TO = b"canal.sql", b"canal.renamed_from", b"canal.renamed_to"
_SQL_CHARACTERS_MAX = 2000


def is_of_table(batch: pa.RecordBatch) -> bool:
    """Tell if a batch has changes of a table as a whole, and not of rows."""
    return SQL in (batch.schema.metadata or {})


def change_batches(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None = None,
    tables: Sequence[int] | None = None,
    fields: FieldFilter | None = None,
    context: LogContext = NO_CONTEXT,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """`views.arrow.batches` of entries [first, last), and between them a batch for each change of a
    table as a whole; then all batches in front of it are of what came before.

    `tables`: of each of the chunk's tables (ChunkInfo.tables), whether it may be shown; None: all.
    `options` are those of `batches`.
    """
    options.update(fields=fields, context=context)
    shown = shown_events(chunk, first, last, mask, tables) if chunk.layout.table_events else []
    if not shown:
        return batches(chunk, first, last, mask, **options)
    return _mixed(chunk, first, last, mask, shown, options)


def _mixed(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None,
    shown: list[TableEvent],
    options: dict[str, Any],
) -> Iterator[pa.RecordBatch]:
    maker = _Maker(chunk, options["fields"], options["context"])
    ends = np.cumsum(chunk.events["rows"] > 0)
    for _, run in groupby(shown, lambda event: int(ends[event.entry])):
        found = list(run)
        if first < found[0].entry:
            yield from batches(chunk, first, found[0].entry, mask, **options)
        for group in _alike(found):
            batch = maker.batch(group)
            if options.get("json_diff"):
                batch = batch.append_column(JSON_DIFF, pa.nulls(batch.num_rows, JSON_DIFF.type))
            yield batch
        first = found[-1].entry + 1
    if first < last:
        yield from batches(chunk, first, last, mask, **options)


def shown_events(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None,
    tables: Sequence[int] | None,
) -> list[TableEvent]:
    """The changes of tables as a whole among these entries, as `change_batches` takes them."""
    return [
        event
        for event in chunk.layout.table_events
        if first <= event.entry < last
        and (mask is None or mask[event.entry])
        and (tables is None or tables[event.number])
    ]


def _alike(events: list[TableEvent]) -> Iterator[list[TableEvent]]:
    """Return the groups of one batch each: statements on one table that follow each other."""
    group: list[TableEvent] = []
    for event in events:
        if group and _key(event) != _key(group[-1]):
            yield group
            group = []
        group.append(event)
        if event.effect.kind != STATEMENT:
            yield group
            group = []
    if group:
        yield group


def _key(event: TableEvent) -> tuple[str, str, str]:
    return event.effect.kind, event.effect.schema, event.effect.table


class _Maker:
    """The batches of one chunk's changes of tables."""

    def __init__(
        self, chunk: DecodedChunk, fields: FieldFilter | None, context: LogContext
    ) -> None:
        self._chunk = chunk
        self._fields = fields
        count = len(chunk.events)
        before = np.empty(count, np.int64)
        spans = np.zeros((len(chunk.layout.tables), e.SPAN_FIELDS), np.int64)
        open_rows = context.open.rows if context.open else 0
        e.row_spans(read_only(chunk.events), np.zeros(count, np.bool_), open_rows, spans, before)
        self._envelopes = Envelopes(chunk, context, before)

    def batch(self, events: list[TableEvent]) -> pa.RecordBatch:
        """Return a batch of events that are alike."""
        effect, count = events[0].effect, len(events)
        owners = np.array([event.entry for event in events], np.int32)
        schema = self._schema(effect.meta, effect.schema, effect.table)
        envelope, _, _ = self._envelopes.columns(owners, 0)
        inner = self._chunk.events["inner"][owners]
        own = {
            "event_type": _labels([event.effect.kind for event in events]),
            "row": numbers(inner + [event.effect.ordinal for event in events], pa.int64()),
            "transaction_row": pa.nulls(count, pa.int64()),
        }
        named = zip(ENVELOPE, envelope, strict=True)
        columns = [own.get(field.name, column) for field, column in named]
        columns += [pa.nulls(count, schema.field(name).type) for name in ("before", "after")]
        notes = {**(schema.metadata or {}), SQL: self._sql(events[0]).encode()}
        if effect.other is not None:
            other = RENAMED_FROM if effect.kind == RENAME else RENAMED_TO
            notes[other] = ".".join(effect.other).encode()
        return pa.RecordBatch.from_arrays(columns, schema=schema.with_metadata(notes))

    def _schema(self, meta: TableMeta | None, schema: str, table: str) -> pa.Schema:
        nothing = TableMeta(schema, table, ())
        if meta is None:
            return arrow_schema(nothing)
        shown = tuple(
            column
            for column in meta.columns
            if not self._fields or self._fields.admits(schema, table, column.name)
        )
        meta = dataclasses.replace(meta, schema=schema, table=table, columns=shown)
        try:
            return arrow_schema(meta)
        except UnsupportedEvent:
            return arrow_schema(nothing)

    def _sql(self, event: TableEvent) -> str:
        query = self._chunk.queries[self._chunk.events["aux"][event.entry]]
        start, size = int(query["sql"]), int(query["sql_bytes"])
        text = self._chunk.arena[start : start + min(size, 4 * _SQL_CHARACTERS_MAX)].tobytes()
        return text.decode("utf-8", "replace")[:_SQL_CHARACTERS_MAX]


def _labels(kinds: list[str]) -> pa.Array:
    index = np.array([EVENT_TYPES.index(kind) for kind in kinds], np.int8)
    return pa.DictionaryArray.from_arrays(numbers(index, pa.int8()), strings(EVENT_TYPES))
