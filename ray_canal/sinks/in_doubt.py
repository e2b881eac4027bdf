"""Transactions whose rows the log has before it tells whether they count.

A server writes an XA transaction's rows when it is prepared, and XA COMMIT or XA ROLLBACK behind
it, perhaps days later (MySQL manual, "XA Transactions"). Until then they are in no SELECT, so a
target keeps them apart, and gets them at XA COMMIT. Nothing else changes these rows in between:
they are locked. Other transactions end with a ROLLBACK; their rows never come to the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.message import Message
from ray_canal.model.message import MessagePart
from ray_canal.sinks.rows import Rows
from ray_canal.views.envelope import constant
from ray_canal.views.transactions import (
    COMMIT_PREPARED,
    COMMITTED,
    PREPARED,
    ROLLBACK_PREPARED,
    ROLLED_BACK,
    has_doubts,
)


class XaEnd(NamedTuple):
    """An entry that ends a transaction whose rows are kept. `position`: of the entry."""

    xa_id: str
    is_committed: bool
    position: int


@dataclass(frozen=True)
class InDoubt:
    """The transactions of a message that have not just been committed.

    `undone`: the names of those whose rows do not count. `prepared`: by name, the XA ids of those
    whose rows are to be kept. `ends`: by (binlog file, offset behind the entry), the XA ids of
    those whose rows are kept by then, and whether they count now.
    """

    undone: frozenset[str]
    prepared: Mapping[str, str]
    ends: Mapping[tuple[str, int], tuple[str, bool]]

    def counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are written where they are in the log."""
        names = pa.array([*self.undone, *self.prepared], pa.string())
        if not len(names):
            return batch
        return batch.filter(pc.invert(pc.is_in(_names_of(batch), value_set=names)))

    def waiting(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows that are to be kept, by the names of their transactions."""
        if self.prepared:
            names = _names_of(batch)
            for name in self.prepared:
                found = batch.filter(pc.equal(names, name))
                if found.num_rows:
                    yield name, found

    def ends_in(self, part: MessagePart, chunk: DecodedChunk) -> list[XaEnd]:
        """Return which of the entries [part.first, part.last) of a chunk are such ends."""
        events, first, last = chunk.events, part.first, part.last
        behind = events["position"][first:last] + events["length"][first:last].astype(np.int64)
        found = []
        for (journal_name, end), (xa_id, is_committed) in self.ends.items():
            at = first + int(np.searchsorted(behind, end, "right")) - 1
            is_here = journal_name == chunk.layout.journal_name and at >= first
            if is_here and behind[at - first] == end:
                found.append(XaEnd(xa_id, is_committed, int(events["position"][at])))
        return sorted(found, key=lambda each: each.position)


def in_doubt(message: Message, has: Callable[[str], bool] | None) -> InDoubt | None:
    """Return the transactions of a message that have not just been committed; None: all have.
    `has`: whether the target has kept rows of an XA id; None: it keeps none, and gets those of an
    XA transaction as it is prepared.

    One that is prepared and committed in one message is written as any other, unless the target
    has kept rows of its XA id: the message may have come before, and ended earlier.
    """
    parts = message.chunks_by_part()
    if not any(has_doubts(chunk.events[part.first : part.last]) for part, chunk in parts):
        return None
    told = message.transactions
    undone: set[str] = set()
    prepared: dict[str, str] = {}
    open_here: dict[str, str] = {}
    ends: dict[tuple[str, int], tuple[str, bool]] = {}
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
        elif has(xa_id):
            ends[row["journal_name"], row["end"]] = xa_id, outcome == COMMIT_PREPARED
            open_here.pop(xa_id, None)
        elif outcome == ROLLBACK_PREPARED and xa_id in open_here:
            undone.add(open_here.pop(xa_id))
        else:
            open_here.pop(xa_id, None)
    prepared |= {name: xa_id for xa_id, name in open_here.items()}
    return InDoubt(frozenset(undone), prepared, ends)


def _names_of(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("transaction").cast(pa.string())


def moved(rows: Sequence[Rows], timeline: int, journal_name: str, position: int) -> list[Rows]:
    """Return rows with the ids that they have where XA COMMIT is: its place, and numbers from 0
    on."""
    found, number = [], 0
    for each in rows:
        batch, count = each.batch, each.batch.num_rows
        news = {
            "timeline": constant(timeline, count),
            "journal_name": pa.repeat(journal_name, count).dictionary_encode(),
            "position": constant(position, count),
            "row": pa.array(range(number, number + count)),
        }
        for name, column in news.items():
            at = batch.schema.get_field_index(name)  # a transform may have left it out
            if at >= 0:
                field = batch.schema.field(at)
                batch = batch.set_column(at, field, column.cast(field.type))
        found.append(Rows(batch, each.meta))
        number += count
    return found
