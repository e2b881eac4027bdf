"""The rows of tables, read by chunks of their keys, between the changes of the log.

No lock, no long transaction: each chunk is a statement of its own. log/snapshot_sequencer.py says
at which place of the log a chunk stands and which of its rows the log has newer.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ray_canal.binlog.chunk import FLAVOR_MARIADB, FLAVOR_MYSQL, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.errors import ConfigError, ConnectionLost
from ray_canal.log.snapshot_sequencer import Placed, ReadRange
from ray_canal.model.arrays import Bools
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.changes import LogPart, LogReader, ends_prepared, touched_by_outcome
from ray_canal.snapshot.chunks import Origin, decoded
from ray_canal.snapshot.columns import Selection, selection
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.key_ranges import FIRST_ROWS, KeyRanges
from ray_canal.snapshot.keys import ambiguous_keys, undone_meanwhile
from ray_canal.snapshot.late_rows import wait_until_unlocked
from ray_canal.snapshot.logged_keys import LoggedKeys, Sequencer
from ray_canal.snapshot.marks import Marks, marks_of, shown_now
from ray_canal.snapshot.planner import from_clause
from ray_canal.snapshot.prepared import not_seen
from ray_canal.snapshot.read_views import gtid_at
from ray_canal.snapshot.result import ResultReader
from ray_canal.snapshot.session import close, open_session, other_server, server_of
from ray_canal.snapshot.tables import (
    SnapshotTable,
    choose_tables,
    refuse_keyless,
    refuse_partial_images,
)
from ray_canal.snapshot.unplaced_rows import UnplacedRows
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.connection import query

_CHUNK_BYTES = 8 << 20
_WAITING_BYTES = 64 << 20
_WAITING_CHUNKS = 16
_WAIT_S = 0.2
_ROUNDS = 5
"""So often a chunk is read again of which a key cannot be told from others."""


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows that were read and stand at the present place: those of the mask."""

    chunk: DecodedChunk
    kept: Bools


@dataclass(slots=True)
class _Chunk:
    """A range of a table. `rows`: those that were read."""

    table: SnapshotTable
    selection: Selection
    condition: str
    rounds: int = 0
    rows: UnplacedRows | None = None
    size_bytes: int = 0


