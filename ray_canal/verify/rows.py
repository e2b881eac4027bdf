"""Row events as both decoders give them, as Python objects, and ours read from decoded chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.filter import TableFilter
from ray_canal.model.table_meta import TableMeta
from ray_canal.views.arrow import batches
from ray_canal.views.presence import PRESENT_OF

SIDES = ("before", "after")


class Absent:
    """The value of a column that a row image lacks."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()
Image = tuple[Any, ...] | None
"""Values in the order of the table's columns; None where a row has no such image."""


class OurRow(NamedTuple):
    """One row as ray_canal decodes it; `number` counts within its event."""

    number: int
    event_type: str
    meta: TableMeta
    before: Image
    after: Image


class OurEvent(NamedTuple):
    """All rows at one position: of a row event, or of a compressed transaction's events."""

    journal_name: str
    position: int
    rows: list[OurRow]


class TheirColumn(NamedTuple):
    """A column as mysql-replication knows it; without row metadata `name` is None, too."""

    name: str | None
    type_code: int
    charset: str | None
    has_labels: bool


class TheirRow(NamedTuple):
    """One row as mysql-replication decodes it. `irregular`: columns whose date it cannot hold."""

    before: Image
    after: Image
    irregular: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TheirEvent:
    """A row event as mysql-replication decodes it. `reason` says why rows are missing, if any."""

    journal_name: str
    position: int
    event_type: str = ""
    schema: str = ""
    table: str = ""
    columns: tuple[TheirColumn, ...] = ()
    rows: tuple[TheirRow, ...] = ()
    reason: str = ""


def our_events(
    chunks: Iterable[tuple[ChunkInfo, DecodedChunk]], tables: TableFilter
) -> Iterator[OurEvent]:
    """Yield our row events in the order of the log. A position cut in two by chunks is one."""
    rows = (row for info, chunk in chunks for row in _chunk_rows(info, chunk, tables))
    for (journal_name, position), found in groupby(rows, lambda row: row[:2]):
        yield OurEvent(journal_name, position, [row for _, _, row in found])


def _chunk_rows(
    info: ChunkInfo, chunk: DecodedChunk, tables: TableFilter
) -> list[tuple[str, int, OurRow]]:
    metas = {(t.meta.schema, t.meta.table): t.meta for t in chunk.layout.tables}
    mask = info.admitted(tables.admits)
    found: list[tuple[str, int, OurRow]] = []
    for batch in batches(chunk, 0, chunk.layout.event_count, mask):
        told = batch.schema.metadata
        meta = metas[told[b"canal.schema"].decode(), told[b"canal.table"].decode()]
        for row in batch.to_pylist(maps_as_pydicts=None):
            images = [_image(row, side) for side in SIDES]
            ours = OurRow(row["row"], row["event_type"], meta, images[0], images[1])
            found.append((row["journal_name"], row["position"], ours))
    found.sort(key=lambda each: (each[1], each[2].number))
    return found


def _image(row: dict[str, Any], side: str) -> Image:
    values, present = row[side], row.get(PRESENT_OF[side])
    if values is None:
        return None
    if present is None:
        return tuple(values.values())
    return tuple(ABSENT if present[name] is False else v for name, v in values.items())
