"""Ids of rows, as far as Spark compares them: where a change stands in a destination's delivery.

A place is (timeline, number of the binlog file, position of the event, row in it). Places compare
as the order in which rows are delivered, also over a change of server
(docs/reference/guarantees.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ray_canal.model.arrays import Bools, Int64s
from ray_canal.model.position import journal_key

TIMELINE = "timeline"



class Place(NamedTuple):
    """Of one row. `journal_name` does not take part in comparisons: `number` is its number."""

    timeline: int
    number: int
    position: int
    row: int
    journal_name: str = ""

    @property
    def key(self) -> tuple[int, int, int, int]:
        return self.timeline, self.number, self.position, self.row

    def __str__(self) -> str:
        return f"{self.journal_name}:{self.position} row {self.row} (timeline {self.timeline})"


def place_at(batch: pa.RecordBatch, index: int) -> Place:
    """Of a batch's row; -1: its last one."""
    index %= batch.num_rows
    journal = str(batch.column("journal_name")[index].as_py())
    has_timeline = batch.schema.get_field_index(TIMELINE) >= 0
    return Place(
        int(batch.column(TIMELINE)[index].as_py() or 0) if has_timeline else 0,
        journal_key(journal)[1],
        int(batch.column("position")[index].as_py()),
        int(batch.column("row")[index].as_py()),
        journal,
    )


def rows_above(batch: pa.RecordBatch, last: Place | None) -> int:
    """How many rows of a batch stand behind `last`: they are its last ones, for rows are in order.
    A batch is of one timeline and of one file."""
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


def is_above(last: Place, columns: Iterable[str]) -> Column:
    """Spark's condition for rows that stand behind `last`, of a frame that has these columns."""
    order = _order(TIMELINE in columns)
    limits = last.key if TIMELINE in columns else last.key[1:]
    found = F.lit(False)
    for column, limit in reversed(list(zip(order, limits, strict=True))):
        found = (column > limit) | ((column == limit) & found)
    return found


def order_of(columns: Iterable[str]) -> list[Column]:
    """By which a frame's rows are ordered as they were delivered."""
    return list(_order(TIMELINE in columns))


def _order(has_timeline: bool) -> Iterator[Column]:
    if has_timeline:
        yield F.col(TIMELINE)
    # mysql-bin.999999 < mysql-bin.1000000: names are compared by their numbers.
    number = F.regexp_extract("journal_name", r"\.(\d+)$", 1).cast("long")
    yield F.coalesce(number, F.lit(-1))
    yield F.col("position")
    yield F.col("row")


def name_of(place: Place) -> str:
    """A place as part of a file's name."""
    journal = re.sub(r"[^A-Za-z0-9.-]", "_", place.journal_name)
    return f"{place.timeline:010d}-{journal}-{place.position:012d}-{place.row:08d}"


_FILE = re.compile(
    r"(?P<timeline>\d+)-(?P<journal>.+)-(?P<position>\d+)-(?P<row>\d+)"
    r"-(?P<ordinal>\d+)-(?P<shape>[0-9a-f]{8})\.parquet\Z"
)


def file_name(place: Place, ordinal: int, shape: str) -> str:
    """Of the files of a batch: `place` is its first row's, `shape` names the file's schema."""
    return f"{name_of(place)}-{ordinal:04d}-{shape}.parquet"


def read_file_name(name: str) -> tuple[Place, str] | None:
    """(place of the batch's first row, shape) of a `file_name`; None: it is none."""
    found = _FILE.match(name)
    if found is None:
        return None
    journal = found["journal"]
    place = Place(
        int(found["timeline"]),
        journal_key(journal)[1],
        int(found["position"]),
        int(found["row"]),
        journal,
    )
    return place, found["shape"]