class KeyedSnapshot:
    """Rows of tables and the changes that come meanwhile. After the last one, `position` is the
    place of the log at which what came is what all tables hold. Close it after use."""

    def __init__(
        self, config: InstanceConfig, tables: str, chunk_bytes: int = _CHUNK_BYTES
    ) -> None:
        """Raises ConfigError: no such table, or one without a key; ServerSettingRefused;
        SourceError kinds, UnsupportedEvent."""
        if not config.source.address:
            raise ConfigError(
                f"destination {config.destination!r} has no source.address: a snapshot is read "
                "from a server"
            )
        self._config = config
        self._chunk_bytes = chunk_bytes
        self._catalog = Catalog(config.source)
        self._described = CatalogTables(config.source)
        self._connections: list[Any] = []
        self._changes: LogReader | None = None
        try:
            chosen = choose_tables(self._catalog, self._described, tables)
            self.tables, self.left_out = chosen.tables, chosen.left_out
            self._refuse()
            self._keys = {(t.meta.schema, t.meta.table): t.key for t in self.tables}
            for _ in range(2):  # one reads rows, the other finds the borders of chunks
                self._connections.append(open_session(config.source, self._catalog))
            self._refuse_others(self._catalog.server_uuid())  # whose log has no such place
            self._marks: Marks = marks_of(config.source, self._catalog, self._connections[0])
            self._changes = LogReader(config, self._marks.start(), self._described, tables)
            self._refuse_others(self._changes.server_uuid)
            self._server_id = int(self._catalog.variable("server_id") or 0)
            self._flavor = FLAVOR_MARIADB if self._catalog.is_mariadb else FLAVOR_MYSQL
        except BaseException:
            self.close()
            raise
        self._sequencer = Sequencer()
        self._waiting: dict[int, _Chunk] = {}
        self._again: deque[_Chunk] = deque()
        transactional = {(t.meta.schema, t.meta.table) for t in self.tables if t.transactional}
        self._logged = LoggedKeys(self._sequencer, transactional)
        self._number = self._ordinal = 0
        self._is_planned = False
        self._row_bytes = 0.0  # of the last chunk of the table that is read
        self.position = self._changes.reached

    def _refuse(self) -> None:
        refuse_keyless(self.tables, 'read it with mode "consistent"')
        refuse_partial_images(self._catalog, self._config.source.address)

    def _refuse_others(self, server: str) -> None:
        """Raise ConnectionLost unless all that is read is of this server."""
        source = self._config.source
        for found in {server_of(each, source) for each in self._connections} - {server}:
            raise other_server(source.address, found, server)

    def admits(self, schema: str, table: str) -> bool:
        """Return whether it is a table of this snapshot."""
        return (schema, table) in self._keys

    def items(self) -> Iterator[LogPart | ReadRows]:
        """Changes and rows in the order in which they are to be applied. Raises SourceError and
        DecodeError kinds; TableMetaMismatch: a table was altered meanwhile."""
        plan = self._plan()
        while True:
            chunk = None
            if self._has_room():
                chunk = self._again.popleft() if self._again else next(plan, None)
                self._is_planned = self._is_planned or chunk is None
            if chunk is not None:
                self._read(chunk)
            if self._is_done:
                break
            if chunk is None and self._sequencer.has_doubts:
                shown_now(self._marks)  # raises where an XA transaction stays prepared
            yield from self._advance(0.0 if chunk is not None else _WAIT_S)
        if self._catalog.is_mariadb:
            at = self.position
            gtid = gtid_at(self._catalog, at.journal_name, at.position)
            self.position = replace(at, gtid=gtid)

    @property
    def _is_done(self) -> bool:
        """All rows are out, and no transaction is half told: a consistent place."""
        return self._is_planned and not (self._again or self._waiting or self._logged.is_inside)

    def _has_room(self) -> bool:
        taken = sum(chunk.size_bytes for chunk in self._waiting.values())
        return len(self._waiting) < _WAITING_CHUNKS and taken < _WAITING_BYTES

    def _plan(self) -> Iterator[_Chunk]:
        for table in self.tables:
            wanted = selection(table.meta)
            ranges = KeyRanges(table, wanted, self._ask)
            wait_until_unlocked(self._ask, table)
            end, self._row_bytes = ranges.greatest(), 0.0
            if end is not None:
                for each in ranges.ranges(None, end, partial(self._rows_of, table.row_bytes)):
                    yield _Chunk(table, wanted, each.condition)

    def _rows_of(self, row_bytes: int) -> int:
        """Return how many rows the next chunk may have. `row_bytes`: the server's estimate."""
        known = self._row_bytes or max(row_bytes, self._chunk_bytes / FIRST_ROWS)
        return max(int(self._chunk_bytes / known), 1)

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        return query(self._connections[1], self._config.source, sql)

    def _read(self, chunk: _Chunk) -> None:
        meta, wanted = chunk.table.meta, chunk.selection
        sql = (
            f"SELECT {wanted.expressions} FROM {from_clause(chunk.table)} WHERE {chunk.condition}"
        )
        self._sequencer.begin(self._number)
        low = self._marks.low()
        wait_until_unlocked(self._ask, chunk.table)
        reader = ResultReader(self._connections[0], self._config.source)
        read, chunk.size_bytes, rows = list[DecodedChunk](), 0, 0
        now = int(time.time())
        with contextlib.closing(reader.pieces(sql, wanted)) as pieces:
            for piece in pieces:
                # Its place is known only later: the chunk's events get it then.
                origin = Origin("", 0, self._server_id, now, self._flavor)
                read.append(decoded(wanted, piece, origin, self._ordinal))
                chunk.size_bytes += int(read[-1].arena.size)
                self._ordinal += piece.rows
                rows += piece.rows
        if rows:
            self._row_bytes = chunk.size_bytes / rows
        chunk.rows = UnplacedRows(read, chunk.table.key)
        high = self._marks.high()
        self._waiting[self._number] = chunk
        self._sequencer.read(ReadRange(self._number, (meta.schema, meta.table), low, high))
        self._number += 1

    def _advance(self, wait_s: float) -> Iterator[LogPart | ReadRows]:
        """Take what the log has now, then place what is due there."""
        changes = self._changes
        if changes is None:
            raise ConnectionLost("the snapshot is closed")
        for part in changes.read(wait_s):
            if not self._marks.sees_prepared and ends_prepared(part.info):
                raise not_seen(self._config.source)
            found = touched_by_outcome(part, self._key_of)
            self._logged.add(self._marks.stretch(part), found)
            yield part
            if part.closed:
                self.position = part.end
                yield from self._place()
                if self._is_done:
                    return  # what comes behind is another stream's
        if changes.reached.journal_name and changes.reached > self.position:
            self.position = changes.reached
        yield from self._place()

    def _key_of(self, schema: str, table: str) -> Sequence[str] | None:
        return self._keys.get((schema, table))

    def _place(self) -> Iterator[ReadRows]:
        if self._logged.is_inside:
            return  # a transaction is open: its rows are half told
        for placed in self._sequencer.due(self.position):
            yield from self._placed(placed)

    def _placed(self, placed: Placed[Keys]) -> Iterator[ReadRows]:
        chunk = self._waiting[placed.number]
        assert chunk.rows is not None
        found = None if placed.is_unsure else chunk.rows.take(placed.touched, placed.doubted)
        if found is None or not chunk.rows.chunks:
            del self._waiting[placed.number]
            self._sequencer.done(placed.number)
        if found is None:
            chunk.rounds += 1
            if chunk.rounds > _ROUNDS:
                name = chunk.table.meta.full_name
                raise undone_meanwhile(name) if placed.is_unsure else ambiguous_keys(name)
            self._again.append(chunk)
        for read, kept in found or ():
            yield ReadRows(_at(read, self.position), kept)

    def close(self) -> None:
        """End the stream and the connections."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None
        for connection in self._connections:
            close(connection)
        self._catalog.close()
        self._described.close()


def _at(chunk: DecodedChunk, position: EntryPosition) -> DecodedChunk:
    """The chunk, its events at this place."""
    chunk.events["position"] = position.position
    return DecodedChunk(
        chunk.layout._replace(journal_name=position.journal_name), chunk.arena
    )
