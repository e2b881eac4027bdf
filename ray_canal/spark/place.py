"""Places of rows (views/row_places.py) as Spark's columns, and as names of files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F

from ray_canal.model.position import journal_key
from ray_canal.views.row_places import TIMELINE, RowPlace


def is_above(last: RowPlace, columns: Iterable[str]) -> Column:
    """Spark's condition for rows that stand behind `last`, of a frame that has these columns."""
    order = _order(TIMELINE in columns)
    limits = last.key if TIMELINE in columns else last.key[1:]
    found = F.lit(False)
    for column, limit in reversed(list(zip(order, limits, strict=True))):
        found = (column > limit) | ((column == limit) & found)
    return found


def order_of(columns: Iterable[str]) -> list[Column]:
    """Return the columns by which a frame's rows are ordered as they were delivered."""
    return list(_order(TIMELINE in columns))


def _order(has_timeline: bool) -> Iterator[Column]:
    if has_timeline:
        yield F.col(TIMELINE)
    # mysql-bin.999999 < mysql-bin.1000000: names are compared by their numbers.
    number = F.regexp_extract("journal_name", r"\.(\d+)$", 1).cast("long")
    yield F.coalesce(number, F.lit(-1))
    yield F.col("position")
    yield F.col("row")


def name_of(place: RowPlace) -> str:
    """A place as part of a file's name."""
    journal = re.sub(r"[^A-Za-z0-9.-]", "_", place.journal_name)
    return f"{place.timeline:010d}-{journal}-{place.position:012d}-{place.row:08d}"


_FILE = re.compile(
    r"(?P<timeline>\d+)-(?P<journal>.+)-(?P<position>\d+)-(?P<row>\d+)"
    r"-(?P<ordinal>\d+)-(?P<shape>[0-9a-f]{8})\.parquet\Z"
)


def file_name(place: RowPlace, ordinal: int, shape: str) -> str:
    """Return the name of the files of a batch: `place` is its first row's, `shape` names the file's
    schema."""
    return f"{name_of(place)}-{ordinal:04d}-{shape}.parquet"


def read_file_name(name: str) -> tuple[RowPlace, str] | None:
    """(place of the batch's first row, shape) of a `file_name`; None: it is none."""
    found = _FILE.match(name)
    if found is None:
        return None
    journal = found["journal"]
    place = RowPlace(
        int(found["timeline"]),
        journal_key(journal)[1],
        int(found["position"]),
        int(found["row"]),
        journal,
    )
    return place, found["shape"]
