"""Reads rows over a connection of its own, whose transaction sees one moment."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.model.message import Payload
from ray_canal.snapshot.chunks import Origin, decoded
from ray_canal.snapshot.columns import quoted, selection
from ray_canal.snapshot.log_chunks import LogPlace, rows_at
from ray_canal.snapshot.result import ResultReader
from ray_canal.snapshot.session import close, open_session
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.source.catalog import Catalog
from ray_canal.source.connection import query


class Part(NamedTuple):
    """Part of a snapshot that one statement reads. `number`: of all parts of the snapshot."""

    number: int
    table: SnapshotTable
    condition: str


class RowsRead(Protocol):
    """Rows of a table that were read, as many as are in one chunk."""

    @property
    def table(self) -> SnapshotTable:
        """Return the table that they are of."""
        ...

    @property
    def rows(self) -> int:
        """Return their number."""
        ...

    def at(self, place: LogPlace) -> tuple[ChunkInfo, Payload]:
        """Return them as a transaction at a place of the log; at least one row, once. What becomes
        of a chunk of this process is the caller's affair. Blocks."""


class MomentReading(Protocol):
    """A `MomentReader`, in this process or another. Every call blocks; one thread calls."""

    def open(self) -> None:
        """Connect. Raises SourceError kinds."""

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement; its rows. Raises SourceError kinds."""

    def read(self, part: Part, origin: Origin) -> Generator[RowsRead, None, None]:
        """Read a part's rows, with at most a few chunks ahead of who takes them. Raises
        SourceError and DecodeError kinds, TableMetaMismatch."""

    def close(self) -> None:
        """End the connection, and so the moment. Any thread calls."""


@dataclass(frozen=True, slots=True)
class Read:
    """Rows of a table, in one chunk of this process."""

    table: SnapshotTable
    chunk: DecodedChunk
    rows: int

    def at(self, place: LogPlace) -> tuple[ChunkInfo, DecodedChunk]:
        return rows_at(self.chunk, np.ones(self.rows, np.bool_), place)


class MomentReader:
    """See MomentReading. `framed`: each chunk is a transaction."""

    def __init__(self, config: InstanceConfig, *, framed: bool = False) -> None:
        self._config = config.source
        self._framed = framed
        self._connection: Any = None

    def open(self) -> None:
        catalog = Catalog(self._config)
        try:
            self._connection = open_session(self._config, catalog)
        finally:
            catalog.close()
        self._results = ResultReader(self._connection, self._config)

    def query(self, sql: str) -> list[dict[str, Any]]:
        return query(self._connection, self._config, sql)

    def read(self, part: Part, origin: Origin) -> Generator[Read, None, None]:
        table, wanted = part.table, selection(part.table.meta)
        sql = f"SELECT {wanted.expressions} FROM {quoted(table.meta.schema, table.meta.table)}"
        if part.condition:
            sql += f" WHERE {part.condition}"
        ordinal = part.number << 32
        with contextlib.closing(self._results.pieces(sql, wanted, part.condition)) as pieces:
            for piece in pieces:
                chunk = decoded(wanted, piece, origin, ordinal, framed=self._framed)
                ordinal += piece.rows
                yield Read(table, chunk, piece.rows)

    def close(self) -> None:
        if self._connection is not None:
            close(self._connection)
