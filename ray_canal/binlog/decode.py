"""The door of the hot room: a raw chunk and its parse in, columns out. Stateless, and it does not
raise for bad bytes: the first event that cannot be decoded becomes ChunkInfo.failure, all before it
come out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ray_canal.binlog import json_diffs
from ray_canal.binlog.assemble import hide
from ray_canal.binlog.chunk import (
    EVENT,
    GTID,
    QUERY,
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
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.binlog.plan import Plan, make_plan
from ray_canal.binlog.text_check import broken_row, has_broken_text, read_by_character
from ray_canal.binlog.walked import at_event, how_to_pass, table_id_bytes
from ray_canal.errors import CorruptEvent, DecodeError, UnsupportedEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.json.column import fill_json
from ray_canal.kernels.rows import fill as f
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.inflate import fill_inflated
from ray_canal.kernels.rows.records import place_rows, row_events
from ray_canal.kernels.rows.regions import place_tables
from ray_canal.malloc import large, shortened
from ray_canal.model.arrays import Bools, Bytes, Int64s, Records
from ray_canal.types.charset_tables import tables as charset_tables

_JSON_FACTOR, _JSON_FACTOR_STEP, _JSON_FACTOR_MAX = 2, 4, 128
"""Text bytes laid out per byte of binary JSON: first guess, growth, and what only hostile bytes
exceed."""
_CELLS_MIN = 4096
"""Room for the places of a window's values (kernels/rows/fill.py)."""
ARENA_FACTOR_MAX, ARENA_FREE_BYTES = 1100, 64 << 20
"""A chunk's arena has at most FACTOR bytes for each of the chunk, and FREE. A NULL is one bit that
becomes two slots of at most 32 bytes, DEFLATE makes up to 1,032 bytes of one: so whole images keep
to it. A wide table whose images leave columns out may not, as its rows have slots for them all."""
_TEXT_BYTES_MAX = (1 << 31) - 1  # of one column in a chunk: offsets are int32

_MESSAGES = {
    wire.TRUNCATED: "the event ends inside a row",
    wire.BAD_WIDTH: "its column count is not its TABLE_MAP's",
    wire.BAD_DECIMAL: "a decimal has impossible digits",
    wire.BAD_TEMPORAL: "a date or time has impossible bits",
    wire.BAD_JSON: "a JSON value is broken",
    wire.BAD_PACKED: "a vector, address or compressed value is broken",
    wire.NO_PROGRESS: "rows without columns",
    wire.NO_BEFORE: "JSON diffs of a NULL",
}


class _Failed(Exception):
    """Event `number` of the parse cannot be decoded."""

    def __init__(self, number: int, error: DecodeError) -> None:
        super().__init__(number)
        self.number = number
        self.error = error


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


@dataclass(slots=True)
class _Work:
    """One attempt's arrays; kernels/rows/rows.py says what lies in them."""

    raw: RawChunk
    parsed: ParsedChunk
    plans: list[Plan]
    events: Int64s
    shape: Int64s
    plan: Int64s
    heads: Int64s
    sizes: Int64s
    dest: Int64s
    any_partial: bool  # whether any event is PARTIAL_UPDATE_ROWS
    partial: Int64s  # lines in the plan of JSON columns of which some values may be diffs


def decode(raw: RawChunk, parsed: ParsedChunk) -> tuple[ChunkInfo, DecodedChunk]:
    """Decode a chunk. CorruptEvent, UnsupportedEvent and TableMetaMismatch end up in the info."""
    started = time.perf_counter()
    count = len(parsed.events)
    failure = parsed.failure
    factor, mend_text = _JSON_FACTOR, False
    while True:  # each turn either succeeds, or has fewer events or more room
        try:
            work = _measure(raw, parsed, count, factor, mend_text)
            chunk = _fill(work, count)
            break
        except _Failed as failed:
            at = int(parsed.bodies[failed.number, 0]) - event_types.HEADER_BYTES
            error = at_event(failed.error, raw, at)
            if error.position in raw.head.skips:
                parsed = _without(parsed, failed.number, str(error))
                continue
            count, failure = failed.number, how_to_pass(error)
        except _MoreRoom:
            factor *= _JSON_FACTOR_STEP
        except _BrokenText:
            mend_text = True
    seconds = {**parsed.stage_seconds, "decode": time.perf_counter() - started}
    entries, thins, tables, renamed, table_events = control_plane(chunk.events, parsed)
    if table_events:
        layout = chunk.layout._replace(table_events=table_events)
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
        parsed.quarantined,
        parsed.pieces,
        thins,
        parsed.skipped,
    )
    return info, chunk


