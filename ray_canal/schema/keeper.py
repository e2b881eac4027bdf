"""Keep a destination's schema history up to date: snapshot, DDL, and tables that got lost.

A table is lost where a DDL could not be applied, or where what is known does not fit its rows. It
is read again from the catalog if that is provably what the rows had: the log ends (for the server,
too) no later than the chunk at hand, and no DDL stands behind the rows. Else its events are put in
quarantine, or the destination stops, as configured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import ConfigError
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import BINLOG_START, EntryPosition
from ray_canal.model.schema_record import (
    DDL,
    SNAPSHOT,
    CatalogSnapshot,
    SchemaChange,
    SchemaRecord,
)
from ray_canal.schema.column_changes import ColumnChanges, column_changes
from ray_canal.schema.ddl.alter_table import Alteration
from ray_canal.schema.ddl.apply_ddl import altered_table, created_table
from ray_canal.schema.ddl_scan import oldest_snapshot, reaching_back
from ray_canal.schema.fit import misfit_of_state
from ray_canal.schema.history import FileOrder, HistoryPlace, Key, SchemaHistory, place_of
from ray_canal.schema.names import Name, Names
from ray_canal.schema.records import (
    compacted,
    ddl_record,
    load_history,
    log_number,
    numbered_log,
    of_log,
    present_log,
    record_place,
    snapshot_head,
    snapshot_record,
    table_record,
    with_number,
    with_period,
    without_gap,
)
from ray_canal.schema.table_state import StatementSession, TableState

logger = logging.getLogger(__name__)

_STATEMENTS_MAX = 5_000
"""After so many statements a snapshot is made of what is known, however soon that is: it is what
older records are dropped for."""

OnDdlError = Literal["catalog", "quarantine", "stop"]


class LiveCatalog(Protocol):
    """Questions that the keeper asks a server (source/catalog_tables.py)."""

    def position(self) -> EntryPosition:
        """Return the place in the log at which the catalog was read."""
        ...

    def snapshot(self) -> CatalogSnapshot: ...

    def table_now(self, schema: str, table: str) -> CatalogSnapshot:
        """One table (or none), and where the log ended after it was read."""
        ...

    def has_row_metadata(self) -> bool:
        """Return whether rows come with column names now."""
        ...

    def lower_case_table_names(self) -> int:
        """Return how the server compares names (names.py)."""
        ...

    def files(self) -> list[str]:
        """The files of its log, in order."""
        ...

    def created_s(self, journal_name: str) -> int:
        """Return when a file of its log was created; 0: there is no such file."""
        ...

    def chunks(self, first: str, last: str) -> Iterable[RawChunk]:
        """The log from the beginning of a file to the present end of another one."""
        ...


class SchemaKeeper:
    """The history of one log, and the records that are to be kept of it. `names`: how its server
    compares them, where no catalog says so."""

    def __init__(
        self,
        catalog: LiveCatalog | None,
        on_ddl_error: OnDdlError = "catalog",
        snapshot_interval_hours: float = 24.0,
        names: Names | None = None,
    ) -> None:
        self.names = names or Names()
        self._order, self._files = FileOrder(), list[str]()
        self.history = SchemaHistory(self.names, self._order)
        self.on_ddl_error = on_ddl_error
        self.server = ""
        self._catalog = catalog
        self._interval_hours = snapshot_interval_hours
        self._new: list[SchemaRecord] = []
        self._snapshot_at = time.time()  # or when the oldest statement behind it came
        self._last_statement: tuple[str, int] | None = None  # since the newest snapshot
        self._statements = 0
        self._created_s = 0  # of the file that it is in
        self._chunk: tuple[str, int] | None = None  # the last one with a statement

    def begin(
        self,
        records: Iterable[SchemaRecord],
        server: str,
        start: EntryPosition,
        continues: bool = False,
        *,
        before: Sequence[EntryPosition] = (),
        other_log: bool = False,
    ) -> tuple[SchemaRecord, ...]:
        """Load the history for reading from `start`. There is none, or it ends before `start`, so
        that statements between them were never read: take a snapshot. `continues`: reading goes on
        where it was before, so nothing lies between. `before`: up to where this log was read; it
        goes on at `start` too where that is the first file of another base name behind it.
        `other_log`: the server's log is another one than that of which something is known.

        Returns the records that are new. Raises SourceError kinds, ConfigError."""
        known = list(records)
        self._new, self._chunk, self._created_s = [], None, 0
        self._ask_server(known)
        self.server, known = self._log_of(known, server, other_log)
        place = place_of(start.journal_name, start.position)
        known = [*without_gap(known, place, self._order)]
        history = self.history = self._loaded(known, start)
        continues = continues or any(self._is_next(each, start) for each in before)
        key = self._order.key
        gap = not continues and all(key(record_place(record)) < key(place) for record in known)
        if self._catalog is not None and (gap or not history.has_snapshot):
            gap = history.has_snapshot  # statements behind it are there that nobody read
            if gap:
                self.history, known = SchemaHistory(self.names, self._order), []
            self._take_snapshot(self._catalog, after_gap=gap)
        else:
            self._note_statements(known)
            self._compact()
        self._reach_back(known, start)
        self.history.forget(place)
        return self.take_records()

    def _loaded(self, records: Iterable[SchemaRecord], start: EntryPosition) -> SchemaHistory:
        place = place_of(start.journal_name, start.position)
        return load_history(records, self.server, place, self.names, self._order)

    def _ask_server(self, records: Iterable[SchemaRecord]) -> None:
        """Learn how the server compares names, and how its log's files are ordered. Files whose
        base name the log has no more come before those that it has."""
        known = (place_of(record.journal_name, 0)[0][0] for record in records)
        if self._catalog is None:
            self._order = FileOrder(known)
            return
        self._files = self._catalog.files()
        present = list(dict.fromkeys(place_of(name, 0)[0][0] for name in self._files))
        self._order = FileOrder([*(base for base in known if base not in present), *present])
        setting = self._catalog.lower_case_table_names()
        if self.names.setting not in (None, setting):
            raise ConfigError(
                f"source.lower_case_table_names is {self.names.setting}, the server's is {setting};"
                ' leave it at "auto" for a server, it is asked'
            )
        self.names = Names(setting)

    def _is_next(self, place: EntryPosition, start: EntryPosition) -> bool:
        """Return whether `start` is the next file's beginning, which has another base name
        (log_bin). Who chose it has made sure that nothing lies behind `place` in its own file."""
        names = self._files
        if start.position != BINLOG_START or place.journal_name not in names[:-1]:
            return False
        following = names[names.index(place.journal_name) + 1]
        is_renamed = place_of(place.journal_name, 0)[0][0] != place_of(following, 0)[0][0]
        return is_renamed and following == start.journal_name

    def _log_of(
        self, records: list[SchemaRecord], server: str, other_log: bool
    ) -> tuple[str, list[SchemaRecord]]:
        """Find which log of the server is read now, and what is known of it."""
        if self._catalog is None:
            return server, of_log(records, server, self._order)
        log = present_log(records, server)
        number, known = log_number(server, log), of_log(records, log, self._order)
        if known and not number:
            number, known = 1, with_number(known, server, 1)
            self._new += known
        if known and (why := self._is_another(known, self._catalog, other_log)):
            logger.warning("%s: what is known of its schemas is of another log (%s); the catalog "
                           "is read", server, why)  # fmt: skip
            number, known, self._new = number + 1, [], []
        return numbered_log(server, max(number, 1)), known

    def _is_another(self, known: list[SchemaRecord], catalog: LiveCatalog, other_log: bool) -> str:
        """Return why the known history cannot be of the server's present log; empty if it can.

        The log began again (RESET, a copy that was put back), or the server compares names in
        another way since, and statements would have to be applied in another way, too.
        `other_log`: it did for the cursors; what is known may have been learned since."""
        end = catalog.position()
        behind = self._key(end.journal_name, end.position)
        if any(self._order.key(record_place(record)) > behind for record in known):
            return f"it ends at {end} now"
        listed = {place_of(name, 0)[0][0] for name in self._files}
        gone = {record_place(record)[0][0] for record in known} - listed
        if len(gone) > 1:
            return f"which of its files named {' and '.join(sorted(gone))} came first is not known"
        snapshots = [record for record in reversed(known) if record.kind == SNAPSHOT]
        if snapshots and snapshot_head(snapshots[0]).setting != self.names.setting:
            return f"lower_case_table_names is {self.names.setting} now"
        executed = next((each.gtid for each in map(snapshot_head, snapshots) if each.gtid), "")
        comparable = _is_gtid_set(executed) and (_is_gtid_set(end.gtid) or not end.gtid)
        if comparable and not GtidSet.parse(executed).issubset(GtidSet.parse(end.gtid)):
            return "transactions that it had are gone"
        for record in snapshots:
            created_s = snapshot_head(record).created_s
            now_s = catalog.created_s(record.journal_name) if created_s else 0
            if now_s:
                return f"{record.journal_name} is another file" if now_s != created_s else ""
        return "it began again" if other_log else ""

    def _take_snapshot(self, catalog: LiveCatalog, *, after_gap: bool) -> None:
        snapshot = catalog.snapshot()
        tables = tuple(with_period(state) for state in snapshot.tables)
        snapshot = replace(snapshot, tables=tables, after_gap=after_gap)
        at = place_of(snapshot.journal_name, snapshot.position)
        self.history.take_snapshot(at, tables, snapshot.charsets)
        self._keep_snapshot(snapshot_record(self.server, time.time(), snapshot, self.names.setting))

    def _keep_snapshot(self, record: SchemaRecord) -> None:
        self._new.append(record)
        self._snapshot_at, self._statements, self._last_statement = record.recorded_at, 0, None

    def _note_statements(self, known: list[SchemaRecord]) -> None:
        """Note what is known after the newest snapshot."""
        newest = max((at for at, r in enumerate(known) if r.kind == SNAPSHOT), default=-1)
        since = [record for record in known[newest + 1 :] if record.kind == DDL]
        self._snapshot_at = known[max(newest, 0)].recorded_at if known else time.time()
        self._statements = len(since)
        last = known[-1] if known and newest < len(known) - 1 else None
        self._last_statement = None if last is None else (last.journal_name, last.position)

    def _compact(self) -> None:
        """Make a snapshot of what is known, if the newest one is old and there was DDL since."""
        if self._last_statement is None:
            return
        age_s = time.time() - self._snapshot_at
        if age_s >= self._interval_hours * 3600 or self._statements >= _STATEMENTS_MAX:
            last, created_s = self._last_statement, self._created_s
            self._keep_snapshot(compacted(self.history, self.server, time.time(), last, created_s))

    def _reach_back(self, known: list[SchemaRecord], start: EntryPosition) -> None:
        """Learn what the oldest snapshot says of the log before it, if reading starts before all
        that is known."""
        snapshot = oldest_snapshot([*known, *self._new], self.server, self._order)
        if self._catalog is None or snapshot is None:
            return
        key = self._order.key
        if key(place_of(start.journal_name, start.position)) >= key(record_place(snapshot)):
            return
        where = f"{snapshot.journal_name}:{snapshot.position}"
        if self._catalog.has_row_metadata():
            logger.warning("reading starts at %s, before the catalog's snapshot at %s: until then "
                           "rows without row metadata are refused", start, where)  # fmt: skip
            return
        logger.warning("reading starts at %s, before the catalog's snapshot at %s: the log in "
                       "between is read for DDL first", start, where)  # fmt: skip
        chunks = self._catalog.chunks(start.journal_name, snapshot.journal_name)
        since = (start.journal_name, start.position)
        self._new += reaching_back(snapshot, since, chunks, self.names, self._order)
        self.history = self._loaded([*known, *self._new], start)

    def take_records(self) -> tuple[SchemaRecord, ...]:
        """The records since the last call."""
        new, self._new = tuple(self._new), []
        return new

    def applied(
        self,
        head: ChunkHead,
        position: int,
        sql: str,
        session: StatementSession,
        *,
        moves_rows: bool = False,
    ) -> tuple[SchemaChange, ...]:
        """Apply a statement of the log. Returns the tables whose columns it changed, and, if it
        `moves_rows` (to another name, or a partition's), all that it names; the same when its chunk
        comes again."""
        place = place_of(head.journal_name, position)
        self._forget_before_last(head)
        effects = self.history.apply(place, sql, session)
        if effects is not None and (effects.tables or effects.charsets):
            if effects.made_new:  # by what was known then, and may be forgotten
                session = replace(session, is_done=True)
            record = ddl_record(self.server, time.time(), head.journal_name, position, sql, session)
            self._new.append(record)
            self._statements += 1
            self._last_statement = (head.journal_name, position)
            self._created_s = head.created_s
            for name, state in effects.tables.items():
                if state is not None and state.problem and self.on_ddl_error != "stop":
                    self._read_again(name, head, position, lambda _: True)
            self._compact()
        changes = []
        before = place_of(head.journal_name, position - 1)
        new, alteration = self._new_table(before, sql, session), altered_table(sql, session)
        for name, state in self.history.changed_at(place).items():
            meta = None if state is None or state.problem else state.meta
            problem = "" if state is None else state.problem
            is_new = state is not None and name == new
            of_columns = self._column_changes(name, state, before, alteration)
            is_changed = moves_rows or name == new or of_columns != ColumnChanges()
            if not is_changed and self._is_as_before(name, state, before):
                continue
            change = SchemaChange(position, *name, meta, problem, is_new)
            changes.append(replace(change, **of_columns._asdict()))
        return tuple(changes)

    def _new_table(self, before: HistoryPlace, sql: str, session: StatementSession) -> Name | None:
        """Return the table that a statement makes, which was not there before it. (IF NOT EXISTS
        is in the log in any case; of a table that may have been there, it is taken to have been.)
        """
        made = created_table(sql, session)
        if made is None:
            return None
        name, maybe = self.names.pair(made[0]), made[1]
        is_known = self.history.has_all_at(before)
        is_old = maybe and (not is_known or self.history.tracked(name, before) is not None)
        return None if is_old else name

    def _is_as_before(self, name: Name, state: TableState | None, before: HistoryPlace) -> bool:
        """Return whether a table's columns are as they were: the statement was about indexes,
        partitions, options."""
        old = self.history.tracked(name, before)
        if old is None or state is None or old.problem or state.problem:
            return False
        return old.meta == state.meta

    def _column_changes(
        self, name: Name, state: TableState | None, before: HistoryPlace, change: Alteration | None
    ) -> ColumnChanges:
        old = name
        if change is not None and change.new_name is not None:
            if name == self.names.pair(change.new_name):
                old = self.names.pair(change.table)
        elif change is not None and name != self.names.pair(change.table):
            change = None
        return column_changes(self.history.tracked(old, before), state, change)

    def _forget_before_last(self, head: ChunkHead) -> None:
        """Forget what held only before the last chunk with a statement; this chunk has one."""
        here = (head.journal_name, head.position)
        if self._chunk is not None and self._key(*self._chunk) < self._key(*here):
            self.history.forget(place_of(*self._chunk))
        self._chunk = here

    def _key(self, journal_name: str, position: int) -> Key:
        return self._order.key(place_of(journal_name, position))

    def found_again(self, table_map: TableMap, head: ChunkHead, position: int) -> bool:
        """Read a table whose rows do not fit what is known from the catalog again; return whether
        it fits then. The caller makes sure that no DDL comes after the rows in their chunk."""
        if self.on_ddl_error == "stop":
            return False
        name = (table_map.schema, table_map.table)
        return self._read_again(
            name, head, position, lambda state: not misfit_of_state(table_map, state)
        )

    def _read_again(
        self,
        name: tuple[str, str],
        head: ChunkHead,
        position: int,
        fits: Callable[[TableState], bool],
    ) -> bool:
        if self._catalog is None:
            return False
        found = self._catalog.table_now(*name)
        behind = self._key(found.journal_name, found.position)
        if not found.tables or behind > self._key(head.journal_name, head.end_position):
            return False
        state = with_period(found.tables[0])
        if not fits(state):
            return False
        logger.warning("table %s.%s at %s:%d was read again from the catalog", *name,
                    head.journal_name, position)  # fmt: skip
        self.history.put(place_of(head.journal_name, position), state)
        self._new.append(table_record(self.server, time.time(), head.journal_name, position, state))
        return True


def _is_gtid_set(text: str) -> bool:
    """MySQL's; a server of MariaDB may count its positions from the start again without a RESET."""
    return ":" in text
