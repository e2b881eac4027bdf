"""The pool of decode tasks: one stateless function."""

from __future__ import annotations

from ray_canal.actors.log_settings import LogTerms, take_over
from ray_canal.actors.priority import as_ray_itself
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.malloc import keep_freed_memory


def decode_chunk(
    raw: RawChunk, parsed: ParsedChunk, terms: LogTerms | None = None
) -> tuple[ChunkInfo, DecodedChunk]:
    """Decode one chunk's rows, and log as `terms` say. A pure function of its arguments, so Ray may
    run it twice."""
    as_ray_itself()
    take_over(terms)
    keep_freed_memory()
    return decode(raw, parsed)
