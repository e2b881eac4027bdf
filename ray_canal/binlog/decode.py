"""Decode a raw chunk and its parse into columns. Stateless, and it does not raise for bad bytes:
the first event that cannot be decoded becomes ChunkInfo.failure, and all before it come out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ray_canal.binlog import json_diffs
from ray_canal.binlog.annotations import AnnotationTexts
from ray_canal.binlog.assemble import hide
from ray_canal.binlog.chunk import (
    EVENT,
    GTID,
    QUERY,
    ChunkHead,
    ChunkInfo,
    ChunkLayout,
    DecodedChunk,
    RawChunk,
    SkippedEvent,
    TableLayout,
    records_in,
)
from ray_canal.binlog.control_plane import control_plane
from ray_canal.binlog.events import event_name
from ray_canal.binlog.layout import ArenaSketch, aligned, place_queries, table_layout
from ray_canal.binlog.measure import RowsFailure, Work, failed, failed_row, lacks_before, measure
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.binlog.savepoint_statements import savepoint_statements
from ray_canal.binlog.text_check import broken_row, has_broken_text
from ray_canal.binlog.walked import at_event, file_position, how_to_pass, letter_of
from ray_canal.errors import DecodeError, UnsupportedEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.json.column import fill_json
from ray_canal.kernels.rows import fill as f
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.arrays import ColumnArrays
from ray_canal.kernels.rows.inflate import fill_inflated
from ray_canal.kernels.rows.records import place_rows
from ray_canal.kernels.rows.regions import place_tables
from ray_canal.malloc import large, shortened
from ray_canal.model.arrays import Bytes, Int64s, Records
from ray_canal.model.schema_record import EVENT_AT, Quarantined
from ray_canal.types.charset_tables import tables as charset_tables

_JSON_FACTOR, _JSON_FACTOR_STEP = 2, 4
"""Text bytes laid out per byte of binary JSON: first guess, and growth."""
_LEFT_OUT_MAX = 100
_CELLS_MIN = 4096
"""Room for the places of a window's values (kernels/rows/fill.py)."""
ARENA_FACTOR_MAX, ARENA_FREE_BYTES = 1100, 64 << 20
"""A chunk's arena has at most FACTOR bytes for each of the chunk, and FREE. A NULL is one bit that
becomes two slots of at most 32 bytes, DEFLATE makes up to 1,032 bytes of one: so whole images keep
to it. A wide table whose images leave columns out may not, as its rows have slots for them all."""


class _MoreRoom(Exception):
    """JSON texts are longer than was laid out."""


class _BrokenText(Exception):
    """A text is not the UTF-8 that its column says it is."""


class _Noted(NamedTuple):
    """A column of JSON or compressed values, whose places in the chunk fill.py notes, for a kernel
    of its own to write them."""

    table: int
    column: int  # line in the plan
    base: int  # its side's first field in `dest`
    rows: int


def decode(raw: RawChunk, parsed: ParsedChunk) -> tuple[ChunkInfo, DecodedChunk]:
    """Decode a chunk. CorruptEvent, UnsupportedEvent and TableMetaMismatch end up in the info."""
    started = time.perf_counter()
    count = len(parsed.events)
    failure = parsed.failure
    factor, fix_text = _JSON_FACTOR, False
    while True:  # each turn either succeeds, or has fewer events or more room
        try:
            work = measure(raw, parsed, count, factor, fix_text)
            chunk = _fill(work, count)
            break
        except RowsFailure as rows_failed:
            at = int(parsed.bodies[rows_failed.number, 0]) - event_types.HEADER_BYTES
            error = at_event(rows_failed.error, raw, at)
            position = file_position(raw, at)
            if _may_pass(raw.head, parsed, position):
                letter = letter_of(raw, at, position)
                parsed = _without(parsed, rows_failed.number, error, raw.head.skips, letter)
                continue
            count, failure = rows_failed.number, how_to_pass(error)
        except _MoreRoom:
            factor *= _JSON_FACTOR_STEP
        except _BrokenText:
            fix_text = True
    seconds = {**parsed.stage_seconds, "decode": time.perf_counter() - started}
    entries, thins, tables, renamed, table_events = control_plane(chunk.events, parsed)
    savepoints = savepoint_statements(raw, parsed, entries)
    if table_events or savepoints:
        layout = chunk.layout._replace(table_events=table_events, savepoints=savepoints)
        chunk = DecodedChunk(layout, chunk.arena)
    info = ChunkInfo(
        raw.head,
        raw.size_bytes,
        int(chunk.arena.size),
        entries,
        parsed.gtids,
        tables,
        failure,
        seconds,
        renamed,
        parsed.records,
        (*parsed.quarantined, *_letters(raw.head, parsed)),
        parsed.pieces,
        thins,
        parsed.skipped,
        savepoints,
    )
    return info, chunk


