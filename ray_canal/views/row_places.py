"""Ids of rows: where a change stands in a destination's delivery.

A place is (timeline, number of the binlog file, position of the event, row in it). Places compare
as the order in which rows are delivered, also over a change of server
(docs/reference/guarantees.md).
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ray_canal.errors import CanalError
from ray_canal.model.arrays import Bools, Int64s
from ray_canal.model.position import journal_key

TIMELINE = "timeline"


class RowPlace(NamedTuple):
    """A row's place. `journal_name` does not take part in comparisons: `number` is its number."""

    timeline: int
    number: int
    position: int
    row: int
    journal_name: str = ""

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Return it as a tuple that compares in the order of delivery."""
        return self.timeline, self.number, self.position, self.row

    def __str__(self) -> str:
        return f"{self.journal_name}:{self.position} row {self.row} (timeline {self.timeline})"


NOWHERE = RowPlace(0, 0, 0, 0)
"""Before every place."""


def table_name(batch: pa.RecordBatch) -> str:
    """Return `schema.table` of a batch, from its metadata. Raises CanalError: it has none."""
    notes = batch.schema.metadata or {}
    try:
        return f"{notes[b'canal.schema'].decode()}.{notes[b'canal.table'].decode()}"
    except KeyError as error:
        raise CanalError(f"the batch has no metadata {error}: not a batch of ray_canal") from None


def place_at(batch: pa.RecordBatch, index: int) -> RowPlace:
    """Return the place of a batch's row; -1: its last one."""
    index %= batch.num_rows
    journal = str(batch.column("journal_name")[index].as_py())
    has_timeline = batch.schema.get_field_index(TIMELINE) >= 0
    return RowPlace(
        int(batch.column(TIMELINE)[index].as_py() or 0) if has_timeline else 0,
        journal_key(journal)[1],
        int(batch.column("position")[index].as_py()),
        int(batch.column("row")[index].as_py()),
        journal,
    )


def rows_above(batch: pa.RecordBatch, last: RowPlace | None) -> int:
    """Return how many rows of a batch stand after `last`: they are its last ones, for rows are in
    order. A batch is of one timeline and of one file."""
    count = int(batch.num_rows)
    if not count or last is None or place_at(batch, 0).key > last.key:
        return count
    end = place_at(batch, -1)
    if end.key <= last.key:
        return 0
    position: Int64s = batch.column("position").to_numpy(zero_copy_only=False)
    row: Int64s = batch.column("row").to_numpy(zero_copy_only=False)
    here = position == last.position
    above: Bools = (position > last.position) | (here & (row > last.row))
    return int(above.sum())
