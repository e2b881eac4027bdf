"""Transactions whose rows the log has before it tells whether they count.

A server writes an XA transaction's rows when it is prepared, and XA COMMIT or XA ROLLBACK behind
it, perhaps days later (MySQL manual, "XA Transactions"). Until then they are in no SELECT, so a
target keeps them apart, and gets them at XA COMMIT. Nothing else changes these rows in between:
they are locked. Other transactions end with a ROLLBACK, or have undone rows with ROLLBACK TO before
they were committed or prepared; such rows never come to the target.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.message import Message
from ray_canal.errors import UnsupportedEvent
from ray_canal.model.arrays import Bools, Int64s
from ray_canal.model.message import MessagePart
from ray_canal.model.savepoints import UndoneRows
from ray_canal.sinks.rows import Rows
from ray_canal.views.envelope import constant
from ray_canal.views.row_places import RowPlace
from ray_canal.views.transactions import (
    COMMIT_PREPARED,
    COMMITTED,
    PREPARED,
    ROLLBACK_PREPARED,
    ROLLED_BACK,
    has_doubts,
    with_undone_rows,
)

_ROW_BITS = 30
"""Bits of a row's number in its event, or its offset in one that is compressed: 1 GiB at most."""


class XaEnd(NamedTuple):
    """An entry that ends a transaction whose rows are kept, or not shown where they are.
    `transaction`: its name, if it was prepared in the same message; `position`: of the entry."""

    xa_id: str
    is_committed: bool
    transaction: str
    position: int


