"""Count a chunk's rows and the room of their columns, the first pass of decoding; name the event to
blame where that fails."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.events import event_name
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.binlog.plan import DecodePlan, make_plan
from ray_canal.binlog.text_check import read_by_character
from ray_canal.binlog.walked import table_id_bytes
from ray_canal.errors import CorruptEvent, DecodeError, UnsupportedEvent
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.arrays import MeasureArrays
from ray_canal.kernels.rows.records import row_events
from ray_canal.model.arrays import Bools, Bytes, Int64s
from ray_canal.types.charset_tables import tables as charset_tables

_JSON_FACTOR_MAX = 128
"""Text bytes per byte of binary JSON that only hostile bytes exceed."""
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


class RowsFailure(Exception):
    """Event `number` of the parse cannot be decoded."""

    def __init__(self, number: int, error: DecodeError) -> None:
        super().__init__(number)
        self.number = number
        self.error = error


@dataclass(slots=True)
class Work:
    """Arrays of one attempt at decoding; kernels/rows/rows.py has their fields."""

    raw: RawChunk
    parsed: ParsedChunk
    plans: list[DecodePlan]
    events: Int64s
    shape: Int64s
    plan: Int64s
    heads: Int64s
    sizes: Int64s
    dest: Int64s
    any_partial: bool  # whether any event is PARTIAL_UPDATE_ROWS
    partial: Int64s  # lines in the plan of JSON columns of which some values may be diffs


def measure(raw: RawChunk, parsed: ParsedChunk, count: int, factor: int, fix_text: bool) -> Work:
    """Count the rows of the first `count` events. `fix_text`: UTF-8 is read character by
    character, what is broken becomes U+FFFD."""
    work = _prepare(raw, parsed, count)
    if fix_text:
        read_by_character(work.plan)
    id_bytes = table_id_bytes(raw.head.post_header_bytes)
    arrays = MeasureArrays(
        source=read_only(raw.data),
        plan=work.plan.reshape(-1),
        tables=charset_tables(),
        sizes=work.sizes.reshape(-1),
        json_factor=factor,
    )
    code, k = r.count_rows(tuple(arrays), work.events, id_bytes, work.shape, work.heads)
    if code < 0:
        raise failed(work, code, k)
    # What diffs make of a value is not longer than both.
    if work.partial.size:
        work.sizes[work.partial, 1] += work.sizes[work.partial, 0]
    if work.sizes.size and work.sizes.max() > _TEXT_BYTES_MAX:
        column = int(work.sizes.max(axis=1).argmax())
        table = int(np.searchsorted(work.shape[:, r.S_FIRST], column, side="right")) - 1
        number = int(work.events[work.events[:, r.E_TABLE] == table][0, r.E_NUMBER])
        name = parsed.tables[table].meta.full_name
        raise RowsFailure(number, UnsupportedEvent(f"{name}: over 2 GiB of one column in a chunk"))
    if factor > _JSON_FACTOR_MAX:
        raise failed(work, wire.BAD_JSON, _first_json(work))
    return work


def _partial_json(events: Int64s, shape: Int64s, plan: Int64s) -> Int64s:
    """Return the plan's lines of JSON columns of tables with PARTIAL_UPDATE_ROWS events."""
    is_partial = events[:, r.E_VERSION] == r.VERSION_PARTIAL
    lines = np.flatnonzero(plan[:, wire.WIRE] == wire.READ_JSON)
    owners = np.searchsorted(shape[:, r.S_FIRST], lines, side="right") - 1
    return lines[np.isin(owners, events[is_partial, r.E_TABLE])]


def _first_json(work: Work) -> int:
    """Return the row event to blame for JSON whose text never ends: the first of a table with
    JSON."""
    is_json = work.plan[:, wire.WIRE] == wire.READ_JSON
    owners = np.searchsorted(work.shape[:, r.S_FIRST], np.flatnonzero(is_json), side="right") - 1
    return int(np.flatnonzero(np.isin(work.events[:, r.E_TABLE], owners))[0])


def failed(work: Work, code: int, k: int) -> RowsFailure:
    """Return the failure that a code of the row kernels means, at line `k` of the events."""
    number = int(work.events[k, r.E_NUMBER])
    table = work.parsed.tables[int(work.events[k, r.E_TABLE])].meta.full_name
    kind = event_name(int(work.parsed.events["type_code"][number]))
    return RowsFailure(number, CorruptEvent(f"{kind} of {table}: {_MESSAGES[code]}"))


def failed_row(work: Work, arena: Bytes, code: int, line: int, row: int) -> RowsFailure:
    """Return the same as `failed`, for a row of the table that has this line of the plan."""
    table = int(np.searchsorted(work.shape[:, r.S_FIRST], line, side="right")) - 1
    owner = work.shape[table, r.S_ROW_EVENT] + 4 * row
    number = int(arena[owner : owner + 4].view("<i4")[0])
    k = int(np.searchsorted(work.events[:, r.E_NUMBER], number))
    return failed(work, code, k)


def lacks_before(work: Work, arena: Bytes, line: int) -> Bools:
    """Tell which rows of a table have no before image of the column of this line of the plan."""
    table = int(np.searchsorted(work.shape[:, r.S_FIRST], line, side="right")) - 1
    at, rows = (int(work.shape[table, field]) for field in (r.S_ROW_EVENT, r.S_ROWS))
    numbers = arena[at : at + 4 * rows].view("<i4")
    bitmap = work.heads[np.searchsorted(work.events[:, r.E_NUMBER], numbers), r.BEFORE]
    column = line - int(work.shape[table, r.S_FIRST])
    bits = work.raw.data[np.maximum(bitmap, 0) + (column >> 3)] >> (column & 7) & 1
    lacks: Bools = (bitmap < 0) | (bits == 0)
    return lacks


def _prepare(raw: RawChunk, parsed: ParsedChunk, count: int) -> Work:
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
                raise RowsFailure(number, error) from None
        else:
            plan = DecodePlan(lines[0], ())
        plans.append(plan)
        lines.append(plan.lines)
        shape[table, r.S_FIRST] = first
        shape[table, r.S_COLUMNS] = len(plan.codes)
        first += len(plan.codes)
    plan_lines = np.concatenate(lines)
    return Work(
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
