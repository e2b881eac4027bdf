"""Parse a raw chunk: headers walked, tables resolved, statements classified and applied to
schemas."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ray_canal.binlog.annotations import hide_annotations
from ray_canal.binlog.assemble import Without, assemble
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.binlog.events import parse_query
from ray_canal.binlog.packed_chunk import pack
from ray_canal.binlog.parsed import ParsedChunk, QueryEvent, QueryRecord
from ray_canal.binlog.table_map import TableMap
from ray_canal.binlog.walked import Walked, digest_pieces, names_transactions, walk
from ray_canal.errors import TableMetaMismatch
from ray_canal.filter import EventFilter
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import query as q
from ray_canal.model.position import BINLOG_START, EntryPosition
from ray_canal.model.schema_record import Quarantined, SchemaChange, SchemaRecord
from ray_canal.model.table_event import RENAME, TableEffect
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.apply_ddl import is_ddl
from ray_canal.schema.ddl.event_filter import drop_events
from ray_canal.schema.ddl.row_effects import row_effects, with_effects
from ray_canal.schema.ddl.statements import classify, is_xa
from ray_canal.schema.ddl.temporary_tables import TemporaryTables
from ray_canal.schema.history import HistoryPlace, place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.names import Name, Names
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.schema.table_state import StatementSession, session_of

logger = logging.getLogger(__name__)

_EFFECTS_WITH_COLUMNS_MAX = 100
"""Tables that a statement may drop with their columns in its chunk; with more (DROP DATABASE) they
do not travel along."""


class _Before(NamedTuple):
    """Tables just before a statement: those that are known, or had rows, at `place`."""

    schemas: SchemaRegistry
    place: HistoryPlace

    def tables_of(self, schema: str) -> list[Name]:
        return self.schemas.tables_at(schema, self.place)

    def exists(self, name: Name) -> bool | None:
        return self.schemas.exists_at(name, self.place)

    def meta(self, name: Name) -> TableMeta | None:
        return self.schemas.known_at(self.schemas.names.pair(name), self.place)


class EventParser:
    """Parses chunks of one source. With a keeper of schemas, chunks come in the log's order (they
    may come again); else in any order. Without `wanted`, everything is. `names`: how the source's
    server compares names, asked for at `begin` where there is no keeper to know it."""

    def __init__(
        self,
        schemas: SchemaRegistry,
        keeper: SchemaKeeper | None = None,
        wanted: EventFilter | None = None,
        names: Callable[[], Names] | None = None,
    ) -> None:
        self._schemas = schemas
        self._keeper = keeper
        self._wanted = wanted
        self._ask_names = names
        self._temporary = TemporaryTables()
        if keeper is not None:
            schemas.use(keeper.history)

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
        """Stand at a place of a server's log, with the schema history that is known of it; see
        SchemaKeeper.begin."""
        if self._keeper is None:
            if self._ask_names is not None:
                self._schemas.use_names(self._ask_names())
            return ()
        new = self._keeper.begin(
            records, server, start, continues, before=before, other_log=other_log
        )
        self._schemas.use(self._keeper.history)
        return new

    def parse(self, raw: RawChunk) -> ParsedChunk:
        """Walk one chunk. The first event that cannot be read is the result's `failure`."""
        began_s = time.perf_counter()
        parsed = self._parsed(raw)
        parsed.stage_seconds["parse"] = time.perf_counter() - began_s
        return parsed

    def _parsed(self, raw: RawChunk) -> ParsedChunk:
        walked = walk(raw)
        if raw.head.position == BINLOG_START and raw.head.first_since_start:
            self._temporary.forget()
        pieces = None if names_transactions(walked) else digest_pieces(raw, walked)
        task = _Chunk(raw, walked, self._schemas, self._keeper, self._wanted, self._temporary)
        parsed = assemble(raw, walked, task.resolve, task.classified)
        if pieces is not None:
            parsed = replace(parsed, pieces=pieces)
        if self._wanted is not None and self._wanted.by_kind:
            drop_events(parsed, self._wanted)
        if walked.unasked:
            hide_annotations(parsed.events)
        if self._keeper is None:
            return parsed
        if parsed.skipped or raw.head.on_undecodable != "stop":
            parsed = replace(parsed, log=self._keeper.server)
        records = self._keeper.take_records()
        if not (records or task.changes or task.reasons):
            return parsed
        return replace(
            parsed, changes=tuple(task.changes), records=records, quarantined=task.quarantined()
        )

    @property
    def has_asked_rows(self) -> bool:
        """Return whether a statement had effects on a table of which, perhaps, only rows before it
        told."""
        return self._schemas.has_asked_rows

    def decode_chunk(self, raw: RawChunk) -> tuple[ChunkInfo, DecodedChunk]:
        """Parse and decode in this process: fused mode, and decoding files offline."""
        return decode(raw, self.parse(raw))


