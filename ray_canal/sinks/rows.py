"""Rows of one table version, as sinks are given them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.model.table_meta import TableMeta


def table_of(batch: pa.RecordBatch) -> tuple[str, str]:
    """Return the (schema, table) that a batch is of."""
    return _note(batch, "schema"), _note(batch, "table")


def _note(batch: pa.RecordBatch, name: str) -> str:
    return str((batch.schema.metadata or {}).get(f"canal.{name}".encode(), b"").decode())


@dataclass(frozen=True)
class Rows:
    """Rows of one table version in log order (docs/reference/types.md has the columns).
    `meta` is the table as the source declares it; None where a transform made the batch."""

    batch: pa.RecordBatch
    meta: TableMeta | None

    @property
    def schema(self) -> str:
        """Return the database that the rows are of."""
        return _note(self.batch, "schema")

    @property
    def table(self) -> str:
        return _note(self.batch, "table")

    @property
    def key(self) -> list[str]:
        """Columns of the primary key; empty if the table has none."""
        found: list[str] = json.loads((self.batch.schema.metadata or {})[b"canal.key"])
        return found

    @property
    def statement(self) -> str:
        """The text of a statement that changed rows that the log does not have; else empty."""
        return _note(self.batch, "sql")


def within(batches: Sequence[Rows], low: int, high: int | None) -> Iterator[Rows]:
    """Yield rows whose event begins in [low, high)."""
    if low < 0 and high is None:
        yield from batches
        return
    for rows in batches:
        places = rows.batch["position"]
        chosen = pc.greater_equal(places, low)
        if high is not None:
            chosen = pc.and_(chosen, pc.less(places, high))
        found = rows.batch.filter(chosen)
        if found.num_rows:
            yield replace(rows, batch=found)