def _without(parsed: ParsedChunk, number: int, why: str) -> ParsedChunk:
    """The parse with an event that moves cursors, no more: its rows cannot be read."""
    events = parsed.events.copy()
    event = events[number]
    skipped = SkippedEvent(
        int(event["position"]),
        event_name(int(event["type_code"])),
        int(event["length"]),
        f"source.skip_events; {why}",
    )
    hide(events, np.arange(len(events)) == number)
    return replace(parsed, events=events, skipped=(*parsed.skipped, skipped))


def _measure(raw: RawChunk, parsed: ParsedChunk, count: int, factor: int, mend_text: bool) -> _Work:
    """The count pass over the first `count` events. `mend_text`: UTF-8 is read character by
    character, what is broken becomes U+FFFD."""
    work = _prepare(raw, parsed, count)
    if mend_text:
        read_by_character(work.plan)
    id_bytes = table_id_bytes(raw.head.post_header_bytes)
    code, k = r.count_rows(
        read_only(raw.data),
        work.events,
        id_bytes,
        work.shape,
        work.plan.reshape(-1),
        charset_tables(),
        work.heads,
        work.sizes.reshape(-1),
        factor,
    )
    if code < 0:
        raise _failed(work, code, k)
    # What diffs make of a value is not longer than both.
    if work.partial.size:
        work.sizes[work.partial, 1] += work.sizes[work.partial, 0]
    if work.sizes.size and work.sizes.max() > _TEXT_BYTES_MAX:
        column = int(work.sizes.max(axis=1).argmax())
        table = int(np.searchsorted(work.shape[:, r.S_FIRST], column, side="right")) - 1
        number = int(work.events[work.events[:, r.E_TABLE] == table][0, r.E_NUMBER])
        name = parsed.tables[table].meta.full_name
        raise _Failed(number, UnsupportedEvent(f"{name}: over 2 GiB of one column in a chunk"))
    if factor > _JSON_FACTOR_MAX:
        raise _failed(work, wire.BAD_JSON, _first_json(work))
    return work


def _partial_json(events: Int64s, shape: Int64s, plan: Int64s) -> Int64s:
    """Lines in the plan of the JSON columns of tables with PARTIAL_UPDATE_ROWS events."""
    is_partial = events[:, r.E_VERSION] == r.VERSION_PARTIAL
    lines = np.flatnonzero(plan[:, wire.WIRE] == wire.READ_JSON)
    owners = np.searchsorted(shape[:, r.S_FIRST], lines, side="right") - 1
    return lines[np.isin(owners, events[is_partial, r.E_TABLE])]


def _first_json(work: _Work) -> int:
    """Row event to blame for JSON whose text never ends: the first of a table that has JSON."""
    is_json = work.plan[:, wire.WIRE] == wire.READ_JSON
    owners = np.searchsorted(work.shape[:, r.S_FIRST], np.flatnonzero(is_json), side="right") - 1
    return int(np.flatnonzero(np.isin(work.events[:, r.E_TABLE], owners))[0])


def _failed(work: _Work, code: int, k: int) -> _Failed:
    number = int(work.events[k, r.E_NUMBER])
    table = work.parsed.tables[int(work.events[k, r.E_TABLE])].meta.full_name
    kind = event_name(int(work.parsed.events["type_code"][number]))
    return _Failed(number, CorruptEvent(f"{kind} of {table}: {_MESSAGES[code]}"))


