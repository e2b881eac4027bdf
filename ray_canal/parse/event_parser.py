"""The event parser: a raw chunk's headers walked, its tables resolved, its statements
classified."""

from __future__ import annotations

from collections.abc import Sequence

from ray_canal.binlog.assemble import assemble
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.binlog.parsed import ParsedChunk, QueryEvent, QueryRecord
from ray_canal.binlog.walked import walk
from ray_canal.parse.ddl import classify
from ray_canal.parse.schemas import SchemaRegistry


class EventParser:
    """Parses chunks of one source. Chunks may come in any order; the only state is the schema
    cache."""

    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    def parse(self, raw: RawChunk) -> ParsedChunk:
        """Walk one chunk. The first event that cannot be read is the result's `failure`."""
        return assemble(raw, walk(raw), self._schemas.resolve, self._classify)

    def _classify(self, event: QueryEvent) -> Sequence[QueryRecord]:
        records = classify(event)
        for record in records:
            if record.is_ddl:
                self._schemas.changed(record.schema or event.schema)
        return records

    def decode_chunk(self, raw: RawChunk) -> tuple[ChunkInfo, DecodedChunk]:
        """Parse and decode in this process: fused mode, and decoding files offline."""
        return decode(raw, self.parse(raw))
