"""What keeps a destination's schema history going: snapshot, DDL, and tables that got lost.

A table is lost where a DDL could not be applied, or where what is known does not fit its rows. It
is read anew from the catalog if that is provably what the rows had: the log ends (for the server,
too) no later than the chunk at hand, and no DDL stands behind the rows. Else its events are put in
quarantine, or the destination stops, as configured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.binlog.table_map import TableMap
from ray_canal.parse.fit import misfit_of_state
from ray_canal.parse.history import Place, SchemaHistory, place_of
from ray_canal.parse.prescan import oldest_snapshot, reaching_back
from ray_canal.parse.records import (
    compacted,
    ddl_record,
    load_history,
    of_server,
    snapshot_record,
    table_record,
    with_period,
)
from ray_canal.parse.table_state import Session, TableState
from ray_canal.protocol.position import EntryPosition
from ray_canal.protocol.schema_record import CatalogSnapshot, SchemaChange, SchemaRecord

log = logging.getLogger(__name__)

OnDdlError = Literal["catalog", "quarantine", "stop"]


class LiveCatalog(Protocol):
    """What the keeper asks a server (driver/catalog_tables.py)."""

    def position(self) -> EntryPosition: ...

    def snapshot(self) -> CatalogSnapshot: ...

    def table_now(self, schema: str, table: str) -> CatalogSnapshot:
        """One table (or none), and where the log ended after it was read."""
        ...

    def has_row_metadata(self) -> bool:
        """Whether rows come with column names now."""
        ...

    def chunks(self, first: str, last: str) -> Iterable[RawChunk]:
        """The log from the beginning of a file to the present end of another one."""
        ...


class SchemaKeeper:
    """The history of one server, and the records that are to be kept of it."""

    def __init__(
        self,
        catalog: LiveCatalog | None,
        on_ddl_error: OnDdlError = "catalog",
        snapshot_interval_hours: float = 24.0,
    ) -> None:
        self.history = SchemaHistory()
        self.on_ddl_error = on_ddl_error
        self.server = ""
        self._catalog = catalog
        self._interval_hours = snapshot_interval_hours
        self._new: list[SchemaRecord] = []

    def begin(
        self,
        records: Iterable[SchemaRecord],
        server: str,
        start: EntryPosition,
        continues: bool = False,
    ) -> tuple[SchemaRecord, ...]:
        """Load the history for reading from `start`. There is none, or it ends before `start`, so
        that statements between them were never read: take a snapshot. `continues`: reading goes on
        where it was before, so nothing lies between.

        Returns the records that are new. Raises SourceError kinds, ConfigError."""
        known = list(records)
        self.server = server
        place = place_of(start.journal_name, start.position)
        history = self.history = load_history(known, server, place)
        self._new = []
        gap = not continues and _ends_before(known, server, place)
        if self._catalog is not None and (
            gap or not history.has_snapshot or _is_anew(known, server, self._catalog.position())
        ):
            history = self.history = SchemaHistory() if history.has_snapshot else history
            snapshot = self._catalog.snapshot()
            tables = tuple(with_period(state) for state in snapshot.tables)
            snapshot = CatalogSnapshot(
                snapshot.journal_name, snapshot.position, tables, snapshot.charsets
            )
            at = place_of(snapshot.journal_name, snapshot.position)
            history.take_snapshot(at, tables, snapshot.charsets)
            self._new.append(snapshot_record(server, time.time(), snapshot))
        else:
            record = compacted(history, known, server, time.time(), self._interval_hours)
            self._new.extend([record] if record is not None else [])
        self._reach_back(known, start)
        return self.take_records()

    def _reach_back(self, known: list[SchemaRecord], start: EntryPosition) -> None:
        """Where reading starts before all that is known: learn what the oldest snapshot says of the
        log in between."""
        snapshot = oldest_snapshot([*known, *self._new], self.server)
        place = place_of(start.journal_name, start.position)
        if self._catalog is None or snapshot is None:
            return
        if place >= place_of(snapshot.journal_name, snapshot.position):
            return
        where = f"{snapshot.journal_name}:{snapshot.position}"
        if self._catalog.has_row_metadata():
            log.warning("reading starts at %s, before the catalog's snapshot at %s: until there, "
                        "rows without row metadata are refused", start, where)  # fmt: skip
            return
        log.warning("reading starts at %s, before the catalog's snapshot at %s: the log in between "
                    "is read for DDL first", start, where)  # fmt: skip
        chunks = self._catalog.chunks(start.journal_name, snapshot.journal_name)
        self._new += reaching_back(snapshot, (start.journal_name, start.position), chunks)
        self.history = load_history([*known, *self._new], self.server, place)

    def take_records(self) -> tuple[SchemaRecord, ...]:
        """The records since the last call."""
        new, self._new = tuple(self._new), []
        return new

    def applied(
        self, head: ChunkHead, position: int, sql: str, session: Session
    ) -> tuple[SchemaChange, ...]:
        """A statement of the log: the tables that it changed, also when it comes again."""
        place = place_of(head.journal_name, position)
        effects = self.history.apply(place, sql, session)
        if effects is not None and (effects.tables or effects.charsets):
            record = ddl_record(self.server, time.time(), head.journal_name, position, sql, session)
            self._new.append(record)
            for name, state in effects.tables.items():
                if state is not None and state.problem and self.on_ddl_error != "stop":
                    self._read_anew(name, head, position, lambda _: True)
        changes = []
        for (schema, table), state in self.history.changed_at(place).items():
            meta = None if state is None or state.problem else state.meta
            problem = "" if state is None else state.problem
            changes.append(SchemaChange(position, schema, table, meta, problem))
        return tuple(changes)

    def found_again(self, table_map: TableMap, head: ChunkHead, position: int) -> bool:
        """Whether a table whose rows do not fit what is known was read anew from the catalog.
        The caller makes sure that no DDL stands behind the rows in their chunk."""
        if self.on_ddl_error == "stop":
            return False
        name = (table_map.schema, table_map.table)
        return self._read_anew(
            name, head, position, lambda state: not misfit_of_state(table_map, state)
        )

    def _read_anew(
        self,
        name: tuple[str, str],
        head: ChunkHead,
        position: int,
        fits: Callable[[TableState], bool],
    ) -> bool:
        if self._catalog is None:
            return False
        found = self._catalog.table_now(*name)
        behind = place_of(found.journal_name, found.position)
        if not found.tables or behind > place_of(head.journal_name, head.end_position):
            return False
        state = with_period(found.tables[0])
        if not fits(state):
            return False
        log.warning("table %s.%s at %s:%d was read anew from the catalog", *name,
                    head.journal_name, position)  # fmt: skip
        self.history.put(place_of(head.journal_name, position), state)
        self._new.append(
            table_record(self.server, time.time(), head.journal_name, position, state)
        )
        return True


def _is_anew(records: list[SchemaRecord], server: str, end: EntryPosition) -> bool:
    """Whether the server's log began anew (RESET): something is known from behind its end."""
    behind = place_of(end.journal_name, end.position)
    return any(
        place_of(record.journal_name, record.position) > behind
        for record in of_server(records, server)
    )


def _ends_before(records: list[SchemaRecord], server: str, start: Place) -> bool:
    """Whether everything that is known of the server's log lies before `start`."""
    return all(
        place_of(record.journal_name, record.position) < start
        for record in of_server(records, server)
    )