class _Chunk:
    """One chunk on its way through `assemble`: what it asks, and what is learned of schemas."""

    def __init__(
        self,
        raw: RawChunk,
        walked: Walked,
        schemas: SchemaRegistry,
        keeper: SchemaKeeper | None,
        wanted: EventFilter | None,
        temporary: TemporaryTables,
    ) -> None:
        self._temporary = temporary
        self._raw = raw
        self._walked = walked
        self._schemas = schemas
        self._keeper = keeper
        self._wanted = wanted
        self.changes: list[SchemaChange] = []
        self.reasons: dict[tuple[str, str], str] = {}
        self._first_left_out = 0

    def resolve(self, table_map: TableMap, position: int) -> TableMeta | Without:
        """The table's schema, or why its rows need none."""
        head, keeper, wanted = self._raw.head, self._keeper, self._wanted
        if wanted is not None and not wanted.wants_rows(table_map.schema, table_map.table):
            return Without.NOT_WANTED
        try:
            return self._schemas.resolve(table_map, head.journal_name, position)
        except TableMetaMismatch as error:
            if wanted is not None and wanted.table_error:
                logger.warning("its rows are dropped (filter.table_error): %s", error)
                return Without.NOT_WANTED
            if keeper is None:
                raise
            if not self._ends_with_ddl() and keeper.found_again(table_map, head, position):
                return self._schemas.resolve(table_map, head.journal_name, position)
            if keeper.on_ddl_error != "quarantine":
                raise
            self._first_left_out = self._first_left_out or position
            self.reasons.setdefault((table_map.schema, table_map.table), str(error))
            return Without.KEPT_ASIDE

    def _ends_with_ddl(self) -> bool:
        events, bodies = self._walked.events, self._walked.bodies
        for entry in np.flatnonzero(events["kind"] == q.KIND_SPECIAL)[::-1].tolist():
            if events["type_code"][entry] == event_types.QUERY:
                start, end = bodies[entry].tolist()
                if is_ddl(parse_query(self._raw.data[start:end].tobytes()).sql):
                    return True
        return False

    def classified(self, event: QueryEvent) -> Sequence[QueryRecord]:
        """The statement's records; what it does to schemas is done."""
        head = self._raw.head
        records = classify(event, self._schemas.names)
        if is_xa(event.sql):
            return records
        session = self._session(event)
        effects = self._effects(event, session)
        if effects:
            records = with_effects(records, effects)
        if self._keeper is not None and not event.is_annotation and is_ddl(event.sql):
            self.changes += self._keeper.applied(
                head, event.position, event.sql, session, moves_rows=bool(effects)
            )
        for record in records:
            if record.is_ddl:
                self._schemas.changed(record.schema or event.schema)
        return records

    def _session(self, event: QueryEvent) -> StatementSession:
        session = session_of(self._raw.head, event)
        if event.is_annotation:
            return session
        temporary = self._temporary.seen(event, session.dialect, self._schemas.names)
        return replace(session, temporary=temporary)

    def _effects(self, event: QueryEvent, session: StatementSession) -> list[TableEffect]:
        """Return what the statement does to rows; before it is applied to schemas."""
        head, schemas = self._raw.head, self._schemas
        place = place_of(head.journal_name, event.position - 1)
        found = row_effects(event, session, _Before(schemas, place), schemas.names)
        moved: dict[Name, TableMeta | None] = {}
        if len(found) > _EFFECTS_WITH_COLUMNS_MAX:
            moved = dict.fromkeys(self._schemas.names.pair(effect[1:3]) for effect in found)
        return [self._in_full(effect, place, moved) for effect in found]

    def _in_full(
        self, effect: TableEffect, place: HistoryPlace, moved: dict[Name, TableMeta | None]
    ) -> TableEffect:
        """Return the effects with the server's names and the columns until then. `moved`: the
        columns of tables that get a new name by the same statement."""
        names = self._schemas.names
        name = names.pair((effect.schema, effect.table))
        other = effect.other and names.pair(effect.other)
        before = other if effect.kind == RENAME and other else name
        meta = moved[before] if before in moved else self._schemas.known_at(before, place)
        moved[name] = meta
        return effect._replace(schema=name[0], table=name[1], other=other, meta=meta)

    def quarantined(self) -> tuple[Quarantined, ...]:
        """The chunk, if events of it were left out."""
        if not self.reasons or self._keeper is None:
            return ()
        reason = "; ".join(dict.fromkeys(self.reasons.values()))
        return (
            Quarantined(
                self._keeper.server,
                self._raw.head.journal_name,
                self._first_left_out,
                tuple(self.reasons),
                time.time(),
                reason,
                pack(self._raw),
            ),
        )
