"""The transactions that end in a part of a chunk, as an Arrow batch: what each is called, when it
was committed, where it lies, how many rows it has of which table, and what became of it (also of
the rows that it undid itself)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.binlog.chunk import EVENT_ONE_PHASE, EVENT_ROLLED_BACK, DecodedChunk
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import transactions as t
from ray_canal.model.arrays import Bools, Int64s, Records
from ray_canal.model.canal_types import END, XACOMMIT, XAROLLBACK
from ray_canal.model.log_context import LogContext
from ray_canal.model.message import MessagePart
from ray_canal.model.savepoints import Savepoints, UndoneRows
from ray_canal.views.envelope import (
    ChunkTransactions,
    chunk_gtids,
    constant,
    transaction_names,
    transactions_of,
)

COMMITTED, ROLLED_BACK, PREPARED = "committed", "rolled_back", "prepared"
COMMIT_PREPARED, ROLLBACK_PREPARED = "commit_prepared", "rollback_prepared"
_OUTCOMES = [COMMITTED, ROLLED_BACK, PREPARED, COMMIT_PREPARED, ROLLBACK_PREPARED]
_XA_WORDS = {PREPARED: "XA END ", COMMIT_PREPARED: "XA COMMIT ", ROLLBACK_PREPARED: "XA ROLLBACK "}

_INSTANT = pa.timestamp("us", "UTC")
_TABLE = pa.struct([("schema", pa.string()), ("table", pa.string()), ("rows", pa.int64())])
_UNDONE = pa.struct([(name, pa.int64()) for name in UndoneRows._fields])
SCHEMA = pa.schema(
    [
        ("timeline", pa.int64()),
        ("transaction", pa.string()),
        ("gtid", pa.string()),
        ("commit_time", _INSTANT),
        ("journal_name", pa.string()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("rows", pa.int64()),
        ("tables", pa.list_(_TABLE)),
        ("outcome", pa.string()),
        ("xa_id", pa.string()),
        ("undone", pa.list_(_UNDONE)),
    ]
)


def no_transactions() -> pa.RecordBatch:
    """Return the transactions of a message without any."""
    return pa.RecordBatch.from_pylist([], schema=SCHEMA)


def ended_transactions(
    chunk: DecodedChunk,
    entries: tuple[int, int],
    mask: Bools | None,
    tables: bytes | None,
    context: LogContext,
) -> pa.RecordBatch:
    """Return the transactions whose end is among these entries (first, after the last), in log
    order.

    `mask`: which entries of the chunk are seen (None: all); a transaction is listed if its end is,
    or if it has a row of a table that is seen. `tables`: a byte for each of the chunk's (None: all
    are seen).
    """
    events = chunk.events
    split = transactions_of(chunk, context)
    ends = split.found[:, t.T_CLOSER]
    chosen = np.flatnonzero((ends >= entries[0]) & (ends < entries[1]))
    if not len(chosen):
        return no_transactions()
    rows, lists = _rows_by_table(chunk, split, chosen, tables, context)
    if mask is not None:
        listed = mask[ends[chosen]] | (rows > 0)
        chosen, rows, lists = chosen[listed], rows[listed], lists.filter(pa.array(listed))
    found = np.ascontiguousarray(split.found[chosen])
    closers = events[found[:, t.T_CLOSER]]
    gtids = chunk_gtids(chunk)
    outcomes = _outcomes(closers)
    columns = [
        constant(context.timeline, len(found)),
        transaction_names(chunk, found, gtids),
        _gtids(chunk, found, gtids),
        _commit_times(chunk, found, closers),
        pa.repeat(chunk.layout.journal_name, len(found)),
        pa.array(found[:, t.T_BEGIN]),
        pa.array(closers["position"] + closers["length"].astype(np.int64)),
        pa.array(rows),
        lists,
        pa.array(_OUTCOMES).take(pa.array(outcomes)),
        _xa_ids(chunk, closers, outcomes),
        _undone(chunk, split, chosen, context),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def with_undone_rows(transactions: pa.RecordBatch) -> pa.Array:
    """Return which transactions of SCHEMA have undone rows, as a mask."""
    return pc.greater(pc.list_value_length(transactions.column("undone")), 0)


def has_doubts(part: MessagePart, chunk: DecodedChunk) -> bool:
    """Return whether an entry of a message's part ends a transaction that has not just been
    committed, or may end one of which rows are undone."""
    if any(one.undoes for one in chunk.layout.savepoints) or (part.open and part.open.undone):
        return True
    return bool(_outcomes(chunk.events[part.first : part.last]).any())


def outcomes(chunk: DecodedChunk, closers: Int64s) -> list[tuple[str, str]]:
    """Return what became of the transactions that these entries end, or of the prepared ones that
    they commit or roll back: as in column `outcome`, and the XA id where there is one, else "".
    Empty: all have just been committed."""
    events = chunk.events[closers]
    found = _outcomes(events)
    if not found.any():
        return []
    xa_ids = _xa_ids(chunk, events, found).to_pylist()
    return [(_OUTCOMES[k], xa_id or "") for k, xa_id in zip(found.tolist(), xa_ids, strict=True)]


def _rows_by_table(
    chunk: DecodedChunk,
    split: ChunkTransactions,
    chosen: Int64s,
    tables: bytes | None,
    context: LogContext,
) -> tuple[Int64s, pa.Array]:
    """Rows of each of these transactions, whose numbers follow one another, and a list of them by
    table."""
    first, last = int(chosen[0]), int(chosen[-1])
    carried = context.open.tables if context.open is not None and first == 0 else ()
    versions = [(table.meta.schema, table.meta.table) for table in chunk.layout.tables]
    names = sorted({*versions, *(one[:2] for one in carried)})
    index = {name: k for k, name in enumerate(names)}
    of_version = np.array([index[name] for name in versions], np.int64)

    events = chunk.events
    changed = np.flatnonzero((events["rows"] > 0) & (events["table"] >= 0))
    numbers = split.numbers[changed]
    changed = changed[(numbers >= first) & (numbers <= last)]
    if tables is not None:
        seen = np.frombuffer(tables, np.bool_)
        changed = changed[seen[events["table"][changed]]]
    counts = events["rows"][changed].astype(np.int64)
    keys = split.numbers[changed].astype(np.int64) * len(names) + of_version[
        events["table"][changed]
    ]
    keys = np.append(keys, np.array([index[one[:2]] for one in carried], np.int64))
    counts = np.append(counts, np.array([one[2] for one in carried], np.int64))

    keys, inverse = np.unique(keys, return_inverse=True)
    sums = np.bincount(inverse, counts, len(keys)).astype(np.int64)
    numbers, of_name = np.divmod(keys, max(len(names), 1))
    rows = np.bincount(numbers - first, sums, last + 1 - first).astype(np.int64)
    offsets = np.searchsorted(numbers, np.arange(first, last + 2)).astype(np.int32)
    at = pa.array(of_name)
    children = [
        pa.array([schema for schema, _ in names], pa.string()).take(at),
        pa.array([table for _, table in names], pa.string()).take(at),
        pa.array(sums),
    ]
    items = pa.StructArray.from_arrays(children, fields=list(_TABLE))
    return rows, pa.ListArray.from_arrays(pa.array(offsets), items, type=pa.list_(_TABLE))


def _undone(
    chunk: DecodedChunk, split: ChunkTransactions, chosen: Int64s, context: LogContext
) -> pa.Array:
    """Lists of the rows that these transactions have undone with ROLLBACK TO."""
    found: dict[int, Savepoints] = {}
    if context.open is not None:
        found[0] = Savepoints(context.open.begin, context.open.savepoints, context.open.undone)
    for statement in chunk.layout.savepoints:
        number = int(split.numbers[statement.entry])
        if number not in found:
            found[number] = Savepoints(int(split.found[number, t.T_BEGIN]))
        found[number].add(statement)
    lists = {number: one.undone for number, one in found.items() if one.undone}
    if not lists:
        offsets = pa.array(np.zeros(len(chosen) + 1, np.int32))
        nothing = pa.array([], _UNDONE)
        return pa.ListArray.from_arrays(offsets, nothing, type=pa.list_(_UNDONE))
    told = [[one._asdict() for one in lists.get(k, ())] for k in chosen.tolist()]
    return pa.array(told, pa.list_(_UNDONE))


def _gtids(chunk: DecodedChunk, found: Int64s, gtids: pa.Array) -> pa.Array:
    """Null where a transaction has none."""
    number = found[:, t.T_GTID]
    named = number >= 0
    named[named] = chunk.gtids["flavor"][number[named]] != 0
    return gtids.take(pa.array(number, mask=~named))


def _commit_times(chunk: DecodedChunk, found: Int64s, closers: Records) -> pa.Array:
    """Return the times of commits in microseconds where the server writes them, else the second of
    the end."""
    time_us = closers["timestamp"].astype(np.int64) * 1_000_000
    number = found[:, t.T_GTID]
    exact = np.zeros(len(found), np.int64)
    exact[number >= 0] = chunk.gtids["commit_us"][number[number >= 0]]
    return pa.array(np.where(exact > 0, exact, time_us)).cast(_INSTANT)


def _outcomes(closers: Records) -> npt.NDArray[np.int8]:
    """Indexes in _OUTCOMES; 0, as of what has just been committed, for entries that end none."""
    ends, flags = closers["kind"] == END, closers["flags"]
    found = np.zeros(len(closers), np.int8)
    found[ends & (flags & EVENT_ROLLED_BACK > 0)] = _OUTCOMES.index(ROLLED_BACK)
    prepares = ends & (closers["present"] >= 0) & (flags & EVENT_ONE_PHASE == 0)
    found[prepares] = _OUTCOMES.index(PREPARED)
    found[~ends & (closers["event_type"] == XACOMMIT)] = _OUTCOMES.index(COMMIT_PREPARED)
    found[~ends & (closers["event_type"] == XAROLLBACK)] = _OUTCOMES.index(ROLLBACK_PREPARED)
    return found


def _xa_ids(
    chunk: DecodedChunk, closers: Records, outcomes: npt.NDArray[np.int8]
) -> pa.Array:
    """Return the text after the words of the XA statement; null if there is none."""
    queries = chunk.queries
    starts, sizes = np.zeros(len(closers), np.int64), np.zeros(len(closers), np.int64)
    known = np.zeros(len(closers), np.bool_)
    for outcome, words in _XA_WORDS.items():
        these = outcomes == _OUTCOMES.index(outcome)
        number = closers["present" if outcome == PREPARED else "aux"][these]
        starts[these] = queries["sql"][number] + len(words)
        sizes[these] = np.maximum(queries["sql_bytes"][number] - len(words), 0)
        known |= these
    offsets, out = np.empty(len(closers) + 1, np.int32), np.empty(int(sizes.sum()), np.uint8)
    arena = read_only(np.asarray(chunk.arena))
    t.gather_texts(arena, read_only(starts), read_only(sizes), offsets, out)
    validity = pa.py_buffer(np.packbits(known, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.string(), len(closers), buffers)
