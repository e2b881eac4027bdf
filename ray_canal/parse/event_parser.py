"""The event parser: a raw chunk's headers walked, its tables resolved, its statements
classified and applied to schemas."""

from __future__ import annotations

from collections.abc import Sequence

from ray_canal.binlog.assemble import assemble
from ray_canal.binlog.chunk import FLAVOR_MARIADB, ChunkHead, ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.binlog.format import version_numbers
from ray_canal.binlog.parsed import ParsedChunk, QueryEvent, QueryRecord
from ray_canal.binlog.table_map import TableMap
from ray_canal.binlog.walked import walk
from ray_canal.parse.ddl import classify
from ray_canal.parse.schemas import SchemaRegistry
from ray_canal.parse.table_state import Session
from ray_canal.parse.words import Dialect
from ray_canal.protocol.table_meta import TableMeta


class EventParser:
    """Parses chunks of one source. Where the registry keeps a history, chunks come in the log's
    order (they may come again); else in any order."""

    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    def parse(self, raw: RawChunk) -> ParsedChunk:
        """Walk one chunk. The first event that cannot be read is the result's `failure`."""
        journal_name = raw.head.journal_name

        def resolve(table_map: TableMap, position: int) -> TableMeta:
            return self._schemas.resolve(table_map, journal_name, position)

        def classified(event: QueryEvent) -> Sequence[QueryRecord]:
            return self._classified(raw.head, event)

        return assemble(raw, walk(raw), resolve, classified)

    def _classified(self, head: ChunkHead, event: QueryEvent) -> Sequence[QueryRecord]:
        records = classify(event)
        if not event.is_annotation:
            session = session_of(head, event)
            self._schemas.apply(head.journal_name, event.position, event.sql, session)
        for record in records:
            if record.is_ddl:
                self._schemas.changed(record.schema or event.schema)
        return records

    def decode_chunk(self, raw: RawChunk) -> tuple[ChunkInfo, DecodedChunk]:
        """Parse and decode in this process: fused mode, and decoding files offline."""
        return decode(raw, self.parse(raw))


def session_of(head: ChunkHead, event: QueryEvent) -> Session:
    """How the server that wrote the event read its statement."""
    mariadb = head.flavor == FLAVOR_MARIADB
    numbers = version_numbers(head.server_version.removeprefix("5.5.5-"))
    version = sum(n * scale for n, scale in zip(numbers, (10000, 100, 1), strict=False))
    dialect = Dialect(mariadb, version, event.sql_mode)
    return Session(event.schema, event.server_charset, dialect, event.error_code)