def _failed_row(work: _Work, arena: Bytes, code: int, line: int, row: int) -> _Failed:
    """As `_failed`, for a row of the table that has this line of the plan."""
    table = int(np.searchsorted(work.shape[:, r.S_FIRST], line, side="right")) - 1
    owner = work.shape[table, r.S_ROW_EVENT] + 4 * row
    number = int(arena[owner : owner + 4].view("<i4")[0])
    k = int(np.searchsorted(work.events[:, r.E_NUMBER], number))
    return _failed(work, code, k)


def _lacks_before(work: _Work, arena: Bytes, line: int) -> Bools:
    """Which rows of a table have no before image of the column of this line of the plan."""
    table = int(np.searchsorted(work.shape[:, r.S_FIRST], line, side="right")) - 1
    at, rows = (int(work.shape[table, field]) for field in (r.S_ROW_EVENT, r.S_ROWS))
    numbers = arena[at : at + 4 * rows].view("<i4")
    bitmap = work.heads[np.searchsorted(work.events[:, r.E_NUMBER], numbers), r.BEFORE]
    column = line - int(work.shape[table, r.S_FIRST])
    bits = work.raw.data[np.maximum(bitmap, 0) + (column >> 3)] >> (column & 7) & 1
    lacks: Bools = (bitmap < 0) | (bits == 0)
    return lacks


def _prepare(raw: RawChunk, parsed: ParsedChunk, count: int) -> _Work:
    head = parsed.events[:count]
    events = np.empty((count, r.EVENT_FIELDS), np.int64)
    of_table = np.zeros(len(parsed.tables), np.int64)
    used, any_partial = row_events(read_only(head), read_only(parsed.bodies), events, of_table)
    events = events[:used]
    plans = []
    shape = np.zeros((len(parsed.tables), r.SHAPE_FIELDS), np.int64)
    lines = [np.empty((0, wire.PLAN_FIELDS), np.int64)]
    first = 0
    for table, version in enumerate(parsed.tables):
        if of_table[table]:
            try:
                plan = make_plan(version)
            except DecodeError as error:
                number = int(events[events[:, r.E_TABLE] == table][0, r.E_NUMBER])
                raise _Failed(number, error) from None
        else:
            plan = Plan(lines[0], ())
        plans.append(plan)
        lines.append(plan.lines)
        shape[table, r.S_FIRST] = first
        shape[table, r.S_COLUMNS] = len(plan.codes)
        first += len(plan.codes)
    plan_lines = np.concatenate(lines)
    return _Work(
        raw,
        parsed,
        plans,
        events,
        shape,
        plan_lines,
        np.empty((len(events), r.HEAD_FIELDS), np.int64),
        np.zeros((first, 2), np.int64),
        np.zeros((first, wire.COLUMN_DEST), np.int64),
        any_partial,
        _partial_json(events, shape, plan_lines) if any_partial else np.empty(0, np.int64),
    )


def _place_bitmaps(sketch: ArenaSketch, work: _Work) -> None:
    """Give each event that lacks columns room for its two bitmaps."""
    partial = work.heads[:, r.PRESENT] >= 0
    if not partial.any():
        return
    columns = work.shape[work.events[partial, r.E_TABLE], r.S_COLUMNS]
    sizes = 2 * ((columns + 7) // 8)
    start = sketch.take(int(sizes.sum()))
    work.heads[partial, r.PRESENT] = start + np.cumsum(sizes) - sizes


def _fill(work: _Work, count: int) -> DecodedChunk:
    """Lay out the arena and fill it."""
    parsed = work.parsed
    sketch = ArenaSketch()
    events_at = sketch.take(count * EVENT.itemsize)
    gtids_at = sketch.take(len(parsed.gtids) * GTID.itemsize)
    queries_at = sketch.take(len(parsed.queries) * QUERY.itemsize)
    zeros_at = sketch.size_bytes
    queries, texts = place_queries(sketch, parsed.queries)
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
        len(queries),
        tuple(layouts),
        work.raw.head.flavor,
        parsed.changes,
    )
    return DecodedChunk(layout, arena)


def _add_diffs(work: _Work, deferred: Int64s, arena: Bytes, layouts: list[TableLayout]) -> Bytes:
    """Put the texts of JSON diffs behind the arena, and their places into the tables' layouts."""
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
            raise _failed_row(work, arena, found[0], int(mine[0]), found[1])
        texts.append(found)
    arena, places = json_diffs.append(arena, texts)
    for table, place in zip(tables, places, strict=True):
        layouts[table] = layouts[table]._replace(json_diff=place)
    return arena