def _may_pass(head: ChunkHead, parsed: ParsedChunk, position: int) -> bool:
    """Return whether an event whose rows cannot be read is left out. Each one costs another turn,
    and many of them are not events' fault."""
    if position in head.skips:
        return True
    return head.on_undecodable != "stop" and len(parsed.skipped) < _LEFT_OUT_MAX


def _letters(head: ChunkHead, parsed: ParsedChunk) -> Iterator[Quarantined]:
    """Return what is kept of events that were left out."""
    for event in parsed.skipped:
        if event.letter:
            yield Quarantined(
                parsed.log,
                head.journal_name,
                event.position,
                ((EVENT_AT, str(event.position)),),
                time.time(),
                event.reason,
                event.letter,
            )


def _without(
    parsed: ParsedChunk,
    number: int,
    error: DecodeError,
    skips: tuple[int, ...],
    letter: bytes,
) -> ParsedChunk:
    """Return the parse with an event whose rows cannot be read reduced to one that moves
    cursors."""
    events = parsed.events.copy()
    event = events[number]
    skipped = SkippedEvent(
        int(event["position"]),
        event_name(int(event["type_code"])),
        int(event["length"]),
        f"source.{'skip_events' if error.position in skips else 'on_undecodable'}; {error}",
        letter,
    )
    hide(events, np.arange(len(events)) == number)
    return replace(parsed, events=events, skipped=(*parsed.skipped, skipped))


