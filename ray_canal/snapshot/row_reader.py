"""Reads a table's rows by ranges of its key, over a connection of its own, and keeps them until
their place in the log is known.

Stateless but for what it has read: whoever makes another one reads the same ranges again.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ray_canal.binlog.chunk import FLAVOR_MARIADB, FLAVOR_MYSQL, ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.chunks import Origin, decoded
from ray_canal.snapshot.columns import Selection, selection
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.keys import ambiguous_keys
from ray_canal.snapshot.late_rows import wait_until_unlocked
from ray_canal.snapshot.log_chunks import LogPlace, rows_at
from ray_canal.snapshot.marks import ExecutedLow, Marks, PlaceLow, marks_of
from ray_canal.snapshot.planner import from_clause
from ray_canal.snapshot.replica_tables import refuse_left_out
from ray_canal.snapshot.result import ResultReader
from ray_canal.snapshot.session import close, open_session, other_server, server_of
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.snapshot.unplaced_rows import UnplacedRows
from ray_canal.source.catalog import Catalog
from ray_canal.source.connection import query

LogPiece = tuple[ChunkInfo, DecodedChunk]


class RangePlaced(NamedTuple):
    """Rows of a range at a place of the log. `is_whole`: it has no other rows that wait."""

    pieces: list[LogPiece]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class RangeOrder:
    """A range to read: rows of a table for which a condition holds. `number` is the caller's;
    `server`: of which server it is, by its uuid, `log_server`: whose log tells its place; empty: of
    any."""

    number: int
    table: SnapshotTable
    condition: str
    server: str = ""
    log_server: str = ""


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Rows that were read: so many rows, whose columns take so many bytes. `low` and `high`: as of
    log/snapshot_sequencer.py. `seconds`: how long it took."""

    number: int
    rows: int
    size_bytes: int
    low: ExecutedLow | PlaceLow
    high: EntryPosition
    seconds: float


class RowReader:
    """One connection; one thread calls."""

    def __init__(self, config: InstanceConfig) -> None:
        """Raises SourceError kinds, ServerSettingRefused."""
        self._source = config.rows_source
        self._catalog = Catalog(self._source)
        self._log_address = config.source.address
        self._streamed = Catalog(config.source) if config.snapshot.address else None
        self._connection: Any = None
        try:
            self._connection = open_session(self._source, self._catalog)
            self._marks: Marks = marks_of(
                self._source, self._catalog, self._connection, self._streamed
            )
            self._results = ResultReader(self._connection, self._source)
            self._server = server_of(self._connection, self._source)
            self._server_id = int(self._catalog.variable("server_id") or 0)
            self._flavor = FLAVOR_MARIADB if self._catalog.is_mariadb else FLAVOR_MYSQL
        except BaseException:
            self.close()
            raise
        self._ranges: dict[int, tuple[SnapshotTable, UnplacedRows]] = {}
        self._selections: dict[SnapshotTable, Selection] = {}

    def read(self, order: RangeOrder) -> RangeRead:
        """Read a range and keep its rows. Raises SourceError and DecodeError kinds,
        TableMetaMismatch; ConnectionLost, too: it is of another server; ServerSettingRefused: the
        replica that it is may lack rows."""
        if order.server not in ("", self._server):
            raise other_server(self._source.address, self._server, order.server)
        table, began_s = order.table, time.monotonic()
        wanted = self._selections.setdefault(table, selection(table.meta))
        where = order.condition and f" WHERE {order.condition}"
        sql = f"SELECT {wanted.expressions} FROM {from_clause(table)}{where}"
        low = self._marks.low()
        wait_until_unlocked(self._ask, table)
        chunks, rows = list[DecodedChunk](), 0
        origin = Origin("", 0, self._server_id, int(time.time()), self._flavor)
        with contextlib.closing(self._results.pieces(sql, wanted, order.condition)) as pieces:
            for piece in pieces:
                chunks.append(decoded(wanted, piece, origin, 0, framed=True))
                rows += piece.rows
        high = self._marks.high()
        self._refuse_other_log(order.log_server)
        if self._streamed is not None:  # by a filter that is new the SELECT may lack rows
            name = table.meta.schema, table.meta.table
            refuse_left_out(self._catalog, self._source.address, [name])
        self._ranges[order.number] = table, UnplacedRows(chunks, table.key)
        size_bytes = sum(int(chunk.arena.size) for chunk in chunks)
        return RangeRead(order.number, rows, size_bytes, low, high, time.monotonic() - began_s)

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        return query(self._connection, self._source, sql)

    def _refuse_other_log(self, expected: str) -> None:
        """Raise ConnectionLost if the place was that of another server's log than this one's."""
        if self._streamed is None or not expected:
            return
        if (found := self._streamed.server_uuid()) != expected:
            raise other_server(self._log_address, found, expected)

    def chunks_of(self, number: int) -> int:
        """Return of how many chunks a range is that was read."""
        return self._ranges[number][1].chunks

    def place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> RangePlaced:
        """Give a range's rows for this place of the log, but those with a key in either: those in
        doubt alone are kept. The first chunk has the place's ordinal. Raises UnsupportedEvent: it
        cannot be told of some whether their key was touched."""
        table, rows = self._ranges[number]
        taken = rows.take(touched, doubted)
        if not rows.chunks or taken is None:
            del self._ranges[number]
        if taken is None:
            raise ambiguous_keys(table.meta.full_name)
        placed = list[LogPiece]()
        for chunk, kept in taken:
            placed.append(rows_at(chunk, kept, place))
            place = replace(place, ordinal=place.ordinal + int(kept.sum()) + 1)
        return RangePlaced(placed, not rows.chunks)

    def close(self) -> None:
        if self._connection is not None:
            close(self._connection)
        self._catalog.close()
        if self._streamed is not None:
            self._streamed.close()
