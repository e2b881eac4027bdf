"""The pool of decode tasks: one stateless function."""

from __future__ import annotations

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.binlog.parsed import ParsedChunk


def decode_chunk(raw: RawChunk, parsed: ParsedChunk) -> tuple[ChunkInfo, DecodedChunk]:
    """Decode one chunk's rows. A pure function of its arguments, so Ray may run it twice."""
    return decode(raw, parsed)