def _refuse_giant(work: _Work, arena_bytes: int) -> None:
    """Before the memory is asked for: some event's rows would take too much of it."""
    if arena_bytes <= ARENA_FREE_BYTES + ARENA_FACTOR_MAX * work.raw.data.size:
        return
    slots = work.heads[:, r.ROWS] * work.shape[work.events[:, r.E_TABLE], r.S_COLUMNS]
    k = int(slots.argmax())
    table = work.parsed.tables[int(work.events[k, r.E_TABLE])].meta.full_name
    raise _Failed(
        int(work.events[k, r.E_NUMBER]),
        UnsupportedEvent(
            f"{table}: {work.raw.data.size} bytes of binlog would take {arena_bytes} of memory, as "
            "its rows leave most columns out; set a smaller chunk_bytes"
        ),
    )


def _fill_columns(work: _Work, arena: Bytes, texts_at: int) -> tuple[Int64s, int]:
    """Fill the columns, those of JSON and compressed values from `texts_at` on. (Where such values
    lie in the chunk, where the last column ends.)"""
    noted = _noted_columns(work)
    deferred = np.full((sum(column.rows for column in noted), 2), -1, np.int64)
    fill: Any = f.fill_partial_rows if work.any_partial else f.fill_rows
    code, k = fill(
        read_only(work.raw.data),
        work.events,
        work.heads,
        work.shape,
        work.plan.reshape(-1),
        charset_tables(),
        work.dest.reshape(-1),
        deferred.reshape(-1),
        np.empty(max(_CELLS_MIN, 2 * int(work.shape[:, r.S_COLUMNS].max(initial=0))), np.int64),
        arena,
    )
    if code < 0:
        raise _failed(work, code, k)
    end = texts_at
    for column in noted:
        end = _fill_noted(work, column, arena, deferred, end)
    f.close_tables(work.shape, work.plan.reshape(-1), work.dest.reshape(-1), arena)
    if has_broken_text(work.plan, work.shape, work.dest, arena):
        raise _BrokenText
    return deferred, end


def _fill_noted(work: _Work, noted: _Noted, arena: Bytes, deferred: Int64s, at: int) -> int:
    """Fill such a column from `at` on; where the next one may begin."""
    table, column, base, rows = noted
    source, dest = read_only(work.raw.data), work.dest[column, base : base + wire.DEST_FIELDS]
    dest[wire.DATA] = at
    dest[wire.DATA_END] = at + work.sizes[column, base // wire.DEST_FIELDS]
    if work.plan[column, wire.WIRE] == wire.READ_JSON:
        alone = np.empty(0, np.bool_)
        if base and column in work.partial:
            alone = _lacks_before(work, arena, column)
        meta = work.parsed.tables[table].meta
        name = meta.columns[column - int(work.shape[table, r.S_FIRST])].name
        named = np.frombuffer(name.encode("utf-8"), np.uint8)
        code, row = fill_json(source, column, base, rows, work.dest, deferred, alone, named, arena)
        if code == wire.JSON_SPACE:
            raise _MoreRoom
        if code >= 0:
            row = broken_row(work.dest[column], base, rows, arena)
            code = wire.BAD_JSON if row >= 0 else code
    else:
        code, row = fill_inflated(
            source, work.plan, column, base, rows, charset_tables(), work.dest, deferred, arena
        )
    if code < 0:
        raise _failed_row(work, arena, code, column, row)
    dest[wire.DATA_END] = at + dest[wire.USED]
    return aligned(int(dest[wire.DATA_END]))


def _noted_columns(work: _Work) -> list[_Noted]:
    """Those that have rows."""
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
    """Also zeroes the gap behind them: what the memory held before must not travel."""
    end = at + records.nbytes
    source = np.ascontiguousarray(records)
    arena[at:end] = np.ndarray((records.nbytes,), np.uint8, source.data)
    arena[end : aligned(end)] = 0