@dataclass(frozen=True)
class InDoubt:
    """The transactions of a message that have not just been committed, or not as a whole.

    `undone`: the names of those whose rows do not count. `prepared`: by name, the XA ids of those
    whose rows are to be kept until their end comes. `ends`: by (binlog file, offset behind the
    entry), what an `XaEnd` tells of it, but for its position. `stretches`: by name, rows of others
    that do not count.
    """

    undone: frozenset[str]
    prepared: Mapping[str, str]
    ends: Mapping[tuple[str, int], tuple[str, bool, str]]
    stretches: Mapping[str, Sequence[UndoneRows]]

    def counted(self, batch: pa.RecordBatch, ends: Sequence[XaEnd] = ()) -> pa.RecordBatch:
        """Return the rows that are written where they are in the log, and those that these ends
        let count, with the ids that they have there."""
        batch = self._without_stretches(batch)
        if not self.undone and not self.prepared:
            return batch
        known = {end.transaction: end.position for end in ends if end.is_committed}
        names = pc.fill_null(_names_of(batch), "").dictionary_encode()
        told = [
            known.get(name, -1) if name in self.prepared or name in self.undone else 0
            for name in names.dictionary.to_pylist()
        ]
        if not any(told):
            return batch
        at = np.array(told, np.int64)[names.indices.to_numpy()]
        if (is_moved := at > 0).any():
            position, row = (np.array(batch[name]) for name in ("position", "row"))
            position[is_moved] = at[is_moved]
            ids = batch.select(["position", "row"])
            row[is_moved] = _rows_moved(ids.filter(pa.array(is_moved)))
            batch = _with(batch, {"position": pa.array(position), "row": pa.array(row)})
        return batch if at.min() >= 0 else batch.filter(pa.array(at >= 0))

    def rows_of_prepared(
        self, batch: pa.RecordBatch, chosen: Collection[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of these transactions, by their names, that count once they end well."""
        batch = self._without_stretches(batch)
        names = _names_of(batch)
        for name in names.unique().to_pylist():
            if name in chosen:
                yield name, batch.filter(pc.equal(names, name))

    def _without_stretches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are in none of the stretches."""
        if not self.stretches or not batch.num_rows:
            return batch
        names = _names_of(batch)
        position, row = (batch[name].to_numpy(zero_copy_only=False) for name in ("position", "row"))
        stays = np.ones(batch.num_rows, np.bool_)
        for name in self.stretches.keys() & set(names.unique().to_pylist()):
            is_in = np.zeros(batch.num_rows, np.bool_)
            for one in self.stretches[name]:
                is_in |= ~_is_before(position, row, *one[:2]) & _is_before(position, row, *one[2:])
            stays &= ~is_in | ~pc.equal(names, name).to_numpy(zero_copy_only=False)
        return batch if stays.all() else batch.filter(pa.array(stays))

    def ends_in(self, part: MessagePart, chunk: DecodedChunk) -> list[XaEnd]:
        """Return which of the entries [part.first, part.last) of a chunk are such ends."""
        known = self._sorted_ends.get(chunk.layout.journal_name)
        if part.last <= part.first or known is None:
            return []
        events = chunk.events[part.first : part.last]
        behind = events["position"] + events["length"].astype(np.int64)
        found = []
        for end in known[bisect_left(known, behind[0]) : bisect_right(known, behind[-1])]:
            at = int(np.searchsorted(behind, end, "right")) - 1
            if behind[at] == end:
                told = self.ends[chunk.layout.journal_name, end]
                found.append(XaEnd(*told, int(events["position"][at])))
        return found

    @cached_property
    def _sorted_ends(self) -> dict[str, list[int]]:
        """Offsets behind the ends, by file."""
        found = defaultdict[str, list[int]](list)
        for journal_name, end in sorted(self.ends):
            found[journal_name].append(end)
        return found


def in_doubt(
    message: Message, has: Callable[[str], bool] | None, moves_all: bool = False
) -> InDoubt | None:
    """Return the transactions of a message that have not just been committed as a whole; None: all
    have.
    `has`: whether the target has kept rows of an XA id; None: it keeps none, and gets those of an
    XA transaction as it is prepared.

    One that is prepared and committed in one message is written as any other, unless `moves_all`,
    or the target has kept rows of its XA id: the message may have come before, and ended earlier.
    """
    parts = message.chunks_by_part()
    if not any(has_doubts(part, chunk) for part, chunk in parts):
        return None
    told = message.transactions
    undone: set[str] = set()
    prepared: dict[str, str] = {}
    open_here: dict[str, str] = {}
    ends: dict[tuple[str, int], tuple[str, bool, str]] = {}
    ended: set[str] = set()
    for row in told.filter(pc.not_equal(told.column("outcome"), COMMITTED)).to_pylist():
        outcome, name, xa_id = row["outcome"], row["transaction"], row["xa_id"] or ""
        if outcome == ROLLED_BACK:
            undone.add(name)
        elif has is None:
            continue
        elif outcome == PREPARED and row["rows"]:
            open_here[xa_id] = name
            if has(xa_id):
                prepared[name] = xa_id
        elif has(xa_id) or (moves_all and xa_id in open_here and outcome == COMMIT_PREPARED):
            if found := open_here.pop(xa_id, ""):
                prepared[found] = xa_id
            if found or xa_id not in ended:  # else one without rows has had the id since
                is_committed = outcome == COMMIT_PREPARED
                ends[row["journal_name"], row["end"]] = xa_id, is_committed, found
            ended.add(xa_id)
        elif outcome == ROLLBACK_PREPARED and xa_id in open_here:
            undone.add(open_here.pop(xa_id))
        else:
            open_here.pop(xa_id, None)
    prepared |= {name: xa_id for xa_id, name in open_here.items()}
    return InDoubt(frozenset(undone), prepared, ends, _stretches(told))


def _stretches(told: pa.RecordBatch) -> dict[str, list[UndoneRows]]:
    """Return the undone rows of transactions, by their names."""
    some = told.filter(with_undone_rows(told))
    return {
        row["transaction"]: [UndoneRows(**one) for one in row["undone"]]
        for row in some.select(["transaction", "undone"]).to_pylist()
    }


def _is_before(position: Int64s, row: Int64s, other: int, other_row: int) -> Bools:
    found: Bools = (position < other) | ((position == other) & (row < other_row))
    return found


def _names_of(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("transaction").cast(pa.string())


def moved(rows: Sequence[Rows], place: RowPlace) -> list[Rows]:
    """Return rows with the ids that they have where XA COMMIT is: its place, and in it numbers that
    tell where each row is in the log, however the log was cut."""
    found = []
    for each in rows:
        batch, count = each.batch, each.batch.num_rows
        news = {
            "timeline": constant(place.timeline, count),
            "journal_name": pa.repeat(place.journal_name, count).dictionary_encode(),
            "position": pa.repeat(place.position, count),
        }
        if _has_ids(batch):
            news["row"] = pa.array(_rows_moved(batch))
        found.append(Rows(_with(batch, news), each.meta))
    return found


def in_order(found: Sequence[Rows]) -> list[Rows]:
    """Return rows of each table by their ids."""
    tables: dict[tuple[str, str, str], dict[pa.Schema, list[Rows]]] = {}
    for rows in found:
        runs = tables.setdefault((rows.schema, rows.table, rows.statement), {})
        runs.setdefault(rows.batch.schema, []).append(rows)
    return [rows for runs in tables.values() for rows in _woven([*map(_sorted, runs.values())])]


def _sorted(run: Sequence[Rows]) -> Rows:
    batch = pa.concat_batches([rows.batch for rows in run])
    if _has_ids(batch):
        order = np.lexsort((batch["row"], batch["position"]))
        if (order[1:] < order[:-1]).any():
            batch = batch.take(pa.array(order))
    return Rows(batch, run[0].meta)


def _woven(found: Sequence[Rows]) -> Iterator[Rows]:
    """Yield the rows of one table whose columns differ in turn, as their ids are. (Some images have
    all columns, others do not.)"""
    if len(found) == 1 or not all(_has_ids(rows.batch) for rows in found):
        yield from found
        return
    row, position = (np.concatenate([r.batch[name] for r in found]) for name in ("row", "position"))
    owners = np.repeat(np.arange(len(found)), [rows.batch.num_rows for rows in found])
    owners = owners[np.lexsort((row, position))]
    taken = [0] * len(found)
    for run in np.split(owners, np.flatnonzero(np.diff(owners)) + 1):
        owner = int(run[0])
        batch = found[owner].batch.slice(taken[owner], len(run))
        taken[owner] += len(run)
        yield Rows(batch, found[owner].meta)


def _has_ids(batch: pa.RecordBatch) -> bool:
    """Return whether a transform has left the columns."""
    return {"position", "row"} <= set(batch.schema.names)


def _rows_moved(batch: pa.RecordBatch) -> Int64s:
    position, row = (batch[name].to_numpy(zero_copy_only=False) for name in ("position", "row"))
    found: Int64s = (position.astype(np.int64) << _ROW_BITS) + row
    if (position >> (63 - _ROW_BITS)).any():
        raise UnsupportedEvent(
            f"an XA transaction has rows behind byte {1 << (63 - _ROW_BITS):,} of a binlog file: "
            "they have no id at its XA COMMIT by which the sink tells what it has already"
        )
    return found


def _with(batch: pa.RecordBatch, news: Mapping[str, pa.Array]) -> pa.RecordBatch:
    for name, column in news.items():
        at = batch.schema.get_field_index(name)  # a transform may have left it out
        if at >= 0:
            field = batch.schema.field(at)
            batch = batch.set_column(at, field, column.cast(field.type))
    return batch
