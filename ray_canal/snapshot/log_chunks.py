"""Rows that were read as chunks of a log: at their place, as transactions, with marks around them.

Such a chunk is a transaction of its own at a place between two others: its entries have that place,
and ordinals that rise with each chunk of a snapshot, so that row ids rise in the log's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import (
    ENTRY,
    EVENT,
    FLAVOR_MYSQL,
    GTID,
    QUERY,
    ChunkHead,
    ChunkInfo,
    ChunkLayout,
    DecodedChunk,
)
from ray_canal.binlog.layout import ArenaSketch, place_queries
from ray_canal.binlog.parsed import QueryRecord
from ray_canal.kernels.base import event_types
from ray_canal.kernels.rows.records import place_entries
from ray_canal.model import canal_types
from ray_canal.model.arrays import Bools, Bytes
from ray_canal.model.snapshot_marks import Props
from ray_canal.model.table_event import TRUNCATE, TableEffect, TableEvent
from ray_canal.model.table_meta import TableMeta
from ray_canal.snapshot.chunks import Origin, event_count, write_events
from ray_canal.snapshot.columns import quoted
from ray_canal.snapshot.without_rows import without_rows

ATTEMPT_SHIFT = 40
"""Ordinals of an attempt begin at its number, shifted so far: those of an earlier one are lower."""
_NO_FIELD = -1


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a chunk goes, and what its entries say. `ordinal` is that of its first one."""

    journal_name: str
    position: int
    ordinal: int
    props: Props = ()
    created_s: int = 0


def rows_at(
    chunk: DecodedChunk, kept: Bools, place: LogPlace
) -> tuple[ChunkInfo, DecodedChunk]:
    """A framed chunk of rows (snapshot/chunks.py) at its place, with the rows of `kept` alone. It
    keeps one row at least."""
    rows = int(kept.sum())
    if rows < len(kept):
        origin = _origin_of(chunk)
        size_bytes = int(chunk.events["length"].astype(np.int64).sum()) * rows // len(kept)
        chunk = without_rows(chunk, kept, event_count(rows, framed=True))
        write_events(chunk, size_bytes, origin, 0, framed=True)
        _own_rows(chunk)
    events = chunk.events
    events["position"] = place.position
    events["inner"] += place.ordinal - int(events["inner"][0])
    layout = chunk.layout._replace(journal_name=place.journal_name, props=place.props)
    return _with_info(DecodedChunk(layout, chunk.arena), place)


def mark_at(place: LogPlace, timestamp: int, server_id: int = 0) -> tuple[ChunkInfo, DecodedChunk]:
    """Return a chunk of one entry without rows at a place of the log: a mark, which `place.props`
    name."""
    sketch = ArenaSketch()
    events_at, queries_at = sketch.take(EVENT.itemsize), sketch.take(QUERY.itemsize)
    arena: Bytes = np.zeros(sketch.size_bytes, np.uint8)
    layout = ChunkLayout(
        place.journal_name, events_at, 1, events_at, 0, queries_at, 1, (), props=place.props
    )
    chunk = DecodedChunk(layout, arena)
    event = chunk.events
    event["position"], event["inner"] = place.position, place.ordinal
    event["timestamp"], event["server_id"] = timestamp, server_id
    event["length"] = event_types.HEADER_BYTES
    event["present"] = event["table"] = event["gtid"] = -1
    event["kind"], event["event_type"] = canal_types.ROWDATA, canal_types.QUERY
    event["type_code"] = event_types.QUERY
    for name in ("schema_bytes", "table_bytes", "ddl_schema_bytes"):
        chunk.queries[name] = _NO_FIELD
    return _with_info(chunk, place)


def emptied_at(
    tables: Sequence[TableMeta], place: LogPlace, timestamp: int, server_id: int = 0
) -> tuple[ChunkInfo, DecodedChunk]:
    """A TRUNCATE of each of these tables: what a subscriber has of them is void."""
    records = tuple(
        QueryRecord(
            canal_types.TRUNCATE, meta.schema, meta.table,
            f"TRUNCATE TABLE {quoted(meta.schema, meta.table)}", meta.schema, True,
        )
        for meta in tables
    )  # fmt: skip
    sketch, count = ArenaSketch(), len(tables)
    events_at = sketch.take(count * EVENT.itemsize)
    queries_at = sketch.take(count * QUERY.itemsize)
    queries, texts = place_queries(sketch, records)
    arena: Bytes = np.zeros(sketch.size_bytes, np.uint8)
    for at, text in texts:
        arena[at : at + len(text)] = np.frombuffer(text, np.uint8)
    effects = tuple(
        TableEvent(number, number, TableEffect(TRUNCATE, meta.schema, meta.table, meta=meta))
        for number, meta in enumerate(tables)
    )
    layout = ChunkLayout(
        place.journal_name, events_at, count, events_at, 0, queries_at, count, (),
        props=place.props, table_events=effects,
    )  # fmt: skip
    chunk = DecodedChunk(layout, arena)
    chunk.queries[:] = queries
    events = chunk.events
    events["position"], events["inner"] = place.position, place.ordinal + np.arange(count)
    events["aux"] = np.arange(count)
    events["timestamp"], events["server_id"] = timestamp, server_id
    events["length"] = event_types.HEADER_BYTES
    events["present"] = events["table"] = events["gtid"] = -1
    events["kind"], events["event_type"] = canal_types.ROWDATA, canal_types.TRUNCATE
    events["type_code"] = event_types.QUERY
    return _with_info(chunk, place)


def _origin_of(chunk: DecodedChunk) -> Origin:
    first = chunk.events[0]
    return Origin("", 0, int(first["server_id"]), int(first["timestamp"]), chunk.layout.flavor)


def _own_rows(chunk: DecodedChunk) -> None:
    """Write which event each row is of."""
    table, events = chunk.layout.tables[0], chunk.events
    owners = np.repeat(np.arange(len(events)), events["rows"]).astype("<i4")
    chunk.arena[table.row_event : table.row_event + 4 * table.rows] = owners.view(np.uint8)


def _with_info(chunk: DecodedChunk, place: LogPlace) -> tuple[ChunkInfo, DecodedChunk]:
    entries = np.zeros(chunk.layout.event_count, ENTRY)
    place_entries(chunk.events, entries)
    tables = tuple((each.meta.schema, each.meta.table) for each in chunk.layout.tables)
    for number, event in enumerate(chunk.layout.table_events):
        entries["table"][event.entry] = number
        tables += ((event.effect.schema, event.effect.table),)
    head = ChunkHead(
        0, place.journal_name, place.position, place.position,
        flavor=chunk.layout.flavor or FLAVOR_MYSQL, created_s=place.created_s,
    )  # fmt: skip
    size_bytes = int(entries["length"].astype(np.int64).sum())
    info = ChunkInfo(
        head, size_bytes, int(chunk.arena.size), entries, np.zeros(0, GTID), tables, thins=False
    )
    return info, chunk