def _place_bitmaps(sketch: ArenaSketch, work: Work) -> None:
    """Give each event that lacks columns room for its two bitmaps."""
    partial = work.heads[:, r.PRESENT] >= 0
    if not partial.any():
        return
    columns = work.shape[work.events[partial, r.E_TABLE], r.S_COLUMNS]
    sizes = 2 * ((columns + 7) // 8)
    start = sketch.take(int(sizes.sum()))
    work.heads[partial, r.PRESENT] = start + np.cumsum(sizes) - sizes


def _fill(work: Work, count: int) -> DecodedChunk:
    """Lay out the arena and fill it."""
    parsed = work.parsed
    sketch = ArenaSketch()
    events_at = sketch.take(count * EVENT.itemsize)
    gtids_at = sketch.take(len(parsed.gtids) * GTID.itemsize)
    query_count = len(parsed.queries) + len(parsed.annotations.bounds)
    queries_at = sketch.take(query_count * QUERY.itemsize)
    zeros_at = sketch.size_bytes
    queries, texts = place_queries(sketch, parsed.queries)
    annotations = None
    if len(parsed.annotations.bounds):
        annotations = AnnotationTexts(sketch, parsed.annotations, read_only(work.raw.data))
    _place_bitmaps(sketch, work)
    tables_at = sketch.size_bytes
    texts_at, room = place_tables(work.plan, work.shape, work.sizes, work.dest, tables_at)
    _refuse_giant(work, texts_at + room)
    arena = large(texts_at + room)
    arena[zeros_at:tables_at] = 0  # records and columns are written whole
    deferred, end = _fill_columns(work, arena, texts_at)
    arena = shortened(arena, end)
    _write(arena, events_at, parsed.events[:count])
    events = records_in(arena, events_at, count, EVENT)
    place_rows(work.heads, work.events[:, r.E_NUMBER], r.ROWS, r.ROW, r.PRESENT, events)
    _write(arena, gtids_at, parsed.gtids)
    _write(arena, queries_at, queries)
    for at, text in texts:
        arena[at : at + len(text)] = np.frombuffer(text, np.uint8)
    if annotations is not None:
        _write(arena, queries_at + queries.nbytes, annotations.records)
        annotations.write(arena)
    layouts = []
    for version, plan, shape in zip(parsed.tables, work.plans, work.shape, strict=True):
        mine = slice(int(shape[r.S_FIRST]), int(shape[r.S_FIRST]) + len(plan.codes))
        layouts.append(table_layout(version.meta, plan, shape, work.dest[mine]))
    arena = _add_diffs(work, deferred, arena, layouts)
    layout = ChunkLayout(
        work.raw.head.journal_name,
        events_at,
        count,
        gtids_at,
        len(parsed.gtids),
        queries_at,
        query_count,
        tuple(layouts),
        work.raw.head.flavor,
        parsed.changes,
    )
    return DecodedChunk(layout, arena)


def _add_diffs(work: Work, deferred: Int64s, arena: Bytes, layouts: list[TableLayout]) -> Bytes:
    """Put the texts of JSON diffs after the arena, and their places into the tables' layouts."""
    lines = work.partial
    if not lines.size:
        return arena
    owners = np.searchsorted(work.shape[:, r.S_FIRST], lines, side="right") - 1
    tables, texts = np.unique(owners).tolist(), []
    for table in tables:
        mine = lines[owners == table]
        columns = work.parsed.tables[table].meta.columns
        names = [columns[k].name for k in (mine - work.shape[table, r.S_FIRST]).tolist()]
        rows = int(work.shape[table, r.S_ROWS])
        source = read_only(work.raw.data)
        found = json_diffs.diff_texts(source, mine, names, rows, work.dest, deferred)
        if isinstance(found, tuple):
            raise failed_row(work, arena, found[0], int(mine[0]), found[1])
        texts.append(found)
    arena, places = json_diffs.append(arena, texts)
    for table, place in zip(tables, places, strict=True):
        layouts[table] = layouts[table]._replace(json_diff=place)
    return arena


def _refuse_giant(work: Work, arena_bytes: int) -> None:
    """Raise RowsFailure if some event's rows would take too much memory, before it is allocated."""
    if arena_bytes <= ARENA_FREE_BYTES + ARENA_FACTOR_MAX * work.raw.data.size:
        return
    slots = work.heads[:, r.ROWS] * work.shape[work.events[:, r.E_TABLE], r.S_COLUMNS]
    k = int(slots.argmax())
    table = work.parsed.tables[int(work.events[k, r.E_TABLE])].meta.full_name
    raise RowsFailure(
        int(work.events[k, r.E_NUMBER]),
        UnsupportedEvent(
            f"{table}: {work.raw.data.size} bytes of binlog would take {arena_bytes} of memory, as "
            "its rows leave most columns out; set a smaller chunk_bytes"
        ),
    )


def _fill_columns(work: Work, arena: Bytes, texts_at: int) -> tuple[Int64s, int]:
    """Fill the columns, those of JSON and compressed values from `texts_at` on; return (where such
    values lie in the chunk, where the last column ends)."""
    noted = _noted_columns(work)
    deferred = np.full((sum(column.rows for column in noted), 2), -1, np.int64)
    arrays = ColumnArrays(
        source=read_only(work.raw.data),
        plan=work.plan.reshape(-1),
        tables=charset_tables(),
        dest=work.dest.reshape(-1),
        deferred=deferred.reshape(-1),
        cells=np.empty(
            max(_CELLS_MIN, 2 * int(work.shape[:, r.S_COLUMNS].max(initial=0))), np.int64
        ),
        arena=arena,
    )
    fill: Any = f.fill_partial_rows if work.any_partial else f.fill_rows
    code, k = fill(tuple(arrays), (work.events, work.heads, work.shape))
    if code < 0:
        raise failed(work, code, k)
    end = texts_at
    for column in noted:
        end = _fill_noted(work, column, arrays, end)
    f.close_tables(work.shape, work.plan.reshape(-1), work.dest.reshape(-1), arena)
    if has_broken_text(work.plan, work.shape, work.dest, arena):
        raise _BrokenText
    return deferred, end


def _fill_noted(work: Work, noted: _Noted, arrays: ColumnArrays, at: int) -> int:
    """Fill such a column from `at` on; return where the next one may begin."""
    table, column, base, rows = noted
    arena, dest = arrays.arena, work.dest[column, base : base + wire.DEST_FIELDS]
    dest[wire.DATA] = at
    dest[wire.DATA_END] = at + work.sizes[column, base // wire.DEST_FIELDS]
    if work.plan[column, wire.WIRE] == wire.READ_JSON:
        alone = np.empty(0, np.bool_)
        if base and column in work.partial:
            alone = lacks_before(work, arena, column)
        meta = work.parsed.tables[table].meta
        name = meta.columns[column - int(work.shape[table, r.S_FIRST])].name
        named = np.frombuffer(name.encode("utf-8"), np.uint8)
        code, row = fill_json(tuple(arrays), column, base, rows, alone, named)
        if code == wire.JSON_SPACE:
            raise _MoreRoom
        if code >= 0:
            row = broken_row(work.dest[column], base, rows, arena)
            code = wire.BAD_JSON if row >= 0 else code
    else:
        code, row = fill_inflated(tuple(arrays), column, base, rows)
    if code < 0:
        raise failed_row(work, arena, code, column, row)
    dest[wire.DATA_END] = at + dest[wire.USED]
    return aligned(int(dest[wire.DATA_END]))


def _noted_columns(work: Work) -> list[_Noted]:
    """Return the columns of JSON and compressed values that have rows."""
    found = []
    lines = 0
    for column in np.flatnonzero(work.plan[:, wire.WIRE] >= wire.READ_JSON).tolist():
        table = int(np.searchsorted(work.shape[:, r.S_FIRST], column, side="right")) - 1
        rows = int(work.shape[table, r.S_ROWS])
        for side in (0, 1):
            if work.shape[table, r.S_BEFORE + side]:
                base = side * wire.DEST_FIELDS
                work.dest[column, base + wire.DEFERRED] = lines
                found.append(_Noted(table, column, base, rows))
                lines += rows
    return found


def _write(arena: Bytes, at: int, records: Records) -> None:
    """Write records and zero the gap after them: what the memory held before must not be sent."""
    end = at + records.nbytes
    source = np.ascontiguousarray(records)
    arena[at:end] = np.ndarray((records.nbytes,), np.uint8, source.data)
    arena[end : aligned(end)] = 0
